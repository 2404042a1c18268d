/** POST /v1/events?atomic=true: all events of a batch are stored, or none. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { compareDay } from '../../src/storage/counts/differences.ts';
import { refused } from '../http/answers.ts';
import { answered, type BatchAnswer, EVENTS, storedIds } from '../support/batch.ts';
import { availableEngines } from '../support/database.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { sharedService, startTestService, TestClock, type TestService } from '../support/service.ts';

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 10, 21, 13, 0, 0, 500);
const PAST = new Date(NOW - 10 * DAY_MS).toISOString();

function post(
  service: TestService,
  events: readonly unknown[],
  { query = 'atomic=true', headers = {} } = {},
): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: `${EVENTS}?${query}`,
    body: JSON.stringify({ events }),
    headers: { Authorization: `Bearer ${service.app.loggingToken}`, ...headers },
  });
}

/** The codes of the results of a batch that is refused whole, null for a valid event. */
function refusedWhole(response: HttpResponse): (string | undefined)[] {
  const { results, ...error }: BatchAnswer = JSON.parse(response.body);
  expect({ status: response.status, ...error }).toMatchObject({
    status: 400,
    success: false,
    error: 'Batch refused',
    code: 'BATCH_REFUSED',
  });
  return results.map(({ code }) => code);
}

const good = { typeName: 'test type', payload: {} };
const past = { ...good, createdAt: PAST };

describe.each(availableEngines())('on %s an atomic batch', (engine) => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({
      engine,
      clock: new TestClock(NOW),
      config: { CREATE_LIMIT_PER_MINUTE: 0 },
    });
  });
  afterAll(() => service.stop());
  let before: readonly string[];
  beforeEach(async () => {
    before = await storedIds(service);
  });
  const added = async (): Promise<string[]> =>
    (await storedIds(service)).filter((id) => !before.includes(id));

  test('whose events are all valid is stored, of today and of past days in one transaction', async () => {
    const { results } = answered(await post(service, [good, past, { ...past, key: 'a' }, good]));
    expect(await added()).toEqual(results.map(({ eventId }) => eventId).sort());
    const xids =
      await service.sql`SELECT DISTINCT xmin::text FROM events WHERE id = ANY(${await added()}::uuid[])`;
    expect(xids.length).toBe(1);
    for (const day of [NOW, NOW - 10 * DAY_MS])
      expect(await compareDay(service.sql, Math.floor(day / DAY_MS) * DAY_MS, null)).toEqual({
        differing: 0,
        examples: [],
      });
  });

  test('with one event that is not valid is refused with results, and nothing is stored', async () => {
    expect(refusedWhole(await post(service, [good, { ...good, payload: [] }, past]))).toEqual([
      'BATCH_REFUSED',
      'INVALID_REQUEST',
      'BATCH_REFUSED',
    ]);
    expect(refusedWhole(await post(service, [{ typeId: 'unknown', payload: {} }]))).toEqual([
      'EVENT_TYPE_NOT_FOUND',
    ]);
    expect(await added()).toEqual([]);
  });

  test('with an event that the database refuses is not stored', async () => {
    await service.sql.unsafe(
      `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
    );
    try {
      const poison = { ...good, payload: { poison: 1 } };
      expect(refusedWhole(await post(service, [good, poison, past]))).toEqual([
        'BATCH_REFUSED',
        'INVALID_REQUEST',
        'BATCH_REFUSED',
      ]);
      expect(refusedWhole(await post(service, [poison]))).toEqual(['INVALID_REQUEST']);
      // Another that waits for the same commit is stored.
      const [bad, fine] = await Promise.all([post(service, [poison, good]), post(service, [good, good])]);
      refusedWhole(bad);
      const { results } = answered(fine);
      expect(await added()).toEqual(results.map(({ eventId }) => eventId).sort());
    } finally {
      await service.sql.unsafe('ALTER TABLE events DROP CONSTRAINT no_poison');
    }
  });

  test('with keys says which were stored before, and stores the others', async () => {
    const keyed = (key: string) => ({ ...past, key: `atomic ${key}` });
    const first = answered(await post(service, [keyed('a'), keyed('b')]));
    const second = answered(await post(service, [keyed('c'), keyed('b'), good, keyed('c')]));
    expect(second.results.map(({ repeated }) => repeated === true)).toEqual([false, true, false, true]);
    const ids = [...first.results, ...second.results].map(({ eventId }) => eventId);
    expect(await added()).toEqual([...new Set(ids)].sort());
  });

  test('with an Idempotency-Key is repeated by it; one that is refused leaves the key unused', async () => {
    const headers = { 'Idempotency-Key': 'atomic' };
    refusedWhole(await post(service, [good, {}], { headers }));
    const first = await post(service, [good, good], { headers });
    const { results } = answered(first);
    const again = await post(service, [good, good], { headers });
    expect([again.body, again.headers['idempotent-replayed']]).toEqual([first.body, 'true']);
    expect(await added()).toEqual(results.map(({ eventId }) => eventId).sort());
  });

  test('with a day that is locked is refused with 503, and nothing is stored', async () => {
    answered(await post(service, [past]));
    before = await storedIds(service);
    const [table] =
      engine === 'timescale'
        ? await service.sql<{ name: string }[]>`
            SELECT format('%I.%I', chunk_schema, chunk_name) AS name FROM timescaledb_information.chunks
             WHERE hypertable_name = 'events' AND range_start <= ${PAST}::timestamptz AND range_end > ${PAST}::timestamptz`
        : await service.sql<{ name: string }[]>`
            SELECT partition::regclass::text AS name FROM events_partitions
             WHERE start <= ${PAST}::timestamptz AND finish > ${PAST}::timestamptz`;
    await service.sql.begin(async (tx) => {
      await tx.unsafe(`LOCK TABLE ${table?.name} IN ACCESS EXCLUSIVE MODE`);
      refused(await post(service, [good, past]), 503, 'UNAVAILABLE', 'Service unavailable');
    });
    expect(await added()).toEqual([]);
    answered(await post(service, [good, past]));
  });
});

describe('atomic', () => {
  test('is true or false, once', async () => {
    const service = await sharedService();
    for (const query of ['atomic=1', 'atomic=', 'atomic=true&atomic=true'])
      refused(await post(service, [good], { query }), 400, 'INVALID_REQUEST', 'Invalid request parameters');
    const { stored, refused: bad } = answered(await post(service, [good, {}], { query: 'atomic=false' }));
    expect([stored, bad]).toEqual([1, 1]);
  });
});
