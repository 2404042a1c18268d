/**
 * What is sent of the transitions of alerts: to webhooks, by mail, and in the form that Alertmanager takes. A message waits as what it
 * says; it gets its body when it is sent.
 */
import { spellPath } from '../../base/path-text.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/time-units.ts';
import type { WebhookFormat } from '../../base/webhook-formats.ts';
import { chatBody, type Note } from '../chat.ts';
import { escaped, inkHtml, linkHtml, mailPage, pictureHtml, QUIET, SMALL } from '../mail-html.ts';
import type { CurvePicture } from '../picture.ts';
import type { ActiveRule, AlertRule } from './alert-rules.ts';
import type { Transition } from './judge.ts';
import { isRuleProblem, parseRule, type Rule, ruleOfSeries, spellDuration } from './rule.ts';

export interface Said extends Omit<Transition, 'of'> {
  readonly id: string;
  /** When it began to fire. */
  readonly since: number;
  /** What was seen then, for a correction. */
  readonly earlierValue: number | null;
  /** The message that it resolves or corrects. */
  readonly of: string | null;
}

export type Channel = 'webhook' | 'mail' | 'alertmanager';

/** At least one. */
type SomeSaid = readonly [Said, ...Said[]];

/** A message that is to be sent. */
export interface Waiting {
  readonly channel: Channel;
  readonly target: string;
  readonly said: SomeSaid;
}

/** How the parts of an app are called that messages name. */
export interface Names {
  /** Public ids of types by their names. */
  readonly types: Readonly<Record<string, string>>;
  /** What the numbers of fields are of, by their paths as JSON. */
  readonly units: Readonly<Record<string, string>>;
  /** Digits after the decimal point that they are shown with. Absent in messages of the release before. */
  readonly decimals?: Readonly<Record<string, number>>;
}

/** A message as it waits, in JSON. */
interface Stored {
  readonly alertId: string;
  readonly name: string;
  /** JSON, as it was typed. */
  readonly rule: string;
  /** Time zone of the times in mails. Absent in messages of the release before. */
  readonly timezone?: string;
  readonly app: ActiveRule['app'];
  readonly names?: Names;
  /** When it was made. */
  readonly at: number;
  readonly said: SomeSaid;
}

interface Message extends Stored {
  readonly parsed: Rule;
  readonly publicUrl: string;
  readonly trail: Trail | null;
}

/** What a rule watched before a transition, as a mail shows it. */
export interface Trail extends Omit<CurvePicture, 'id' | 'kind'> {
  readonly from: number;
  readonly to: number;
}

/** Transitions of one kind and round that are a webhook message each. */
const MOST_APART = 20;
/** Transitions that one message to a chat tool names. */
const MOST_IN_NOTE = 10;
/** Transitions that one mail names. */
const MOST_IN_MAIL = 50;
/** Alerts of one request to Alertmanager. */
const MOST_IN_REQUEST = 500;
/** An alert that is not sent again by then has ended for Alertmanager. */
const ENDS_AFTER_MS = 15 * MINUTE_MS;
/** Windows before a transition that a mail shows. */
const WINDOWS_SHOWN = 24;
const LONGEST_SHOWN_MS = 28 * DAY_MS;
const TRAIL_ID = 'trail@tidemark';
/** How much around a firing the page shows. */
const SHOWN_AROUND_MS = DAY_MS / 4;

/** The messages of some transitions of a rule. */
export function messagesOf(
  { webhooks, emails, alertmanager }: Pick<AlertRule, 'webhooks' | 'emails' | 'alertmanager'>,
  said: readonly Said[],
): readonly Waiting[] {
  const to = (channel: Channel, targets: readonly string[], parts: readonly SomeSaid[]): readonly Waiting[] =>
    targets.flatMap((target) => parts.map((part) => ({ channel, target, said: part })));
  return [
    ...to('webhook', webhooks, bundled(said)),
    ...to('mail', emails, inParts(said, said.length)),
    ...to('alertmanager', alertmanager === null ? [] : [alertmanager], inParts(said, MOST_IN_REQUEST)),
  ];
}

/** A message as it is stored. @param at when it is made */
export function storedMessage(
  { alertId, name, rule, timezone, app }: ActiveRule,
  said: SomeSaid,
  at: number,
  names: Names,
): string {
  return JSON.stringify({ alertId, name, rule, timezone, app, names, at, said } satisfies Stored);
}

const BODIES: Readonly<Record<Channel, (message: Message) => object>> = {
  webhook: webhookBody,
  mail: mailBody,
  alertmanager: alertmanagerBody,
};

/** What the rule of a stored message watched before its first transition: in the past that a mail shows. */
export interface Watched {
  readonly rule: Rule;
  readonly timezone: string;
  readonly from: number;
  readonly until: number;
}

/** @returns null where its rule is not accepted any more */
export function watchedBy(text: string): Watched | null {
  const { rule, timezone = 'UTC', said } = JSON.parse(text) as Stored; // Only storedMessage() writes them.
  const parsed = parseRule(rule);
  if (isRuleProblem(parsed)) return null;
  const [{ at, since, series }] = said;
  const shownMs = Math.min(Math.max(WINDOWS_SHOWN * parsed.windowMs, HOUR_MS), LONGEST_SHOWN_MS);
  const first = Math.min(at - shownMs, since - parsed.windowMs);
  const from = Math.max(first, at - LONGEST_SHOWN_MS);
  return { rule: ruleOfSeries(parsed, series), timezone, from, until: at };
}

/** The webhook that a message is for. */
export interface Hook {
  readonly url: string;
  readonly format: WebhookFormat;
}

/**
 * The body of a stored message.
 * @param hook  of a message to a webhook; null: it is gone, or the message is for others
 * @param trail what a mail shows; null: nothing
 * @returns null where its rule is not accepted any more
 */
export function bodyOf(
  channel: Channel,
  text: string,
  publicUrl: string,
  { hook = null, trail = null }: { readonly hook?: Hook | null; readonly trail?: Trail | null } = {},
): string | null {
  const stored = JSON.parse(text) as Stored; // Only storedMessage() writes them.
  const parsed = parseRule(stored.rule);
  if (isRuleProblem(parsed)) return null;
  const message = { ...stored, parsed, publicUrl, trail };
  return hook === null || hook.format === 'standard'
    ? JSON.stringify(BODIES[channel](message))
    : chatBody(hook.format, noteOf(message), hook.url);
}

/** The threshold that a value is compared with: of `unusual` the end that it passed. */
export function thresholdOf(rule: Rule, { value, limits }: Pick<Said, 'value' | 'limits'>): number | null {
  if (rule.kind === 'absent') return 1;
  if (rule.kind !== 'unusual') return rule.threshold;
  if (limits === null || value === null) return null;
  return value >= limits.expected ? limits.high : limits.low;
}

/** Few transitions are a message each; many of one kind are one, as more than that nobody reads apart. */
function bundled(said: readonly Said[]): readonly SomeSaid[] {
  return (['firing', 'resolved', 'corrected'] as const).flatMap((kind) => {
    const own = said.filter((one) => one.kind === kind);
    return inParts(own, own.length > MOST_APART ? own.length : 1);
  });
}

function inParts(said: readonly Said[], most: number): readonly SomeSaid[] {
  const parts: SomeSaid[] = [];
  for (let at = 0; at < said.length; at += most) {
    const [first, ...others] = said.slice(at, at + most);
    if (first !== undefined) parts.push([first, ...others]);
  }
  return parts;
}

function webhookBody(message: Message): object {
  const { alertId, name, app, at, parsed: rule } = message;
  const [said, ...others] = message.said;
  const data = {
    ...transitionOf(rule, said),
    appId: app.appId,
    rule: { alertId, name, ...rule.source },
    link: linkTo(message, said),
    ...(others.length > 0 && { also: others.map((one) => transitionOf(rule, one)) }),
  };
  return { type: `alert.${said.kind}`, timestamp: iso(at), data };
}

function transitionOf(rule: Rule, said: Said): object {
  return {
    messageId: said.id,
    ...(said.of !== null && { [said.kind === 'corrected' ? 'corrects' : 'resolves']: said.of }),
    ...(said.series !== '' && { series: { [spellPath(rule.by ?? [])]: JSON.parse(said.series) as unknown } }),
    ...(said.kind === 'corrected'
      ? { value: said.earlierValue, correctedValue: said.value }
      : { value: said.value }),
    threshold: thresholdOf(rule, said),
    ...(said.limits !== null && { expected: said.limits.expected }),
    window: windowOf(rule, said.at),
    since: iso(said.since),
  };
}

function windowOf(rule: Rule, at: number): { readonly from: string; readonly to: string } {
  // The last whole quarter-hour.
  const to = rule.kind === 'unusual' ? Math.floor(at / rule.windowMs) * rule.windowMs : at;
  return { from: iso(to - rule.windowMs), to: iso(to) };
}

/** The app's page around the firing, up to when the message was made, with what the rule is about. */
function linkTo(message: Message, said: Said): string {
  const { publicUrl, app, parsed: rule, timezone = 'UTC', names, at } = message;
  const { measured, source } = rule;
  const from = Math.min(said.since, said.at) - rule.windowMs - SHOWN_AROUND_MS;
  const to = Math.max(said.at, Math.min(said.at + SHOWN_AROUND_MS, at));
  const query = new URLSearchParams({ from: iso(from), to: iso(to), tz: timezone });
  const { type } = rule.kind === 'ratio' ? rule.to : measured;
  const types = new Map(Object.entries(names?.types ?? {}));
  const typeId = types.get(type ?? '');
  if (typeId !== undefined) query.append('type', typeId);
  if (rule.kind !== 'ratio' && typeof source.filter === 'string') query.append('filter', source.filter);
  if (measured.of !== 'count' && measured.field !== null) {
    query.set('of', spellPath(measured.field));
    query.set('stat', measured.of);
  }
  return `${publicUrl}/apps/${app.appId}?${query}`;
}

/** Whose numbers a sentence is about. */
function whoseOf(rule: Rule, series: string): string {
  return series === '' ? '' : ` of ${spellPath(rule.by ?? [])} ${series}`;
}

function sentenceOf({ parsed: rule, names }: Message, said: Said): string {
  const shown = shownIn(rule, names);
  const whose = whoseOf(rule, said.series);
  const seen = `${wordsOf(rule)}${whose} in ${spellDuration(rule.windowMs)} is ${shown(said.value)}`;
  if (said.kind === 'corrected')
    return `${wordsOf(rule)}${whose} was ${shown(said.earlierValue)} when the alert fired. With events that came later it is ${shown(said.value)}: the alert was not due.`;
  if (rule.kind === 'unusual')
    return `${seen}; expected ${shown(said.limits?.expected ?? null)} (${shown(said.limits?.low ?? null)} to ${shown(said.limits?.high ?? null)}).`;
  if (rule.kind === 'absent') return `${seen}.`;
  return `${seen}; the alert fires ${rule.side} ${shown(rule.threshold)}.`;
}

function wordsOf(rule: Rule): string {
  const { of, field, type } = rule.measured;
  const measured = of === 'count' ? 'The count' : `The ${of} of ${spellPath(field ?? [])}`;
  const ofType = type === null ? '' : ` of events ${JSON.stringify(type)}`;
  return rule.kind === 'ratio' ? `The ratio` : `${measured}${ofType}`;
}

/** How a value of a rule is shown: as that of its field, otherwise with six digits, and all of a large number. */
function shownIn(
  { measured: { field, of } }: Rule,
  names: Names | undefined,
): (value: number | null) => string {
  const path = of === 'distinct' ? '' : JSON.stringify(field);
  const [unit, digits] = [names?.units[path], names?.decimals?.[path]];
  return (value) => {
    if (value === null) return 'not known';
    const most = Math.abs(value) < 100_000 ? { maximumSignificantDigits: 6 } : { maximumFractionDigits: 2 };
    const exact = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    const text = value.toLocaleString('en-US', digits === undefined ? most : exact);
    return unit === undefined ? text : `${text} ${unit}`;
  };
}

const KINDS = { firing: 'Firing', resolved: 'Resolved', corrected: 'Corrected' } as const;
const ADVICE = {
  firing: 'Look at the chart. The alert is paused or changed on the page Alerts & webhooks of the app.',
  resolved: 'There is nothing to do.',
  corrected: 'There is nothing to do. Where it happens often, give the alert a delay.',
} as const;

/** What people read in a chat tool: transitions of one kind. */
function noteOf(message: Message): Note {
  const { name, app, parsed: rule, said, names, timezone = 'UTC' } = message;
  const [first] = said;
  const shown = shownIn(rule, names);
  const more = said.length - MOST_IN_NOTE;
  const bound = thresholdOf(rule, first);
  const url = linkTo(message, first);
  return {
    kind: first.kind,
    title: `${KINDS[first.kind]}: ${name} (${app.name})`,
    lines: [
      ...said.slice(0, MOST_IN_NOTE).map((one) => sentenceOf(message, one)),
      ...(more > 0 ? [`And ${more} more.`] : []),
    ],
    facts: [
      ['Value', shown(first.value)],
      ...(bound === null || rule.kind === 'absent' ? [] : [['Threshold', shown(bound)] as const]),
      ['Since', localTime(first.since, timezone)],
    ],
    advice: ADVICE[first.kind],
    // Without PUBLIC_URL there is no address that others could open.
    link: URL.canParse(url) ? { label: 'Open the chart', url } : null,
  };
}

const WHAT = { firing: 'Firing', resolved: 'Over', corrected: 'Corrected' } as const;

/** `Sat 28 Nov 2026, 10:34 (Europe/Berlin)` */
function localTime(at: number, timezone: string): string {
  const date = { weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' } as const;
  const time = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;
  return `${new Intl.DateTimeFormat('en-GB', { timeZone: timezone, ...date, ...time }).format(at)} (${timezone})`;
}

/** A mail without its address. The text says everything. */
function mailBody(message: Message): object {
  const { name, app, said, timezone = 'UTC', trail } = message;
  const [first] = said;
  const kinds = [...new Set(said.map(({ kind }) => kind))].join(', ');
  const more = said.length > MOST_IN_MAIL ? `and ${said.length - MOST_IN_MAIL} more` : '';
  const lines = said
    .slice(0, MOST_IN_MAIL)
    .map((one) => [`${WHAT[one.kind]}, ${localTime(one.at, timezone)}`, sentenceOf(message, one)] as const);
  const text = lines.map(([when, sentence]) => `${when}: ${sentence}\n`).join('');
  const link = linkTo(message, first);
  return {
    subject: `[${kinds}] ${name} (${app.name})`,
    text: `Alert ${JSON.stringify(name)} of the app ${JSON.stringify(app.name)}\n\n${text}${more === '' ? '' : `\n${more}\n`}\n${link}\n`,
    html: mailPage(
      name,
      `<p ${SMALL}>Alert of ${escaped(app.name)}</p>
${lines.map(([when, sentence]) => `<p style="margin:16px 0 0"><span ${QUIET}>${escaped(when)}</span><br>${escaped(sentence)}</p>`).join('\n')}
${more === '' ? '' : `<p ${SMALL}>${more}</p>`}
${trail === null ? '' : trailHtml(message, trail)}
<p style="margin:24px 0 0">${linkHtml(link, 'Open the chart')}</p>
<p ${SMALL}>${ADVICE[first.kind]}</p>`,
    ),
    pictures: trail === null ? [] : [{ ...trail, id: TRAIL_ID, kind: 'curve' } satisfies CurvePicture],
  };
}

function trailHtml(message: Message, { from, to }: Trail): string {
  const { parsed: rule, timezone = 'UTC', said } = message;
  const bound = rule.kind === 'unusual' ? 'what is usual' : 'the threshold';
  const times = `${localTime(from, timezone)} to ${localTime(to, timezone)}`;
  const shown = `${wordsOf(rule)}${whoseOf(rule, said[0].series)} in ${spellDuration(rule.windowMs)}`;
  const key = [
    ['week', 'what was seen'],
    ['alert', 'where it fires'],
    ['before', bound],
  ] as const;
  return `${pictureHtml(TRAIL_ID, `${shown} beside ${bound}, ${times}`)}
<p ${SMALL}>${escaped(shown)}, ${escaped(times)}. ${key.map(([ink, text]) => inkHtml(ink, text)).join(' ')}</p>`;
}

/** Alerts in the form of /api/v2/alerts. */
function alertmanagerBody(message: Message): object {
  const { alertId, name, app, at, parsed: rule, said, names } = message;
  const shown = shownIn(rule, names);
  return said.map((one) => ({
    labels: {
      alertname: name,
      app: app.appId,
      app_name: app.name,
      alert_id: alertId,
      ...(one.series !== '' && { [labelOf(rule.by ?? [])]: textOf(one.series) }),
    },
    annotations: {
      summary: sentenceOf(message, one),
      value: shown(one.value),
      ...(one.kind === 'corrected' && {
        corrected: `from ${shown(one.earlierValue)} to ${shown(one.value)}`,
      }),
    },
    startsAt: iso(one.since),
    endsAt: iso(one.kind === 'firing' ? at + ENDS_AFTER_MS : Math.max(one.at, one.since + 1)),
    generatorURL: linkTo(message, one),
  }));
}

/** The mark of a firing on the chart. */
export function markOf(name: string, rule: Rule, series: string): string {
  const whose = series === '' ? '' : ` ${(rule.by ?? []).join('.')}: ${series}`;
  return `Alert: ${name}${whose}`.slice(0, 500);
}

/** The annotation of a message: its id has the form of those of others. */
export function annotationOf(id: string): string {
  return `ann_${id.replaceAll('-', '').slice(0, 20)}`;
}

/** A value of `by` that gets another name: both as JSON. */
export interface RenamedSeries {
  readonly from: string;
  readonly to: string;
}

/** A stored message with another name in the place of a value. */
export function renamedMessage(text: string, { from, to }: RenamedSeries): string {
  const stored = JSON.parse(text) as Stored;
  const said = stored.said.map((one) => (one.series === from ? { ...one, series: to } : one));
  return JSON.stringify({ ...stored, said });
}

/** A stored body with another name for a value; release 0.1.0 stored bodies instead of what a message says. */
export function renamedBody(body: string, rule: Rule, { from, to }: RenamedSeries): string {
  const [path, label] = [spellPath(rule.by ?? []), labelOf(rule.by ?? [])];
  const series = JSON.stringify({ [path]: JSON.parse(from) as unknown });
  const renamed = (key: string, value: unknown): unknown => {
    if (key === 'series' && JSON.stringify(value) === series) return { [path]: textOf(to) };
    if ((key === 'text' || key === 'summary') && typeof value === 'string')
      return value.replaceAll(`${whoseOf(rule, from)} `, `${whoseOf(rule, to)} `);
    const labels = key === 'labels' ? (value as Readonly<Record<string, unknown>>) : {};
    return labels[label] === textOf(from) ? { ...labels, [label]: textOf(to) } : value;
  };
  return JSON.stringify(JSON.parse(body, renamed));
}

/** A path as the name of a label of Prometheus. */
function labelOf(path: readonly string[]): string {
  const name = path.join('_').replace(/\W/g, '_');
  return /^[A-Za-z]/.test(name) ? name : `field_${name}`;
}

/** A text without its quotes. */
function textOf(json: string): string {
  const value: unknown = JSON.parse(json);
  return typeof value === 'string' ? value : json;
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
