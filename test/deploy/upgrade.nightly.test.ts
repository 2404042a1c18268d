/** The upgrade of docs/deployment.md to a minor version of TimescaleDB. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { openSecret } from '../../src/apps/secret.ts';
import { codeBlocks, readPage } from '../docs/pages.ts';
import { ServerProcess } from '../e2e/server-process.ts';
import { build } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { request } from '../support/http-client.ts';
import { CREATE_EVENT } from '../support/service.ts';

const SECRET = 'the secret of the tests, 32 characters';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-upgrade-'));
  build();
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface App {
  readonly appId: string;
  readonly loggingToken: string;
}

async function newApp({ sql }: TestDatabase): Promise<App> {
  return await createApp(sql, await openSecret({ configured: SECRET, dataDir: null }), { name: 'Old' });
}

async function readToken({ sql }: TestDatabase, { appId }: App): Promise<string> {
  return (await createResourceToken(sql, { name: 'reader', appIds: [appId], expiresInSeconds: null }))
    .resourceToken;
}

async function totalOf(server: ServerProcess, { appId }: App, resourceToken: string): Promise<number> {
  const path = `/public/get_events?appId=${appId}&limit=1000`;
  const headers = { Authorization: `Bearer ${resourceToken}` };
  const { status, body } = await request(server.port, { path, headers });
  expect(status).toBe(200);
  const { data } = JSON.parse(body);
  expect(data.events).toHaveLength(data.pagination.total);
  return data.pagination.total;
}

async function post(server: ServerProcess, { loggingToken }: App): Promise<number> {
  const body = JSON.stringify({ loggingToken, typeName: 'old', payload: {} });
  return (await request(server.port, { method: 'POST', path: CREATE_EVENT, body })).status;
}

const start = ({ url }: TestDatabase): Promise<ServerProcess> =>
  ServerProcess.start({ DATABASE_URL: url, DATA_DIR: folder, SECRET, LOG_LEVEL: 'fatal' });

describe.skipIf(!availableEngines().includes('timescale'))(
  'a minor version of TimescaleDB [needs TimescaleDB]',
  () => {
    /** The command that docs/deployment.md gives to psql. */
    const documented = codeBlocks(readPage('docs/deployment.md'))
      .flatMap(({ text }) => /psql -X .*-c '(ALTER EXTENSION timescaledb UPDATE)'/.exec(text)?.[1] ?? [])
      .at(0);

    test('is reached by the documented command, and the service goes on with its data', async () => {
      const database = await testDatabase('timescale');
      const app = await newApp(database);
      const token = await readToken(database, app);
      const server = await start(database);
      for (let number = 0; number < 5; number += 1) expect(await post(server, app)).toBe(201);
      await server.end('SIGTERM');

      const [{ version }] = await database.sql<[{ version: string }]>`
      SELECT extversion AS version FROM pg_extension WHERE extname = 'timescaledb'`;
      const older = await olderVersion(database, version);
      // The catalog of the version before; its update script then runs for real. A change of the version ends this session.
      const { sql } = database;
      await sql
        .begin(async (tx) => {
          await tx`UPDATE _timescaledb_catalog.metadata SET value = ${older} WHERE key = 'timescaledb_version'`;
          await tx`UPDATE pg_extension SET extversion = ${older} WHERE extname = 'timescaledb'`;
        })
        .catch(() => undefined);

      // As "psql -X": a session whose first statement this is, before the library of a version is loaded.
      const psql = new pg.Client({ connectionString: database.url });
      await psql.connect();
      await psql.query(documented ?? 'docs/deployment.md has no command for it');
      const { rows } = await psql.query("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'");
      await psql.end();
      expect(rows).toEqual([{ extversion: version }]);

      const updated = await start(database);
      expect(await totalOf(updated, app, token)).toBe(5);
      expect(await post(updated, app)).toBe(201);
      expect(await totalOf(updated, app, token)).toBe(6);
      await updated.end('SIGTERM');
      await database.drop();
    });

    /** The newest version before this one from which the server has an update script. */
    async function olderVersion({ sql }: TestDatabase, version: string): Promise<string> {
      const [path] = await sql<{ source: string }[]>`
      SELECT source FROM pg_extension_update_paths('timescaledb')
       WHERE target = ${version} AND path = source || '--' || target AND source ~ '^\\d+\\.\\d+\\.\\d+$'
         AND string_to_array(source, '.')::int[] < string_to_array(${version}, '.')::int[]
       ORDER BY string_to_array(source, '.')::int[] DESC LIMIT 1`;
      if (path === undefined) throw new Error(`There is no update script to ${version}.`);
      return path.source;
    }
  },
);
