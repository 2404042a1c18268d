/** Keys of events: the same key and time again stores nothing twice, in whichever batch, and whatever came between. */
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { keyedEventId } from '../../src/ingest/event-id.ts';
import { compareDay } from '../../src/storage/counts/differences.ts';
import { created, invalidBody } from '../http/answers.ts';
import { answered, type BatchResult, postBatch } from '../support/batch.ts';
import { availableEngines } from '../support/database.ts';
import { runs, sized } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { Opened } from '../support/proxied-service.ts';
import { type Fate, FaultyProxy, isBatch } from '../support/proxy.ts';
import { CREATE_EVENT, startTestService, TestClock, type TestService } from '../support/service.ts';
import { SOURCE } from '../support/source.ts';

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 10, 21, 13, 0, 0, 500);
/** Of now, and of a past day. */
const TODAY = new Date(NOW - 5_000).toISOString();
const PAST = new Date(NOW - 10 * DAY_MS).toISOString();

const opened = new Opened();
afterEach(opened.stopAll);

interface Sent {
  readonly typeName?: string;
  readonly typeId?: string;
  readonly createdAt?: string | null | undefined;
  readonly key?: unknown;
  readonly payload?: unknown;
}

function event(key: string, fields: Sent = {}): Sent {
  return { typeName: 'test type', createdAt: TODAY, key, payload: {}, ...fields };
}

async function send(service: TestService, events: readonly Sent[]): Promise<readonly BatchResult[]> {
  return answered(await postBatch(service, events)).results;
}

/** POST /public/create_event. */
function post(service: TestService, fields: Sent, headers = {}): Promise<HttpResponse> {
  const body = JSON.stringify({ loggingToken: service.app.loggingToken, ...fields });
  return service.request({ method: 'POST', path: CREATE_EVENT, body, headers });
}

const repeats = (results: readonly BatchResult[]): boolean[] =>
  results.map(({ repeated }) => repeated === true);
const ids = (results: readonly BatchResult[]): (string | undefined)[] =>
  results.map(({ eventId }) => eventId);

interface Row {
  readonly id: string;
  readonly payload: string;
}

async function rows({ sql }: TestService): Promise<readonly Row[]> {
  return [...(await sql<Row[]>`SELECT id::text AS id, payload::text AS payload FROM events ORDER BY id`)];
}

/** Every row is counted once, and nothing else is. */
async function expectCounted({ sql }: TestService): Promise<void> {
  const days = await sql<
    { day: Date }[]
  >`SELECT DISTINCT date_trunc('day', created_at, 'UTC') AS day FROM events`;
  for (const { day } of days)
    expect(await compareDay(sql, day.getTime(), null)).toEqual({ differing: 0, examples: [] });
}

describe.each(availableEngines())('on %s a key', (engine) => {
  let service: TestService;
  const clock = new TestClock(NOW);
  beforeAll(async () => {
    service = await startTestService({ engine, clock, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  });
  afterAll(() => service.stop());
  // The rows of each test have keys of its own: what was counted stays counted.
  let test_ = 0;
  let own: (key: string) => string;
  beforeEach(() => {
    test_ += 1;
    own = (key) => `${test_} ${key}`;
  });
  const rowsOf = async (results: readonly BatchResult[]): Promise<readonly Row[]> =>
    (await rows(service)).filter(({ id }) => ids(results).includes(id));

  test.each([TODAY, PAST])(
    'that is sent again (%s) stores nothing, and gets the id of the first event',
    async (createdAt) => {
      const plain = { typeName: 'test type', payload: {}, createdAt };
      const [a, b, c] = ['a', 'b', 'c'].map((key) => event(own(key), { createdAt }));
      const first = await send(service, [a, b, plain] as Sent[]);
      expect(repeats(first)).toEqual([false, false, false]);
      // Cut anew, with another between, and much later.
      clock.advance(DAY_MS * 3);
      const second = await send(service, [plain, c, b, a] as Sent[]);
      expect(repeats(second)).toEqual([false, false, true, true]);
      expect(ids(second).slice(2)).toEqual(ids(first).slice(0, 2).reverse());
      expect(second.map(({ timestamp }) => timestamp)).toEqual([createdAt, createdAt, createdAt, createdAt]);
      expect((await rowsOf([...first, ...second])).length).toBe(5);
      await expectCounted(service);
    },
  );

  test('that occurs twice in a batch is stored once, with the first payload', async () => {
    const results = await send(service, [
      event(own('twice'), { payload: { n: 1 } }),
      event(own('twice'), { payload: { n: 2 } }),
      event(own('twice'), { payload: { n: 3 }, createdAt: PAST }),
    ]);
    expect(repeats(results)).toEqual([false, true, false]);
    expect(ids(results)[0]).toBe(ids(results)[1]);
    expect((await rowsOf(results.slice(0, 1))).map(({ payload }) => payload)).toEqual(['{"n":1}']);
    await send(service, [event(own('twice'), { payload: { n: 4 } })]);
    expect((await rowsOf(results.slice(0, 1))).map(({ payload }) => payload)).toEqual(['{"n":1}']);
    await expectCounted(service);
  });

  test('belongs to its app, type and time: anything else is another event', async () => {
    const key = own('same');
    const other = await service.newApp();
    const first = await send(service, [event(key)]);
    const others = await send(service, [
      event(key, { typeName: 'another type' }),
      event(key, { createdAt: new Date(Date.parse(TODAY) - 1).toISOString() }),
      event(`${key} `),
    ]);
    const ofOther = answered(
      await postBatch(service, [event(key)], { Authorization: `Bearer ${other.loggingToken}` }),
    ).results;
    expect(repeats([...others, ...ofOther])).toEqual([false, false, false, false]);
    expect(new Set(ids([...first, ...others, ...ofOther])).size).toBe(5);
    // The same type by its id, and the same time in another spelling.
    const { typeId } = service.type;
    const createdAt = TODAY.replace('Z', '900+00:00');
    expect(await send(service, [{ typeId, createdAt, key, payload: {} }])).toEqual([
      { ...first[0], repeated: true },
    ]);
  });

  test('counts on create_event as in a batch', async () => {
    const first = await post(service, event(own('single')));
    const { eventId, timestamp } = created(first);
    expect([timestamp, JSON.parse(first.body).repeated]).toEqual([TODAY, undefined]);
    const again = await post(service, event(own('single'), { payload: { other: 1 } }));
    expect(created(again)).toMatchObject({ eventId, timestamp: TODAY, repeated: true });
    expect(await send(service, [event(own('single'))])).toMatchObject([{ eventId, repeated: true }]);
    const past = created(await post(service, event(own('single'), { createdAt: PAST })));
    expect(past).toMatchObject({ timestamp: PAST });
    expect(await rowsOf([{ eventId }, past])).toHaveLength(2);
  });

  test('that many send at once, to two processes and in any batches, is stored once', async () => {
    const second = await startTestService({ database: service.database, engine, clock });
    try {
      const keys = Array.from({ length: 20 }, (_, n) => own(String(n)));
      const sending = Array.from({ length: 24 }, async (_, n) => {
        const some = keys.filter((_key, index) => (index + n) % 3 > 0).map((key) => event(key));
        if (n % 3 === 0) some.reverse();
        const headers = { Authorization: `Bearer ${service.app.loggingToken}` };
        return answered(await postBatch(n % 2 === 0 ? second : service, some, headers)).results;
      });
      const results = (await Promise.all(sending)).flat();
      expect(results.filter(({ error }) => error !== undefined)).toEqual([]);
      const firsts = results.filter(({ repeated }) => repeated !== true);
      expect(firsts.length).toBe(keys.length);
      expect((await rowsOf(results)).map(({ id }) => id)).toEqual(ids(firsts).sort());
      await expectCounted(service);
    } finally {
      await second.stop();
    }
  });

  test('with an Idempotency-Key is stored once, under another Idempotency-Key too', async () => {
    const header = (key: string) => ({ 'Idempotency-Key': own(key).replaceAll(' ', '-') });
    const batch = [event(own('x')), { typeName: 'test type', payload: { n: 1 } }];
    const first = answered(await postBatch(service, batch, header('one')));
    const replayed = await postBatch(service, batch, header('one'));
    expect([replayed.headers['idempotent-replayed'], JSON.parse(replayed.body)]).toEqual(['true', first]);
    const second = answered(await postBatch(service, batch, header('two')));
    expect(ids(second.results)[0]).toBe(ids(first.results)[0]);
    expect((await rowsOf([...first.results, ...second.results])).length).toBe(3);
    // The answers of two requests with the same events are the same: the bodies tell them apart.
    const only = [event(own('y'))];
    answered(await postBatch(service, only, header('three')));
    const other = await postBatch(service, [event(own('y'), { payload: { n: 2 } })], header('three'));
    expect(other.status).toBe(422);
    const twins = await Promise.all([1, 2, 3].map(() => postBatch(service, only, header('four'))));
    expect(new Set(twins.map(({ body }) => body)).size).toBe(1);
    await expectCounted(service);
  });

  test('of a compressed day is found there', async () => {
    const createdAt = new Date(NOW - 60 * DAY_MS).toISOString();
    const batch = [event(own('old'), { createdAt }), event(own('older'), { createdAt })];
    const first = await send(service, batch);
    if (engine === 'timescale')
      await service.sql`SELECT compress_chunk(chunk) FROM show_chunks('events', older_than => ${new Date(NOW - 50 * DAY_MS)}::timestamptz) AS chunk`;
    const second = await send(service, [...batch, event(own('new'), { createdAt })]);
    expect(repeats(second)).toEqual([true, true, false]);
    expect((await rowsOf([...first, ...second])).length).toBe(3);
    await expectCounted(service);
  });

  test('whose event retention has removed is refused, and not stored anew', async () => {
    await send(service, [event(own('gone'), { createdAt: PAST })]);
    const kept = await startTestService({
      database: service.database,
      engine,
      clock,
      config: { RETENTION_DAYS: 5 },
    });
    try {
      const before = await rows(kept);
      const [result] = await send(kept, [event(own('gone'), { createdAt: PAST })]);
      expect(result).toMatchObject({ code: 'INVALID_REQUEST' });
      expect(result?.details).toContain('the retention boundary');
      expect(invalidBody(await post(kept, event(own('gone'), { createdAt: PAST })))).toContain('retention');
      expect(await rows(kept)).toEqual(before);
    } finally {
      await kept.stop();
    }
  });
});

describe('a key', () => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({
      clock: new TestClock(NOW),
      database: 'shared',
      config: { CREATE_LIMIT_PER_MINUTE: 0 },
    });
  });
  afterAll(() => service.stop());

  test.each([
    [{ createdAt: undefined }, 'needs the field "createdAt"'],
    [{ createdAt: null }, 'needs the field "createdAt"'],
    [{ createdAt: '' }, 'needs the field "createdAt"'],
    [{ createdAt: 'yesterday' }, '"createdAt" must be an ISO 8601 date'],
    [{ key: 'x'.repeat(201) }, '"key" must have at most 200 characters'],
    [{ key: '\ud800' }, '"key" must not contain a lone surrogate'],
    [{ key: 7 }, '"key" must be a string'],
    [{ key: ['a'] }, '"key" must be a string'],
  ] as const)('with %j is refused on both routes', async (fields, details) => {
    const wrong = { ...event('key'), ...fields };
    expect(invalidBody(await post(service, wrong))).toContain(details);
    const [result] = await send(service, [wrong]);
    expect(result?.details).toContain(details);
  });

  test('with a time in the future is refused on both routes, with the time of the service and how far it is ahead', async () => {
    const ahead = event('key', { createdAt: new Date(NOW + 5_000).toISOString() });
    const refusal = {
      error: 'Invalid request body',
      details: 'The field "createdAt" is in the future: it is 5 s ahead of the clock of the service.',
      code: 'EVENT_IN_FUTURE',
      serverTime: new Date(NOW).toISOString(),
      aheadMs: 5_000,
    };
    const { status, body } = await post(service, ahead);
    expect([status, JSON.parse(body)]).toMatchObject([400, { success: false, ...refusal }]);
    expect(await send(service, [ahead])).toMatchObject([refusal]);
  });

  test('of 200 characters, with NUL, quotes and escapes is one as any other', async () => {
    for (const key of ['\u{1f30a}'.repeat(200), '\0', '"\\', 'ä\n']) {
      expect(repeats(await send(service, [event(key)]))).toEqual([false]);
      expect(repeats(await send(service, [event(key)]))).toEqual([true]);
    }
  });

  test('that is null or empty is none', async () => {
    for (const key of [null, '']) {
      const results = await send(service, [event('', { key }), event('', { key })]);
      expect([repeats(results), new Set(ids(results)).size]).toEqual([[false, false], 2]);
      // Without a key, create_event has its own time.
      const { timestamp } = created(await post(service, event('', { key, createdAt: PAST })));
      expect(timestamp).toBe(new Date(NOW).toISOString());
    }
    created(await post(service, { ...event(''), createdAt: 7 as never }));
  });

  test('makes an id that begins with the time, by which the event is read', () => {
    const id = keyedEventId(NOW, SOURCE, 'key');
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(Number.parseInt(id.replace('-', '').slice(0, 12), 16)).toBe(NOW);
    // No two of these are the same text when they are put together.
    const alike = [
      keyedEventId(NOW, { ...SOURCE, appId: 'a', typeId: 'b' }, 'c'),
      keyedEventId(NOW, { ...SOURCE, appId: 'ab', typeId: '' }, 'c'),
      keyedEventId(NOW, { ...SOURCE, appId: 'a', typeId: 'b' }, 'c\0'),
    ];
    expect(new Set(alike).size).toBe(3);
  });

  test('is in the metrics: stored once, repeated as often as it came again', async () => {
    const metric = async (name: string): Promise<number> => {
      const { body } = await service.request({ path: '/metrics' });
      return Number(new RegExp(`^${name} (.*)$`, 'm').exec(body)?.[1]);
    };
    const stored = await metric('tidemark_events_stored_total');
    const repeated = await metric('tidemark_events_repeated_total');
    await send(service, [event('counted'), event('counted')]);
    await postBatch(service, [event('counted')], { 'Idempotency-Key': 'counted' });
    expect(await metric('tidemark_events_stored_total')).toBe(stored + 1);
    expect(await metric('tidemark_events_repeated_total')).toBe(repeated + 2);
  });
});

const anEvent = fc.record({
  typeName: fc.constantFrom('test type', 'b'),
  createdAt: fc.constantFrom(TODAY, new Date(NOW - 1).toISOString(), PAST),
  key: fc.constantFrom(...'abcdefgh'),
});
const plan = fc.record({
  /** Batches that are sent at once, round by round. */
  rounds: fc.array(
    fc.array(fc.array(anEvent, { minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 4 }),
    { minLength: 1, maxLength: 4 },
  ),
  /** Of what the service sends to the database, one after the other. */
  fates: fc.array(fc.constantFrom<Fate>('forward', 'forward', 'lose-request', 'cut-request', 'lose-answer')),
});

describe.each(availableEngines())('on %s', (engine) => {
  test('batches cut anew at random, over connections that break, store each type, time and key once', async () => {
    let proxy: FaultyProxy | undefined;
    const service = await startTestService({
      engine,
      clock: new TestClock(NOW),
      config: { CREATE_LIMIT_PER_MINUTE: 0, COMMIT_CONNECTIONS: 3 },
      reach: async (address) => {
        proxy = await FaultyProxy.start(address);
        return proxy.address;
      },
    });
    if (proxy === undefined) throw new Error('The service did not ask how to reach its database.');
    opened.add(service, proxy);
    const faults = proxy;
    let run = 0;
    let stored = 0;
    await fc.assert(
      fc.asyncProperty(plan, async ({ rounds, fates }) => {
        run += 1;
        const left = [...fates];
        faults.decide = (sent) => (isBatch(sent) ? (left.shift() ?? 'forward') : 'forward');
        const sent = new Map<string, Sent>();
        const idOf = new Map<string, string | undefined>();
        const sendAll = async (batch: readonly Sent[]): Promise<readonly BatchResult[]> => {
          const results = await send(service, batch);
          for (const [index, one] of batch.entries()) {
            const name = JSON.stringify(one);
            sent.set(name, one);
            expect(results[index]?.eventId).toBe(idOf.get(name) ?? results[index]?.eventId);
            idOf.set(name, results[index]?.eventId);
          }
          return results;
        };
        for (const round of rounds)
          await Promise.all(
            round.map((batch) =>
              sendAll(batch.map((one) => event('', { ...one, key: `${run} ${one.key}` }))),
            ),
          );
        faults.decide = () => 'forward';
        // All of them once more, in one batch.
        const last = await sendAll([...sent.values()]);
        expect(repeats(last)).toEqual(last.map(() => true));
        const found = (await rows(service)).map(({ id }) => id);
        expect(found.filter((id) => [...idOf.values()].includes(id))).toEqual(
          [...new Set(idOf.values())].sort(),
        );
        expect(new Set(idOf.values()).size).toBe(sent.size);
        stored += sent.size;
        expect(found.length).toBe(stored);
        await expectCounted(service);
      }),
      runs(sized(3, 15)),
    );
  });
});
