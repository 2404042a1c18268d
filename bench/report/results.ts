/** Results as files: one per scenario, with the machine, the versions and the commit that they belong to. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ScenarioResult } from '../findings.ts';
import { transport } from '../rivals/contenders.ts';
import type { Length } from '../scenario.ts';

/** The repository: above this file, compiled or not. */
export const ROOT = repositoryOf(fileURLToPath(import.meta.url));
export const RESULTS_FOLDER = join(ROOT, 'bench', 'results');

export interface Circumstances {
  /** ISO 8601. */
  readonly at: string;
  /** Abbreviated; with a plus sign where files had been changed since. */
  readonly commit: string;
  readonly machine: {
    readonly cpu: string;
    readonly cores: number;
    readonly memoryGb: number;
    readonly kernel: string;
  };
  /** The load average of a minute when the bench began: on two cores, much beyond 1 was other load. */
  readonly loadBefore: number;
  /**
   * Share of all CPU time during the scenario that the hypervisor gave to others; absent in old results. A percent is enough to stop
   * everything for tens of milliseconds now and then, which percentiles of latency show.
   */
  readonly stolen?: number;
  readonly versions: Readonly<Record<string, string>>;
  readonly length: Length;
}

export interface StoredResult extends ScenarioResult, Circumstances {
  readonly scenario: string;
  readonly about: string;
}

function repositoryOf(path: string): string {
  const folder = dirname(path);
  return existsSync(join(folder, 'package-lock.json')) ? folder : repositoryOf(folder);
}

const LOAD_BEFORE = loadavg()[0] ?? Number.NaN;

async function output(command: string, args: readonly string[]): Promise<string> {
  return await promisify(execFile)(command, args, { cwd: ROOT }).then(
    ({ stdout }) => stdout.trim(),
    () => '',
  );
}

async function versionOf(name: string): Promise<string> {
  const text = await readFile(join(ROOT, 'node_modules', name, 'package.json'), 'utf8').catch(() => '{}');
  return String(JSON.parse(text).version ?? 'unknown');
}

async function transportVersion(): Promise<Record<string, string>> {
  const name = await transport();
  return { [name]: name === 'node:http' ? process.version : await versionOf(name) };
}

/**
 * @param engine name and version of the database
 * @param stolen see {@link Circumstances}; undefined where nothing was timed
 */
export async function circumstances(engine: string, length: Length, stolen?: number): Promise<Circumstances> {
  const commit = await output('git', ['rev-parse', '--short', 'HEAD']);
  // Results themselves are written while the bench runs.
  const changed = await output('git', [
    'status',
    '--porcelain',
    '--',
    ':!bench/results',
    ':!bench/RESULTS.md',
    ':!docs',
    ':!README.md',
  ]);
  return {
    at: new Date().toISOString(),
    commit: `${commit || 'unknown'}${changed === '' ? '' : '+'}`,
    machine: {
      cpu: cpus()[0]?.model ?? 'unknown',
      cores: cpus().length,
      memoryGb: Math.round(totalmem() / 1e9),
      kernel: release(),
    },
    loadBefore: LOAD_BEFORE,
    ...(stolen !== undefined && Number.isFinite(stolen) ? { stolen } : {}),
    versions: {
      node: process.version,
      database: engine,
      ...(await transportVersion()),
      autocannon: await versionOf('autocannon'),
      fastify: await versionOf('fastify'),
      pg: await versionOf('pg'),
    },
    length,
  };
}

/** JSON has no NaN: a figure that was not measured is null there, and NaN here. */
function withoutNaN(_key: string, value: unknown): unknown {
  if (typeof value !== 'number') return value;
  return Number.isFinite(value) ? Number(value.toPrecision(6)) : null;
}

export async function storeResult(result: StoredResult): Promise<void> {
  await mkdir(RESULTS_FOLDER, { recursive: true });
  const text = `${JSON.stringify(result, withoutNaN, 2)}\n`;
  await writeFile(join(RESULTS_FOLDER, `${result.scenario}.json`), text);
}

/** Keeps the table of a profile as a result of its own name, so that a profiled run never passes for a measurement. */
export async function storeProfile(result: StoredResult): Promise<void> {
  const about = `Where the service's time goes in ${result.scenario}: functions by their own time.`;
  const figures = result.figures.filter(({ name }) => name.startsWith('self time'));
  await storeResult({
    ...result,
    scenario: `${result.scenario}-profile`,
    about,
    figures,
    ratios: [],
    goals: [],
  });
}

/** All results that scenarios have stored. */
export async function readResults(): Promise<StoredResult[]> {
  const results: StoredResult[] = [];
  for (const name of (await readdir(RESULTS_FOLDER)).filter((file) => file.endsWith('.json')).sort()) {
    const parsed: unknown = JSON.parse(await readFile(join(RESULTS_FOLDER, name), 'utf8'));
    if (isStoredResult(parsed)) results.push(restoreNaN(parsed));
  }
  return results;
}

function isStoredResult(value: unknown): value is StoredResult {
  return typeof value === 'object' && value !== null && 'scenario' in value && 'checks' in value;
}

function restoreNaN(result: StoredResult): StoredResult {
  const numbers = (values: readonly (number | null)[]): number[] =>
    values.map((value) => value ?? Number.NaN);
  return {
    ...result,
    figures: result.figures.map((figure) => ({ ...figure, values: numbers(figure.values) })),
    ratios: result.ratios.map((ratio) => ({ ...ratio, values: numbers(ratio.values) })),
  };
}
