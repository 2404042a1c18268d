/** read-shallow and read-deep: pages of get_events at offset 0 and in the middle of ten million events. */
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import type { LoadRequest } from '../load/load-job.ts';
import { addReads, type Contender, interleavedRounds } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { type SeededApp, seededApp } from '../servers/seed-events.ts';
import type { Workbench } from '../servers/workbench.ts';

const DAY_MS = 86_400_000;
const LIMIT = 100;
const DEEP_TO_SHALLOW_GOAL = 1.5;

interface Scope {
  readonly name: string;
  readonly typeId: string | null;
  readonly from: number | null;
  readonly until: number | null;
}

/** Ranges with ragged ends, so that rows at both ends are counted too. */
function scopesOf(app: SeededApp): Scope[] {
  const range = { from: app.from + 12_345_678, until: app.until - DAY_MS + 7_654_321 };
  const none = { from: null, until: null };
  return [
    { name: 'all types', typeId: null, ...none },
    { name: 'all types, a range of 29 days', typeId: null, ...range },
    { name: 'a type', typeId: app.commonType, ...none },
    { name: 'a type, a range of 29 days', typeId: app.commonType, ...range },
    { name: 'a type with one event in 1,000', typeId: app.rareType, ...none },
  ];
}

function pageRequest(app: SeededApp, token: string, scope: Scope, offset: number): LoadRequest {
  const query = new URLSearchParams({ appId: app.appId, limit: String(LIMIT), offset: String(offset) });
  if (scope.typeId !== null) query.set('typeId', scope.typeId);
  if (scope.from !== null) query.set('startDate', new Date(scope.from).toISOString());
  // Bounds are inclusive to the millisecond.
  if (scope.until !== null) query.set('endDate', new Date(scope.until - 1).toISOString());
  return {
    method: 'GET',
    path: `/public/get_events?${query}`,
    headers: { Authorization: `Bearer ${token}` },
  };
}

interface Page {
  readonly data: {
    readonly events: readonly { readonly id: string }[];
    readonly pagination: { readonly total: number };
  };
}

async function fetchPage(port: number, { path, headers = {} }: LoadRequest): Promise<Page> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers });
  if (response.status !== 200)
    throw new Error(`A page was answered ${response.status}: ${await response.text()}`);
  // The contract's shape; what is wrong in it the comparison shows.
  return (await response.json()) as Page;
}

/** The page and its total against those found the slow way, with OFFSET and count(*). */
async function checkPage(
  bench: Workbench,
  findings: Findings,
  port: number,
  app: SeededApp,
  request: LoadRequest,
  scope: Scope,
  offset: number,
): Promise<void> {
  const { sql } = bench;
  const { typeId, from, until } = scope;
  const matches = sql`
    app_id = ${app.id}
    ${typeId === null ? sql`` : sql`AND type_id = (SELECT id FROM event_types WHERE public_id = ${typeId})`}
    ${from === null ? sql`` : sql`AND created_at >= ${new Date(from)}`}
    ${until === null ? sql`` : sql`AND created_at < ${new Date(until)}`}`;
  const [counted] = await sql<
    { total: number }[]
  >`SELECT count(*)::float8 AS total FROM events WHERE ${matches}`;
  const rows = await sql<{ id: string }[]>`
    SELECT id FROM events WHERE ${matches} ORDER BY created_at, id OFFSET ${offset} LIMIT ${LIMIT}`;
  const { events, pagination } = (await fetchPage(port, request)).data;
  const same =
    pagination.total === counted?.total &&
    rows.length > 0 &&
    events.map(({ id }) => id).join() === rows.map(({ id }) => id).join();
  findings.check(
    `the page at offset ${offset} of ${scope.name} and its total are those of count(*) and OFFSET`,
    same,
    `${pagination.total} in all, ${counted?.total} by count(*), ${events.length} events`,
  );
}

async function run(
  bench: Workbench,
  findings: Findings,
  options: RunOptions,
  depths: readonly ('shallow' | 'deep')[],
): Promise<void> {
  findings.note(
    `Pages of ${LIMIT} over HTTP, one after the other on one connection; the limit of reads is lifted.`,
  );
  const round = byLength(options, {
    full: { seconds: 1, rounds: 5 },
    quick: { seconds: 0.5, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const app = await seededApp(bench, options.events);
  findings.note(`${app.events.toLocaleString('en-GB')} events of one app over 30 days, 20 types.`);
  const generator = bench.startGenerator();
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const token = await bench.makeResourceToken([app]);
  for (const scope of scopesOf(app)) {
    const first = pageRequest(app, token, scope, 0);
    const { total } = (await fetchPage(port, first)).data.pagination;
    const contenders: Contender[] = [];
    for (const depth of depths) {
      const offset = depth === 'shallow' ? 0 : Math.floor(total / 2);
      const request = pageRequest(app, token, scope, offset);
      await checkPage(bench, findings, port, app, request, scope, offset);
      contenders.push({
        name: `${scope.name}, offset ${offset.toLocaleString('en-GB')}`,
        port,
        pid,
        requests: [request],
      });
    }
    const results = await interleavedRounds(bench, generator, contenders, { connections: 1, ...round });
    const medians: number[][] = [];
    for (const [name, { rounds }] of results) {
      medians.push(addReads(findings, name, rounds));
      findings.figure(
        `${name}: CPU of server and database`,
        'µs',
        rounds.map((one) => one.serverMicros + one.databaseMicros),
      );
    }
    const [shallow, deep] = medians;
    if (shallow !== undefined && deep !== undefined)
      findings.ratio(`deep to shallow, ${scope.name}`, pairwise(deep, shallow), {
        atMost: DEEP_TO_SHALLOW_GOAL,
      });
  }
}

export const READS: readonly Scenario[] = [
  {
    name: 'read-shallow',
    about: 'get_events at offset 0 of ten million events, with and without type and range.',
    shares: 'events',
    run: (bench, findings, options) => run(bench, findings, options, ['shallow']),
  },
  {
    name: 'read-deep',
    about:
      'get_events in the middle of ten million events (offset 5,000,000 without a filter), beside offset 0.',
    shares: 'events',
    run: (bench, findings, options) => run(bench, findings, options, ['shallow', 'deep']),
  },
];
