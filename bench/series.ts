/**
 * How long a chart's series takes: ten million events over a year, of an app with 20 types and of one with 1,000.
 *
 * DATABASE_URL names a migrated database of its own. Only the counts are made, as nothing else is read; they are found
 * again by the next run. EVENTS and ROUNDS change the size (10000000) and the rounds per line (21). Prints a Markdown
 * table of medians in ms, beside the floor of one round trip.
 */
import { connect, type Sql } from '../src/database/connect.ts';
import { profileDay, unprofiledDays } from '../src/database/day-profiles.ts';
import { readSeries } from '../src/read/series.ts';

const EVENTS = Number(process.env.EVENTS ?? 10_000_000);
const ROUNDS = Number(process.env.ROUNDS ?? 21);
const DAY_MS = 86_400_000;
const START = Date.UTC(2025, 10, 21);
const END = START + 365 * DAY_MS;
const ZONES = ['UTC', 'Europe/Berlin', 'Asia/Kathmandu', 'Pacific/Auckland'];
const RANGES = [
  { name: 'a year', days: 365, buckets: 1_000 },
  { name: 'a year', days: 365, buckets: 400 },
  { name: 'a year', days: 365, buckets: 100 },
  { name: '120 days', days: 120, buckets: 1_000 },
  { name: '30 days', days: 30, buckets: 1_000 },
  { name: '7 days', days: 7, buckets: 1_000 },
];

/** Makes an app with evenly spread events, as counts that were folded in the order of time. @returns its internal id */
async function seed(sql: Sql, types: number): Promise<number> {
  const name = `bench-series-${types}`;
  const [known] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${name}`;
  if (known !== undefined) return known.id;
  return await sql.begin(async (tx) => {
    const [app] = await tx<
      { id: number }[]
    >`INSERT INTO apps (public_id, name) VALUES (${name}, ${name}) RETURNING id`;
    if (app === undefined) throw new Error('The app was not made.');
    const made = await tx<{ id: number }[]>`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT ${name} || '-' || n, ${app.id}::integer, 'type ' || n FROM generate_series(1, ${types}::integer) n RETURNING id`;
    const ids = made.map(({ id }) => id);
    await tx`
      CREATE TEMP TABLE drawn ON COMMIT DROP AS
      SELECT type_id, bucket, count(*) AS count
        FROM (SELECT (${ids}::integer[])[1 + floor(random() * ${types}::integer)::integer] AS type_id,
                     date_bin('15 minutes', to_timestamp(${START / 1_000}::float8 + random() * ${(END - START) / 1_000}::float8), 'epoch') AS bucket
                FROM generate_series(1, ${EVENTS}::integer)) events
       GROUP BY 1, 2`;
    await tx`INSERT INTO drawn SELECT 0, bucket, sum(count) FROM drawn GROUP BY bucket`;
    for (const [table, width] of [
      ['quarter_hour_counts', '15 minutes'],
      ['hour_counts', '1 hour'],
      ['day_counts', '1 day'],
    ] as const) {
      await tx`
        INSERT INTO ${tx(table)} (app_id, type_id, bucket, count)
        SELECT ${app.id}, type_id, date_bin(${width}::interval, bucket, 'epoch') AS start, sum(count)
          FROM drawn GROUP BY 2, 3 ORDER BY start, type_id`;
    }
    await tx`
      INSERT INTO month_counts (app_id, type_id, bucket, count)
      SELECT ${app.id}, type_id, date_trunc('month', bucket, 'UTC') AS start, sum(count)
        FROM drawn GROUP BY 2, 3 ORDER BY start, type_id`;
    return app.id;
  });
}

/** Milliseconds of the middle one of all rounds, after a few to warm up. */
async function medianMs(read: () => Promise<unknown>): Promise<number> {
  for (let i = 0; i < 3; i += 1) await read();
  const times: number[] = [];
  for (let i = 0; i < ROUNDS; i += 1) {
    const started = performance.now();
    await read();
    times.push(performance.now() - started);
  }
  times.sort((a, b) => a - b);
  return times[Math.floor(times.length / 2)] ?? Number.NaN;
}

const databaseUrl = process.env.DATABASE_URL;
if (databaseUrl === undefined) throw new Error('DATABASE_URL: name a migrated database.');
const sql = connect({ url: databaseUrl }, { connections: 1, name: 'tidemark bench' });
const apps: { types: number; appId: number }[] = [];
for (const types of [20, 1_000]) apps.push({ types, appId: await seed(sql, types) });
for (const day of await unprofiledDays(sql, END + 2 * DAY_MS)) await profileDay(sql, day);
await sql`VACUUM ANALYZE`;

console.log(`Floor: ${(await medianMs(() => sql`SELECT 1`)).toFixed(2)} ms for SELECT 1\n`);
console.log('| Types | Range | Zone | Buckets | Width | ms |\n|---|---|---|---|---|---|');
for (const { types, appId } of apps) {
  for (const { name, days, buckets } of RANGES) {
    for (const timezone of ZONES) {
      const request = { appId, typeIds: null, from: END - days * DAY_MS, until: END, timezone, buckets };
      const series = await readSeries(sql, request);
      if (series === null) throw new Error('The range is too long.');
      const begin = series.starts[0] ?? 0;
      const [counted] = await sql<{ total: number }[]>`
        SELECT sum(count)::float8 AS total FROM events_per_quarter_hour
         WHERE app_id = ${appId} AND type_id = 0 AND bucket >= ${begin} AND bucket < ${series.end}`;
      if (series.all.reduce((sum, count) => sum + count, 0) !== counted?.total)
        throw new Error('The sums differ.');
      const ms = (await medianMs(() => readSeries(sql, request))).toFixed(1);
      console.log(
        `| ${types} | ${name} | ${timezone} | ${series.starts.length} | ${series.bucket} | ${ms} |`,
      );
    }
  }
}
await sql.end();
