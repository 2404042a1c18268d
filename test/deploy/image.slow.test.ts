/** The image is built of what .dockerignore lets through: the sources among it build by themselves. */
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { ROOT } from '../docs/pages.ts';
import { patient } from '../support/patience.ts';

vi.setConfig({ testTimeout: patient(120_000) });

const run = promisify(execFile);

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tidemark-image-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('what .dockerignore lets through builds', async () => {
  const rules = readFileSync(join(ROOT, '.dockerignore'), 'utf8').split('\n');
  const kept = rules.filter((rule) => rule.startsWith('!')).map((rule) => rule.slice(1));
  const { stdout } = await run('git', ['ls-files', '-co', '--exclude-standard', ...kept], { cwd: ROOT });
  for (const name of stdout.trim().split('\n'))
    if (existsSync(join(ROOT, name))) cpSync(join(ROOT, name), join(folder, name));
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  await run(process.execPath, ['tidemark.mjs', '--build-only'], { cwd: folder });
  const built = ['main.js', 'dashboard/index.html', 'dashboard/tidemark.js', 'dashboard/docs/errors.html'];
  expect(built.filter((name) => !existsSync(join(folder, 'dist', name)))).toEqual([]);
});
