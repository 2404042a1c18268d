/** Wall clocks of IANA time zones, by what Intl knows: conversions that hold across every change of offset. */

const formatters = new Map<string, Intl.DateTimeFormat>();

/** Fields of a zone's wall clock; formatters are slow to make and quick to use. */
function wallFormatter(zone: string): Intl.DateTimeFormat {
  let formatter = formatters.get(zone);
  if (formatter === undefined) {
    const two = '2-digit';
    const fields = { year: 'numeric', month: two, day: two, hour: two, minute: two, second: two } as const;
    // Without the era, the year 1 BC would read as the year 1.
    formatter = new Intl.DateTimeFormat('en-US', {
      ...fields,
      era: 'short',
      timeZone: zone,
      hourCycle: 'h23',
    });
    formatters.set(zone, formatter);
  }
  return formatter;
}

/**
 * What the zone's wall clock shows at an instant, as the milliseconds at which UTC's clock shows the same. Such values
 * can be added to and rounded like local times; `getUTC…` reads their fields.
 */
export function toWall(instant: number, zone: string): number {
  const field: Record<string, string> = {};
  for (const { type, value } of wallFormatter(zone).formatToParts(instant)) field[type] = value;
  const number = (name: string): number => Number(field[name]);
  const year = field.era === 'BC' ? 1 - number('year') : number('year');
  const date = new Date(0);
  date.setUTCFullYear(year, number('month') - 1, number('day'));
  date.setUTCHours(number('hour'), number('minute'), number('second'));
  return date.getTime() + (((instant % 1000) + 1000) % 1000);
}

/** No zone leaves an offset and comes back to it within this time. */
const STEADY_MS = 2 * 86_400_000;

/** {@link toWall} of many instants, in ascending order: the formatter, which is slow, is asked about few of them. */
export function toWalls(instants: readonly number[], zone: string): number[] {
  const walls = [...instants];
  const offset = (index: number): number => toWall(instants[index] ?? 0, zone) - (instants[index] ?? 0);
  const fill = (low: number, high: number, ofLow: number, ofHigh: number): void => {
    const isSteady = ofLow === ofHigh && (instants[high] ?? 0) - (instants[low] ?? 0) <= STEADY_MS;
    if (isSteady || high - low <= 1) {
      for (let index = low; index < high; index += 1) walls[index] = (instants[index] ?? 0) + ofLow;
      walls[high] = (instants[high] ?? 0) + ofHigh;
      return;
    }
    const middle = (low + high) >> 1;
    const ofMiddle = offset(middle);
    fill(low, middle, ofLow, ofMiddle);
    fill(middle, high, ofMiddle, ofHigh);
  };
  const last = instants.length - 1;
  if (last >= 0) fill(0, last, offset(0), offset(last));
  return walls;
}

/**
 * The instant at which the zone's clock shows this. A time that comes twice is its first occurrence; one that is
 * skipped is the same distance after the gap's beginning.
 */
export function fromWall(wall: number, zone: string): number {
  const offset = (instant: number): number => toWall(instant, zone) - instant;
  // The offsets before and after any change near by: no zone changes twice within two days.
  const before = wall - offset(wall - 86_400_000);
  const after = wall - offset(wall + 86_400_000);
  if (toWall(before, zone) === wall) return before;
  return toWall(after, zone) === wall ? after : before;
}

/** The server's rule: a name, and no offset, which some browsers take as well. */
export function isZone(name: string): boolean {
  if (name.length > 64 || !/^[A-Za-z][A-Za-z0-9_+\-/]*$/.test(name)) return false;
  try {
    wallFormatter(name);
    return true;
  } catch {
    return false;
  }
}

/** The zone of this computer. */
export function ownZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';
}

/** Every zone that can be chosen, and the given one even where the browser does not list it. */
export function zoneNames(given: string): string[] {
  return [...new Set([ownZone(), 'UTC', given, ...Intl.supportedValuesOf('timeZone')])];
}
