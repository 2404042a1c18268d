/** Queries on every engine: what counts answer, what rows answer, parts of an answer, and the bounds of one. */
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { QueryGroup, QueryLine } from '../../../src/api-types/answers.ts';
import { declareField } from '../../../src/apps/fields.ts';
import { Window } from '../../../src/base/window.ts';
import { Rejection } from '../../../src/errors.ts';
import type { Outcome } from '../../../src/http/exchange.ts';
import { ReadSlots } from '../../../src/http/read-slots.ts';
import { AnswerStream, type StreamAnswer } from '../../../src/http/stream.ts';
import type { Limiter } from '../../../src/limits/limiter.ts';
import { type ReadCall, respond } from '../../../src/read/app-read.ts';
import { Exports, QUERIES } from '../../../src/read/export/exports.ts';
import { QueryBudget } from '../../../src/read/query/query-budget.ts';
import { type QueryReadOptions, queryRead } from '../../../src/read/query/query-read.ts';
import { DAY_MS, HOUR_MS } from '../../../src/storage/counts/levels.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';
import { seededRandom } from '../../support/field-oracle.ts';
import { answerTo, type OracleEvent } from '../../support/query-oracle.ts';
import { until } from '../../support/service.ts';

const DAY = Math.floor(Date.now() / DAY_MS) * DAY_MS - 3 * DAY_MS;
const NOW = DAY + 3 * DAY_MS + 5 * HOUR_MS;
const NO_LIMIT: Limiter = { take: () => null };

function queries(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let slots: ReadSlots;
  const events: (FieldEvent & OracleEvent)[] = [];

  beforeAll(async () => {
    fields = await open({ now: NOW, from: DAY, until: DAY + 4 * DAY_MS });
    for (const [path, kind, by] of [
      ['country', 'value', null],
      ['country', 'value', 'plan'],
      ['amount', 'number', 'country'],
      ['user', 'distinct', 'country'],
    ] as const)
      await declareField(fields.sql, {
        ...{ appId: 1, path: [path], kind, by: by === null ? null : [by] },
        ...{ typeName: null, backfill: false },
      });
    await fields.upkeep.everySecond();
    await fields.upkeep.everySecond();
    const random = seededRandom(20_261_125);
    const made = Array.from({ length: 600 }, (_, i) => {
      const payload = {
        // Every third event is of one group, and comes early.
        key: i % 3 === 0 ? 'heavy' : `unique ${i}`,
        ...(random(5) > 0 && { user: random(60) }),
        ...(random(5) > 0 && { amount: random(100_000) / 100 }),
        ...(random(6) > 0 && { country: random(12) === 0 ? ['DE', 'FR'] : ['DE', 'FR', 'IT'][random(3)] }),
        ...(random(4) > 0 && { plan: ['pro', 'free'][random(2)] }),
      };
      const at = i % 3 === 0 ? DAY + random(DAY_MS) : DAY + random(3 * DAY_MS);
      return { id: fields.newId(at), at, typeId: 1 + random(2), json: payload };
    });
    await fields.write(made.map(({ json, ...event }) => ({ ...event, payload: JSON.stringify(json) })));
    for (const { json, ...event } of made)
      events.push({ ...event, payload: json } as unknown as FieldEvent & OracleEvent);
    await fields.settle();
    await fields.upkeep.everySecond();
    await fields.upkeep.everySecond();
    const storage = await openStorage(fields.sql);
    slots = new ReadSlots({ places: 2, maxWaiting: 10, sql: fields.sql, reader: storage.reader });
  });
  afterAll(() => fields.close());

  interface Asked {
    readonly outcome: Outcome;
    /** Resolves when the answer has ended. */
    readonly lines: Promise<QueryLine[]>;
  }

  async function asked(
    body: unknown,
    options: Partial<QueryReadOptions> = {},
    onLine: (line: QueryLine, stream: AnswerStream) => void = () => undefined,
  ): Promise<Asked> {
    const log = pino({ level: 'silent' });
    const read = queryRead({
      queries: new Exports(log, undefined, QUERIES),
      budget: new QueryBudget({ ofHolder: NO_LIMIT, ofAccount: NO_LIMIT }),
      stats: { counted: 0, scanned: 0, events: 0, truncated: 0 },
      log,
      mayRead: async () => true,
      now: () => NOW,
      monotonic: () => performance.now(),
      stepRows: 50,
      ...options,
    });
    const exchange = {
      ...{ query: '', settled: false, hasRoomForLargeAnswer: true },
      whenSettled: () => () => undefined,
      header: () => '',
    } as unknown as ReadCall['exchange'];
    const call: ReadCall = {
      exchange,
      app: { id: 1, appId: 'app_1' },
      holder: { kind: 'token', tokenId: 7 },
      turns: [3, 7],
      parameters: [],
      text: JSON.stringify(body),
    };
    const outcome = await respond(read, call, slots);
    if (outcome instanceof Rejection || !('open' in outcome)) return { outcome, lines: Promise.resolve([]) };
    return { outcome, lines: received(outcome, onLine) };
  }

  function received(
    answer: StreamAnswer,
    onLine: (line: QueryLine, stream: AnswerStream) => void,
  ): Promise<QueryLine[]> {
    return new Promise((resolve) => {
      const lines: QueryLine[] = [];
      let text = '';
      const stream = new AnswerStream(
        {
          unsentBytes: 0,
          write: (bytes) => {
            text += bytes.toString();
            if (!text.endsWith('\n')) return;
            const line: QueryLine = JSON.parse(text);
            text = '';
            lines.push(line);
            onLine(line, stream);
          },
          end: () => undefined,
          destroy: () => undefined,
          whenTaken: (listener) => setImmediate(listener),
        },
        { hasRoom: () => true, onClosed: () => resolve(lines), isFinite: true },
      );
      answer.open(stream);
    });
  }

  async function answer(body: unknown, options: Partial<QueryReadOptions> = {}): Promise<QueryLine> {
    const { outcome, lines } = await asked(body, options);
    if (outcome instanceof Rejection) throw new Error(outcome.details);
    const last = (await lines).at(-1);
    if (last === undefined) throw new Error('no line');
    return last;
  }

  const shown = (groups: readonly QueryGroup[]): unknown[] =>
    groups
      .map(({ by = null, count, of }) => ({ by, count, ...(of && { of }) }))
      .sort((a, b) => (JSON.stringify(a.by) < JSON.stringify(b.by) ? -1 : 1));

  const STATS = [
    'count',
    { of: 'amount', stat: 'sum' },
    { of: 'amount', stat: 'max' },
    { of: 'amount', stat: 'p95' },
    { of: 'user', stat: 'distinct' },
  ] as const;
  const RANGE = { from: new Date(DAY).toISOString(), to: new Date(NOW).toISOString() };

  test.each([
    { by: 'country' },
    { by: 'country', filter: 'plan:pro' },
    { by: 'country', filter: 'country:DE,IT' },
    { by: 'country', stats: STATS },
    { by: 'country', stats: STATS, interval: '6h', timezone: 'Asia/Kolkata' },
    { by: 'country', stats: STATS, filter: 'country:DE,IT', limit: 1 },
    { filter: 'country:DE', stats: STATS },
    { stats: STATS, interval: '1d' },
    {},
  ])('counts and rows give the same answer to %j', async (question) => {
    const counted = await answer({ ...RANGE, ...question });
    expect([counted.counted, counted.complete, counted.looked]).toEqual([true, true, 0]);
    // A second condition that all events meet is nothing that counts know.
    const filters = 'filter' in question ? [question.filter] : [];
    const read = await answer({ ...RANGE, ...question, filter: [...filters, 'key:*'] });
    expect([read.counted, read.complete]).toEqual([false, true]);
    const rows = ({ groups }: QueryLine): unknown =>
      groups.map(({ series }) => series?.map(({ start, end, count, of }) => ({ start, end, count, of })));
    expect(shown(counted.groups)).toEqual(shown(read.groups));
    expect(rows(counted)).toEqual(rows(read));
    expect(counted.events).toBe(read.events);
    expect(counted.groups.length).toBeGreaterThan(0);
  });

  test('what is not declared is read, and the answer says what would have to be declared', async () => {
    expect(await answer({ by: 'plan', stats: STATS })).toMatchObject({
      counted: false,
      declare: [
        '--path amount --kind number --by plan',
        '--path user --kind distinct --by plan',
        '--path plan --kind value',
      ],
    });
    expect(await answer({ by: ['plan', 'country'] })).not.toHaveProperty('declare');
  });

  /** Each look at the clock takes a second: every step of the reading is a part. */
  function slowClock(): () => number {
    let now = 0;
    return () => {
      now += 1_000;
      return now;
    };
  }

  test('each part tells what the events say that it has read', async () => {
    const { lines } = await asked({ by: 'key', ...RANGE, limit: 1_000 }, { monotonic: slowClock() });
    const parts = await lines;
    expect(parts.length).toBeGreaterThan(2);
    expect(parts.map(({ complete }) => complete)).toEqual([...parts.slice(1).map(() => false), true]);
    for (const part of parts) {
      const from = Date.parse(part.scannedFrom);
      const read = events.filter(({ at }) => at >= from && at < NOW);
      expect(part.events).toBe(read.length);
      expect(shown(part.groups)).toEqual(
        shown(answerTo(read, { by: ['key'] }).map(({ by, count }) => ({ by: by ?? {}, count }))),
      );
    }
    const begins = parts.map(({ scannedFrom }) => scannedFrom);
    expect(begins).toEqual([...new Set(begins)].sort().reverse());
  });

  test('a query whose reader goes reads no further, and gives its place back', async () => {
    const stats = { counted: 0, scanned: 0, events: 0, truncated: 0 };
    const { lines } = await asked({ by: 'key', ...RANGE }, { monotonic: slowClock(), stats }, (_, stream) =>
      stream.closed(),
    );
    expect(await lines).toHaveLength(1);
    await until(() => slots.stats.query.running + slots.stats.query.waiting === 0, 'its place is free');
    expect(stats.events).toBeLessThan(events.length);
  });

  test('a query whose budget is spent ends with what it has, and the next one is refused', async () => {
    const ofHolder = new Window<number>({ limit: 20, now: () => 5 });
    const budget = new QueryBudget({ ofHolder, ofAccount: NO_LIMIT });
    const line = await answer({ by: 'key', ...RANGE }, { budget, monotonic: slowClock() });
    expect(line).toMatchObject({ complete: false, stopped: 'budget', retryAfterSeconds: 60 });
    expect(line.events).toBe(events.filter(({ at }) => at >= Date.parse(line.scannedFrom)).length);
    expect(line.events).toBeLessThan(events.length);
    // The rest.
    const rest = await answer({ by: 'key', from: RANGE.from, to: line.scannedFrom });
    expect(line.events + rest.events).toBe(events.length);
    const { outcome } = await asked({ by: 'key' }, { budget });
    expect(outcome).toMatchObject({ status: 429, headers: { 'Retry-After': '60' } });
    expect(budget.stats).toMatchObject({ refused: 1, cut: 1 });
  });

  test('beyond its memory a query keeps the groups that count most, and says what may be missing', async () => {
    const stats = { counted: 0, scanned: 0, events: 0, truncated: 0 };
    const line = await answer(
      { by: 'key', stats: STATS, ...RANGE, limit: 10 },
      { maxMemoryBytes: 100_000, stats },
    );
    expect(line).toMatchObject({ complete: true, truncated: true, events: events.length });
    expect(stats.truncated).toBe(1);
    expect(line.groups.reduce((sum, { count }) => sum + count, 0)).toBe(events.length);
    // Most of its events come last, after the memory was full of others.
    const [heavy] = line.groups;
    const all = answerTo(events, { by: ['key'] });
    expect(heavy?.by).toEqual({ key: 'heavy' });
    expect(all.find(({ by }) => by?.key === 'heavy')?.count).toBe(200);
    for (const { by, count, missing = 0 } of line.groups) {
      if (by === undefined) continue;
      const truth = all.find((group) => group.by?.key === by.key)?.count ?? 0;
      expect(count).toBeLessThanOrEqual(truth);
      expect(count + missing).toBeGreaterThanOrEqual(truth);
    }
    // The sum over all groups is exact.
    const hundredths = (sum: unknown): number => Math.round(Number(sum) * 100);
    const sums = line.groups.map(({ of }) => hundredths(of?.amount?.sum ?? 0));
    const [whole] = answerTo(events, { stats: [{ of: 'amount', stat: 'sum' }] });
    expect(sums.reduce((a, b) => a + b, 0)).toBe(hundredths(whole?.of.amount?.sum));
  });

  test('a query that has no room for a single group ends early', async () => {
    const line = await answer(
      { stats: STATS, interval: '15m', filter: 'key:*', ...RANGE },
      { maxMemoryBytes: 20_000, monotonic: slowClock() },
    );
    expect(line).toMatchObject({ complete: false, stopped: 'memory', truncated: true });
    expect(line.events).toBeLessThan(events.length);
  });
}

describe.each(availableEngines())('on %s', (engine) => {
  queries((time) => fieldDatabase(engine, time));
});
