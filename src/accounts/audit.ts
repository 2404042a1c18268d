/** The audit log: who changed which member, token, app or account. Written in the transaction of the change itself. */
import type { Sql, Transaction } from '../storage/connect.ts';
import type { User } from './users.ts';

/** Who makes a change: a signed-in user, or the operator on the command line. */
export type Actor = { readonly userId: number; readonly email: string } | 'command line';

export const COMMAND_LINE: Actor = 'command line';

export type AuditAction =
  | 'app.create'
  | 'app.rename'
  | 'app.delete'
  | 'type.create'
  | 'type.rename'
  | 'type.hide'
  | 'type.show'
  | 'field.add'
  | 'field.backfill'
  | 'field.remove'
  | 'view.save'
  | 'view.remove'
  | 'annotation.add'
  | 'annotation.remove'
  | 'type.schema-set'
  | 'type.schema-remove'
  | 'logging-token.rotate'
  | 'resource-token.create'
  | 'resource-token.revoke'
  | 'resource-token.keep'
  | 'member.add'
  | 'member.role'
  | 'member.remove'
  | 'member.leave'
  | 'invitation.create'
  | 'invitation.withdraw'
  | 'invitation.accept';

/** Changes of an account, which its user alone sees. */
export type AccountAction =
  | 'sign-in.new-device'
  | 'sign-out.one'
  | 'sign-out.others'
  | 'sign-out.everywhere'
  | 'password.change'
  | 'password.reset'
  | 'second-factor.enable'
  | 'second-factor.disable'
  | 'second-factor.remove'
  | 'recovery-codes.create'
  | 'recovery-code.use';

/** Details of the change: names and public identifiers, never a token, a link or a password. */
export type AuditDetails = Readonly<Record<string, string | number | null>>;

export interface AuditEntry {
  readonly entryId: number;
  readonly at: Date;
  readonly actor: string;
  readonly action: AuditAction;
  readonly details: AuditDetails;
}

/** An entry of an account's own log. */
export interface AccountEntry extends Omit<AuditEntry, 'action'> {
  readonly action: AccountAction;
}

const PAGE = 50;

/**
 * Held by every transaction that writes entries, from before the first one's id is drawn: an export that gets the exclusive
 * lock knows that no lower id will appear.
 */
export const AUDIT_LOCK = 7_261_100_103;

/** @param entry.appId internal id of the app */
export async function writeAudit(
  tx: Transaction,
  entry: { appId: number; by: Actor; action: AuditAction; details: AuditDetails },
): Promise<void> {
  const { appId, by, action, details } = entry;
  await insertEntry(tx, { appId, accountId: null, by, action, details });
}

/** Writes an entry of a change of an account. */
export async function writeAccountAudit(
  tx: Transaction,
  entry: { user: Pick<User, 'id'>; by: Actor; action: AccountAction; details: AuditDetails },
): Promise<void> {
  const { user, by, action, details } = entry;
  await insertEntry(tx, { appId: null, accountId: user.id, by, action, details });
}

async function insertEntry(
  tx: Transaction,
  entry: {
    appId: number | null;
    accountId: number | null;
    by: Actor;
    action: AuditAction | AccountAction;
    details: AuditDetails;
  },
): Promise<void> {
  const { appId, accountId, by, action, details } = entry;
  const userId = by === 'command line' ? null : by.userId;
  const actor = by === 'command line' ? by : by.email;
  await tx`SELECT pg_advisory_xact_lock_shared(${AUDIT_LOCK})`;
  await tx`
    INSERT INTO audit_entries (app_id, account_id, user_id, actor, action, details)
    VALUES (${appId}, ${accountId}, ${userId}, ${actor}, ${action}, ${tx.json(details)})`;
}

/**
 * A page of an app's audit log, newest first.
 * @param before the last page's last entryId; null for the first page
 */
export async function listAudit(
  sql: Sql,
  appId: number,
  before: number | null,
): Promise<{ entries: AuditEntry[]; hasMore: boolean }> {
  const rows = await sql<AuditEntry[]>`
    SELECT id::float8 AS "entryId", at, actor, action, details
      FROM audit_entries
     WHERE app_id = ${appId} AND id < ${before ?? Number.MAX_SAFE_INTEGER}
     ORDER BY id DESC
     LIMIT ${PAGE + 1}`;
  return { entries: rows.slice(0, PAGE), hasMore: rows.length > PAGE };
}

/** A page of an account's own log, newest first. @param userId internal id @param before as for {@link listAudit} */
export async function listAccountAudit(
  sql: Sql,
  userId: number,
  before: number | null,
): Promise<{ entries: AccountEntry[]; hasMore: boolean }> {
  const rows = await sql<AccountEntry[]>`
    SELECT id::float8 AS "entryId", at, actor, action, details
      FROM audit_entries
     WHERE account_id = ${userId} AND id < ${before ?? Number.MAX_SAFE_INTEGER}
     ORDER BY id DESC
     LIMIT ${PAGE + 1}`;
  return { entries: rows.slice(0, PAGE), hasMore: rows.length > PAGE };
}
