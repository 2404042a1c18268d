/** The client against the real service: what `log` accepts is stored exactly once, whatever happens between. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { EventLogger, type EventLoggerOptions, type TidemarkError } from '../../client/src/index.ts';
import { pauseMs } from '../../client/src/retry.ts';
import { Opened } from '../support/proxied-service.ts';
import {
  RunningClock,
  sharedService,
  startTestService,
  type TestService,
  type TestServiceOptions,
  until,
} from '../support/service.ts';
import { HttpFront } from './http-front.ts';

const opened = new Opened();
afterEach(opened.stopAll);

function loggerOf(service: TestService, options: Partial<EventLoggerOptions> = {}): EventLogger {
  const logger = new EventLogger({
    url: service.url,
    loggingToken: service.app.loggingToken,
    lingerMs: 5,
    ...options,
  });
  opened.addFirst({ stop: () => logger.close({ timeoutMs: 1 }) });
  return logger;
}

/** Without options the one that all share. */
async function start(options?: TestServiceOptions): Promise<TestService> {
  if (options === undefined) return await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  const service = await startTestService({
    database: 'shared',
    ...options,
    config: { CREATE_LIMIT_PER_MINUTE: 0, ...options.config },
  });
  opened.add(service);
  return service;
}

/** The numbers in the payloads of all that is stored. */
async function storedNumbers({ sql, app }: TestService): Promise<number[]> {
  const rows = await sql<{ n: number }[]>`
    SELECT (payload ->> 'n')::int AS n FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${app.appId} ORDER BY n`;
  return rows.map(({ n }) => n);
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

describe('a logger', () => {
  test('says once on standard error that a token is wrong, or an event refused, unless it has a callback for it', async () => {
    const service = await start();
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const warnings = (): string[] =>
      written.mock.calls.map(([text]) => String(text)).filter((text) => text.startsWith('tidemark-client: '));
    try {
      let failures = 0;
      const told = loggerOf(service, { loggingToken: 'tdl_wrong', onRetry: () => (failures += 1) });
      told.log('typed', {});
      await until(() => failures > 1, 'two requests have failed');
      expect(warnings()).toEqual([]);
      let requests = 0;
      const front = createServer((_request, response) => {
        requests += 1;
        response.writeHead(401, { 'Content-Type': 'application/json' });
        response.end(
          '{"success":false,"code":"AUTH_INVALID_TOKEN","details":"The logging token is cut off."}',
        );
      });
      await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
      const { port } = front.address() as AddressInfo;
      const silent = loggerOf(service, { url: `http://127.0.0.1:${port}`, loggingToken: 'tdl_wrong' });
      silent.log('typed', {});
      await until(() => requests > 1, 'two requests have failed');
      await silent.close({ timeoutMs: 1 });
      front.close();
      expect(warnings()).toEqual([
        `tidemark-client: events wait, http://127.0.0.1:${port}/v1/events does not take them: The logging token is cut off. This is said once: onRetry is called each time.\n`,
      ]);
      const refused = loggerOf(service);
      for (const _ of [1, 2])
        refused.log('typed', JSON.parse(`${'{"a":'.repeat(1_001)}1${'}'.repeat(1_001)}`));
      await refused.flush();
      expect(refused.stats.refused).toBe(2);
      expect(warnings().slice(1)).toEqual([expect.stringMatching(/an event was refused for good: .*nested/)]);
    } finally {
      written.mockRestore();
    }
  });

  test('stores each event once, with its type, time and payload, in few requests', async () => {
    const service = await start();
    const requests = async (): Promise<number> => {
      const { body } = await service.request({ path: '/metrics' });
      return Number(/tidemark_requests_total\{[^}]*\/v1\/events"[^}]*\} (\d+)/.exec(body)?.[1] ?? 0);
    };
    const before = await requests();
    const logger = loggerOf(service, { maxBatchEvents: 500 });
    const payload = { n: 0, text: 'ä"\\' };
    expect(logger.log('typed', payload, { createdAt: new Date('2026-01-31T08:30:00.123Z') })).toBe(true);
    payload.text = 'changed afterwards';
    for (const n of upTo(1_700).slice(1)) logger.log(`type ${n % 3}`, { n });
    await logger.flush();
    expect(logger.stats).toEqual({ waiting: 0, stored: 1_700, refused: 0, dropped: 0 });
    expect(await storedNumbers(service)).toEqual(upTo(1_700));
    const [first] = await service.sql`
      SELECT event_types.name, events.created_at AS "createdAt", payload::text AS payload FROM events
        JOIN event_types ON event_types.id = type_id JOIN apps ON apps.id = events.app_id
       WHERE apps.public_id = ${service.app.appId} AND payload ->> 'n' = '0'`;
    expect(first).toEqual({
      name: 'typed',
      createdAt: new Date('2026-01-31T08:30:00.123Z'),
      payload: '{"n":0,"text":"ä\\"\\\\"}',
    });
    expect((await requests()) - before).toBeLessThanOrEqual(5);
    expect(await logger.close()).toBe(0);
    expect(logger.log('typed', {})).toBe(false);
  });

  test('with a full queue refuses new events, and stores what it has accepted', async () => {
    const service = await start();
    const front = await HttpFront.start(service.port);
    opened.add(front);
    front.isUnreachable = true;
    const logger = loggerOf(service, { url: front.url, maxQueueEvents: 7 });
    const accepted = upTo(10).filter((n) => logger.log('full', { n }));
    expect(accepted).toEqual(upTo(7));
    expect(logger.stats).toEqual({ waiting: 7, stored: 0, refused: 0, dropped: 3 });
    const small = loggerOf(service, { url: front.url, maxQueueCharacters: 500 });
    expect(small.log('full', { text: 'x'.repeat(300) })).toBe(true);
    expect(small.log('full', { text: 'x'.repeat(300) })).toBe(false);
    front.isUnreachable = false;
    await logger.flush();
    expect(logger.log('full', { n: 7 })).toBe(true);
    await logger.flush();
    await small.close({ timeoutMs: 1 });
    expect((await storedNumbers(service)).filter((n) => n !== null)).toEqual(upTo(8));
  });

  test('tells of what is refused for good, and stores the rest', async () => {
    const service = await start({ config: { MAX_EVENT_TYPES_PER_APP: 2 } });
    const refused: [TidemarkError, string][] = [];
    const logger = loggerOf(service, { onRefused: (error, { type }) => refused.push([error, type]) });
    for (const [n, type] of ['a', 'b', 'a', 'c', 'a'].entries()) logger.log(type, { n });
    await logger.flush();
    expect(logger.stats).toMatchObject({ waiting: 0, stored: 3, refused: 2 });
    expect(refused.map(([{ code }, type]) => [code, type])).toEqual([
      ['TOO_MANY_EVENT_TYPES', 'b'],
      ['TOO_MANY_EVENT_TYPES', 'c'],
    ]);
    expect(await storedNumbers(service)).toEqual([0, 2, 4]);
  });

  test('sends smaller batches where they are too large for the service', async () => {
    const service = await start({ config: { MAX_BATCH_BYTES: 20_000, MAX_BODY_BYTES: 9_000 } });
    const logger = loggerOf(service);
    for (const n of upTo(100)) logger.log('large', { n, text: 'x'.repeat(n === 50 ? 10_000 : 1_000) });
    await logger.flush();
    expect(logger.stats).toMatchObject({ waiting: 0, stored: 99, refused: 1 });
    expect(await storedNumbers(service)).toEqual(upTo(100).filter((n) => n !== 50));
  });

  test('whose clock is ahead dates its events by the clock of the service, which says so once', async () => {
    const clock = new RunningClock();
    clock.advance(-120_000);
    const service = await start({ clock });
    const retries: string[] = [];
    const logger = loggerOf(service, { onRetry: ({ message }) => retries.push(message) });
    const times: [from: number, to: number][] = [];
    for (const n of upTo(4)) {
      const from = clock.wall();
      logger.log('ahead', { n });
      if (n !== 1) await logger.flush();
      times.push([from, clock.wall()]);
    }
    expect(await storedNumbers(service)).toEqual(upTo(4));
    expect(retries).toEqual([expect.stringMatching(/^The clock of this machine is 1[12]\d{4} ms ahead/)]);
    const rows = await service.sql<{ createdAt: Date }[]>`
      SELECT events.created_at AS "createdAt" FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${service.app.appId}
       ORDER BY (payload ->> 'n')::int`;
    // As exact as the time of a request, which a busy machine may take seconds for: far from the two minutes of the error.
    for (const [n, { createdAt }] of rows.entries()) {
      expect(createdAt.getTime()).toBeGreaterThan((times[n]?.[0] ?? 0) - 10_000);
      expect(createdAt.getTime()).toBeLessThanOrEqual(times[n]?.[1] ?? 0);
    }
  });

  test('refuses for good what the caller has dated far into the future, and delays no others for it', async () => {
    const service = await start();
    const refused: TidemarkError[] = [];
    const retries: Error[] = [];
    const logger = loggerOf(service, {
      onRefused: (error) => refused.push(error),
      onRetry: (error) => retries.push(error),
    });
    logger.log('far', { n: 0 }, { createdAt: new Date('2099-01-01') });
    logger.log('far', { n: 1 });
    await logger.flush();
    expect(await storedNumbers(service)).toEqual([1]);
    expect(refused.map(({ code }) => code)).toEqual(['EVENT_IN_FUTURE']);
    expect(logger.stats).toEqual({ waiting: 0, stored: 1, refused: 1, dropped: 0 });
    expect(retries).toEqual([]);
  });

  test('holds what the caller has dated a little ahead until that time, unchanged, and stores the rest at once', async () => {
    const clock = new RunningClock();
    const service = await start({ clock });
    const logger = loggerOf(service);
    const createdAt = new Date(Date.now() + 1_500);
    logger.log('soon', { n: 0 }, { createdAt });
    logger.log('soon', { n: 1 });
    await until(() => logger.stats.stored === 1, 'the other event is stored');
    expect(await storedNumbers(service)).toEqual([1]);
    expect(logger.stats.waiting).toBe(1);
    logger.log('soon', { n: 2 });
    await until(() => logger.stats.stored === 2, 'an event that is logged meanwhile is stored');
    await logger.flush();
    expect(await storedNumbers(service)).toEqual([0, 1, 2]);
    const [row] = await service.sql`
      SELECT events.created_at AS at FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${service.app.appId} AND payload ->> 'n' = '0'`;
    expect(row?.at).toEqual(createdAt);
  });

  test('keeps the time of an event that may be stored, whatever the clock of the next process shows', async () => {
    const clock = new RunningClock();
    const service = await start({ clock });
    const front = await HttpFront.start(service.port);
    opened.add(front);
    const logger = loggerOf(service, { url: front.url });
    let lost = 0;
    front.losesAnswer = () => lost++ === 0;
    logger.log('twice', { n: 0 });
    await until(() => lost > 0, 'the answer is lost');
    // From now on the service's clock is behind, as another process's is.
    clock.advance(-1_500);
    await logger.flush();
    expect(await storedNumbers(service)).toEqual([0]);
  });

  test('stores an event with a key of its own once, whichever logger sends it', async () => {
    const service = await start();
    const createdAt = new Date();
    for (let logger = 0; logger < 2; logger += 1) {
      const own = loggerOf(service);
      own.log('once', { n: logger }, { key: 'order-1', createdAt });
      own.log('once', { n: 2 + logger });
      await own.flush();
    }
    expect(await storedNumbers(service)).toEqual([0, 2, 3]);
  });

  test('waits at least as long as Retry-After says, whatever is logged or flushed meanwhile', async () => {
    const arrivals: number[] = [];
    const server = createServer((request, response) => {
      request.resume();
      if (request.method !== 'POST') return response.end();
      arrivals.push(performance.now());
      const isFirst = arrivals.length === 1;
      response.writeHead(isFirst ? 429 : 200, isFirst ? { 'Retry-After': '1' } : {});
      return response.end(JSON.stringify({ results: [{ eventId: 'a' }, { eventId: 'b' }] }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    opened.add({ stop: async () => server.close() });
    const { port } = server.address() as AddressInfo;
    const logger = new EventLogger({ url: `http://127.0.0.1:${port}`, loggingToken: 't', lingerMs: 1 });
    logger.log('a', {});
    await until(() => arrivals.length === 1, 'the first request has come');
    logger.log('b', {});
    await logger.flush();
    expect((arrivals[1] ?? 0) - (arrivals[0] ?? 0)).toBeGreaterThanOrEqual(990);
    await logger.close();
    expect(pauseMs(1, '7')).toBeGreaterThanOrEqual(7_000);
    for (const failures of [1, 5, 1_000]) expect(pauseMs(failures, null)).toBeLessThanOrEqual(30_000);
    expect(pauseMs(30, null)).toBeGreaterThanOrEqual(15_000);
  });

  test('that is closed in vain says how many events it gives up', async () => {
    const logger = new EventLogger({ url: 'http://127.0.0.1:1', loggingToken: 't', lingerMs: 1 });
    for (const n of upTo(3)) logger.log('a', { n });
    expect(await logger.close({ timeoutMs: 20 })).toBe(3);
  });

  test.each([
    ['', {}, {}],
    ['x'.repeat(201), {}, {}],
    ['\0', {}, {}],
    ['\ud800', {}, {}],
    ['a', [], {}],
    ['a', null, {}],
    ['a', { n: 1n }, {}],
    ['a', { text: 'x'.repeat(300_000) }, {}],
    ['a', {}, { key: '' }],
    ['a', {}, { createdAt: new Date(Number.NaN) }],
  ])('throws for what could never be stored', (type, payload, options) => {
    const logger = new EventLogger({ url: 'http://127.0.0.1:1', loggingToken: 't' });
    expect(() => logger.log(type, payload as never, options)).toThrow(/./);
    expect(logger.stats).toEqual({ waiting: 0, stored: 0, refused: 0, dropped: 0 });
  });
});
