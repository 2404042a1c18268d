/** The limit of create requests per app, with a clock that the tests move. */
import { afterAll, describe, expect, test } from 'vitest';
import { createTokenText } from '../../src/base/token-text.ts';
import type { HttpResponse } from '../support/http-client.ts';
import {
  CREATE_EVENT,
  startTestService,
  TestClock,
  type TestService,
  withTestService,
} from '../support/service.ts';
import { created, refused } from './answers.ts';

function overLimit(response: HttpResponse): void {
  refused(response, 429, 'RATE_LIMIT_EXCEEDED', 'Rate limit exceeded');
}

/** limit, remaining, reset, as the headers say. */
function shown({ headers }: HttpResponse): (string | undefined)[] {
  return [headers['ratelimit-limit'], headers['ratelimit-remaining'], headers['ratelimit-reset']];
}

/** A service as an app of a test's own sees it. */
type Tested = Pick<TestService, 'sql' | 'newApp' | 'post'> & {
  /** A good request with further headers. */
  request(headers: Readonly<Record<string, string>>): Promise<HttpResponse>;
};

describe('over HTTP,', () => {
  const clock = new TestClock();
  /** By limit. Tests share them, as each has an app of its own. */
  const services = new Map<number, Promise<TestService>>();
  afterAll(async () => {
    for (const service of services.values()) await (await service).stop();
  });

  const withLimit = async (
    limit: number,
    work: (service: Tested, clock: TestClock) => Promise<void>,
  ): Promise<void> => {
    const config = { CREATE_LIMIT_PER_MINUTE: limit };
    const starting = services.get(limit) ?? startTestService({ clock, database: 'shared', config });
    services.set(limit, starting);
    const service = await starting;
    const { sql, newApp } = service;
    const app = await newApp();
    const { typeId } = await service.newType(app, 'test type');
    const post: TestService['post'] = (fields) =>
      service.post({ loggingToken: app.loggingToken, typeId, ...fields });
    const request: Tested['request'] = (headers) => {
      const body = JSON.stringify({ loggingToken: app.loggingToken, typeId, payload: {} });
      return service.request({ method: 'POST', path: CREATE_EVENT, headers, body });
    };
    await work({ sql, newApp, post, request }, clock);
  };

  test('1,000 requests are accepted in a minute, and no more, however many come at once', async () => {
    await withTestService({ clock: new TestClock(), database: 'shared' }, async (service) => {
      // Its token and type are looked up before: a lookup that the others keep from the event loop for seconds is given up.
      created(await service.post());
      const answers = await Promise.all(Array.from({ length: 1_049 }, () => service.post()));
      expect(answers.filter(({ status }) => status === 201).length).toBe(999);
      expect(answers.filter(({ status }) => status === 429).length).toBe(50);
      const [row] = await service.sql`
        SELECT count(*)::int AS events FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${service.app.appId}`;
      expect(row?.events).toBe(1_000);
    });
  });

  test('the headers count down, and one more is accepted when the oldest request is 60 s old', async () => {
    await withLimit(2, async (service, clock) => {
      expect(shown(await service.post())).toEqual(['2', '1', '60']);
      clock.advance(10_500);
      expect(shown(await service.post())).toEqual(['2', '0', '50']);
      clock.advance(49_499);
      const response = await service.post();
      overLimit(response);
      expect(shown(response)).toEqual(['2', '0', '1']);
      clock.advance(1);
      expect(shown(await service.post())).toEqual(['2', '0', '11']);
    });
  });

  test('a client that waits for Retry-After is accepted', async () => {
    await withLimit(1, async (service, clock) => {
      created(await service.post());
      clock.advance(12_345);
      const response = await service.post();
      overLimit(response);
      expect(response.headers['retry-after']).toBe('48');
      clock.advance(Number(response.headers['retry-after']) * 1_000);
      created(await service.post());
    });
  });

  test('a request that was answered 429 does not count', async () => {
    await withLimit(1, async (service, clock) => {
      created(await service.post());
      for (let index = 0; index < 5; index += 1) {
        clock.advance(10_000);
        overLimit(await service.post());
      }
      clock.advance(10_000);
      created(await service.post());
    });
  });

  test('a request counts once its token is valid, also if its type is not found', async () => {
    await withLimit(1, async (service) => {
      const response = await service.post({ typeId: 'unknown' });
      refused(response, 404, 'EVENT_TYPE_NOT_FOUND', 'Event type not found');
      expect(shown(response)).toEqual(['1', '0', '60']);
      overLimit(await service.post());
    });
  });

  test('requests with a bad body or token do not count and show no limit', async () => {
    await withLimit(1, async (service) => {
      const answers = [
        await service.post({ payload: undefined }),
        await service.post({ loggingToken: createTokenText('tdl') }),
        await service.post({ payload: { a: 'x'.repeat(1_048_576) } }),
      ];
      expect(answers.map(({ status }) => status)).toEqual([400, 401, 413]);
      for (const answer of answers) expect(shown(answer)).toEqual([undefined, undefined, undefined]);
      created(await service.post());
    });
  });

  test('an app at its limit still gets 400 for a bad body and 401 for a bad token, but 429 before 404', async () => {
    await withLimit(1, async (service) => {
      created(await service.post());
      expect((await service.post({ payload: undefined })).status).toBe(400);
      expect((await service.post({ loggingToken: createTokenText('tdl') })).status).toBe(401);
      overLimit(await service.post({ typeId: 'unknown' }));
    });
  });

  test('an app at its limit creates no event type', async () => {
    await withLimit(1, async (service) => {
      created(await service.post());
      overLimit(await service.post({ typeId: undefined, typeName: 'one too many' }));
      expect((await service.sql`SELECT 1 FROM event_types WHERE name = 'one too many'`).length).toBe(0);
    });
  });

  test('each app has its own limit', async () => {
    await withLimit(1, async (service) => {
      created(await service.post());
      overLimit(await service.post());
      const { loggingToken } = await service.newApp();
      created(await service.post({ loggingToken, typeId: undefined, typeName: 'mine' }));
    });
  });

  test('security 14: X-Forwarded-For and its like change no limit', async () => {
    await withLimit(1, async (service) => {
      created(await service.post());
      for (const name of ['X-Forwarded-For', 'Forwarded', 'X-Real-IP', 'CF-Connecting-IP']) {
        overLimit(await service.request({ [name]: '203.0.113.7' }));
      }
    });
  });

  test('a limit of 0 is none, and none is shown', async () => {
    await withLimit(0, async (service) => {
      const answers = await Promise.all(Array.from({ length: 50 }, () => service.post()));
      for (const answer of answers) {
        created(answer);
        expect(shown(answer)).toEqual([undefined, undefined, undefined]);
      }
    });
  });
});
