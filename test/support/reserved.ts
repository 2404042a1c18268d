/** Holds a connection of a pool, so that nothing else runs on it. */
import type postgres from 'postgres';
import type { Sql } from '../../src/storage/database/connect.ts';

/**
 * One connection of a pool, until it is released. Without the query for types the client never hands out a connection that it opens
 * for `reserve` itself, so it gets one that is open: it was just used, and nothing has come between.
 */
export async function reserved(sql: Sql): Promise<Sql & Pick<postgres.ReservedSql, 'release'>> {
  await sql`SELECT 1`;
  // Nobody begins a transaction of a reserved one, for which the type is wrong.
  return Object.assign(await sql.reserve(), { pool: sql.pool }) as unknown as Sql & { release(): void };
}
