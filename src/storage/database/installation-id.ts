/** The identity of this installation, the generation of its database, and where its data has been moved to. */
import { randomBytes } from 'node:crypto';
import type { Sql, Transaction } from './connect.ts';

/** Whose data a database holds. */
export interface Installation {
  /** 32 hexadecimal digits. Replicas and restored backups keep it: the same events belong in them. */
  readonly identity: string;
  /** 16 hexadecimal digits. A restore draws new ones: apps and types that it does not bring back may be missed. */
  readonly generation: string;
}

/** The rows of `installation`. */
export const IDENTITY = 'database_identity';
export const GENERATION = 'generation';
/** Tells installations apart that share a Redis. A restored backup gets one of its own. */
const ID = 'id';

/** The row of `installation` that says whether anything is sent: `stopped` after a restore. */
export const DELIVERIES = 'deliveries';

/** Made at first, and the same in every process from then on. */
export async function installationId(sql: Sql): Promise<string> {
  return await readOrMake(sql, ID, randomBytes(9).toString('base64url'));
}

/** The installation that the database belongs to; drawn at the first call. */
export async function readInstallation(sql: Sql): Promise<Installation> {
  return {
    identity: await readOrMake(sql, IDENTITY, randomBytes(16).toString('hex')),
    generation: await readOrMake(sql, GENERATION, newGeneration()),
  };
}

export function newGeneration(): string {
  return randomBytes(8).toString('hex');
}

async function readOrMake(sql: Sql, name: string, made: string): Promise<string> {
  await sql`INSERT INTO installation (name, value) VALUES (${name}, ${made}) ON CONFLICT DO NOTHING`;
  const value = await readFact(sql, name);
  if (value === null) throw new Error(`The table installation has lost its row ${name}.`);
  return value;
}

/** The value of a row of `installation`; null: there is none. */
export async function readFact(sql: Sql | Transaction, name: string): Promise<string | null> {
  const [row] = await sql<{ value: string }[]>`SELECT value FROM installation WHERE name = ${name}`;
  return row?.value ?? null;
}

/** Whether the database has a table. */
export async function hasTable(sql: Sql | Transaction, name: string): Promise<boolean> {
  const [table] = await sql<{ exists: boolean }[]>`SELECT to_regclass(${name}) IS NOT NULL AS exists`;
  return table?.exists === true;
}

/** The row of `installation` that names the new database, where the data has been moved to one: nothing may be written here then. */
export const MOVED_TO = 'moved_to';

/** @param movedTo host and name of the new database */
export function movedMessage(movedTo: string): string {
  return `the data of this database has been moved to ${movedTo}: set DATABASE_URL to it`;
}
