/** Which database a journal belongs to. */
import { randomBytes } from 'node:crypto';
import type { Sql } from '../../storage/connect.ts';

/** The row of `installation`. A replica and a restored backup carry it on: there the same events belong. */
const NAME = 'database_identity';

/** 32 hexadecimal digits that no other database has; drawn at the first call. */
export async function databaseIdentity(sql: Sql): Promise<string> {
  await sql`
    INSERT INTO installation (name, value) VALUES (${NAME}, ${randomBytes(16).toString('hex')}) ON CONFLICT DO NOTHING`;
  const [row] = await sql<{ value: string }[]>`SELECT value FROM installation WHERE name = ${NAME}`;
  if (row === undefined) throw new Error('The identity of the database was removed.');
  return row.value;
}
