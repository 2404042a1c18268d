/** How long the revocation of a token can be undone, and what is the same of browser keys and producers. */

import { holdMaintained, lockAppOf } from '../accounts/people/members.ts';
import { appNotFound } from '../errors.ts';
import type { Fragment, Sql, Transaction } from '../storage/database/connect.ts';
import { judgedTime } from '../storage/maintenance/time-judge.ts';

const UNDO_HOURS = 24;
/** Revoked tokens of an app that stay in lists; the earliest are removed. */
const MAX_REVOKED = 100;

/** A token as lists have it: where its revocation cannot be undone, they say nothing of that. */
export function withoutNull<Row extends { restorableUntil: Date | null }>({
  restorableUntil: until,
  ...row
}: Row): Omit<Row, 'restorableUntil'> & { readonly restorableUntil?: Date } {
  return until === null ? row : { ...row, restorableUntil: until };
}

/** Until when a revocation can be undone, by the database's clock; NULL where it no longer can. @param at when it was revoked */
export function restorableUntil(sql: Sql | Transaction, at: Fragment): Fragment {
  const ends = sql`${at} + make_interval(hours => ${UNDO_HOURS})`;
  return sql`CASE WHEN ${ends} > ${judgedTime(sql)} THEN ${ends} END`;
}

/** Locks an app whose tokens somebody creates, so that those of the same time do not exceed a limit together. @throws Refused appNotFound */
export async function lockMaintained(tx: Transaction, appId: string, userId: number | null): Promise<number> {
  const id = await lockAppOf(tx, appId);
  if (userId !== null && !(await holdMaintained(tx, userId, [id])).has(id)) throw appNotFound(appId);
  return id;
}

export async function removeRevoked(
  tx: Transaction,
  table: 'browser_keys' | 'producers',
  appId: number,
): Promise<void> {
  await tx`
    DELETE FROM ${tx(table)}
     WHERE id IN (SELECT id FROM ${tx(table)} WHERE app_id = ${appId} AND revoked_at IS NOT NULL
                   ORDER BY revoked_at DESC, id DESC OFFSET ${MAX_REVOKED})`;
}
