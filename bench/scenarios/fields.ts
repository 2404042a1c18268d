/** fields: what declared fields cost an event, and what reads through their counts cost beside unfiltered ones. */
import { declareField, listFields } from '../../src/apps/fields.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { ensurePartitions, foldCounts } from '../../src/storage/engines/postgres/maintenance.ts';
import { FieldUpkeep } from '../../src/storage/fields/upkeep.ts';
import { encodeCursor } from '../../src/storage/read/event-list.ts';
import { insertNew } from '../../src/storage/write/inserts.ts';
import type { Findings } from '../findings.ts';
import { pairwise, spreadOf } from '../judge.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadRequest } from '../load/load-job.ts';
import {
  type Contender,
  checkStatuses,
  interleavedRounds,
  latenciesOf,
  type Round,
  reportsOf,
} from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Spawned } from '../servers/spawned.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

const DAY_MS = 86_400_000;
const DAYS = 365;
const START = Date.UTC(2025, 0, 1);
const END = START + DAYS * DAY_MS;
const READ_GOAL = 1.5;
const TIME_GOAL_MS = 10;
const CONNECTIONS = 64;
/** Sessions that make the events, one a core of the smallest machine. */
const SEEDING = 2;

const FIELD_COUNTS = [0, 1, 4, 16] as const;
/** A payload whose members can all be declared: half of them as values, half as numbers. */
const PAYLOAD = JSON.stringify(
  Object.fromEntries(Array.from({ length: 16 }, (_, n) => [`f${n}`, n % 2 === 0 ? `value ${n}` : 12.5 * n])),
);

function requestOf({ loggingToken, typeId }: BenchApp): LoadRequest {
  const body = `{"loggingToken":"${loggingToken}","typeId":"${typeId}","payload":${PAYLOAD}}`;
  return { method: 'POST', path: '/public/create_event', body };
}

type Length = { readonly seconds: number; readonly rounds: number };

async function declare(sql: Sql, appId: number, path: string, kind: 'value' | 'number'): Promise<void> {
  await declareField(sql, { appId, path: [path], kind, typeName: null, backfill: true });
}

/** Drives the maintenance of fields until nothing is left to count. @returns its milliseconds */
async function countAll(bench: Workbench, apps: readonly BenchApp[]): Promise<number> {
  const sql = connect(bench.connection, { connections: 1, name: 'tidemark bench upkeep' });
  const upkeep = new FieldUpkeep(sql, Date.now);
  const began = performance.now();
  const isCounted = async (): Promise<boolean> => {
    const fields = (await Promise.all(apps.map(({ id }) => listFields(bench.sql, id)))).flat();
    return fields.every(({ backfill, completeFrom }) => !backfill && completeFrom !== null);
  };
  try {
    do await upkeep.everySecond();
    while (!(await isCounted()));
    await upkeep.everySecond();
  } finally {
    await sql.end();
  }
  return performance.now() - began;
}

const cpu = (rounds: readonly Round[]): number[] =>
  rounds.map(({ serverMicros, databaseMicros }) => serverMicros + databaseMicros);

/** CPU of an event with so many fields, in turns. */
async function measureWrites(
  bench: Workbench,
  findings: Findings,
  generator: LoadGenerator,
  length: Length,
): Promise<void> {
  const apps = await bench.makeApps(FIELD_COUNTS.length, 'fields');
  for (const [index, app] of apps.entries())
    for (let n = 0; n < (FIELD_COUNTS[index] ?? 0); n += 1)
      await declare(bench.sql, app.id, `f${n}`, n % 2 === 0 ? 'value' : 'number');
  await countAll(bench, apps);
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const contenders = apps.map((app, index) => {
    return { name: `${FIELD_COUNTS[index]} fields`, port, pid, requests: [requestOf(app)] };
  });
  const results = await interleavedRounds(bench, generator, contenders, {
    connections: CONNECTIONS,
    ...length,
  });
  const none = cpu(results.get('0 fields')?.rounds ?? []);
  for (const [name, { rounds }] of results) {
    checkStatuses(findings, name, reportsOf(rounds), [201]);
    findings.figure(`an event with ${name}: CPU of service and PostgreSQL`, 'µs', cpu(rounds));
    findings.figure(
      `an event with ${name}: answers`,
      '/s',
      rounds.map(({ accepted }) => accepted),
    );
    if (name !== '0 fields') findings.ratio(`CPU of an event, ${name} to none`, pairwise(cpu(rounds), none));
  }
}

/** A year of events in the order of time: `tenth` is x in one of ten, `rare` in one of ten thousand, `ms` a number. */
async function seedYear(bench: Workbench, app: BenchApp, events: number): Promise<void> {
  const { sql } = bench;
  await ensurePartitions(sql, START, END);
  const [type] = await sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app.id}`;
  const { before, after } = insertNew(ENGINES.postgres.writes);
  let next = 0;
  const insertSome = async (): Promise<void> => {
    for (let day = next++; day < DAYS; day = next++) {
      const [first, end] = [day, day + 1].map((at) => Math.floor((events / DAYS) * at));
      const rows = sql`
      SELECT (lpad(to_hex(ms), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid AS id,
             ${app.id}::integer AS app_id, ${type?.id ?? 0}::integer AS type_id, to_timestamp(ms / 1000.0) AS created_at,
             ('{"tenth":"' || CASE WHEN hash % 10 = 0 THEN 'x' ELSE 'y' END || '","rare":"'
               || CASE WHEN hash % 10000 = 0 THEN 'x' ELSE 'y' END || '","ms":' || round(exp((hash % 70000) / 10000.0)::numeric, 2)
               || ',"path":"/articles/' || n || '","agent":"' || md5(n::text) || md5(hash::text) || '"}')::json AS payload
        FROM generate_series(${first ?? 0}::integer, ${(end ?? 0) - 1}::integer) n,
             LATERAL (SELECT ${START}::bigint + (n * ${(DAYS * DAY_MS) / events}::float8)::bigint AS ms,
                             hashint4(n) & 2147483647 AS hash) drawn`;
      await sql`WITH ${sql.unsafe(before)} ${rows} ${sql.unsafe(after)}`;
    }
  };
  await Promise.all(Array.from({ length: SEEDING }, insertSome));
  await foldCounts(sql);
  await sql`VACUUM ANALYZE`;
}

async function sizeOfFields(sql: Sql): Promise<number> {
  const [row] = await sql<{ bytes: number }[]>`
    SELECT sum(pg_total_relation_size(oid))::float8 AS bytes FROM pg_class
     WHERE relkind = 'r' AND relname LIKE 'field\_%' AND relnamespace = current_schema()::regnamespace`;
  return row?.bytes ?? 0;
}

const FILTERS = [
  { name: 'all events', query: '', condition: 'true' },
  { name: 'a value of one in 10', query: 'filter=tenth:x', condition: `payload ->> 'tenth' = 'x'` },
  { name: 'a value of one in 10,000', query: 'filter=rare:x', condition: `payload ->> 'rare' = 'x'` },
] as const;

const MIDDLE = encodeCursor({
  at: START + (DAYS / 2) * DAY_MS,
  id: '00000000-0000-0000-0000-000000000000',
  order: 'asc',
});
const YEAR = `from=${new Date(START).toISOString()}&to=${new Date(END).toISOString()}&interval=1d`;

const READS = [
  { name: 'first page with its total', query: 'events?limit=100&total=exact' },
  { name: 'a page in the middle', query: `events?limit=100&cursor=${MIDDLE}` },
  { name: 'a year by the day', query: `series?${YEAR}` },
] as const;

/** Each read with each filter in turns, and a year's statistics of numbers beside its counts. */
async function measureReads(
  bench: Workbench,
  findings: Findings,
  { app, generator, length, server }: ReadOptions,
): Promise<void> {
  const { port, pid } = server;
  const token = await bench.makeResourceToken([app]);
  const headers = { Authorization: `Bearer ${token}` };
  const request = (query: string): LoadRequest => ({
    method: 'GET',
    path: `/v1/apps/${app.appId}/${query}`,
    headers,
  });
  const turns = async (what: string, asked: readonly { readonly name: string; readonly query: string }[]) => {
    const contenders: Contender[] = asked.map(({ name, query }) => {
      return { name: `${what}: ${name}`, port, pid, requests: [request(query)] };
    });
    const results = [
      ...(await interleavedRounds(bench, generator, contenders, { connections: 1, ...length })),
    ];
    const medians = results.map(([, { rounds }]) => latenciesOf(reportsOf(rounds), 'p50'));
    for (const [index, [name, { rounds }]] of results.entries()) {
      checkStatuses(findings, name, reportsOf(rounds), [200]);
      findings.figure(`${name}: p50`, 'ms', medians[index] ?? []);
      if (index === 0) continue;
      // Either will do: so much more than without a filter, or a time that is short in itself.
      const time = spreadOf(medians[index] ?? []).median;
      const isQuick = time <= TIME_GOAL_MS;
      const ratios = pairwise(medians[index] ?? [], medians[0] ?? []);
      findings.ratio(`${name} to ${asked[0]?.name}`, ratios, isQuick ? undefined : { atMost: READ_GOAL });
      if (isQuick) findings.goal(`${name}: p50`, 'ms', time, { atMost: TIME_GOAL_MS });
    }
  };
  await checkTotals(bench, findings, app, request, port);
  for (const { name, query } of READS)
    await turns(
      name,
      FILTERS.map((filter) => ({
        name: filter.name,
        query: filter.query === '' ? query : `${query}&${filter.query}`,
      })),
    );
  await turns('a year by the day', [
    { name: 'counts', query: `series?${YEAR}` },
    { name: 'sums of a number', query: `series?${YEAR}&of=ms&stat=sum` },
    { name: 'p99 of a number', query: `series?${YEAR}&of=ms&stat=p99` },
  ]);
}

interface ReadOptions {
  readonly app: BenchApp;
  readonly generator: LoadGenerator;
  readonly length: Length;
  readonly server: Pick<Spawned, 'port' | 'pid'>;
}

interface Answer {
  readonly data: {
    readonly pagination: { readonly total: number };
    readonly overall: { readonly sum: number; readonly p99: number };
  };
}

async function checkTotals(
  bench: Workbench,
  findings: Findings,
  app: BenchApp,
  request: (query: string) => LoadRequest,
  port: number,
): Promise<void> {
  const get = async (query: string): Promise<Answer> => {
    const { path, headers = {} } = request(query);
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers });
    if (response.status !== 200)
      throw new Error(`${query} was answered ${response.status}: ${await response.text()}`);
    // The API's own shape; what is wrong in it the comparison shows.
    return (await response.json()) as Answer;
  };
  for (const { name, query, condition } of FILTERS) {
    const [row] = await bench.sql.unsafe<{ total: number }[]>(
      `SELECT count(*)::float8 AS total FROM events WHERE app_id = ${app.id} AND ${condition}`,
    );
    const { total } = (await get(`events?limit=1&total=exact&${query}`)).data.pagination;
    findings.check(
      `the total of ${name} is that of count(*)`,
      total === row?.total,
      `${total} of ${row?.total}`,
    );
  }
  const [exact] = await bench.sql<{ sum: string; p99: number }[]>`
    SELECT trim_scale(sum(ms)) AS sum, percentile_disc(0.99) WITHIN GROUP (ORDER BY ms)::float8 AS p99
      FROM (SELECT (payload ->> 'ms')::numeric AS ms FROM events WHERE app_id = ${app.id}) AS numbers`;
  const { sum, p99 } = (await get(`series?${YEAR}&of=ms&stat=sum&stat=p99`)).data.overall;
  findings.check('the sum of a year is exact', String(sum) === exact?.sum, `${sum} of ${exact?.sum}`);
  const error = Math.abs(p99 / (exact?.p99 ?? 0) - 1);
  findings.check('the p99 of a year is within 1 %', error <= 0.0101, `${p99} beside ${exact?.p99}`);
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { events } = options;
  const length = byLength(options, {
    full: { seconds: 2, rounds: 5 },
    quick: { seconds: 1, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  findings.note(
    `${events.toLocaleString('en-GB')} events of one app over a year; 16 members of a payload, of which 0 to 16 are declared, half of them as numbers.`,
  );
  const app = await bench.makeApp('a year of fields');
  await seedYear(bench, app, events);
  const before = await sizeOfFields(bench.sql);
  await declare(bench.sql, app.id, 'tenth', 'value');
  await declare(bench.sql, app.id, 'rare', 'value');
  const ofValues = await countAll(bench, [app]);
  const afterValues = await sizeOfFields(bench.sql);
  await declare(bench.sql, app.id, 'ms', 'number');
  const ofNumbers = await countAll(bench, [app]);
  const afterNumbers = await sizeOfFields(bench.sql);
  findings.figure('backfill of two fields of values: events', '/s', [(events * 1_000) / ofValues]);
  findings.figure('backfill of a field of numbers: events', '/s', [(events * 1_000) / ofNumbers]);
  findings.figure('storage of a field of values, by event', 'B', [(afterValues - before) / events / 2]);
  findings.figure('storage of a field of numbers, by event', 'B', [(afterNumbers - afterValues) / events]);
  await bench.sql`VACUUM ANALYZE`;
  const generator = bench.startGenerator();
  const server = await bench.startService({ limits: 'lifted' });
  await measureReads(bench, findings, { app, generator, length, server });
  await measureWrites(bench, findings, generator, length);
}

export const FIELDS: Scenario = {
  name: 'fields',
  about:
    'Declared fields: CPU of an event with 0 to 16 of them, and pages, totals and series by rare and frequent values.',
  run,
};
