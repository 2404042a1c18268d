/** Compares two databases: how many events their apps have in each bucket, exact in a snapshot on every engine, and the rows themselves. */

import type { Interval } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, LEVELS, type Level } from '../counts/levels.ts';
import { exactSources } from '../counts/stale.ts';
import { readSnapshot } from '../read/snapshot.ts';
import type { CopyEndpoint, CopySides } from './endpoint.ts';

/** By the start of the bucket, then by the internal id of the app. Those without events are left out. */
export type Totals = ReadonlyMap<number, ReadonlyMap<number, number>>;

const NONE: ReadonlyMap<number, number> = new Map();

async function readTotals(
  { sql, engine }: CopyEndpoint,
  apps: readonly number[],
  level: Level,
  interval: Interval,
): Promise<Totals> {
  const rows = await readSnapshot(sql, async (tx) => {
    const sources = await exactSources(tx, [{ level, ...interval }]);
    const parts = sources.map(({ view, from, until }) => {
      const within = tx`>= ${new Date(from)} AND app_id = ANY(${[...apps]}::integer[])`;
      const source = LEVELS.find((one) => one.view === view);
      return source === undefined
        ? tx`SELECT app_id, created_at AS bucket, 1::bigint AS count FROM events
              WHERE created_at < ${new Date(until)} AND created_at ${within}`
        : tx`SELECT app_id, bucket, count FROM ${tx.unsafe(engine.totalsOfAllApps(source))} AS counts
              WHERE type_id = ${ALL_TYPES} AND bucket < ${new Date(until)} AND bucket ${within}`;
    });
    const all = parts.flatMap((part, at) => (at === 0 ? [part] : [tx` UNION ALL `, part]));
    return await tx<{ appId: number; start: number; count: number }[]>`
      SELECT app_id AS "appId", (extract(epoch FROM date_bin(${`${level.ms} ms`}::interval, bucket, 'epoch')) * 1000)::float8 AS start,
             sum(count)::float8 AS count
        FROM (${all}) AS counts GROUP BY 1, 2 HAVING sum(count) <> 0 ORDER BY 2, 1`;
  });
  const totals = new Map<number, Map<number, number>>();
  for (const { appId, start, count } of rows) {
    const bucket = totals.get(start) ?? new Map<number, number>();
    totals.set(start, bucket.set(appId, count));
  }
  return totals;
}

/** The totals of the source, and of the target. */
export function readBothTotals(
  { from, to }: CopySides,
  ...asked: [apps: readonly number[], level: Level, interval: Interval]
): Promise<[source: Totals, target: Totals]> {
  return Promise.all([readTotals(from, ...asked), readTotals(to, ...asked)]);
}

export function totalAt(totals: Totals, start: number): number {
  return [...(totals.get(start) ?? NONE).values()].reduce((sum, count) => sum + count, 0);
}

/** The buckets in which the target differs, in order of time. */
export function differing(source: Totals, target: Totals): number[] {
  return [...new Set([...source.keys(), ...target.keys()])]
    .filter(
      (start) => appsBehind(source, target, start).length > 0 || appsBehind(target, source, start).length > 0,
    )
    .sort((a, b) => a - b);
}

/** The apps that have more events of a bucket in the source than in the target. */
export function appsBehind(source: Totals, target: Totals, start: number): number[] {
  const there = target.get(start) ?? NONE;
  return [...(source.get(start) ?? NONE)]
    .filter(([appId, count]) => count > (there.get(appId) ?? 0))
    .map(([appId]) => appId);
}

/** An app whose rows of a day are not the same in both databases although the counts are. */
export interface RowDifference {
  readonly appId: number;
  /** Midnight (UTC), milliseconds since 1970. */
  readonly day: number;
  readonly source: number;
  readonly target: number;
}

interface Digest {
  readonly rows: number;
  /** Sum of the random digits of the ids: it differs if any row does. */
  readonly ids: string;
}

async function readDigests(
  { sql }: CopyEndpoint,
  apps: readonly number[],
  day: number,
): Promise<ReadonlyMap<number, Digest>> {
  const rows = await sql<({ appId: number } & Digest)[]>`
    SELECT app_id AS "appId", count(*)::float8 AS rows, bit_xor(('x' || right(id::text, 12))::bit(48)::bigint)::text AS ids
      FROM events
     WHERE created_at >= ${new Date(day)} AND created_at < ${new Date(day + DAY_MS)}
       AND app_id = ANY(${[...apps]}::integer[])
     GROUP BY app_id`;
  return new Map(rows.map(({ appId, ...digest }) => [appId, digest]));
}

const NOTHING: Digest = { rows: 0, ids: '0' };

/**
 * Compares the rows of a day.
 * @returns what differs for another reason than that the source has got more events since; and whether it has
 */
export async function compareRows(
  sides: CopySides,
  apps: readonly number[],
  day: number,
): Promise<{ readonly differences: readonly RowDifference[]; readonly isBehind: boolean }> {
  const [source, target] = await Promise.all([
    readDigests(sides.from, apps, day),
    readDigests(sides.to, apps, day),
  ]);
  const found = apps.flatMap((appId) => {
    const [here, there] = [source.get(appId) ?? NOTHING, target.get(appId) ?? NOTHING];
    const isSame = here.rows === there.rows && here.ids === there.ids;
    return isSame ? [] : [{ appId, day, source: here.rows, target: there.rows }];
  });
  if (found.length === 0) return { differences: [], isBehind: false };
  const interval = { from: day, until: day + DAY_MS };
  const ids = found.map(({ appId }) => appId);
  // Counts are exact: where they are equal, the source has got nothing that would explain the difference.
  const [sent, kept] = await readBothTotals(sides, ids, DAYS, interval);
  const isBehind = (appId: number): boolean =>
    (sent.get(day)?.get(appId) ?? 0) !== (kept.get(day)?.get(appId) ?? 0);
  const differences = found.filter(({ appId }) => !isBehind(appId));
  return { differences, isBehind: differences.length < found.length };
}
