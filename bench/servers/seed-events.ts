/** Millions of events of one app over 30 days, made in the database itself, with their counts folded. */

import { profileDay, unprofiledDays } from '../../src/storage/counts/daily-prefix-sums.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { ensurePartitions, foldCounts } from '../../src/storage/engines/postgres/maintenance.ts';
import { insertNew } from '../../src/storage/write/inserts.ts';
import type { BenchApp, Workbench } from './workbench.ts';

const DAYS = 30;
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 0, 1);
const TYPES = 20;
const RARE_ONE_IN = 1_000;
/** Sessions that insert, one a core of the smallest machine. */
const CONNECTIONS = 2;
/** How long a session waits for the fold of the other one. */
const FOLD_WAIT_MS = 600_000;

export interface SeededApp extends BenchApp {
  readonly events: number;
  /** Milliseconds since 1970, `[from, until)`. Event n is at `from + n × (until - from) / events`. */
  readonly from: number;
  readonly until: number;
  /** A type with one event in twenty, and one with one in a thousand; public ids. */
  readonly commonType: string;
  readonly rareType: string;
}

const seeded = new WeakMap<Workbench, Promise<SeededApp>>();

/** Makes them once a workbench: scenarios that share one share the events. */
export function seededApp(bench: Workbench, events: number): Promise<SeededApp> {
  const known = seeded.get(bench);
  if (known !== undefined) return known;
  const making = seed(bench, events);
  seeded.set(bench, making);
  return making;
}

async function seed(bench: Workbench, events: number): Promise<SeededApp> {
  const { sql } = bench;
  const started = performance.now();
  process.stderr.write(`filling in ${events.toLocaleString('en-GB')} events\n`);
  const app = await bench.makeApp('a month of events');
  // Types in their order; the first one is the app's own.
  await sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'typ_bench' || lpad(n::text, 2, '0'), ${app.id}::integer, 'type ' || lpad(n::text, 2, '0')
      FROM generate_series(1, ${TYPES - 1}::integer) n`;
  const types = await sql<{ id: number; publicId: string }[]>`
    SELECT id, public_id AS "publicId" FROM event_types WHERE app_id = ${app.id} ORDER BY id`;
  await fillEvents(sql, { appIds: [app.id], typeIds: types.map(({ id }) => id), events });
  const [counted] = await sql<{ events: number }[]>`
    SELECT sum(count)::float8 AS events FROM events_per_day WHERE app_id = ${app.id} AND type_id = 0`;
  if (counted?.events !== events) throw new Error(`${counted?.events} events were counted, not ${events}.`);
  process.stderr.write(`filled in ${Math.round((performance.now() - started) / 1_000)} s\n`);
  return {
    ...app,
    events,
    from: START,
    until: START + DAYS * DAY_MS,
    commonType: types[1]?.publicId ?? '',
    rareType: types.at(-1)?.publicId ?? '',
  };
}

/** Event `n` of a fill goes to app `n` modulo their number; its type is drawn by hash from those of the app. */
export interface Fill {
  readonly appIds: readonly number[];
  /** All apps' types, each app's after the other's: as many of each. */
  readonly typeIds: readonly number[];
  readonly events: number;
}

export const FILLED_DAYS = DAYS;
export const FILLED_FROM = START;

/** Fills in events over {@link FILLED_DAYS}, and folds their counts. */
export async function fillEvents(sql: Sql, fill: Fill): Promise<void> {
  await ensurePartitions(sql, START, START + (DAYS - 1) * DAY_MS);
  let day = 0;
  const insertSome = async (): Promise<void> => {
    for (let mine = day++; mine < DAYS; mine = day++) {
      await fillDay(sql, fill, mine);
      // One fold of all days would sort all their deltas at once.
      await foldCounts(sql, FOLD_WAIT_MS);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, insertSome));
  await foldCounts(sql);
  for (const one of await unprofiledDays(sql, START + 60 * DAY_MS)) await profileDay(sql, one);
  await sql`VACUUM ANALYZE`;
  await sql`CHECKPOINT`;
}

/** One day's events, evenly spread, in the order of time. Of several types the last one is rare. */
async function fillDay(sql: Sql, { appIds, typeIds, events }: Fill, day: number): Promise<void> {
  const first = Math.floor((events / DAYS) * day);
  const end = Math.floor((events / DAYS) * (day + 1));
  const apps = appIds.length;
  const rare = typeIds.length / apps - 1;
  const drawnType = sql`CASE WHEN hash % ${RARE_ONE_IN} = 0 THEN ${rare}::integer ELSE hash % ${Math.max(1, rare)} END`;
  const rows = sql`
    SELECT (lpad(to_hex(ms), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid AS id,
           (${[...appIds]}::integer[])[1 + n % ${apps}::integer] AS app_id,
           (${[...typeIds]}::integer[])[1 + n % ${apps}::integer * ${rare + 1}::integer + ${drawnType}] AS type_id,
           to_timestamp(ms / 1000.0) AS created_at,
           ('{"user":"u-' || hash % 5000 || '","path":"/articles/' || n || '","referrer":"https://example.org/","seconds":'
             || n % 97 || ',"agent":"' || md5(n::text) || md5(hash::text) || '"}')::json AS payload
      FROM generate_series(${first}::integer, ${end - 1}::integer) n,
           LATERAL (SELECT ${START}::bigint + (n * ${(DAYS * DAY_MS) / events}::float8)::bigint AS ms,
                           hashint4(n) & 2147483647 AS hash) drawn`;
  const { before, after } = insertNew(ENGINES.postgres.writes);
  await sql`WITH ${sql.unsafe(before)} ${rows} ${sql.unsafe(after)}`;
}
