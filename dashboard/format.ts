/** Formats numbers and times in English, with the user's own conventions if the browser's language is English. */
import {
  DAY,
  HOUR,
  MINUTE,
  PERIODS,
  type Period,
  PRESETS,
  parseRange,
  type Range,
  UNIT_NAMES,
} from './range.ts';
import { ownZone, toWall } from './time-zone.ts';

const LOCALE = pickLocale(globalThis.navigator?.language ?? '');

/** The page is in English, so month names are too. */
function pickLocale(language: string): string {
  return /^en\b/.test(language) && language !== 'en' ? language : 'en-GB';
}

const plain = new Intl.NumberFormat(LOCALE);
/** Always American: other locales write a million as "m", which reads as minutes or meters. */
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });
const rough = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 3 });
const signed = [0, 1].map(
  (maximumFractionDigits) =>
    new Intl.NumberFormat(LOCALE, { maximumFractionDigits, signDisplay: 'exceptZero' }),
);

/** 12,345 */
export const count = (value: number): string => plain.format(value);
/** 12.3K */
export const compact = (value: number): string => short.format(value);
/** An average, with a useful number of digits. */
export function average(value: number): string {
  if (value > 0 && value < 0.01) return '<0.01';
  return value < 100 ? rough.format(value) : plain.format(Math.round(value));
}

/** With so many digits after the decimal point. */
export const fixed = (value: number, digits: number): string =>
  (value < 0 ? '−' : '') +
  Math.abs(value).toLocaleString(LOCALE, { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** In full while it has at most six digits: 12,345 or 1.2M. */
export const amount = (value: number): string => (value < 1e6 ? count(value) : compact(value));

/** A difference with its sign. */
export const difference = (value: number, text: (value: number) => string): string =>
  value === 0 ? '0' : `${value > 0 ? '+' : '−'}${text(Math.abs(value))}`;

/** A tenfold number says little more than that there was hardly any before. */
const MOST_PERCENT = 900;

/** How a number has changed, such as `+12%`; null where a percentage says nothing: of negative numbers, after nothing, or hardly any. */
export function change(value: number, before: number): string | null {
  if (before <= 0 || value < 0) return null;
  const percent = ((value - before) / before) * 100;
  const size = Math.abs(percent);
  if (size < 0.05) return '±0%';
  return size >= MOST_PERCENT ? null : `${signed[size < 10 ? 1 : 0]?.format(percent)}%`;
}

/** A percentage of fewer events says nothing: three more than one are 300 %. */
export const LEAST_COMPARED = 10;

/** How a number has changed, where a percentage says something. */
export function changeText(total: number, before: number): string {
  if (total === 0 && before === 0) return '';
  if (before === 0) return 'new';
  return (total === 0 || before < LEAST_COMPARED ? null : change(total, before)) ?? `from ${amount(before)}`;
}

/** Which part of the whole a number is: a negative one takes from it, and of less than nothing nothing is a part. */
export function share(part: number, all: number): string {
  if (part === 0 || all === 0 || (all < 0 && part > 0)) return '';
  const percent = Math.abs(part / all) * 100;
  const text = percent < 1 ? '<1%' : `${Math.round(percent)}%`;
  return part < 0 && all > 0 ? `−${text}` : text;
}

/** `1 event`, `2 events` */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** 1.2 MB */
export function byteSize(bytes: number): string {
  const power = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  return `${rough.format(bytes / 1000 ** power)} ${['B', 'kB', 'MB', 'GB', 'TB'][power]}`;
}

const dates = new Map<string, Intl.DateTimeFormat>();

function formatter(zone: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = zone + JSON.stringify(options);
  let found = dates.get(key);
  if (found === undefined) {
    found = new Intl.DateTimeFormat(LOCALE, { timeZone: zone, hourCycle: 'h23', ...options });
    dates.set(key, found);
  }
  return found;
}

const DATE = { day: 'numeric', month: 'short', year: 'numeric' } as const;
const TIME = { hour: '2-digit', minute: '2-digit' } as const;
const SECONDS = { ...TIME, second: '2-digit' } as const;

/** 20 Nov 2026 */
export const date = (instant: number, zone: string): string => formatter(zone, DATE).format(instant);
/** The date of a time of an answer, where this computer is. */
export const ownDate = (at: string): string => date(Date.parse(at), ownZone());
/** 20 Nov 2026, 14:00 */
export const dateTime = (instant: number, zone: string): string =>
  formatter(zone, { ...DATE, ...TIME }).format(instant);
/** The instants of a sentence of the server, by a clock. */
export const localTimes = (text: string, zone: string): string =>
  text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (instant) => dateTime(Date.parse(instant), zone));
/** 20 Nov 2026, 14:00:07 GMT+1 */
export const exact = (instant: number, zone: string): string =>
  formatter(zone, { ...DATE, ...SECONDS, timeZoneName: 'short' }).format(instant);
/** 20 Nov 2026, 14:00:07.123 GMT+1 */
export const precise = (instant: number, zone: string): string =>
  formatter(zone, { ...DATE, ...SECONDS, fractionalSecondDigits: 3, timeZoneName: 'short' }).format(instant);
/** 20 Nov */
export const dayMonth = (instant: number, zone: string): string =>
  formatter(zone, { day: 'numeric', month: 'short' }).format(instant);
/** 14:00 */
export const clock = (instant: number, zone: string): string => formatter(zone, TIME).format(instant);
/** 14:00:07.123 */
export const preciseClock = (instant: number, zone: string): string =>
  formatter(zone, { ...SECONDS, fractionalSecondDigits: 3 }).format(instant);
/** Nov */
export const month = (instant: number, zone: string): string =>
  formatter(zone, { month: 'short' }).format(instant);
/** November 2026 */
export const monthOfYear = (instant: number, zone: string): string =>
  formatter(zone, { month: 'long', year: 'numeric' }).format(instant);
/** 2026 */
export const year = (instant: number, zone: string): string =>
  formatter(zone, { year: 'numeric' }).format(instant);
/** GMT+1 */
function offset(instant: number, zone: string): string {
  const parts = formatter(zone, { timeZoneName: 'shortOffset' }).formatToParts(instant);
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? zone;
}

/** The bucket from `start` to `end` (exclusive): `Fri 20 Nov 2026, 14:00 – 15:00 GMT+1`, or its days, or its month. */
export function bucketSpan(start: number, end: number, bucket: string, zone: string): string {
  const last = end - 1;
  if (bucket === '1mo') return monthOfYear(start, zone);
  const day = formatter(zone, { weekday: 'short', ...DATE });
  if (bucket === '1d') return day.format(start);
  if (bucket === '7d') return formatter(zone, DATE).formatRange(start, last);
  // Both hours named 02:00 of an autumn night differ by their offset alone.
  const [before, after] = [offset(start, zone), offset(end, zone)];
  const from = before === after ? clock(start, zone) : `${clock(start, zone)} ${before}`;
  return `${day.format(start)}, ${from} – ${clock(end, zone)} ${after}`;
}

/** The spans named last: a live page names the same ones again and again, and each takes half a millisecond. */
const spans = new Map<string, string>();
const MOST_SPANS = 100;

/** 20 Nov 2026, 14:00 – 18:00 */
export function spanText(from: number, to: number, zone: string): string {
  const key = `${from} ${to} ${zone}`;
  const known = spans.get(key);
  if (known !== undefined) return known;
  if (spans.size >= MOST_SPANS) spans.clear();
  const text = formatter(zone, { ...DATE, ...TIME }).formatRange(from, to);
  spans.set(key, text);
  return text;
}

const PERIOD_NAMES: Record<Period, string> = {
  today: 'Today',
  yesterday: 'Yesterday',
  week: 'This week',
  month: 'This month',
  quarter: 'This quarter',
  year: 'This year',
  lastweek: 'Last week',
  lastmonth: 'Last month',
  lastquarter: 'Last quarter',
  lastyear: 'Last year',
};

/** What a range is called on its button. */
export function rangeLabel(range: Range, zone: string): string {
  if (range.kind === 'all') return 'All time';
  if (range.kind === 'calendar') return PERIOD_NAMES[range.period];
  if (range.kind === 'since') return `${dateTime(range.from, zone)} to now`;
  if (range.kind === 'between') return betweenText(range, zone);
  const unit = UNIT_NAMES[range.unit];
  return range.amount === 1 ? `Past ${unit}` : `Last ${range.amount} ${unit}s`;
}

/** Whole days have no times: `1 – 2 Jan 2020`. */
export function betweenText(
  { from, to }: { readonly from: number; readonly to: number },
  zone: string,
): string {
  const isWhole = [from, to].every((end) => toWall(end, zone) % DAY === 0);
  return isWhole ? formatter(zone, DATE).formatRange(from, to - 1) : spanText(from, to, zone);
}

/** What addresses call a range, or that each view has its own. */
export function rangeName(text: string, zone: string): string {
  const range = parseRange(text);
  return range === null ? 'The views’ ranges' : rangeLabel(range, zone);
}

export const presetLabels = (): [string, string][] => [
  ...PERIODS.map((period): [string, string] => [period, PERIOD_NAMES[period]]),
  ...PRESETS.map((text): [string, string] => [
    text,
    text === 'all' ? 'All' : text.replace('m', ' min').replace(/(\d)([hdy])$/, '$1 $2'),
  ]),
];

const relative = new Intl.RelativeTimeFormat(LOCALE, { numeric: 'auto' });

/** 5 minutes ago */
export function ago(instant: number, now: number): string {
  const ms = instant - now;
  const size = Math.abs(ms);
  if (size < MINUTE) return 'just now';
  if (size < HOUR) return relative.format(Math.round(ms / MINUTE), 'minute');
  if (size < 2 * DAY) return relative.format(Math.round(ms / HOUR), 'hour');
  if (size < 60 * DAY) return relative.format(Math.round(ms / DAY), 'day');
  if (size < 730 * DAY) return relative.format(Math.round(ms / (30 * DAY)), 'month');
  return relative.format(Math.round(ms / (365 * DAY)), 'year');
}

/** `hour`, for "per hour". */
export function bucketName(bucket: string): string {
  const [, amount = '', unit = ''] = /^(\d+)([a-z]+)$/.exec(bucket === '7d' ? '1w' : bucket) ?? [];
  const name = { m: 'minute', h: 'hour', d: 'day', w: 'week', mo: 'month' }[unit];
  if (name === undefined) return bucket;
  return amount === '1' ? name : `${amount} ${name}s`;
}
