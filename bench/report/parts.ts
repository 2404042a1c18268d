/** Parts of the documentation that are made of the figures of one scenario each: tables, and drawings as SVG. */

import { spreadOf } from '../judge.ts';
import { COORDINATED, NODE_COUNTS, nameOfWay, ONE_SERVER, READS } from '../scenarios/cluster.ts';
import { FLOOR_AT_HALF, nameOf, PROCESSES, percentileAt, SHARES } from '../scenarios/latency.ts';
import { MEASURES } from '../scenarios/scale.ts';
import { WORKERS } from '../scenarios/workers.ts';
import { draw, type Line } from './drawing.ts';
import type { StoredResult } from './results.ts';
import { formatNumber, formatTable, stolenText } from './table.ts';

export interface Part {
  readonly text: string;
  /** Paths in the repository → the files' texts. */
  readonly files: ReadonlyMap<string, string>;
}

const NO_FILES: ReadonlyMap<string, string> = new Map();

/** The part of a scenario, or what a reader finds before its first run is stored. */
function partOf(
  results: readonly StoredResult[],
  scenario: string,
  make: (result: StoredResult) => Part,
): Part {
  const result = results.find((one) => one.scenario === scenario);
  if (result === undefined)
    return {
      text: `No run is stored yet: \`npm run bench -- ${scenario}\` makes this part.`,
      files: NO_FILES,
    };
  const { text, files } = make(result);
  return { text: `${text}\n\n${provenance(result)}`, files };
}

/** When, on which commit and on what. */
function provenance({ at, commit, length, machine, versions, loadBefore, stolen }: StoredResult): string {
  const run = length === 'full' ? '' : ` (${length} run)`;
  return `<sub>${at.slice(0, 10)}; commit ${commit}${run}; ${machine.cpu}, ${machine.cores} cores, load ${loadBefore.toFixed(1)} before${stolenText(stolen)}; Node ${versions.node?.slice(1)}, ${versions.database}</sub>`;
}

/** The median of a figure; NaN where the result has none of the name. */
function median({ figures }: StoredResult, name: string): number {
  return spreadOf(figures.find((figure) => figure.name === name)?.values ?? []).median;
}

/** Events a second and CPU by Node and transport. */
export function nodesPart(results: readonly StoredResult[]): Part {
  return partOf(results, 'nodes', (result) => {
    const names = result.figures.flatMap(({ name }) => /^(Node .+): answers$/.exec(name)?.[1] ?? []);
    const [first = ''] = names;
    const rows = names.map((name) => [
      name,
      `${formatNumber(median(result, `${name}: answers`))} /s`,
      name === first ? '1 ×' : factor(result, `events, ${name} to ${first}`),
      `${formatNumber(median(result, `${name}: server CPU`))} µs`,
    ]);
    const head = ['Node and transport', 'Durable events, 64 connections', 'To the first', 'CPU of an event'];
    return { text: formatTable(head, rows), files: NO_FILES };
  });
}

const LATENCY_FILE = 'docs/images/latency.svg';

/** p50 and p99 against offered load. */
export function latencyPart(results: readonly StoredResult[]): Part {
  return partOf(results, 'latency', (result) => {
    const lines = PROCESSES.flatMap((processes): Line[] =>
      (['p99', 'p50'] as const).map((percentile) => ({
        name: `${percentile}, ${nameOf(processes)}`,
        points: SHARES.map(
          (share) =>
            [
              (median(result, `${nameOf(processes)}: saturated`) * share) / 100,
              percentileAt(result.figures, processes, share, percentile),
            ] as const,
        ).filter(([rate, ms]) => rate > 0 && ms > 0),
      })),
    ).filter(({ points }) => points.length > 0);
    const drawing = draw({
      title: 'Latency of an event, 10 to 95 % of the saturated rate',
      x: { label: 'offered events per second' },
      y: { label: 'ms', isLogarithmic: true },
      lines,
    });
    const rows = SHARES.map((share) => [
      `${share} %`,
      ...PROCESSES.flatMap((processes) => [
        `${formatNumber(median(result, `${nameOf(processes)}, ${share} %: answers`))} /s`,
        `${formatNumber(percentileAt(result.figures, processes, share, 'p50'))} ms`,
        `${formatNumber(percentileAt(result.figures, processes, share, 'p99'))} ms`,
      ]),
    ]);
    const head = ['Load', ...PROCESSES.flatMap((one) => [`${nameOf(one)}: answered`, 'p50', 'p99'])];
    const p50 = median(result, `${FLOOR_AT_HALF}: p50`);
    const p99 = median(result, `${FLOOR_AT_HALF}: p99`);
    const floor =
      `The floor, at the events of one process at half load: p50 ${formatNumber(p50)} ms, ` +
      `p99 ${formatNumber(p99)} ms.`;
    const parts = ['![Latency against offered load](images/latency.svg)', formatTable(head, rows)];
    // Older results have no floor.
    const text = [...parts, ...(Number.isNaN(p50) ? [] : [floor])].join('\n\n');
    return { text, files: new Map([[LATENCY_FILE, drawing]]) };
  });
}

/** The median of a ratio, as a factor; empty where the result has none of the name. */
function factor({ ratios }: StoredResult, name: string): string {
  const ratio = ratios.find((one) => one.name === name);
  return ratio === undefined ? '' : `${formatNumber(spreadOf(ratio.values).median)} ×`;
}

/** What an event and a read cost in a cluster. */
export function clusterPart(results: readonly StoredResult[]): Part {
  return partOf(results, 'cluster', (result) => {
    const whole = NODE_COUNTS.map((count) => nameOfWay(count, 'whole'));
    const split = NODE_COUNTS.slice(1).map((count) => nameOfWay(count, 'split'));
    const writes = [ONE_SERVER, ...whole, ...split, COORDINATED].map((name) => [
      name,
      `${formatNumber(median(result, `${name}: CPU of an event`))} µs`,
      factor(result, `CPU of an event, ${name} to ${ONE_SERVER}`),
      factor(result, `CPU of an event, ${name} to ${whole[0]}`),
    ]);
    const reads = READS.map((read) => [
      read,
      `${formatNumber(median(result, `${ONE_SERVER}: ${read}`))} ms`,
      `${formatNumber(median(result, `cluster: ${read}`))} ms`,
      factor(result, `${read}, cluster to ${ONE_SERVER}`),
    ]);
    const text = [
      `${result.notes.filter((note) => note.includes('PostgreSQL')).join('; ')}.`,
      formatTable(['', 'CPU of an event', 'To one server', 'To one node'], writes),
      formatTable(['', 'One server', 'Cluster', ''], reads),
    ].join('\n\n');
    return { text, files: NO_FILES };
  });
}

interface PointOfScale {
  readonly events: number;
  readonly apps: number;
  readonly name: string;
}

function pointsOfScale({ figures }: StoredResult): PointOfScale[] {
  const number = (text = ''): number => Number(text.replaceAll(',', ''));
  return figures.flatMap(({ name }) => {
    const found = /^(([\d,]+) events, ([\d,]+) apps?): page$/.exec(name);
    return found === null ? [] : [{ name: found[1] ?? '', events: number(found[2]), apps: number(found[3]) }];
  });
}

/** What grows with events and with apps, each to its first point. */
export function scalePart(results: readonly StoredResult[]): Part {
  return partOf(results, 'scale', (result) => {
    const points = pointsOfScale(result);
    const ofMany = points.find(({ apps }) => apps > 1)?.events ?? 0;
    const drawn = (of: readonly PointOfScale[], x: 'events' | 'apps', title: string): string => {
      const sorted = [...of].sort((a, b) => a[x] - b[x]);
      const first = sorted[0]?.name ?? '';
      const lines = MEASURES.map((name) => ({
        name,
        points: sorted.map(
          (point) =>
            [
              point[x],
              median(result, `${point.name}: ${name}`) / median(result, `${first}: ${name}`),
            ] as const,
        ),
      }));
      return draw({
        title,
        x: { label: x, isLogarithmic: true },
        y: { label: 'to the first point', isLogarithmic: true },
        lines,
      });
    };
    const bySize = points.filter(({ apps }) => apps === 1);
    const byApps = points.filter(({ events }) => events === ofMany);
    const rows = points.map(({ name }) => [
      name,
      `${formatNumber(median(result, `${name}: events`))} /s`,
      ...MEASURES.map((measure) => formatNumber(median(result, `${name}: ${measure}`))),
      `${formatNumber(median(result, `${name}: time of this point`))} s`,
    ]);
    const head = [
      'Stored',
      'Events',
      'To the floor',
      'Page, ms',
      'Total, ms',
      'Series, ms',
      'Folding, µs an event',
      'Run',
    ];
    const text = `![By events](images/scale-events.svg)\n\n![By apps](images/scale-apps.svg)\n\n${formatTable(head, rows)}`;
    return {
      text,
      files: new Map([
        ['docs/images/scale-events.svg', drawn(bySize, 'events', 'By events stored, one app')],
        [
          'docs/images/scale-apps.svg',
          drawn(byApps, 'apps', `By apps, ${formatNumber(ofMany)} events together`),
        ],
      ]),
    };
  });
}

/** Of the cores, what may be busy before queues decide about latency. */
const UTILIZATION = 0.8;
const SATURATED = ', saturated';
const MACHINES = [2, 4, 8, 16, 32] as const;

/** The cost of an event by processes, what its commits wait for, and what follows for larger machines. */
export function coresPart(results: readonly StoredResult[]): Part {
  return partOf(results, 'workers', (result) => {
    const cpu = (count: number, of: 'service' | 'PostgreSQL', load = ''): number =>
      median(result, `${nameOf(count)}${load}: CPU of ${of === 'service' ? 'the service' : of}`);
    const both = (count: number, load = ''): number =>
      cpu(count, 'service', load) + cpu(count, 'PostgreSQL', load);
    const waiting = (count: number, where: string): string =>
      `${formatNumber(median(result, `${nameOf(count)}${SATURATED}: time of a commit in ${where}`))} %`;
    const measured = formatTable(
      [
        'Processes',
        'Connections that commit',
        'CPU of an event at 6,000/s',
        'CPU of an event, saturated: service',
        'PostgreSQL',
        'both to one process',
        'Log (WAL) of an event',
        'A commit waits for the log',
        'for locks',
      ],
      WORKERS.map((count) => [
        String(count),
        String(2 * count),
        `${formatNumber(both(count))} µs`,
        `${formatNumber(cpu(count, 'service', SATURATED))} µs`,
        `${formatNumber(cpu(count, 'PostgreSQL', SATURATED))} µs`,
        `${formatNumber(both(count, SATURATED) / both(1, SATURATED))} ×`,
        `${formatNumber(median(result, `${nameOf(count)}${SATURATED}: log`))} B`,
        waiting(count, 'the log'),
        waiting(count, 'locks'),
      ]),
    );
    const [most = 1] = [...WORKERS].reverse();
    // A doubling of processes costs so much; never less than nothing.
    const doubling = Math.max(1, (both(most, SATURATED) / both(1, SATURATED)) ** (1 / Math.log2(most)));
    const rows = MACHINES.map((cores) => {
      const processes = Math.max(1, Math.ceil((cores * cpu(1, 'service', SATURATED)) / both(1, SATURATED)));
      const grown = doubling ** Math.log2(processes);
      const rate = (cores * UTILIZATION * 1e6) / (both(1, SATURATED) * grown);
      return [
        String(cores),
        `${formatNumber(rate)} /s`,
        String(processes),
        formatNumber((rate * cpu(1, 'PostgreSQL', SATURATED) * grown) / 1e6),
        `${formatNumber((rate * median(result, `${nameOf(most)}${SATURATED}: log`)) / 1e6)} MB/s`,
      ];
    });
    const model = formatTable(
      ['Cores', 'Events', 'Processes (`WORKERS`)', 'Cores of PostgreSQL', 'Log (WAL)'],
      rows,
    );
    return {
      text: `${measured}\n\nWith a growth of ${formatNumber((doubling - 1) * 100)} % for each doubling of processes:\n\n${model}`,
      files: NO_FILES,
    };
  });
}
