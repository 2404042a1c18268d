import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { tidemark } from '../../support/command-line.ts';
import { availableEngines, testDatabase } from '../../support/database.ts';
import { first } from '../../support/fuzz.ts';
import { newPerson } from '../../support/person.ts';
import { withTestService } from '../../support/service.ts';
import { storeRows } from '../../support/stored-events.ts';
import { upkeepOf } from '../../support/upkeep.ts';

interface Report {
  readonly healthy: boolean;
  readonly findings: readonly { check: string; level: string; found: string; advice: string | null }[];
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-doctor-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The report of `tidemark doctor --json`, and its exit code. */
async function examine(settings: Record<string, string>): Promise<Report & { code: number | null }> {
  const { code, stdout } = await tidemark(['doctor', '--json'], { PORT: '0', ...settings });
  const report: Report = JSON.parse(stdout);
  return { ...report, code };
}

function about(report: Report, check: string): string[] {
  return report.findings.filter((one) => one.check === check).map(({ level, found }) => `${level}: ${found}`);
}

describe.each(first(availableEngines()))('on %s', (engine) => {
  test('a running installation is healthy, and the doctor changes nothing', async () => {
    await withTestService({ engine }, async (service) => {
      const report = await examine({
        PORT: String(service.port),
        DATABASE_URL: service.database.url,
        SECRET: 'the secret of the tests, 32 characters',
        DATA_DIR: join(folder, 'none'),
      });
      // The cluster of a run works without waiting for its disk (test/support/cluster.ts), which is all that the doctor warns of.
      // No test may change that: every service beside it would refuse the server.
      const problems = report.findings.filter(({ level }) => level === 'problem');
      expect(new Set(problems.map(({ check }) => check))).toEqual(new Set(['durability']));
      expect(about(report, 'service')).toEqual([
        `ok: it is running on 127.0.0.1 port ${service.port} and is ready`,
      ]);
      expect(about(report, 'clock')).toEqual(['ok: the clocks of the database and this machine agree']);
      expect(existsSync(join(folder, 'none'))).toBe(false);
    });
  });

  test('counts that differ from their rows are found with their day, until that is recounted', async () => {
    const database = await testDatabase(engine);
    const { sql } = database;
    const settings = { DATABASE_URL: database.url, DATA_DIR: join(folder, 'none') };
    try {
      expect(about(await examine(settings), 'counts')).toEqual([]);
      await sql`INSERT INTO apps (public_id, name) VALUES ('app', 'app')`;
      await sql`INSERT INTO event_types (public_id, app_id, name) VALUES ('type', 1, 'type')`;
      const [monday, tuesday] = [Date.UTC(2026, 2, 2), Date.UTC(2026, 2, 3)];
      await upkeepOf(engine).prepare(sql, monday, tuesday);
      const rows = [monday, monday + 1, tuesday].map((at) => ({ at, appId: 1, typeId: 1, payload: '{}' }));
      await storeRows(
        sql,
        database.engine,
        rows.map((row) => ({ ...row, id: randomUUID() })),
      );
      await upkeepOf(engine).settle(sql);
      expect(about(await examine(settings), 'counts')).toEqual([
        'ok: they agree with the rows of 2026-03-02, 2026-03-03',
      ]);

      // As a failing disk might: a row that nobody has deleted is gone.
      await sql`DELETE FROM events WHERE created_at = ${new Date(monday + 1)}`;
      const report = await examine(settings);
      expect(report).toMatchObject({ healthy: false, code: 2 });
      const [found] = report.findings.filter(({ check }) => check === 'counts');
      expect(found).toEqual({
        check: 'counts',
        level: 'problem',
        found: expect.stringMatching(
          /^8 of 2026-03-02 differ from the rows, such as app, day 2026-03-02T.*: 2 instead of 1$/,
        ),
        advice: expect.stringContaining('tidemark recount --from 2026-03-02'),
      });

      const recounted = await tidemark(
        ['recount', '--from', '2026-03-01', '--to', '2026-03-03', '--json'],
        settings,
      );
      expect(JSON.parse(recounted.stdout)).toEqual({
        days: 3,
        differing: [{ day: '2026-03-02', counts: 8 }],
        leftOut: 0,
      });
      expect(about(await examine(settings), 'counts')[0]).toMatch(/^ok/);
      const again = await tidemark(['recount', '--from', '2026-03-02'], settings);
      expect(again.stdout).toBe('Days recounted      1\nDays that differed  none\n');
    } finally {
      await database.drop();
    }
  });
});

test.each([
  [['--from', '2026-02-30'], "'2026-02-30' is invalid. Write a day as 2026-01-31."],
  [['--from', '2026-02-03', '--to', '2026-02-02'], '--to must not be before --from'],
  [[], "required option '--from <day>' not specified"],
])('a recount with %j says what is wrong', async (args, text) => {
  const { code, stdout, stderr } = await tidemark(['recount', ...args], { DATA_DIR: join(folder, 'none') });
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain(text);
});

test('accounts that all have the address of a proxy are found, and those with several addresses are none', async () => {
  await withTestService({}, async (service) => {
    const people = ['a', 'b'].map((name) => newPerson(service, `${name}@example.com`));
    await Promise.all(people);
    const proxy = async (): Promise<string[]> =>
      about(await examine({ DATABASE_URL: service.database.url, DATA_DIR: join(folder, 'none') }), 'proxy');
    // All are on this machine.
    expect(await proxy()).toEqual(['ok: none is trusted']);
    await service.sql`UPDATE sessions SET address = '10.0.0.9'`;
    expect(await proxy()).toEqual([
      expect.stringMatching(
        /^warning: all 2 accounts of the last hour have one private address, 10\.0\.0\.9/,
      ),
    ]);
    await service.sql`UPDATE sessions SET address = '10.0.0.10' WHERE user_id = (SELECT min(user_id) FROM sessions)`;
    expect(await proxy()).toEqual(['ok: none is trusted']);
    await service.sql`UPDATE sessions SET address = '10.0.0.9', last_seen_at = now() - interval '2 hours'`;
    expect(await proxy()).toEqual(['ok: none is trusted']);
  });
}, 60_000);

test('an empty database stays empty', async () => {
  const database = await testDatabase('postgres18', { empty: true });
  try {
    const report = await examine({ DATABASE_URL: database.url, DATA_DIR: join(folder, 'none') });
    expect(about(report, 'database')).toEqual([
      'warning: there is no Tidemark database in the database of DATABASE_URL',
    ]);
    const [tables] = await database.sql`SELECT count(*)::int AS n FROM pg_tables WHERE schemaname = 'public'`;
    expect(tables).toEqual({ n: 0 });
  } finally {
    await database.drop();
  }
});

test('where nothing was ever started, nothing is made', async () => {
  const report = await examine({ DATA_DIR: join(folder, 'nowhere') });
  expect(report).toMatchObject({ healthy: true, code: 0 });
  expect(existsSync(join(folder, 'nowhere'))).toBe(false);
});

test('a database that is away is a finding, without the password of its URL; a wrong setting is an error', async () => {
  const settings = {
    DATABASE_URL: 'postgres://someone:hunter22@127.0.0.1:1/gone',
    DATA_DIR: join(folder, 'x'),
  };
  const { code, stdout, stderr } = await tidemark(['doctor'], settings);
  expect(code).toBe(2);
  expect(stdout).toMatch(
    /PROBLEM +database +the database 127\.0\.0\.1:1\/gone of DATABASE_URL cannot be reached/,
  );
  expect(stdout + stderr).not.toContain('hunter22');

  const wrong = await tidemark(['doctor'], { WORKERS: 'some' });
  expect(wrong).toMatchObject({ code: 1, stdout: '' });
  expect(wrong.stderr).toContain('WORKERS:');
  // What only a service that listens needs does not keep the other checks from being made.
  const { stdout: found } = await tidemark(['doctor'], { PORT: 'tcp://10.0.0.1:8080' });
  expect(found).toMatch(/PROBLEM +settings +PORT: must be a whole number/);
});
