/** Statistics of the numbers of a declared field by bucket. */
import type { Sql, Transaction } from '../database/connect.ts';
import { joinMinutes } from '../fields/compare.ts';
import {
  type FieldRow,
  type FieldScopeRequest,
  findField,
  isComplete,
  type NotCounted,
  readUncountedMinutes,
} from '../fields/field-scope.ts';
import { type Decimal, decimalText, quotient } from '../fields/numbers/decimal-sum.ts';
import { type LeftOut, NumberSummary } from '../fields/numbers/number-summary.ts';
import {
  addNumberOf,
  addRowNumbers,
  type NumberScope,
  readMinuteSummaries,
  readSummaries,
} from '../fields/numbers/read-numbers.ts';
import { PayloadValues } from '../fields/payload-values.ts';
import type { StoredEvent } from '../read/page-request.ts';
import { readSnapshot } from '../read/snapshot.ts';
import type { BucketsProblem } from './buckets.ts';
import { type Interval, type LevelInterval, splitByLevel } from './intervals.ts';
import { ALL_TYPES, coarsestLevel, floorTo, MINUTE_MS } from './levels.ts';
import { frameOf, planSeries, type SeriesFrame, type SeriesPlan, type SeriesRequest } from './series.ts';

/** Quantiles that are computed, ascending. */
const QUANTILES = [0.5, 0.9, 0.95, 0.99] as const;

/** Of the numbers of some events. Texts are exact, as JSON; null where there are no numbers. */
export interface NumberStats {
  readonly count: number;
  readonly sum: string;
  readonly avg: number | null;
  readonly min: string | null;
  readonly max: string | null;
  /** Within 1 % of the number that is the quantile. */
  readonly p50: number | null;
  readonly p90: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
}

export interface NumberSeries extends SeriesFrame {
  /** One for each start. */
  readonly stats: readonly NumberStats[];
  /** Of the whole interval. */
  readonly overall: NumberStats;
  readonly leftOut: LeftOut;
}

/**
 * Statistics of the numbers of a field, exact but for the quantiles.
 * @returns `not counted` where the field is not declared as one of numbers, or not complete for the interval
 */
export async function readNumberSeries(
  sql: Sql,
  request: SeriesRequest,
  path: readonly string[],
): Promise<NumberSeries | BucketsProblem | NotCounted> {
  return await readSnapshot(sql, async (tx) => {
    const plan = await planSeries(tx, request);
    if (typeof plan === 'string') return plan;
    const { appId, typeIds } = request;
    const asked = { appId, typeIds, ...plan.interval, withCountsOnly: true, isCountedAlone: true };
    const field = await findField(tx, asked, path, 'number');
    if (field === null || !(await isComplete(tx, asked, field))) return 'not counted';
    const uncounted = await readUncountedMinutes(tx, asked, field);
    if (typeof uncounted === 'string') return uncounted;
    // Parts of minutes are read from rows anyway.
    const lacking = uncounted.filter((at) => isWithin(plan.interval, at));
    const scope = scopeOf(asked, field, path);
    const numbers = new BucketNumbers(plan.buckets.starts);
    await addUncounted(tx, scope, lacking, numbers);
    for (const part of partsOf(plan)) await addPart(tx, scope, part, numbers);
    return numbers.finish(frameOf(request, plan));
  });
}

/** The same of events that are shown to it one by one, in order of time: of those that pass a filter, for example. */
export class NumbersOfEvents {
  readonly #frame: SeriesFrame;
  readonly #values: PayloadValues;
  readonly #numbers: BucketNumbers;

  constructor(frame: SeriesFrame, path: readonly string[]) {
    this.#frame = frame;
    this.#values = new PayloadValues([path], ['number']);
    this.#numbers = new BucketNumbers(frame.starts);
  }

  add({ createdAt, payload }: Pick<StoredEvent, 'createdAt' | 'payload'>): void {
    addNumberOf(this.#values, payload, () => this.#numbers.at(createdAt.getTime()));
  }

  finish(): NumberSeries {
    return this.#numbers.finish(this.#frame);
  }
}

function scopeOf(
  { appId, typeIds }: FieldScopeRequest,
  field: FieldRow,
  path: readonly string[],
): NumberScope {
  // Of a field for one type there are only summaries of all of its events.
  const summaryTypes = field.typeId !== null || typeIds === null ? [ALL_TYPES] : typeIds;
  return { appId, fieldId: field.id, path, summaryTypes, typeIds };
}

/** The numbers of each bucket. A summary is dropped as soon as a later bucket has begun: only one may be large. */
class BucketNumbers {
  readonly #starts: readonly number[];
  /** What is added to buckets before their turn. */
  readonly #early = new Map<number, NumberSummary>();
  readonly #stats: NumberStats[] = [];
  readonly #overall = new NumberSummary();
  #current = new NumberSummary();

  constructor(starts: readonly number[]) {
    this.#starts = starts;
  }

  /** The summary of the bucket of an instant; to be asked for in order of time. */
  at(time: number): NumberSummary {
    const index = this.#indexOf(time);
    while (this.#stats.length < index) this.#close();
    return this.#current;
  }

  /** The same in any order, for little, before the first {@link at}. */
  early(time: number): NumberSummary {
    const index = this.#indexOf(time);
    const known = this.#early.get(index);
    if (known !== undefined) return known;
    const made = new NumberSummary();
    this.#early.set(index, made);
    return made;
  }

  finish(frame: SeriesFrame): NumberSeries {
    while (this.#stats.length < this.#starts.length) this.#close();
    const { leftOut } = this.#overall;
    return { ...frame, stats: this.#stats, overall: statsOf(this.#overall), leftOut };
  }

  #close(): void {
    const early = this.#early.get(this.#stats.length);
    if (early !== undefined) this.#current.add(early);
    this.#stats.push(statsOf(this.#current));
    this.#overall.add(this.#current);
    this.#current = new NumberSummary();
  }

  /** Of the last start that is not after a time. */
  #indexOf(time: number): number {
    let [low, high] = [0, this.#starts.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.#starts[middle] ?? 0) <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** The intervals of a series by what they are read from: a first or last bucket that is cut off is not read as a whole. */
function partsOf({ buckets: { starts, end }, interval, whole }: SeriesPlan): LevelInterval[] {
  const level = coarsestLevel(({ ms }) => end % ms === 0 && starts.every((start) => start % ms === 0));
  const from = interval.from === whole.from ? whole.from : (starts[1] ?? end);
  const until = interval.until === whole.until ? whole.until : (starts.at(-1) ?? end);
  if (from > until) return splitByLevel(interval);
  return [
    ...splitByLevel({ from: interval.from, until: from }),
    ...(from < until ? [{ level, from, until }] : []),
    ...splitByLevel({ from: until, until: interval.until }),
  ];
}

async function addPart(
  tx: Transaction,
  scope: NumberScope,
  { level, ...interval }: LevelInterval,
  into: BucketNumbers,
): Promise<void> {
  if (level === null) return await addRowNumbers(tx, scope, [interval], ({ at }) => into.at(at));
  for await (const { at, numbers } of readSummaries(tx, scope, level, interval))
    into.at(at).addBytes(numbers);
}

/** Adds what the rows of uncounted minutes have beyond what is counted of them. */
async function addUncounted(
  tx: Transaction,
  scope: NumberScope,
  minutes: readonly number[],
  into: BucketNumbers,
): Promise<void> {
  if (minutes.length === 0) return;
  const lacking = new Map(minutes.map((at) => [at, new NumberSummary()]));
  const of = (at: number): NumberSummary => lacking.get(floorTo(at, MINUTE_MS)) ?? new NumberSummary();
  await addRowNumbers(tx, scope, joinMinutes(minutes), ({ at }) => of(at));
  for await (const { at, numbers } of readMinuteSummaries(tx, scope, minutes)) {
    const counted = new NumberSummary();
    counted.addBytes(numbers);
    of(at).subtract(counted);
  }
  for (const [at, numbers] of lacking) into.early(at).add(numbers);
}

function statsOf(numbers: NumberSummary): NumberStats {
  const { count, sum, min, max } = numbers;
  const within = (quantile: number | null): number | null =>
    quantile === null ? null : Math.min(Math.max(quantile, Number(min)), Number(max));
  const [p50 = null, p90 = null, p95 = null, p99 = null] = numbers.bins.quantiles(QUANTILES).map(within);
  return { count, sum: decimalText(sum), avg: averageOf(sum, count), min, max, p50, p90, p95, p99 };
}

function averageOf(sum: Decimal, count: number): number | null {
  return count === 0 ? null : quotient(sum, count);
}

/** Whether an interval has all of a minute. */
function isWithin({ from, until }: Interval, minute: number): boolean {
  return minute >= from && minute + MINUTE_MS <= until;
}
