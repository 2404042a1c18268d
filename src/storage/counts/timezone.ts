/** Time zones: their offsets from UTC and when those change, from the same IANA data that browsers show times with. */
import { LRUCache } from 'lru-cache';
import { DAY_MS, MINUTE_MS, QUARTER_HOUR_MS } from './levels.ts';

/** From an instant on (milliseconds since 1970, inclusive), how far the local time is ahead of UTC, in milliseconds. */
export interface OffsetChange {
  readonly at: number;
  readonly offset: number;
}

const WEEK_MS = 7 * DAY_MS;
const LONGEST_NAME = 64;

const formats = new LRUCache<string, Intl.DateTimeFormat>({
  max: 600,
  memoMethod: (zone) => new Intl.DateTimeFormat('en-US', { timeZone: zone, timeZoneName: 'longOffset' }),
});
/** Zone and year → the offset at its start, and its changes. */
const years = new LRUCache<string, readonly OffsetChange[]>({ max: 20_000 });

/** Whether this is the name of a known zone. */
export function isTimezone(name: string): boolean {
  if (name.length > LONGEST_NAME || !/^[A-Za-z][A-Za-z0-9_+\-/]*$/.test(name)) return false;
  try {
    formats.memo(name);
    return true;
  } catch {
    return false; // RangeError: there is no such zone.
  }
}

function offsetAt(zone: string, instant: number): number {
  let offset = 0;
  for (const change of changesOfYear(zone, new Date(instant).getUTCFullYear())) {
    if (change.at > instant) break;
    offset = change.offset;
  }
  return offset;
}

/**
 * The instant that has the same local time some days before.
 * @returns the earlier one where the local time comes twice; null where it is skipped that day
 */
export function sameLocalTime(zone: string, instant: number, daysBefore: number): number | null {
  const local = instant + offsetAt(zone, instant) - daysBefore * DAY_MS;
  const candidates = [local - DAY_MS, local + DAY_MS]
    .map((near) => local - offsetAt(zone, near))
    .filter((at) => at + offsetAt(zone, at) === local);
  return candidates.length === 0 ? null : Math.min(...candidates);
}

/** What the clock of a zone shows at an instant, as if it were UTC. */
export function localOf(zone: string, instant: number): number {
  return instant + offsetAt(zone, instant);
}

/**
 * The instant at which the clock of a zone shows a time, given as if it were UTC.
 * @returns the earlier one where the time comes twice; where it is skipped, so long after the change as it would be without it
 */
export function instantOf(zone: string, local: number): number {
  const candidates = [local - DAY_MS, local + DAY_MS].map((near) => local - offsetAt(zone, near));
  const found = candidates.filter((at) => localOf(zone, at) === local);
  return Math.min(...(found.length > 0 ? found : [Math.max(...candidates)]));
}

/** The offset that holds at `from`, as a change at `from`, and every later change before `until`. */
export function offsetChanges(zone: string, from: number, until: number): OffsetChange[] {
  const changes: OffsetChange[] = [{ at: from, offset: offsetAt(zone, from) }];
  const lastYear = new Date(Math.max(from, until - 1)).getUTCFullYear();
  for (let year = new Date(from).getUTCFullYear(); year <= lastYear; year += 1) {
    for (const change of changesOfYear(zone, year)) {
      if (change.at <= from || change.at >= until) continue;
      if (change.offset !== changes.at(-1)?.offset) changes.push(change);
    }
  }
  return changes;
}

function changesOfYear(zone: string, year: number): readonly OffsetChange[] {
  const key = `${zone} ${year}`;
  let changes = years.get(key);
  if (changes === undefined) {
    changes = findChanges(zone, Date.UTC(year, 0, 1), Date.UTC(year + 1, 0, 1));
    years.set(key, changes);
  }
  return changes;
}

/** Samples once a week, and searches between two samples that differ for the minute of the change. */
function findChanges(zone: string, from: number, until: number): OffsetChange[] {
  const changes: OffsetChange[] = [{ at: from, offset: readOffset(zone, from) }];
  let before = from;
  while (before < until) {
    const after = Math.min(before + WEEK_MS, until);
    const offset = readOffset(zone, after);
    const last = changes.at(-1);
    if (last !== undefined && offset !== last.offset) {
      let low = before;
      let high = after;
      while (high - low > MINUTE_MS) {
        const middle = low + Math.floor((high - low) / 2 / MINUTE_MS) * MINUTE_MS;
        if (readOffset(zone, middle) === last.offset) low = middle;
        else high = middle;
      }
      changes.push({ at: high, offset });
    }
    before = after;
  }
  return changes;
}

/** Since 1972 every zone's offset is a multiple of a quarter-hour; older ones are rounded to it. */
function readOffset(zone: string, instant: number): number {
  const name = formats
    .memo(zone)
    .formatToParts(instant)
    .find(({ type }) => type === 'timeZoneName')?.value;
  const [, sign, hours, minutes = '0', seconds = '0'] =
    /^GMT([+-])(\d{1,2})(?::(\d\d))?(?::(\d\d))?$/.exec(name ?? '') ?? [];
  if (sign === undefined) return 0;
  const ms = (Number(hours) * 3_600 + Number(minutes) * 60 + Number(seconds)) * 1_000;
  return Math.round((sign === '-' ? -ms : ms) / QUARTER_HOUR_MS) * QUARTER_HOUR_MS;
}
