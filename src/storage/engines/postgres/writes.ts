/** What the writer adds to the counts on PostgreSQL: deltas, by insert alone, so that writers never wait for one another. */
import { grouped } from '../../../base/grouped.ts';
import { MINUTE_MS } from '../../counts/levels.ts';
import type { EventRow } from '../../write/accepted-event.ts';
import type { Delta } from '../../write/copy-messages.ts';
import { AGAINST_ROWS, type CopiedChanges, type EngineWrites, OF_OTHERS } from '../../write/engine-writes.ts';
import { countDirectly } from './direct-counts.ts';

/** Deltas in rows of their own, which readers find by their app. */
const DELTAS = 'count_deltas (app_id, type_id, bucket, count)';
/** Several deltas in a row, of those of a minute and of one of some parts of all apps. */
const GROUPED_DELTAS = 'grouped_deltas (part, bucket, apps, types, counts)';

/** The number of parts (sql/0002). */
const PARTS = 4;
/** Deltas to a row that are worth grouping: readers have to unpack it. */
const WORTH_GROUPING = 6;

interface CountedDelta extends Delta {
  count: number;
  /** Another app's of the same type and minute: types belong to one app, so there is none. */
  readonly next: CountedDelta | undefined;
}

/** One delta for each app, type and minute. The fold adds them to the counts; until then readers do. */
function deltasOf(events: readonly EventRow[]): readonly Delta[] {
  const deltas: CountedDelta[] = [];
  // Minute → type.
  const minutes = new Map<number, Map<number, CountedDelta>>();
  // Neighbors mostly share their minute, and often all of it.
  let minute = Number.NaN;
  let types = new Map<number, CountedDelta>();
  let last: CountedDelta | undefined;
  for (const { appId, typeId, createdAt } of events) {
    const bucket = Math.floor(createdAt / MINUTE_MS) * MINUTE_MS;
    if (bucket !== minute) {
      minute = bucket;
      types = minutes.get(bucket) ?? new Map<number, CountedDelta>();
      minutes.set(bucket, types);
      last = undefined;
    }
    if (last === undefined || last.typeId !== typeId || last.appId !== appId) {
      const first = types.get(typeId);
      last = first;
      while (last !== undefined && last.appId !== appId) last = last.next;
      if (last === undefined) {
        last = { appId, typeId, bucket, count: 0, next: first };
        types.set(typeId, last);
        deltas.push(last);
      }
    }
    last.count += 1;
  }
  return deltas;
}

/** Deltas of events, each in a row of its own. */
export function deltaRows(events: readonly EventRow[]): CopiedChanges {
  return rowsOf(deltasOf(events));
}

function rowsOf(deltas: readonly Delta[]): CopiedChanges {
  return {
    table: DELTAS,
    copy: (into) => {
      for (const { appId, typeId, bucket, count } of deltas) into.countRow(appId, typeId, bucket, count);
    },
  };
}

/** Where many apps send, a row for each delta would cost as much as its event: those of several apps share a row. */
function changesOf(events: readonly EventRow[]): CopiedChanges {
  const deltas = deltasOf(events);
  if (deltas.length < WORTH_GROUPING) return rowsOf(deltas);
  // By minute and part of the apps.
  const groups = grouped(deltas, ({ appId, bucket }) => (bucket / MINUTE_MS) * PARTS + (appId % PARTS));
  if (deltas.length < WORTH_GROUPING * groups.size) return rowsOf(deltas);
  return {
    table: GROUPED_DELTAS,
    copy: (into) => {
      for (const group of groups.values()) {
        const [{ appId, bucket } = { appId: 0, bucket: 0 }] = group;
        into.groupedDeltasRow(appId % PARTS, bucket, group);
      }
    },
  };
}

export const writes: EngineWrites = {
  changes: DELTAS,
  changesOf,
  changeTables: ['count_deltas', 'grouped_deltas'],
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
