/** The two databases of a copy: what each is, and the mark by which a copy that is not complete is told from a database in use. */
import type pg from 'pg';
import { OperatorError } from '../../errors.ts';
import { OWN_FACTS } from '../backup/catalog.ts';
import { refuseUsed } from '../backup/restore.ts';
import { connect, type DatabaseAddress, endPool, type Sql } from '../database/connect.ts';
import { openCopyClient } from '../database/copy-client.ts';
import { chooseEngine } from '../database/engine.ts';
import { hasTable, IDENTITY, MOVED_TO, movedMessage } from '../database/installation-id.ts';
import { ENGINES } from '../engines/engines.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { migrate, pendingMigrations, readMigrations } from '../migrate.ts';

/** The row of `installation` that names whose copy a database is to become; it goes when the copy is complete. */
export const COPIED_FROM = 'copied_from';

/** By this their sessions are told from those of services. */
export const COPY_NAME = 'tidemark copy';

export interface CopyEndpoint {
  readonly engine: StorageEngine;
  /** A pool of one connection. */
  readonly sql: Sql;
  /** For COPY. */
  readonly client: pg.Client;
}

/** The two databases of a copy. */
export interface CopySides {
  readonly from: CopyEndpoint;
  readonly to: CopyEndpoint;
}

/** Connects to a database. In an empty one that can have TimescaleDB it creates the extension. */
export async function openSide(address: DatabaseAddress): Promise<CopyEndpoint> {
  const sql = connect(address, { connections: 1, name: COPY_NAME });
  try {
    const engine = ENGINES[(await chooseEngine(sql)).engine];
    sql.pool.database.adopt(engine);
    const client = await openCopyClient(sql.pool.database, COPY_NAME);
    for (const [name, value] of Object.entries(engine.writes.session))
      await client.query('SELECT set_config($1, $2, false)', [name, value]);
    return { engine, sql, client };
  } catch (error) {
    await endPool(sql);
    throw error;
  }
}

export async function closeSide({ sql, client }: CopyEndpoint): Promise<void> {
  await client.end().catch(() => undefined); // The connection may already be broken.
  await endPool(sql);
}

/** The marks of a database, as far as it has a schema. */
export interface CopyState {
  /** Where its data has been moved to; null if it has not. */
  readonly movedTo: string | null;
  /** Identity of the installation that is being copied into it; null if none is. */
  readonly copiedFrom: string | null;
  readonly identity: string | null;
}

export async function readCopyState(sql: Sql): Promise<CopyState> {
  if (!(await hasTable(sql, 'installation'))) return { movedTo: null, copiedFrom: null, identity: null };
  const rows = await sql<{ name: string; value: string }[]>`
    SELECT name, value FROM installation WHERE name IN (${MOVED_TO}, ${COPIED_FROM}, ${IDENTITY})`;
  const fact = (name: string): string | null => rows.find((row) => row.name === name)?.value ?? null;
  return { movedTo: fact(MOVED_TO), copiedFrom: fact(COPIED_FROM), identity: fact(IDENTITY) };
}

/** @throws OperatorError for a database that was left for another one, or of which a copy has not become complete yet */
export async function refuseMoved(sql: Sql): Promise<void> {
  const { movedTo, copiedFrom } = await readCopyState(sql);
  if (movedTo !== null) throw new OperatorError(movedMessage(movedTo));
  if (copiedFrom !== null)
    throw new OperatorError(
      'this database is a copy that is not complete yet: end it with "tidemark copy --switch", or use the original',
    );
}

/** The source must have the schema of this release, because rows are copied as they are. @returns its identity */
export async function checkSource({ sql, engine }: CopyEndpoint): Promise<string> {
  const { identity } = await readCopyState(sql);
  const known = await readMigrations(engine.name);
  if (identity === null || (await pendingMigrations(sql, engine.name, known)).length > 0)
    throw new OperatorError(
      'the database to copy from does not have the schema of this release: start this release there first',
    );
  return identity;
}

/**
 * Prepares the target: migrates it, locks it against other copies for as long as the connection lives, and marks it.
 * @param begin what a new copy begins with, in the transaction of the mark
 * @throws OperatorError if it is in use, or another copy into it is under way
 */
export async function prepareTarget(
  to: CopyEndpoint,
  identity: string,
  begin: () => Promise<void>,
): Promise<void> {
  const { sql, engine, client } = to;
  const state = await readCopyState(sql);
  if (state.movedTo !== null) throw new OperatorError(movedMessage(state.movedTo));
  await migrate(sql, engine.name);
  await lockTarget(to);
  if (state.copiedFrom === identity) return;
  if (state.copiedFrom !== null)
    throw new OperatorError('the database to copy to has a part of another installation: use an empty one');
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  if (engine.restoreSettings !== undefined) await client.query(engine.restoreSettings);
  await refuseUsed(client);
  await client.query(`DELETE FROM installation WHERE NOT (${OWN_FACTS})`);
  await client.query('INSERT INTO installation (name, value) VALUES ($1, $3), ($2, $3)', [
    COPIED_FROM,
    IDENTITY,
    identity,
  ]);
  await begin();
  await client.query('COMMIT');
}

/** Locks a target against other copies for as long as its connection lives. @throws OperatorError if one is under way */
export async function lockTarget({ client }: CopyEndpoint): Promise<void> {
  const { rows } = await client.query<{ free: boolean }>(
    "SELECT pg_try_advisory_lock(hashtext('tidemark copy')) AS free",
  );
  if (rows[0]?.free !== true) throw new OperatorError('another copy into this database is under way');
}
