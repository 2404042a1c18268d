/**
 * The audit log as JSON lines, in the order of entry ids, which is stable: an entry that is exported keeps its place, and none
 * appears before it later. So an export continues after the last `entryId` of an earlier one.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from '../storage/connect.ts';
import { AUDIT_LOCK } from './audit.ts';

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
const TRY_EVERY_MS = 20;
const MAX_TRIES = 250;

/**
 * The last entry that can be exported: every lower id that was drawn is committed, or never will be.
 * @returns null if such a moment did not come within five seconds
 */
export async function auditHorizon(sql: Sql): Promise<number | null> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    if (tries > 0) await sleep(TRY_EVERY_MS);
    // Tried, not waited for: a waiting lock would hold up those who write entries, in an order that could deadlock.
    const horizon = await sql.begin('isolation level read committed', async (tx) => {
      const [lock] = await tx<{ held: boolean }[]>`SELECT pg_try_advisory_xact_lock(${AUDIT_LOCK}) AS held`;
      if (lock?.held !== true) return null;
      const [last] = await tx<{ id: number }[]>`
        SELECT coalesce(max(id), 0)::float8 AS id FROM audit_entries`;
      return last?.id ?? 0;
    });
    if (horizon !== null) return horizon;
  }
  return null;
}

interface ExportedEntry {
  readonly entryId: number;
  readonly at: Date;
  /** Null: an account was changed, or the app is gone. */
  readonly appId: string | null;
  /** The account that was changed; null: an app was, or the account is gone. */
  readonly userId: string | null;
  readonly actor: string;
  readonly actorId: string | null;
  readonly action: string;
  readonly details: unknown;
}

/** A part of an export: some entries, one a line. */
export interface AuditLines {
  readonly lines: Buffer;
  readonly entries: number;
  readonly lastEntryId: number;
}

/** @param horizon from {@link auditHorizon} */
export async function* auditLines(
  sql: Sql,
  { appId, from, until, after }: AuditScope,
  horizon: number,
): AsyncGenerator<AuditLines> {
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
