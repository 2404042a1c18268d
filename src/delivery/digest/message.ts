/** The mail of a weekly digest: the numbers of an app with their change, what moved most, and what fell silent, as text and as HTML. */
import { LEAST_WEIGHT, weightOf } from '../../base/chance.ts';
import type { DueDigest } from './digests.ts';

/** A type's events of the week, and of the week before. */
export interface WeekOfType {
  readonly typeId: string;
  readonly name: string;
  readonly total: number;
  readonly before: number;
}

export interface DigestContent {
  readonly digest: Pick<DueDigest, 'appId' | 'appName' | 'stopToken' | 'timezone'>;
  readonly publicUrl: string;
  /** The week, in milliseconds since 1970. */
  readonly from: number;
  readonly until: number;
  /** The week by the day. */
  readonly days: { readonly starts: readonly number[]; readonly all: readonly number[] };
  readonly types: readonly WeekOfType[];
  /** Events of the week before. */
  readonly before: number;
}

const MOST_SHOWN = 5;
/** Events of a week before a type that has none is called silent. */
const LEAST_BEFORE = 7;
const BAR_WIDTH = 220;

/** A mail without its address. `unsubscribe` is what a mail program posts to (RFC 8058). */
export interface DigestMail {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  readonly unsubscribe: string;
}

export function digestMail(content: DigestContent): DigestMail {
  const { digest, publicUrl, days, types, before } = content;
  const { appName, appId, stopToken } = digest;
  const total = days.all.reduce((sum, count) => sum + count, 0);
  const moved = types
    .map((type) => ({ ...type, weight: weightOf(type.total, type.before) }))
    .filter(({ weight, total: now }) => weight > LEAST_WEIGHT && now > 0)
    .toSorted((a, b) => b.weight - a.weight)
    .slice(0, MOST_SHOWN);
  const silent = types
    .filter(({ total: now, before: then }) => now === 0 && then >= LEAST_BEFORE)
    .toSorted((a, b) => b.before - a.before)
    .slice(0, MOST_SHOWN);
  const page = `${publicUrl}/apps/${encodeURIComponent(appId)}`;
  const range = `from=${iso(content.from)}&to=${iso(content.until)}&tz=${encodeURIComponent(digest.timezone)}`;
  const unsubscribe = `${publicUrl}/api/digests/${stopToken}/stop`;
  const shown = { ...content, total, moved, silent, link: `${page}?${range}`, unsubscribe };
  return {
    subject: `${appName}: ${number(total)} ${total === 1 ? 'event' : 'events'} last week${spelledChange(total, before, ', ')}`,
    text: textOf(shown),
    html: htmlOf(shown),
    unsubscribe,
  };
}

interface Shown extends DigestContent {
  readonly total: number;
  readonly moved: readonly WeekOfType[];
  readonly silent: readonly WeekOfType[];
  readonly link: string;
  readonly unsubscribe: string;
}

function textOf({ digest, days, total, before, moved, silent, link, unsubscribe }: Shown): string {
  const { appName, timezone } = digest;
  const rows = days.starts.map(
    (start, index) => `${dayOf(start, timezone)}  ${number(days.all[index] ?? 0)}`,
  );
  const sections = [
    `Last week in ${JSON.stringify(appName)}: ${number(total)} events${spelledChange(total, before, ', ')}; ${number(before)} in the week before.`,
    rows.join('\n'),
    moved.length > 0 &&
      `Moved most:\n${moved.map((type) => `  ${type.name}: ${number(type.total)}${spelledChange(type.total, type.before, ', ')}`).join('\n')}`,
    silent.length > 0 &&
      `Fell silent:\n${silent.map((type) => `  ${type.name}: none, ${number(type.before)} in the week before`).join('\n')}`,
    link,
    `Days are those of ${timezone}. Stop this mail: ${unsubscribe}`,
  ];
  return `${sections.filter((section) => section !== false).join('\n\n')}\n`;
}

/** Bars are cells with a width: programs that show no pictures of strangers show them. */
function htmlOf({ digest, days, total, before, moved, silent, link, unsubscribe }: Shown): string {
  const { appName, timezone } = digest;
  const highest = Math.max(1, ...days.all);
  const bars = days.starts.map((start, index) => {
    const count = days.all[index] ?? 0;
    const width = Math.round((count / highest) * BAR_WIDTH);
    return `<tr><td>${escaped(dayOf(start, timezone))}</td><td><div style="background:#0a6c80;height:12px;width:${width}px"></div></td><td align="right">${number(count)}</td></tr>`;
  });
  const list = (
    title: string,
    types: readonly WeekOfType[],
    textOfType: (type: WeekOfType) => string,
  ): string =>
    types.length === 0
      ? ''
      : `<h2 style="font-size:15px">${title}</h2><ul>${types.map((type) => `<li>${escaped(type.name)}: ${escaped(textOfType(type))}</li>`).join('')}</ul>`;
  return `<!doctype html><html lang="en"><body style="font-family:sans-serif;font-size:14px;color:#101b22">
<h1 style="font-size:18px">${escaped(appName)}</h1>
<p><b style="font-size:24px">${number(total)}</b> events last week${escaped(spelledChange(total, before, ', '))}; ${number(before)} in the week before.</p>
<table cellpadding="3" style="border-collapse:collapse;font-size:14px">${bars.join('')}</table>
${list('Moved most', moved, (type) => `${number(type.total)}${spelledChange(type.total, type.before, ', ')}`)}
${list('Fell silent', silent, (type) => `none, ${number(type.before)} in the week before`)}
<p><a href="${escaped(link)}">Open the week in the dashboard</a></p>
<p style="color:#54636d">Days are those of ${escaped(timezone)}. <a href="${escaped(unsubscribe)}">Stop this mail</a></p>
</body></html>
`;
}

/** Names are what applications send: nothing of them is markup. */
function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

function number(value: number): string {
  return value.toLocaleString('en-US');
}

function spelledChange(total: number, before: number, lead: string): string {
  if (total === before) return '';
  if (before === 0) return `${lead}new`;
  const percent = Math.round(((total - before) / before) * 100);
  return `${lead}${percent > 0 ? '+' : '-'}${number(Math.abs(percent))} %`;
}

function dayOf(at: number, timezone: string): string {
  return new Intl.DateTimeFormat('en-GB', {
    timeZone: timezone,
    weekday: 'short',
    day: '2-digit',
    month: 'short',
  }).format(at);
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
