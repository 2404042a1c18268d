/**
 * Whether a page and its exact total cost the same at any depth: ten million events of one app over 30 days.
 *
 * DATABASE_URL names a migrated database of its own; the events are made once and found again by the next run.
 * To run it: `npx tsc -p tsconfig.check.json --noEmit false --outDir dist/check && node dist/check/bench/read-depth.js`.
 * EVENTS and ROUNDS change the size (10000000) and the rounds per line (50). Prints a Markdown table of medians in ms.
 */
import { connect, type Sql } from '../src/database/connect.ts';
import { ensurePartitions, foldCounts } from '../src/database/maintenance.ts';
import { type PageRequest, readEventPage, type Scope } from '../src/read/event-page.ts';

const APP = 'bench-read-depth';
const EVENTS = Number(process.env.EVENTS ?? 10_000_000);
const ROUNDS = Number(process.env.ROUNDS ?? 50);
const DAYS = 30;
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 0, 1);
const TYPES = 20;
/** Of the other nineteen types each has about one event in nineteen. */
const RARE_TYPE = TYPES - 1;
const RARE_ONE_IN = 1_000;

interface Seeded {
  readonly appId: number;
  /** Internal ids, the rare type last. */
  readonly typeIds: readonly number[];
}

async function seed(sql: Sql): Promise<Seeded> {
  const [app] = await sql<{ id: number }[]>`
    INSERT INTO apps (public_id, name) VALUES (${APP}, ${APP})
    ON CONFLICT (public_id) DO UPDATE SET name = excluded.name RETURNING id`;
  if (app === undefined) throw new Error('The app was not made.');
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT ${APP} || '-' || n, ${app.id}::integer, 'type ' || lpad(n::text, 2, '0')
      FROM generate_series(0, ${TYPES - 1}::integer) n
    ON CONFLICT DO NOTHING`;
  const types = await sql<
    { id: number }[]
  >`SELECT id FROM event_types WHERE app_id = ${app.id} ORDER BY name`;
  const typeIds = types.map((type) => type.id);

  await ensurePartitions(sql, START, START + (DAYS - 1) * DAY_MS);
  const [present] = await sql<{ count: number }[]>`
    SELECT coalesce(sum(count), 0)::float8 AS count FROM events_per_day WHERE app_id = ${app.id} AND type_id = 0`;
  if (present?.count !== EVENTS) {
    if (present?.count !== 0)
      throw new Error('Another number of events is there already: use a fresh database.');
    for (let day = 0; day < DAYS; day += 1) await seedDay(sql, app.id, typeIds, day);
  }
  await foldCounts(sql);
  await sql`VACUUM ANALYZE`;
  return { appId: app.id, typeIds };
}

/** One day's events, evenly spread, in the order of time; types are drawn by hash. */
async function seedDay(sql: Sql, appId: number, typeIds: readonly number[], day: number): Promise<void> {
  const first = Math.floor((EVENTS / DAYS) * day);
  const end = Math.floor((EVENTS / DAYS) * (day + 1));
  await sql`
    INSERT INTO events (id, app_id, type_id, created_at, payload)
    SELECT (lpad(to_hex(ms), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
           ${appId}::integer,
           (${[...typeIds]}::integer[])[1 + CASE WHEN hash % ${RARE_ONE_IN} = 0 THEN ${RARE_TYPE}::integer ELSE hash % ${RARE_TYPE} END],
           to_timestamp(ms / 1000.0),
           ('{"user":"u-' || hash % 5000 || '","path":"/articles/' || n || '","referrer":"https://example.org/","seconds":'
             || n % 97 || ',"agent":"' || md5(n::text) || md5(hash::text) || '"}')::json
      FROM generate_series(${first}::integer, ${end - 1}::integer) n,
           LATERAL (SELECT ${START}::bigint + (n * ${(DAYS * DAY_MS) / EVENTS}::float8)::bigint AS ms,
                           hashint4(n) & 2147483647 AS hash) drawn`;
}

/** Milliseconds of the middle one of all rounds, after a few to warm up. */
async function medianMs(read: () => Promise<unknown>): Promise<number> {
  for (let i = 0; i < 5; i += 1) await read();
  const times: number[] = [];
  for (let i = 0; i < ROUNDS; i += 1) {
    const started = process.hrtime.bigint();
    await read();
    times.push(Number(process.hrtime.bigint() - started) / 1e6);
  }
  times.sort((a, b) => a - b);
  return times[Math.floor(times.length / 2)] ?? Number.NaN;
}

/** The total and the page the slow way: the rows that the fast way must give. */
async function checkAgainstPlain(sql: Sql, request: PageRequest): Promise<void> {
  const { scope, offset, limit, order } = request;
  const matches = sql`
    app_id = ${scope.appId}
    ${scope.typeId === null ? sql`` : sql`AND type_id = ${scope.typeId}`}
    ${scope.from === null ? sql`` : sql`AND created_at >= ${new Date(scope.from)}`}
    ${scope.until === null ? sql`` : sql`AND created_at < ${new Date(scope.until)}`}`;
  const direction = order === 'asc' ? sql`ASC` : sql`DESC`;
  const [counted] = await sql<
    { total: number }[]
  >`SELECT count(*)::float8 AS total FROM events WHERE ${matches}`;
  const rows = await sql<{ id: string }[]>`
    SELECT id FROM events WHERE ${matches}
     ORDER BY created_at ${direction}, id ${direction} OFFSET ${offset} LIMIT ${limit}`;
  const page = await readEventPage(sql, request);
  const same =
    page.total === counted?.total && page.events.map((e) => e.id).join() === rows.map((r) => r.id).join();
  if (!same) throw new Error(`The page differs from the plain one: ${JSON.stringify(request)}`);
}

const databaseUrl = process.env.DATABASE_URL;
if (databaseUrl === undefined) throw new Error('DATABASE_URL: name a migrated database.');
const sql = connect({ url: databaseUrl }, { connections: 1, name: 'tidemark bench' });
const { appId, typeIds } = await seed(sql);

const TYPE_CHOICES = [
  ['all types', null],
  ['a common type', typeIds[0] ?? null],
  ['one in 1,000', typeIds[RARE_TYPE] ?? null],
] as const;
const RANGES = [
  ['none', null, null],
  ['ragged, 29 days', START + 12_345_678, START + 29 * DAY_MS + 7_654_321],
] as const;

console.log('| Types | Range | Order | Limit | Offset | Total | ms |\n|---|---|---|---|---|---|---|');
for (const [typeName, typeId] of TYPE_CHOICES) {
  for (const [rangeName, from, until] of RANGES) {
    for (const [order, limit] of [
      ['asc', 100],
      ['desc', 100],
      ['asc', 1_000],
    ] as const) {
      const scope: Scope = { appId, typeId, from, until };
      const { total } = await readEventPage(sql, { scope, offset: 0, limit: 1, order, maxBytes: 1 });
      for (const offset of [0, Math.floor(total / 2), total - 10]) {
        const request = { scope, offset, limit, order, maxBytes: 33_554_432 };
        await checkAgainstPlain(sql, request);
        const ms = await medianMs(() => readEventPage(sql, request));
        console.log(
          `| ${typeName} | ${rangeName} | ${order} | ${limit} | ${offset} | ${total} | ${ms.toFixed(2)} |`,
        );
      }
    }
  }
}
await sql.end();
