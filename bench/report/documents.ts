/**
 * The generated parts of the documentation: settings from src/config.ts, figures from bench/results, programs and configurations
 * from dashboard/snippets.txt. `npm run docs` renews them, and so does every scenario that stores a result.
 * test/docs/generated.test.ts fails while one is stale.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { instance } from '@viz-js/viz';
import { fillIn, parseSnippets, type SnippetPlace } from '../../dashboard/components/snippets.ts';
import { SETTINGS, type SettingName } from '../../src/config.ts';
import { modelTable } from '../cluster-model.ts';
import { SCENARIOS } from '../scenarios.ts';
import {
  type FaultCampaign,
  faultsTable,
  figuresTable,
  type PowerCutRow,
  powerCutsTable,
  readPicks,
  sizingTable,
} from './figures.ts';
import { clusterPart, coresPart, latencyPart, nodesPart, scalePart } from './parts.ts';
import { formatReport } from './report.ts';
import { RESULTS_FOLDER, ROOT, readResults } from './results.ts';

/** The settings that the README shows. */
const IMPORTANT: readonly SettingName[] = [
  'HOST',
  'PORT',
  'DATA_DIR',
  'DATABASE_URL',
  'PUBLIC_URL',
  'TRUST_PROXY',
  'REDIS_URL',
  'WORKERS',
  'RETENTION_DAYS',
  'JOURNAL_DIR',
];

/** The groups of docs/settings.md, each from this setting on, in the order of src/config.ts. */
const GROUPS: readonly (readonly [title: string, first: SettingName])[] = [
  ['Address and database', 'HOST'],
  ['Accounts and mail', 'PUBLIC_URL'],
  ['Proxy, metrics, log and transport', 'TRUST_PROXY'],
  ['Rate limits and processes', 'CREATE_LIMIT_PER_MINUTE'],
  ['Sizes and caches', 'MAX_BODY_BYTES'],
  ['Retention and TimescaleDB', 'RETENTION_DAYS'],
  ['Commit queue and journal', 'COMMIT_BUFFER_EVENTS'],
  ['Connections and timeouts', 'COMMIT_CONNECTIONS'],
];

const SETTINGS_INTRODUCTION = `# Settings

Generated from \`src/config.ts\` by \`npm run docs\`; do not edit. \`tidemark serve --help\` prints the same list.

All settings are environment variables. An empty variable counts as absent. A value that is not valid ends the start with
one line that names the variable.
`;

/** @returns path in the repository → the file's whole text as it should be */
export async function documents(): Promise<ReadonlyMap<string, string>> {
  const results = await readResults();
  const faults: FaultCampaign = JSON.parse(await readFile(join(RESULTS_FOLDER, 'faults.json'), 'utf8'));
  const cuts: PowerCutRow[] = JSON.parse(await readFile(join(RESULTS_FOLDER, 'power-cuts.json'), 'utf8'));
  const picks = await readPicks();
  /** Tables of figures.txt, by the names of their parts. */
  const tables = (...names: readonly string[]): Record<string, string> =>
    Object.fromEntries(names.map((name) => [name, figuresTable(results, picks.get(name) ?? [])]));
  const nodes = nodesPart(results);
  const latency = latencyPart(results);
  const scale = scalePart(results);
  const cores = coresPart(results);
  const cluster = clusterPart(results);
  const order = SCENARIOS.map(({ name }) => name);
  const page = async (path: string, parts: Readonly<Record<string, string>>): Promise<[string, string]> => [
    path,
    withParts(path, await readFile(join(ROOT, path), 'utf8'), parts),
  ];
  return new Map([
    ['bench/RESULTS.md', formatReport(results, order)],
    ['docs/settings.md', settingsPage()],
    await page('README.md', {
      settings: settingsTable(IMPORTANT),
      ...tables('figures'),
    }),
    await page('docs/durability.md', { faults: faultsTable(faults), 'power cuts': powerCutsTable(cuts) }),
    await page('docs/producers.md', await snippetBlocks()),
    await page('docs/comparison.md', tables('comparison')),
    await page('docs/sizing.md', {
      sizing: sizingTable(results, picks.get('sizing figures') ?? []),
      ...tables('sizing figures'),
    }),
    await page('docs/scaling.md', { cores: cores.text, cluster: cluster.text }),
    await page('docs/performance.md', {
      ...tables('writes', 'limits', 'reads', 'searches', 'fields', 'engines', 'imports', 'neighbors', 'soak'),
      nodes: nodes.text,
      latency: latency.text,
      scale: scale.text,
    }),
    ['docs/images/architecture.svg', await drawing('docs/images/architecture.dot')],
    ...[nodes, latency, scale, cores].flatMap(({ files }) => [...files]),
  ]);
}

/** A picture that Graphviz draws from its text. @param path of the text @throws Error where it is no valid DOT */
async function drawing(path: string): Promise<string> {
  const text = await readFile(join(ROOT, path), 'utf8');
  // The boxes of Graphviz are in points; without them a browser fits the picture to the page.
  return (await instance())
    .renderString(text, { format: 'svg' })
    .replace(/<svg width="\d+pt" height="\d+pt"/, '<svg role="img" aria-label="Parts of Tidemark"');
}

/** The place that the documentation shows. */
const EXAMPLE: SnippetPlace = {
  base: 'https://events.example.com',
  appId: 'app_…',
  loggingToken: 'tdl_…',
  resourceToken: 'tdr_…',
};
const NOT_RUN = '<!-- not run: a test runs it with an address and a token -->\n';

/** The programs and configurations of the dashboard as code blocks. */
async function snippetBlocks(): Promise<Record<string, string>> {
  const snippets = parseSnippets(await readFile(join(ROOT, 'dashboard', 'snippets.txt'), 'utf8'));
  return Object.fromEntries(
    snippets.map(({ name, language, template }) => {
      const block = `\`\`\`${language}\n${fillIn(template, EXAMPLE)}\n\`\`\``;
      return [`snippet ${name}`, language === 'sh' ? `${NOT_RUN}${block}` : block];
    }),
  );
}

/** What takes a while to compute. */
export async function modelDocuments(): Promise<ReadonlyMap<string, string>> {
  const path = 'docs/scaling.md';
  return new Map([
    [path, withParts(path, await readFile(join(ROOT, path), 'utf8'), { model: modelTable() })],
  ]);
}

/** Renews the files. */
export async function writeDocuments(): Promise<void> {
  // One after the other: they have a page in common.
  for (const make of [documents, modelDocuments])
    for (const [path, text] of await make()) await writeFile(join(ROOT, path), text);
}

/** Puts each part between its marks, `<!-- generated: NAME -->` and `<!-- end of generated -->`. */
function withParts(path: string, text: string, parts: Readonly<Record<string, string>>): string {
  return Object.entries(parts).reduce((page, [name, part]) => {
    const start = `<!-- generated: ${name} -->\n`;
    const from = page.indexOf(start);
    const end = page.indexOf('<!-- end of generated -->', from);
    if (from < 0 || end < 0) throw new Error(`${path} has no generated part "${name}"`);
    return `${page.slice(0, from)}${start}${part}\n${page.slice(end)}`;
  }, text);
}

function settingsPage(): string {
  const names = Object.keys(SETTINGS) as SettingName[];
  const sections = GROUPS.map(([title, first], index) => {
    const next = GROUPS[index + 1]?.[1];
    const until = next === undefined ? names.length : names.indexOf(next);
    return `## ${title}\n\n${settingsTable(names.slice(names.indexOf(first), until))}\n`;
  });
  return [SETTINGS_INTRODUCTION, ...sections].join('\n');
}

function settingsTable(names: readonly SettingName[]): string {
  const rows = names.map((name) => {
    const { default: value, unit, meaning } = SETTINGS[name];
    return `| \`${name}\` | ${value === '' ? '' : `\`${value}\``} | ${unit} | ${meaning} |`;
  });
  return ['| Variable | Default | Unit | Meaning |', '|---|---|---|---|', ...rows].join('\n');
}
