/**
 * Days whose rows have left for the archive, as writers see them. Whether rows are stored already cannot be told where the others of their
 * day are not there: so whoever stores such rows refuses days that are away, notes that they are wanted, and tries again once they are back.
 * Rows that are certainly new are stored at any time.
 */
import pg from 'pg';
import type { WriteConnection } from '../database/copy-connection.ts';
import type { EventRow } from './accepted-event.ts';
import { dateOf, dayOf } from './accepted-event.ts';

/** A UTC day of an app. */
export interface DayOfApp {
  readonly appId: number;
  /** As YYYY-MM-DD. */
  readonly day: string;
}

/** No day leaves before it has ended for so many hours; who stores rows that are younger by the clock than the other number need not look. */
export const LEAVES_AFTER_HOURS = 24;
const LOOKED_AT_HOURS = 20;
const LOOKED_AT_MS = LOOKED_AT_HOURS * 3_600_000;

/** Nothing was stored, as days of some of the rows are away. */
export class DaysAway extends Error {
  readonly days: readonly DayOfApp[];

  constructor(days: readonly DayOfApp[]) {
    super(`the rows of these days are in the archive: ${days.map(({ day }) => day).join(', ')}`);
    this.days = days;
  }
}

/** The SQLSTATE of `refuse_days_away` (sql/0003). */
const AWAY = 'TA001';

/** The days for which an error says that they are away; null where it is another error. */
export function daysAwayOf(error: unknown): readonly DayOfApp[] | null {
  if (error instanceof DaysAway) return error.days;
  if (!(error instanceof pg.DatabaseError) || error.code !== AWAY) return null;
  return (error.detail ?? '').split(',').map((one) => {
    const [appId = '', day = ''] = one.split(' ');
    return { appId: Number(appId), day };
  });
}

/** A column of the statement that inserts `inserted` (app_id, created_at): it fails where days of these rows are away. */
export const REFUSES_DAYS_AWAY = `refuse_days_away(
           array_agg(app_id) FILTER (WHERE created_at < now() - interval '${LOOKED_AT_HOURS} hours'),
           array_agg(created_at) FILTER (WHERE created_at < now() - interval '${LOOKED_AT_HOURS} hours')) AS away`;

type Placed = Pick<EventRow, 'appId' | 'createdAt'>;

/** The days of rows, each once. */
export function daysOfApps(rows: readonly Placed[]): DayOfApp[] {
  const days = new Map<string, DayOfApp>();
  // Neighbors mostly share their day.
  let last = { appId: Number.NaN, number: Number.NaN };
  for (const { appId, createdAt } of rows) {
    const number = dayOf(createdAt);
    if (number === last.number && appId === last.appId) continue;
    last = { appId, number };
    days.set(`${appId} ${number}`, { appId, day: dateOf(number) });
  }
  return [...days.values()];
}

/**
 * Looks for days that are away among those of rows that the transaction has just stored: afterwards, so that it knows of a day that left
 * while they waited for it.
 * @throws DaysAway
 */
export async function refuseDaysAway(connection: WriteConnection, rows: readonly Placed[]): Promise<void> {
  const before = Date.now() - LOOKED_AT_MS;
  const days = daysOfApps(rows.filter(({ createdAt }) => createdAt < before));
  if (days.length === 0) return;
  const { rows: found } = await connection.query<DayOfApp>(
    `SELECT DISTINCT app_id AS "appId", day::text AS day FROM archived_parts WHERE app_id = ANY($1::integer[]) AND day = ANY($2::date[])`,
    [days.map(({ appId }) => appId), days.map(({ day }) => day)],
  );
  const away = days.filter((one) => found.some(({ appId, day }) => appId === one.appId && day === one.day));
  if (away.length > 0) throw new DaysAway(away);
}

/**
 * Has days brought back by the next round of the archive.
 * @param connection without a transaction
 * @returns those that nobody had asked for before
 */
export async function wantDaysBack(
  connection: WriteConnection,
  days: readonly DayOfApp[],
): Promise<readonly DayOfApp[]> {
  const asked: DayOfApp[] = [];
  for (const one of days) {
    const { rows } = await connection.query(
      'UPDATE archived_parts SET wanted_at = now() WHERE app_id = $1::integer AND day = $2::date AND wanted_at IS NULL RETURNING part',
      [one.appId, one.day],
    );
    if (rows.length > 0) asked.push(one);
  }
  return asked;
}
