/**
 * The mail of a weekly digest: the numbers of an app, or of the charts of a board, with their change, what moved most, and what fell
 * silent, as text and as HTML. The text says everything; the HTML does without its pictures.
 */
import { LEAST_WEIGHT, weightOf } from '../../base/chance.ts';
import { escaped, inkHtml, linkHtml, mailPage, pictureHtml, QUIET, SECTION, SMALL } from '../mail-html.ts';
import type { Picture } from '../picture.ts';
import type { DueDigest } from './digests.ts';
import type { ChartOfWeek, LineOfWeek, Unit, WeekNumbers } from './weeks.ts';

export interface DigestContent {
  readonly digest: Pick<DueDigest, 'appId' | 'appName' | 'boardId' | 'stopToken' | 'timezone'>;
  readonly publicUrl: string;
  readonly week: WeekNumbers;
}

const MOST_SHOWN = 5;
/** Events of a week before a line that has none is called silent. */
const LEAST_BEFORE = 7;

/** A mail without its address. `unsubscribe` is what a mail program posts to (RFC 8058). */
export interface DigestMail {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  /** Drawn when the mail is sent: their numbers take less room where it waits. */
  readonly pictures: readonly Picture[];
  readonly unsubscribe: string;
}

export function digestMail(content: DigestContent): DigestMail {
  const { digest, publicUrl, week } = content;
  const { appName, appId, boardId, stopToken, timezone } = digest;
  const lines = linesOf(week);
  const moved = lines
    .map((line) => ({ ...line, weight: weightOf(line.total, line.before) }))
    .filter(({ weight, total }) => weight > LEAST_WEIGHT && total > 0)
    .toSorted((a, b) => b.weight - a.weight)
    .slice(0, MOST_SHOWN);
  const silent = lines
    .filter(({ total, before }) => total === 0 && before >= LEAST_BEFORE)
    .toSorted((a, b) => b.before - a.before)
    .slice(0, MOST_SHOWN);
  const page = `${publicUrl}/apps/${encodeURIComponent(appId)}`;
  const range = new URLSearchParams({ from: iso(week.from), to: iso(week.until), tz: timezone });
  const shown: Shown = {
    ...content,
    ...{ moved, silent },
    pictures: week.charts.flatMap((chart, index) => pictureOf(chart, index)),
    link: boardId === null ? `${page}?${range}` : `${page}/boards?${range}&board=${boardId}`,
    linkOf: ({ search }) => `${page}?${range}&${search}`,
    unsubscribe: `${publicUrl}/api/digests/${stopToken}/stop`,
  };
  const [first] = week.charts;
  return {
    subject: `${week.boardName ?? appName}: ${first === undefined ? 'last week' : headline(first, week)}`,
    text: textOf(shown),
    html: htmlOf(shown),
    ...{ pictures: shown.pictures, unsubscribe: shown.unsubscribe },
  };
}

interface Shown extends DigestContent {
  readonly moved: readonly LineOfWeek[];
  readonly silent: readonly LineOfWeek[];
  readonly pictures: readonly Picture[];
  readonly link: string;
  readonly linkOf: (chart: ChartOfWeek) => string;
  readonly unsubscribe: string;
}

/** The lines of all charts by what a reader calls them, those of several charts once. */
function linesOf({ boardName, charts }: WeekNumbers): readonly LineOfWeek[] {
  const known = new Set<string>();
  return charts.flatMap(({ name: chart, lines }) =>
    lines
      .filter(({ key, total, before }) => {
        const same = `${key} ${total} ${before}`;
        return !known.has(same) && known.add(same);
      })
      .map((line) =>
        boardName === null ? line : { ...line, name: lines.length === 1 ? chart : `${chart}, ${line.name}` },
      ),
  );
}

/** `1,042 events last week, +5,384 %`. Of a board, that of its first chart. */
function headline(chart: ChartOfWeek, { boardName }: WeekNumbers): string {
  const named = boardName === null ? '' : `${chart.name} `;
  return `${named}${numberWithUnit(chart)} last week${changeOf(chart, ', ')}`;
}

function numberWithUnit({ total, unit, of, format }: ChartOfWeek): string {
  const text = numberText(total, unit, format);
  if (unit === 'measure') return `${of} ${text}`;
  return `${text} ${unitText({ unit, of, total })}`;
}

function pictureOf({ unit, days, daysBefore }: ChartOfWeek, index: number): readonly Picture[] {
  if (days.every((value) => value === null)) return [];
  const kind = unit === 'events' ? 'bars' : 'line';
  return [{ id: `chart-${index + 1}@tidemark`, kind, days, before: daysBefore }];
}

function textOf({ digest, week, moved, silent, link, unsubscribe }: Shown): string {
  const { appName, timezone } = digest;
  const { boardName, charts } = week;
  const sections = [
    boardName !== null &&
      `Last week on the board ${JSON.stringify(boardName)} of ${JSON.stringify(appName)}:`,
    boardName !== null && charts.length === 0 && NO_CHARTS,
    ...charts.map((chart) => {
      const lead = boardName === null ? `Last week in ${JSON.stringify(appName)}` : chart.name;
      if (chart.days.length === 0) return `${lead}: ${chart.problem}`;
      return [
        `${lead}: ${numberWithUnit(chart)}${changeOf(chart, ', ')}; ${beforeText(chart)}.`,
        ...(chart.problem === null ? [] : [chart.problem]),
        ...daysOf(chart, week, timezone).map(({ day, value }) => `  ${day}  ${value}`),
      ].join('\n');
    }),
    ...[listText('Moved most', moved, movedText), listText('Fell silent', silent, silentText)],
    link,
    `Last week is ${datesOf(week, timezone)}. Days are those of ${timezone}. Stop this mail: ${unsubscribe}`,
  ];
  return `${sections.filter((section) => section !== false).join('\n\n')}\n`;
}

const NO_CHARTS = 'It shows no view any more.';

function listText(
  title: string,
  lines: readonly LineOfWeek[],
  text: (line: LineOfWeek) => string,
): string | false {
  return lines.length > 0 && `${title}:\n${lines.map((line) => `  ${line.name}: ${text(line)}`).join('\n')}`;
}

const movedText = ({ total, before }: LineOfWeek): string =>
  `${number(total)}${changeOf({ total, before, unit: 'events' }, ', ')}`;
const silentText = ({ before }: LineOfWeek): string => `none, ${number(before)} in the week before`;

interface DayOfWeek {
  readonly day: string;
  readonly value: string;
  readonly before: string;
}

function daysOf(
  { days, daysBefore, unit, format }: ChartOfWeek,
  week: WeekNumbers,
  zone: string,
): DayOfWeek[] {
  if (days.length === 0) return [];
  return week.starts.map((start, index) => ({
    day: dayOf(start, zone),
    value: numberText(days[index] ?? null, unit, format),
    before: numberText(daysBefore[index] ?? null, unit, format),
  }));
}

function htmlOf(shown: Shown): string {
  const { digest, week, moved, silent, link, unsubscribe } = shown;
  const { appName, timezone } = digest;
  const { boardName, charts } = week;
  const of = boardName === null ? '' : `Board of ${escaped(appName)}. `;
  return mailPage(
    boardName ?? appName,
    `<p ${SMALL}>${of}${escaped(datesOf(week, timezone))}. ${inkHtml('week', 'last week')} ${inkHtml('before', 'the week before')}</p>
${boardName !== null && charts.length === 0 ? `<p>${NO_CHARTS}</p>` : ''}
${charts.map((chart, index) => chartHtml(shown, chart, index)).join('\n')}
${listHtml('Moved most', moved, movedText)}
${listHtml('Fell silent', silent, silentText)}
<p style="margin:24px 0 0">${linkHtml(link, 'Open the week in the dashboard')}</p>
<p ${SMALL}>Days are those of ${escaped(timezone)}. ${linkHtml(unsubscribe, 'Stop this mail')}</p>`,
  );
}

function chartHtml({ digest, week, pictures, linkOf }: Shown, chart: ChartOfWeek, index: number): string {
  const { boardName } = week;
  const days = daysOf(chart, week, digest.timezone);
  const picture = pictures.find(({ id }) => id.startsWith(`chart-${index + 1}@`));
  const width = `${100 / Math.max(1, days.length)}%`;
  const cells = days.map(
    ({ day, value, before }) =>
      `<td width="${width}" align="center" style="padding:4px 0 0"><span ${QUIET}>${escaped(day.slice(0, 3))}</span><br><b>${escaped(shortened(value))}</b><br><span ${QUIET}>${escaped(shortened(before))}</span></td>`,
  );
  const heading =
    boardName === null
      ? ''
      : `<h2 style="margin:0;font-size:16px">${linkHtml(linkOf(chart), escaped(chart.name))}</h2>`;
  const change = [changeOf(chart, ''), beforeText(chart)].filter((text) => text !== '').join(', ');
  const figure = `<p style="margin:0"><b style="font-size:26px">${escaped(numberText(chart.total, chart.unit, chart.format))}</b> ${escaped(unitText(chart))}<br><span ${QUIET}>${escaped(change)}</span></p>`;
  return `<div ${SECTION}>
${heading}${days.length === 0 ? '' : figure}
${chart.problem === null ? '' : `<p ${SMALL}>${escaped(chart.problem)}</p>`}
${picture === undefined ? '' : pictureHtml(picture.id, altText(chart, days))}
${days.length === 0 ? '' : `<table role="presentation" width="100%" cellspacing="0" cellpadding="0" style="table-layout:fixed;font-size:12px;line-height:1.4"><tr>${cells.join('')}</tr></table>`}
</div>`;
}

function altText({ name, unit, of }: ChartOfWeek, days: readonly DayOfWeek[]): string {
  const told = (values: readonly string[]): string =>
    days.map(({ day }, index) => `${day.slice(0, 3)} ${values[index]}`).join(', ');
  const what = unit === 'ratio' ? `share of the events that ${of}` : unit === 'events' ? 'events' : of;
  return `${name}, ${what} by day: ${told(days.map(({ value }) => value))}. In the week before: ${told(days.map(({ before }) => before))}.`;
}

function unitText({ unit, of, total }: Pick<ChartOfWeek, 'unit' | 'of' | 'total'>): string {
  if (unit === 'events') return total === 1 ? 'event' : 'events';
  return of;
}

function listHtml(
  title: string,
  lines: readonly LineOfWeek[],
  textOfLine: (line: LineOfWeek) => string,
): string {
  if (lines.length === 0) return '';
  const items = lines.map((line) => `<li>${escaped(line.name)}: ${escaped(textOfLine(line))}</li>`);
  return `<div ${SECTION}><h2 style="margin:0;font-size:16px">${title}</h2><ul style="margin:6px 0 0;padding:0 0 0 20px">${items.join('')}</ul></div>`;
}

function number(value: number): string {
  return value.toLocaleString('en-US');
}

/** A number as it is shown; a dash where there is none. */
function numberText(value: number | null, unit: Unit, format: ChartOfWeek['format']): string {
  if (value === null) return '–';
  if (unit === 'events') return number(value);
  if (unit === 'ratio') return `${Number((value * 100).toPrecision(3))} %`;
  const size = Math.abs(value);
  const decimals = format?.decimals ?? undefined;
  // Rounded to hundredths a tiny number would be none.
  const most = decimals ?? (size < 100 ? 2 : 0);
  const text =
    decimals === undefined && size < 0.01
      ? String(Number(value.toPrecision(3)))
      : value.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: most });
  return format?.unit == null ? text : `${text}\u00a0${format.unit}`;
}

function beforeText({ before, unit, format }: ChartOfWeek): string {
  return `${numberText(before, unit, format)} in the week before`;
}

const COMPACT = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });
/** What a seventh of a narrow screen holds. */
const MOST_CHARACTERS = 6;

/** A number of many digits as it fits into a cell: `1.2M`. Others stay as they are. */
function shortened(text: string): string {
  return text.length > MOST_CHARACTERS && /^-?[\d,.]+$/.test(text)
    ? COMPACT.format(Number(text.replaceAll(',', '')))
    : text;
}

type Changed = Pick<ChartOfWeek, 'total' | 'before' | 'unit'>;

/** A change in percent; of a ratio in points. Empty where there is none to tell. */
function changeOf({ total, before, unit }: Changed, lead: string): string {
  if (total === null || before === null || total === before) return '';
  const sign = `${lead}${total > before ? '+' : '-'}`;
  const change = Math.abs(total - before);
  if (unit === 'ratio') return `${sign}${Number((change * 100).toPrecision(2))} points`;
  // A percentage of a negative number says nothing.
  if (before > 0 && total >= 0) return `${sign}${number(Math.round((change / before) * 100))} %`;
  return unit === 'events' ? `${lead}new` : '';
}

function dayOf(at: number, timezone: string): string {
  return new Intl.DateTimeFormat('en-GB', {
    timeZone: timezone,
    weekday: 'short',
    day: '2-digit',
    month: 'short',
  }).format(at);
}

/** `Mon 16 Nov to Sun 22 Nov, the week before Mon 09 Nov to Sun 15 Nov` */
function datesOf({ before, from, until }: WeekNumbers, timezone: string): string {
  const days = (first: number, end: number): string =>
    `${dayOf(first, timezone)} to ${dayOf(end - 1, timezone)}`;
  return `${days(from, until)}, the week before ${days(before, from)}`;
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
