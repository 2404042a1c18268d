/** How long the revocation of a token can be undone: the same for producers, resource tokens and browser keys. */

import type { Fragment, Sql, Transaction } from '../storage/database/connect.ts';
import { judgedTime } from '../storage/maintenance/time-judge.ts';

const UNDO_HOURS = 24;

/** A row of a list of tokens. */
interface Revocable {
  readonly restorableUntil: Date | null;
}

/** A token as lists have it: where its revocation cannot be undone, they say nothing of that. */
export function withoutNull<Row extends Revocable>({
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
