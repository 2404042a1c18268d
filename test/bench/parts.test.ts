/** Parts of the documentation that are made of results: drawings, and the model of larger machines. */
import { expect, test } from 'vitest';
import { draw } from '../../bench/report/drawing.ts';
import { clusterPart, coresPart, latencyPart, nodesPart, scalePart } from '../../bench/report/parts.ts';
import type { StoredResult } from '../../bench/report/results.ts';

function result(scenario: string, figures: Readonly<Record<string, number>>): StoredResult {
  return {
    scenario,
    about: '',
    at: '2026-11-22T10:00:00.000Z',
    commit: 'abc1234',
    machine: { cpu: 'a CPU', cores: 2, memoryGb: 8, kernel: '6' },
    loadBefore: 0.1,
    stolen: 0.0123,
    versions: { node: 'v22.1.0', database: 'PostgreSQL 18' },
    length: 'full',
    figures: Object.entries(figures).map(([name, value]) => ({ name, unit: '', values: [value] })),
    ratios: [],
    goals: [],
    checks: [],
    notes: [],
  };
}

/** The y of each point of a line, in pixels from the top. */
function heights(svg: string, line: number): number[] {
  const lines = [...svg.matchAll(/class="line" [^>]*d="M([^"h]+)"/g)].map(([, path = '']) => path);
  return (lines[line] ?? '').split('L').map((place) => Number(place.split(' ')[1]));
}

test('larger values are drawn higher, tenfold ones by as much each time on a logarithmic axis, and gaps stay out', () => {
  const points = [1, 10, 100].map((y, x) => [x + 1, y] as const);
  const lines = [
    { name: 'a < b', points },
    { name: 'gap', points: [[1, 1] as const, [2, Number.NaN] as const, [3, 100] as const] },
  ];
  const svg = draw({ title: 'T', x: { label: 'x' }, y: { label: 'y', isLogarithmic: true }, lines });
  const [first = 0, second = 0, third = 0] = heights(svg, 0);
  expect(first - second).toBeCloseTo(second - third);
  expect(first).toBeGreaterThan(third);
  expect(heights(svg, 1)).toEqual([first, third]);
  expect(svg).toContain('a &lt; b');
});

test('latency is drawn by what was offered, a line for each percentile and number of processes', () => {
  const figures: Record<string, number> = {};
  for (const name of ['one process', '2 processes']) {
    figures[`${name}: saturated`] = 10_000;
    for (const share of [10, 50, 95]) {
      figures[`${name}, ${share} %: answers`] = share * 100;
      figures[`${name}, ${share} %: p50`] = 1;
      figures[`${name}, ${share} %: p99`] = share;
    }
  }
  // Beyond what it can do a service answers less than before: the line goes on all the same.
  figures['one process, 95 %: answers'] = 3_000;
  figures['floor, at the rate of one process, 50 %: p50'] = 0.5;
  figures['floor, at the rate of one process, 50 %: p99'] = 0.75;
  const { text, files } = latencyPart([result('latency', figures)]);
  expect(text).toContain('half load: p50 0.5 ms, p99 0.75 ms.');
  expect(text).toMatch(/\| 50 % +\| 5,000 \/s +\| 1 ms +\| 50 ms/);
  expect(text).toContain('2026-11-22; commit abc1234');
  expect(text).toContain('load 0.1 before, 1.2 % of the CPU time stolen;');
  const svg = files.get('docs/images/latency.svg') ?? '';
  const [, path = ''] = /class="line" [^>]*d="M([^"h]+)"/.exec(svg) ?? [];
  const places = path.split('L').map((place) => Number(place.split(' ')[0]));
  expect(places).toHaveLength(3);
  expect(places).toEqual([...places].sort((a, b) => a - b));
  const [low = 0, , high = 0] = heights(svg, 0);
  expect(low).toBeGreaterThan(high);
  expect(new Set(heights(svg, 1)).size).toBe(1);
  expect(svg).toContain('p99, 2 processes');
});

test('the model of larger machines is the CPU of an event, with its growth for each doubling', () => {
  const figures: Record<string, number> = {};
  for (const [name, service] of [
    ['one process', 20],
    ['2 processes', 20],
    ['4 processes', 20],
  ] as const) {
    figures[`${name}, saturated: CPU of the service`] = service;
    figures[`${name}, saturated: CPU of PostgreSQL`] = 10;
  }
  const flat = coresPart([result('workers', figures)]).text;
  // 32 cores, of which 0.8 work, at 30 µs.
  expect(flat).toMatch(/\| 32 +\| 853,333 \/s +\| 22 +\| 8.53/);
  // Twice as much with four processes is 1.41 for each of two doublings, and the root of 22 with 22 processes.
  figures['4 processes, saturated: CPU of the service'] = 50;
  expect(coresPart([result('workers', figures)]).text).toMatch(/\| 32 +\| 181,931 \/s/);
});

test('scale is drawn to its first point; a scenario without a result says how to get one', () => {
  const figures: Record<string, number> = {};
  for (const [name, page] of [
    ['1,000,000 events, 1 app', 2],
    ['10,000,000 events, 1 app', 4],
    ['10,000,000 events, 100 apps', 4],
  ] as const) {
    for (const measure of ['events to the floor', 'total', 'series', 'folding'])
      figures[`${name}: ${measure}`] = 1;
    figures[`${name}: page`] = page;
  }
  const { files } = scalePart([result('scale', figures)]);
  const [one = 0, two = 0] = heights(files.get('docs/images/scale-events.svg') ?? '', 1);
  const [base = 0] = heights(files.get('docs/images/scale-events.svg') ?? '', 0);
  expect(one).toBe(base);
  expect(two).toBeLessThan(one);
  expect(new Set(heights(files.get('docs/images/scale-apps.svg') ?? '', 1)).size).toBe(1);
  expect(nodesPart([]).text).toContain('npm run bench -- nodes');
});

test('the table of clusters has each number of nodes against one server and one node, and reads against one server', () => {
  const figures = {
    'one server: CPU of an event': 4,
    '1 node, groups of 500: CPU of an event': 6,
    '4 nodes, groups of 500: CPU of an event': 6.3,
    '4 nodes, groups of 125: CPU of an event': 8,
    'one server: page': 2,
    'cluster: page': 3,
  };
  const ratio = (name: string, value: number) => ({ name, values: [value] });
  const ratios = [
    ratio('CPU of an event, 4 nodes, groups of 500 to one server', 1.58),
    ratio('CPU of an event, 4 nodes, groups of 500 to 1 node, groups of 500', 1.05),
    ratio('page, cluster to one server', 1.5),
  ];
  const notes = ['PostgreSQL 18.6', 'Citus 14 on PostgreSQL 18.6', 'Something else'];
  const { text } = clusterPart([{ ...result('cluster', figures), ratios, notes }]);
  expect(text).toContain('PostgreSQL 18.6; Citus 14 on PostgreSQL 18.6.');
  expect(text).not.toContain('Something else');
  expect(text).toMatch(/\| 4 nodes, groups of 500 +\| 6.3 µs +\| 1.58 × +\| 1.05 × +\|/);
  expect(text).toMatch(/\| 4 nodes, groups of 125 +\| 8 µs +\|/);
  expect(text).toMatch(/\| page +\| 2 ms +\| 3 ms +\| 1.5 × +\|/);
});
