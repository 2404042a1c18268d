/** Webhooks: consumers whose events are sent to an address. */

import { type KeyObject, randomUUID } from 'node:crypto';
import { type Actor, actorName, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { hasMaker, makerOf, sendAgain } from '../accounts/people/senders.ts';
import type { WebhookRow, WebhookTry } from '../api-types/answers.ts';
import { openSealed, type Secret, sealToken } from '../apps/secret.ts';
import { nearest } from '../base/did-you-mean.ts';
import { groupedBy } from '../base/grouped.ts';
import { createPublicId, digestOf } from '../base/token-text.ts';
import { FORMAT_NAMES, FORMATS, type WebhookFormat } from '../base/webhook-formats.ts';
import type { Config } from '../config.ts';
import { notYet, Refused, refused, WrongField } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import type { ConsumerStore, StartingPoint } from '../storage/feed/consumers.ts';
import { checkWebhookUrl } from './addresses.ts';
import { addressProblem, type ChatFormat, chatBody, postedTo } from './chat.ts';
import { checkTypes, matcherOfChoice, type SkipLimits, skipNext } from './consumers.ts';
import { newWebhookSecret, Poster, signingKey } from './signed-post.ts';

export interface Webhook extends Omit<WebhookRow<Date>, 'failedTries'> {
  readonly id: number;
  readonly appId: number;
  readonly tries: number;
}

/** A webhook that may send, with the account of its app; null: the app has no owner. */
export interface ActiveWebhook extends Webhook {
  readonly accountId: number | null;
}

const KEPT_TRIES = 50;
const SENDING = notYet('The webhook is sending, or another request skips its event: try again shortly.');
const NOT_REACHED = notYet(
  'Many events that the webhook does not get are before the one that blocks it: try again, and the next look continues.',
);
/** How long an earlier secret signs, too. */
const GRACE_HOURS = 24;

/** What a webhook is, as bodies, commands and the configuration say it. */
export interface WebhookEntry {
  readonly url: string;
  readonly types?: readonly string[] | undefined;
  /** Conditions on the payload, all of which must be met. */
  readonly filter?: readonly string[] | undefined;
  /** Whether several events may be sent at once. */
  readonly unordered?: boolean | undefined;
  /** False: it gets messages of alerts alone. */
  readonly events?: boolean | undefined;
  /** In which form messages of alerts are sent. That of a chat tool: nothing else is. */
  readonly format?: string | undefined;
}

interface CheckedWebhook {
  readonly url: string;
  readonly types: readonly string[];
  readonly filter: readonly string[];
  readonly unordered: boolean;
  readonly events: boolean;
  readonly format: WebhookFormat;
}

export interface WebhookPlace {
  readonly sql: Sql;
  readonly store: ConsumerStore;
  readonly secret: Secret;
  readonly config: Pick<Config, 'MAX_WEBHOOKS_PER_APP' | 'WEBHOOK_ALLOW_PRIVATE'>;
}

/**
 * Checks what does not depend on the app.
 * @throws WrongField for a format, or what a chat tool cannot take; WrongInput for an address or a filter
 */
export function checkedWebhook(
  {
    url: address,
    types = [],
    filter = [],
    unordered = false,
    events,
    format: name = 'standard',
  }: WebhookEntry,
  allowPrivate: boolean,
): CheckedWebhook {
  const format = FORMATS.find((one) => one === name);
  if (format === undefined) throw new WrongField('format', `must be one of ${FORMATS.join(', ')}`);
  const url = checkWebhookUrl(address, allowPrivate);
  const problem = addressProblem(format, url);
  if (problem !== null) throw new WrongField('url', problem);
  matcherOfChoice({ types, filter });
  const sent = { types: types.length > 0, filter: filter.length > 0, unordered, events: events === true };
  const [wrong] = Object.entries(sent).filter(([, isAsked]) => isAsked);
  if (format !== 'standard' && wrong !== undefined)
    throw new WrongField(wrong[0], `is about events: ${FORMAT_NAMES[format]} gets messages of alerts alone`);
  return { url: url.href, types, filter, unordered, events: events ?? format === 'standard', format };
}

/**
 * Adds a webhook to an app.
 * @returns its id and its secret, which is not shown again
 * @throws WrongInput for an address, type, filter or format; Refused tooManyWebhooks
 */
export async function addWebhook(
  { sql, store, secret, config }: WebhookPlace,
  appId: number,
  webhook: WebhookEntry,
  { from = 'now', by = COMMAND_LINE }: { readonly from?: StartingPoint; readonly by?: Actor },
): Promise<{ readonly webhookId: string; readonly secret: string }> {
  const { MAX_WEBHOOKS_PER_APP: most, WEBHOOK_ALLOW_PRIVATE: allowPrivate } = config;
  const { url, types, filter, unordered, events, format } = checkedWebhook(webhook, allowPrivate);
  await checkTypes(sql, appId, types);
  const text = newWebhookSecret();
  const webhookId = createPublicId('whk');
  await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact.
    await tx`SELECT FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
    if ((await countRows(tx, tx`webhooks WHERE app_id = ${appId}`)) >= most)
      throw refused('tooManyWebhooks', `an app may have ${most} webhooks (MAX_WEBHOOKS_PER_APP)`);
    // Paused until it has a position: on a cluster that is on another node.
    await tx`
      INSERT INTO webhooks (public_id, app_id, url, format, digest, sealed, is_unordered, sends_events, state, created_by)
      VALUES (${webhookId}, ${appId}, ${url}, ${format}, ${digestOf(text)}, ${sealToken(secret, text)}, ${unordered}, ${events}, 'paused',
              ${await makerOf(tx, appId, by)})`;
    await writeAudit(tx, {
      appId,
      by,
      action: 'webhook.add',
      details: { webhookId, url, ...(format !== 'standard' && { format }) },
    });
    await tellOwners(tx, appId, webhookId, {
      type: 'webhook.added',
      subject: 'Webhook added',
      text: (app) =>
        `The app ${app} has a new webhook, ${webhookId}: it sends ${events ? 'events' : 'messages of alerts'} to an address outside.\n\nAddress: ${new URL(url).origin}\n`,
      by,
    });
  });
  if (events) await store.add(appId, { name: webhookId, kind: 'webhook', types, filter, from });
  // Whoever has paused or disabled it meanwhile wins.
  await sql`UPDATE webhooks SET state = 'active' WHERE public_id = ${webhookId} AND state = 'paused'`;
  return { webhookId, secret: text };
}

const columns = (sql: Sql | Transaction) => sql`
  id, app_id AS "appId", public_id AS "webhookId", url, format, is_unordered AS "isUnordered", sends_events AS "sendsEvents", state,
  CASE WHEN state = 'active' AND NOT ${hasMaker(sql, 'webhooks')} THEN 'the member who made it may not use the app' ELSE reason END AS reason,
  created_at AS "createdAt", failing_since AS "failingSince", tries, next_try_at AS "nextTryAt", blocked_by AS "blockedBy",
  delivered::float8, failed::float8, skipped::float8,
  (SELECT json_build_object('userId', maker.public_id, 'email', maker.email) FROM users AS maker WHERE maker.id = webhooks.created_by)
    AS "createdBy"`;

/** The webhooks of an app, in order of creation. */
export async function listWebhooks(sql: Sql, appId: number): Promise<readonly Webhook[]> {
  return await sql<Webhook[]>`SELECT ${columns(sql)} FROM webhooks WHERE app_id = ${appId} ORDER BY id`;
}

/** All that may send: not those of apps that are in the bin or suspended, nor those whose maker may not use the app. */
export async function activeWebhooks(sql: Sql): Promise<readonly ActiveWebhook[]> {
  return await sql<ActiveWebhook[]>`
    SELECT ${columns(sql)},
           (SELECT min(user_id) FROM app_members WHERE app_members.app_id = webhooks.app_id AND role = 'owner') AS "accountId"
      FROM webhooks
     WHERE state = 'active' AND ${hasMaker(sql, 'webhooks')} AND NOT EXISTS (
       SELECT FROM apps WHERE apps.id = app_id AND (removed_at IS NOT NULL OR suspended_at IS NOT NULL))
     ORDER BY id`;
}

/** @throws Refused webhookNotFound, with the nearest id */
export async function findWebhook(sql: Sql, webhookId: string, appId?: number): Promise<Webhook> {
  const [row] = await sql<Webhook[]>`
    SELECT ${columns(sql)} FROM webhooks
     WHERE public_id = ${webhookId} ${appId === undefined ? sql`` : sql`AND app_id = ${appId}`}`;
  if (row !== undefined) return row;
  const known = await sql<{ id: string }[]>`
    SELECT public_id AS id FROM webhooks ${appId === undefined ? sql`` : sql`WHERE app_id = ${appId}`} LIMIT 1000`;
  const meant = nearest(
    webhookId,
    known.map(({ id }) => id),
  );
  throw refused(
    'webhookNotFound',
    `there is no webhook ${JSON.stringify(webhookId)}${meant === null ? '' : `: did you mean ${meant}?`}`,
  );
}

/** A webhook as commands and routes show it. */
export function shownWebhook({ id: _id, appId: _appId, tries, ...shown }: Webhook) {
  return { ...shown, failedTries: tries };
}

/** What came of a test. */
export interface TriedWebhook {
  readonly status: number | null;
  readonly problem: string | null;
  /** The beginning of the answer's body. */
  readonly answer: string;
  readonly ms: number;
}

/**
 * Sends a test message, and waits for its answer.
 * @returns null where another SECRET has sealed the secret of the webhook
 */
export async function testWebhook(
  { sql, secret, config }: Pick<WebhookPlace, 'sql' | 'secret' | 'config'>,
  { id, webhookId, url, format }: Webhook,
  now: () => number,
): Promise<TriedWebhook | null> {
  const keys = await signingKeys(sql, secret, id, now());
  if (keys.length === 0) return null;
  const poster = new Poster({ allowPrivate: config.WEBHOOK_ALLOW_PRIVATE, now });
  const at = new Date(now());
  const type = 'webhook.test';
  const messageId = randomUUID();
  const body =
    format === 'standard'
      ? JSON.stringify({ type, timestamp: at.toISOString(), data: { webhookId } })
      : trialBody(format, webhookId, url);
  const { status, problem, text, ms } = await poster.send(
    postedTo(format, url),
    { id: messageId, type, body },
    keys,
    {
      isTest: true,
    },
  );
  poster.close();
  await noteTries(sql, id, [{ messageId, type, at, status, problem, ms }]);
  return { status, problem, answer: text, ms };
}

/** A test message for a chat tool. */
function trialBody(format: ChatFormat, webhookId: string, url: string): string {
  const note = {
    kind: 'test',
    title: 'Test of a webhook',
    lines: ['Messages of the alerts that name this webhook come here.'],
    facts: [['Webhook', webhookId]],
    advice: 'There is nothing to do.',
    link: null,
  } as const;
  return chatBody(format, note, url);
}

/** The last tries of each webhook of an app, newest first, by the ids of the webhooks. */
export async function listTries(
  sql: Sql,
  appId: number,
): Promise<ReadonlyMap<number, readonly WebhookTry<Date>[]>> {
  const rows = await sql<(WebhookTry<Date> & { id: number })[]>`
    SELECT webhooks.id, tries.* FROM webhooks CROSS JOIN LATERAL (
      SELECT message_id AS "messageId", type, at, status, problem, ms FROM webhook_tries
       WHERE webhook_id = webhooks.id ORDER BY id DESC LIMIT ${KEPT_TRIES}) AS tries
     WHERE app_id = ${appId}`;
  return groupedBy(rows, 'id');
}

/**
 * Pauses a webhook, or has it go on, also one that was disabled. Its position stays. Where its maker may not use the app any more, it goes
 * on for whoever resumes it.
 */
export async function setWebhookState(
  sql: Sql,
  { id, appId, webhookId }: Webhook,
  state: 'active' | 'paused',
  by: Actor = COMMAND_LINE,
): Promise<void> {
  const action = state === 'active' ? 'webhook.resume' : 'webhook.pause';
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`
      UPDATE webhooks
         SET state = ${state}, reason = NULL,
             created_by = CASE WHEN ${state === 'paused'} OR ${hasMaker(tx, 'webhooks')} THEN created_by ELSE ${await makerOf(tx, appId, by)}::integer END
       WHERE id = ${id}`;
    if (state === 'paused') await noteStop(tx, id);
    await sendAgain(tx, { webhookId: id });
    await writeAudit(tx, { appId, by, action, details: { webhookId } });
  });
}

/**
 * Writes down what was said last before a webhook stopped: later messages are not made, and once it goes on the rounds of the alerts tell
 * it what is current. Its row is locked: rounds that have made messages for it have committed.
 */
async function noteStop(tx: Transaction, id: number): Promise<void> {
  await tx`
    UPDATE webhooks SET stopped_after = coalesce(stopped_after, (SELECT max(id) FROM alert_transitions), 0) WHERE id = ${id}`;
}

/** Why an endpoint is disabled. */
export const DISABLED_FOR = {
  gone: 'its endpoint answered 410',
  failing: 'its endpoint has failed for 72 hours',
  lost: 'events have waited for longer than CONSUMER_REACH_HOURS, and are not sent any more',
};

/**
 * Disables a webhook that must not be called any more. The owners of its app are mailed, where there is a mail server.
 * @returns false if it was disabled already
 */
export async function disableWebhook(
  sql: Sql,
  { id, appId, webhookId, url }: Pick<Webhook, 'id' | 'appId' | 'webhookId' | 'url'>,
  reason: string,
  now: number,
): Promise<boolean> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const { count } = await tx`
      UPDATE webhooks SET state = 'disabled', reason = ${reason} WHERE id = ${id} AND state = 'active'`;
    if (count === 0) return false;
    await noteStop(tx, id);
    await writeAudit(tx, {
      appId,
      by: COMMAND_LINE,
      action: 'webhook.disable',
      details: { webhookId, url, reason },
    });
    const next = reason === DISABLED_FOR.lost ? 'events from now on' : 'the event at which it stopped';
    await tellOwners(
      tx,
      appId,
      webhookId,
      {
        type: 'webhook.disabled',
        subject: 'Webhook disabled',
        text: (app) =>
          `The webhook ${webhookId} of the app ${app} was disabled: ${reason}.\n\nOnce the endpoint works again, resume the webhook: it goes on with ${next}. ` +
          `In the dashboard, or with: tidemark webhook resume ${webhookId}\n\nAddress: ${new URL(url).origin}\n`,
        by: null,
      },
      new Date(now),
    );
    return true;
  });
}

export interface OwnersMail {
  readonly type: string;
  readonly subject: string;
  /** @param app its name, in quotes */
  readonly text: (app: string) => string;
  /** Who did it; null: the service. */
  readonly by: Actor | null;
}

/**
 * Mails the owners of an app. Mails wait in the outbox, so that they are sent if the change is committed.
 * @param messageId what they are about
 */
export async function tellOwners(
  tx: Transaction,
  appId: number,
  messageId: string,
  { type, subject, text, by }: OwnersMail,
  at: Date = new Date(),
): Promise<void> {
  const [app] = await tx<{ name: string }[]>`SELECT name FROM apps WHERE id = ${appId}`;
  const facts = `Time: ${at.toISOString()}\n${by === null ? '' : `By: ${actorName(by)}\n`}`;
  const body = JSON.stringify({ subject, text: text(JSON.stringify(app?.name ?? '')) + facts });
  await tx`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
    SELECT ${appId}, 'mail', users.email, ${messageId}, ${type}, ${body}, ${at}, ${at}
      FROM app_members JOIN users ON users.id = user_id
     WHERE app_id = ${appId} AND role = 'owner' AND email_verified_at IS NOT NULL`;
}

/** Who wants an event to be left out, and for how long they look for it. */
export interface SkipOptions extends SkipLimits {
  readonly by?: Actor;
}

/**
 * Leaves out the event that blocks a webhook.
 * @returns its id; null if no event waits
 * @throws Refused consumerLost; unavailable where the webhook is sending, or the event was not reached
 */
export async function skipEvent(
  sql: Sql,
  store: ConsumerStore,
  { id, appId, webhookId }: Webhook,
  { by = COMMAND_LINE, ...limits }: SkipOptions = {},
): Promise<string | null> {
  const skipped = await skipNext(store, { appId, name: webhookId, kind: 'webhook' }, limits);
  if (skipped === 'lost')
    throw refused('consumerLost', 'the webhook has lost its place: remove it, and add another one');
  if (skipped === 'leased') throw new Refused(SENDING);
  if (skipped === 'later') throw new Refused(NOT_REACHED);
  if (skipped === null) return null;
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`
      UPDATE webhooks SET skipped = skipped + 1, tries = 0, next_try_at = NULL, blocked_by = NULL, failing_since = NULL
       WHERE id = ${id}`;
    const details = { webhookId, eventId: skipped.id };
    await writeAudit(tx, { appId, by, action: 'webhook.skip', details });
  });
  return skipped.id;
}

/** Makes a new secret; the earlier one signs for a day, too. */
export async function rotateWebhookSecret(
  sql: Sql,
  secret: Secret,
  { id, appId, webhookId }: Webhook,
  by: Actor = COMMAND_LINE,
): Promise<{ readonly secret: string; readonly previousValidUntil: Date }> {
  const text = newWebhookSecret();
  return await sql.begin('isolation level read committed', async (tx) => {
    const [row] = await tx<{ until: Date }[]>`
      UPDATE webhooks
         SET earlier_digest = digest, earlier_sealed = sealed, earlier_until = now() + make_interval(hours => ${GRACE_HOURS}),
             digest = ${digestOf(text)}, sealed = ${sealToken(secret, text)}
       WHERE id = ${id} RETURNING earlier_until AS until`;
    if (row === undefined) throw refused('webhookNotFound', `there is no webhook ${webhookId}`);
    await writeAudit(tx, { appId, by, action: 'webhook.rotate', details: { webhookId } });
    return { secret: text, previousValidUntil: row.until };
  });
}

/** The keys that sign now, the newest first; none if another SECRET has sealed their secrets. */
export async function signingKeys(
  sql: Sql,
  secret: Secret,
  id: number,
  now: number,
): Promise<readonly KeyObject[]> {
  const [row] = await sql<
    {
      digest: Buffer;
      sealed: Buffer;
      earlierDigest: Buffer | null;
      earlierSealed: Buffer | null;
      until: Date | null;
    }[]
  >`
    SELECT digest, sealed, earlier_digest AS "earlierDigest", earlier_sealed AS "earlierSealed", earlier_until AS until
      FROM webhooks WHERE id = ${id}`;
  if (row === undefined) return [];
  const opened = [openSealed(secret, row.sealed, row.digest)];
  const { earlierDigest, earlierSealed, until } = row;
  if (earlierDigest !== null && earlierSealed !== null && until !== null && until.getTime() > now)
    opened.push(openSealed(secret, earlierSealed, earlierDigest));
  return opened.flatMap((text) => (text === null ? [] : signingKey(text)));
}

export async function removeWebhook(
  sql: Sql,
  store: ConsumerStore,
  { id, appId, webhookId, url }: Webhook,
  by: Actor = COMMAND_LINE,
): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`DELETE FROM webhooks WHERE id = ${id}`;
    await writeAudit(tx, { appId, by, action: 'webhook.remove', details: { webhookId, url } });
  });
  await store.remove(appId, webhookId);
}

/** Writes down tries, and forgets old ones. */
export async function noteTries(sql: Sql, id: number, tries: readonly WebhookTry<Date>[]): Promise<void> {
  const kept = tries.slice(-KEPT_TRIES);
  if (kept.length === 0) return;
  await sql`
    WITH added AS (
      INSERT INTO webhook_tries (webhook_id, message_id, type, at, status, problem, ms)
      SELECT ${id}, * FROM unnest(
        ${kept.map((one) => one.messageId)}::text[], ${kept.map((one) => one.type)}::text[],
        ${kept.map((one) => one.at.toISOString())}::timestamptz[], ${kept.map((one) => one.status)}::integer[],
        ${kept.map((one) => one.problem)}::text[], ${kept.map((one) => one.ms)}::integer[])
       WHERE EXISTS (SELECT FROM webhooks WHERE id = ${id})
    )
    DELETE FROM webhook_tries
     WHERE webhook_id = ${id}
       AND id <= (SELECT id FROM webhook_tries WHERE webhook_id = ${id} ORDER BY id DESC OFFSET ${KEPT_TRIES} LIMIT 1)`;
}
