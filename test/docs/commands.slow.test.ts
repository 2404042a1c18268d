/**
 * Every shell block of the documentation runs here as written, in its order, one shell per page, against a service of its
 * own. A block that cannot run says why: `<!-- not run: reason -->`. Where a JSON block follows, its lines are the expected
 * output, but for identifiers, times and versions.
 */
import { execFile } from 'node:child_process';
import { mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, test, vi } from 'vitest';
import { Installation, type ServerProcess } from '../e2e/server-process.ts';
import { urlOf } from '../support/cluster.ts';
import { LAUNCHER, tidemark } from '../support/command-line.ts';
import { isLong } from '../support/fuzz.ts';
import { patient } from '../support/patience.ts';
import { type CodeBlock, codeBlocks, markedTable, PAGES, ROOT, readPage } from './pages.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(60_000) });

const run = promisify(execFile);

let installation: Installation;
let server: ServerProcess;

beforeAll(async () => {
  installation = await Installation.make();
  server = await installation.start();
});

afterAll(async () => {
  await server?.end('SIGTERM');
  await installation?.remove();
});

/** A block, and the lines of JSON that it is said to print; null where the page does not say. */
interface Step extends CodeBlock {
  readonly output: readonly string[] | null;
}

function stepsOf(page: string): Step[] {
  const blocks = codeBlocks(page);
  return blocks.flatMap((block, index): Step[] => {
    if (block.language !== 'sh' || block.notRun !== null) return [];
    const next = blocks[index + 1];
    return [{ ...block, output: next?.language === 'json' ? next.text.split('\n') : null }];
  });
}

const END = '\u001e';

/** What a newcomer runs first; at night every page. */
const FIRST_PAGES = new Set(['README.md', 'docs/tutorial.md', 'docs/command-line.md', 'docs/producers.md']);

test.each(PAGES.filter((path) => (isLong || FIRST_PAGES.has(path)) && stepsOf(readPage(path)).length > 0))(
  'the commands of %s work as written',
  async (path) => {
    const steps = stepsOf(readPage(path));
    const outputs = await runSteps(path, steps);
    for (const [index, { line, output }] of steps.entries()) {
      if (output === null) continue;
      const printed = (outputs[index] ?? '').trim().replaceAll('}{', '}\n{').split('\n');
      expect(printed.map(comparable), `${path}, line ${line}`).toEqual(output.map(comparable));
    }
  },
);

/** @returns what each of the steps has printed */
async function runSteps(path: string, steps: readonly Step[]): Promise<readonly string[]> {
  // The commands of these pages are for a clone, and make their own app; those of others leave files behind.
  const isForClone = path === 'README.md' || path === 'docs/tutorial.md';
  const folder = isForClone ? ROOT : join(await realpath(installation.folder), path.replaceAll('/', '-'));
  await mkdir(folder, { recursive: true });
  const env = { ...process.env, DATA_DIR: installation.dataDir, ...(isForClone ? {} : await newApp()) };
  const script = [
    `tidemark() { ${JSON.stringify(process.execPath)} ${JSON.stringify(LAUNCHER)} "$@"; }`,
    ...steps.map(({ text }) => `${text.replaceAll(':8080', `:${server.port}`)}\nprintf '${END}'`),
  ].join('\n');
  const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', script], { cwd: folder, env });
  const outputs = stdout.split(END);
  expect(outputs.pop(), 'all of the steps have run').toBe('');
  return outputs;
}

/** The variables that the pages take from the quick start. */
async function newApp(): Promise<Record<string, string>> {
  const { appId, loggingToken } = await installation.makeApp();
  const made = await tidemark(
    ['token', 'create', '--name', 'Docs', '--app', appId, '--json'],
    installation.settings,
  );
  const { resourceToken } = JSON.parse(made.stdout);
  return { APP_ID: appId, LOGGING_TOKEN: loggingToken, RESOURCE_TOKEN: resourceToken };
}

/** A line of JSON without what differs from run to run. */
function comparable(line: string): unknown {
  return JSON.parse(line, (_key, value: unknown) => {
    if (typeof value !== 'string') return value;
    return value
      .replace(/^[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/, 'a UUID')
      .replace(/^(app|typ|tok|tdl|tdr)_\w+$/, 'an identifier')
      .replace(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, (time) => (isRecent(time) ? 'now' : time))
      .replace(/^PostgreSQL [\d.]+$/, 'PostgreSQL');
  });
}

/** Times of the documentation in 2026 stand for the time of the request; earlier ones are given by the example. */
function isRecent(time: string): boolean {
  return time >= '2026';
}

test('a block that does not run says why', () => {
  const reasons = PAGES.flatMap((path) =>
    codeBlocks(readPage(path)).map(({ notRun }) => notRun ?? 'a reason'),
  );
  expect(reasons.filter((reason) => reason.length < 8)).toEqual([]);
});

test('the SQL of docs/deployment.md makes a role and a database that are enough for the service', async () => {
  const cluster = inject('clusters').postgres18;
  if (cluster === undefined) throw new Error('The tests have no PostgreSQL 18.');
  const [block] = codeBlocks(readPage('docs/deployment.md')).filter(({ language }) => language === 'sql');
  if (block === undefined) throw new Error('docs/deployment.md has no SQL.');
  const { connect } = await import('../../src/storage/database/connect.ts');
  const admin = connect({ url: urlOf(cluster, 'postgres') }, { connections: 1, name: 'docs' });
  const name = `docs_${Date.now()}`;
  try {
    for (const statement of block.text.split(';').filter((text) => text.trim() !== ''))
      await admin.unsafe(statement.replaceAll('tidemark', name));
    const url = `postgres://${name}:${encodeURIComponent('change me')}@${cluster.host}:${cluster.port}/${name}`;
    const settings = { DATABASE_URL: url, DATA_DIR: join(installation.folder, 'docs-sql'), PORT: '0' };
    expect(await tidemark(['migrate'], settings)).toMatchObject({ code: 0 });
    const doctor = await tidemark(['doctor', '--json'], settings);
    const { findings } = JSON.parse(doctor.stdout) as { findings: { check: string; level: string }[] };
    const about = findings.filter(({ check }) => ['database', 'role'].includes(check));
    expect(about.map(({ level }) => level)).toEqual(['ok']);
  } finally {
    await admin.unsafe(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await admin.unsafe(`DROP ROLE IF EXISTS ${name}`);
    await admin.end();
  }
});

/** The commands that have no commands of their own, with their options, as the help tells. */
async function commandsOf(path: readonly string[]): Promise<Map<string, string>> {
  const { stdout } = await tidemark([...path, '--help']);
  const listed = /\nCommands:\n([\s\S]*?)(?=\n\S|\n\n|$)/.exec(stdout)?.[1] ?? '';
  const names = [...listed.matchAll(/^ {2}(\w[\w-]*)/gm)].map(([, name = '']) => name);
  const own = names.filter((name) => name !== 'help');
  if (own.length === 0) return new Map([[path.join(' '), stdout]]);
  const below: [string, string][] = [];
  for (const name of own) below.push(...(await commandsOf([...path, name])));
  return new Map(below);
}

test('docs/command-line.md lists every command, with options that it has', async () => {
  const help = await commandsOf([]);
  const listed = new Map(
    markedTable(readPage('docs/command-line.md'), 'commands').map(([cell = '']) => {
      const text = cell.replaceAll('`', '').replace(/^tidemark /, '');
      return [/^[a-z][a-z-]*(?: [a-z][a-z-]*)*/.exec(text)?.[0] ?? '', text];
    }),
  );
  expect([...listed.keys()].sort()).toEqual([...help.keys()].sort());
  for (const [command, text] of listed)
    for (const [option] of text.matchAll(/--[a-z-]+/g)) expect(help.get(command), command).toContain(option);
});
