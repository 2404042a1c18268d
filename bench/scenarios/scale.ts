/** scale: what grows with the number of events, and with the number of apps. */
import { foldCounts } from '../../src/storage/engines/postgres/maintenance.ts';
import type { Findings } from '../findings.ts';
import { pairwise, spreadOf } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadRequest } from '../load/load-job.ts';
import { type Contender, checkLedger, checkStatuses, createRequest, interleavedRounds } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startFloor, startLifted } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { FILLED_DAYS, FILLED_FROM, fillEvents } from '../servers/seed-events.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

const DAY_MS = 86_400_000;
const APP_COUNTS = [1, 100, 10_000] as const;
const CONNECTIONS = 64;
/** Events whose counts one fold takes, about as many as a second brings. */
const FOLDED = 20_000;
/** Ids of apps from here on belong to none. */
const FOLDED_APPS = 1_000_000_000;
/** In a full run its largest point has so many times the events of other scenarios that read. */
const FULL_TIMES = 10;
/** A line is flat where it rises by no more than this from its first point. */
const FLAT = 1.2;

/** What is measured at each point, by the names of its figures. */
export const MEASURES = ['events to the floor', 'page', 'total', 'series', 'folding'] as const;

interface Point {
  readonly name: string;
  readonly events: number;
  readonly apps: number;
}

/** @returns points of one app by their events, and of as many events as the middle one of these by their apps */
function pointsOf(events: number): { readonly sizes: Point[]; readonly counts: Point[] } {
  const name = (some: number, apps: number): string =>
    `${some.toLocaleString('en-GB')} events, ${apps.toLocaleString('en-GB')} app${apps === 1 ? '' : 's'}`;
  const point = (some: number, apps: number): Point => ({ name: name(some, apps), events: some, apps });
  return {
    sizes: [events / 100, events / 10, events].map((some) => point(some, 1)),
    counts: APP_COUNTS.map((apps) => point(events / 10, apps)),
  };
}

/** The requests of one point, each sent by several apps in turn. */
type Requests = Readonly<Record<'events' | 'page' | 'total' | 'series', LoadRequest[]>>;

async function requestsOf(
  bench: Workbench,
  asked: readonly BenchApp[],
  eventsOfOne: number,
  fewest: number,
): Promise<Requests> {
  const token = await bench.makeResourceToken(asked);
  const headers = { Authorization: `Bearer ${token}` };
  const get = (path: string): LoadRequest => ({ method: 'GET', path, headers });
  const from = new Date(FILLED_FROM + 12_345_678).toISOString();
  const to = new Date(FILLED_FROM + (FILLED_DAYS - 1) * DAY_MS + 7_654_321).toISOString();
  // Pages of as many events everywhere: an app of the most apps has few.
  const limit = Math.min(100, fewest);
  const offset = Math.floor(eventsOfOne / 2);
  return {
    events: asked.map((app) => createRequest(app, SMALL_PAYLOAD_BYTES)),
    page: asked.map(({ appId }) =>
      get(`/public/get_events?appId=${appId}&limit=${limit}&offset=${Math.max(0, offset - limit)}`),
    ),
    total: asked.map(({ appId }) =>
      get(`/public/get_events?appId=${appId}&limit=1&startDate=${from}&endDate=${to}`),
    ),
    series: asked.map(({ appId }) => get(`/v1/apps/${appId}/series?interval=1d&from=${from}&to=${to}`)),
  };
}

/** @returns the apps that are asked; the others have no tokens */
async function makeFilled(
  bench: Workbench,
  { name, apps, events }: Point,
  asked: number,
): Promise<BenchApp[]> {
  const { sql } = bench;
  const made = await bench.makeApps(Math.min(apps, asked), name);
  const others = await sql<{ id: number }[]>`
    INSERT INTO apps (public_id, name)
    SELECT format('app_%s_%s', ${name}::text, n), format('%s %s', ${name}::text, n)
      FROM generate_series(1, ${apps - made.length}::integer) n RETURNING id`;
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'typ_scale' || id, id, 'page viewed' FROM unnest(${others.map(({ id }) => id)}::integer[]) id`;
  const appIds = [...made, ...others].map(({ id }) => id);
  const types = await sql<{ app: number; id: number }[]>`
    SELECT app_id AS app, id FROM event_types WHERE app_id = ANY(${appIds}::integer[])`;
  const typeOf = new Map(types.map(({ app, id }) => [app, id]));
  await fillEvents(sql, { appIds, typeIds: appIds.map((id) => typeOf.get(id) ?? 0), events });
  return made;
}

/** Microseconds of one fold an event, while no service folds. Of apps that are not there, so that no read finds these counts. */
async function timeFold(bench: Workbench, apps: number, rounds: number): Promise<number[]> {
  const micros: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    // Of the present, as new events are: all in one minute.
    await bench.sql`
      INSERT INTO count_deltas (app_id, type_id, bucket, count)
      SELECT ${FOLDED_APPS}::integer + n % ${apps}::integer, 1, date_bin('1 minute', now(), 'epoch'), 1
        FROM generate_series(1, ${FOLDED}::integer) n`;
    const started = performance.now();
    await foldCounts(bench.sql);
    micros.push(((performance.now() - started) * 1_000) / FOLDED);
  }
  return micros;
}

type Values = Readonly<Record<(typeof MEASURES)[number], readonly number[]>>;

async function measure(
  bench: Workbench,
  findings: Findings,
  point: Point,
  length: { readonly seconds: number; readonly rounds: number; readonly asked: number },
  fewest: number,
): Promise<Values> {
  const started = performance.now();
  const apps = await makeFilled(bench, point, length.asked);
  const folding = await timeFold(bench, point.apps, length.rounds);
  const requests = await requestsOf(bench, apps, point.events / point.apps, fewest);
  const [first] = apps;
  if (first === undefined) throw new Error('There is no app.');
  const generator = bench.startGenerator();
  const ours = await startLifted(bench, first);
  const floor = await startFloor(bench, first);
  const writtenFrom = Date.now();
  const writers: Contender[] = [{ ...ours, requests: requests.events }, floor];
  const written = await interleavedRounds(bench, generator, writers, { connections: CONNECTIONS, ...length });
  const rates = (name: string): number[] => written.get(name)?.rounds.map(({ accepted }) => accepted) ?? [];
  const readers = (['page', 'total', 'series'] as const).map((name) => ({
    ...ours,
    name,
    requests: requests[name],
  }));
  const read = await interleavedRounds(bench, generator, readers, { connections: 1, ...length });
  for (const [name, { rounds }] of [...written, ...read]) {
    const reports = rounds.map(({ report }) => report);
    checkStatuses(findings, `${point.name}: ${name}`, reports, [200, 201]);
  }
  const ofService = written.get('tidemark');
  checkLedger(
    findings,
    point.name,
    [...(ofService === undefined ? [] : [ofService.warmUp, ...ofService.rounds])].map(({ report }) => report),
    await sumOfTable(
      bench.sql,
      'events',
      apps.map(({ id }) => id),
      writtenFrom,
    ),
  );
  const p50 = (name: string): number[] =>
    read.get(name)?.rounds.map(({ report }) => report.latency?.p50 ?? Number.NaN) ?? [];
  const values = {
    'events to the floor': pairwise(rates('tidemark'), rates('floor')),
    page: p50('page'),
    total: p50('total'),
    series: p50('series'),
    folding,
  };
  await bench.tidy();
  findings.figure(`${point.name}: events`, '/s', rates('tidemark'));
  for (const name of MEASURES)
    findings.figure(
      `${point.name}: ${name}`,
      name === 'folding' ? 'µs/event' : name === 'events to the floor' ? '×' : 'ms',
      values[name],
    );
  findings.figure(`${point.name}: time of this point`, 's', [(performance.now() - started) / 1_000]);
  return values;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const length = byLength(options, {
    full: { seconds: 2, rounds: 5, asked: 1_000 },
    quick: { seconds: 1, rounds: 3, asked: 200 },
    smoke: { seconds: 1, rounds: 1, asked: 50 },
  });
  findings.note(
    `Each app has events over ${FILLED_DAYS} days. Events by ${CONNECTIONS} connections in turns with the floor; reads one after the other on one connection, of up to ${length.asked} apps in turn, as are events; folds of ${FOLDED.toLocaleString('en-GB')} deltas without a service.`,
  );
  findings.note('All points are in one database, one after the other, the largest one last.');
  const events = options.length === 'full' ? FULL_TIMES * options.events : options.events;
  const { sizes, counts } = pointsOf(events);
  const fewest = Math.floor(events / 10 / Math.max(...APP_COUNTS));
  const measured = new Map<string, Values>();
  // The largest one last: all points are filled into the same database.
  const points = [...sizes, ...counts].sort((a, b) => a.events - b.events || a.apps - b.apps);
  for (const point of points) {
    if (!measured.has(point.name))
      measured.set(point.name, await measure(bench, findings, point, length, fewest));
  }
  for (const line of [sizes, counts]) addGrowth(findings, line, measured);
}

/** Each point of a line to its first one. */
function addGrowth(
  findings: Findings,
  [first, ...others]: readonly Point[],
  measured: ReadonlyMap<string, Values>,
): void {
  const medianOf = (point: Point | undefined, name: (typeof MEASURES)[number]): number =>
    spreadOf(measured.get(point?.name ?? '')?.[name] ?? []).median;
  for (const point of others) {
    for (const name of MEASURES) {
      findings.ratio(
        `${name}, ${point.name} to ${first?.name}`,
        [medianOf(point, name) / medianOf(first, name)],
        {
          ...(name === 'events to the floor' ? { atLeast: 1 / FLAT } : { atMost: FLAT }),
        },
      );
    }
  }
}

export const SCALE: Scenario = {
  name: 'scale',
  about: 'Events a second, a page, a total, a series and folding by the number of events and of apps.',
  run,
};
