/** A refresh of a continuous aggregate by another program that does not end until it is let. */
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { refresh, refreshesInBatches } from '../../src/storage/engines/timescale/refresh.ts';
import type { TestDatabase } from './database.ts';
import { until } from './service.ts';

export interface SlowRefresh {
  /** Whether a refresh of a program of this name was refused, or waits for a lock, depending on how far this one is. */
  stands(sql: Sql, application: string): Promise<boolean>;
  /** Lets it end, and waits until it has. */
  end(): Promise<void>;
}

/**
 * Begins a refresh of all minutes, of which some were refreshed before. When this resolves TimescaleDB knows of it, and it
 * waits for a lock.
 */
export async function beginRefresh({ sql, address }: TestDatabase): Promise<SlowRefresh> {
  const holder = connect(address, { connections: 1, name: 'test lock' });
  const refresher = connect(address, { connections: 1, name: 'test refresh' });
  const [chunk] = await sql<
    { name: string }[]
  >`SELECT chunk::text AS name FROM show_chunks('minute_counts') AS chunk`;
  if (chunk === undefined) throw new Error('No minute was refreshed before.');
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let locked = false;
  const holding = holder.begin(async (tx) => {
    await tx.unsafe(`LOCK TABLE ${chunk.name} IN SHARE ROW EXCLUSIVE MODE`);
    locked = true;
    await released;
  });
  await until(() => locked, 'the aggregate is locked');
  const all = { from: new Date(0), until: new Date(Date.UTC(2500, 0, 1)) };
  const options = { isForced: true, inBatches: await refreshesInBatches(sql) };
  const done = Promise.all([holding, refresh(refresher, 'minute_counts', all, options)]);
  const waits = async (): Promise<boolean> =>
    (
      await sql`
        SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'test refresh' AND wait_event_type = 'Lock'`
    ).length > 0;
  await until(waits, 'the refresh waits for its lock');
  return {
    stands: async (own, application) =>
      (
        await own`
          SELECT FROM pg_stat_activity
           WHERE datname = current_database() AND application_name LIKE ${`${application}%`}
             AND (state = 'idle' OR wait_event_type = 'Lock') AND query LIKE '%CALL refresh_continuous_aggregate%'`
      ).length > 0,
    end: async () => {
      release();
      await done;
      await Promise.all([holder.end(), refresher.end()]);
    },
  };
}
