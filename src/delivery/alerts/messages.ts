/** What is sent of the transitions of alerts: to webhooks, by mail, and in the form that Alertmanager takes. */
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';
import { spellPath } from '../../read/fields/payload-paths.ts';
import type { AlertRule } from './alert-rules.ts';
import type { Limits } from './judge.ts';
import { type Rule, spellDuration } from './rule.ts';

/** A transition that is said. */
export interface Said {
  /** The id of its message. */
  readonly id: string;
  readonly kind: 'firing' | 'resolved' | 'corrected';
  /** The value of `by` as JSON; empty: all events. */
  readonly series: string;
  /** The end of the window. */
  readonly at: number;
  /** When it began to fire. */
  readonly since: number;
  readonly value: number | null;
  readonly limits: Limits | null;
  /** Of a correction: what was seen then. */
  readonly earlierValue: number | null;
  /** The message that it resolves or corrects. */
  readonly of: string | null;
}

/** A message that waits to be sent. */
export interface Waiting {
  readonly channel: 'webhook' | 'mail' | 'alertmanager';
  readonly target: string;
  readonly messageId: string;
  readonly type: string;
  readonly body: string;
}

export interface MessageContext {
  readonly alert: AlertRule;
  readonly rule: Rule;
  /** Public id. */
  readonly appId: string;
  readonly appName: string;
  readonly publicUrl: string;
  readonly now: number;
}

/** Transitions of one kind and round that are a webhook message each. */
const MOST_APART = 20;
/** Transitions that one mail names. */
const MOST_IN_MAIL = 50;
/** Alerts of one request to Alertmanager. */
const MOST_IN_REQUEST = 500;
/** An alert that is not sent again by then has ended for Alertmanager. */
const ENDS_AFTER_MS = 15 * MINUTE_MS;
/** How much around a firing the page shows. */
const SHOWN_AROUND_MS = DAY_MS / 4;

/** The messages of some transitions of a rule. */
export function messagesOf(context: MessageContext, said: readonly Said[]): readonly Waiting[] {
  const { alert } = context;
  const [first] = said;
  if (first === undefined) return [];
  const bundles = bundled(said);
  const ofWebhooks = alert.webhooks.flatMap((target) =>
    bundles.map((bundle) => webhookMessage(context, target, bundle)),
  );
  const mail = JSON.stringify(mailOf(context, said));
  const mails = alert.emails.map((target): Waiting => {
    return { channel: 'mail', target, messageId: first.id, type: `alert.${first.kind}`, body: mail };
  });
  const { alertmanager } = alert;
  const posts = alertmanager === null ? [] : alertmanagerMessages(context, alertmanager, said);
  return [...ofWebhooks, ...mails, ...posts];
}

/** The threshold that a value is compared with: of `unusual` the end that it passed. */
export function thresholdOf(rule: Rule, { value, limits }: Pick<Said, 'value' | 'limits'>): number | null {
  if (rule.kind === 'absent') return 1;
  if (rule.kind !== 'unusual') return rule.threshold;
  if (limits === null || value === null) return null;
  return value >= limits.expected ? limits.high : limits.low;
}

/** Few transitions are a message each; many of one kind are one, as more than that nobody reads apart. */
function bundled(said: readonly Said[]): readonly (readonly [Said, ...Said[]])[] {
  return (['firing', 'resolved', 'corrected'] as const).flatMap((kind) => {
    const [first, ...others] = said.filter((one) => one.kind === kind);
    if (first === undefined) return [];
    return others.length < MOST_APART
      ? [first, ...others].map((one) => [one] as const)
      : [[first, ...others] as const];
  });
}

function webhookMessage(
  context: MessageContext,
  target: string,
  [said, ...others]: readonly [Said, ...Said[]],
): Waiting {
  const { alert, rule, appId, now } = context;
  const type = `alert.${said.kind}`;
  const data = {
    ...transitionOf(rule, said),
    appId,
    rule: { alertId: alert.alertId, name: alert.name, ...rule.source },
    link: linkTo(context, said),
    ...(others.length > 0 && { also: others.map((one) => transitionOf(rule, one)) }),
  };
  const body = JSON.stringify({ type, timestamp: iso(now), data });
  return { channel: 'webhook', target, messageId: said.id, type, body };
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

/** The app's page around the firing. */
function linkTo({ publicUrl, appId, rule }: MessageContext, { at, since }: Said): string {
  const from = iso(Math.min(since, at) - rule.windowMs - SHOWN_AROUND_MS);
  return `${publicUrl}/apps/${appId}?from=${from}&to=${iso(at + SHOWN_AROUND_MS)}`;
}

/** Whose numbers a sentence is about. */
function whoseOf(rule: Rule, series: string): string {
  return series === '' ? '' : ` of ${spellPath(rule.by ?? [])} ${series}`;
}

/** One sentence on a transition. */
export function sentenceOf(rule: Rule, said: Said): string {
  const whose = whoseOf(rule, said.series);
  const seen = `${wordsOf(rule)}${whose} in ${spellDuration(rule.windowMs)} is ${shown(said.value)}`;
  if (said.kind === 'corrected')
    return `${wordsOf(rule)}${whose} was ${shown(said.earlierValue)} when the alert fired. With events that came later it is ${shown(said.value)}: the alert was not due.`;
  if (rule.kind === 'unusual')
    return `${seen}; expected ${shown(said.limits?.expected ?? null)} (${shown(said.limits?.low ?? null)} to ${shown(said.limits?.high ?? null)}).`;
  if (rule.kind === 'absent') return `${seen}.`;
  return `${seen}; the alert fires ${rule.side} ${rule.threshold}.`;
}

function wordsOf(rule: Rule): string {
  const { of, field, type } = rule.measured;
  const measured = of === 'count' ? 'The count' : `The ${of} of ${spellPath(field ?? [])}`;
  const ofType = type === null ? '' : ` of events ${JSON.stringify(type)}`;
  return rule.kind === 'ratio' ? `The ratio` : `${measured}${ofType}`;
}

function shown(value: number | null): string {
  return value === null ? 'not known' : String(Number(value.toPrecision(6)));
}

/** A mail without its address. */
function mailOf(context: MessageContext, said: readonly Said[]): { subject: string; text: string } {
  const { alert, rule, appName } = context;
  const [first] = said;
  const kinds = [...new Set(said.map(({ kind }) => kind))].join(', ');
  const more = said.length > MOST_IN_MAIL ? `\nand ${said.length - MOST_IN_MAIL} more\n` : '';
  const lines = said
    .slice(0, MOST_IN_MAIL)
    .map((one) => `${iso(one.at)} ${one.kind}: ${sentenceOf(rule, one)}\n`);
  const link = first === undefined ? '' : linkTo(context, first);
  return {
    subject: `[${kinds}] ${alert.name} (${appName})`,
    text: `Alert ${JSON.stringify(alert.name)} of the app ${JSON.stringify(appName)}\n\n${lines.join('')}${more}\nRule: ${alert.rule}\n\n${link}\n`,
  };
}

/** Alerts in the form of /api/v2/alerts. */
export function alertmanagerMessages(
  context: MessageContext,
  url: string,
  said: readonly Said[],
): readonly Waiting[] {
  const { alert, rule, appId, appName, now } = context;
  const alerts = said.map((one) => ({
    labels: {
      alertname: alert.name,
      app: appId,
      app_name: appName,
      alert_id: alert.alertId,
      ...(one.series !== '' && { [labelOf(rule.by ?? [])]: textOf(one.series) }),
    },
    annotations: {
      summary: sentenceOf(rule, one),
      value: shown(one.value),
      ...(one.kind === 'corrected' && {
        corrected: `from ${shown(one.earlierValue)} to ${shown(one.value)}`,
      }),
    },
    startsAt: iso(one.since),
    endsAt: iso(one.kind === 'firing' ? now + ENDS_AFTER_MS : Math.max(one.at, one.since + 1)),
    generatorURL: linkTo(context, one),
  }));
  const requests: Waiting[] = [];
  for (let at = 0; at < alerts.length; at += MOST_IN_REQUEST) {
    const part = said[at];
    if (part === undefined) break;
    const body = JSON.stringify(alerts.slice(at, at + MOST_IN_REQUEST));
    requests.push({
      channel: 'alertmanager',
      target: url,
      messageId: part.id,
      type: `alert.${part.kind}`,
      body,
    });
  }
  return requests;
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

interface OfSeries {
  readonly series?: Readonly<Record<string, unknown>>;
}

/** The body of a message that waits, with another name in the place of a value. */
export function renamedMessage(
  { channel, body }: Pick<Waiting, 'channel' | 'body'>,
  rule: Rule,
  { from, to }: RenamedSeries,
): string {
  const [before, after] = [`${whoseOf(rule, from)} `, `${whoseOf(rule, to)} `];
  // Only messagesOf() writes them.
  if (channel === 'mail') {
    const mail = JSON.parse(body) as { subject: string; text: string };
    return JSON.stringify({ ...mail, text: mail.text.replaceAll(before, after) });
  }
  if (channel === 'webhook') {
    const message = JSON.parse(body) as { data: OfSeries & { also?: readonly OfSeries[] } };
    const path = spellPath(rule.by ?? []);
    const value = JSON.stringify(JSON.parse(from));
    const renamed = (one: OfSeries): OfSeries =>
      JSON.stringify(one.series?.[path]) === value ? { ...one, series: { [path]: textOf(to) } } : one;
    const { also } = message.data;
    const data = { ...renamed(message.data), ...(also && { also: also.map(renamed) }) };
    return JSON.stringify({ ...message, data });
  }
  const label = labelOf(rule.by ?? []);
  const alerts = JSON.parse(body) as {
    labels: Record<string, string>;
    annotations: Record<string, string> & { summary: string };
  }[];
  return JSON.stringify(
    alerts.map((alert) => {
      const { labels, annotations } = alert;
      if (labels[label] !== textOf(from)) return alert;
      const summary = annotations.summary.replaceAll(before, after);
      return {
        ...alert,
        labels: { ...labels, [label]: textOf(to) },
        annotations: { ...annotations, summary },
      };
    }),
  );
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
