/**
 * The upkeep of declared fields: begins to count new fields, counts the minutes that have changed from their rows, fills the past, and
 * removes what belongs to removed fields. Any process may do it, and be interrupted at any point.
 */

import type { Interval } from '../counts/intervals.ts';
import { DAY_MS, floorTo, HOUR_MS, MINUTE_MS } from '../counts/levels.ts';
import { type Sql, type Transaction, type Transactions, unlessLocked } from '../database/connect.ts';
import { DeadRows } from '../maintenance/dead-rows.ts';
import { readBoundary, readRetention } from '../retention.ts';
import { countMinutes } from './count-minutes.ts';
import { type FieldState, readFieldStates } from './declared-fields.ts';
import { withFieldsLocked } from './fields-lock.ts';
import { removeFieldMinutes, removeFields } from './removal.ts';
import {
  archivedUntil,
  forgetUncounted,
  joinMinutes,
  readUncounted,
  STEP_ROWS,
  stepsOf,
} from './uncounted-minutes.ts';

/** How much of each second may go into counting from rows: no other maintenance runs meanwhile. */
export const COUNT_MS = 250;
/** A minute that has ended this long ago is counted once. */
const SETTLE_MS = 5_000;
/** Present minutes are noted again each second: counting them may take this part of the time. */
const PRESENT_SHARE = 0.1;
/** A snapshot in use for so long keeps the versions of counts: present minutes are then counted less often. */
const LONG_SNAPSHOT_SECONDS = 10;
const LONG_PRESENT_MS = 60_000;
/** Uncounted minutes that are looked for at once, and the intervals of them that one transaction counts. */
const MINUTES_AT_ONCE = 1_000;
const INTERVALS_AT_ONCE = 60;
/** Uncounted minutes up to this far apart are counted in one interval, if it has few enough rows. */
const JOINED_MS = HOUR_MS;
/** After a round with as many, backfills wait for the next one. */
const MANY_MINUTES = 60;
/** Counted minutes after which their dead rows are vacuumed. */
const VACUUM_AFTER = 2_000;

/** The longest step of a backfill. */
const LONGEST_STEP_MS = 32 * DAY_MS;

/** Most uncounted minutes that are looked at for the metrics. */
const MOST_UNCOUNTED = 10_000;

/** What the upkeep of this process has seen in its last round. */
export interface FieldStats {
  /** How long changed minutes have been waiting, in seconds: since the round that was the first one not to count them. */
  readonly waitingSeconds: number;
  /** Minutes of apps that readers count from rows; at most {@link MOST_UNCOUNTED}. */
  readonly uncountedMinutes: number;
  /** Events that this process has counted as "other" so far. */
  readonly others: number;
}

/** Where fields are counted, if that is a part of a cluster: the shards of a node that hold the same apps. */
export interface FieldShards {
  /** Runs the same statements as one server. */
  readonly sql: Transactions;
  /** On the node. */
  readonly pool: Sql;
  /** The name of a table there. */
  readonly nameOf: (table: string) => string;
}

export class FieldUpkeep implements FieldStats {
  readonly #sql: Transactions;
  /** False in a cluster, where the coordinator gives fields their generation. */
  readonly #givesGenerations: boolean;
  readonly #now: () => number;
  readonly #deadMinutes: DeadRows;
  /** When the present minutes of an app are counted next. */
  readonly #presentAt = new Map<number, number>();
  /** Apps whose backfills have waited for uncounted minutes in the last round. */
  readonly #held = new Set<number>();
  /** The length of an app's next step back. */
  readonly #steps = new Map<number, number>();
  /** When minutes could not be counted for the first time since they last were; null: they were. */
  #waitingSince: number | null = null;
  #uncountedMinutes = 0;
  #others = 0;

  /**
   * @param place   a pool of one connection, or shards
   * @param vacuums a pool on which a VACUUM keeps nothing waiting; that of the place by default
   */
  constructor(
    place: Sql | FieldShards,
    now: () => number,
    vacuums: Sql = 'nameOf' in place ? place.pool : place,
  ) {
    const isPart = 'nameOf' in place;
    const { sql, pool, nameOf } = isPart
      ? place
      : { sql: place, pool: place, nameOf: (table: string) => table };
    this.#sql = sql;
    this.#givesGenerations = !isPart;
    this.#now = now;
    this.#deadMinutes = new DeadRows(pool, vacuums, [nameOf('uncounted_minutes')], VACUUM_AFTER);
  }

  get waitingSeconds(): number {
    return this.#waitingSince === null ? 0 : Math.max(0, this.#now() - this.#waitingSince) / 1_000;
  }

  get uncountedMinutes(): number {
    return this.#uncountedMinutes;
  }

  get others(): number {
    return this.#others;
  }

  /**
   * @param oldestSnapshotSeconds age of the oldest snapshot in use
   * @param countMs               how much time may go into counting from rows
   */
  async everySecond(oldestSnapshotSeconds = 0, countMs = COUNT_MS): Promise<void> {
    const work = await this.#sql.begin('isolation level read committed', readWork);
    this.#uncountedMinutes = work.uncounted;
    if (work.toBegin) await this.#begin();
    const now = this.#now();
    // Nothing is kept of apps that have nothing to wait for, or to go back to.
    for (const [appId, at] of this.#presentAt) if (at <= now) this.#presentAt.delete(appId);
    const ofWork = new Set(work.apps);
    for (const kept of [this.#held, this.#steps])
      for (const appId of kept.keys()) if (!ofWork.has(appId)) kept.delete(appId);
    const until = now + countMs;
    for (const appId of work.apps) {
      if (this.#now() >= until) break;
      let counted = 0;
      do {
        counted = await this.#countUncounted(appId, oldestSnapshotSeconds);
        this.#deadMinutes.deleted(counted);
        await this.#deadMinutes.vacuumIfDue();
      } while (counted > 0 && this.#now() < until);
      // Readers wait for uncounted minutes; but however many come, a backfill goes on every other round.
      if (this.#held.delete(appId) || counted < MANY_MINUTES) await this.#stepBack(appId);
      else this.#held.add(appId);
    }
  }

  /** Removes counts of minutes that retention has passed, and those of removed fields. */
  async everyTenMinutes(): Promise<void> {
    await removeFieldMinutes(this.#sql);
    await removeFields(this.#sql);
  }

  /**
   * New fields have a generation, which they got in a transaction of its own: whatever is folded after it is noted as uncounted. Now
   * their counting begins with a minute: that and later ones that have rows already are counted from these.
   */
  async #begin(): Promise<void> {
    if (this.#givesGenerations && !(await giveGenerations(this.#sql))) return;
    const minute = new Date(floorTo(this.#now(), MINUTE_MS));
    await withFieldsLocked(this.#sql, async (tx) => {
      const begun = await tx<{ appId: number }[]>`
        UPDATE declared_fields AS field
           SET complete_from = CASE WHEN EXISTS (SELECT FROM events WHERE events.app_id = field.app_id AND created_at < ${minute})
                                      OR EXISTS (SELECT FROM archived_parts AS away WHERE away.app_id = field.app_id)
                                    THEN ${minute}::timestamptz ELSE greatest(readable_from, to_timestamp(0)) END,
               backfill = backfill AND EXISTS (SELECT FROM events WHERE events.app_id = field.app_id AND created_at < ${minute})
          FROM retention
         WHERE removed_at IS NULL AND generation > 0 AND complete_from IS NULL
        RETURNING app_id AS "appId"`;
      await tx`
        INSERT INTO uncounted_minutes (app_id, bucket)
        SELECT DISTINCT app_id, date_bin('1 minute', created_at, 'epoch') FROM events
         WHERE app_id = ANY(${[...new Set(begun.map(({ appId }) => appId))]}) AND created_at >= ${minute}`;
      return begun.length;
    });
  }

  /** @returns how many minutes are no longer uncounted */
  async #countUncounted(appId: number, oldestSnapshotSeconds: number): Promise<number> {
    const startedAt = this.#now();
    const withPresent = startedAt >= (this.#presentAt.get(appId) ?? 0);
    const latest = withPresent ? Number.POSITIVE_INFINITY : startedAt - SETTLE_MS - MINUTE_MS;
    const counted = await withFieldsLocked(this.#sql, async (tx) => {
      const fields = await readFieldStates(tx, appId);
      const begin = Math.min(...fields.map(startOf));
      // The fields, or their app, have just been removed.
      if (begin === Number.POSITIVE_INFINITY) return 0;
      // A backfill comes to what is before. Before the boundary of all apps nothing is counted by the minute.
      const from = Math.max(await readBoundary(tx), begin);
      const { count: forgotten } = await tx`
        DELETE FROM uncounted_minutes WHERE app_id = ${appId} AND bucket < ${new Date(from)}`;
      const minutes = await readUncounted(tx, appId, latest, MINUTES_AT_ONCE);
      let [end, looked] = [0, 0];
      for (const interval of (await intervalsOf(tx, appId, minutes)).slice(0, INTERVALS_AT_ONCE)) {
        if (looked > STEP_ROWS / 2) break;
        const { rows, others } = await countMinutes(tx, appId, fields, interval, startedAt, true);
        looked += rows;
        this.#others += others;
        await forgetUncounted(tx, appId, interval);
        end = interval.until;
      }
      return forgotten + minutes.filter((at) => at < end).length;
    });
    if (counted === null) {
      this.#waitingSince ??= startedAt;
      return 0;
    }
    this.#waitingSince = null;
    const pause = oldestSnapshotSeconds > LONG_SNAPSHOT_SECONDS ? LONG_PRESENT_MS : 0;
    if (withPresent)
      this.#presentAt.set(appId, this.#now() + Math.max(pause, (this.#now() - startedAt) / PRESENT_SHARE));
    return counted;
  }

  /** Counts some time before that from which on fields of an app are complete. */
  async #stepBack(appId: number): Promise<void> {
    const length = this.#steps.get(appId) ?? HOUR_MS;
    const rows = await withFieldsLocked(this.#sql, async (tx) => {
      const fields = (await readFieldStates(tx, appId)).filter(
        ({ backfill, completeFrom }) => backfill && completeFrom !== null,
      );
      const until = Math.max(...fields.map(startOf));
      const together = fields.filter((field) => startOf(field) === until);
      if (together.length === 0) return STEP_ROWS;
      // What has left for the archive is not counted any more.
      const away = Math.min(await archivedUntil(tx, appId, until), until);
      const boundary = Math.max((await readRetention(tx, appId)).first(), away);
      const last = await lastEventBefore(tx, appId, boundary, until);
      if (last === null) {
        await moveBack(tx, together, boundary, true);
        return STEP_ROWS;
      }
      // Fields that are complete for longer join in where the others have come to them.
      const others = fields.filter((field) => startOf(field) < until).map(startOf);
      const from = Math.max(boundary, floorTo(last, MINUTE_MS) + MINUTE_MS - length, ...others);
      const counted = await countMinutes(tx, appId, together, { from, until }, this.#now());
      await moveBack(tx, together, from, false);
      return counted.rows;
    });
    if (rows === null) return;
    if (rows > 2 * STEP_ROWS) this.#steps.set(appId, Math.max(MINUTE_MS, floorTo(length / 2, MINUTE_MS)));
    else if (rows < STEP_ROWS) this.#steps.set(appId, Math.min(LONGEST_STEP_MS, length * 2));
  }
}

interface FieldWork {
  readonly toBegin: boolean;
  /** Apps with something to count from rows. */
  readonly apps: readonly number[];
  readonly uncounted: number;
}

async function readWork(tx: Transaction): Promise<FieldWork> {
  const [work] = await tx<FieldWork[]>`
    SELECT EXISTS (SELECT FROM declared_fields WHERE removed_at IS NULL AND complete_from IS NULL) AS "toBegin",
           (SELECT count(*)::float8 FROM (SELECT FROM uncounted_minutes LIMIT ${MOST_UNCOUNTED}) AS minutes) AS uncounted,
           ARRAY(SELECT app_id FROM declared_fields
                  WHERE removed_at IS NULL AND complete_from IS NOT NULL
                    AND (backfill OR EXISTS (SELECT FROM uncounted_minutes AS minute WHERE minute.app_id = declared_fields.app_id))
                  GROUP BY app_id ORDER BY random()) AS apps`;
  return work ?? { toBegin: false, apps: [], uncounted: 0 };
}

/**
 * Gives new fields a generation, from which on minutes are noted for them. Imports hold its row, one after the other: it is
 * tried again a second later, and nothing else waits for it.
 * @returns whether it could be done
 */
export async function giveGenerations(sql: Transactions): Promise<boolean> {
  const given = await unlessLocked(() =>
    sql.begin(async (tx) => {
      await tx`SET LOCAL lock_timeout = '500ms'`;
      return await tx`
        WITH next AS (
          UPDATE field_generation SET generation = generation + 1
           WHERE EXISTS (SELECT FROM declared_fields WHERE generation = 0 AND removed_at IS NULL)
          RETURNING generation)
        UPDATE declared_fields SET generation = next.generation FROM next
         WHERE declared_fields.generation = 0 AND removed_at IS NULL`;
    }),
  );
  return given !== null;
}

/**
 * Intervals that hold uncounted minutes: of minutes that are near each other, with what is between them, as long as all of them
 * together have no more rows than one step should look at. To count what is counted already changes nothing.
 */
async function intervalsOf(tx: Transaction, appId: number, minutes: readonly number[]): Promise<Interval[]> {
  let room = STEP_ROWS;
  return (await stepsOf(tx, appId, joinMinutes(minutes, JOINED_MS))).flatMap((step) => {
    const { from, until, rows } = step;
    room -= rows;
    return room >= 0 ? [step] : joinMinutes(minutes.filter((at) => at >= from && at < until));
  });
}

function startOf({ completeFrom }: FieldState): number {
  return completeFrom ?? Number.POSITIVE_INFINITY;
}

/** The time of the last event before an instant that can be read. */
async function lastEventBefore(
  tx: Transaction,
  appId: number,
  boundary: number,
  until: number,
): Promise<number | null> {
  const [row] = await tx<{ at: number }[]>`
    SELECT (extract(epoch FROM created_at) * 1000)::float8 AS at FROM events
     WHERE app_id = ${appId} AND created_at >= ${new Date(boundary)} AND created_at < ${new Date(until)}
     ORDER BY created_at DESC LIMIT 1`;
  return row?.at ?? null;
}

async function moveBack(
  tx: Transaction,
  fields: readonly FieldState[],
  from: number,
  isDone: boolean,
): Promise<void> {
  await tx`
    UPDATE declared_fields SET complete_from = ${new Date(from)}, backfill = ${!isDone}
     WHERE id = ANY(${fields.map(({ id }) => id)})`;
}
