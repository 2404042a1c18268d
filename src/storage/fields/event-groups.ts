/**
 * Events by the values of up to three paths and by bucket, with statistics of further paths, from events that are shown one by one.
 *
 * Memory is bounded. Where it is full, the groups with the fewest events go to "other", half of the memory at a time. A group that
 * comes after that may have been among them: how many of its events may be missing is known (G. S. Manku, R. Motwani: "Approximate
 * frequency counts over data streams", VLDB 2002). The sums over all groups are exact in any case.
 */
import { countWhile } from '../../base/bisect.ts';
import { ownText } from '../../base/own-text.ts';
import { sum } from '../../base/sum.ts';
import type { TextPart } from '../../json/path-walk.ts';
import { addSummary, newSummary, type Summary } from './count-minutes.ts';
import { DistinctValues } from './distinct-values.ts';
import { type LeftOut, type NumberParts, NumberSummary } from './number-summary.ts';
import { type FieldKind, PayloadValues } from './payload-values.ts';
import { MANY, OTHER } from './value-text.ts';

const GROUP_BYTES = 400;
const BUCKET_BYTES = 150;
const CHARACTER_BYTES = 2;
/** Sizes of a summary without anything in it, and of each of its bins and hashes. */
const NUMBERS_BYTES = 700;
const BIN_BYTES = 24;
const DISTINCT_BYTES = 300;
const HASH_BYTES = 40;
const REGISTERS_BYTES = 17_000;

/** Groups between two pauses. */
const GROUPS_AT_ONCE = 64;

/** No text of JSON on one line has it. */
const SEPARATOR = '\n';

/** What is asked of a path beside the number of events. */
export interface Measure {
  readonly path: readonly string[];
  readonly kind: Exclude<FieldKind, 'value'>;
  /** What is kept of numbers; absent: everything. */
  readonly parts?: NumberParts;
}

/** What some events are. */
export interface Tally {
  readonly count: number;
  /** One for each measure. */
  readonly summaries: readonly Summary[];
}

export interface EventGroup extends Tally {
  /** The value of each path as JSON; null: the events have none, several or one that is too long. */
  readonly values: readonly (string | null)[];
  /** By index of the bucket, those with events alone. */
  readonly buckets: ReadonlyMap<number, Tally>;
  /** At most so many of its events are among the others, because memory was full before it came. */
  readonly missing: number;
}

class OwnTally implements Tally {
  count = 0;
  readonly summaries: Summary[];

  constructor(measures: readonly Measure[]) {
    this.summaries = measures.flatMap(({ kind, parts }) => newSummary(kind, parts) ?? []);
  }

  add({ count, summaries }: Tally): void {
    this.count += count;
    for (const [index, summary] of summaries.entries()) {
      const own = this.summaries[index];
      if (own !== undefined) addSummary(own, summary);
    }
  }
}

class OwnGroup extends OwnTally implements EventGroup {
  readonly values: readonly (string | null)[];
  readonly buckets = new Map<number, OwnTally>();
  readonly missing: number;
  bytes = 0;

  constructor(measures: readonly Measure[], values: readonly (string | null)[], missing: number) {
    super(measures);
    this.values = values;
    this.missing = missing;
  }
}

export interface EventGroupsOptions {
  /** Paths by whose values events are counted apart. */
  readonly by: readonly (readonly string[])[];
  readonly measures: readonly Measure[];
  /** Where each bucket starts, milliseconds since 1970, ascending; none: events are not counted by bucket. */
  readonly starts: readonly number[];
  /** Limit of the memory that it may take. */
  readonly maxBytes: number;
  /** Whether only events that have a value at the first measure's path are counted. */
  readonly isOfMeasured?: boolean;
}

interface ShownEvent {
  readonly at: number;
  readonly payload: string | TextPart;
}

export class EventGroups {
  readonly #options: EventGroupsOptions;
  readonly #values: PayloadValues;
  /** After the values of a group; nothing after a single one, so that no text is made for each event. */
  readonly #separator: string;
  readonly #groups = new Map<string, OwnGroup>();
  readonly #other: OwnGroup;
  #events = 0;
  #bytes = 0;
  /** Events that a group which is not there may have had. */
  #missing = 0;
  /** Index of the bucket of the event before: events come in order of time. */
  #bucket = 0;

  constructor(options: EventGroupsOptions) {
    this.#options = options;
    const { by, measures } = options;
    this.#values = new PayloadValues(
      [...by, ...measures.map(({ path }) => path)],
      [...by.map(() => 'value' as const), ...measures.map(({ kind }) => kind)],
    );
    this.#separator = by.length === 1 ? '' : SEPARATOR;
    this.#other = new OwnGroup(measures, [], 0);
  }

  /** Events that were shown. */
  get events(): number {
    return this.#events;
  }

  /** Whether some groups had to go. */
  get isTruncated(): boolean {
    return this.#missing > 0 || this.isFull;
  }

  /** Whether even without any group the memory is full: there is no room for further events. */
  get isFull(): boolean {
    return this.#bytes > this.#options.maxBytes;
  }

  /** @param apart what it is counted apart by that is not in its payload, and comes first among the values of its group */
  add({ at, payload }: ShownEvent, apart: string | null = null): void {
    const { by, isOfMeasured = false } = this.#options;
    const values = this.#values.read(payload);
    if (isOfMeasured && (values[by.length] ?? null) === null) return;
    this.#events += 1;
    const group = this.#groupOf(values, apart);
    const before = group.bytes;
    this.#count(group, group, values);
    if (this.#options.starts.length > 0) this.#count(this.#bucketOf(group, at), group, values);
    this.#bytes += group.bytes - before;
    if (this.isFull) this.#evict();
  }

  /**
   * The groups with the most events, most first; of equal ones those whose newest event is the latest.
   * @returns undefined: a pause
   */
  *top(most: number): Generator<undefined, readonly EventGroup[]> {
    const counts = new Float64Array(this.#groups.size);
    let place = 0;
    for (const { count } of this.#groups.values()) counts[place++] = count;
    yield;
    counts.sort();
    yield;
    const least = counts[Math.max(0, counts.length - most)] ?? 0;
    let ties = most - counts.length + lastBelow(counts, least);
    const groups: EventGroup[] = [];
    for (const group of this.#groups.values())
      if (group.count > least || (group.count === least && ties-- > 0)) groups.push(group);
    return groups.sort((a, b) => b.count - a.count);
  }

  /**
   * All events that are in none of some groups: those that have a value at none of the paths, and those of other groups.
   * @returns undefined: a pause
   */
  *others(shown: readonly EventGroup[]): Generator<undefined, EventGroup> {
    const isShown = new Set(shown);
    const others = new OwnGroup(this.#options.measures, [], 0);
    this.#unite(others, this.#other);
    let step = 0;
    for (const group of this.#groups.values()) {
      if (isShown.has(group)) continue;
      this.#unite(others, group);
      step += 1;
      if (step % GROUPS_AT_ONCE === 0) yield;
    }
    return others;
  }

  /** The events that are in none of the statistics of each measure. @param groups all of them */
  leftOut(groups: readonly EventGroup[]): readonly LeftOut[] {
    return this.#options.measures.map((_, index) => {
      const left = { several: 0, unrepresentable: 0 };
      for (const { summaries } of groups) {
        const summary = summaries[index];
        if (!(summary instanceof NumberSummary)) continue;
        left.several += summary.leftOut.several;
        left.unrepresentable += summary.leftOut.unrepresentable;
      }
      return left;
    });
  }

  #groupOf(values: readonly (string | null)[], apart: string | null): OwnGroup {
    const { by } = this.#options;
    if (by.length === 0 && apart === null) return this.#ofKey('', []);
    let key = apart === null ? '' : apart + SEPARATOR;
    let has = apart !== null;
    for (let index = 0; index < by.length; index += 1) {
      const value = values[index] ?? null;
      if (value !== null && value !== MANY && value !== OTHER) {
        has = true;
        key += value;
      }
      key += this.#separator;
    }
    if (!has) return this.#other;
    const known = this.#groups.get(key);
    if (known !== undefined) return known;
    const own = by.map((_, index) => {
      const value = values[index] ?? null;
      return value === null || value === MANY || value === OTHER ? null : ownText(value);
    });
    const made = this.#ofKey(ownText(key), apart === null ? own : [apart, ...own]);
    made.bytes = GROUP_BYTES + key.length * 2 * CHARACTER_BYTES + sum(made.summaries.map(bytesOf));
    this.#bytes += made.bytes;
    return made;
  }

  #ofKey(key: string, values: readonly (string | null)[]): OwnGroup {
    const known = this.#groups.get(key);
    if (known !== undefined) return known;
    const made = new OwnGroup(this.#options.measures, values, this.#missing);
    this.#groups.set(key, made);
    return made;
  }

  #bucketOf(group: OwnGroup, at: number): OwnTally {
    const bucket = this.#indexOf(at);
    const known = group.buckets.get(bucket);
    if (known !== undefined) return known;
    const made = new OwnTally(this.#options.measures);
    group.buckets.set(bucket, made);
    group.bytes += BUCKET_BYTES + sum(made.summaries.map(bytesOf));
    return made;
  }

  /** Index of the last start that is not after a time. */
  #indexOf(time: number): number {
    const { starts } = this.#options;
    const isHere = (index: number): boolean =>
      (starts[index] ?? 0) <= time && time < (starts[index + 1] ?? Number.POSITIVE_INFINITY);
    if (isHere(this.#bucket)) return this.#bucket;
    this.#bucket = Math.max(0, countWhile(starts.length, (index) => (starts[index] ?? 0) <= time) - 1);
    return this.#bucket;
  }

  #count(tally: OwnTally, group: OwnGroup, values: readonly (string | null)[]): void {
    const { by, measures } = this.#options;
    tally.count += 1;
    for (let index = 0; index < measures.length; index += 1) {
      const summary = tally.summaries[index];
      const value = values[by.length + index] ?? null;
      if (summary === undefined || value === null) continue;
      const before = bytesOf(summary);
      if (summary instanceof DistinctValues)
        for (const one of this.#values.different(by.length + index)) summary.addValue(one);
      else if (value === MANY) summary.addSeveral();
      else summary.addNumber(value);
      group.bytes += bytesOf(summary) - before;
    }
  }

  /** Sends the groups with the fewest events to the others, until half of the memory is free. */
  #evict(): void {
    // Where nothing is counted apart there is but one.
    if (this.#groups.has('')) return;
    const before = this.#other.bytes;
    let freed = 0;
    while (this.#groups.size > 0 && this.#bytes - freed > this.#options.maxBytes / 2) {
      const counts = Float64Array.from(this.#groups.values(), ({ count }) => count).sort();
      const median = counts[counts.length >> 1] ?? 0;
      for (const [key, group] of this.#groups) {
        if (group.count > median) continue;
        if (this.#bytes - freed <= this.#options.maxBytes / 2) break;
        this.#groups.delete(key);
        freed += group.bytes;
        this.#missing = Math.max(this.#missing, group.count + group.missing);
        this.#unite(this.#other, group);
      }
    }
    this.#bytes += this.#other.bytes - before - freed;
  }

  #unite(into: OwnGroup, group: EventGroup): void {
    const sizes = (): number => sum(into.summaries.map(bytesOf));
    const before = sizes();
    into.add(group);
    into.bytes += sizes() - before;
    for (const [bucket, tally] of group.buckets) {
      const known = into.buckets.get(bucket);
      const own = known ?? new OwnTally(this.#options.measures);
      const held = known === undefined ? -BUCKET_BYTES : sum(known.summaries.map(bytesOf));
      into.buckets.set(bucket, own);
      own.add(tally);
      into.bytes += sum(own.summaries.map(bytesOf)) - held;
    }
  }
}

function bytesOf(summary: Summary | undefined): number {
  if (summary instanceof NumberSummary) return NUMBERS_BYTES + BIN_BYTES * summary.bins.size;
  if (summary instanceof DistinctValues)
    return DISTINCT_BYTES + (summary.isExact ? HASH_BYTES * summary.count : REGISTERS_BYTES);
  return 0;
}

/** How many of some ascending numbers are below one of them, and with it. */
function lastBelow(ascending: Float64Array, number: number): number {
  return countWhile(ascending.length, (index) => (ascending[index] ?? 0) <= number);
}
