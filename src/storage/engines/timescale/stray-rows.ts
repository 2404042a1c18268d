/**
 * Rows in the root table, which TimescaleDB takes for empty. A session that does not load the library sees them, and of a table ONLY
 * nothing else. Any role may ask for such a session, but only at its start.
 */
import { connect, type Sql } from '../../database/connect.ts';
import type { StrayRows } from '../../maintenance/stray-rows.ts';

const WITHOUT_LIBRARY = '-c timescaledb.disable_load=on';

export const strayRows: StrayRows = {
  find: async (sql) => {
    const plain = await openPlain(sql);
    try {
      const [found] = await plain<{ rows: number }[]>`SELECT count(*)::float8 AS rows FROM ONLY events`;
      return found === undefined || found.rows === 0 ? [] : [{ server: null, rows: found.rows }];
    } finally {
      await plain.end();
    }
  },
  gather: async (sql) => {
    const plain = await openPlain(sql);
    return [{ sql: plain, table: 'ONLY events', end: async () => undefined, close: () => plain.end() }];
  },
};

/** @throws Error where something between drops the option */
async function openPlain(sql: Sql): Promise<Sql> {
  const plain = connect(sql.pool.database, {
    connections: 1,
    name: 'tidemark stray rows',
    session: WITHOUT_LIBRARY,
  });
  const [state] = await plain<{ loaded: boolean }[]>`
    SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'timescaledb.restoring') AS loaded`;
  if (state?.loaded !== true) return plain;
  await plain.end();
  throw new Error(`A pooler drops the option ${WITHOUT_LIBRARY}: name the server itself in DATABASE_URL.`);
}
