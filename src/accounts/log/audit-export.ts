/**
 * The audit log as JSON lines, in the order of entry ids, which is stable: an entry that is exported keeps its place, and none
 * appears before it later. So an export continues after the last `entryId` of an earlier one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fragment, Sql } from '../../storage/database/connect.ts';
import type { AuditEntry } from './audit.ts';

export interface AuditScope {
  /** Internal id; null: all apps, and the entries of accounts. */
  readonly appId: number | null;
  /** Milliseconds since the Unix epoch, `[from, until)`; null: unbounded. */
  readonly from: number | null;
  readonly until: number | null;
  /** The last entryId of an earlier export; 0: from the beginning. */
  readonly after: number;
}

/** Entries read by one statement, and written as one part. */
const PAGE = 500;

/** Transactions that write entries take milliseconds. */
const LOOK_EVERY_MS = 20;
const MOST_LOOKS = 250;

/**
 * The last entry that can be exported: every lower id that was drawn is committed, or never will be. A transaction has locked the
 * table before it draws an id, whichever release it is of, so those that hold such a lock now are all that may commit a lower one.
 * They are looked at, not waited for: a waiting lock would hold up those who write entries. Later ones draw higher ids.
 * @param mostLooks how often they are looked at
 * @returns null if one of them had not ended by then, by default within five seconds
 */
export async function auditHorizon(sql: Sql, mostLooks = MOST_LOOKS): Promise<number | null> {
  // The locks are read after the snapshot that the highest entry is of.
  const [now] = await sql<{ last: number; writers: string[] }[]>`
    SELECT (SELECT coalesce(max(id), 0)::float8 FROM audit_entries) AS last, ARRAY(${writersOf(sql)}) AS writers`;
  if (now === undefined) throw new Error('SELECT of the last entry returned no row');
  let { writers } = now;
  for (let looks = 1; writers.length > 0; looks += 1) {
    if (looks === mostLooks) return null;
    await sleep(LOOK_EVERY_MS);
    const left = await sql<{ writer: string }[]>`
      SELECT writer FROM (${writersOf(sql)}) AS writers (writer) WHERE writer = ANY(${writers})`;
    writers = left.map(({ writer }) => writer);
  }
  return now.last;
}

/** Transactions that write entries. */
function writersOf(sql: Sql): Fragment {
  return sql`
    SELECT virtualtransaction FROM pg_locks
     WHERE locktype = 'relation' AND relation = 'audit_entries'::regclass AND mode = 'RowExclusiveLock' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
}

interface ExportedEntry extends Omit<AuditEntry, 'details'> {
  /** Null: an account was changed, or the app is gone. */
  readonly appId: string | null;
  /** The account that was changed; null: an app was, or the account is gone. */
  readonly userId: string | null;
  readonly actorId: string | null;
  readonly details: unknown;
}

/** Some entries at a time, one a line. @param horizon from {@link auditHorizon} */
export async function* auditLines(
  sql: Sql,
  { appId, from, until, after }: AuditScope,
  horizon: number,
): AsyncGenerator<{ lines: Buffer; entries: number; lastEntryId: number }> {
  let last = after;
  for (;;) {
    const rows = await sql<ExportedEntry[]>`
      SELECT entry.id::float8 AS "entryId", entry.at, apps.public_id AS "appId", account.public_id AS "userId",
             entry.actor, person.public_id AS "actorId", entry.action, entry.details
        FROM audit_entries AS entry
        LEFT JOIN apps ON apps.id = entry.app_id
        LEFT JOIN users AS account ON account.id = entry.account_id
        LEFT JOIN users AS person ON person.id = entry.user_id
       WHERE ${appId === null ? sql`true` : sql`entry.app_id = ${appId}`}
         AND entry.id > ${last} AND entry.id <= ${horizon}
         AND (${from}::timestamptz IS NULL OR entry.at >= ${from}) AND (${until}::timestamptz IS NULL OR entry.at < ${until})
       ORDER BY entry.id
       LIMIT ${PAGE}`;
    const end = rows.at(-1);
    if (end === undefined) return;
    const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
    yield { lines: Buffer.from(lines), entries: rows.length, lastEntryId: end.entryId };
    last = end.entryId;
  }
}
