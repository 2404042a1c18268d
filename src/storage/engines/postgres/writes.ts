/** What the writer adds to the counts on PostgreSQL: deltas, by insert alone, so that writers never wait for one another. */
import { MINUTE_MS } from '../../counts/levels.ts';
import type { EventRow } from '../../write/accepted-event.ts';
import type { CopyMessages } from '../../write/copy-messages.ts';
import { AGAINST_ROWS, type EngineWrites, OF_OTHERS } from '../../write/engine-writes.ts';
import { countDirectly } from './direct-counts.ts';

interface Delta {
  readonly appId: number;
  readonly typeId: number;
  /** The minute's start, milliseconds since 1970. */
  readonly bucket: number;
  count: number;
}

/** One delta for each app, type and minute. The fold adds them to the counts; until then readers do. */
function copyDeltas(events: readonly EventRow[], into: CopyMessages): void {
  const deltas: Delta[] = [];
  // Minute → app → type.
  const minutes = new Map<number, Map<number, Map<number, Delta>>>();
  // Neighbors mostly share their minute, and often all of it.
  let minute = Number.NaN;
  let apps = new Map<number, Map<number, Delta>>();
  let last: Delta | undefined;
  for (const { appId, typeId, createdAt } of events) {
    const bucket = Math.floor(createdAt / MINUTE_MS) * MINUTE_MS;
    if (bucket !== minute) {
      minute = bucket;
      apps = entryOf(minutes, bucket);
      last = undefined;
    }
    if (last === undefined || last.typeId !== typeId || last.appId !== appId) {
      const types = entryOf(apps, appId);
      last = types.get(typeId);
      if (last === undefined) {
        last = { appId, typeId, bucket, count: 0 };
        types.set(typeId, last);
        deltas.push(last);
      }
    }
    last.count += 1;
  }
  for (const { appId, typeId, bucket, count } of deltas) into.deltaRow(appId, typeId, bucket, count);
}

function entryOf<Value>(maps: Map<number, Map<number, Value>>, key: number): Map<number, Value> {
  let map = maps.get(key);
  if (map === undefined) {
    map = new Map();
    maps.set(key, map);
  }
  return map;
}

export const writes: EngineWrites = {
  changes: 'count_deltas (app_id, type_id, bucket, count)',
  copyChanges: copyDeltas,
  countDirectly,
  deltasOfInserted: `
    SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), count(*) FROM inserted GROUP BY 1, 2, 3`,
  changesOfErased: (counted) => `
    SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), ${counted} * count(*) FROM erased GROUP BY 1, 2, 3`,
  createPartitions: `
    WITH known AS MATERIALIZED (SELECT start, finish FROM events_partitions)
    SELECT make_room_for_events(day)
      FROM (SELECT day FROM unnest($1::date[]) AS wanted (day)
             WHERE NOT EXISTS (SELECT FROM known WHERE start <= day::timestamp AT TIME ZONE 'UTC'
                                                   AND finish > day::timestamp AT TIME ZONE 'UTC')
             ORDER BY day) AS missing`,
  createsPartitionsAhead: false,
  lockedDays: `
    SELECT day::text AS day
      FROM (SELECT day, day::timestamp AT TIME ZONE 'UTC' AS midnight FROM unnest($1::date[]) AS wanted (day)) AS wanted
      LEFT JOIN events_partitions ON start <= midnight AND finish > midnight
     WHERE EXISTS (
             SELECT FROM pg_locks
              WHERE ${OF_OTHERS} AND relation IN ('events'::regclass, partition)
                AND (mode IN (${AGAINST_ROWS}) OR (partition IS NULL AND mode = 'ShareUpdateExclusiveLock')))`,
  copiedNow: 'xmin = pg_current_xact_id()::xid',
  singleNodeStatements: false,
  session: {},
};
