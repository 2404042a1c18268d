/** What a rule would have said in an interval of the past, from the counts as they are now. */
import type { AlertTrial, TrialFiring } from '../../api-types/answers.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/time-units.ts';
import { WrongField } from '../../errors.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { firingMinutes, type Limits, type SeriesValues } from './judge.ts';
import { thresholdOf } from './messages.ts';
import { firesBelow, partsOf, type Rule } from './rule.ts';
import { readValues, TOO_MANY_VALUES, testOf, type Wanted, withTypes } from './values.ts';

const LONGEST_MS = 400 * DAY_MS;
/** Firings that are told: the last ones. */
export const MOST_SHOWN = 1_000;
/** What is in memory at once, of rules by the values of a field. */
const PART_BY_MS = 3 * HOUR_MS;
const MOST_PARTS = 1_000;
/** Windows of one read of statistics. */
const WINDOWS_AT_ONCE = 900;
export const CURVE_POINTS = 240;

type Tried = Pick<Wanted, 'rule' | 'appId' | 'timezone'>;

/**
 * Tries a rule. Rules on counts are judged at each minute, those on statistics at the end of each window.
 * @returns null where counts do not answer it
 * @throws WrongField for an interval that is too long
 */
export async function tryRule(
  { sql, events }: { readonly sql: Sql; readonly events: EventReader },
  tried: Tried,
  interval: { readonly from: number; readonly until: number },
): Promise<AlertTrial | null> {
  const { rule, appId } = tried;
  const stepMs = stepOf(rule);
  const whole = (at: number): number => Math.ceil(at / stepMs) * stepMs;
  const kept = await events.firstWindow(appId, rule.windowMs);
  const from = whole(Math.max(interval.from, kept + rule.forMs));
  const to = Math.floor(interval.until / stepMs) * stepMs;
  if (to - from > LONGEST_MS) throw new WrongField('from', 'must be at most 400 days before the end');
  const curve = new Curve(rule, { from, to });
  if (to < from) return { from, to, stepMs, firings: [], total: 0, fires: [], curve };
  let partMs = isOfCounts(rule) ? (rule.by === null ? LONGEST_MS : PART_BY_MS) : WINDOWS_AT_ONCE * stepMs;
  if ((to - from) / partMs > MOST_PARTS)
    throw new WrongField(
      'from',
      `must be at most ${Math.floor((MOST_PARTS * partMs) / DAY_MS)} days before the end of a rule with by`,
    );
  const typed = await withTypes(sql, [tried]);
  const firings = new LastFirings(curve, to);
  const open = new Map<string, TrialFiring>();
  const slices = new TimeSlice();
  for (let begin = from; begin <= to; ) {
    const end = Math.min(to, begin + partMs - stepMs);
    const first = begin - Math.ceil(rule.forMs / stepMs) * stepMs;
    const [values] = await readValues(
      events,
      typed.map((one) => ({ ...one, first, last: end, stepMs })),
    );
    if (values === 'too many values') {
      if (partMs === stepMs) throw new WrongField('rule', TOO_MANY_VALUES);
      partMs = Math.max(stepMs, Math.floor(partMs / (4 * stepMs)) * stepMs);
      continue;
    }
    if (values === undefined || values === 'not counted') return null;
    for (const own of values) {
      collect(rule, own, { first, begin, stepMs, open, firings });
      curve.add(own, { first, begin, stepMs });
      if (slices.isOver) await slices.next();
    }
    begin += partMs;
  }
  for (const firing of open.values()) firings.add(firing);
  return { from, to, stepMs, curve, firings: firings.shown(), total: firings.total, fires: curve.fires };
}

/** All firings are counted and drawn, the last ones are kept: a value may fire in every other minute. */
class LastFirings {
  total = 0;
  #last: TrialFiring[] = [];
  readonly #curve: Curve;
  readonly #end: number;

  constructor(curve: Curve, end: number) {
    this.#curve = curve;
    this.#end = end;
  }

  add(firing: TrialFiring): void {
    this.total += 1;
    this.#curve.mark(firing.from, firing.to ?? this.#end);
    this.#last.push(firing);
    if (this.#last.length === 2 * MOST_SHOWN) this.#last = this.shown();
  }

  /** In the order in which they began. */
  shown(): TrialFiring[] {
    return this.#last.sort((a, b) => a.from - b.from).slice(-MOST_SHOWN);
  }
}

/** The interval in {@link CURVE_POINTS} equal parts. */
class Curve {
  readonly values = noPoints();
  readonly low = noPoints();
  readonly high = noPoints();
  readonly #fires = new Array<boolean>(CURVE_POINTS).fill(false);
  readonly #from: number;
  readonly #pointMs: number;
  /** Whether of two values the lower one is nearer to firing. */
  readonly #isLow: boolean;

  constructor(rule: Rule, { from, to }: { readonly from: number; readonly to: number }) {
    this.#from = from;
    this.#pointMs = Math.max(MINUTE_MS, to - from) / CURVE_POINTS;
    this.#isLow = firesBelow(rule);
    if (rule.kind === 'unusual') return;
    const threshold = rule.kind === 'absent' ? 1 : rule.threshold;
    (this.#isLow ? this.low : this.high).fill(threshold);
  }

  /** Whether a rule fires in each part. */
  get fires(): readonly boolean[] {
    return this.#fires;
  }

  mark(from: number, end: number): void {
    this.#fires.fill(true, this.#pointAt(from), this.#pointAt(Math.max(from, end - 1)) + 1);
  }

  #pointAt(at: number): number {
    return Math.min(CURVE_POINTS - 1, Math.floor((at - this.#from) / this.#pointMs));
  }

  add(
    { values, limits }: SeriesValues,
    { first, begin, stepMs }: Pick<Collecting, 'first' | 'begin' | 'stepMs'>,
  ): void {
    for (let index = Math.round((begin - first) / stepMs); index < values.length; index += 1) {
      const value = values[index] ?? null;
      if (value === null) continue;
      const point = this.#pointAt(first + index * stepMs);
      const known = this.values[point] ?? null;
      const limit = limits?.[index];
      if (known !== null && (this.#isLow ? value >= known : value <= known)) continue;
      this.values[point] = value;
      if (limit == null) continue;
      this.low[point] = limit.low;
      this.high[point] = limit.high;
    }
  }
}

function noPoints(): (number | null)[] {
  return new Array<number | null>(CURVE_POINTS).fill(null);
}

/** Statistics of a window are not made of those of its minutes: they are read window by window. */
function stepOf(rule: Rule): number {
  return isOfCounts(rule) || rule.kind === 'unusual' ? MINUTE_MS : rule.windowMs;
}

function isOfCounts(rule: Rule): boolean {
  return partsOf(rule).every(({ of }) => of === 'count');
}

interface Collecting {
  readonly first: number;
  readonly begin: number;
  readonly stepMs: number;
  readonly open: Map<string, TrialFiring>;
  readonly firings: LastFirings;
}

function collect(rule: Rule, own: SeriesValues, { first, begin, stepMs, open, firings }: Collecting): void {
  const firing = firingMinutes(own, testOf(rule), (rule.forMs / stepMs) * MINUTE_MS);
  let current = open.get(own.series) ?? null;
  for (let index = Math.round((begin - first) / stepMs); index < firing.length; index += 1) {
    const at = first + index * stepMs;
    if (firing[index] === 1 && current === null) current = beginning(rule, own, index, at);
    else if (firing[index] === 0 && current !== null) {
      firings.add({ ...current, to: at });
      current = null;
    }
  }
  if (current === null) open.delete(own.series);
  else open.set(own.series, current);
}

function beginning(rule: Rule, own: SeriesValues, index: number, from: number): TrialFiring {
  const value = own.values[index] ?? null;
  const limits: Limits | null = own.limits?.[index] ?? null;
  const threshold = thresholdOf(rule, { value, limits });
  return { series: own.series, from, to: null, value, threshold, expected: limits?.expected ?? null };
}
