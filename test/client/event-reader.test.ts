/** The client's reads: pages and parts of a series put together, and what is thrown. */
import { beforeAll, expect, test } from 'vitest';
import { type Bucket, EventReader, type StoredEvent, TidemarkError } from '../../client/src/index.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { answered, postBatch } from '../support/batch.ts';
import { sharedService, type TestService } from '../support/service.ts';

const DAY = Date.UTC(2026, 2, 3);
const EVENTS = 250;

let service: TestService;
let reader: EventReader;
beforeAll(async () => {
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
  const events = Array.from({ length: EVENTS }, (_, n) => ({
    typeName: n % 2 === 0 ? 'even' : 'odd',
    payload: { n },
    // Over five days, some in the same minute.
    createdAt: new Date(DAY + Math.floor(n / 2) * 3_456_789).toISOString(),
  }));
  answered(await postBatch(service, events));
  const { resourceToken } = await createResourceToken(service.sql, {
    name: 'client',
    appIds: [service.app.appId],
    expiresInSeconds: null,
  });
  reader = new EventReader({ url: service.url, resourceToken });
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const numbers = (events: readonly StoredEvent[]): unknown[] => events.map(({ payload }) => payload.n);

test('events come in order over all pages, forwards and backwards, each once', async () => {
  const { appId } = service.app;
  const forwards = numbers(await all(reader.events(appId, { limit: 7 })));
  expect(forwards).toEqual(Array.from({ length: EVENTS }, (_, n) => n));
  expect(numbers(await all(reader.events(appId, { limit: 64, order: 'desc' })))).toEqual(
    forwards.toReversed(),
  );
});

test('events are chosen by type, time and filter', async () => {
  const query = { typeName: ['odd'], from: new Date(DAY), to: '2026-03-04', filter: 'n>=10', limit: 3 };
  const chosen = numbers(await all(reader.events(service.app.appId, query)));
  expect(chosen).toEqual(Array.from({ length: 20 }, (_, n) => 11 + 2 * n));
});

test('a series of thousands of buckets is put together from its parts, without a gap', async () => {
  const query = { interval: '1m', from: '2026-03-03T00:00:30Z', to: '2026-03-08T12:00:00Z' } as const;
  const buckets = await all(reader.series(service.app.appId, query));
  expect(buckets.length).toBe(5.5 * 1_440);
  for (const [index, { start }] of buckets.entries())
    if (index > 0) expect(start).toBe(buckets[index - 1]?.end);
  const counted = buckets.reduce((sum, { count }) => sum + count, 0);
  expect(counted).toBe(
    (await all(reader.events(service.app.appId, { from: query.from, to: query.to }))).length,
  );
  expect(buckets.map(({ partial }, index) => (partial ? index : -1)).filter((index) => index >= 0)).toEqual([
    0,
  ]);
});

test('a series without ends begins with the first event', async () => {
  const sum = (buckets: readonly Bucket[]): number => buckets.reduce((total, { count }) => total + count, 0);
  expect(sum(await all(reader.series(service.app.appId)))).toBe(EVENTS);
  expect(
    sum(await all(reader.series(service.app.appId, { interval: '1d', timezone: 'Asia/Kathmandu' }))),
  ).toBe(EVENTS);
});

test('a refusal is thrown with its status and code; what may pass is tried again', async () => {
  const wrong = new EventReader({ url: service.url, resourceToken: 'tdr_wrong' });
  const error = await all(wrong.events(service.app.appId)).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TidemarkError);
  expect(error).toMatchObject({ status: 401, code: 'AUTH_INVALID_TOKEN' });
  await expect(all(reader.events('app_none'))).rejects.toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
  const away = new EventReader({ url: 'http://127.0.0.1:1', resourceToken: 't', tries: 2 });
  await expect(all(away.events('app'))).rejects.toThrow('fetch failed');
});
