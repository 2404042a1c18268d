/** Ranges as they are typed: `14 Nov 09:00 to now`, `3 hours`, `yesterday`, `2026-11-14 to 2026-11-16`. */
import {
  addMonths,
  DAY,
  HOUR,
  MINUTE,
  PERIODS,
  parseRange,
  type Range,
  UNIT_MS,
  type Unit,
} from '../../base/ranges.ts';
import { instantOf, localOf } from '../../storage/counts/timezone.ts';

const MONTHS = [
  ...['january', 'february', 'march', 'april', 'may', 'june'],
  ...['july', 'august', 'sept', 'october', 'november', 'december'],
];
const UNITS: Readonly<Record<string, string>> = {
  ...{ m: 'm', min: 'm', minute: 'm', h: 'h', hr: 'h', hour: 'h', d: 'd', day: 'd' },
  ...{ w: 'w', week: 'w', mo: 'mo', month: 'mo', y: 'y', yr: 'y', year: 'y' },
};

const WEEKDAYS = ['sunday', 'monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday'];

/** What is said in other words, and the words that are read. */
const OTHER_WORDS: readonly (readonly [RegExp, string])[] = [
  [/(\d) (?=[ap]m\b)/g, '$1'],
  [/^(?:since|from) (?!.* to )(.+)$/, '$1 to now'],
  [/^between (.+) and /, '$1 to '],
  [/^(?:since|from) /, ''],
  [/^(week|month|quarter|year)(?: to date| so far)$/, 'this $1'],
  [/^mtd$/, 'this month'],
  [/^qtd$/, 'this quarter'],
  [/^ytd$/, 'this year'],
  [/^(?:the )?day before yesterday$/, '2 days ago'],
  [/(^| )(?:week|kw|cw) (\d\d?)(?= |$)/g, '$1w$2'],
  [/(\d(?:st|nd|rd|th)?) of (?=[a-z])/g, '$1 '],
  [/(^| )(\d{1,2})-([a-z]{3,9})-(\d{4})(?= |$)/g, '$1$2 $3 $4'],
  // Grafana's: only its moving form, as `now-1d/d` is another one.
  [/^now ?- ?(\d+ ?[a-z]+)(?: to now)?$/, 'last $1'],
  [/^(\d+ ?[a-z]+) ago to now$/, 'last $1'],
  // Two days of a month or two times, such as `14-16 Nov`, `14.-16. Nov` and `9:00-17:00`.
  [/(^| )(\d{1,2}(?:\.|:\d\d)?(?:am|pm)?)-(\d{1,2}(?:\.|:\d\d)?(?:am|pm)?)(?= |$)/, '$1$2 to $3'],
];

const splitWords = (text: string): string[] => text.split(' ').filter((word) => word !== '');

const wordsOf = (text: string): string[] => {
  const plain = text
    .toLowerCase()
    .replaceAll(/[,\s]/g, ' ')
    .replaceAll(/–|—| - | (?:until|till|through) /g, ' to ');
  const said = splitWords(plain).join(' ');
  return splitWords(OTHER_WORDS.reduce((known, [other, read]) => known.replace(other, read), said));
};

/** @returns null where it cannot be read, or ends before it begins */
export function parseTyped(text: string, now: number, zone: string): Range | null {
  const plain = wordsOf(text);
  const middle = plain.indexOf('to');
  if (middle < 0) return named(plain) ?? fromOne(plain, now, zone);
  const first = partsIn(plain.slice(0, middle));
  const last = plain.slice(middle + 1);
  if (last.length === 1 && last[0] === 'now') {
    const start = whenOf(first, now, zone);
    return start !== null && start.from < now ? { kind: 'since', from: start.from } : null;
  }
  const until = partsIn(last);
  if (first === null || until === null) return null;
  // `14 to 16 Nov`, `Nov 14 to 16`: one has the month of both. A year at the end is that of the beginning, or the one after it.
  const isDate = ({ date, month }: Parts): boolean => date !== undefined && month === undefined;
  if (isDate(first)) borrow(first, until);
  else if (isDate(until)) borrow(until, first);
  const lastYear = first.month !== undefined && first.year === undefined ? until.year : undefined;
  for (const year of lastYear === undefined ? [first.year] : [lastYear, lastYear - 1]) {
    const start = whenOf(year === undefined ? first : { ...first, year }, now, zone);
    // A time alone is one of the day on which the range begins, and a day without a year is the next one after it.
    const end = start && whenOf(until, now, zone, start.day);
    if (start && end && start.from < end.to) return { kind: 'between', from: start.from, to: end.to };
  }
  return null;
}

function borrow(day: Parts, { month, year }: Parts): void {
  if (month !== undefined) day.month = month;
  if (year !== undefined) day.year = year;
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
    const when = words.length === 1 && words[0] === 'now' ? { from: now } : whenOf(partsIn(words), now, zone);
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
  const when = whenOf(partsIn(words), now, zone);
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
  /** How many months it is, where it is not one. */
  months?: number;
  /** By ISO 8601, of the year. */
  week?: number;
  date?: number;
  /** Days before today. */
  ago?: number;
  /** Sunday is 0. */
  weekday?: number;
  /** Whether today is no such weekday. */
  isBefore?: boolean;
  time?: number;
  /** Milliseconds before now. */
  elapsed?: number;
  instant?: number;
}

/** @returns null where a word is not understood */
function partsIn(words: readonly string[]): Parts | null {
  const parts: Parts = {};
  const [, amount, unit = ''] = /^(\d{1,4})([a-z]+?)s?ago$/.exec(words.join('')) ?? [];
  const [milliseconds, known] = [UNIT_MS[UNITS[unit] as Unit], UNITS[unit]];
  if (amount !== undefined) {
    if (known === 'm' || known === 'h') return { elapsed: Number(amount) * milliseconds };
    return known === 'd' || known === 'w' ? { ago: (Number(amount) * milliseconds) / DAY } : null;
  }
  return words.length > 0 && words.every((word) => readWord(word, parts)) ? parts : null;
}

function whenOf(parts: Parts | null, now: number, zone: string, sameDay?: number): When | null {
  if (parts === null) return null;
  const instant = parts.instant ?? (parts.elapsed === undefined ? undefined : now - parts.elapsed);
  if (instant !== undefined) {
    const day = Math.floor(localOf(zone, instant) / DAY) * DAY;
    return Object.keys(parts).length === 1 ? { from: instant, to: instant, isDay: false, day } : null;
  }
  const wallNow = localOf(zone, now);
  const today = Math.floor(wallNow / DAY) * DAY;
  const day = dayOf(parts, { today, sameDay, wallNow });
  if (day === null) return null;
  const { time, date, month, months = 1, week, ago, weekday } = parts;
  const at = instantOf(zone, day + (time ?? 0));
  const isPeriod = [date, ago, weekday, time].every((one) => one === undefined);
  const afterPeriod = week === undefined ? addMonths(day, month === undefined ? 12 : months) : day + WEEK;
  const after = isPeriod ? afterPeriod : day + DAY;
  return {
    from: at,
    to: time === undefined ? instantOf(zone, after) : at,
    isDay: time === undefined,
    day,
  };
}

const WEEK = 7 * DAY;

const daysSinceMonday = (day: number): number => (new Date(day).getUTCDay() + 6) % 7;

/** The Monday of a week of a year (ISO 8601: the first week has 4 January); null where the year has no such week. */
function mondayOf(year: number, week: number): number | null {
  const first = (of: number): number => Date.UTC(of, 0, 4) - daysSinceMonday(Date.UTC(of, 0, 4)) * DAY;
  const monday = first(year) + (week - 1) * WEEK;
  return week > 0 && monday < first(year + 1) ? monday : null;
}

function dayOf(
  { year, month, date, week, ago, weekday, isBefore = false, time }: Parts,
  {
    today,
    sameDay,
    wallNow,
  }: { readonly today: number; readonly sameDay: number | undefined; readonly wallNow: number },
): number | null {
  if (ago !== undefined) return today - ago * DAY;
  if (weekday !== undefined) {
    const days = (new Date(today).getUTCDay() - weekday + 7) % 7;
    const isGiven = [year, month, date].some((one) => one !== undefined);
    return isGiven ? null : today - (days === 0 && isBefore ? 7 : days) * DAY;
  }
  if (week !== undefined) {
    if ([month, date, time].some((one) => one !== undefined)) return null;
    const near = sameDay ?? wallNow;
    // A week is of the year that its Thursday is in.
    const of = year ?? new Date(near + (3 - daysSinceMonday(near)) * DAY).getUTCFullYear();
    const monday = mondayOf(of, week);
    const isPast = monday !== null && monday <= wallNow;
    return isPast || year !== undefined || sameDay !== undefined ? monday : mondayOf(of - 1, week);
  }
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

/** An instant as answers and payloads have it, in lower case. */
const ISO_INSTANT = /^\d{4}-\d\d-\d\dt\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:z|[+-]\d\d:\d\d)$/;

/** Applies one word. @returns false if it is not understood */
function readWord(word: string, parts: Parts): boolean {
  if (ISO_INSTANT.test(word)) {
    parts.instant = Date.parse(word.toUpperCase());
    return !Number.isNaN(parts.instant);
  }
  if (/^\d{10}(?:\d{3})?$/.test(word)) {
    parts.instant = Number(word.padEnd(13, '0'));
    return true;
  }
  const [, isoYear, isoMonth, isoDate, rest] =
    /^(\d{4})[-/.](\d\d?)(?:[-/.](\d\d?)(?:t(.+))?)?$/.exec(word) ?? [];
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
  const [, weekYear, week] = /^(?:(\d{4})-?)?w(\d\d?)$/.exec(word) ?? [];
  if (week !== undefined) {
    parts.week = Number(week);
    if (weekYear !== undefined) parts.year = Number(weekYear);
    return true;
  }
  const [, quarter] = /^q([1-4])$/.exec(word) ?? [];
  if (quarter !== undefined) {
    Object.assign(parts, { month: 3 * Number(quarter) - 3, months: 3 });
    return true;
  }
  if (word === 'last') {
    parts.isBefore = true;
    return true;
  }
  const weekday = word.length < 3 ? -1 : WEEKDAYS.findIndex((name) => name.startsWith(word));
  if (weekday >= 0) {
    parts.weekday = weekday;
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
    /^(\d{1,2})(?::(\d\d))?(?::(\d\d(?:\.\d{1,3})?))?(am|pm)?$/.exec(word) ?? [];
  if (hours === undefined || (minutes === undefined && half === undefined)) return false;
  parts.time = Number(hours) * HOUR + Number(minutes ?? 0) * MINUTE + Math.round(Number(seconds) * 1_000);
  if (parts.time > DAY || Number(minutes ?? 0) > 59 || Number(seconds) >= 60) return false;
  return half === undefined || readTime(half, parts);
}
