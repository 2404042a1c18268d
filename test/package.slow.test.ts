/** The npm package as users have it: packed, installed into an empty folder by an ordinary user, and run. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import {
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readPage } from './docs/pages.ts';
import { LAUNCHER } from './support/command-line.ts';
import { until } from './support/service.ts';

const run = promisify(execFile);
const REPOSITORY = dirname(LAUNCHER);
const MAX_PACKAGE_BYTES = 1_600_000;
/** root installs as somebody else. */
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;

interface Packed {
  readonly filename: string;
  readonly size: number;
  readonly files: readonly { readonly path: string }[];
}

let folder: string;
let home: string;
let packed: Packed;

/** A clone: what is committed, and what is about to be. */
async function copyOfRepository(): Promise<string> {
  const copy = join(folder, 'clone');
  const { stdout } = await run('git', ['ls-files', '-co', '--exclude-standard'], { cwd: REPOSITORY });
  for (const name of stdout.trim().split('\n'))
    if (existsSync(join(REPOSITORY, name))) cpSync(join(REPOSITORY, name), join(copy, name));
  symlinkSync(join(REPOSITORY, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

/** In the user's folder, with nothing of our own environment but PATH. */
function asUser(): { cwd: string; env: NodeJS.ProcessEnv; uid?: number; gid?: number } {
  const env = { PATH: process.env.PATH ?? '', HOME: home, npm_config_cache: join(home, 'cache') };
  return { cwd: home, env, ...(isRoot && { uid: NOBODY, gid: NOBODY }) };
}

async function npx(...args: string[]): Promise<string> {
  return (await run('npx', ['--no-install', 'tidemark', ...args], asUser())).stdout;
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tidemark-package-'));
  const copy = await copyOfRepository();
  home = mkdtempSync(join(tmpdir(), 'tidemark-user-'));
  if (isRoot) chownSync(home, NOBODY, NOBODY);
  const { stdout: gitFolder } = await run('git', ['rev-parse', '--absolute-git-dir'], { cwd: REPOSITORY });
  const env = { ...process.env, GIT_DIR: gitFolder.trim() };
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', home], { cwd: copy, env });
  [packed] = JSON.parse(stdout) as [Packed];
  expect(readdirSync(copy), 'packing leaves nothing behind').not.toContain('.commit');
  await run('npm', ['install', '--no-audit', '--no-fund', `./${packed.filename}`], asUser());
}, 240_000);
afterAll(() => {
  for (const made of [folder, home]) rmSync(made, { recursive: true, force: true });
});

test('the package is small and has only what runs', () => {
  expect(packed.size).toBeLessThan(MAX_PACKAGE_BYTES);
  const [, told] = /package itself is ([\d.]+) MB/.exec(readPage('docs/deployment.md')) ?? [];
  expect(Math.abs(Number(told) - packed.size / 1e6), 'docs/deployment.md says how large it is').toBeLessThan(
    0.1,
  );
  const folders = new Set(packed.files.map(({ path }) => path.split('/')[0]));
  expect([...folders].sort()).toEqual(
    [
      '.commit',
      'LICENSE',
      'README.md',
      'deploy',
      'dist',
      'package.json',
      'sql',
      'tidemark.1',
      'tidemark.mjs',
    ].sort(),
  );
});

test('no development dependency is installed, and no install script has run', () => {
  const modules = readdirSync(join(home, 'node_modules'));
  for (const name of ['typescript', 'vite', 'preact', 'vitest']) expect(modules).not.toContain(name);
});

test('the version names the commit that it was built from', async () => {
  const { stdout } = await run('git', ['rev-parse', 'HEAD'], { cwd: REPOSITORY });
  expect(await npx('--version')).toMatch(new RegExp(`^\\d+\\.\\d+\\.\\d+ \\(${stdout.trim()}\\)\n$`));
});

test('the quick start works: a service in ./.tidemark, an app, an event, and its way back', async () => {
  const service = spawn('npx', ['--no-install', 'tidemark', 'serve'], {
    ...asUser(),
    env: { ...asUser().env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  try {
    const origin = await originOf(service);
    expect(statSync(join(home, '.tidemark')).isDirectory()).toBe(true);
    const app = JSON.parse(await npx('app', 'create', '--name', 'Shop', '--json'));
    const token = JSON.parse(await npx('token', 'create', '--name', 'Tool', '--app', app.appId, '--json'));
    const event = { loggingToken: app.loggingToken, typeName: 'order placed', payload: { orderId: 1001 } };
    const posted = await fetch(`${origin}/public/create_event`, {
      method: 'POST',
      body: JSON.stringify(event),
    });
    expect(posted.status).toBe(201);
    const read = await fetch(`${origin}/public/get_events?appId=${app.appId}`, {
      headers: { Authorization: `Bearer ${token.resourceToken}` },
    });
    expect(await read.json()).toMatchObject({ data: { events: [{ payload: { orderId: 1001 } }] } });
    const dashboard = await fetch(origin, { headers: { Accept: 'text/html' } });
    expect(await dashboard.text()).toContain('<!doctype html>');
    expect(await (await fetch(`${origin}/livez`)).json()).toMatchObject({ commit: expect.any(String) });
  } finally {
    const ended = new Promise((resolve) => service.once('close', resolve));
    // npx, its shell and the service are one group.
    process.kill(-(service.pid ?? 0), 'SIGTERM');
    await ended;
  }
}, 120_000);

/** Once it listens. What it prints names the folder of the data and the command that comes next. */
async function originOf(service: ChildProcess): Promise<string> {
  let printed = '';
  for (const output of [service.stdout, service.stderr]) output?.on('data', (text) => (printed += text));
  const listening = (): string | undefined => /listens on (http:\/\/\S+)/.exec(printed)?.[1];
  await until(
    () => listening() !== undefined && printed.includes('npx tidemark app create'),
    'it listens',
    60_000,
  );
  expect(printed).toContain('embedded in .tidemark');
  expect(printed).not.toContain('building');
  return listening() as string;
}
