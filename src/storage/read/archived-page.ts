/** The rows of a page that are in the archive, merged with those that are not. */

import type { Snapshot } from '../counts/stale.ts';
import type { ArchivedGroup } from '../database/archive-source.ts';
import type { Retention } from '../retention.ts';
import { type ArchivedRow, isUncut, wantedOf } from './archived-rows.ts';
import { rowsOf, type SkipInterval } from './count-descent.ts';
import { withTypes } from './filtered-page.ts';
import type { Order, PageRequest, StoredEvent } from './page-request.ts';
import { comesBefore, inOrderOf, merged, type Position } from './positions.ts';

/** A row of the database that may be on the page. */
interface LocalRow extends Position {
  /** The size of its payload. */
  readonly bytes: number;
}

interface Found extends SkipInterval {
  /** The groups with events of the interval, in order of time. */
  readonly groups: readonly ArchivedGroup[];
  /** Events of the page, at least 1. */
  readonly size: number;
}

/**
 * Reads the page's rows from an interval that holds them all, without the first `skip` of it. Groups that are skipped as a whole are
 * not read.
 */
export async function readWithArchived(
  tx: Snapshot,
  { scope, order, maxBytes }: PageRequest,
  retention: Retention,
  { from, until, skip, groups, size }: Found,
): Promise<StoredEvent[]> {
  const interval = { from, until };
  const local = await readLocal(tx, scope, retention, { ...interval, order, limit: skip + size });
  const isWanted = wantedOf(retention, { ...scope, ...interval });
  const page: (LocalRow | ArchivedRow)[] = [];
  let left = skip;
  let bytes = 0;
  let isFull = false;
  const add = (row: LocalRow | ArchivedRow): void => {
    if (left > 0) {
      left -= 1;
      return;
    }
    bytes += 'bytes' in row ? row.bytes : Buffer.byteLength(row.payload);
    isFull ||= page.length > 0 && bytes > maxBytes;
    if (isFull) return;
    page.push(row);
    isFull = page.length === size;
  };
  const walk = inOrderOf(groups, order);
  const wantedIn = ({ at, types }: ArchivedGroup): number =>
    [...types].reduce(
      (sum, [typeId, count]) => sum + (isWanted({ at: Math.max(at, from), typeId }) ? count : 0),
      0,
    );
  let next = 0;
  for (const [index, group] of walk.entries()) {
    if (isFull) break;
    const end = order === 'asc' ? { at: group.lastAt, id: group.lastId } : group;
    const before = next;
    for (let row = local[next]; row !== undefined && comesBefore(row, end, order); row = local[next])
      next += 1;
    const events = wantedIn(group) + next - before;
    if (isUncut(group, retention, interval) && left >= events) {
      left -= events;
      continue;
    }
    const needed = neededOf(walk.slice(index), left + size - page.length, wantedIn);
    const rows = tx.archived.rows(retention, { ...scope, ...interval }, needed);
    for (const row of merged(inOrderOf(rows, order), local.slice(before, next), order)) add(row);
  }
  for (const row of local.slice(next)) add(row);
  return await complete(tx, scope.appId, interval, page);
}

/** The first of some groups, and those that have so many events together with it. */
function neededOf(
  groups: readonly ArchivedGroup[],
  events: number,
  wantedIn: (group: ArchivedGroup) => number,
): readonly ArchivedGroup[] {
  let sum = 0;
  const last = groups.findIndex((group) => {
    sum += wantedIn(group);
    return sum >= events;
  });
  return last === -1 ? groups : groups.slice(0, last + 1);
}

async function readLocal(
  tx: Snapshot,
  scope: PageRequest['scope'],
  retention: Retention,
  { from, until, order, limit }: { from: number; until: number; order: Order; limit: number },
): Promise<readonly LocalRow[]> {
  const inOrder = order === 'asc' ? tx`ORDER BY created_at, id` : tx`ORDER BY created_at DESC, id DESC`;
  return await tx<LocalRow[]>`
    SELECT id, (extract(epoch FROM created_at) * 1000)::float8 AS at, octet_length(payload::text) AS bytes
      FROM (SELECT id, created_at, payload FROM events
             WHERE ${rowsOf(tx, scope)} AND created_at >= ${from} AND created_at < ${until}
               AND ${retention.readable(tx)} ${inOrder} LIMIT ${limit}) AS page ${inOrder}`;
}

/** Gives the rows of a page what they lack: those of the database their payloads, all of them the public ids of their types. */
async function complete(
  tx: Snapshot,
  appId: number,
  { from, until }: { readonly from: number; readonly until: number },
  page: readonly (LocalRow | ArchivedRow)[],
): Promise<StoredEvent[]> {
  const ids = page.filter((row) => 'bytes' in row).map(({ id }) => id);
  const local =
    ids.length === 0
      ? []
      : await tx<{ id: string; typeId: number; payload: string }[]>`
          SELECT id, type_id AS "typeId", payload::text AS payload FROM events
           WHERE app_id = ${appId} AND created_at >= ${from} AND created_at < ${until} AND id = ANY(${ids}::uuid[])`;
  const known = new Map(local.map((row) => [row.id, row]));
  const rows = page.map((row) => {
    const { typeId = 0, payload = '' } = 'bytes' in row ? (known.get(row.id) ?? {}) : row;
    return { id: row.id, at: row.at, typeId, payload };
  });
  return await withTypes(tx, appId, rows);
}
