/** Erasures as the database keeps them: what was asked for, and the receipt of what was done. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import type { ErasureReceipt, ErasureState } from '../api-types/answers.ts';
import { forgetRefusals } from '../apps/refused-requests.ts';
import type { Secret } from '../apps/secret.ts';
import { seal, unseal } from '../base/sealed-text.ts';
import { createPublicId, digestOf } from '../base/token-text.ts';
import { appNotFound, OperatorError, refused } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import type { ErasedSummary } from '../storage/maintenance/erasing.ts';
import { conditionHmac, type ErasureAction, type ErasureConditions } from './conditions.ts';

/** What is told of an erasure as long as it runs, and ever after. */
export interface Erasure extends Omit<ErasureState<Date>, 'state' | 'erased' | 'receipt'> {
  readonly receipt: Receipt | null;
}

export interface ShownErasure extends Erasure {
  readonly state: 'running' | 'finished';
  /** Events that are erased so far. */
  readonly erased: number;
}

/** What an erasure has done, and what it has not. */
export interface Receipt extends ErasedSummary, Omit<ErasureReceipt, 'events' | 'days' | 'notDone'> {
  /** Where values were replaced: the names that lead to them. Empty where events were removed. */
  readonly paths: readonly (readonly string[])[];
  /** Copies that it cannot reach, and what is left to do: by kind, and by name where there is one. */
  readonly notDone: readonly NotDone[];
}

export interface NotDone {
  readonly kind: 'backups' | 'consumer' | 'webhook' | 'disk' | 'journal' | 'delivery' | 'ledger' | 'archive';
  readonly name: string | null;
  readonly details: string;
}

/** An erasure with its internal ids. */
export interface StoredErasure extends Erasure {
  readonly id: number;
  /** Internal id of the app. */
  readonly app: number;
  /** Milliseconds since 1970: events from here on are not looked at. */
  readonly coversUntil: number;
  readonly sealedConditions: Uint8Array | null;
}

const MAX_REASON = 500;

/** An app that is not deleted. @throws Refused appNotFound */
export async function requireApp(
  sql: Sql,
  appId: string,
): Promise<{ readonly id: number; readonly appId: string }> {
  const [app] = await sql<{ id: number }[]>`
    SELECT id FROM apps WHERE public_id = ${appId} AND removed_at IS NULL`;
  if (app === undefined) throw appNotFound(appId);
  return { id: app.id, appId };
}

export interface AskedErasure {
  readonly app: { readonly id: number; readonly appId: string };
  readonly action: ErasureAction;
  readonly conditions: ErasureConditions;
  readonly reason: string | null;
  readonly by?: Actor;
  /** How many events match, as was told before. */
  readonly matching: number;
  /** Milliseconds since 1970: the instant it is asked for, and that up to which events may be dated. */
  readonly askedAt: number;
  readonly coversUntil: number;
}

/** @throws Refused invalidBody for a reason that is too long */
export function checkReason(reason: string | null): void {
  if (reason !== null && reason.length > MAX_REASON)
    throw refused('invalidBody', `a reason has at most ${MAX_REASON} characters`);
}

/** Writes down what is asked for: from here on it is done, whatever happens to this process. */
export async function askErasure(sql: Sql, secret: Secret, asked: AskedErasure): Promise<StoredErasure> {
  const { app, action, conditions, reason, by = COMMAND_LINE, matching } = asked;
  checkReason(reason);
  const erasureId = createPublicId('ers');
  const sealed = seal(secret.sealingKey, JSON.stringify(conditions.texts), digestOf(erasureId));
  await sql.begin('isolation level read committed', async (tx) => {
    await tx`
      INSERT INTO erasures (public_id, app_id, action, actor, reason, condition_hmac, sealed_conditions, asked_at, covers_until)
      VALUES (${erasureId}, ${app.id}, ${action}, ${nameOf(by)}, ${reason}, ${conditionHmac(secret, app.appId, conditions.texts)},
              ${sealed}, ${new Date(asked.askedAt)}, ${new Date(asked.coversUntil)})`;
    await forgetRefusals(tx, app.id);
    const details = { erasureId, what: action, events: matching };
    await writeAudit(tx, { appId: app.id, by, action: 'erasure.ask', details });
  });
  return await requireErasure(sql, erasureId);
}

function nameOf(by: Actor): string {
  return by === 'command line' ? by : by.email;
}

/** The conditions of an erasure that runs. @throws OperatorError where another secret has sealed them */
export function openConditions(
  secret: Secret,
  { erasureId, sealedConditions }: StoredErasure,
): readonly string[] {
  const text =
    sealedConditions === null ? null : unseal(secret.sealingKey, sealedConditions, digestOf(erasureId));
  if (text === null)
    throw new OperatorError(
      `the conditions of the erasure ${erasureId} are sealed under another SECRET: restore it, and it goes on`,
    );
  // Only askErasure() writes it.
  return JSON.parse(text) as string[];
}

/** Ends an erasure, and forgets its conditions. */
export async function finishErasure(
  tx: Transaction,
  { id, app, erasureId }: StoredErasure,
  receipt: Receipt,
  finishedAt: number,
): Promise<void> {
  await tx`
    UPDATE erasures SET finished_at = ${new Date(finishedAt)}, receipt = ${JSON.stringify(receipt)}::text::json, sealed_conditions = NULL
     WHERE id = ${id}`;
  // The answer of an endpoint may repeat what it was sent.
  await tx`
    UPDATE webhook_tries SET problem = 'answered ' || status
     WHERE problem IS NOT NULL AND status IS NOT NULL AND webhook_id IN (SELECT webhooks.id FROM webhooks WHERE app_id = ${app})`;
  await tx`UPDATE delivery_messages SET problem = NULL WHERE app_id = ${app}`;
  const details = { erasureId, events: receipt.events };
  await writeAudit(tx, { appId: app, by: COMMAND_LINE, action: 'erasure.finish', details });
}

/** Notes an erasure of an earlier database, which a backup without it was restored to. */
export async function insertEarlier(
  sql: Sql,
  app: number,
  earlier: Omit<Erasure, 'receipt' | 'appId'>,
): Promise<void> {
  const { erasureId, action, by, reason, conditionHmac: hmac, askedAt } = earlier;
  await sql`
    INSERT INTO erasures (public_id, app_id, action, actor, reason, condition_hmac, asked_at, covers_until)
    VALUES (${erasureId}, ${app}, ${action}, ${by}, ${reason}, ${Buffer.from(hmac, 'hex')}, ${askedAt}, ${askedAt})
    ON CONFLICT (public_id) DO NOTHING`;
}

const COLUMNS = `
  erasures.id, app_id AS app, erasures.public_id AS "erasureId", apps.public_id AS "appId", action, actor AS by, reason,
  encode(condition_hmac, 'hex') AS "conditionHmac", asked_at AS "askedAt", finished_at AS "finishedAt", receipt,
  (extract(epoch FROM covers_until) * 1000)::float8 AS "coversUntil", sealed_conditions AS "sealedConditions"`;

/** @throws Refused notFound */
export async function requireErasure(sql: Sql, erasureId: string): Promise<StoredErasure> {
  const [found] = await sql<StoredErasure[]>`
    SELECT ${sql.unsafe(COLUMNS)} FROM erasures JOIN apps ON apps.id = app_id WHERE erasures.public_id = ${erasureId}`;
  if (found === undefined) throw refused('notFound', `there is no erasure ${JSON.stringify(erasureId)}`);
  return found;
}

/** The erasures of an app, newest first. */
export async function listErasures(sql: Sql, app: number): Promise<readonly StoredErasure[]> {
  return await sql<StoredErasure[]>`
    SELECT ${sql.unsafe(COLUMNS)} FROM erasures JOIN apps ON apps.id = app_id WHERE app_id = ${app} ORDER BY erasures.id DESC LIMIT 1000`;
}

/** Erasures that run, or have been left, oldest first, with the account whose turns they take: that of the app's owner. */
export async function unfinishedErasures(
  sql: Sql,
): Promise<readonly { readonly erasureId: string; readonly account: string }[]> {
  return await sql<{ erasureId: string; account: string }[]>`
    SELECT public_id AS "erasureId",
           coalesce((SELECT min(user_id)::text FROM app_members WHERE app_members.app_id = erasures.app_id AND role = 'owner'),
                    'app ' || app_id) AS account
      FROM erasures WHERE finished_at IS NULL ORDER BY id`;
}

/** The finished erasures, oldest first. */
export async function finishedErasures(sql: Sql): Promise<readonly StoredErasure[]> {
  return await sql<StoredErasure[]>`
    SELECT ${sql.unsafe(COLUMNS)} FROM erasures JOIN apps ON apps.id = app_id WHERE finished_at IS NOT NULL ORDER BY erasures.id`;
}
