/** What the writer adds to the counts on PostgreSQL: deltas, by insert alone, so that writers never wait for one another. */
import { MINUTE_MS } from '../counts/levels.ts';
import type { EventRow } from '../write/accepted-event.ts';
import type { CopyMessages } from '../write/copy-messages.ts';
import type { EngineWrites } from '../write/engine-writes.ts';

/** One delta for each app, type and minute. The fold adds them to the counts; until then readers do. */
function copyDeltas(events: readonly EventRow[], into: CopyMessages): void {
  const minutes = new Map<number, Map<number, Map<number, number>>>();
  let minute = Number.NaN;
  let apps = new Map<number, Map<number, number>>();
  for (const { appId, typeId, createdAt } of events) {
    const start = Math.floor(createdAt / MINUTE_MS) * MINUTE_MS;
    // Neighbors mostly share their minute.
    if (start !== minute) {
      minute = start;
      apps = minutes.get(start) ?? new Map();
      minutes.set(start, apps);
    }
    let types = apps.get(appId);
    if (types === undefined) {
      types = new Map();
      apps.set(appId, types);
    }
    types.set(typeId, (types.get(typeId) ?? 0) + 1);
  }
  for (const [bucket, appsOfMinute] of minutes)
    for (const [appId, types] of appsOfMinute)
      for (const [typeId, count] of types) into.deltaRow(appId, typeId, bucket, count);
}

export const writes: EngineWrites = {
  changes: 'count_deltas (app_id, type_id, bucket, count)',
  copyChanges: copyDeltas,
  changesOfInserted: `
    SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), count(*) FROM inserted GROUP BY 1, 2, 3`,
  makeRoom: 'SELECT create_events_partition(day) FROM unnest($1::date[]) AS wanted (day) ORDER BY day',
  session: {},
};
