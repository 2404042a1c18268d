/** How a range of time is made of whole buckets: what is added up from the counts, and what from rows. Pure arithmetic. */

/** The relations of counts, coarsest first, each bucket made of whole ones of the next. Buckets are aligned to 1970, UTC. */
export const LEVELS = [
  { view: 'events_per_day', ms: 86_400_000 },
  { view: 'events_per_hour', ms: 3_600_000 },
  { view: 'events_per_quarter_hour', ms: 900_000 },
  { view: 'events_per_minute', ms: 60_000 },
] as const;

export type Level = (typeof LEVELS)[number];

/** The type under which the counts hold all types of an app together. */
export const ALL_TYPES = 0;

/** The finest bucket. */
export const MINUTE_MS = 60_000;

/** A half-open range of time, in milliseconds since 1970. */
export interface Range {
  readonly from: number;
  readonly until: number;
}

/** A stretch of whole buckets of one level, or (null) of single rows. Never empty. */
export interface Segment extends Range {
  readonly level: Level | null;
}

/** A bucket whose own count, and whose coarser buckets' counts, may lack rows. */
export interface StaleBucket {
  /** Its width: that of one of the levels. */
  readonly ms: number;
  /** Its start in milliseconds since 1970. */
  readonly start: number;
}

/** Beyond this many segments a statement costs more to plan than stale hours and days cost to count from rows. */
export const MAX_SEGMENTS = 60;

/**
 * The segments of a range in the order of time, without a count that may be stale: a stale bucket is made of the next
 * finer ones, and a stale minute of rows.
 */
export function exactSegmentsOf(range: Range, stale: readonly StaleBucket[]): Segment[] {
  const segments = segmentsOf(range);
  if (stale.length === 0) return segments;
  const exact = joinRows(segments.flatMap((segment) => replaceStale(segment, stale, true)));
  if (exact.length <= MAX_SEGMENTS) return exact;
  return joinRows(segments.flatMap((segment) => replaceStale(segment, stale, false)));
}

/** One segment without its stale buckets, likewise. */
export function refine(segment: Segment, stale: readonly StaleBucket[]): Segment[] {
  const exact = joinRows(replaceStale(segment, stale, true));
  return exact.length <= MAX_SEGMENTS ? exact : joinRows(replaceStale(segment, stale, false));
}

/** @param finer by finer buckets where they are exact, else by rows at once */
function replaceStale(segment: Segment, stale: readonly StaleBucket[], finer: boolean): Segment[] {
  const { level } = segment;
  if (level === null) return [segment];
  const within = stale.filter(
    ({ ms, start }) => ms <= level.ms && start >= segment.from && start < segment.until,
  );
  const starts = [...new Set(within.map(({ start }) => floor(start, level.ms)))].sort((a, b) => a - b);
  const next = finer ? (LEVELS[LEVELS.indexOf(level) + 1] ?? null) : null;
  let from = segment.from;
  const parts: Segment[] = [];
  for (const start of starts) {
    parts.push({ level, from, until: start });
    parts.push(...replaceStale({ level: next, from: start, until: start + level.ms }, within, finer));
    from = start + level.ms;
  }
  return [...parts, { level, from, until: segment.until }].filter(isFilled);
}

/** Neighbouring stretches of rows are one. */
function joinRows(segments: readonly Segment[]): Segment[] {
  const joined: Segment[] = [];
  for (const segment of segments) {
    const last = joined.at(-1);
    if (last !== undefined && last.level === null && segment.level === null && last.until === segment.from) {
      joined[joined.length - 1] = { level: null, from: last.from, until: segment.until };
    } else {
      joined.push(segment);
    }
  }
  return joined;
}

/**
 * The segments of a range in the order of time: rows up to the first whole minute, minutes, quarter-hours, hours, days,
 * and down again. Of each kind only where it is needed: at most nine, and at most 14 minutes, 3 quarter-hours and 23
 * hours at either end, whatever the length of the range.
 */
export function segmentsOf(range: Range): Segment[] {
  if (range.from >= range.until) return [];
  const from = ceiling(range.from, MINUTE_MS);
  const until = floor(range.until, MINUTE_MS);
  // Within one minute, or within two without a whole one.
  if (from >= until) return [{ level: null, ...range }];
  return [
    { level: null, from: range.from, until: from },
    ...bucketSegments({ from, until }, LEVELS.length - 1),
    { level: null, from: until, until: range.until },
  ].filter(isFilled);
}

/** A range that is whole buckets of one level, with its middle given to the coarser levels where there is a middle. */
function bucketSegments(range: Range, index: number): Segment[] {
  const level = LEVELS[index];
  if (level === undefined) return [];
  const coarser = LEVELS[index - 1];
  if (coarser === undefined) return [{ level, ...range }];
  const from = ceiling(range.from, coarser.ms);
  const until = floor(range.until, coarser.ms);
  if (from >= until) return [{ level, ...range }];
  return [
    { level, from: range.from, until: from },
    ...bucketSegments({ from, until }, index - 1),
    { level, from: until, until: range.until },
  ].filter(isFilled);
}

function isFilled(range: Range): boolean {
  return range.from < range.until;
}

function floor(ms: number, unit: number): number {
  return Math.floor(ms / unit) * unit;
}

function ceiling(ms: number, unit: number): number {
  return Math.ceil(ms / unit) * unit;
}
