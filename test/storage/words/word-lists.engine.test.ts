/** Searches by lists of words find what a scan finds, whatever is written, erased, listed and killed meanwhile. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ArchivedGroups } from '../../../src/archive/archived-groups.ts';
import { archiveDueDays, bringDayBack, type DayOutcome } from '../../../src/archive/archiving.ts';
import { CHANGED } from '../../../src/archive/days.ts';
import { openArchiveStore } from '../../../src/archive/store.ts';
import { readConfig } from '../../../src/config.ts';
import { wordsOf } from '../../../src/json/words.ts';
import { parseFilters, payloadFilter, type SearchedTexts } from '../../../src/read/filter/payload-filter.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { compress } from '../../../src/storage/engines/timescale/compression.ts';
import type { EventReader } from '../../../src/storage/read/event-reader.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import { partOf, slicesIn } from '../../../src/storage/words/lists.ts';
import { readListed } from '../../../src/storage/words/lookup.ts';
import { WordUpkeep } from '../../../src/storage/words/upkeep.ts';
import { availableEngines } from '../../support/database.ts';
import { type FieldDatabase, type FieldEvent, fieldDatabase } from '../../support/field-database.ts';
import { seededRandom } from '../../support/field-oracle.ts';
import { sized } from '../../support/fuzz.ts';
import { heldLock } from '../../support/held-lock.ts';
import { patient } from '../../support/patience.ts';
import { until } from '../../support/service.ts';

const NOW = Math.floor(Date.now() / DAY_MS) * DAY_MS + 12 * HOUR_MS;
const SEGMENT = 150;
const TAGS = 12;
const ROUNDS = sized(7, 600);
/** With these a payload has more words than are looked up. */
const MORE = 'one two three four five six seven eight nine ten';

interface Known extends FieldEvent {
  readonly number: number;
  state: 'written' | 'stored' | 'erasing' | 'erased';
}

/** A cluster keeps no lists. */
const ENGINES = availableEngines().filter((engine) => engine !== 'citus');

describe.runIf(ENGINES.length > 0).each(ENGINES)('with %s', (engine) => {
  let fields: FieldDatabase;
  let storage: Storage;
  let reader: EventReader;
  let upkeep: WordUpkeep;
  const random = seededRandom(20_261_129);
  const known: Known[] = [];

  beforeAll(async () => {
    fields = await fieldDatabase(engine, { now: NOW, from: NOW - 6 * DAY_MS, until: NOW + DAY_MS });
    storage = await openStorage(fields.sql);
    reader = storage.reader(fields.sql);
    upkeep = new WordUpkeep(fields.alone, () => fields.clock.now, fields.sql, SEGMENT);
    await write(400);
    await fields.sql`UPDATE apps SET word_search = true WHERE id = 1`;
  });
  afterAll(() => fields.close());

  function made(number: number): Known {
    const at = number % 3 === 0 ? NOW - random(20 * MINUTE_MS) : NOW - random(4 * DAY_MS);
    const escaped = number % 5 === 0 ? '"\\u006eote":"caf\\u00e9 \\"x\\""' : '"note":"café"';
    const payload = `{"order":"order-${number}","tag":"t${number % TAGS}","n":${number % 2 === 0 ? number : `${number}.0`},${escaped},"more":"${MORE}"}`;
    return { id: fields.newId(at), at, typeId: 1 + (number % 2), payload, number, state: 'written' };
  }

  async function write(count: number): Promise<void> {
    const some = Array.from({ length: count }, (_, index) => made(known.length + index));
    known.push(...some);
    await fields.write(some);
    for (const one of some) one.state = 'stored';
  }

  /** @param isStored whether an event must be found, which may have been erased meanwhile */
  async function search(
    texts: SearchedTexts & { filter?: string },
    has: (event: Known) => boolean,
    within: { from: number | null; until: number | null } = { from: null, until: null },
  ): Promise<{ looked: number; searchedBy: unknown[] }> {
    const conditions = texts.filter === undefined ? [] : parseFilters([texts.filter]);
    const filter = typeof conditions === 'string' ? null : payloadFilter(conditions, texts);
    const order = random(2) === 0 ? 'asc' : 'desc';
    const wanted = known.filter((event) => event.state === 'stored' && has(event));
    const opened = reader.search({ appId: 1, typeIds: null, ...within, order, after: null }, filter);
    const found: string[] = [];
    const searchedBy: unknown[] = [];
    let looked = 0;
    for (let isOver = false; !isOver; ) {
      const step = await opened.step(1 + random(2) * 40 + random(200));
      found.push(...step.events.map(({ id }) => id));
      if (step.searchedBy !== null) searchedBy.push(step.searchedBy);
      looked += step.looked;
      isOver = step.position === null;
    }
    const ids = new Set(found);
    expect(ids.size).toBe(found.length);
    const missing = wanted.filter((event) => event.state === 'stored' && !ids.has(event.id));
    expect(missing.map(({ number }) => number)).toEqual([]);
    const all = new Map(known.map((event) => [event.id, event]));
    for (const id of found) {
      const event = all.get(id);
      expect(event !== undefined && has(event)).toBe(true);
    }
    return { looked, searchedBy };
  }

  async function searchSome(): Promise<void> {
    // Often one of those that are just written.
    const number = random(2) === 0 ? known.length - 1 - random(40) : random(known.length + 20);
    const tag = random(TAGS);
    await search({ word: `order-${number}` }, (event) => event.number === number);
    await search({ word: `t${tag}` }, (event) => event.number % TAGS === tag);
    await search({ q: `"order-${number}"` }, (event) => event.number === number);
    await search({ filter: `n==${number}` }, (event) => event.number === number);
    await search({ filter: `tag:t${tag}`, word: 'café' }, (event) => event.number % TAGS === tag);
  }

  /** Each event has a tag. */
  async function searchAll(): Promise<void> {
    for (let tag = 0; tag < TAGS; tag += sized(3, 1))
      await search({ word: `t${tag}` }, (event) => event.number % TAGS === tag);
  }

  async function erase(sql: Sql, erasureId: number, events: readonly Known[]): Promise<void> {
    const some = events.toSorted((a, b) => a.at - b.at);
    for (const event of some) event.state = 'erasing';
    await storage.erase(sql, { appId: 1, erasureId, events: some, payloads: null });
    for (const event of some) event.state = 'erased';
  }

  const notes = async (): Promise<number> => {
    const [row] = await fields.sql<
      { count: number }[]
    >`SELECT count(*)::integer AS count FROM unlisted_minutes`;
    return row?.count ?? 0;
  };

  test('an app without lists is scanned; with them few rows are looked at once all is listed', async () => {
    const scanned = await search({ word: 'order-7' }, ({ number }) => number === 7);
    expect(scanned.looked).toBe(known.length);
    expect(new Set(scanned.searchedBy)).toEqual(new Set(['scan']));
    await fields.settle();
    for (let rounds = 0; rounds < 8; rounds += 1) await upkeep.everySecond();
    const listed = await search({ word: 'order-7' }, ({ number }) => number === 7);
    expect(listed.searchedBy).toContain('words');
    expect(listed.looked).toBeLessThan(known.length * 0.8);
    const { payload } = known[7] ?? { payload: '' };
    expect(wordsOf(payload).length).toBeGreaterThan(16);
    const whole = await search({ word: payload, q: payload }, ({ number }) => number === 7);
    expect(whole.searchedBy).toContain('words');
    expect(whole.looked).toBeLessThan(known.length * 0.8);
    // What is new is noted, and looked at.
    await write(30);
    await searchSome();
    await fields.settle();
    await searchSome();
    expect(await notes()).toBeGreaterThan(0);
  });

  test('a builder takes away the notes that it has seen alone', async () => {
    const storeAt = async (at: number): Promise<Known> => {
      const event = { ...made(known.length), at };
      known.push(Object.assign(event, { id: fields.newId(at) }));
      await fields.write([event]);
      event.state = 'stored';
      await fields.settle();
      return event;
    };
    const listAll = async (): Promise<void> => {
      await upkeep.everyTenMinutes();
      for (let seconds = 0; seconds < 12; seconds += 1) await upkeep.everySecond();
    };
    await fields.settle();
    await listAll();
    const day = Math.floor(NOW / DAY_MS) * DAY_MS - 2 * DAY_MS;
    await storeAt(day + 5 * HOUR_MS);
    await upkeep.everyTenMinutes();
    // The builder has read its rows, and waits before it takes notes away.
    const lock = await heldLock(fields.sql, 'word_lists', 'ACCESS EXCLUSIVE');
    const building = upkeep.everySecond();
    await until(async () => {
      const waiting = await fields.sql`
        SELECT FROM pg_stat_activity WHERE application_name = 'test upkeep' AND wait_event_type = 'Lock'`;
      return waiting.length > 0;
    }, 'the builder waits');
    const late = await storeAt(day + 5 * HOUR_MS + 1);
    await lock.release();
    await building;
    await search({ word: `order-${late.number}` }, ({ number }) => number === late.number);
  });

  test('nothing is missed while writers, folds, builders and erasures go on and are killed', async () => {
    const pools = await Promise.all(
      [1, 2, 3].map(async () => connect(fields.sql.pool.database, { connections: 1, name: 'test words' })),
    );
    const [own, eraser, compressing] = pools;
    if (own === undefined || eraser === undefined || compressing === undefined) throw new Error('no pools');
    const other = new WordUpkeep(own, () => fields.clock.now, fields.sql, SEGMENT);
    let isOver = false;
    // One that fails ends the others.
    const ending = async (work: () => Promise<unknown>): Promise<void> => {
      try {
        await work();
      } finally {
        isOver = true;
      }
    };
    const whileOthers = (work: (round: number) => Promise<unknown>): Promise<void> =>
      ending(async () => {
        for (let round = 0; !isOver; round += 1) await work(round);
      });
    const build = (by: WordUpkeep) => async (round: number) => {
      // A session that is killed in the middle has done nothing.
      await (round % 7 === 3 ? by.everyTenMinutes() : by.everySecond()).catch(() => undefined);
    };
    const kill = () => fields.sql`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE application_name IN ('test words', 'test upkeep') AND query LIKE '%word_%' AND pid <> pg_backend_pid()`;
    let erasures = 0;
    await Promise.all([
      ending(async () => {
        for (let round = 0; round < ROUNDS && !isOver; round += 1) {
          await write(1 + random(40));
          await searchSome();
          if (round % 10 === 5) await kill();
          // Rows move into columnstores. Writers of late ones would wait for it, and give up in the end.
          if (round % 10 === 2 && engine === 'timescale') await compress(compressing, 1, 0);
        }
      }),
      whileOthers(() => fields.settle()),
      whileOthers(build(upkeep)),
      whileOthers(build(other)),
      whileOthers(searchSome),
      whileOthers(async () => {
        const some = known.filter(({ state }) => state === 'stored');
        const chosen = some.filter((_, index) => index % 97 === erasures % 97).slice(0, 4);
        erasures += 1;
        await erase(eraser, erasures, chosen).catch(async () => {
          for (const event of chosen) event.state = 'erasing';
        });
        await searchSome();
      }),
    ]);
    for (const pool of pools) await pool.end();
    await searchAll();
  });

  test('no hash of an erased word is left, and what is listed is exact', async () => {
    await fields.settle();
    for (let rounds = 0; rounds < 3; rounds += 1) {
      await upkeep.everyTenMinutes();
      for (let seconds = 0; seconds < 12; seconds += 1) await upkeep.everySecond();
    }
    await searchAll();
    for (let searches = 0; searches < sized(5, 20); searches += 1) await searchSome();
    const lists = await fields.sql<{ part: number; list: Uint8Array; partBits: number; rice: number }[]>`
      SELECT part, list, part_bits AS "partBits", rice FROM word_lists JOIN word_segments ON id = segment`;
    expect(lists.length).toBeGreaterThan(0);
    const isListed = (word: string): boolean => {
      const [hash = 0] = wordsOf(word).slice(-1);
      return lists.some((row) => partOf(hash, row) === row.part && slicesIn(row.list, hash, row).length > 0);
    };
    const gone = known.filter(({ state }) => state === 'erased');
    const left = gone.filter(({ number }) => isListed(`order-${number}`) && isListed(`${number}`));
    expect(left.length).toBeLessThanOrEqual(gone.length * 0.05);
    const [longest] = await fields.sql<{ days: number }[]>`
      SELECT count(*)::integer AS days FROM unlisted_minutes WHERE start < ${new Date(NOW - DAY_MS)}`;
    expect(longest?.days).toBe(0);
  });

  test('a day that leaves for the archive keeps its lists: of a word that is nowhere no group is read', async () => {
    const start = Math.floor(NOW / DAY_MS) * DAY_MS - 3 * DAY_MS;
    const within = { from: start, until: start + DAY_MS };
    const day = new Date(start).toISOString().slice(0, 'YYYY-MM-DD'.length);
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-words-'));
    const store = openArchiveStore(readConfig({ ARCHIVE_URL: pathToFileURL(folder).href }));
    const groups = new ArchivedGroups({ store, log: pino({ level: 'silent' }) });
    fields.sql.pool.database.archive = groups;
    const archiving = { sql: fields.alone, storage, store, installationId: 'here' };
    const segments = async (): Promise<readonly unknown[]> =>
      await fields.sql`SELECT id FROM word_segments WHERE app_id = 1 AND start >= ${new Date(start)} AND start < ${new Date(start + DAY_MS)} ORDER BY id`;
    const listAll = async (): Promise<void> => {
      await upkeep.everyTenMinutes();
      for (let seconds = 0; seconds < 12; seconds += 1) await upkeep.everySecond();
    };
    await fields.settle();
    await listAll();
    const listed = await segments();
    expect(listed.length).toBeGreaterThan(0);
    const outcomes: DayOutcome[] = [];
    await archiveDueDays({
      ...{ ...archiving, filter: { app: 'app1', from: day, to: day }, until: start + DAY_MS },
      ...{ keepRows: false, reachMs: 0, onDay: (outcome) => outcomes.push(outcome) },
    });
    expect(outcomes).toMatchObject([{ day, problem: null, isAway: true }]);
    expect(await segments()).toEqual(listed);
    const nowhere = await search({ word: 'nowhere' }, () => false, within);
    expect(nowhere).toMatchObject({ looked: 0, searchedBy: ['words'] });
    const scope = { appId: 1, typeIds: null, ...within, order: 'asc', after: null } as const;
    const lines = await reader.lines(scope, payloadFilter([], { word: 'nowhere' })).next();
    expect(lines).toMatchObject({ events: 0, searchedBy: 'words' });
    await searchAll();
    for (let searches = 0; searches < 10; searches += 1) await searchSome();
    // What comes late for a day that is away is noted until it is back.
    const late = { ...made(known.length), at: start + 5 * HOUR_MS };
    known.push(Object.assign(late, { id: fields.newId(late.at) }));
    await fields.write([late]);
    late.state = 'stored';
    await fields.settle();
    await listAll();
    expect(await segments()).toEqual(listed);
    const found = await search(
      { word: `order-${late.number}` },
      ({ number }) => number === late.number,
      within,
    );
    expect(found.searchedBy).toContain('mixed');
    await searchAll();
    expect(await bringDayBack(archiving, { id: 1, publicId: 'app1' }, day, CHANGED)).toBeNull();
    await searchAll();
    await fields.settle();
    await listAll();
    await searchAll();
    expect((await search({ word: 'nowhere' }, () => false, within)).searchedBy).toEqual(['words']);
    await groups.close();
    await rm(folder, { recursive: true });
  });

  test('retention and the end of lists take them away, and searches go on', async () => {
    const boundary = Math.floor((NOW - DAY_MS) / DAY_MS) * DAY_MS;
    await fields.sql`
      INSERT INTO app_boundaries (app_id, type_id, readable_from, moved_at) VALUES (1, 0, ${new Date(boundary)}, now())`;
    for (const event of known) if (event.at < boundary && event.state === 'stored') event.state = 'erasing';
    await upkeep.everyTenMinutes();
    const [old] = await fields.sql`SELECT FROM word_segments WHERE finish <= ${new Date(boundary)} LIMIT 1`;
    expect(old).toBeUndefined();
    await searchSome();
    await fields.sql`UPDATE apps SET word_search = false WHERE id = 1`;
    for (let rounds = 0; rounds < 20; rounds += 1) {
      await upkeep.everySecond();
      await searchSome();
    }
    const [left] = await fields.sql<{ rows: number }[]>`
      SELECT ((SELECT count(*) FROM word_segments) + (SELECT count(*) FROM word_lists) + (SELECT count(*) FROM word_states)
              + (SELECT count(*) FROM unlisted_minutes))::integer AS rows`;
    expect(left?.rows).toBe(0);
  });
});

test.runIf(ENGINES.length > 0)('an app is listed once no part of a past day is left', async () => {
  const from = NOW - 2 * DAY_MS;
  const fields = await fieldDatabase(ENGINES[0] ?? 'postgres18', { now: NOW, from, until: NOW + DAY_MS });
  try {
    const events = Array.from({ length: 200 }, (_, index) => {
      const at = from + index * MINUTE_MS;
      return { id: fields.newId(at), at, typeId: 1, payload: `{"n":${index}}` };
    });
    await fields.write(events);
    await fields.settle();
    await fields.sql`UPDATE apps SET word_search = true WHERE id = 1`;
    // A round makes one segment: the day takes several.
    const upkeep = new WordUpkeep(fields.alone, () => (fields.clock.now += 1_000), fields.sql, 50);
    const reader = (await openStorage(fields.sql)).reader(fields.sql);
    const scope = { appId: 1, typeIds: null, from: null, until: null, order: 'asc', after: null } as const;
    const listed: number[] = [];
    const isComplete = async (): Promise<boolean> => {
      await upkeep.everySecond();
      const state = await readListed(fields.sql, 1);
      const count = state.listedEvents ?? -1;
      listed.push(count);
      const { searchedBy } = await reader.search(scope, payloadFilter([], { word: 'nowhere' })).step(1_000);
      expect(searchedBy).toBe(count === 0 ? 'scan' : count < 200 ? 'mixed' : 'words');
      return state.isComplete;
    };
    await expect.poll(isComplete, { timeout: patient(20_000) }).toBe(true);
    expect(new Set(listed).size).toBeGreaterThan(3);
    expect(listed.at(-1)).toBe(200);
  } finally {
    await fields.close();
  }
});

test.runIf(ENGINES.length > 0)(
  'of many apps that ask for lists, a round takes as many as its time allows',
  async () => {
    const fields = await fieldDatabase(ENGINES[0] ?? 'postgres18', {
      now: NOW,
      from: NOW - DAY_MS,
      until: NOW + DAY_MS,
    });
    try {
      await fields.sql`UPDATE apps SET word_search = true`;
      await fields.sql`INSERT INTO apps (public_id, name, word_search) SELECT 'app_of_words_' || n, 'App', true FROM generate_series(1, 3) n`;
      const [apps] = await fields.sql<
        { count: number }[]
      >`SELECT count(*)::integer AS count FROM apps WHERE word_search`;
      // Whatever is done takes a second.
      const upkeep = new WordUpkeep(fields.alone, () => (fields.clock.now += 1_000), fields.sql, SEGMENT);
      const noted = async (): Promise<number> => (await fields.sql`SELECT FROM word_states`).length;
      await upkeep.everySecond();
      expect(await noted()).toBe(1);
      const rounds = async (): Promise<number> => {
        await upkeep.everySecond();
        return await noted();
      };
      await expect.poll(rounds, { timeout: patient(20_000) }).toBe(apps?.count);
    } finally {
      await fields.close();
    }
  },
);
