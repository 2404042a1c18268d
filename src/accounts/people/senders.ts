/**
 * What members made that sends data out of an app: webhooks, and the Alertmanager of alerts. It sends while its maker may use the app,
 * and ends or is handed over with the membership.
 */
import { appNotFound, refused } from '../../errors.ts';
import type { Fragment, Sql, Transaction } from '../../storage/database/connect.ts';
import { type Actor, writeAudit } from '../log/audit.ts';
import { holdMaintained } from './members.ts';

/** Why a webhook is disabled whose maker is gone. */
const MAKER_GONE = 'the member who made it has left the app';

/** Webhooks and alerts of a former member. */
export interface MadeSenders {
  readonly webhooks: readonly { readonly webhookId: string; readonly url: string }[];
  readonly alerts: readonly { readonly alertId: string; readonly name: string }[];
}

/** Whether a webhook or an alert may send for the one who made it: the operator, or a member who is not suspended. */
export function hasMaker(sql: Sql | Transaction, table: 'webhooks' | 'alert_rules'): Fragment {
  return sql`
    (${sql(table)}.created_by IS NULL OR EXISTS (
      SELECT FROM app_members AS maker JOIN users AS account ON account.id = maker.user_id
       WHERE maker.app_id = ${sql(table)}.app_id AND maker.user_id = ${sql(table)}.created_by AND account.suspended_at IS NULL))`;
}

/**
 * For whom something sends that is made or resumed now. Call after lockMembers: whoever is removed meanwhile leaves nothing behind.
 * @returns the account's internal id; null: the operator
 * @throws Refused appNotFound where the account may not make it any more
 */
export async function makerOf(tx: Transaction, appId: number, by: Actor): Promise<number | null> {
  if (by === 'command line' || by.userId === null) return null;
  if (!(await holdMaintained(tx, by.userId, [appId])).has(appId)) throw appNotFound(String(appId));
  return by.userId;
}

/**
 * Ends what a former member made: the webhooks are disabled, alerts do not tell the Alertmanager any more. No alert mails the member.
 * What waits for the Alertmanager or the mailbox is dropped.
 * @param ending.keep  public ids of webhooks and alerts that are handed over to `heir`, by its internal id
 * @throws Refused webhookNotFound if one of `keep` is not among them
 */
export async function endSendersOf(
  tx: Transaction,
  ending: {
    readonly appId: number;
    readonly member: { readonly id: number; readonly email: string };
    readonly keep: readonly string[];
    readonly heir: number | null;
    readonly by: Actor;
  },
): Promise<{ readonly ended: MadeSenders; readonly kept: MadeSenders }> {
  const { appId, member, keep, heir, by } = ending;
  const webhooks = await tx<(MadeSenders['webhooks'][number] & { id: number; state: string })[]>`
    SELECT id, public_id AS "webhookId", url, state FROM webhooks
     WHERE app_id = ${appId} AND created_by = ${member.id} ORDER BY id FOR UPDATE`;
  const alerts = await tx<(MadeSenders['alerts'][number] & { id: number; alertmanager: string })[]>`
    SELECT id, public_id AS "alertId", name, alertmanager FROM alert_rules
     WHERE app_id = ${appId} AND created_by = ${member.id} AND alertmanager IS NOT NULL ORDER BY id FOR UPDATE`;
  const known = new Set([...webhooks.map((one) => one.webhookId), ...alerts.map((one) => one.alertId)]);
  const missing = keep.find((id) => !known.has(id));
  if (missing !== undefined)
    throw refused('webhookNotFound', `the member has made no webhook or alert ${JSON.stringify(missing)}`);
  const isKept = (id: string): boolean => keep.includes(id);
  for (const { id, webhookId, url, state } of webhooks) {
    if (isKept(webhookId)) {
      await tx`UPDATE webhooks SET created_by = ${heir} WHERE id = ${id}`;
      await writeAudit(tx, { appId, by, action: 'webhook.keep', details: { webhookId, url } });
    } else if (state !== 'disabled') {
      await tx`UPDATE webhooks SET state = 'disabled', reason = ${MAKER_GONE} WHERE id = ${id}`;
      const details = { webhookId, url, reason: MAKER_GONE };
      await writeAudit(tx, { appId, by, action: 'webhook.disable', details });
    }
  }
  for (const { id, alertId, name, alertmanager } of alerts) {
    if (isKept(alertId)) await tx`UPDATE alert_rules SET created_by = ${heir} WHERE id = ${id}`;
    else await tx`UPDATE alert_rules SET alertmanager = NULL WHERE id = ${id}`;
    const details = { alertId, name, alertmanager: isKept(alertId) ? alertmanager : null };
    await writeAudit(tx, { appId, by, action: 'alert.change', details });
  }
  await tx`
    UPDATE alert_rules SET emails = ARRAY(SELECT one FROM unnest(emails) AS one WHERE lower(one) <> lower(${member.email}))
     WHERE app_id = ${appId} AND EXISTS (SELECT FROM unnest(emails) AS one WHERE lower(one) = lower(${member.email}))`;
  await tx`
    DELETE FROM delivery_messages
     WHERE app_id = ${appId}
       AND (channel = 'mail' AND lower(target) = lower(${member.email})
            OR channel = 'alertmanager' AND target = ANY(${alerts.map((one) => one.alertmanager)})
               AND NOT EXISTS (SELECT FROM alert_rules AS rule WHERE rule.app_id = ${appId} AND rule.alertmanager = target))`;
  const of = (passes: (id: string) => boolean): MadeSenders => ({
    webhooks: webhooks.flatMap(({ webhookId, url }) => (passes(webhookId) ? [{ webhookId, url }] : [])),
    alerts: alerts.flatMap(({ alertId, name }) => (passes(alertId) ? [{ alertId, name }] : [])),
  });
  return { ended: of((id) => !isKept(id)), kept: of(isKept) };
}

/**
 * Has what was held by an order (a pause, a suspension, the bin) be sent at once. It has not failed for as long as it was held: the tries
 * before that are forgotten.
 * @param held whose webhooks and messages: those of an app or of a maker, by internal ids, one webhook, or all
 */
export async function sendAgain(
  tx: Transaction,
  held: { readonly appId: number } | { readonly makerId: number } | { readonly webhookId: number } | 'all',
): Promise<void> {
  const ofWebhooks =
    held === 'all'
      ? tx`true`
      : 'appId' in held
        ? tx`webhooks.app_id = ${held.appId}`
        : 'makerId' in held
          ? tx`webhooks.created_by = ${held.makerId}`
          : tx`webhooks.id = ${held.webhookId}`;
  await tx`
    UPDATE webhooks SET tries = 0, failing_since = NULL, next_try_at = NULL
     WHERE ${ofWebhooks} AND (failing_since IS NOT NULL OR next_try_at IS NOT NULL)`;
  const toWebhooks = tx`channel = 'webhook' AND target IN (SELECT public_id FROM webhooks WHERE ${ofWebhooks})`;
  const ofMessages =
    held === 'all'
      ? tx`true`
      : 'appId' in held
        ? tx`app_id = ${held.appId}`
        : 'makerId' in held
          ? tx`(${toWebhooks} OR channel = 'alertmanager' AND (app_id, target) IN
                (SELECT app_id, alertmanager FROM alert_rules WHERE created_by = ${held.makerId}))`
          : toWebhooks;
  await tx`
    UPDATE delivery_messages SET tries = 0, problem = NULL, failing_since = NULL, next_try_at = created_at
     WHERE ${ofMessages} AND tries > 0`;
}
