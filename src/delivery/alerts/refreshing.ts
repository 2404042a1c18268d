/** Tells again what is current: Alertmanagers, which forget what they are not told again, and webhooks that go on. */
import { grouped } from '../../base/grouped.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { Transaction } from '../../storage/database/connect.ts';
import { areDeliveriesStopped } from '../restored.ts';
import { type ActiveRule, activeAlerts } from './alert-rules.ts';
import { messagesOf, type Said } from './messages.ts';
import { type AlertPlace, insertMessages, type Messages } from './telling.ts';

/** Webhooks that are told what is current, at once. */
const MOST_RESUMED = 100;
const NOBODY = { webhooks: [], emails: [], alertmanager: null };

/** A webhook that goes on, and the last transition before it was stopped. */
interface Resumed {
  readonly id: number;
  readonly appId: number;
  readonly webhookId: string;
  readonly after: string;
}

/** Tells webhooks that go on what is current: what still fires, and the end of what they were told of before they stopped. */
export async function tellResumed({ sql, now }: Pick<AlertPlace, 'sql' | 'now'>): Promise<void> {
  const resumed = await sql<Resumed[]>`
    SELECT webhooks.id, app_id AS "appId", webhooks.public_id AS "webhookId", stopped_after AS after
      FROM webhooks JOIN apps ON apps.id = app_id
     WHERE state = 'active' AND stopped_after IS NOT NULL AND removed_at IS NULL AND suspended_at IS NULL
     ORDER BY webhooks.id LIMIT ${MOST_RESUMED}`;
  if (resumed.length === 0 || (await areDeliveriesStopped(sql))) return;
  const { alerts } = await activeAlerts(sql);
  let failure: unknown = null;
  for (const webhook of resumed) {
    const { appId, webhookId } = webhook;
    const own = alerts.filter((one) => one.appId === appId && one.webhooks.includes(webhookId));
    try {
      await sql.begin('isolation level read committed', (tx) => tellCurrent(tx, webhook, own, now()));
    } catch (error) {
      failure ??= error;
    }
  }
  if (failure !== null) throw failure;
}

async function tellCurrent(
  tx: Transaction,
  { id, webhookId, after }: Resumed,
  alerts: readonly ActiveRule[],
  now: number,
): Promise<void> {
  const { count } = await tx`
    UPDATE webhooks SET stopped_after = NULL
     WHERE id = ${id} AND state = 'active' AND stopped_after = ${after}::bigint`;
  if (count === 0) return;
  const said = await currentSince(tx, alerts, after);
  const messages = alerts.map((alert): Messages => {
    const all = (said.get(alert.id) ?? []).map((one) => one.said);
    // Ends come first: a value may fire again.
    const parts = [all.filter(({ kind }) => kind !== 'firing'), all.filter(({ kind }) => kind === 'firing')];
    const only = { ...NOBODY, webhooks: [webhookId] };
    return { alert, messages: parts.flatMap((part) => messagesOf(only, part)) };
  });
  await insertMessages(tx, messages, now);
}

/** What rules have said since a transition that is of use now: firings that have not ended, and ends of earlier ones. */
async function currentSince(
  tx: Transaction,
  alerts: readonly ActiveRule[],
  after: string,
): Promise<ReadonlyMap<number, readonly { readonly said: Said }[]>> {
  const rows = await tx<(Omit<Said, 'at' | 'since' | 'limits'> & CurrentRow)[]>`
    SELECT said.rule_id AS rule, said.public_id AS id, said.kind, said.series, said.window_to AS at, said.value, said.of_transition AS of,
           coalesce(state.since, began.window_to, said.window_to) AS since, began.value AS "earlierValue", said.expected, said.threshold
      FROM alert_transitions AS said LEFT JOIN alert_states AS state ON state.rule_id = said.rule_id AND state.transition = said.public_id
      LEFT JOIN alert_transitions AS began ON began.public_id = said.of_transition
     WHERE said.rule_id = ANY(${alerts.map(({ id }) => id)}) AND said.id > ${after}::bigint
       AND CASE said.kind WHEN 'firing' THEN state.transition IS NOT NULL ELSE coalesce(began.id <= ${after}::bigint, true) END
     ORDER BY said.id`;
  const all = rows.map(({ rule, expected, threshold: bound, at, since, ...said }) => {
    const limits = expected === null || bound === null ? null : { expected, low: bound, high: bound };
    return { rule, said: { ...said, at: at.getTime(), since: since.getTime(), limits } };
  });
  return grouped(all, ({ rule }) => rule);
}

interface CurrentRow {
  readonly rule: number;
  readonly at: Date;
  readonly since: Date;
  readonly expected: number | null;
  readonly threshold: number | null;
}

/** Tells Alertmanagers of what still fires at a minute. */
export async function refreshAlertmanagers(
  { sql, now }: Pick<AlertPlace, 'sql' | 'now'>,
  minute: number,
): Promise<void> {
  const firing = await sql<{ rule: number; series: string; since: Date; id: string; value: number | null }[]>`
    SELECT state.rule_id AS rule, state.series, since, transition AS id, value
      FROM alert_states AS state JOIN alert_rules AS rule ON rule.id = state.rule_id
      LEFT JOIN alert_transitions AS began ON began.public_id = transition
     WHERE alertmanager IS NOT NULL AND NOT is_paused
       AND NOT EXISTS (SELECT FROM delivery_messages WHERE channel = 'alertmanager' AND target = alertmanager)
     ORDER BY state.rule_id`;
  if (firing.length === 0) return;
  const firingOf = grouped(firing, ({ rule }) => rule);
  const messages: Messages[] = [];
  const slices = new TimeSlice();
  for (const alert of (await activeAlerts(sql)).alerts) {
    if (slices.isOver) await slices.next();
    const { id: ruleId, alertmanager } = alert;
    if (alertmanager === null) continue;
    const said = (firingOf.get(ruleId) ?? []).map(({ id, series, since, value }): Said => {
      const times = { at: minute, since: since.getTime() };
      return { id, kind: 'firing', series, ...times, value, limits: null, earlierValue: null, of: null };
    });
    if (said.length > 0) messages.push({ alert, messages: messagesOf({ ...NOBODY, alertmanager }, said) });
  }
  for (const ofApp of grouped(messages, ({ alert }) => alert.appId).values())
    await sql.begin((tx) => insertMessages(tx, ofApp, now()));
}
