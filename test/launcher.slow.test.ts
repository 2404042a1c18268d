import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LAUNCHER, type Outcome, tidemarkProcess } from './support/command-line.ts';

const REPOSITORY = dirname(LAUNCHER);
const MAIN = 'process.stdout.write("answer " + process.argv.slice(2).join(" ") + "\\n");\n';

let clone: string;
beforeEach(async () => {
  clone = await mkdtemp(join(tmpdir(), 'tidemark-launcher-'));
  await cp(LAUNCHER, join(clone, 'tidemark.mjs'));
  for (const name of ['package.json', 'tsconfig.json']) await cp(join(REPOSITORY, name), join(clone, name));
  await mkdir(join(clone, 'src', 'part'), { recursive: true });
  await writeFile(join(clone, 'src', 'main.ts'), `import './part/one.ts';\n${MAIN}`);
  await writeFile(join(clone, 'src', 'part', 'one.ts'), 'export const one: number = 1;\n');
});
afterEach(() => rm(clone, { recursive: true, force: true }));

/** The packages of this repository, without some. */
async function install(...without: string[]): Promise<void> {
  const modules = join(REPOSITORY, 'node_modules');
  await mkdir(join(clone, 'node_modules'));
  for (const name of await readdir(modules)) {
    if (!without.includes(name)) await symlink(join(modules, name), join(clone, 'node_modules', name));
  }
}

const launch = (...args: string[]): Promise<Outcome> =>
  tidemarkProcess(args, {}, join(clone, 'tidemark.mjs'));
const FRESH = { code: 0, stdout: 'answer app list\n', stderr: '' };
const BUILT = { ...FRESH, stderr: 'tidemark: building\n' };

test('it builds when dist/ is missing or stale, says so, and is silent when it is fresh', async () => {
  await install();
  expect(await launch('app', 'list')).toEqual(BUILT);
  expect(await launch('app', 'list')).toEqual(FRESH);
  await writeFile(join(clone, 'src', 'main.ts'), MAIN.replace('answer', 'changed'));
  expect((await launch('app', 'list')).stdout).toBe('changed app list\n');
  await utimes(join(clone, 'package.json'), 0, 0);
  expect((await launch()).stderr).toBe('tidemark: building\n');
  await rm(join(clone, 'src', 'part'), { recursive: true });
  expect((await launch()).stderr).toBe('tidemark: building\n');
  expect(existsSync(join(clone, 'dist', 'part', 'one.js'))).toBe(false);
});

test('starts at once all run, and leave nothing but the build', async () => {
  await install();
  const outcomes = await Promise.all(Array.from({ length: 6 }, () => launch('app', 'list')));
  for (const outcome of outcomes) expect([BUILT, FRESH]).toContainEqual(outcome);
  const left = (await readdir(join(clone, 'dist'))).sort();
  expect(left).toEqual(['.built', 'main.js', 'main.js.map', 'part']);
  expect(await launch('app', 'list')).toEqual(FRESH);
});

test('--build-only builds and does not start', async () => {
  await install();
  expect(await launch('--build-only')).toEqual({ code: 0, stdout: '', stderr: 'tidemark: building\n' });
  expect(await launch('--build-only')).toEqual({ code: 0, stdout: '', stderr: '' });
});

test('without a compiler it runs what is built, and otherwise says what to do', async () => {
  await install('typescript');
  const missing = await launch('app', 'list');
  expect(missing).toMatchObject({ code: 1, stdout: '' });
  expect(missing.stderr).toMatch(/^tidemark: dist\/ is not built .*run npm ci in .*\n$/);
  await mkdir(join(clone, 'dist'));
  await writeFile(join(clone, 'dist', 'main.js'), MAIN);
  expect(await launch('app', 'list')).toEqual(FRESH);
});

test('without packages it says what to do', async () => {
  const { code, stdout, stderr } = await launch('app', 'list');
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).toMatch(/^tidemark: the packages are not installed: run npm ci in .*\n$/);
});

test('source that is no TypeScript is named and what was built stays', async () => {
  await install();
  await launch();
  const before = await readFile(join(clone, 'dist', 'main.js'), 'utf8');
  await writeFile(join(clone, 'src', 'main.ts'), 'const = ;\n');
  const { code, stderr } = await launch();
  expect(code).toBe(1);
  expect(stderr).toMatch(/src\/ does not compile: .*main\.ts/);
  expect(await readFile(join(clone, 'dist', 'main.js'), 'utf8')).toBe(before);
});

/** A service that says its process id, and that it stops in order. */
const SERVICE = `
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'])
  process.once(signal, () => process.stdout.write('stopped\\n', () => process.exit(0)));
setInterval(() => undefined, 1000);
process.stdout.write(\`serving as \${process.pid}.\\n\`);
`;

/** Starts a service, kills what has started it, and waits until every process that could write to its output has ended. */
async function outputOfKilled(child: ChildProcess, signal: NodeJS.Signals): Promise<string> {
  let output = '';
  child.stdout?.on('data', (text: Buffer) => {
    output += text;
    if (/serving as \d+[.]\n/.test(output)) child.kill(signal);
  });
  const lost = setTimeout(() => {
    const [, pid] = /serving as (\d+)/.exec(output) ?? [];
    if (pid !== undefined) process.kill(Number(pid), 'SIGKILL');
  }, 20_000);
  await once(child, 'close');
  clearTimeout(lost);
  return output;
}

test.each(['SIGTERM', 'SIGINT', 'SIGKILL'] as const)(
  'a service of npm start does not outlive an npm that is ended by %s',
  async (signal) => {
    await install();
    await writeFile(join(clone, 'src', 'main.ts'), SERVICE);
    const child = spawn('npm', ['start'], { cwd: clone, env: { PATH: process.env.PATH }, stdio: 'pipe' });
    expect(await outputOfKilled(child, signal)).toMatch(/stopped\n$/);
  },
);

test('a service that npx or a script of npm has started ends with the shell in between', async () => {
  await install();
  await writeFile(join(clone, 'src', 'main.ts'), SERVICE);
  const env = { PATH: process.env.PATH, npm_lifecycle_event: 'npx' };
  const child = spawn('sh', ['-c', `"${process.execPath}" tidemark.mjs serve; true`], { cwd: clone, env });
  expect(await outputOfKilled(child, 'SIGTERM')).toMatch(/stopped\n$/);
});
