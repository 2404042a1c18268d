/**
 * Two releases on one database under load: the new one migrates it while the old one serves, both serve, the old one stops.
 * The old one is built from the commit that the fixture of its release names. The new one is this version with one more migration.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ServerProcess } from '../e2e/server-process.ts';
import { build, LAUNCHER, tidemarkProcess } from '../support/command-line.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { Ledger } from '../support/ledger.ts';
import { patient } from '../support/patience.ts';
import { until } from '../support/service.ts';
import { FIXTURES, SECRET } from './fixture.ts';

const run = promisify(execFile);
const REPOSITORY = dirname(LAUNCHER);
const RELEASE = '0.1.0';
const COMMIT = readFileSync(join(FIXTURES, RELEASE, 'COMMIT'), 'utf8').trim();
/** What a later release may do: producers wait for each of these locks, and the old release goes on. */
const MIGRATION = `-- Beside the previous release: yes
ALTER TABLE event_types ADD COLUMN made_up text NOT NULL DEFAULT '';
CREATE TABLE made_up (app_id integer NOT NULL, bucket timestamptz NOT NULL, PRIMARY KEY (app_id, bucket));
SELECT beside_events('made_up');
`;
/** A clone without its history has no earlier release. */
const isThere = spawnSync('git', ['cat-file', '-e', COMMIT], { cwd: REPOSITORY }).status === 0;

let folder: string;
let launcher: string;
let nextLauncher: string;
const servers: ServerProcess[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-release-'));
  launcher = join(folder, 'tidemark.mjs');
  if (!isThere) return;
  // Without its dashboard, whose packages are not those of this release.
  const archive = `git archive ${COMMIT} -- . ':!dashboard' | tar -x -C ${folder}`;
  await run('sh', ['-c', archive], { cwd: REPOSITORY });
  await symlink(join(REPOSITORY, 'node_modules'), join(folder, 'node_modules'));
  await run(process.execPath, [launcher, '--build-only']);
  build();
  const next = join(folder, 'next');
  for (const part of ['dist', 'sql', 'package.json', 'tidemark.mjs'])
    await cp(join(REPOSITORY, part), join(next, part), { recursive: true });
  await writeFile(join(next, 'sql', '9001_made_up.sql'), MIGRATION);
  nextLauncher = join(next, 'tidemark.mjs');
}, 120_000);
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  for (const server of servers.splice(0)) await server.end('SIGKILL');
});

async function start(settings: Record<string, string>, of?: string): Promise<ServerProcess> {
  const server = await ServerProcess.start(settings, [], of);
  servers.push(server);
  return server;
}

/** What a reader is told that there is. */
async function totalOf(
  server: ServerProcess,
  settings: Record<string, string>,
  appId: string,
): Promise<number> {
  const created = await tidemarkProcess(
    ['token', 'create', '--name', 'Reader', '--app', appId, '--json'],
    settings,
    nextLauncher,
  );
  const { resourceToken } = JSON.parse(created.stdout) as { resourceToken: string };
  const response = await fetch(`http://127.0.0.1:${server.port}/public/get_events?appId=${appId}&limit=1`, {
    headers: { Authorization: `Bearer ${resourceToken}` },
  });
  const { data } = (await response.json()) as { data: { pagination: { total: number } } };
  return data.pagination.total;
}

describe.skipIf(!isThere).each(availableEngines())(`from ${RELEASE} on %s`, (engine) => {
  test('no request is lost, and no event is stored twice', { timeout: patient(120_000) }, async () => {
    const database = await testDatabase(engine, { empty: true });
    const settings = { SECRET, DATABASE_URL: database.url, CREATE_LIMIT_PER_MINUTE: '0' };
    const old = await start(settings, launcher);
    const created = await tidemarkProcess(
      ['app', 'create', '--name', 'Ledger', '--json'],
      settings,
      launcher,
    );
    const { appId, loggingToken } = JSON.parse(created.stdout) as { appId: string; loggingToken: string };

    let ports = [old.port];
    let turn = 0;
    const ledger = new Ledger({
      loggingToken,
      typeName: 'rolling',
      port: () => {
        turn += 1;
        return ports[turn % ports.length] ?? null;
      },
    });
    const more = async (events: number, what: string): Promise<void> => {
      const wanted = ledger.acknowledged + events;
      await until(() => ledger.acknowledged >= wanted, what);
    };
    ledger.start(8);
    await more(300, 'the old release serves');
    const young = await start(settings, nextLauncher);
    const migrated = database.sql`SELECT FROM schema_migrations WHERE name = '9001_made_up.sql'`;
    expect(await migrated).toHaveLength(1);
    await more(300, 'the old release serves on the new schema');
    ports = [old.port, young.port];
    // Producers stay on their connections: new ones go to both.
    ledger.start(8);
    await more(600, 'both serve');
    ports = [young.port];
    expect((await old.end('SIGTERM')).code).toBe(0);
    await more(300, 'the new release serves alone');
    await ledger.stop();
    expect(await totalOf(young, settings, appId)).toBe(ledger.acknowledged);
    expect((await young.end('SIGTERM')).code).toBe(0);

    expect([...ledger.statuses.keys()]).toEqual([201]);
    expect(ledger.unanswered).toBe(0);
    expect(await ledger.compare(database.sql)).toMatchObject({
      acknowledgedAndMissing: 0,
      storedTwice: 0,
      storedAndRefused: 0,
      storedAndNeverSent: 0,
    });
    await database.drop();
  });
});
