/** The upkeep of each engine, as far as suites that run on all of them drive it by hand. */
import type { Sql } from '../../src/storage/database/connect.ts';
import { ensurePartitions, foldCounts } from '../../src/storage/engines/postgres/maintenance.ts';
import { mergeMarks, refreshStale } from '../../src/storage/engines/timescale/maintenance.ts';
import type { TestEngine } from './global-setup.ts';

export interface TestUpkeep {
  /** Room for events between two times, in milliseconds since 1970. */
  prepare(sql: Sql, from: number, to: number): Promise<void>;
  /** Brings all that is committed now into the counts: folds deltas, or refreshes every marked bucket. */
  settle(sql: Sql): Promise<void>;
  /** What is left to settle. */
  pending(sql: Sql): Promise<number>;
}

const FAR_FUTURE = Date.UTC(2500, 0, 1);

export function upkeepOf(engine: TestEngine): TestUpkeep {
  if (engine !== 'timescale') {
    return {
      prepare: ensurePartitions,
      settle: async (sql) => {
        await foldCounts(sql);
      },
      pending: (sql) => countOf(sql, 'count_deltas'),
    };
  }
  return {
    prepare: async () => undefined,
    settle: async (sql) => {
      await mergeMarks(sql);
      await refreshStale(sql, FAR_FUTURE);
    },
    pending: (sql) => countOf(sql, 'stale_buckets'),
  };
}

async function countOf(sql: Sql, table: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`SELECT count(*)::int AS count FROM ${sql(table)}`;
  return row?.count ?? 0;
}
