/** What is said of rules: its transitions, their marks on the chart, and the messages that tell of them, in one transaction. */
import { annotateFiring, endFiring } from '../../apps/annotations.ts';
import type { NumberFormat } from '../../apps/fields.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { Storage } from '../../storage/storage.ts';
import { type ActiveRule, type NotedProblem, noteProblems } from './alert-rules.ts';
import {
  annotationOf,
  markOf,
  messagesOf,
  type Names,
  type Said,
  storedMessage,
  thresholdOf,
  type Waiting,
} from './messages.ts';
import { partsOf, type Rule } from './rule.ts';

/** Firings of one rule in one round that are marked on the chart. */
const MOST_ANNOTATED = 10;
/** Messages of an app that wait to be sent; beyond it none is made. */
export const MOST_WAITING_OF_APP = 10_000;
const TOO_MANY_MESSAGES = `${MOST_WAITING_OF_APP} messages of this app wait to be sent: new ones are dropped until some have gone.`;

/** Where alerts are judged. */
export interface AlertPlace {
  /** A pool of upkeep. */
  readonly sql: Sql;
  readonly storage: Storage;
  readonly now: () => number;
}

/** What is said of a rule. */
export interface Told {
  readonly alert: ActiveRule;
  readonly said: readonly Said[];
}

export interface Messages {
  readonly alert: ActiveRule;
  readonly messages: readonly Waiting[];
}

/** Stores transitions of rules of one app, their marks on the chart and their messages. */
export async function tell(tx: Transaction, told: readonly Told[], at: number): Promise<void> {
  await insertTransitions(tx, told, at);
  for (const { alert, said } of told) await annotate(tx, alert, said);
  const active = await activeWebhooks(tx, [...new Set(told.flatMap(({ alert }) => alert.webhooks))]);
  const messages = told.map(({ alert, said }) => {
    const webhooks = alert.webhooks.filter((webhook) => active.has(webhook));
    return { alert, messages: messagesOf({ ...alert, webhooks }, said) };
  });
  await insertMessages(tx, messages, at);
}

async function insertTransitions(tx: Transaction, told: readonly Told[], at: number): Promise<void> {
  const all = told.flatMap(({ alert, said }) => said.map((one) => ({ ...one, alert, rule: alert.parsed })));
  const of = <T>(pick: (one: (typeof all)[number]) => T): T[] => all.map(pick);
  const iso = (ms: number): string => new Date(ms).toISOString();
  await tx`
    INSERT INTO alert_transitions (public_id, rule_id, series, kind, at, window_from, window_to, value, threshold, expected, of_transition)
    SELECT id, rule, series, kind, ${new Date(at)}, minute - make_interval(secs => seconds), minute, value, threshold, expected, of_transition
      FROM unnest(${of(({ id }) => id)}::text[], ${of(({ alert }) => alert.id)}::integer[], ${of(({ series }) => series)}::text[],
                  ${of(({ kind }) => kind)}::text[], ${of((one) => iso(one.at))}::timestamptz[],
                  ${of(({ rule }) => rule.windowMs / 1_000)}::float8[], ${of(({ value }) => value)}::float8[],
                  ${of((one) => thresholdOf(one.rule, one))}::float8[], ${of(({ limits }) => limits?.expected ?? null)}::float8[],
                  ${of((one) => one.of)}::text[])
             AS given (id, rule, series, kind, minute, seconds, value, threshold, expected, of_transition)`;
  const corrected = all.flatMap((one) => (one.kind === 'corrected' && one.of !== null ? [one.of] : []));
  if (corrected.length > 0)
    await tx`
      UPDATE alert_transitions SET corrected_at = ${new Date(at)}
       WHERE rule_id = ANY(${told.map(({ alert }) => alert.id)}) AND (public_id = ANY(${corrected}) OR (kind = 'resolved' AND of_transition = ANY(${corrected})))`;
}

/** The webhooks that messages are made for: others are told what is current once they go on. */
async function activeWebhooks(tx: Transaction, webhooks: readonly string[]): Promise<ReadonlySet<string>> {
  if (webhooks.length === 0) return new Set();
  const rows = await tx<{ id: string }[]>`
    SELECT public_id AS id FROM webhooks
     WHERE public_id = ANY(${[...webhooks]}) AND state = 'active' AND stopped_after IS NULL ORDER BY id FOR SHARE`;
  return new Set(rows.map(({ id }) => id));
}

/** Stores messages of rules of one app to be sent. Of a rule whose messages are too many beside those that wait none is stored. */
export async function insertMessages(tx: Transaction, rules: readonly Messages[], at: number): Promise<void> {
  const [appId] = rules.flatMap(({ alert, messages }) => (messages.length > 0 ? [alert.appId] : []));
  if (appId === undefined) return;
  const [row] = await tx<{ waiting: number }[]>`
    SELECT count(*)::integer AS waiting
      FROM (SELECT FROM delivery_messages WHERE app_id = ${appId} LIMIT ${MOST_WAITING_OF_APP}) AS waiting`;
  const names = await namesIn(
    tx,
    appId,
    rules.map(({ alert }) => alert.parsed),
  );
  let waiting = row?.waiting ?? 0;
  const kept: (Waiting & { readonly stored: string })[] = [];
  const full: NotedProblem[] = [];
  for (const { alert, messages } of rules) {
    if (messages.length === 0) continue;
    if (waiting + messages.length > MOST_WAITING_OF_APP)
      full.push({ id: alert.id, problem: TOO_MANY_MESSAGES });
    else {
      waiting += messages.length;
      for (const one of messages) kept.push({ ...one, stored: storedMessage(alert, one.said, at, names) });
    }
  }
  await noteProblems(tx, full);
  const of = <T>(pick: (one: (typeof kept)[number]) => T): T[] => kept.map(pick);
  await tx`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, said, created_at, next_try_at)
    SELECT ${appId}, channel, target, message_id, 'alert.' || kind, said, ${new Date(at)}, ${new Date(at)}
      FROM unnest(${of(({ channel }) => channel)}::text[], ${of(({ target }) => target)}::text[],
                  ${of(({ said: [first] }) => first.id)}::text[], ${of(({ said: [first] }) => first.kind)}::text[],
                  ${of(({ stored }) => stored)}::text[]) AS given (channel, target, message_id, kind, said)`;
}

/** How the types and numbers are called that rules of an app are about. */
async function namesIn(tx: Transaction, appId: number, rules: readonly Rule[]): Promise<Names> {
  const parts = rules.flatMap(partsOf);
  const types = await tx<{ name: string; typeId: string }[]>`
    SELECT name, public_id AS "typeId" FROM event_types
     WHERE app_id = ${appId} AND name = ANY(${parts.flatMap(({ type }) => type ?? [])}::text[])`;
  const formats = await tx<({ path: string } & NumberFormat)[]>`
    SELECT DISTINCT ON (path) path, unit, decimals FROM declared_fields
     WHERE app_id = ${appId} AND kind = 'number' AND removed_at IS NULL AND (unit IS NOT NULL OR decimals IS NOT NULL)
     ORDER BY path, id`;
  return {
    types: Object.fromEntries(types.map(({ name, typeId }) => [name, typeId])),
    units: Object.fromEntries(formats.flatMap(({ path, unit }) => (unit === null ? [] : [[path, unit]]))),
    decimals: Object.fromEntries(
      formats.flatMap(({ path, decimals }) => (decimals === null ? [] : [[path, decimals]])),
    ),
  };
}

/** Marks firings on the chart of the app. */
async function annotate(tx: Transaction, alert: ActiveRule, said: readonly Said[]): Promise<void> {
  if (said.length > MOST_ANNOTATED) return;
  for (const { kind, id, of, at, series } of said) {
    const text = markOf(alert.name, alert.parsed, series);
    if (kind === 'firing')
      await annotateFiring(tx, alert.appId, { annotationId: annotationOf(id), at: new Date(at), text });
    else if (of !== null) await endFiring(tx, annotationOf(of), kind === 'resolved' ? new Date(at) : null);
  }
}
