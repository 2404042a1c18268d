/**
 * Judges series of values by a rule. Whether a rule fires at a minute depends on the values alone, not on what was said before: so late
 * events change the past, and what was said is compared with what is true now. Pure arithmetic.
 */
import { MINUTE_MS } from '../../base/time-units.ts';

/** Values of a series at each minute from `first` on; null: there is none, such as an average of nothing. */
export interface SeriesValues {
  /** The value of `by` as JSON; empty: all events together. */
  readonly series: string;
  readonly values: ArrayLike<number | null>;
  /** What was compared with, where it differs from minute to minute. */
  readonly limits?: readonly (Limits | null)[];
}

/** What `unusual` expected. */
export interface Limits {
  readonly expected: number;
  readonly low: number;
  readonly high: number;
}

export type Test = (value: number | null, limits: Limits | null) => boolean;

/** An episode of firing that was said: `[from, to)`, minutes as milliseconds since 1970. */
export interface Episode {
  /** Its message; null: it has not been said yet. */
  id: string | null;
  readonly from: number;
  /** Null: it is firing. */
  to: number | null;
  /** What was seen when it began. */
  readonly value: number | null;
}

export interface Transition {
  readonly kind: 'firing' | 'resolved' | 'corrected';
  readonly series: string;
  /** The minute that is judged: the end of the window. */
  readonly at: number;
  readonly value: number | null;
  readonly limits: Limits | null;
  /** The episode that begins, is resolved or is corrected. */
  readonly of: Episode | null;
}

/** Values at the minutes from `first` on, of which those before `from` only tell how long a condition has held. */
export interface Judged extends SeriesValues {
  readonly first: number;
}

/**
 * The minutes at which a rule fires: where the condition has held at each minute for `forMs`.
 * @returns one for each value: whether it fires
 */
export function firingMinutes({ values, limits }: SeriesValues, test: Test, forMs: number): Uint8Array {
  const needed = forMs / MINUTE_MS;
  const firing = new Uint8Array(values.length);
  let held = -1;
  for (let index = 0; index < values.length; index += 1) {
    held = test(values[index] ?? null, limits?.[index] ?? null) ? held + 1 : -1;
    firing[index] = held >= needed ? 1 : 0;
  }
  return firing;
}

/**
 * What must be said so that what was said agrees with the values.
 * @param episodes those that reach into the minutes, in order; they are changed to what is said now
 * @param options.from the first minute that is judged: values before it may be too few to tell
 * @param options.firesFrom the first minute at which an episode may begin; by default `from`
 */
export function reconcile(
  judged: Judged,
  options: {
    readonly test: Test;
    readonly forMs: number;
    readonly from: number;
    readonly firesFrom?: number;
  },
  episodes: Episode[],
): readonly Transition[] {
  const { first, series, values } = judged;
  const { test, forMs, from, firesFrom = from } = options;
  const firing = firingMinutes(judged, test, forMs);
  const begin = Math.max(0, (from - first) / MINUTE_MS);
  const said: Transition[] = [];
  const say = (kind: Transition['kind'], index: number, of: Episode | null): void => {
    const value = values[index] ?? null;
    said.push({
      kind,
      series,
      at: first + index * MINUTE_MS,
      value,
      limits: judged.limits?.[index] ?? null,
      of,
    });
  };
  for (const episode of [...episodes]) {
    const index = (episode.from - first) / MINUTE_MS;
    if (index < begin || index >= values.length || firing[index] === 1) continue;
    say('corrected', index, episode);
    episodes.splice(episodes.indexOf(episode), 1);
  }
  for (let index = begin; index < values.length; index += 1) {
    const at = first + index * MINUTE_MS;
    const around = episodes.find((one) => one.from <= at && (one.to === null || one.to > at));
    if (firing[index] === 1 && around === undefined) {
      if (at < firesFrom || beginsLater(episodes, firing, { first, index })) continue;
      const episode: Episode = { id: null, from: at, to: null, value: values[index] ?? null };
      episodes.push(episode);
      say('firing', index, episode);
    } else if (firing[index] === 0 && around?.to === null) {
      around.to = at;
      say('resolved', index, around);
    }
  }
  return said;
}

/** Whether an episode that was said is this one: late events have it begin earlier than it was said to. */
function beginsLater(
  episodes: readonly Episode[],
  firing: Uint8Array,
  { first, index }: { readonly first: number; readonly index: number },
): boolean {
  let end = index;
  while (firing[end + 1] === 1) end += 1;
  return episodes.some(({ from }) => from > first + index * MINUTE_MS && from <= first + end * MINUTE_MS);
}
