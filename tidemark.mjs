#!/usr/bin/env node
/**
 * The launcher: brings dist/ up to date with src/ where both are there, and runs the command line in this same process,
 * so that signals reach the service. It runs before anything is built, hence plain JavaScript that old Nodes can parse.
 */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const OLDEST_NODE = [20, 19];
/** How the names of folders begin in which dist/ is being built. */
const DRAFT = '.new-';

/** How often a start by npm looks for its parent. */
const PARENT_CHECK_MS = 500;

const parent = process.ppid;
const root = dirname(fileURLToPath(import.meta.url));
const dist = join(root, 'dist');
const main = join(dist, 'main.js');
const stamp = join(dist, '.built');
const require = createRequire(import.meta.url);
const compiler = find('typescript/package.json');
const dashboard = join(root, 'dashboard');

const browserClient = join(root, 'client', 'browser');
/** What the pages are built from beside dashboard/: the page of errors has its texts from the reference. */
const PAGE_SOURCES = [
  join(root, 'vite.config.ts'),
  join(root, 'docs', 'api.md'),
  join(browserClient, 'build.mjs'),
];

/** One line that says what to do, and the end. */
function fail(line) {
  process.stderr.write(`tidemark: ${line}\n`);
  process.exit(1);
}

/** Where npm put it, in this folder's node_modules or further up; undefined where it is not installed. */
function find(specifier) {
  try {
    return require.resolve(specifier);
  } catch {
    return undefined;
  }
}

/** All files below a folder. Drafts are left out: they belong to other starts and vanish under one's feet. */
function filesOf(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name.startsWith(DRAFT) ? [] : filesOf(path);
    return [path];
  });
}

/** What dist/ is built from: names, times and sizes. */
function sources() {
  const pages = existsSync(dashboard)
    ? [...filesOf(dashboard), ...PAGE_SOURCES, ...filesOf(join(browserClient, 'src'))]
    : [];
  return [...filesOf(join(root, 'src')), ...pages, join(root, 'tsconfig.json'), join(root, 'package.json')]
    .sort()
    .map((path) => {
      // An editor's own file may be gone by now.
      const found = statSync(path, { throwIfNoEntry: false });
      return `${relative(root, path)} ${found?.mtimeMs} ${found?.size}\n`;
    })
    .join('');
}

function isFresh(wanted) {
  try {
    return readFileSync(stamp, 'utf8') === wanted && existsSync(main);
  } catch {
    return false;
  }
}

/**
 * Builds aside and moves the files over one by one: whoever starts or runs meanwhile never sees half a file, nor dist/
 * without one. Several builds at once do the same work, and the last one's files stay.
 */
function build() {
  for (let wanted = sources(); !isFresh(wanted); wanted = sources()) {
    mkdirSync(dist, { recursive: true });
    const draft = mkdtempSync(join(dist, DRAFT));
    try {
      compile(draft);
      if (existsSync(dashboard)) bundle(draft);
      // Edited meanwhile: what was built may be of neither state.
      if (sources() === wanted) publish(draft, wanted);
    } finally {
      rmSync(draft, { recursive: true, force: true });
    }
  }
}

/** Types are what `npm run check` checks; here the compiler only takes them away, and comments, which are a quarter of the text. */
function compile(draft) {
  const tsc = join(dirname(compiler), 'bin', 'tsc');
  const output = ['--outDir', draft, '--sourceRoot', join(root, 'src', '/')];
  const options = [
    '-p',
    join(root, 'tsconfig.json'),
    ...output,
    '--noCheck',
    '--removeComments',
    '--pretty',
    'false',
  ];
  const { status, stdout, error } = spawnSync(process.execPath, [tsc, ...options], { encoding: 'utf8' });
  if (status === 0) return;
  rmSync(draft, { recursive: true, force: true });
  fail(`src/ does not compile: ${error ? error.message : stdout.trim()}`);
}

/** The dashboard as files to be served, hashed and minified. */
function bundle(draft) {
  const bundler = find('vite/package.json');
  const vite = join(dirname(bundler ?? ''), 'bin', 'vite.js');
  const options = ['build', '--outDir', join(draft, 'dashboard'), '--logLevel', 'error'];
  const env = { ...process.env, NODE_ENV: 'production' };
  const ran =
    bundler && spawnSync(process.execPath, [vite, ...options], { cwd: root, encoding: 'utf8', env });
  if (ran?.status === 0) return;
  rmSync(draft, { recursive: true, force: true });
  fail(`dashboard/ can not be bundled: ${ran ? (ran.error ?? ran.stderr.trim()) : `run npm ci in ${root}`}`);
}

function publish(draft, wanted) {
  writeFileSync(join(draft, '.built'), wanted);
  const made = filesOf(draft).map((path) => relative(draft, path));
  for (const name of made) {
    if (name === '.built') continue;
    mkdirSync(dirname(join(dist, name)), { recursive: true });
    renameSync(join(draft, name), join(dist, name));
  }
  // What was built from files that are gone.
  for (const path of filesOf(dist)) {
    if (!made.includes(relative(dist, path))) rmSync(path, { force: true });
  }
  renameSync(join(draft, '.built'), stamp);
}

/** Whether the process that started this one has ended. Windows keeps its id, other systems give the child to another parent. */
function isOrphan() {
  if (process.ppid !== parent) return true;
  if (process.platform !== 'win32') return false;
  try {
    process.kill(parent, 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH';
  }
}

/**
 * npm and npx run a command in a shell, which ends at a signal and does not pass it on: without this the service would keep its
 * port when its `npm start` is terminated. Then it stops as where a terminal closes: that is never an impatient second signal.
 */
function stopWithParent() {
  const timer = setInterval(() => {
    if (!isOrphan()) return;
    clearInterval(timer);
    if (!process.emit('SIGHUP', 'SIGHUP')) process.exit(129);
  }, PARENT_CHECK_MS);
  timer.unref();
}

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  fail(`Node ${process.versions.node} is too old: install Node ${OLDEST_NODE.join('.')} or newer`);
}
if (find('commander') === undefined) fail(`the packages are not installed: run npm ci in ${root}`);

// An installed package has no src/, and a deployment no compiler: there dist/ is what was built for it.
if (existsSync(join(root, 'src')) && compiler !== undefined) {
  if (!isFresh(sources())) {
    process.stderr.write('tidemark: building\n');
    build();
  }
} else if (!existsSync(main)) {
  fail(`dist/ is not built and TypeScript is not installed: run npm ci in ${root}`);
}

if (process.argv.includes('serve') && process.env.npm_lifecycle_event !== undefined) stopWithParent();
if (process.argv[2] !== '--build-only') await import('./dist/main.js');
