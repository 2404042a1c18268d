/**
 * The retention boundary: the time before which events are gone. Every read applies it in its own snapshot.
 *
 * The boundary of all apps follows RETENTION_DAYS. An app may have a later one, and types of it other ones than the app: then a read
 * of several types is cut in time where their boundaries are, and each part is of all types, of all but some, or of a list
 * ({@link Retention.parts}).
 */

import { utcDay } from '../base/time-units.ts';
import type { Interval } from './counts/intervals.ts';
import { ALL_TYPES, DAY_MS, floorTo } from './counts/levels.ts';
import type { Snapshot } from './counts/stale.ts';
import { type Fragment, type Sql, type Transaction, unlessLocked } from './database/connect.ts';
import { timeLiteral } from './fields/row-filter.ts';

/** How long a move waits for imports: folds come after it in the same round. */
const LOCK_TIMEOUT_MS = 1_000;

/** The boundary in milliseconds since 1970, 0 if there is none. */
export async function readBoundary(sql: Sql | Transaction): Promise<number> {
  const [row] = await sql<{ boundary: number }[]>`
    SELECT (extract(epoch FROM greatest(readable_from, '1970-01-01Z')) * 1000)::float8 AS boundary FROM retention`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  return row.boundary;
}

/** Which types: internal ids; null: all of an app, but for those that are left out. */
export interface TypeScope {
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes?: readonly number[];
}

/** What can be read from one instant on, up to the next part. */
export interface ReadablePart extends Interval {
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes: readonly number[];
}

/** From where on the events of an app can be read. Times are milliseconds since 1970, at least 0. */
export class Retention {
  /** The boundary of all types that have none of their own. */
  readonly boundary: number;
  /** Internal id of a type → its own boundary. */
  readonly own: ReadonlyMap<number, number>;
  /** The end of the last day whose rows are in the archive alone; 0: there is none. */
  readonly archivedUntil: number;

  constructor(boundary: number, own: ReadonlyMap<number, number> = new Map(), archivedUntil = 0) {
    this.boundary = boundary;
    this.own = own;
    this.archivedUntil = archivedUntil;
  }

  boundaryOf(typeId: number): number {
    return this.own.get(typeId) ?? this.boundary;
  }

  /** Before it no event of these types can be read. */
  first(types: TypeScope = ALL_OF_APP): number {
    return Math.min(...this.#boundariesOf(types));
  }

  /** From it on all of them can. */
  whole(types: TypeScope = ALL_OF_APP): number {
    return Math.max(...this.#boundariesOf(types));
  }

  /** What of an interval can be read, in order of time. */
  parts(types: TypeScope, { from, until }: Interval): ReadablePart[] {
    const cuts = this.#boundariesOf(types);
    return cuts
      .map((cut, index) => ({
        from: Math.max(from, cut),
        until: Math.min(until, cuts[index + 1] ?? until),
        ...this.#readableAt(types, cut),
      }))
      .filter((part) => part.from < part.until && part.typeIds?.length !== 0);
  }

  /** The boundaries of types, each once, ascending. */
  #boundariesOf({ typeIds, exceptTypes = [] }: TypeScope): readonly number[] {
    const boundaries =
      typeIds === null
        ? [
            this.boundary,
            ...[...this.own.keys()]
              .filter((id) => !exceptTypes.includes(id))
              .map((id) => this.boundaryOf(id)),
          ]
        : typeIds.map((id) => this.boundaryOf(id));
    if (boundaries.length === 0) return [this.boundary];
    return [...new Set(boundaries)].sort((a, b) => a - b);
  }

  #readableAt(
    { typeIds, exceptTypes = [] }: TypeScope,
    at: number,
  ): Pick<ReadablePart, 'typeIds' | 'exceptTypes'> {
    if (typeIds !== null)
      return { typeIds: typeIds.filter((id) => this.boundaryOf(id) <= at), exceptTypes: [] };
    const own = [...this.own].filter(([id]) => !exceptTypes.includes(id));
    if (this.boundary > at)
      return { typeIds: own.filter(([, own]) => own <= at).map(([id]) => id), exceptTypes: [] };
    return {
      typeIds: null,
      exceptTypes: [...exceptTypes, ...own.filter(([, own]) => own > at).map(([id]) => id)],
    };
  }

  /** A condition on rows of `events` of the app. */
  readable(tx: Sql | Transaction): Fragment {
    const first = new Date(this.first());
    if (this.own.size === 0) return tx`created_at >= ${first}`;
    const types = [...this.own.keys()];
    const boundaries = types.map((id) => new Date(this.boundaryOf(id)).toISOString());
    return tx`(created_at >= ${first} AND created_at >= coalesce(
                (${boundaries}::timestamptz[])[array_position(${types}::integer[], type_id)], ${new Date(this.boundary)}))`;
  }

  /** The condition of readable rows as text. */
  readableText(): string {
    const first = `created_at >= ${timeLiteral(this.first())}`;
    if (this.own.size === 0) return first;
    const types = [...this.own].map(([id, own]) => `WHEN ${id} THEN created_at >= ${timeLiteral(own)}`);
    return `(${first} AND CASE type_id ${types.join(' ')} ELSE created_at >= ${timeLiteral(this.boundary)} END)`;
  }
}

const ALL_OF_APP: TypeScope = { typeIds: null };

/** The retention of an app, in a transaction that of its snapshot. */
export async function readRetention(sql: Sql | Transaction | Snapshot, appId: number): Promise<Retention> {
  return await ('once' in sql
    ? sql.once.get(`retention ${appId}`, () => selectRetention(sql, appId))
    : selectRetention(sql, appId));
}

async function selectRetention(sql: Sql | Transaction, appId: number): Promise<Retention> {
  const [row] = await sql<RetentionRow[]>`SELECT ${retentionColumns(sql, appId)}`;
  if (row === undefined) throw new Error('The table retention has lost its row.');
  return retentionOfRow(row);
}

/** What {@link retentionColumns} select. */
export interface RetentionRow {
  readonly all: number;
  readonly types: readonly number[];
  readonly boundaries: readonly number[];
  readonly lastDay: number | null;
}

/** The columns of a SELECT that tell the retention of an app, whatever else it selects. */
export function retentionColumns(tx: Sql | Transaction, appId: number): Fragment {
  return tx`
    (SELECT (extract(epoch FROM greatest(own.readable_from, '1970-01-01Z')) * 1000)::float8 FROM retention AS own) AS all,
    ARRAY(SELECT own.type_id FROM app_boundaries AS own WHERE own.app_id = ${appId} ORDER BY own.type_id) AS types,
    ARRAY(SELECT (extract(epoch FROM greatest(own.readable_from, '1970-01-01Z')) * 1000)::float8 FROM app_boundaries AS own
           WHERE own.app_id = ${appId} ORDER BY own.type_id) AS boundaries,
    (SELECT (extract(epoch FROM max(day)) * 1000)::float8 FROM archived_parts WHERE app_id = ${appId}) AS "lastDay"`;
}

export function retentionOfRow({ all, types, boundaries, lastDay }: RetentionRow): Retention {
  return retentionOf(
    all,
    types.map((typeId, index) => ({ typeId, boundary: boundaries[index] ?? 0 })),
    lastDay === null ? 0 : lastDay + DAY_MS,
  );
}

/**
 * The retention of an app from its rows.
 * @param all  the boundary of all apps, of which and their own the later one applies
 * @param rows that of type {@link ALL_TYPES} is of all types without one
 * @param archivedUntil as {@link Retention.archivedUntil}
 */
export function retentionOf(
  all: number,
  rows: readonly { readonly typeId: number; readonly boundary: number }[],
  archivedUntil = 0,
): Retention {
  const own = new Map(rows.map(({ typeId, boundary }) => [typeId, Math.max(all, boundary)]));
  const ofApp = own.get(ALL_TYPES) ?? all;
  own.delete(ALL_TYPES);
  return new Retention(ofApp, own, archivedUntil);
}

/** A SELECT of `readable_from`, from where on the types of an app that have no boundary of their own can be read. */
export function selectBoundary(tx: Transaction, appId: number): Fragment {
  return tx`
    SELECT greatest(readable_from, (SELECT own.readable_from FROM app_boundaries AS own
                                     WHERE own.app_id = ${appId} AND own.type_id = ${ALL_TYPES})) AS readable_from
      FROM retention`;
}

/**
 * Moves the boundary forward to the start of a UTC day, if due. It never moves back. Imports hold it until they commit; where it
 * is not free in time, it stays, and a later call moves it. So it does for a day while declared fields are yet to be counted before it.
 * @param options.days RETENTION_DAYS; 0 does not move the boundary
 * @returns the previous boundary as PostgreSQL's text
 */
export async function moveBoundary(sql: Sql, { days, now }: { days: number; now: number }): Promise<string> {
  const due = utcDay(days === 0 ? 0 : now - days * DAY_MS);
  const [before] = await sql<{ boundary: string; isDue: boolean; mayWait: boolean }[]>`
    SELECT readable_from::text AS boundary,
           ${days > 0} AND readable_from < ${due}::date::timestamp AT TIME ZONE 'UTC' AS "isDue",
           readable_from >= (${due}::date - 1)::timestamp AT TIME ZONE 'UTC' AS "mayWait"
      FROM retention`;
  if (before === undefined) throw new Error('The table retention has lost its row.');
  if (!before.isDue) return before.boundary;
  if (before.mayWait) {
    const [uncounted] = await sql`
      SELECT FROM uncounted_minutes WHERE bucket < ${due}::date::timestamp AT TIME ZONE 'UTC' LIMIT 1`;
    if (uncounted !== undefined) return before.boundary;
  }
  await unlessLocked(() =>
    sql.begin(async (tx) => {
      await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
      await tx`
        UPDATE retention SET readable_from = ${due}::date::timestamp AT TIME ZONE 'UTC'
         WHERE readable_from < ${due}::date::timestamp AT TIME ZONE 'UTC'`;
    }),
  );
  return before.boundary;
}

/**
 * Whether every snapshot in use is newer than the boundary. Another process may just have moved it, and a reader with an
 * older snapshot must still find the rows that it has counted.
 * @param table what holds the boundary, where it has another name
 */
export async function hasNoOlderSnapshot(sql: Sql, table = 'retention'): Promise<boolean> {
  const [older] = await sql`
    SELECT FROM pg_stat_activity, ${sql(table)} AS retention
     WHERE datname = current_database() AND age(backend_xmin) >= age(retention.xmin)
       AND pid <> pg_backend_pid()
     LIMIT 1`;
  return older === undefined;
}

/** A rule of an app or a type, as it is stored. */
interface RuleRow {
  /** Internal id; {@link ALL_TYPES}: of all types without a rule of their own. */
  readonly typeId: number;
  /** 0: forever; null: no longer a rule, but what it has hidden stays so. */
  readonly days: number | null;
  readonly readableFrom: number;
}

/** The retention of an app as its rules have it, where the apps are: for writers. */
export async function readRules(sql: Sql | Transaction, appId: number): Promise<Retention> {
  const [all, rows] = await Promise.all([readBoundary(sql), selectRules(sql, appId)]);
  return retentionOf(
    all,
    rows.map(({ typeId, readableFrom }) => ({ typeId, boundary: readableFrom })),
  );
}

function selectRules(sql: Sql | Transaction, appId: number): PromiseLike<RuleRow[]> {
  return sql<RuleRow[]>`
    SELECT coalesce(type_id, ${ALL_TYPES}) AS "typeId", days,
           (extract(epoch FROM greatest(readable_from, '1970-01-01Z')) * 1000)::float8 AS "readableFrom"
      FROM retention_rules WHERE app_id = ${appId} ORDER BY 1`;
}

/**
 * Moves the boundaries of an app forward to where its rules have them, at the start of a UTC day. They never move back. The app is locked:
 * imports hold it until they commit, so that none stores what is hidden by then.
 */
export async function moveBoundariesOf(tx: Transaction, appId: number, now: number): Promise<void> {
  const [all, rules] = [await readBoundary(tx), await selectRules(tx, appId)];
  const due = ({ days, readableFrom }: RuleRow): number =>
    days === null || days === 0 ? readableFrom : Math.max(readableFrom, floorTo(now - days * DAY_MS, DAY_MS));
  const ofApp = rules.find(({ typeId }) => typeId === ALL_TYPES);
  const below = Math.max(all, ofApp === undefined ? 0 : due(ofApp));
  const [removed = { until: '-infinity' }] = await tx<{ until: string }[]>`
    SELECT removed_until::text AS until FROM app_boundaries WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}`;
  const isOver = (rule: RuleRow): boolean =>
    rule.days === null && due(rule) <= (rule.typeId === ALL_TYPES ? all : below);
  for (const rule of rules) if (isOver(rule)) await endRule(tx, appId, rule.typeId);
  const kept = rules.filter((rule) => !isOver(rule));
  if (kept.length === 0) return;
  const types = kept.map(({ typeId }) => typeId);
  const boundaries = kept.map((rule) => new Date(due(rule)).toISOString());
  await tx`
    INSERT INTO app_boundaries AS known (app_id, type_id, readable_from, removed_until, moved_at)
    SELECT ${appId}::integer, type_id, readable_from, ${removed.until}::text::timestamptz, ${new Date(now)}::timestamptz
      FROM unnest(${types}::integer[], ${boundaries}::timestamptz[]) AS moved (type_id, readable_from)
    ON CONFLICT (app_id, type_id) DO UPDATE SET readable_from = excluded.readable_from, moved_at = excluded.moved_at
     WHERE known.readable_from < excluded.readable_from`;
  await tx`
    UPDATE retention_rules SET readable_from = moved.readable_from
      FROM unnest(${types}::integer[], ${boundaries}::timestamptz[]) AS moved (type_id, readable_from)
     WHERE app_id = ${appId} AND coalesce(retention_rules.type_id, ${ALL_TYPES}) = moved.type_id
       AND retention_rules.readable_from < moved.readable_from`;
}

/** Removes what a rule has left, where it hides no more than another one. Rows that it has kept are due to go with those of the app. */
async function endRule(tx: Transaction, appId: number, typeId: number): Promise<void> {
  await tx`DELETE FROM retention_rules WHERE app_id = ${appId} AND coalesce(type_id, ${ALL_TYPES}) = ${typeId}`;
  const [ended] = await tx<{ until: string }[]>`
    SELECT removed_until::text AS until FROM app_boundaries WHERE app_id = ${appId} AND type_id = ${typeId}`;
  if (ended === undefined) return;
  await tx`DELETE FROM app_boundaries WHERE app_id = ${appId} AND type_id = ${typeId}`;
  await tx`
    UPDATE app_boundaries SET removed_until = least(removed_until, ${ended.until}::text::timestamptz)
     WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}`;
}

/** Moves the boundaries of all apps that are due. An app that others hold is moved by a later call. */
export async function moveAppBoundaries(sql: Sql, now: number): Promise<void> {
  const due = await sql<{ id: number }[]>`
    SELECT DISTINCT app_id AS id FROM retention_rules AS rule CROSS JOIN retention
     WHERE days > 0 AND rule.readable_from < date_trunc('day', ${new Date(now)}::timestamptz - days * interval '24 hours', 'UTC')
        OR days IS NULL AND rule.readable_from <= greatest(retention.readable_from, (
             SELECT ofapp.readable_from FROM retention_rules AS ofapp
              WHERE ofapp.app_id = rule.app_id AND ofapp.type_id IS NULL AND rule.type_id IS NOT NULL))
     ORDER BY id`;
  for (const { id } of due)
    await unlessLocked(() =>
      sql.begin('isolation level read committed', async (tx) => {
        await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
        await tx`SELECT FROM apps WHERE id = ${id} FOR UPDATE`;
        await moveBoundariesOf(tx, id, now);
      }),
    );
}
