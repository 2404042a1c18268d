/** Reads of days whose rows are in the archive alone give what reads of rows do: exactly the same. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../src/apps/fields.ts';
import { ArchivedGroups } from '../../src/archive/archived-groups.ts';
import { archiveDueDays } from '../../src/archive/archiving.ts';
import { listArchivedDays } from '../../src/archive/days.ts';
import { type ArchiveStore, openArchiveStore } from '../../src/archive/store.ts';
import { readConfig } from '../../src/config.ts';
import { fieldFilterOf } from '../../src/read/filter/counted-values.ts';
import type { Condition } from '../../src/read/filter/parse-filter.ts';
import { parseFilters, payloadFilter } from '../../src/read/filter/payload-filter.ts';
import type { SeriesRequest } from '../../src/storage/counts/series.ts';
import type { Cursor, EventList } from '../../src/storage/read/event-list.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import type { StoredEvent } from '../../src/storage/read/page-request.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { availableEngines } from '../support/database.ts';
import { type FieldDatabase, fieldDatabase, type OpenFieldDatabase } from '../support/field-database.ts';
import { runs, sized } from '../support/fuzz.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const START = Date.UTC(2026, 2, 10);
const DAYS = 5;
const END = START + DAYS * DAY_MS;
/** Days of the first app that leave. */
const AWAY = [0, 1, 3];
/** The second type of each app is kept shorter. */
const OWN_BOUNDARY = START + DAY_MS;

interface World {
  readonly fields: FieldDatabase;
  readonly storage: Storage;
  readonly groups: ArchivedGroups;
  readonly ids: readonly string[];
}

/** Times of events: some in a crowd, with several in one millisecond, others anywhere. */
function timesOf(day: number, count: number): number[] {
  const start = START + day * DAY_MS;
  const crowd = start + 9 * HOUR_MS + 7 * MINUTE_MS;
  let state = day + 1;
  const random = (below: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * below);
  };
  const times = Array.from({ length: count }, (_, index) =>
    index % 3 === 0 ? start + random(DAY_MS) : crowd + Math.floor(random(4 * MINUTE_MS) / 7) * 7,
  );
  return [...times, start, start + DAY_MS - 1].sort((a, b) => a - b);
}

const PATHS = ['/', '/a', '/b', '/rare'];

function payloadOf(index: number): string {
  const path = index % 97 === 0 ? '/rare' : PATHS[index % 3];
  return `{"path":"${path}", "ms": ${index % 50},"text":"${'x'.repeat(index % 40)}ä"}`;
}

/**
 * The contract, on a database of one engine.
 * @param open      opens it
 * @param countsBy  the finest counts of days whose rows have left
 */
function archivedReads(
  open: OpenFieldDatabase,
  { countsBy }: { readonly countsBy: 'minute' | 'quarter-hour' },
): void {
  let world: World;
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tidemark-archive-'));
    const store = openArchiveStore(readConfig({ ARCHIVE_URL: pathToFileURL(folder).href }));
    world = await openWorld(open, store);
  });

  afterAll(async () => {
    await world.groups.close();
    await world.fields.close();
    await rm(folder, { recursive: true });
  });

  const bounds = fc.oneof(
    fc.constant(null),
    fc.integer({ min: 0, max: DAYS }).map((day) => START + day * DAY_MS),
    fc.integer({ min: 0, max: DAYS * 24 * 4 }).map((quarter) => START + quarter * 15 * MINUTE_MS),
    fc.integer({ min: START - HOUR_MS, max: END }),
    // In the crowd.
    fc
      .tuple(fc.nat(DAYS - 1), fc.nat(5 * MINUTE_MS))
      .map(([day, ms]) => START + day * DAY_MS + 9 * HOUR_MS + 6 * MINUTE_MS + ms),
  );
  const scopes = fc.record({
    types: fc.constantFrom<Types>('all', 'first', 'second', 'both', 'without first', 'without second'),
    from: bounds,
    until: bounds,
    order: fc.constantFrom<'asc' | 'desc'>('asc', 'desc'),
    maxBytes: fc.constantFrom(1, 600, 1_000_000),
    limit: fc.constantFrom(1, 7, 60, 1_000),
  });

  test('pages at any offset, with their totals', async () => {
    await fc.assert(
      fc.asyncProperty(scopes, fc.nat(8_000), async ({ types, from, until, ...page }, offset) => {
        await same(world, async ({ reader, app }) => {
          const scope = { appId: app, ...typesOf(app, types), from, until };
          const { events, ...rest } = await reader.page({ scope, offset, ...page });
          return { ...rest, events: plain(events, app) };
        });
      }),
      runs(sized(12, 30)),
    );
  });

  test('lists by cursor, each page from the end of the one before', async () => {
    await fc.assert(
      fc.asyncProperty(scopes, fc.boolean(), async ({ types, from, until, ...page }, withTotal) => {
        await same(world, async ({ reader, app }) => {
          const request = { appId: app, ...typesOf(app, types), from, until, ...page, withTotal };
          const pages: unknown[] = [];
          for (let after: Cursor | null = null, left = 6; left > 0; left -= 1) {
            const { events, next, total }: EventList = await reader.list({ ...request, after });
            pages.push([plain(events, app), next, total]);
            if (next === null) break;
            after = next;
          }
          return pages;
        });
      }),
      runs(sized(6, 12)),
    );
  });

  test('searches, whatever a step may look at', async () => {
    const filters = fc.constantFrom('path:/rare', 'ms>=48', 'path:/a,/b', '-path:/', 'word', null);
    await fc.assert(
      fc.asyncProperty(
        scopes,
        filters,
        fc.constantFrom(90, 3_000, 100_000),
        async ({ types, from, until, order }, text, rows) => {
          const filter =
            text === 'word' ? payloadFilter([], { word: 'rare' }) : text && payloadFilter(conditionsOf(text));
          await same(world, async ({ reader, app }) => {
            const search = reader.search(
              { appId: app, ...typesOf(app, types), from, until, order, after: null },
              filter,
            );
            const found: StoredEvent[] = [];
            let looked = 0;
            // How many rows a step looks at depends on how long it takes: small ones go on until enough is found to compare.
            for (let isOver = false; !isOver && (rows === 100_000 || found.length < 10); ) {
              const step = await search.step(rows);
              found.push(...step.events);
              looked += step.looked;
              isOver = step.position === null;
            }
            return rows < 100_000 && found.length >= 10
              ? [plain(found.slice(0, 10), app)]
              : [plain(found, app), looked];
          });
        },
      ),
      runs(sized(5, 10)),
    );
  });

  test('pages of events that pass a filter on a declared field, with their totals', async () => {
    await fc.assert(
      fc.asyncProperty(
        scopes,
        fc.constantFrom('/rare', '/a', '/'),
        async ({ from, until, ...page }, value) => {
          const filter = fieldFilterOf({ filter: conditionsOf(`path:${value}`) });
          if (filter === null) throw new Error('It is counted.');
          const isAnswered = await same(world, async ({ reader, app }) => {
            // The counts answer types of one retention alone.
            const request = {
              appId: app,
              typeIds: [app * 2 - 1],
              from,
              until,
              ...page,
              after: null,
              withTotal: true,
            };
            const list = await reader.filteredList(request, filter);
            return typeof list === 'string' ? list : [plain(list.events, app), list.total, list.next];
          });
          return isAnswered !== 'not counted';
        },
      ),
      runs(sized(4, 8)),
    );
  });

  test('charts', async () => {
    const finest = countsBy === 'quarter-hour' ? 15 * MINUTE_MS : 1;
    await fc.assert(
      fc.asyncProperty(
        scopes,
        fc.constantFrom<SeriesRequest['buckets']>(
          ...(countsBy === 'quarter-hour' ? (['1h', '1d'] as const) : [20, 500]),
        ),
        async ({ types, from, until }, buckets) => {
          const end = Math.max(until ?? END, START + 1);
          const first = from === null || from >= end ? null : from;
          const [begins, ends] = [
            first === null ? null : Math.floor(first / finest) * finest,
            Math.ceil(end / finest) * finest,
          ];
          await same(world, async ({ reader, app }) => {
            const request = {
              appId: app,
              ...typesOf(app, types),
              from: begins,
              until: ends,
              timezone: 'Europe/Berlin',
            };
            const series = await reader.series({ ...request, buckets, exactEnds: 'both' });
            if (typeof series === 'string') return series;
            const { types: shown, before, ...rest } = series;
            return { ...rest, counts: shown.map((type) => type.counts), before: before.all };
          });
        },
      ),
      runs(sized(6, 12)),
    );
  });
}

function conditionsOf(text: string): readonly Condition[] {
  const conditions = parseFilters([text]);
  if (typeof conditions === 'string') throw new Error(conditions);
  return conditions;
}

type Types = 'all' | 'first' | 'second' | 'both' | 'without first' | 'without second';

function typesOf(
  app: number,
  types: Types,
): { typeIds: readonly number[] | null; exceptTypes: readonly number[] } {
  const [first, second] = [app * 2 - 1, app * 2];
  if (types.startsWith('without'))
    return { typeIds: null, exceptTypes: [types === 'without first' ? first : second] };
  const ids = { all: null, first: [first], second: [second], both: [first, second] };
  return { typeIds: ids[types as keyof typeof ids], exceptTypes: [] };
}

/** Events of both apps alike. */
function plain(events: readonly StoredEvent[], app: number): readonly unknown[] {
  return events.map(({ id, typeId, createdAt, payload }) => [
    id,
    Number(typeId.slice('type'.length)) - 2 * (app - 1),
    createdAt.getTime(),
    payload,
  ]);
}

interface Asked {
  readonly reader: EventReader;
  readonly app: number;
}

/** Asks both apps the same, of which only one has days in the archive. */
async function same({ fields, storage }: World, ask: (asked: Asked) => Promise<unknown>): Promise<unknown> {
  const reader = storage.reader(fields.sql);
  const [found, expected] = [await ask({ reader, app: 1 }), await ask({ reader, app: 2 })];
  expect(found).toEqual(expected);
  return expected;
}

async function openWorld(open: OpenFieldDatabase, store: ArchiveStore): Promise<World> {
  const fields = await open({ now: END, from: START, until: END });
  const { sql, database } = fields;
  for (const appId of [1, 2])
    await declareField(sql, { appId, path: ['path'], kind: 'value', typeName: null, backfill: true });
  const ids: string[] = [];
  const storeAll = async (times: readonly number[], store = fields.store): Promise<void> => {
    const events = times.map((at, index) => ({
      id: fields.newId(at),
      at,
      typeId: 1 + (index % 5 === 0 ? 1 : 0),
      payload: payloadOf(index),
    }));
    ids.push(...events.map(({ id }) => id));
    await store(events);
    await store(events.map((event) => ({ ...event, typeId: event.typeId + 2 })));
  };
  for (let day = 0; day < DAYS; day += 1) await storeAll(timesOf(day, day === 1 ? 6_500 : 300));
  await fields.settle();
  for (let rounds = 0; rounds < 5; rounds += 1) {
    await fields.upkeep.everyTenMinutes();
    await fields.upkeep.everySecond();
  }
  const storage = await openStorage(sql);
  const problems: unknown[] = [];
  await archiveDueDays({
    ...{ sql: fields.alone, storage, store, installationId: 'here', filter: { app: 'app1' }, until: END },
    keepRows: true,
    reachMs: 0,
    onDay: ({ problem }) => problems.push(problem),
  });
  expect(problems).toEqual(Array.from({ length: DAYS }, () => null));
  for (const day of AWAY) await leave(fields, storage, START + day * DAY_MS);
  // Events that may be stored already are refused where their day has left.
  const storeLate = database.engine === 'citus' ? fields.write : fields.store;
  for (let day = 0; day < DAYS; day += 1)
    await storeAll(
      timesOf(day, 40).map((at) => at - (at % 1_000) + (at % 7)),
      (events) => storeLate(events),
    );
  const from = new Date(OWN_BOUNDARY);
  await sql`
    INSERT INTO app_boundaries (app_id, type_id, readable_from, moved_at)
    SELECT app, app * 2, ${from}, now() FROM generate_series(1, 2) AS app`;
  const groups = new ArchivedGroups({ store, log: pino({ level: 'silent' }) });
  database.sql.pool.database.archive = groups;
  return { fields, storage, groups, ids };
}

/** Takes the rows of an archived day away. */
async function leave({ sql, alone }: FieldDatabase, storage: Storage, at: number): Promise<void> {
  const day = new Date(at).toISOString().slice(0, 'YYYY-MM-DD'.length);
  const [archived] = await listArchivedDays(sql, { app: 'app1', from: day, to: day });
  const parts = (archived?.parts ?? []).map(({ key, events, bytes, ids = '', groups = [], footer = '' }) => ({
    ...{ key, events, bytes, ids, groups, footer },
  }));
  expect(await storage.takeAway(alone, { appId: 1, day, parts, reachMs: 0 })).toBeNull();
}

describe.each(availableEngines())('with %s', (engine) => {
  archivedReads((time) => fieldDatabase(engine, time), {
    countsBy: engine === 'timescale' ? 'quarter-hour' : 'minute',
  });
});
