/** Compares the rows of both databases: how many an app has on a day, and which. */
import { DAY_MS, DAYS } from '../counts/levels.ts';
import type { Side } from './side.ts';
import { readTotals } from './totals.ts';

/** An app whose rows of a day are not the same in both databases although the counts are. */
export interface RowDifference {
  /** Internal id. */
  readonly appId: number;
  /** Midnight (UTC), milliseconds since 1970. */
  readonly day: number;
  readonly source: number;
  readonly target: number;
}

interface Digest {
  readonly rows: number;
  /** Of the random digits of the ids: it differs if any row does. */
  readonly ids: string;
}

async function readDigests(
  { sql }: Side,
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
 * @param apps internal ids
 * @returns what differs for another reason than that the source has got more events since; and whether it has
 */
export async function compareRows(
  { from, to }: { readonly from: Side; readonly to: Side },
  apps: readonly number[],
  day: number,
): Promise<{ readonly differences: readonly RowDifference[]; readonly isBehind: boolean }> {
  const [source, target] = await Promise.all([readDigests(from, apps, day), readDigests(to, apps, day)]);
  const found = apps.flatMap((appId) => {
    const [here, there] = [source.get(appId) ?? NOTHING, target.get(appId) ?? NOTHING];
    const isSame = here.rows === there.rows && here.ids === there.ids;
    return isSame ? [] : [{ appId, day, source: here.rows, target: there.rows }];
  });
  if (found.length === 0) return { differences: [], isBehind: false };
  const interval = { from: day, until: day + DAY_MS };
  const ids = found.map(({ appId }) => appId);
  // Counts are exact: where they are equal, the source has got nothing that would explain the difference.
  const [sent, kept] = await Promise.all([
    readTotals(from, ids, DAYS, interval),
    readTotals(to, ids, DAYS, interval),
  ]);
  const isBehind = (appId: number): boolean =>
    (sent.get(day)?.get(appId) ?? 0) !== (kept.get(day)?.get(appId) ?? 0);
  const differences = found.filter(({ appId }) => !isBehind(appId));
  return { differences, isBehind: differences.length < found.length };
}
