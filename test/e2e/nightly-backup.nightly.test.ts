/** The script of the nightly backup: a backup counts once it has been restored. */
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { LAUNCHER, tidemark } from '../support/command-line.ts';

const SCRIPT = join(import.meta.dirname, '../../deploy/systemd/tidemark-backup.sh');
const folder = mkdtempSync(join(tmpdir(), 'tidemark-nightly-'));
const backups = join(folder, 'backups');
const settings = { DATA_DIR: join(folder, 'data') };

beforeAll(async () => {
  mkdirSync(backups);
  expect((await tidemark(['migrate'], settings)).code).toBe(0);
  const app = JSON.parse((await tidemark(['app', 'create', '--name', 'Shop', '--json'], settings)).stdout);
  const events = ['2025-01-01', '2025-01-02', '2025-01-03'].map((day) =>
    JSON.stringify({ type: 'order', createdAt: `${day}T08:00:00Z`, payload: { day } }),
  );
  writeFileSync(join(folder, 'events.ndjson'), `${events.join('\n')}\n`);
  const imported = await tidemark(['import', '--app', app.appId, join(folder, 'events.ndjson')], settings);
  expect(imported).toMatchObject({ code: 0 });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the script where `tidemark` is this shell text. */
async function run(text: string, keep: string): Promise<{ code: number; stdout: string; stderr: string }> {
  writeFileSync(join(folder, 'tidemark'), `#!/bin/sh\n${text}\n`);
  chmodSync(join(folder, 'tidemark'), 0o755);
  const env = { ...settings, PATH: `${folder}${delimiter}${process.env.PATH}` };
  try {
    return { code: 0, ...(await promisify(execFile)('sh', [SCRIPT, backups, keep], { env })) };
  } catch (error) {
    return error as { code: number; stdout: string; stderr: string };
  }
}

const REAL = `exec '${process.execPath}' '${LAUNCHER}' "$@"`;
const files = (): string[] => readdirSync(backups).filter((name) => name !== 'tidemark-notes.txt');

test('a backup that was restored takes the place of the oldest one, and no other file', async () => {
  const old = ['tidemark-20240101T030000Z.backup', 'tidemark-20240102T030000Z.backup'];
  for (const name of [...old, 'tidemark-notes.txt']) writeFileSync(join(backups, name), '');
  const { code, stdout } = await run(REAL, '2');
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^backup tested: .*\.backup, 3 events\nremoved: .*tidemark-20240101T030000Z\.backup\n$/,
  );
  expect(files()).toEqual([old[1], expect.stringMatching(/^tidemark-2[\dTZ]+\.backup$/)]);
});

test.each([
  ['cannot be restored', `[ "$1" = restore ] && exit 1\n${REAL}`],
  ['is restored in part', `[ "$1" = restore ] && echo '{"events":2}' && exit 0\n${REAL}`],
  ['cannot be made', 'exit 1'],
])('a backup that %s is a failure, and removes nothing', async (_what, text) => {
  const before = files();
  expect((await run(text, '1')).code).toBe(1);
  expect(files()).toEqual(expect.arrayContaining(before));
  expect(files().filter((name) => name.startsWith('.'))).toEqual([]);
});

test('a number of backups that is none is refused', async () => {
  expect(await run(REAL, 'all')).toMatchObject({ code: 1, stderr: expect.stringContaining('"all"') });
});
