/** Tables of figures for the README and docs/performance.md, picked from the stored results by their names. */
import { spreadOf } from '../judge.ts';
import type { StoredResult } from './results.ts';
import { formatNumber, formatSpread, formatTable, stolenText } from './table.ts';

/** One line of a table: what a reader calls it, and where its values are. */
type Pick = readonly [label: string, scenario: string, kind: 'figure' | 'ratio' | 'goal', name: string];

/** The dozen of the README. */
export const README_FIGURES: readonly Pick[] = [
  ['Durable events of one app, 256 connections', 'saturate', 'figure', '180 B, 256 connections: answers'],
  ['Their latency, p50', 'saturate', 'figure', '180 B, 256 connections: p50'],
  [
    'Events, relative to Fastify with one INSERT per request',
    'saturate',
    'ratio',
    'events to naive, 180 B, 256',
  ],
  [
    'Page at offset 5,000,000 of ten million events with exact total, p50',
    'read-deep',
    'figure',
    'all types, offset 5,000,000: p50',
  ],
  [
    'Chart of a year of ten million events, p50',
    'series',
    'figure',
    'a year, Europe/Berlin, 10,000,000 events: p50',
  ],
];

/** What docs/comparison.md puts side by side: the command that measures it, and the ratios of events a second. */
export const COMPARISON_FIGURES: readonly Pick[] = [
  ['Fastify with one INSERT per request: `saturate`', 'saturate', 'ratio', 'events to naive, 180 B, 256'],
  ['pgbench with a prepared INSERT, without HTTP: `rivals`', 'rivals', 'ratio', 'tidemark to pgbench'],
  ['Redis XADD with `appendfsync always` behind HTTP: `rivals`', 'rivals', 'ratio', 'tidemark to Redis XADD'],
  ['uWebSockets.js with an INSERT every 5 ms: `rivals`', 'rivals', 'ratio', 'tidemark to INSERT every 5 ms'],
  [
    'A handler that stores nothing, by wrk: `saturate`',
    'saturate',
    'ratio',
    'events to the floor, 180 B, 256, by wrk',
  ],
  [
    'A COPY of the same rows, by batches: `batches`',
    'batches',
    'ratio',
    'batches, two at a time, to bare COPY',
  ],
  [
    'A COPY of the same rows, by `tidemark import` of a dense day: `import`',
    'import',
    'ratio',
    'PostgreSQL, dense: import, stored, to bare COPY',
  ],
  ['`COPY … TO STDOUT`, by an export as NDJSON: `export`', 'export', 'ratio', 'NDJSON to COPY'],
];

/** What docs/sizing.md computes its table from. */
export const SIZING_FIGURES: readonly Pick[] = [
  [
    'Event in a request of its own: CPU in the service',
    'saturate',
    'figure',
    '180 B, 64 connections: server CPU',
  ],
  [
    'Event in a request of its own: CPU in PostgreSQL',
    'saturate',
    'figure',
    '180 B, 64 connections: database CPU',
  ],
  ['Event in a batch: CPU in the service', 'batches', 'figure', 'batches, two at a time: server CPU'],
  ['Event in a batch: CPU in PostgreSQL', 'batches', 'figure', 'batches, two at a time: database CPU'],
  ['CPU with one declared field, relative to none', 'fields', 'ratio', 'CPU of an event, 1 fields to none'],
  ['Row of an event with its index', 'engines', 'figure', 'PostgreSQL: size of an event'],
  [
    'The same in the columnstore of TimescaleDB',
    'engines',
    'figure',
    'TimescaleDB, columnstore: size of an event',
  ],
  ['Declared field of values, by event', 'fields', 'figure', 'storage of a field of values, by event'],
  ['Memory of the service in ten minutes of mixed load', 'soak', 'figure', 'server memory'],
];

export const WRITE_FIGURES: readonly Pick[] = [
  ...([64, 256, 1024] as const).flatMap((connections): Pick[] => [
    [
      `${connections} connections: durable events`,
      'saturate',
      'figure',
      `180 B, ${connections} connections: answers`,
    ],
    [`${connections} connections: p50`, 'saturate', 'figure', `180 B, ${connections} connections: p50`],
    [`${connections} connections: p99`, 'saturate', 'figure', `180 B, ${connections} connections: p99`],
    [
      `${connections} connections: CPU of an event in the service`,
      'saturate',
      'figure',
      `180 B, ${connections} connections: server CPU`,
    ],
    [
      `${connections} connections: CPU of an event in PostgreSQL`,
      'saturate',
      'figure',
      `180 B, ${connections} connections: database CPU`,
    ],
  ]),
  ['CPU of an answer of the floor, 256 connections', 'floor', 'figure', '256 connections: server CPU'],
  ['64 connections: relative to the floor', 'saturate', 'ratio', 'events to the floor, 180 B, 64'],
  [
    '64 connections: relative to the floor, by wrk',
    'saturate',
    'ratio',
    'events to the floor, 180 B, 64, by wrk',
  ],
  ['256 connections: relative to the floor', 'saturate', 'ratio', 'events to the floor, 180 B, 256'],
  [
    '256 connections: relative to the floor, by wrk',
    'saturate',
    'ratio',
    'events to the floor, 180 B, 256, by wrk',
  ],
  [
    '256 connections: relative to Fastify with one INSERT per request',
    'saturate',
    'ratio',
    'events to naive, 180 B, 256',
  ],
  [
    '256 connections: relative to uWebSockets.js with an INSERT every 5 ms',
    'rivals',
    'ratio',
    'tidemark to INSERT every 5 ms',
  ],
  [
    '256 connections: relative to Redis XADD with `appendfsync always`',
    'rivals',
    'ratio',
    'tidemark to Redis XADD',
  ],
  ['256 connections: relative to pgbench with a prepared INSERT', 'rivals', 'ratio', 'tidemark to pgbench'],
  [
    'Memory of the service, high-water mark, 256 connections, 180-byte payloads',
    'saturate',
    'figure',
    '180 B, 256 connections: server memory, high-water',
  ],
  ['The same with 64 KB payloads', 'saturate', 'figure', '64 KB, 256 connections: server memory, high-water'],
];

export const SEARCH_FIGURES: readonly Pick[] = [
  ...(['one event by a value', 'one event by a text', 'a comparison that no event meets'] as const).flatMap(
    (search): Pick[] => [
      [
        `Search for ${search}: events/s of CPU`,
        'search',
        'figure',
        `${search}: events looked at, by CPU of service and PostgreSQL`,
      ],
      [`Search for ${search}: longest page`, 'search', 'figure', `${search}: longest page`],
    ],
  ),
  ...(['NDJSON', 'NDJSON in gzip', 'CSV', 'NDJSON of one type'] as const).flatMap((way): Pick[] => [
    [`Export as ${way}, relative to COPY`, 'export', 'ratio', `${way} to COPY`],
    [`Export as ${way}: CPU of an event in the service`, 'export', 'figure', `${way}: CPU of the service`],
    [`Export as ${way}: CPU of an event in PostgreSQL`, 'export', 'figure', `${way}: CPU of PostgreSQL`],
  ]),
  ['COPY: CPU of an event in PostgreSQL', 'export', 'figure', 'COPY events TO STDOUT: CPU of PostgreSQL'],
  [
    'Export of all events beside 10,000 new ones a second',
    'export',
    'figure',
    'all events, as NDJSON beside writers',
  ],
  ['The same, relative to COPY alone', 'export', 'ratio', 'all events, NDJSON beside writers to COPY alone'],
  ['Stored meanwhile, in batches of ten', 'export', 'figure', 'Events that writers store meanwhile'],
  ['p50 of a batch before the export', 'export', 'figure', 'Writers, before the export: p50'],
  ['p50 of a batch beside the export', 'export', 'figure', 'Writers, beside the export: p50'],
  ['p99 of a batch before the export', 'export', 'figure', 'Writers, before the export: p99'],
  ['p99 of a batch beside the export', 'export', 'figure', 'Writers, beside the export: p99'],
  ['Memory of the service, high-water mark', 'export', 'figure', 'Memory of the service, high-water mark'],
];

const FIELD_READS = [
  ['First page with its total', 'first page with its total'],
  ['Page in the middle', 'a page in the middle'],
  ['Year by the day', 'a year by the day'],
] as const;

export const FIELD_FIGURES: readonly Pick[] = [
  ...FIELD_READS.flatMap(([shown, read]) =>
    (['all events', 'a value of one in 10', 'a value of one in 10,000'] as const).map(
      (filter): Pick => [`${shown}, ${filter}: p50`, 'fields', 'figure', `${read}: ${filter}: p50`],
    ),
  ),
  ...(['counts', 'sums of a number', 'p99 of a number'] as const).map(
    (what): Pick => [`Year by the day, ${what}: p50`, 'fields', 'figure', `a year by the day: ${what}: p50`],
  ),
  ...([1, 4, 16] as const).map(
    (count): Pick => [
      `CPU of an event with ${count === 1 ? 'a field' : `${count} fields`}, relative to none`,
      'fields',
      'ratio',
      `CPU of an event, ${count} fields to none`,
    ],
  ),
  ['Storage of a field of values, by event', 'fields', 'figure', 'storage of a field of values, by event'],
  ['Storage of a field of numbers, by event', 'fields', 'figure', 'storage of a field of numbers, by event'],
  [
    'Backfill of two fields of values, events',
    'fields',
    'figure',
    'backfill of two fields of values: events',
  ],
  ['Backfill of a field of numbers, events', 'fields', 'figure', 'backfill of a field of numbers: events'],
];

export const IMPORT_FIGURES: readonly Pick[] = (['PostgreSQL', 'TimescaleDB'] as const).flatMap((engine) =>
  (['sparse', 'dense'] as const).flatMap((spread): Pick[] => {
    const what = `${engine}, ${spread}`;
    return [
      [`${what}: events stored`, 'import', 'figure', `${what}: import, stored`],
      [
        `${what}: stored, relative to a bare COPY`,
        'import',
        'ratio',
        `${what}: import, stored, to bare COPY`,
      ],
      [
        `${what}: with settled counts, relative to a bare COPY`,
        'import',
        'ratio',
        `${what}: import, settled, to bare COPY`,
      ],
    ];
  }),
);

export const ENGINE_FIGURES: readonly Pick[] = [
  ...[
    ['page at 0, all types', 'page of 100 with its total'],
    ['page at 5,000,000, all types', 'page at offset 5,000,000'],
    ['page at 0, a type with one event in 1,000', 'page of a type with one event in 1,000'],
    ['a chart of the year, UTC', 'chart of a year, UTC'],
    ['a chart of the year, Asia/Kathmandu', 'chart of a year, Asia/Kathmandu'],
  ].flatMap(([name, label]) =>
    ['PostgreSQL', 'TimescaleDB', 'TimescaleDB, columnstore'].map(
      (engine): Pick => [`${engine}: ${label}, p50`, 'engines', 'figure', `${engine}, ${name}: p50`],
    ),
  ),
  ...['PostgreSQL', 'TimescaleDB'].flatMap((engine): Pick[] => [
    [`${engine}: single events, 256 connections`, 'engines', 'figure', `${engine}, 256 connections: answers`],
    [`${engine}: import, events stored`, 'engines', 'figure', `${engine}: imported, stored`],
    [
      `${engine}: import, with settled counts`,
      'engines',
      'figure',
      `${engine}: imported, with settled counts`,
    ],
  ]),
  ...['PostgreSQL', 'TimescaleDB', 'TimescaleDB, columnstore'].map(
    (engine): Pick => [
      `${engine}: size of an event, index included`,
      'engines',
      'figure',
      `${engine}: size of an event`,
    ],
  ),
];

const NEIGHBORS = [
  'two busy processes',
  'deep bodies, ten a second',
  'deep bodies, ten at once',
  'batches of 10,000 without pause',
  'batches of 8 MiB without pause',
] as const;

export const NEIGHBOR_FIGURES: readonly Pick[] = (['uws', 'node'] as const).flatMap((transport): Pick[] => [
  [`${transport}: alone: p50`, 'neighbours', 'figure', `${transport}: producers alone: p50`],
  [`${transport}: alone: p99`, 'neighbours', 'figure', `${transport}: producers alone: p99`],
  ...NEIGHBORS.flatMap((neighbor): Pick[] => [
    [`${transport}: ${neighbor}: p50`, 'neighbours', 'figure', `${transport}, ${neighbor}: producers: p50`],
    [`${transport}: ${neighbor}: p99`, 'neighbours', 'figure', `${transport}, ${neighbor}: producers: p99`],
  ]),
]);

export const LIMIT_FIGURES: readonly Pick[] = [
  ['1,500 apps at their limit: offered', 'fleet', 'figure', 'offered'],
  ['1,500 apps at their limit: accepted', 'fleet', 'figure', 'accepted'],
  ['1,500 apps at their limit: p50', 'fleet', 'figure', 'latency: p50'],
  ['1,500 apps at their limit: p99', 'fleet', 'figure', 'latency: p99'],
  [
    'CPU of a 429, relative to an answer of the floor',
    'over-limit',
    'ratio',
    "CPU of a 429 to the floor's answer",
  ],
  ['One app at 990 requests a minute: p50', 'per-app-limit', 'figure', 'request: p50'],
  ['One app at 990 requests a minute: p99', 'per-app-limit', 'figure', 'request: p99'],
  ['The same p99 beyond that of a bare commit', 'per-app-limit', 'goal', "p99 beyond a bare commit's"],
];

export const READ_FIGURES: readonly Pick[] = [
  ['Page at offset 0, all types, p50', 'read-deep', 'figure', 'all types, offset 0: p50'],
  ['Page at offset 5,000,000, all types, p50', 'read-deep', 'figure', 'all types, offset 5,000,000: p50'],
  [
    'Page in the middle of a range of 29 days, p50',
    'read-deep',
    'figure',
    'all types, a range of 29 days, offset 4,824,284: p50',
  ],
  ['Page in the middle of a common type, p50', 'read-deep', 'figure', 'a type, offset 263,218: p50'],
  [
    'Page in the middle of a type with one event in 1,000, p50',
    'read-deep',
    'figure',
    'a type with one event in 1,000, offset 5,016: p50',
  ],
  ['Deep to shallow, all types', 'read-deep', 'ratio', 'deep to shallow, all types'],
  ['Chart of a day, UTC, p50', 'series', 'figure', 'a day, UTC, 10,000,000 events: p50'],
  [
    'Chart of a month, Europe/Berlin, p50',
    'series',
    'figure',
    'a month, Europe/Berlin, 10,000,000 events: p50',
  ],
  ['Chart of a year, UTC, p50', 'series', 'figure', 'a year, UTC, 10,000,000 events: p50'],
  [
    'Chart of a year, Europe/Berlin, p50',
    'series',
    'figure',
    'a year, Europe/Berlin, 10,000,000 events: p50',
  ],
  [
    'Chart of a day, ten times as many events, UTC',
    'series',
    'ratio',
    'ten times as many events, a day, UTC',
  ],
  [
    'Chart of a year, ten times as many events, UTC',
    'series',
    'ratio',
    'ten times as many events, a year, UTC',
  ],
];

export const SOAK_FIGURES: readonly Pick[] = [
  ['Events accepted', 'soak', 'figure', 'events accepted'],
  ['Latency of an event, p50', 'soak', 'figure', 'events: p50'],
  ['Latency of an event, p99', 'soak', 'figure', 'events: p99'],
  ['Page at any offset, 20 a second, p50', 'soak', 'figure', 'pages, 20/s: p50'],
  ['Request of the dashboard, 2 a second, p50', 'soak', 'figure', 'dashboard, 2/s: p50'],
  ['Memory of the service', 'soak', 'figure', 'server memory'],
];

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
  const rows = picks.map(([label, scenario, kind, name]) => {
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

/** The loads of docs/sizing.md, from {@link SIZING_FIGURES}: cores in use at the peak, and disk of 90 days with one declared field. */
export function sizingTable(results: readonly StoredResult[]): string {
  const values = SIZING_FIGURES.map(([, scenario, kind, name]) => {
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
  kind: Pick[2],
  name: string,
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
