/** Data of earlier releases, opened by this one: migrated, read, counted, written to. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { readVersion } from '../../src/process/version.ts';
import { Installation } from '../e2e/server-process.ts';
import { tidemark } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { patient } from '../support/patience.ts';
import { until } from '../support/service.ts';
import { load, makeFixture, readManifest, releases, SECRET, unpackJournal } from './fixture.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'tidemark-upgrade-'));
  cleanups.push(() => rm(made, { recursive: true, force: true }));
  return made;
}

async function loaded(release: string, engine: Parameters<typeof testDatabase>[0]): Promise<TestDatabase> {
  const database = await testDatabase(engine, { empty: true });
  cleanups.push(() => database.drop());
  await load(release, database);
  return database;
}

if (process.env.MAKE_FIXTURE === '1') {
  test.each([
    ['postgres', process.env.POSTGRES15_BIN ?? '/usr/lib/postgresql/15/bin'],
    ['timescale', join(process.env.TIMESCALE_PG_HOME ?? '', 'bin')],
  ] as const)(
    'make the fixture of this release on %s',
    { timeout: patient(120_000) },
    async (engine, bin) => {
      await makeFixture(readVersion(), engine, bin, await folder());
    },
  );
}

describe.each(availableEngines())('on %s', (name) => {
  const engine = name === 'timescale' ? 'timescale' : 'postgres';

  test('there is a fixture of a release', async () => {
    expect(await releases(engine)).not.toEqual([]);
  });

  test('the data of each release is migrated, read, counted and written to; its journal is replayed', {
    timeout: patient(120_000),
  }, async () => {
    for (const release of await releases(engine)) {
      const { appId, loggingToken, resourceToken, stored, waiting } = await readManifest(release, engine);
      const database = await loaded(release, name);
      const journal = await folder();
      await unpackJournal(release, engine, journal);
      const settings = { SECRET, DATABASE_URL: database.url, JOURNAL_DIR: journal };
      const installation = await Installation.make(settings);
      cleanups.push(() => installation.remove());
      const server = await installation.start();

      const read = async (): Promise<{ ids: string[]; total: number }> => {
        const path = `/public/get_events?appId=${appId}&limit=1000`;
        const headers = { Authorization: `Bearer ${resourceToken}` };
        const response = await fetch(`http://127.0.0.1:${server.port}${path}`, { headers });
        expect(response.status).toBe(200);
        const { data } = (await response.json()) as {
          data: { events: { id: string }[]; pagination: { total: number } };
        };
        return { ids: data.events.map(({ id }) => id).sort(), total: data.pagination.total };
      };
      const all = [...stored, ...waiting].sort();
      await until(async () => (await read()).total === all.length, `the journal of ${release} is replayed`);
      expect(await read()).toEqual({ ids: all, total: all.length });

      const posted = await fetch(`http://127.0.0.1:${server.port}/public/create_event`, {
        method: 'POST',
        body: JSON.stringify({ loggingToken, typeName: 'order placed', payload: {} }),
      });
      expect(posted.status).toBe(201);
      expect((await read()).total).toBe(all.length + 1);
      expect((await server.end('SIGTERM')).code).toBe(0);

      const doctor = await tidemark(['doctor', '--json'], settings);
      const { findings } = JSON.parse(doctor.stdout) as { findings: { check: string; level: string }[] };
      expect(findings.filter(({ check }) => /count/i.test(check))).not.toContainEqual(
        expect.objectContaining({ level: 'problem' }),
      );
    }
  });
});
