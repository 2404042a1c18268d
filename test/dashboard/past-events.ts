/** Events of the past, straight into the database: the service itself only writes now. */
import { randomBytes } from 'node:crypto';
import { ensurePartitions } from '../../src/storage/engines/postgres/maintenance.ts';
import { insertSelected } from '../support/insert-selected.ts';
import type { TestService } from '../support/service.ts';

export interface PastEvent {
  /** ISO 8601. */
  readonly at: string;
  /** JSON text, kept as it is spelled. */
  readonly payload?: string;
}

/** Stores events of one type. */
export async function addPastEvents(
  { sql, database }: Pick<TestService, 'sql' | 'database'>,
  typeId: string,
  events: readonly PastEvent[],
): Promise<void> {
  const times = events.map(({ at }) => Date.parse(at));
  await ensurePartitions(sql, Math.min(...times), Math.max(...times));
  const rows = sql`
    SELECT event.id::uuid, event_types.app_id, event_types.id, event.at::timestamptz, event.payload::json
      FROM event_types,
           unnest(${events.map(({ at }) => eventId(at))}::text[],
                  ${events.map(({ at }) => at)}::text[],
                  ${events.map(({ payload = '{}' }) => payload)}::text[]) AS event (id, at, payload)
     WHERE event_types.public_id = ${typeId}`;
  await insertSelected(sql, database.engine, rows);
}

/** As the service makes them: a UUIDv7 of the event's time. */
function eventId(at: string): string {
  const time = Date.parse(at).toString(16).padStart(12, '0');
  return `${time}7${randomBytes(2).toString('hex').slice(1)}8${randomBytes(8).toString('hex').slice(1)}`;
}
