/** Whatever the documentation names exists: files, anchors, scripts, variables, commands, services, routes, errors. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';
import { OIDC_PROBLEMS } from '../../src/accounts/oidc/sign-in.ts';
import { MAX_FIELDS } from '../../src/apps/fields.ts';
import { readConfig, SETTINGS } from '../../src/config.ts';
import { REFUSALS } from '../../src/errors.ts';
import { API } from '../../src/service/api-description.ts';
import { connectionsOf } from '../../src/service.ts';
import { tidemark } from '../support/command-line.ts';
import { sharedService } from '../support/service.ts';
import {
  anchors,
  codeBlocks,
  codeSpans,
  links,
  markedTable,
  PAGES,
  prose,
  ROOT,
  readPage,
  sentences,
  tableBelow,
} from './pages.ts';

/** Pages that explain the code; those for users have short sentences. */
const FOR_DEVELOPERS = new Set([
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'docs/architecture.md',
  'docs/performance.md',
]);

test('ceilings that several pages name are those of the code', () => {
  const connections = connectionsOf(readConfig({}));
  const ceilings: readonly [page: string, says: RegExp, is: number][] = [
    ['docs/accounts.md', /Declared fields of an app \| ([\d,]+)/, MAX_FIELDS],
    ['docs/api.md', /declares paths of payloads, up to ([\d,]+)/, MAX_FIELDS],
    ['docs/limits.md', /An app may have ([\d,]+) declarations/, MAX_FIELDS],
    ['docs/questions.md', /([\d,]+) declarations an app/, MAX_FIELDS],
    ['docs/sizing.md', /process uses up to ([\d,]+) connections/, connections],
    ['docs/scaling.md', /process uses up to ([\d,]+) connections/, connections],
    ['docs/scaling.md', /up to ([\d,]+) of each process to each node/, connections],
    ['docs/scaling.md', /at 100 processes ([\d,]+) for a node/, 100 * connections],
    ['docs/scaling.md', /100 processes are up to ([\d,]+) connections/, 100 * connections],
  ];
  for (const [page, says, is] of ceilings) {
    const [, said = 'nothing'] = says.exec(readPage(page).replace(/\s+/g, ' ')) ?? [];
    expect([page, String(says), Number(said.replaceAll(',', ''))]).toEqual([page, String(says), is]);
  }
});

test.each(PAGES)('the links of %s lead to files and headings that exist', (path) => {
  const broken = links(readPage(path))
    .filter((target) => !/^https?:/.test(target))
    .filter((target) => {
      const [file = '', anchor] = target.split('#');
      const found = file === '' ? path : normalize(join(dirname(path), file));
      if (!existsSync(join(ROOT, found))) return true;
      return anchor !== undefined && !anchors(readPage(found)).has(anchor);
    });
  expect(broken).toEqual([]);
});

test.each(PAGES)('the files that %s names exist', (path) => {
  const named = codeSpans(readPage(path)).filter((text) =>
    /^(src|test|bench|sql|docs|dashboard|\.ci)\/[\w./-]*$/.test(text),
  );
  // SECURITY.md names tests by their path in test/; NNNN stands for a number.
  const places = (name: string): string[] => [name, `test/${name}.test.ts`, name.replace(/NNNN.*/, '')];
  const missing = named.filter((name) => !places(name).some((place) => existsSync(join(ROOT, place))));
  expect(missing).toEqual([]);
});

test('the folders of docs/architecture.md are those of src', () => {
  const folders = readdirSync(join(ROOT, 'src'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
  const named = (cell = ''): string[] =>
    [...cell.matchAll(/`(?:src\/)?([\w-]+)\/`/g)].map(([, name = '']) => name);
  const architecture = tableBelow(readPage('docs/architecture.md'), '## Folders').map(([cell]) => cell);
  expect(architecture.flatMap(named).sort()).toEqual(folders);
});

test('docs/README.md leads to every page', () => {
  const listed = links(readPage('docs/README.md')).map((target) => target.split('#')[0]);
  const pages = readdirSync(join(ROOT, 'docs')).filter(
    (name) => name.endsWith('.md') && name !== 'README.md',
  );
  expect(pages.filter((name) => !listed.includes(name))).toEqual([]);
});

/** What a sentence of absence names, by the kind that the list says: a command, a route, a word of the code, or one of the dashboard. */
async function isThere(what: string): Promise<boolean> {
  const [, kind, name = ''] = /^(command|route|word|page) `(.+)`$/.exec(what) ?? [];
  if (kind === 'command') {
    const [group = '', command = ''] = name.split(' ');
    return (await tidemark([group, '--help'])).stdout.includes(`\n  ${command} `);
  }
  if (kind === 'route') return API.some(({ method, path }) => `${method} ${path}` === name);
  if (kind === 'word') return sourceFiles('src').some((text) => new RegExp(`\\b${name}`, 'i').test(text));
  if (kind === 'page') return sourceFiles('dashboard').some((text) => text.toLowerCase().includes(name));
  throw new Error(`"${what}" is no proof: write a command, a route, a word or a page.`);
}

test('what the pages say is not there is not there: docs/claims.md lists the sentences', async () => {
  const rows = markedTable(readPage('docs/claims.md'), 'absences');
  expect(rows.length).toBeGreaterThan(5);
  for (const [sentence = '', page = '', proof = ''] of rows) {
    const text = readPage(page.replaceAll('`', '')).replace(/\s+/g, ' ');
    expect(text, `${page} says it`).toContain(sentence);
    expect(await isThere(proof), `${proof} is there: correct ${page}`).toBe(false);
  }
  // What exists is found, so that the list can fail.
  for (const proof of [
    'command `user suspend`',
    'route `POST /v1/events`',
    'word `percentile`',
    'page `webhook`',
  ])
    expect(await isThere(proof), proof).toBe(true);
  const listed = rows.map(([sentence = '']) => sentence);
  const claimed = ['docs/comparison.md', 'docs/troubleshooting.md'].flatMap((path) =>
    prose(readPage(path))
      .replace(/\s+/g, ' ')
      .split(/(?<=[.:|]) /)
      .filter((text) => ABSENCE.test(text)),
  );
  expect(claimed.filter((text) => !listed.some((one) => text.includes(one)))).toEqual([]);
});

/** Begins a sentence that denies a part of Tidemark. */
const ABSENCE =
  /\b(?:Tidemark|It) (?:has|does|takes|scrapes|keeps) (?:no\b|not\b|none\b|nothing\b)|not in this version|cannot be deleted/;

test.each(PAGES)('the npm scripts that %s names exist', (path) => {
  const page = readPage(path);
  const code = [...codeSpans(page), ...codeBlocks(page).map(({ text }) => text)].join('\n');
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const named = [...code.matchAll(/\bnpm (?:run (?:-s )?)?([a-z][\w:]*)/g)].map(([, name = '']) => name);
  const known = [...Object.keys(scripts), 'ci', 'install', 'link', 'pack', 'root', 'version'];
  expect(named.filter((name) => !known.includes(name))).toEqual([]);
});

/** Variables that are not settings: of the tests, the benchmarks, and the examples. */
const OTHER_VARIABLES = [
  ...['APP_ID', 'LOGGING_TOKEN', 'RESOURCE_TOKEN'],
  ...['FAULT_ROUNDS', 'LAZYFS_HOME', 'NODE_OPTIONS', 'NPM_TOKEN', 'POWER_CUTS', 'UPDATE_SCHEMA'],
  // Of docker-compose.yml alone.
  ...['DATABASE_MAX_CONNECTIONS', 'DATABASE_MEMORY', 'PROXY_MAX_BODY', 'SERVER_MEMORY'],
  ...[
    'CITUS_PG_HOME',
    'POSTGRES15_BIN',
    'POSTGRES_URL',
    'SYSLOG_NG_HOME',
    'TIMESCALE_PG_HOME',
    'TIMESCALE_URL',
  ],
];

test.each(PAGES)('the variables that %s names are settings', (path) => {
  const page = readPage(path);
  const codes = Object.values(REFUSALS).map(({ code }) => code);
  const known = [...Object.keys(SETTINGS), ...OTHER_VARIABLES, ...codes, ...OIDC_PROBLEMS];
  const spans = codeSpans(page).map((text) => /^([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=.*)?$/.exec(text)?.[1]);
  const assigned = codeBlocks(page)
    .filter(({ notRun }) => notRun !== null)
    .flatMap(({ text }) => [...text.matchAll(/\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=/g)].map(([, name]) => name));
  const unknown = [...spans, ...assigned].filter((name) => name !== undefined && !known.includes(name));
  // Names of constants of the code, in CONTRIBUTING.md and docs/architecture.md, have no underscore.
  expect(unknown).toEqual([]);
});

test.each(PAGES.filter((path) => !FOR_DEVELOPERS.has(path)))(
  'the sentences of %s have at most 25 words',
  (path) => {
    expect(sentences(readPage(path)).filter(({ words }) => words > 25)).toEqual([]);
  },
);

test('the commands that the pages name exist', async () => {
  const { stdout } = await tidemark(['--help']);
  for (const path of PAGES) {
    const page = readPage(path);
    const code = [...codeSpans(page), ...codeBlocks(page).map(({ text }) => text)].join('\n');
    const named = [...code.matchAll(/(?<![\w/])tidemark (?:-- )?([a-z][a-z-]*)/g)].map(
      ([, name = '']) => name,
    );
    expect(
      named.filter((name) => !stdout.includes(`\n  ${name} `)),
      path,
    ).toEqual([]);
  }
});

/** The routes in the first cells. */
function routesOf(rows: readonly (readonly string[])[]): string[] {
  return rows
    .flatMap(([cell = '']) => [...cell.matchAll(/`([A-Z]+ \/[^`]*)`/g)].map(([, route = '']) => route))
    .sort();
}

test('docs/api.md lists the routes of the service, and the README names them', async () => {
  const api = routesOf(tableBelow(readPage('docs/api.md'), '# HTTP API'));
  const declared = API.map(({ method, path }) => `${method} ${path.replaceAll(/:(\w+)/g, '{$1}')}`);
  expect(api).toEqual(declared.toSorted());
  // The README shortens those that begin alike.
  const readme = routesOf(tableBelow(readPage('README.md'), '## API')).map((route) => route.split('…'));
  for (const route of declared)
    expect(
      readme.filter(([start = '', rest]) => (rest === undefined ? start === route : route.startsWith(start))),
      route,
    ).toHaveLength(1);
  const service = await sharedService();
  for (const route of api) {
    const [method = '', path = ''] = route.split(' ');
    const { status } = await service.request({ method, path });
    expect([404, 405], `${route} is answered ${status}`).not.toContain(status);
  }
  expect((await service.request({ path: '/v1/there-is-no-such-route' })).status).toBe(404);
});

/** Codes and statuses of what is not of the dashboard alone, as src/errors.ts lists them. */
function publicErrors(): [code: string, status: number][] {
  const text = readFileSync(join(ROOT, 'src/errors.ts'), 'utf8');
  const table = text.slice(text.indexOf('REFUSALS = {'), text.indexOf('// Only under /api'));
  const found = [...table.matchAll(/code: '(\w+)',\s+status: (\d+)/g)];
  return [...new Map(found.map(([, code = '', status]) => [code, Number(status)]))];
}

test('docs/api.md lists every error code of the public routes, with its status', () => {
  expect(publicErrors().length).toBeGreaterThan(10);
  const listed = markedTable(readPage('docs/api.md'), 'errors').map(([code = '', status]) => [
    code.replaceAll('`', ''),
    Number(status),
  ]);
  expect(listed.sort()).toEqual(publicErrors().sort());
});

function sourceFiles(folder: 'src' | 'dashboard'): string[] {
  const names = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' });
  return names
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(ROOT, folder, name), 'utf8'));
}
