/**
 * Accounts that the operator has suspended: they cannot sign in, their sessions have ended, their resource tokens are refused, and their
 * webhooks rest.
 */
import { refused } from '../../errors.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { COMMAND_LINE, writeAccountAudit } from '../log/audit.ts';
import { endSessions } from '../sessions/sessions.ts';
import type { Email } from './email.ts';
import { sendAgain } from './senders.ts';
import { lockUser, requireUser, type User } from './users.ts';

/** An account after a change of its suspension. */
export interface AccountSuspension {
  readonly user: User;
  readonly suspendedAt: Date | null;
  readonly endedSessions: number;
}

/**
 * Suspends an account. Its sessions end, sign-ins and its resource tokens are refused, and its webhooks rest until {@link resumeAccount}.
 * Its apps and their logging tokens go on.
 * @throws Refused memberNotFound
 */
export async function suspendAccount(sql: Sql, email: Email): Promise<AccountSuspension> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const user = await requireUser(tx, email);
    // A sign-in at the same time holds this row, too: no session begins after this.
    await lockUser(tx, user.id);
    const [changed] = await tx<{ at: Date }[]>`
      UPDATE users SET suspended_at = now() WHERE id = ${user.id} AND suspended_at IS NULL RETURNING suspended_at AS at`;
    const endedSessions = await endSessions(tx, user.id, null);
    if (changed !== undefined)
      await writeAccountAudit(tx, { user, by: COMMAND_LINE, action: 'account.suspend', details: {} });
    const [row] = await tx<{ at: Date | null }[]>`SELECT suspended_at AS at FROM users WHERE id = ${user.id}`;
    return { user, suspendedAt: row?.at ?? null, endedSessions };
  });
}

/**
 * Ends the suspension of an account: it can sign in, its resource tokens are valid again, and its webhooks go on.
 * @throws Refused memberNotFound, notFound where it is not suspended
 */
export async function resumeAccount(sql: Sql, email: Email): Promise<AccountSuspension> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const user = await requireUser(tx, email);
    const changed = await tx`
      UPDATE users SET suspended_at = NULL WHERE id = ${user.id} AND suspended_at IS NOT NULL RETURNING 1`;
    if (changed.length === 0) throw refused('notFound', `the account ${user.email} is not suspended`);
    await sendAgain(tx, { makerId: user.id });
    await writeAccountAudit(tx, { user, by: COMMAND_LINE, action: 'account.resume', details: {} });
    return { user, suspendedAt: null, endedSessions: 0 };
  });
}
