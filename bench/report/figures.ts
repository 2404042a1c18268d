/** Tables of figures for the README and docs/performance.md, picked from the stored results by their names. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { spreadOf } from '../judge.ts';
import { ROOT, type StoredResult } from './results.ts';
import { formatNumber, formatSpread, formatTable, stolenText } from './table.ts';

/** One line of a table: what a reader calls it, and where its values are: a figure, a ratio or a goal of a scenario. */
type Pick = readonly string[];

/** The lines of figures.txt by the name of the generated part. */
export async function readPicks(): Promise<ReadonlyMap<string, readonly Pick[]>> {
  const text = await readFile(join(ROOT, 'bench', 'report', 'figures.txt'), 'utf8');
  return new Map(
    text.split('\n\n').map((part) => {
      const [name = '', ...lines] = part.trim().split('\n');
      return [name.slice(2), lines.map((line) => line.split(' | '))];
    }),
  );
}

/** What a fault campaign has found (test/e2e/faults.slow.test.ts). */
export interface FaultCampaign {
  readonly producers: number;
  readonly faults: readonly FaultRow[];
}

export interface FaultRow {
  /** ISO 8601. */
  readonly at: string;
  readonly commit: string;
  readonly engine: 'PostgreSQL' | 'TimescaleDB';
  readonly fault: string;
  readonly journal: boolean;
  readonly rounds: number;
  readonly acknowledged: number;
  readonly lost: number;
  readonly storedTwice: number;
  /** Rows that were never sent, or whose request was refused. */
  readonly unexplained: number;
  readonly refused: number;
  readonly longestWaitMs: number;
  readonly recoveryMs: number;
}

/** What a campaign of power cuts has found (test/e2e/power-loss.slow.test.ts). */
export interface PowerCutRow {
  /** ISO 8601. */
  readonly at: string;
  readonly commit: string;
  readonly what: string;
  readonly cuts: number;
  readonly acknowledged: number;
  readonly lost: number;
  readonly storedTwice: number;
}

/** Shown for a figure that no result has: after a short run, or if its name has changed. */
export const NOT_MEASURED = 'not measured';

export function figuresTable(results: readonly StoredResult[], picks: readonly Pick[]): string {
  const rows = picks.map(([label = '', scenario, kind, name]) => {
    const result = results.find((one) => one.scenario === scenario);
    const found = valuesOf(result, kind, name);
    if (found === null) return [label, NOT_MEASURED, ''];
    const spread = spreadOf(found.values);
    return [label, `${formatNumber(spread.median)} ${found.unit}`.trim(), formatSpread(spread)];
  });
  return `${formatTable(['What', 'Median', 'Smallest to largest'], rows)}\n\n${provenance(results, picks)}`;
}

/** Events a day in the table of docs/sizing.md. */
const DAILY_EVENTS = [1e5, 1e6, 1e7, 1e8, 1e9];
const SECONDS_OF_DAY = 86_400;
/** Peak to average. */
const PEAK = 5;
/** Days that are kept, and those of them that TimescaleDB keeps as rows (the default of COMPRESS_AFTER_DAYS). */
const KEPT_DAYS = 90;
const ROW_DAYS = 7;

/** The loads of docs/sizing.md, from its figures: cores in use at the peak, and disk of 90 days with one declared field. */
export function sizingTable(results: readonly StoredResult[], picks: readonly Pick[]): string {
  const values = picks.map(([, scenario, kind, name]) => {
    const result = results.find((one) => one.scenario === scenario);
    const found = valuesOf(result, kind, name);
    return found === null ? Number.NaN : spreadOf(found.values).median;
  });
  const [
    single = 0,
    singleDatabase = 0,
    batch = 0,
    batchDatabase = 0,
    field = 0,
    row = 0,
    column = 0,
    fieldBytes = 0,
  ] = values;
  const cores = (peak: number, micros: number): string => {
    const used = (peak * micros * field) / 1e6;
    return used < 0.01 ? 'below 0.01' : used.toFixed(2);
  };
  const rows = DAILY_EVENTS.map((daily) => {
    const average = daily / SECONDS_OF_DAY;
    const peak = average * PEAK;
    const asRows = daily * KEPT_DAYS * (row + fieldBytes);
    const asColumns = daily * (ROW_DAYS * row + (KEPT_DAYS - ROW_DAYS) * column + KEPT_DAYS * fieldBytes);
    return [
      daily.toLocaleString('en-US'),
      `${formatNumber(average)} /s`,
      `${formatNumber(peak)} /s`,
      cores(peak, single + singleDatabase),
      cores(peak, batch + batchDatabase),
      `${formatNumber(asRows / 1e9)} GB`,
      `${formatNumber(asColumns / 1e9)} GB`,
    ];
  });
  const head = [
    'Events a day',
    'Average',
    'Peak',
    'Cores in use at the peak, one by one',
    'In batches',
    '90 days as rows',
    '90 days, TimescaleDB',
  ];
  return formatTable(head, rows);
}

function valuesOf(
  result: StoredResult | undefined,
  kind: string | undefined,
  name: string | undefined,
): { readonly values: readonly number[]; readonly unit: string } | null {
  if (kind === 'figure') {
    const figure = result?.figures.find((one) => one.name === name);
    if (figure !== undefined)
      return { values: figure.values, unit: figure.unit.replace(/\/(answer|event|row)$/, '') };
  } else if (kind === 'ratio') {
    const ratio = result?.ratios.find((one) => one.name === name);
    if (ratio !== undefined) return { values: ratio.values, unit: '×' };
  } else {
    const goal = result?.goals.find((one) => one.name === name);
    if (goal !== undefined) return { values: [goal.value], unit: goal.unit };
  }
  return null;
}

/** When, on which commit and on what the figures of a table were measured. */
function provenance(results: readonly StoredResult[], picks: readonly Pick[]): string {
  const used = results.filter(({ scenario }) => picks.some((pick) => pick[1] === scenario));
  const days = [...new Set(used.map(({ at }) => at.slice(0, 10)))].sort();
  const commits = [...new Set(used.map(({ commit }) => commit))].sort();
  const machines = [...new Set(used.map(({ machine }) => `${machine.cpu}, ${machine.cores} cores`))].sort();
  const versions = [
    ...new Set(used.map((one) => `Node ${one.versions.node?.slice(1)}, ${one.versions.database}`)),
  ];
  const load = Math.max(0, ...used.map(({ loadBefore }) => loadBefore));
  const stolen = used.map((one) => one.stolen ?? Number.NaN).filter(Number.isFinite);
  const quiet = `load up to ${load.toFixed(1)} before${stolenText(stolen.length === 0 ? undefined : Math.max(...stolen))}`;
  const commit = `commit${commits.length === 1 ? '' : 's'} ${commits.join(', ')}`;
  return `<sub>${[days.join(', '), commit, ...machines, quiet, ...versions.sort()].join('; ')}</sub>`;
}

export function faultsTable({ faults }: FaultCampaign): string {
  const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
  const head = [
    'Fault, under load',
    'Engine',
    'Journal',
    'Times',
    'Acknowledged',
    'Lost',
    'Stored twice',
    'Never sent, or refused and stored',
    'Refused',
    'Longest wait',
    'Recovery',
  ];
  const rows = faults.map((row) => [
    row.fault,
    row.engine,
    row.journal ? 'yes' : 'no',
    formatNumber(row.rounds),
    formatNumber(row.acknowledged),
    formatNumber(row.lost),
    formatNumber(row.storedTwice),
    formatNumber(row.unexplained),
    formatNumber(row.refused),
    seconds(row.longestWaitMs),
    seconds(row.recoveryMs),
  ]);
  const runs = new Set(
    faults.map(({ at, commit, engine }) => `${engine}: ${at.slice(0, 10)}, commit ${commit}`),
  );
  return `${formatTable(head, rows)}\n\n<sub>${[...runs].join('; ')}</sub>`;
}

export function powerCutsTable(rows: readonly PowerCutRow[]): string {
  const table = rows.map(({ what, cuts, acknowledged, lost, storedTwice }) => [
    what,
    ...[cuts, acknowledged, lost, storedTwice].map(formatNumber),
  ]);
  const runs = new Set(rows.map(({ at, commit }) => `${at.slice(0, 10)}, commit ${commit}`));
  return `${formatTable(['Power cuts', 'Times', 'Acknowledged', 'Lost', 'Stored twice'], table)}\n\n<sub>${[...runs].join('; ')}</sub>`;
}
