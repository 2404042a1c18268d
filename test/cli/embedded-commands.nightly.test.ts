/** Commands without a server: each starts the embedded PostgreSQL and stops it. */
import { existsSync } from 'node:fs';
import { appendFile, chmod, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { build, type Outcome, type Settings, tidemarkProcess } from '../support/command-line.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-embedded-'));
  // Whichever test comes first must not be the one whose standard error shows the build.
  build();
}, 60_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

const createApp = (name: string, settings: Settings): Promise<Outcome> =>
  tidemarkProcess(['app', 'create', '--name', name, '--json'], settings);
const listApps = (settings: Settings): Promise<Outcome> =>
  tidemarkProcess(['app', 'list', '--json'], settings);

interface Report {
  readonly healthy: boolean;
  readonly findings: readonly { check: string; level: string; found: string }[];
}

async function examine(settings: Settings): Promise<Report & { code: number | null }> {
  const { code, stdout } = await tidemarkProcess(['doctor', '--json'], { PORT: '0', ...settings });
  const report: Report = JSON.parse(stdout);
  return { ...report, code };
}

test('commands find what earlier ones made, leave nothing running, and the doctor finds what is wrong with it', async () => {
  const settings = { DATA_DIR: join(folder, 'embedded') };
  const migrated = await tidemarkProcess(['migrate'], settings);
  expect(migrated.code, migrated.stderr).toBe(0);
  expect(migrated.stderr).toMatch(/making a new PostgreSQL/);
  const made = await createApp('Shop', settings);
  expect(made.code, made.stderr).toBe(0);
  const listed = await listApps(settings);
  expect(listed.stderr).toBe('');
  expect(JSON.parse(listed.stdout).apps[0].appId).toBe(JSON.parse(made.stdout).appId);
  expect(existsSync(join(settings.DATA_DIR, 'postgres', 'postmaster.pid'))).toBe(false);

  expect(await examine(settings)).toMatchObject({ healthy: true, code: 0 });
  const cluster = await realpath(join(settings.DATA_DIR, 'postgres'));
  await appendFile(join(cluster, 'postgresql.conf'), '\nfsync = off\n');
  await chmod(join(settings.DATA_DIR, 'secret'), 0o644);
  await chmod(settings.DATA_DIR, 0o755);
  const report = await examine(settings);
  const about = (check: string): string[] =>
    report.findings.filter((one) => one.check === check).map(({ level, found }) => `${level}: ${found}`);
  expect(report).toMatchObject({ healthy: false, code: 2 });
  expect(about('durability')[0]).toMatch(/^problem: fsync is off/);
  expect(about('secret')).toEqual(['problem: other users can read its file (mode 644)']);
  expect(about('folder')).toHaveLength(1);
  const secret = (await readFile(join(settings.DATA_DIR, 'secret'), 'utf8')).trim();
  expect(JSON.stringify(report)).not.toContain(secret);
});

test('commands at the same time share it', async () => {
  const settings = { DATA_DIR: join(folder, 'shared') };
  expect((await tidemarkProcess(['migrate'], settings)).code).toBe(0);
  const names = ['a', 'b', 'c', 'd'];
  const made = await Promise.all(names.map((name) => createApp(name, settings)));
  expect(made.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
  const { stdout } = await listApps(settings);
  const { apps } = JSON.parse(stdout) as { apps: { name: string }[] };
  expect(apps.map(({ name }) => name).sort()).toEqual(names);
});
