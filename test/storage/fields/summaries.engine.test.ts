/** Different values, pairs and numbers by values are what a computation over the rows gives. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../../src/apps/fields.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import type { Stats, SummaryQuestion, SummarySeries } from '../../../src/storage/counts/summary-series.ts';
import { compareFieldDay, recountFieldDay } from '../../../src/storage/fields/recount.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';
import { fieldFilter, type Random, seededRandom } from '../../support/field-oracle.ts';
import { isLong } from '../../support/fuzz.ts';

const DAY = Math.floor(Date.now() / DAY_MS) * DAY_MS - 2 * DAY_MS;
const NOW = DAY + 2 * DAY_MS + 5 * HOUR_MS;

interface Payload {
  readonly user?: number;
  readonly amount?: number;
  readonly country?: string | readonly string[];
  readonly plan?: string;
}

function fieldSummaries(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  const events: FieldEvent[] = [];
  const random = seededRandom(20_261_124);

  beforeAll(async () => {
    fields = await open({ now: NOW, from: DAY, until: DAY + 4 * DAY_MS });
    for (const [path, kind, by] of [
      ['user', 'distinct', null],
      ['user', 'distinct', 'country'],
      ['amount', 'number', 'country'],
      ['country', 'value', 'plan'],
    ] as const)
      await declareField(fields.sql, {
        ...{ appId: 1, path: [path], kind, by: by === null ? null : [by] },
        ...{ typeName: null, backfill: false },
      });
    await fields.upkeep.everySecond();
    await fields.upkeep.everySecond();
  });
  afterAll(() => fields.close());

  function payloadOf(next: Random): Payload {
    return {
      ...(next(5) > 0 && { user: next(60) }),
      ...(next(5) > 0 && { amount: next(1_000) / 8 }),
      ...(next(6) > 0 && { country: next(12) === 0 ? ['DE', 'FR'] : (['DE', 'FR', 'IT'][next(3)] ?? 'DE') }),
      ...(next(4) > 0 && { plan: ['pro', 'free'][next(2)] ?? 'pro' }),
    };
  }

  async function write(count: number, newest = NOW): Promise<void> {
    const made = Array.from({ length: count }, () => {
      const at = newest - random(random(3) === 0 ? 2 * DAY_MS : 3 * MINUTE_MS);
      return { id: fields.newId(at), at, typeId: 1 + random(2), payload: JSON.stringify(payloadOf(random)) };
    });
    await fields.write(made);
    events.push(...made);
  }

  const INTERVALS = [
    { from: DAY, until: NOW + HOUR_MS, buckets: '1d' },
    { from: NOW - 90 * MINUTE_MS - 7_000, until: NOW - 30_000, buckets: '15m' },
    { from: DAY + 13 * HOUR_MS, until: NOW, buckets: '1h' },
  ] as const;

  async function read(
    question: SummaryQuestion,
    interval: (typeof INTERVALS)[number],
  ): Promise<SummarySeries> {
    const reader = (await openStorage(fields.sql)).reader(fields.sql);
    const typeIds = question.byType === true ? [1, 2] : null;
    const request = { appId: 1, typeIds, ...interval, timezone: 'UTC', exactEnds: 'both' } as const;
    const series = await reader.summarySeries({ ...request, question, topTypes: 50 });
    if (typeof series === 'string') throw new Error(series);
    return series;
  }

  function only(text: string | readonly string[] | undefined): string | undefined {
    return typeof text === 'string' ? text : undefined;
  }

  function has(text: string | readonly string[] | undefined, value: string): boolean {
    return typeof text === 'string' ? text === value : (text?.includes(value) ?? false);
  }

  /** What the rows say of one line in one bucket. */
  function expected(
    { of, kind, by, filter }: SummaryQuestion,
    value: string | null,
    shown: readonly (string | null)[],
    inBucket: readonly FieldEvent[],
  ): object {
    const rows = inBucket
      .map(({ payload }) => JSON.parse(payload) as Payload)
      .filter(
        (row) =>
          filter === null ||
          has(row[filter.path[0] as 'country' | 'plan'], JSON.parse(filter.values[0] ?? '""') as string),
      )
      .filter((row) => of === null || row[of[0] as 'user' | 'amount'] !== undefined)
      .filter((row) => {
        if (by === null) return true;
        const own = only(row[by[0] as 'country' | 'plan']);
        const line = own === undefined ? null : JSON.stringify(own);
        return shown.includes(line) ? line === value : value === null;
      });
    if (kind === 'value') return { count: rows.length };
    if (kind === 'distinct')
      return { count: rows.length, distinct: new Set(rows.map(({ user }) => user)).size, exact: true };
    const numbers = rows.map(({ amount = 0 }) => amount);
    return {
      count: numbers.length,
      sum: String(numbers.reduce((sum, number) => sum + number, 0)),
      min: numbers.length === 0 ? null : String(Math.min(...numbers)),
      max: numbers.length === 0 ? null : String(Math.max(...numbers)),
    };
  }

  const DE = fieldFilter('country:DE');
  const PRO = fieldFilter('plan:pro');
  const QUESTIONS: readonly SummaryQuestion[] = [
    { kind: 'distinct', of: ['user'], by: null, filter: null },
    { kind: 'distinct', of: ['user'], by: ['country'], filter: null },
    { kind: 'distinct', of: ['user'], by: null, filter: DE },
    { kind: 'number', of: ['amount'], by: null, filter: null },
    { kind: 'number', of: ['amount'], by: ['country'], filter: null },
    { kind: 'number', of: ['amount'], by: null, filter: DE },
    { kind: 'distinct', of: ['user'], by: null, filter: null, byType: true },
    { kind: 'number', of: ['amount'], by: null, filter: null, byType: true },
    { kind: 'number', of: ['amount'], by: null, filter: DE, byType: true },
    { kind: 'value', of: null, by: ['country'], filter: PRO },
    { kind: 'value', of: null, by: ['plan'], filter: DE },
  ];

  async function expectExact(what: string): Promise<void> {
    for (const [number, question] of QUESTIONS.entries())
      for (const [index, interval] of INTERVALS.entries()) {
        if (!isLong && index !== number % INTERVALS.length) continue;
        const series = await read(question, interval);
        const shown = series.lines.map(({ value }) => value);
        const name = `${what}: ${question.kind} ${question.of} by ${question.byType === true ? 'type' : question.by} of ${question.filter?.path}`;
        for (const { value, stats, overall } of series.lines) {
          const at = (stat: Stats, from: number, until: number): void => {
            const inBucket = events.filter(
              (event) =>
                event.at >= Math.max(from, series.interval.from) &&
                event.at < Math.min(until, series.interval.until) &&
                (question.byType !== true || String(event.typeId) === value),
            );
            expect(stat, `${name}, ${value}, ${new Date(from).toISOString()}`).toMatchObject(
              expected(question, value, shown, inBucket),
            );
          };
          for (const [index, stat] of stats.entries())
            at(stat, series.starts[index] ?? 0, series.starts[index + 1] ?? series.end);
          at(overall, series.interval.from, series.interval.until);
        }
      }
  }

  async function differing(): Promise<number> {
    const days = [DAY, DAY + DAY_MS, DAY + 2 * DAY_MS];
    const found = await Promise.all(
      days.map((day) =>
        readSnapshot(fields.counts, (tx) => compareFieldDay(tx, day, 1, undefined, fields.sql)),
      ),
    );
    return found.reduce((sum, day) => sum + (day?.differing ?? 0), 0);
  }

  test('are exact before they are counted, while they are, and after', async () => {
    for (let round = 0; round < 2; round += 1) {
      await write(60);
      await expectExact('pending');
      await fields.settle();
      await write(15);
      await fields.upkeep.everySecond();
      await expectExact('counted in part');
      expect(await differing()).toBe(0);
    }
    await fields.settle();
    await fields.upkeep.everySecond();
    await fields.upkeep.everySecond();
    await expectExact('counted');
    expect(await differing()).toBe(0);
  });

  test('a recount makes exact what was changed', async () => {
    await fields.settle();
    await fields.upkeep.everySecond();
    await fields.counts.begin('isolation level read committed', async (tx) => {
      await tx`UPDATE field_minute_counts SET count = count + 1 WHERE summary IS NULL`;
      await tx`DELETE FROM field_hour_counts WHERE summary IS NOT NULL`;
    });
    expect(await differing()).toBeGreaterThan(0);
    for (const day of [DAY, DAY + DAY_MS, DAY + 2 * DAY_MS]) await recountFieldDay(fields.counts, day, NOW);
    expect(await differing()).toBe(0);
    await expectExact('recounted');
  });
}

describe.each(availableEngines())('on %s', (engine) => fieldSummaries((time) => fieldDatabase(engine, time)));
