/** Copies rows of events from one database to another, with their changes of the counts. */
import { to as copyTo } from 'pg-copy-streams';
import { copyInto, countCopied } from '../backup/restore.ts';
import type { Interval } from '../counts/intervals.ts';
import { BULK_SESSION, BULK_TIMEOUTS, CopyConnection } from '../database/copy-connection.ts';
import { EVENT_COLUMN_NAMES } from '../write/accepted-event.ts';
import { Inserts } from '../write/inserts.ts';
import { COPY_NAME, type CopyEndpoint, type CopySides } from './endpoint.ts';

const text = (ms: number): string => new Date(ms).toISOString();

/**
 * Copies all rows of an interval of which the target has none yet, in one transaction.
 * @param apps internal ids of the apps
 * @returns how many they are
 */
export async function copyInterval(
  sides: CopySides,
  interval: Interval,
  apps: readonly number[],
): Promise<number> {
  const { to } = sides;
  const [from, until] = [text(interval.from), text(interval.until)];
  await to.engine.createPartitions(to.sql, interval);
  await to.client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  if (to.engine.restoreSettings !== undefined) await to.client.query(to.engine.restoreSettings);
  const rows = `
    SELECT ${EVENT_COLUMN_NAMES.join(', ')} FROM events
     WHERE created_at >= '${from}' AND created_at < '${until}' AND app_id = ANY ('{${apps.join()}}')`;
  const copied = await copyTable(sides, 'events', EVENT_COLUMN_NAMES, rows);
  await countCopied(to.client, to.engine.writes, { from, until });
  await to.client.query('COMMIT');
  return copied;
}

/** Rows of one INSERT: with the largest payloads some hundred megabytes. */
const MERGED_ROWS = 200;

interface MergedRow {
  readonly id: string;
  readonly appId: number;
  readonly typeId: number;
  readonly at: string;
  readonly payload: string;
}

/**
 * The rows of some apps in each second of an interval: their number, and the sum of the random digits of their ids. A sum, unlike
 * bit_xor, is added up on the nodes of a cluster.
 */
async function readSeconds(
  { sql }: CopyEndpoint,
  { from, until }: Interval,
  apps: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  const rows = await sql<{ second: number; rows: string }[]>`
    SELECT floor(extract(epoch FROM created_at))::float8 AS second,
           count(*) || ' ' || sum(('x' || right(id::text, 12))::bit(48)::bigint) AS rows
      FROM events
     WHERE created_at >= ${new Date(from)} AND created_at < ${new Date(until)} AND app_id = ANY(${[...apps]}::integer[])
     GROUP BY 1`;
  return new Map(rows.map(({ second, rows: digest }) => [second, digest]));
}

/** Copies rows of which the target has some. */
export class Merger {
  readonly #sides: CopySides;
  readonly #connection: CopyConnection;
  readonly #inserts: Inserts;

  constructor(sides: CopySides) {
    this.#sides = sides;
    const { engine, sql } = sides.to;
    const { writes } = engine;
    this.#connection = new CopyConnection(sql.pool.database, COPY_NAME, BULK_TIMEOUTS, {
      ...BULK_SESSION,
      ...writes.session,
    });
    this.#inserts = new Inserts(writes);
  }

  /**
   * Copies what the target lacks of an interval of some apps. Rows of seconds in which both have the same are not read: producers
   * add to the last minute while it is copied, and a round that sent all of it again could take longer than the one before.
   * @returns how many rows that was
   */
  async merge(interval: Interval, apps: readonly number[]): Promise<number> {
    const seconds = await this.#differing(interval, apps);
    if (seconds.length === 0) return 0;
    await this.#sides.to.engine.createPartitions(this.#sides.to.sql, interval);
    let stored = 0;
    let after: MergedRow | undefined;
    do {
      const rows: readonly MergedRow[] = await this.#read(interval, apps, seconds, after);
      if (rows.length > 0) stored += await this.#insert(rows);
      after = rows.length === MERGED_ROWS ? rows.at(-1) : undefined;
    } while (after !== undefined);
    return stored;
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  /** The seconds since 1970 in which the rows differ. */
  async #differing(interval: Interval, apps: readonly number[]): Promise<number[]> {
    const [source, target] = await Promise.all([
      readSeconds(this.#sides.from, interval, apps),
      readSeconds(this.#sides.to, interval, apps),
    ]);
    return [...source].filter(([second, rows]) => target.get(second) !== rows).map(([second]) => second);
  }

  async #read(
    interval: Interval,
    apps: readonly number[],
    seconds: readonly number[],
    after: MergedRow | undefined,
  ): Promise<readonly MergedRow[]> {
    const { rows } = await this.#sides.from.client.query<MergedRow>(
      `SELECT id::text, app_id AS "appId", type_id AS "typeId", created_at::text AS at, payload::text AS payload
         FROM events
        WHERE created_at >= $1 AND created_at < $2 AND app_id = ANY ($3::integer[])
          AND (app_id, created_at, id) > ($4::integer, $5::timestamptz, $6::uuid)
          AND floor(extract(epoch FROM created_at))::bigint = ANY ($7::bigint[])
        ORDER BY app_id, created_at, id LIMIT ${MERGED_ROWS}`,
      [
        text(interval.from),
        text(interval.until),
        apps,
        after?.appId ?? 0,
        after?.at ?? '-infinity',
        after?.id ?? '00000000-0000-0000-0000-000000000000',
        seconds,
      ],
    );
    return rows;
  }

  async #insert(rows: readonly MergedRow[]): Promise<number> {
    const columns = [
      rows.map(({ id }) => id),
      rows.map(({ appId }) => appId),
      rows.map(({ typeId }) => typeId),
      rows.map(({ at }) => at),
      rows.map(({ payload }) => payload),
    ];
    const bytes = rows.reduce((sum, { payload }) => sum + payload.length, 0);
    return (await this.#inserts.missing(this.#connection, columns, { bytes })).stored;
  }
}

/** Copies the rows of one table as they are. */
export async function copyTable(
  { from, to }: CopySides,
  table: string,
  columns: readonly string[],
  query: string,
): Promise<number> {
  const rows = from.client.query(copyTo(`COPY (${query}) TO STDOUT`));
  rows.on('error', () => undefined); // Whoever reads it throws it.
  return await copyInto(to.client, table, columns, rows);
}
