/** The audit log: who changed which member, token, app or account. Written in the transaction of the change itself. */
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { User } from '../people/users.ts';

/** Who makes a change: a signed-in user, or the operator on the command line. Without an id: a token, by its kind and name. */
export type Actor = { readonly userId: number | null; readonly email: string } | 'command line';

export const COMMAND_LINE: Actor = 'command line';

export type AuditAction =
  | 'app.create'
  | 'app.rename'
  | 'app.limit'
  | 'app.search'
  | 'app.delete'
  | 'app.restore'
  | 'app.erase'
  | 'app.suspend'
  | 'app.resume'
  | 'type.create'
  | 'type.rename'
  | 'type.hide'
  | 'type.show'
  | 'type.annotate'
  | 'type.count'
  | 'field.add'
  | 'field.backfill'
  | 'field.unit'
  | 'field.remove'
  | 'redaction.add'
  | 'redaction.remove'
  | 'erasure.ask'
  | 'erasure.finish'
  | 'retention.set'
  | 'consumer.add'
  | 'consumer.seek'
  | 'consumer.skip'
  | 'consumer.remove'
  | 'webhook.add'
  | 'webhook.pause'
  | 'webhook.resume'
  | 'webhook.skip'
  | 'webhook.rotate'
  | 'webhook.keep'
  | 'webhook.disable'
  | 'webhook.remove'
  | 'alert.add'
  | 'alert.change'
  | 'alert.pause'
  | 'alert.resume'
  | 'alert.remove'
  | 'view.save'
  | 'view.remove'
  | 'board.create'
  | 'board.change'
  | 'board.remove'
  | 'share.create'
  | 'share.revoke'
  | 'annotation.add'
  | 'annotation.remove'
  | 'type.schema-set'
  | 'type.schema-remove'
  | 'logging-token.rotate'
  | 'producer.create'
  | 'producer.rotate'
  | 'producer.revoke'
  | 'producer.restore'
  | 'resource-token.create'
  | 'resource-token.revoke'
  | 'resource-token.restore'
  | 'resource-token.keep'
  | 'browser-key.create'
  | 'browser-key.revoke'
  | 'browser-key.restore'
  | 'member.add'
  | 'member.role'
  | 'member.remove'
  | 'member.leave'
  | 'member.group'
  | 'member.group-end'
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
  | 'second-factor.guessing'
  | 'second-factor.lock'
  | 'recovery-codes.create'
  | 'recovery-code.use'
  | 'identity.join'
  | 'identity.leave'
  | 'account.suspend'
  | 'account.resume';

/** Changes of the installation, which the operator alone sees. */
export type InstallationAction = 'management-token.create' | 'management-token.revoke';

/** Details of the change: names and public identifiers, never a token, a link or a password. */
export type AuditDetails = Readonly<Record<string, string | number | null>>;

export interface AuditEntry {
  /** Public, though it is a number: where the next page, or the next export, begins. */
  readonly entryId: number;
  readonly at: Date;
  readonly actor: string;
  readonly action: AuditAction | AccountAction;
  readonly details: AuditDetails;
}

const PAGE = 50;

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

/** Writes an entry of a change of the installation. */
export async function writeInstallationAudit(
  tx: Transaction,
  entry: { by: Actor; action: InstallationAction; details: AuditDetails },
): Promise<void> {
  await insertEntry(tx, { ...entry, appId: null, accountId: null });
}

/** Who acted, for people. */
export function actorName(by: Actor): string {
  return by === 'command line' ? by : by.email;
}

async function insertEntry(
  tx: Transaction,
  entry: {
    appId: number | null;
    accountId: number | null;
    by: Actor;
    action: AuditAction | AccountAction | InstallationAction;
    details: AuditDetails;
  },
): Promise<void> {
  const { appId, accountId, by, action, details } = entry;
  const userId = by === 'command line' ? null : by.userId;
  await tx`
    INSERT INTO audit_entries (app_id, account_id, user_id, actor, action, details)
    VALUES (${appId}, ${accountId}, ${userId}, ${actorName(by)}, ${action}, ${tx.json(details)})`;
}

/** What a page of the log is of: an app, or an account. Internal ids. */
export type AuditOf = { readonly appId: number } | { readonly userId: number };

/**
 * A page of the audit log of an app or an account, newest first.
 * @param before the last page's last entryId; null for the first page
 */
export async function listAudit(
  sql: Sql,
  of: AuditOf,
  before: number | null,
): Promise<{ entries: AuditEntry[]; hasMore: boolean }> {
  const rows = await sql<AuditEntry[]>`
    SELECT id::float8 AS "entryId", at, actor, action, details
      FROM audit_entries
     WHERE ${'appId' in of ? sql`app_id = ${of.appId}` : sql`account_id = ${of.userId}`}
       AND id < ${before ?? Number.MAX_SAFE_INTEGER}
     ORDER BY id DESC
     LIMIT ${PAGE + 1}`;
  return { entries: rows.slice(0, PAGE), hasMore: rows.length > PAGE };
}
