/** Ranges as they are typed: `14 Nov 09:00 to now`, `3 hours`, `yesterday`, `2026-11-14 to 2026-11-16`. */
import { addMonths, DAY, HOUR, MINUTE, PERIODS, parseRange, type Range } from '../../base/ranges.ts';
import { instantOf, localOf } from '../../storage/storage.ts';

const MONTHS = [
  ...['january', 'february', 'march', 'april', 'may', 'june'],
  ...['july', 'august', 'sept', 'october', 'november', 'december'],
];
const UNITS: Readonly<Record<string, string>> = {
  ...{ m: 'm', min: 'm', minute: 'm', h: 'h', hr: 'h', hour: 'h', d: 'd', day: 'd' },
  ...{ w: 'w', week: 'w', mo: 'mo', month: 'mo', y: 'y', yr: 'y', year: 'y' },
};

const wordsOf = (text: string): string[] =>
  text
    .trim()
    .toLowerCase()
    .replaceAll(',', ' ')
    .replaceAll('–', ' to ')
    .replaceAll(' - ', ' to ')
    .replaceAll(' until ', ' to ')
    .split(' ')
    .filter((word) => word !== '');

/** @returns null where it cannot be read, or ends before it begins */
export function parseTyped(text: string, now: number, zone: string): Range | null {
  const plain = wordsOf(text);
  const middle = plain.indexOf('to');
  if (middle < 0) return named(plain) ?? fromOne(plain, now, zone);
  const start = parseWhen(plain.slice(0, middle), now, zone);
  const last = plain.slice(middle + 1);
  if (start === null) return null;
  if (last.length === 1 && last[0] === 'now')
    return start.from < now ? { kind: 'since', from: start.from } : null;
  // A time alone is one of the day on which the range begins, and a day without a year is the next one after it.
  const end = parseWhen(last, now, zone, start.day);
  return end !== null && start.from < end.to ? { kind: 'between', from: start.from, to: end.to } : null;
}

/** An instant, such as `14 Nov 09:00`, or two with `to` between them. @returns null where it cannot be read */
export function parseInstants(
  text: string,
  now: number,
  zone: string,
): { readonly from: number; readonly until: number | null } | null {
  const words = wordsOf(text);
  const middle = words.indexOf('to');
  if (middle < 0) {
    const when = words.length === 1 && words[0] === 'now' ? { from: now } : parseWhen(words, now, zone);
    return when && { from: when.from, until: null };
  }
  const range = parseTyped(text, now, zone);
  if (range?.kind === 'since') return { from: range.from, until: now };
  return range?.kind === 'between' ? { from: range.from, until: range.to } : null;
}

/** `today`, `this week`, `last month` of the calendar, `all`, `past month`, `last 3 hours`, `24h`, `-3h` */
function named(words: readonly string[]): Range | null {
  const [first = ''] = words;
  const name = words.filter((word) => !['last', 'past', 'this', 'previous', 'time'].includes(word)).join('');
  const own = ['last', 'previous'].includes(first) ? `last${name}` : name;
  if (own === 'all' || (first !== 'past' && PERIODS.some((period) => period === own))) return parseRange(own);
  const [, amount = '', unit = ''] = /^-?(\d{0,5})([a-z]+)$/.exec(name) ?? [];
  const found = UNITS[unit] ?? (unit.endsWith('s') ? UNITS[unit.slice(0, -1)] : undefined);
  return found === undefined || (amount === '' && words.length < 2)
    ? null
    : parseRange(`${amount || 1}${found}`);
}

/** A day alone is the whole day; a time is the beginning of what lasts until now. */
function fromOne(words: readonly string[], now: number, zone: string): Range | null {
  const when = parseWhen(words, now, zone);
  if (when === null || when.from >= now) return null;
  return when.isDay ? { kind: 'between', from: when.from, to: when.to } : { kind: 'since', from: when.from };
}

interface When {
  readonly from: number;
  /** Where it ends if it is the end of a range: a day is over with its midnight. */
  readonly to: number;
  readonly isDay: boolean;
  /** The day's beginning on the wall clock. */
  readonly day: number;
}

/** Years among which one has a 29 February, around a century without one, too. */
const LEAP_YEARS = 9;

interface Parts {
  year?: number;
  month?: number;
  date?: number;
  /** Days before today. */
  ago?: number;
  time?: number;
}

function parseWhen(words: readonly string[], now: number, zone: string, sameDay?: number): When | null {
  const parts: Parts = {};
  if (words.length === 0 || !words.every((word) => readWord(word, parts))) return null;
  const wallNow = localOf(zone, now);
  const today = Math.floor(wallNow / DAY) * DAY;
  const day = dayOf(parts, { today, sameDay, wallNow });
  if (day === null) return null;
  const { time, date, month, ago } = parts;
  const at = instantOf(zone, day + (time ?? 0));
  const isPeriod = date === undefined && ago === undefined && time === undefined;
  const after = isPeriod ? addMonths(day, month === undefined ? 12 : 1) : day + DAY;
  return {
    from: at,
    to: time === undefined ? instantOf(zone, after) : at,
    isDay: time === undefined,
    day,
  };
}

function dayOf(
  { year, month, date, ago, time }: Parts,
  {
    today,
    sameDay,
    wallNow,
  }: { readonly today: number; readonly sameDay: number | undefined; readonly wallNow: number },
): number | null {
  if (ago !== undefined) return today - ago * DAY;
  if (month === undefined && date === undefined) {
    if (time === undefined) return year === undefined ? null : Date.UTC(year, 0);
    return year === undefined ? (sameDay ?? today) : null;
  }
  if (month === undefined || (date === undefined && time !== undefined)) return null;
  const inYear = (of: number): number | null => {
    const day = Date.UTC(of, month, date ?? 1);
    return new Date(day).getUTCMonth() === month ? day : null;
  };
  if (year !== undefined) return inYear(year);
  const thisYear = new Date(wallNow).getUTCFullYear();
  const years = (from: number, step: 1 | -1): (number | null)[] =>
    Array.from({ length: LEAP_YEARS }, (_, n) => inYear(from + step * n));
  // Without a year it is the last such day; at the end of a range the first one that is not before its beginning.
  if (sameDay === undefined) return years(thisYear, -1).find((day) => day !== null && day <= wallNow) ?? null;
  const begun = new Date(sameDay).getUTCFullYear();
  const day = years(begun, 1).find((one) => one !== null && one >= sameDay) ?? null;
  return day !== null && day > wallNow && new Date(day).getUTCFullYear() > begun ? null : day;
}

/** Applies one word. @returns false if it is not understood */
function readWord(word: string, parts: Parts): boolean {
  const [, isoYear, isoMonth, isoDate, rest] = /^(\d{4})-(\d\d)(?:-(\d\d)(?:t(.+))?)?$/.exec(word) ?? [];
  if (isoYear !== undefined) {
    Object.assign(parts, { year: Number(isoYear), month: Number(isoMonth) - 1 });
    if (isoDate !== undefined) parts.date = Number(isoDate);
    return rest === undefined || readTime(rest, parts);
  }
  const [, dottedDate, dottedMonth = '', dottedYear = ''] =
    /^(\d{1,2})\.(\d{1,2})\.(\d{4})?$/.exec(word) ?? [];
  if (dottedDate !== undefined) {
    Object.assign(parts, { date: Number(dottedDate), month: Number(dottedMonth) - 1 });
    if (dottedYear !== '') parts.year = Number(dottedYear);
    return Number(dottedMonth) >= 1 && Number(dottedMonth) <= 12;
  }
  if (word === 'today' || word === 'yesterday') {
    parts.ago = word === 'today' ? 0 : 1;
    return true;
  }
  const month =
    word.length < 3
      ? -1
      : MONTHS.findIndex((name) => name.startsWith(word) || (name === 'sept' && word === 'september'));
  if (month >= 0) {
    parts.month = month;
    return true;
  }
  const [, number] = /^(\d{1,4})(?:st|nd|rd|th|\.)?$/.exec(word) ?? [];
  if (number === undefined) return readTime(word, parts);
  if (number.length === 4) parts.year = Number(number);
  else parts.date = Number(number);
  return true;
}

/** `09:00`, `9:00:30`, `9am`, or the `pm` after a time */
function readTime(word: string, parts: Parts): boolean {
  if (word === 'am' || word === 'pm') {
    if (parts.time === undefined) return false;
    parts.time = (parts.time % (12 * HOUR)) + (word === 'pm' ? 12 * HOUR : 0);
    return true;
  }
  const [, hours, minutes, seconds = '0', half] =
    /^(\d{1,2})(?::(\d\d))?(?::(\d\d))?(am|pm)?$/.exec(word) ?? [];
  if (hours === undefined || (minutes === undefined && half === undefined)) return false;
  if (Number(hours) > 24 || Number(minutes ?? 0) > 59) return false;
  parts.time = Number(hours) * HOUR + Number(minutes ?? 0) * MINUTE + Number(seconds) * 1_000;
  return half === undefined || readTime(half, parts);
}
