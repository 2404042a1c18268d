/** Every path and method but the good ones, and the two health routes, over both transports. */

import { beforeAll, describe, expect, test } from 'vitest';
import { readVersion } from '../../src/process/version.ts';
import { tidemark } from '../support/command-line.ts';
import { HttpConnection, type HttpResponse } from '../support/http-client.ts';
import { FaultyProxy } from '../support/proxy.ts';
import {
  CREATE_EVENT,
  sharedService,
  startTestService,
  type TestService,
  until,
  withTestService,
} from '../support/service.ts';
import { created, expectCommonHeaders, refused } from './answers.ts';

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let service: TestService;
  beforeAll(async () => {
    service = await sharedService({ transport });
  });

  const notFound = (response: HttpResponse): void => {
    refused(response, 404, 'NOT_FOUND', 'Not found');
  };

  describe('a path where nothing is', () => {
    test.each([
      '/nope',
      '/public',
      '/public/',
      '/public/create_event/',
      '/public/create_event/x',
      '/PUBLIC/create_event',
      '/public//create_event',
      '/public/create%5Fevent',
      '/public/create_event%00',
      '/public/../livez',
      '/livez/',
      '/%',
      '/%ff',
      `/${'x'.repeat(2_000)}`,
    ])("is answered with 404 and the contract's body: %s", async (path) => {
      notFound(await service.request({ path }));
    });

    test.each(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])(
      'is answered with 404 to %s too',
      async (method) => {
        notFound(await service.request({ method, path: '/nope', body: '{}' }));
      },
    );

    test('is answered with 404 without a body to HEAD', async () => {
      const response = await service.request({ method: 'HEAD', path: '/nope' });
      expect(response.status).toBe(404);
      expect(Number(response.headers['content-length'])).toBeGreaterThan(0);
      expectCommonHeaders(response);
    });

    test('is answered with a page to a browser, and in JSON to everybody below the paths of programs', async () => {
      const headers = { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
      for (const method of ['GET', 'HEAD']) {
        const page = await service.request({ method, path: '/nope', headers });
        expect([page.status, page.headers['content-type']]).toEqual([404, 'text/html; charset=utf-8']);
        expect(page.headers['content-security-policy']).toContain("default-src 'none'");
      }
      for (const path of ['/public/nope', '/v1/nope', '/api/nope', '/public', '/v1', '/api'])
        notFound(await service.request({ path, headers }));
      notFound(await service.request({ path: '/nope', headers: { Accept: '*/*' } }));
      notFound(await service.request({ method: 'POST', path: '/nope', headers, body: '{}' }));
    });

    test('does not repeat what was asked for', async () => {
      const response = await service.request({ path: '/<script>alert(1)</script>' });
      notFound(response);
      expect(response.body).not.toContain('script');
    });
  });

  test('an Expect that is not known is ignored', async () => {
    const headers = { Expect: 'miracles' };
    const body = service.body('{}');
    created(await service.request({ method: 'POST', path: CREATE_EVENT, headers, body }));
  });

  describe('another method', () => {
    const notAllowed = (response: HttpResponse, allow: string): void => {
      refused(response, 405, 'METHOD_NOT_ALLOWED', 'Method not allowed');
      expect(response.headers.allow).toBe(allow);
    };

    test.each(['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'])(
      '%s on create_event is answered with 405 that allows POST',
      async (method) => {
        notAllowed(await service.request({ method, path: CREATE_EVENT }), 'POST');
      },
    );

    test.each(['PUT', 'PATCH', 'DELETE', 'OPTIONS'])(
      '%s on create_event with a body is answered with 405 and stores nothing',
      async (method) => {
        const body = service.body('{"by":"another method"}');
        notAllowed(await service.request({ method, path: CREATE_EVENT, body }), 'POST');
        const rows = await service.sql`SELECT 1 FROM events WHERE payload::text LIKE '%another method%'`;
        expect(rows.length).toBe(0);
      },
    );

    test('HEAD on create_event is answered with 405 that allows POST, without a body', async () => {
      const response = await service.request({ method: 'HEAD', path: CREATE_EVENT });
      expect(response.status).toBe(405);
      expect(response.headers.allow).toBe('POST');
      expectCommonHeaders(response);
    });

    test('X-HTTP-Method-Override does not make another method of one', async () => {
      const headers = { 'X-HTTP-Method-Override': 'POST' };
      notAllowed(
        await service.request({ method: 'PUT', path: CREATE_EVENT, headers, body: service.body('{}') }),
        'POST',
      );
    });

    test.each(['/livez', '/readyz'])('on %s is answered with 405 that allows GET and HEAD', async (path) => {
      for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
        notAllowed(await service.request({ method, path, body: '{}' }), 'GET, HEAD');
      }
    });
  });

  describe('health:', () => {
    test('GET /livez says that the process runs', async () => {
      const response = await service.request({ path: '/livez' });
      expect(response.status).toBe(200);
      expect(JSON.parse(response.body)).toEqual({
        success: true,
        status: 'live',
        version: readVersion(),
        commit: null,
      });
      expectCommonHeaders(response);
    });

    test('GET /readyz says that it can store, and the engine', async () => {
      const response = await service.request({ path: '/readyz' });
      expect(response.status).toBe(200);
      expect(JSON.parse(response.body)).toEqual({
        success: true,
        status: 'ready',
        engine: expect.stringMatching(/^PostgreSQL \d/),
      });
      expectCommonHeaders(response);
    });

    test.each(['/livez', '/readyz'])('HEAD %s has the head of GET and no body', async (path) => {
      const connection = await HttpConnection.open(service.port);
      await connection.send({ method: 'HEAD', path });
      const head = await connection.response(true);
      // One in some hundred answers without a body closes its connection. Had a body come, it would be taken for the next answer.
      const isOver = head.headers.connection === 'close';
      if (!isOver) await connection.send({ path });
      const whole = await (isOver ? service.request({ path }) : connection.response());
      expect(head.status).toBe(200);
      expect(head.headers['content-length']).toBe(String(whole.body.length));
      connection.destroy();
    });

    // What the database does is the same to both transports.
    if (transport === 'node') return;

    test('while the database is away /readyz is 503 and /livez 200; when it is back /readyz is 200', async () => {
      let proxy: FaultyProxy | undefined;
      const other = await startTestService({
        transport,
        reach: async (address) => {
          proxy = await FaultyProxy.start(address);
          return proxy.address;
        },
      });
      try {
        expect((await other.request({ path: '/readyz' })).status).toBe(200);
        await proxy?.goAway();
        const response = await other.request({ path: '/readyz' });
        refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
        expect(Number(response.headers['retry-after'])).toBeGreaterThanOrEqual(1);
        expect((await other.request({ path: '/livez' })).status).toBe(200);
        await proxy?.comeBack();
        await until(async () => (await other.request({ path: '/readyz' })).status === 200, '/readyz is 200');
      } finally {
        await other.stop();
        await proxy?.stop();
      }
    });

    test('a full disk has one text: of events, of readiness, of changes, and of commands', async () => {
      await withTestService({ transport }, async (other) => {
        const FULL = 'The disk is full: make room, then it goes on by itself.';
        await other.sql.unsafe(`
          CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'could not extend file "base/1/2"' USING ERRCODE = 'disk_full'; END $$;
          CREATE TRIGGER no_room BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_room();
          CREATE TRIGGER no_room BEFORE INSERT ON audit_entries FOR EACH ROW EXECUTE FUNCTION no_room()`);
        expect((await other.post({})).body).toContain(FULL);
        const ready = await other.request({ path: '/readyz' });
        refused(ready, 503, 'UNAVAILABLE', 'Service unavailable');
        expect(ready.body).toContain(FULL);
        const again = await other.post({});
        expect([again.status, again.body]).toEqual([503, expect.stringContaining(FULL)]);
        const settings = { DATABASE_URL: other.database.url };
        const set = ['retention', 'set', '--app', other.app.appId, '--days', '7'];
        const limits = await tidemark(set, settings);
        expect(limits.stderr).toMatch(
          /^tidemark: the disk is full \(could not extend file .*: make room, then repeat/,
        );
        await other.sql.unsafe('DROP FUNCTION no_room CASCADE');
        await until(async () => (await other.request({ path: '/readyz' })).status === 200, 'it goes on');
        expect((await other.post({})).status).toBe(201);
        expect((await other.request({ path: '/metrics' })).body).toMatch(
          /^tidemark_disk_free_bytes\{setting="DATA_DIR"\} [1-9]\d+$/m,
        );
      });
    });

    test('while the database is read-only, /readyz is 503', async () => {
      const other = await startTestService({ transport });
      try {
        const [row] = await other.sql<[{ name: string }]>`SELECT current_database() AS name`;
        await other.sql`ALTER DATABASE ${other.sql(row.name)} SET default_transaction_read_only = on`;
        await other.sql`
          SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = ${row.name} AND application_name = 'tidemark lookups'`;
        await until(async () => {
          const { status, body } = await other.request({ path: '/readyz' });
          return status === 503 && body.includes('read-only');
        }, '/readyz says that the database is read-only');
      } finally {
        await other.stop();
      }
    });
  });
});
