/** What the database knows of the archive: which days of which apps, in which objects. */
import type { Sql } from '../storage/database/connect.ts';
import type { ParquetGroup } from './parquet.ts';

/** A row group of an object. Groups are in order of time and id, as the events in them are. */
export interface ArchivedGroup extends Omit<ParquetGroup, 'types'> {
  /** Internal id of a type → events. */
  readonly types: Readonly<Record<string, number>>;
}

/** An object with events of one day of one app. */
export interface ArchivedPart {
  readonly key: string;
  readonly events: number;
  readonly bytes: number;
  /** Digest of the file, in hexadecimal. */
  readonly sha256: string;
  /** Digest of the events: see EventDigest. */
  readonly digest: string;
  readonly firstAt: number;
  readonly lastAt: number;
  /** Absent: an earlier release has written it. */
  readonly groups?: readonly ArchivedGroup[];
  /** The sum of the last 48 bits of the ids of its events, in decimal; absent as the groups are. */
  readonly ids?: string;
  /** SHA-256 of the bytes after the last group, in hexadecimal; absent as the groups are. */
  readonly footer?: string;
}

export interface ArchivedDay {
  readonly appId: number;
  /** Public id; null: the app is gone. */
  readonly publicId: string | null;
  /** A day of UTC as YYYY-MM-DD. */
  readonly day: string;
  /** Events of the day by its counts when it was archived; {@link CHANGED}, {@link RESTORED} or {@link LOST}. */
  readonly counted: number;
  readonly events: number;
  readonly parts: readonly ArchivedPart[];
  readonly obsolete: readonly string[];
  /** Null: no attempt has ended. */
  readonly archivedAt: Date | null;
  readonly verifiedAt: Date | null;
}

/** In place of a count: the day has to be archived again. */
export const CHANGED = -1;
/** In place of a count: somebody has brought the day back. It is archived again when it is asked for by its date. */
export const RESTORED = -2;
/** In place of a count: its rows have left, and its files are not there. Only who asks for days that are lost looks for them again. */
export const LOST = -3;

export interface DayFilter {
  /** Public id; absent: all apps. */
  readonly app?: string | undefined;
  /** First and last day as YYYY-MM-DD; absent: without that end. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

/** The session lock under which objects are written and removed. Keys: 'tide' and a number. */
const TIDE = 1_953_064_037;
const ARCHIVE = 4;

/** In order of app and day. */
export async function listArchivedDays(sql: Sql, filter: DayFilter): Promise<ArchivedDay[]> {
  const { app = null, from = null, to = null } = filter;
  return await sql<ArchivedDay[]>`
    SELECT app_id AS "appId", coalesce(removed_id, public_id) AS "publicId", day::text, counted::float8, events::float8, parts, obsolete,
           archived_at AS "archivedAt", verified_at AS "verifiedAt"
      FROM archived_days LEFT JOIN apps ON apps.id = app_id
     WHERE (${app}::text IS NULL OR public_id = ${app}) AND (${from}::date IS NULL OR day >= ${from}::date)
       AND (${to}::date IS NULL OR day <= ${to}::date)
     ORDER BY app_id, day`;
}

/**
 * Notes objects before they are written, so that none is forgotten if this process ends.
 * @param keys of objects that may be there from now on
 */
export async function noteAttempt(
  sql: Sql,
  appId: number,
  day: string,
  keys: readonly string[],
): Promise<void> {
  await sql`
    INSERT INTO archived_days AS known (app_id, day, counted, events, obsolete)
    VALUES (${appId}, ${day}, -1, 0, ${sql.json([...keys])})
    ON CONFLICT (app_id, day) DO UPDATE
       SET obsolete = (SELECT jsonb_agg(DISTINCT key) FROM jsonb_array_elements(known.obsolete || excluded.obsolete) AS keys (key))`;
}

/** Makes objects the parts of a day. Earlier parts become obsolete. */
export async function noteArchived(
  sql: Sql,
  archived: Pick<ArchivedDay, 'appId' | 'day' | 'counted' | 'parts'>,
): Promise<void> {
  const { appId, day, counted, parts } = archived;
  const events = parts.reduce((sum, part) => sum + part.events, 0);
  const keys = parts.map(({ key }) => key);
  await sql`
    UPDATE archived_days
       SET counted = ${counted}, events = ${events}, archived_at = now(), verified_at = now(),
           parts = ${sql.json(parts.map(({ groups = null, ...part }) => ({ ...part, ...(groups !== null && { groups: groups.map((group) => ({ ...group })) }) })))},
           obsolete = (
             SELECT coalesce(jsonb_agg(DISTINCT key), '[]')
               FROM (SELECT jsonb_array_elements_text(obsolete) AS key
                      UNION ALL SELECT part ->> 'key' FROM jsonb_array_elements(parts) AS known (part)) AS keys
              WHERE key <> ALL (${keys}))
     WHERE app_id = ${appId} AND day = ${day}`;
}

/** Forgets objects that are removed. */
export async function noteRemoved(sql: Sql, appId: number, day: string): Promise<void> {
  await sql`UPDATE archived_days SET obsolete = '[]' WHERE app_id = ${appId} AND day = ${day}`;
}

export async function forgetDay(sql: Sql, appId: number, day: string): Promise<void> {
  await sql`DELETE FROM archived_days WHERE app_id = ${appId} AND day = ${day}`;
}

export async function noteVerified(sql: Sql, appId: number, day: string): Promise<void> {
  await sql`UPDATE archived_days SET verified_at = now() WHERE app_id = ${appId} AND day = ${day}`;
}

/** Has a day archived again, because its events have changed though their number may not have; or lets it be where it was brought back or is lost. */
export async function noteChanged(
  sql: Sql,
  appId: number,
  day: string,
  why: typeof CHANGED | typeof RESTORED | typeof LOST = CHANGED,
): Promise<void> {
  await sql`UPDATE archived_days SET counted = ${why} WHERE app_id = ${appId} AND day = ${day}`;
}

/**
 * Works on the archive as the only one.
 * @param sql a pool of one connection, whose session holds the lock
 * @returns what the work returns; null where another process works on it
 */
export async function alone<T>(sql: Sql, work: () => Promise<T>): Promise<T | null> {
  const [lock] = await sql<
    { isOurs: boolean }[]
  >`SELECT pg_try_advisory_lock(${TIDE}, ${ARCHIVE}) AS "isOurs"`;
  if (lock?.isOurs !== true) return null;
  try {
    return await work();
  } finally {
    await sql`SELECT pg_advisory_unlock(${TIDE}, ${ARCHIVE})`;
  }
}
