/** Consumers of an app, where the app is: their positions and leases. */
import type { Sql, Transaction } from '../database/connect.ts';
import type { Engine } from '../database/engine.ts';
import { ENGINES } from '../engines/engines.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import type { RowBuffer } from '../read/copied-rows.ts';
import { type CommittedEvents, type CommittedTexts, readCommitted, writeCommitted } from './commit-order.ts';
import { decodePosition, encodePosition, type FeedPosition } from './position.ts';
import { ReadAhead } from './read-ahead.ts';

export type ConsumerKind = 'consumer' | 'webhook';

/** Where a consumer begins. */
export type StartingPoint = 'now' | 'start' | Date;

export interface Consumer {
  readonly name: string;
  readonly kind: ConsumerKind;
  /** Names of types; empty: all. */
  readonly types: readonly string[];
  /** Conditions on payloads. */
  readonly filter: readonly string[];
  readonly createdAt: Date;
  readonly lostAt: Date | null;
  readonly leasedUntil: Date | null;
  /** Events that were acknowledged. */
  readonly delivered: number;
  /** How often a batch was handed out since events were acknowledged last. */
  readonly deliveries: number;
  /** When the oldest events that are not acknowledged were seen; null: there are none. */
  readonly waitingSince: Date | null;
  /** Whether it still reads what was stored before it began. */
  readonly isInHistory: boolean;
}

export interface Lease {
  readonly epoch: number;
  readonly position: FeedPosition;
  readonly types: readonly string[];
  readonly filter: readonly string[];
}

interface Row extends Omit<Consumer, 'isInHistory'> {
  readonly position: string;
}

/** How long whoever sets a position waits for the lock of counts. */
const LOCK_TIMEOUT_MS = 60_000;

/**
 * The consumers of all apps of a database. Ids of apps are internal ones. Times of leases are those of transactions of one statement:
 * clusters take no changes by functions such as clock_timestamp.
 */
export class ConsumerStore {
  readonly #engine: Engine;
  readonly #sql: Sql;
  readonly #ahead: ReadAhead;

  /** @param ahead what was read ahead by others of this process */
  constructor(engine: Engine, sql: Sql, ahead: ReadAhead = new ReadAhead()) {
    this.#engine = engine;
    this.#sql = sql;
    this.#ahead = ahead;
  }

  /**
   * Adds a consumer. What is committed after this call is later than its position, if it begins now.
   * @returns false if the app has one of this name
   */
  async add(
    appId: number,
    consumer: Pick<Consumer, 'name' | 'kind' | 'types' | 'filter'> & { readonly from: StartingPoint },
  ): Promise<boolean> {
    const { name, kind, types, filter, from } = consumer;
    return await this.#withTick(appId, async (tx, tick) => {
      const { count } = await tx`
        INSERT INTO consumers (app_id, name, kind, types, filter, tick, position)
        VALUES (${appId}, ${name}, ${kind}, ${[...types]}, ${[...filter]}, ${tick}::text::bigint, ${beginning(tick, from)})
        ON CONFLICT (app_id, name) DO NOTHING`;
      return count > 0;
    });
  }

  /** Has a consumer go on elsewhere; its lease ends. @returns false if there is no such consumer */
  async seek(appId: number, name: string, from: StartingPoint): Promise<boolean> {
    return await this.#withTick(appId, async (tx, tick) => {
      const { count } = await tx`
        UPDATE consumers
           SET tick = ${tick}::text::bigint, position = ${beginning(tick, from)}, lost_at = NULL,
               lease = lease + 1, leased_until = NULL, leased_to = NULL, deliveries = 0
         WHERE app_id = ${appId} AND name = ${name}`;
      return count > 0;
    });
  }

  async remove(appId: number, name: string): Promise<boolean> {
    const pool = await this.#pool(appId);
    const { count } = await pool`DELETE FROM consumers WHERE app_id = ${appId} AND name = ${name}`;
    return count > 0;
  }

  async list(appId: number, kind: ConsumerKind): Promise<readonly Consumer[]> {
    const pool = await this.#pool(appId);
    const rows = await pool<Row[]>`
      SELECT name, kind, types, filter, created_at AS "createdAt", lost_at AS "lostAt", delivered::float8, deliveries, position,
             CASE WHEN leased_until > now() AND leased_to IS NOT NULL THEN leased_until END AS "leasedUntil",
             (SELECT min(at) FROM feed_ticks AS next
               WHERE next.app_id = consumers.app_id AND next.tick > consumers.tick AND next.minutes <> '{}') AS "waitingSince"
        FROM consumers WHERE app_id = ${appId} AND kind = ${kind} ORDER BY created_at, name`;
    return rows.map(({ position, ...row }) => ({
      ...row,
      isInHistory: decodePosition(position)?.after?.by === 'history',
    }));
  }

  /**
   * Leases what comes next for a time. The epoch of an earlier lease is over.
   * @returns seconds until another one may lease, if somebody else has it
   */
  async lease(
    appId: number,
    name: string,
    leaseMs: number,
    kind: ConsumerKind = 'consumer',
  ): Promise<Lease | 'unknown' | 'lost' | { readonly leasedForSeconds: number }> {
    const pool = await this.#pool(appId);
    const [row] = await pool<{ epoch: number; position: string; types: string[]; filter: string[] }[]>`
      UPDATE consumers
         SET lease = lease + 1, leased_until = now() + make_interval(secs => ${leaseMs / 1_000}), leased_to = position
       WHERE app_id = ${appId} AND name = ${name} AND kind = ${kind} AND lost_at IS NULL
         AND (leased_to IS NULL OR leased_until <= now())
      RETURNING lease::float8 AS epoch, position, types, filter`;
    if (row !== undefined) return { ...row, position: decoded(row.position) };
    const [other] = await pool<{ isLost: boolean; seconds: number }[]>`
      SELECT lost_at IS NOT NULL AS "isLost",
             coalesce(extract(epoch FROM leased_until - now()), 0)::float8 AS seconds
        FROM consumers WHERE app_id = ${appId} AND name = ${name} AND kind = ${kind}`;
    if (other === undefined) return 'unknown';
    return other.isLost ? 'lost' : { leasedForSeconds: Math.max(1, Math.ceil(other.seconds)) };
  }

  /** Reads from a position on, whoever has the lease. */
  async read(
    appId: number,
    position: FeedPosition,
    limits: { readonly limit: number; readonly maxBytes: number },
  ): Promise<CommittedEvents> {
    const pool = await this.#pool(appId);
    return await readCommitted(ENGINES[this.#engine], pool, { appId, position, ...limits }, this.#ahead);
  }

  /** The same as the answer to a consumer has it. @param answer to which it is added */
  async write(
    appId: number,
    position: FeedPosition,
    limits: { readonly limit: number; readonly maxBytes: number },
    answer: RowBuffer,
  ): Promise<CommittedTexts> {
    const pool = await this.#pool(appId);
    const places = { ahead: this.#ahead, answer };
    return await writeCommitted(ENGINES[this.#engine], pool, { appId, position, ...limits }, places);
  }

  /**
   * Notes up to where a lease goes; without `keeps` the position moves there at once, and the lease is over.
   * @param options.passed what comes up to there is not wanted, and is not looked at again
   * @returns how often a batch was handed out since events were acknowledged last; null if the lease is not the newest any more
   */
  async granted(
    appId: number,
    name: string,
    epoch: number,
    {
      position,
      keeps,
      passed = null,
    }: { readonly position: FeedPosition; readonly keeps: boolean; readonly passed?: FeedPosition | null },
  ): Promise<number | null> {
    const pool = await this.#pool(appId);
    const reached = keeps ? passed : position;
    const move =
      reached === null
        ? pool``
        : pool`, tick = ${reached.tick}::text::bigint, position = ${encodePosition(reached)}`;
    const change = keeps
      ? pool`leased_to = ${encodePosition(position)}, deliveries = deliveries + 1`
      : pool`leased_to = NULL, leased_until = NULL, deliveries = 0`;
    const [row] = await pool<{ deliveries: number }[]>`
      UPDATE consumers SET ${change} ${move} WHERE app_id = ${appId} AND name = ${name} AND lease = ${epoch} RETURNING deliveries`;
    return row?.deliveries ?? null;
  }

  /**
   * Acknowledges events of a lease.
   * @param options.endsLease   whether the lease ends with it
   * @param options.extendsMs   or by how much it is extended from now on
   * @returns `old` if the lease has ended, or another one has begun
   */
  async acknowledge(
    appId: number,
    name: string,
    lease: {
      readonly epoch: number;
      readonly position: FeedPosition;
      readonly events: number;
      readonly extendsMs?: number;
    },
  ): Promise<'done' | 'unknown' | 'old'> {
    const { epoch, position, events, extendsMs } = lease;
    const pool = await this.#pool(appId);
    const { count } = await pool`
      UPDATE consumers
         SET tick = ${position.tick}::text::bigint, position = ${encodePosition(position)}, delivered = delivered + ${events},
             deliveries = CASE WHEN position = ${encodePosition(position)} THEN deliveries ELSE 0 END,
             leased_to = ${extendsMs === undefined ? pool`NULL` : pool`leased_to`},
             leased_until = ${extendsMs === undefined ? pool`NULL` : pool`now() + make_interval(secs => ${extendsMs / 1_000})`}
       WHERE app_id = ${appId} AND name = ${name} AND lease = ${epoch} AND leased_to IS NOT NULL AND lost_at IS NULL`;
    if (count > 0) return 'done';
    return (await this.#exists(pool, appId, name)) ? 'old' : 'unknown';
  }

  /** What a lease is for: from where to where. @returns null if it has ended */
  async leased(
    appId: number,
    name: string,
    epoch: number,
    kind: ConsumerKind = 'consumer',
  ): Promise<{ readonly from: FeedPosition; readonly to: FeedPosition } | 'unknown' | 'old'> {
    const pool = await this.#pool(appId);
    const [row] = await pool<{ position: string; leasedTo: string }[]>`
      SELECT position, leased_to AS "leasedTo" FROM consumers
       WHERE app_id = ${appId} AND name = ${name} AND kind = ${kind} AND lease = ${epoch} AND leased_to IS NOT NULL`;
    if (row !== undefined) return { from: decoded(row.position), to: decoded(row.leasedTo) };
    return (await this.#exists(pool, appId, name)) ? 'old' : 'unknown';
  }

  /** Gives a lease back: the batch comes again at once. */
  async release(appId: number, name: string, epoch: number): Promise<'done' | 'unknown' | 'old'> {
    const pool = await this.#pool(appId);
    const { count } = await pool`
      UPDATE consumers SET leased_to = NULL, leased_until = NULL, lease = lease + 1
       WHERE app_id = ${appId} AND name = ${name} AND lease = ${epoch} AND leased_to IS NOT NULL`;
    if (count > 0) return 'done';
    return (await this.#exists(pool, appId, name)) ? 'old' : 'unknown';
  }

  /** Ends the lease of whoever has it. */
  async endLease(appId: number, name: string): Promise<void> {
    const pool = await this.#pool(appId);
    await pool`
      UPDATE consumers SET leased_to = NULL, leased_until = NULL, lease = lease + 1
       WHERE app_id = ${appId} AND name = ${name}`;
  }

  /** The webhooks of all apps, by name. */
  async waiting(): Promise<
    ReadonlyMap<string, { readonly position: string; readonly hasTicks: boolean; readonly isLost: boolean }>
  > {
    const rows = await this.#sql<{ name: string; position: string; hasTicks: boolean; isLost: boolean }[]>`
      SELECT name, position, lost_at IS NOT NULL AS "isLost",
             EXISTS (SELECT FROM feed_ticks AS next
                      WHERE next.app_id = consumers.app_id AND next.tick > consumers.tick AND next.minutes <> '{}') AS "hasTicks"
        FROM consumers WHERE kind = 'webhook'`;
    return new Map(rows.map((row) => [row.name, row]));
  }

  async #exists(pool: Sql, appId: number, name: string): Promise<boolean> {
    const [row] = await pool`SELECT FROM consumers WHERE app_id = ${appId} AND name = ${name}`;
    return row !== undefined;
  }

  async #pool(appId: number): Promise<Sql> {
    return await ENGINES[this.#engine].routes(this.#sql).at(appId);
  }

  async #withTick<T>(appId: number, change: (tx: Transaction, tick: string) => Promise<T>): Promise<T> {
    return await noteTick(ENGINES[this.#engine], await this.#pool(appId), appId, change);
  }
}

/**
 * Notes a tick of an app, under the lock that keeps others from noting one meanwhile. It tells of no minutes: what has been committed
 * since the tick before is told of by the next one, so that only who begins here stops at it.
 * @param pool where the app is
 */
export async function noteTick<T>(
  engine: StorageEngine,
  pool: Sql,
  appId: number,
  change: (tx: Transaction, tick: string) => Promise<T>,
): Promise<T> {
  return await pool.begin('isolation level read committed', async (tx) => {
    await tx.unsafe(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark counts'))`;
    const place = (await engine.placeOf?.(tx, appId)) ?? 0;
    const [now] = await tx<{ tick: string; snapshot: string }[]>`
      SELECT pg_current_xact_id()::text AS tick, pg_current_snapshot()::text AS snapshot`;
    if (now === undefined) throw new Error('PostgreSQL has no snapshot.');
    await tx`
      INSERT INTO feed_ticks (app_id, tick, place, snapshot, minutes, counts)
      VALUES (${appId}, ${now.tick}::text::bigint, ${place}, ${now.snapshot}, '{}', '{}')`;
    return await change(tx, now.tick);
  });
}

function decoded(text: string): FeedPosition {
  const position = decodePosition(text);
  if (position === null) throw new Error('A position in the database cannot be read.');
  return position;
}

function beginning(tick: string, from: StartingPoint): string {
  if (from === 'now') return encodePosition({ tick, after: null });
  const at = from === 'start' ? new Date(0) : from;
  const createdAt = `${at.toISOString().slice(0, -1).replace('T', ' ')}+00`;
  return encodePosition({ tick, after: { by: 'history', createdAt, id: '' } });
}
