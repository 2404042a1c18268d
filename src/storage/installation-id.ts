/** What tells this installation from others that share a Redis with it. */
import { randomBytes } from 'node:crypto';
import type { Sql } from './connect.ts';

/** The row of `installation`. A restored backup is another installation, and gets one of its own. */
const NAME = 'id';

/** Made at first, and the same in every process from then on. */
export async function installationId(sql: Sql): Promise<string> {
  const made = randomBytes(9).toString('base64url');
  await sql`INSERT INTO installation (name, value) VALUES (${NAME}, ${made}) ON CONFLICT DO NOTHING`;
  const [row] = await sql<{ value: string }[]>`SELECT value FROM installation WHERE name = ${NAME}`;
  if (row === undefined) throw new Error('The table installation has lost its id.');
  return row.value;
}
