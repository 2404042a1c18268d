/** Days of events in an archive: each is whole, read back and equal to the counts, whatever fails on the way. */

import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { DuckDBInstance } from '@duckdb/node-api';
import { parquetMetadata } from 'hyparquet';
import { parquetWriteBuffer } from 'hyparquet-writer';
import S3rver from 's3rver';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField } from '../../src/apps/fields.ts';
import { setRetention } from '../../src/apps/retention.ts';
import { archiveDueDays, type DayOutcome, verifyArchive } from '../../src/archive/archiving.ts';
import { listArchivedDays, noteChanged } from '../../src/archive/days.ts';
import { readPart } from '../../src/archive/parquet.ts';
import { ArchiveRounds } from '../../src/archive/rounds.ts';
import { ArchiveError, type ArchiveStore, openArchiveStore, probeArchive } from '../../src/archive/store.ts';
import { archiveFacts, archiveFindings } from '../../src/cli/doctor/archive-facts.ts';
import { readConfig } from '../../src/config.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { eraseApp } from '../../src/storage/maintenance/deleted-apps.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { build, LAUNCHER, type Outcome, tidemark, tidemarkProcess } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, type TestEngine, testDatabase } from '../support/database.ts';
import { first, sized } from '../support/fuzz.ts';
import { captured, testSecret, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const DAY_MS = 86_400_000;
const DAY = '2026-03-28';
const START = Date.parse(`${DAY}T00:00:00Z`);
/** After all days of the tests. */
const UNTIL = START + 10 * DAY_MS;
const PAYLOADS = [
  '{"user":{"id":42,"plan":"pro"},"ms":12.5,"path":"/a"}',
  '{ "user": {"id": 42.0, "plan": "free"} , "ms":1e400, "text":"\\u0000 \\ud800 ä 😀"}',
  '{"ms":7,"ms":8,"path":["/a","/b"]}',
  '[1, 2]',
  '"text"',
];

const newId = createEventIds();

interface World {
  readonly database: TestDatabase;
  readonly sql: Sql;
  readonly app: { readonly appId: string; readonly id: number };
  readonly typeIds: readonly number[];
}

async function openWorld(engine: TestEngine = 'postgres18'): Promise<World> {
  const database = await testDatabase(engine, { prepared: true });
  const { sql } = database;
  const { appId } = await createApp(sql, await testSecret(), { name: 'archived' });
  for (const name of ['page view', 'order']) await createEventType(sql, { appId, name, maxTypes: 10 });
  const [row] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
  const types = await sql<
    { id: number }[]
  >`SELECT id FROM event_types WHERE app_id = ${row?.id ?? 0} ORDER BY id`;
  await ENGINES[database.engine].createPartitions(sql, { from: START, until: UNTIL });
  return { database, sql, app: { appId, id: row?.id ?? 0 }, typeIds: types.map(({ id }) => id) };
}

/** Stores events, evenly over a day. */
async function store({ database, sql, app, typeIds }: World, count: number, day = START): Promise<void> {
  const rows = Array.from({ length: count }, (_, index) => {
    const at = day + Math.floor((index * DAY_MS) / count);
    const typeId = typeIds[index % typeIds.length] ?? 0;
    return { id: newId(at), appId: app.id, typeId, at, payload: PAYLOADS[index % PAYLOADS.length] ?? '{}' };
  });
  await storeRows(sql, database.engine, rows);
}

/** An archive in memory that fails when it is told to. */
class MemoryStore implements ArchiveStore {
  readonly place = 'memory';
  readonly objects = new Map<string, Buffer>();
  /** Operations that succeed before one fails. */
  failsAfter = Number.POSITIVE_INFINITY;
  /** Whether the operation that fails has been done nevertheless. */
  failsLate = false;

  async put(key: string, bytes: Uint8Array): Promise<void> {
    if (this.failsLate) this.objects.set(key, Buffer.from(bytes));
    this.#count();
    this.objects.set(key, Buffer.from(bytes));
  }

  async get(key: string): Promise<Buffer> {
    this.#count();
    const found = this.objects.get(key);
    if (found === undefined) throw new ArchiveError('there is no such object', { isMissing: true });
    return found;
  }

  async remove(key: string): Promise<void> {
    if (this.failsLate) this.objects.delete(key);
    this.#count();
    this.objects.delete(key);
  }

  #count(): void {
    this.failsAfter -= 1;
    if (this.failsAfter < 0) throw new ArchiveError('the store is away');
  }
}

/** Archives all days that are due. */
async function archive(
  { database }: World,
  into: ArchiveStore,
  installationId = 'here',
  keepRows = true,
): Promise<DayOutcome[]> {
  const sql = connect(database.address, { connections: 1, name: 'test archive' });
  const days: DayOutcome[] = [];
  try {
    const storage = await openStorage(sql);
    const onDay = (day: DayOutcome): void => {
      days.push(day);
    };
    await archiveDueDays({
      ...{ sql, storage, store: into, installationId, filter: {}, until: UNTIL, onDay, keepRows, reachMs: 0 },
    });
  } finally {
    await sql.end();
  }
  return days;
}

/** The events of a day, as DuckDB reads them. */
async function read(files: readonly Buffer[], query: string): Promise<unknown[][]> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-parquet-'));
  const duck = await DuckDBInstance.create(':memory:');
  try {
    for (const [index, file] of files.entries()) await writeFile(join(folder, `${index}.parquet`), file);
    const connection = await duck.connect();
    await connection.run("SET TimeZone = 'UTC'");
    const result = await connection.runAndReadAll(query.replaceAll('FILES', `'${folder}/*.parquet'`));
    return result.getRowsJson();
  } finally {
    duck.closeSync();
    await rm(folder, { recursive: true });
  }
}

const filesOf = ({ objects }: MemoryStore): Buffer[] =>
  [...objects].filter(([key]) => key.endsWith('.parquet')).map(([, bytes]) => bytes);

describe.each(first(availableEngines()))('an archive of %s', (engine) => {
  let world: World;
  let memory: MemoryStore;

  beforeEach(async () => {
    world = await openWorld(engine);
    memory = new MemoryStore();
  });

  afterEach(() => world.database.drop());

  test('has every event of a day with its exact payload, and fields as columns', async () => {
    const { sql, app } = world;
    await declareField(sql, {
      appId: app.id,
      path: ['user', 'plan'],
      kind: 'value',
      typeName: null,
      backfill: true,
    });
    await declareField(sql, { appId: app.id, path: ['ms'], kind: 'number', typeName: null, backfill: true });
    await store(world, 12_003);
    expect(await archive(world, memory)).toMatchObject([{ day: DAY, events: 12_003, problem: null }]);
    const found = await read(
      filesOf(memory),
      'SELECT id::text, type, epoch_ms("time")::text, payload FROM read_parquet(FILES) ORDER BY "time", id',
    );
    const expected = await sql<{ id: string; name: string; at: string; payload: string }[]>`
      SELECT events.id::text, name, round(extract(epoch FROM events.created_at) * 1000)::bigint::text AS at, payload::text
        FROM events JOIN event_types ON event_types.id = type_id ORDER BY events.created_at, events.id`;
    expect(found).toEqual(expected.map(({ id, name, at, payload }) => [id, name, at, payload]));
    const columns = await read(
      filesOf(memory),
      'SELECT payload, any_value("field.user.plan"), any_value("field.ms") FROM read_parquet(FILES) GROUP BY 1 ORDER BY 1',
    );
    expect(new Map(columns.map(([payload, ...values]) => [payload, values]))).toEqual(
      new Map([
        [PAYLOADS[0], ['pro', 12.5]],
        // A number beyond those of the column, several values at a path, and none are nothing there.
        [PAYLOADS[1], ['free', null]],
        [PAYLOADS[2], [null, 8]],
        [PAYLOADS[3], [null, null]],
        [PAYLOADS[4], [null, null]],
      ]),
    );
    expect(await archive(world, memory)).toEqual([]);
  });

  test('names the groups of each file: their bytes, their first and last events, and how many of each type they have', async () => {
    const { sql, typeIds } = world;
    await store(world, 12_003);
    await archive(world, memory);
    const [part] = (await listArchivedDays(sql, {}))[0]?.parts ?? [];
    const [file = Buffer.alloc(0)] = filesOf(memory);
    const groups = part?.groups ?? [];
    expect(groups.map(({ types }) => Object.values(types))).toEqual([
      [2_500, 2_500],
      [2_500, 2_500],
      [1_002, 1_001],
    ]);
    expect(Object.keys(groups[0]?.types ?? {})).toEqual(typeIds.map(String));
    for (const { start, end, sha256 } of groups)
      expect(createHash('sha256').update(file.subarray(start, end)).digest('hex')).toBe(sha256);
    expect(
      createHash('sha256')
        .update(file.subarray(groups.at(-1)?.end))
        .digest('hex'),
    ).toBe(part?.footer);
    const events = await readPart(file);
    for (const [index, { at, id, lastAt, lastId }] of groups.entries()) {
      const [first, last] = [events[index * 5_000], events[Math.min(index * 5_000 + 4_999, 12_002)]];
      expect([at, id, lastAt, lastId]).toEqual([first?.at, first?.id, last?.at, last?.id]);
    }
    const metadata = parquetMetadata(new Uint8Array(file).buffer);
    expect(
      metadata.schema.slice(1, 6).map(({ name, type, converted_type: kind }) => [name, type, kind]),
    ).toEqual([
      ['id', 'BYTE_ARRAY', 'UTF8'],
      ['type', 'BYTE_ARRAY', 'UTF8'],
      ['type_id', 'BYTE_ARRAY', 'UTF8'],
      ['time', 'INT64', 'TIMESTAMP_MILLIS'],
      ['payload', 'BYTE_ARRAY', 'UTF8'],
    ]);
    for (const [index, { columns }] of metadata.row_groups.entries()) {
      const offsets = columns.map(({ meta_data: meta }) =>
        Number(meta?.dictionary_page_offset ?? meta?.data_page_offset),
      );
      expect(Math.min(...offsets)).toBe(groups[index]?.start);
    }
  });
});

test('files of development versions, whose ids are of the type UUID, are read', async () => {
  const event = { id: '01936f0e-5b00-7abc-8def-0123456789ab', typeName: 'a', typeId: 'typ_a', payload: '{}' };
  const bytes = parquetWriteBuffer({
    columnData: [
      { name: 'id', type: 'UUID', nullable: false, data: [event.id] },
      { name: 'type', type: 'STRING', nullable: false, data: [event.typeName] },
      { name: 'type_id', type: 'STRING', nullable: false, data: [event.typeId] },
      { name: 'time', type: 'TIMESTAMP', nullable: false, data: [new Date(START)] },
      { name: 'payload', type: 'STRING', nullable: false, data: [event.payload] },
    ],
  });
  expect(await readPart(Buffer.from(bytes))).toEqual([{ ...event, at: START }]);
});

/** Programs that print of all files how many events and ids there are, the kinds of the columns, and the digest of the payloads. */
const READERS: readonly (readonly [module: string, reads: string])[] = [
  [
    'pandas',
    'import pandas\nframe = pandas.concat([pandas.read_parquet(file) for file in files])\nkinds = [type(frame[c].iloc[0]).__name__ for c in COLUMNS]',
  ],
  [
    'pyarrow',
    'import pyarrow, pyarrow.dataset, pyarrow.parquet\nschema = pyarrow.unify_schemas([pyarrow.parquet.read_schema(file) for file in files])\nframe = pyarrow.dataset.dataset(files, schema=schema).to_table().to_pydict()\nkinds = [type(frame[c][0]).__name__ for c in COLUMNS]',
  ],
  [
    'polars',
    "import polars\nframe = polars.concat([polars.read_parquet(file) for file in files], how='diagonal')\nkinds = [type(frame[c][0]).__name__ for c in COLUMNS]",
  ],
];
const PYTHON = process.env.PARQUET_PYTHON ?? 'python3';

test.each(READERS)('%s reads days whose fields differ, with ids as texts', async (module, reads) => {
  if (spawnSync(PYTHON, ['-c', `import ${module}`]).status !== 0) return; // It is not installed.
  const world = await openWorld();
  const memory = new MemoryStore();
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-parquet-'));
  try {
    const { sql, app } = world;
    await store(world, 40);
    await archive(world, memory);
    for (const [path, kind] of [
      [['user', 'plan'], 'value'],
      [['ms'], 'number'],
    ] as const)
      await declareField(sql, { appId: app.id, path, kind, typeName: null, backfill: true });
    await store(world, 30, START + DAY_MS);
    await archive(world, memory);
    for (const [index, file] of filesOf(memory).entries())
      await writeFile(join(folder, `${index}.parquet`), file);
    const program = `import glob, hashlib, json, sys
files = sorted(glob.glob(sys.argv[1] + '/*.parquet'))
COLUMNS = ['id', 'type', 'type_id', 'time', 'payload']
${reads}
payloads = '\\n'.join(sorted(frame['payload']))
print(json.dumps([len(frame['id']), len(set(frame['id'])), kinds, hashlib.sha256(payloads.encode()).hexdigest()]))`;
    const [events, ids, kinds, digest] = JSON.parse(
      execFileSync(PYTHON, ['-c', program, folder], { encoding: 'utf8' }),
    );
    const rows = await sql<{ payload: string }[]>`SELECT payload::text FROM events`;
    const payloads = rows
      .map(({ payload }) => Buffer.from(payload))
      .sort(Buffer.compare)
      .map(String);
    expect([events, ids, digest]).toEqual([
      ...[70, 70],
      createHash('sha256').update(payloads.join('\n')).digest('hex'),
    ]);
    expect(kinds).toEqual(['str', 'str', 'str', module === 'pandas' ? 'Timestamp' : 'datetime', 'str']);
  } finally {
    await world.database.drop();
    await rm(folder, { recursive: true });
  }
});

test('the queries of the documentation answer', async () => {
  const page = await readFile(new URL('../../docs/life-cycle.md', import.meta.url), 'utf8');
  const [view = '', ...queries] = [...page.matchAll(/```sql\n(.*?);\n```/gs)].map(([, query = '']) => query);
  expect(view).toContain("'/var/lib/tidemark-archive/*/*/*/*.parquet'");
  expect(queries).toHaveLength(5);
  const world = await openWorld();
  const memory = new MemoryStore();
  try {
    await store(world, 40);
    await archive(world, memory);
    const shape = [];
    for (const query of queries) {
      const events = view
        .replace(/^CREATE VIEW events AS/, '')
        .replace("'/var/lib/tidemark-archive/*/*/*/*.parquet'", 'FILES');
      shape.push((await read(filesOf(memory), `WITH events AS (${events}) ${query}`)).length);
    }
    // Of 40 events: a day and two types; "/a", an array and nothing; the hours of those with a number; a week; no such order.
    expect(shape).toEqual([2, 3, 16, 1, 0]);
  } finally {
    await world.database.drop();
  }
});

describe('what fails', () => {
  let world: World;
  let memory: MemoryStore;

  beforeAll(async () => {
    world = await openWorld();
    await store(world, 50);
  });

  beforeEach(async () => {
    memory = new MemoryStore();
    await world.sql`DELETE FROM archived_days`;
  });

  afterAll(() => world.database.drop());

  test.each([false, true])(
    'at any operation of the store (done nevertheless: %s) leaves one whole day',
    async (late) => {
      for (let step = 0; step < 8; step += sized(3, 1)) {
        await archive(world, memory);
        await noteChanged(world.sql, world.app.id, DAY);
        await store(world, 1);
        Object.assign(memory, { failsAfter: step, failsLate: late });
        const failed = await archive(world, memory).catch(() => []);
        memory.failsAfter = Number.POSITIVE_INFINITY;
        const [known] = await listArchivedDays(world.sql, {});
        // What the database calls archived is there, whenever the store has failed.
        for (const { key } of known?.parts ?? []) expect(memory.objects.has(key)).toBe(true);
        if (failed.some(({ problem }) => problem !== null)) expect(known?.counted).toBe(-1);
      }
      await archive(world, memory);
      const rows = await world.sql<{ count: string }[]>`SELECT count(*)::text FROM events`;
      expect(await read(filesOf(memory), 'SELECT count(*)::text FROM read_parquet(FILES)')).toEqual([
        [rows[0]?.count],
      ]);
      expect(memory.objects.size).toBe(2);
    },
  );

  test('an object that is read back as another one is not archived', async () => {
    const get = memory.get.bind(memory);
    memory.get = async (key) => (await get(key)).subarray(0, -1);
    const [outcome] = await archive(world, memory);
    expect(outcome?.problem).toMatch(
      /was read back, and it has \d+ bytes that are not those that were written/,
    );
    expect((await listArchivedDays(world.sql, {}))[0]?.archivedAt).toBeNull();
  });

  test.each(['pipe', 'link to /dev/zero', 'link to the file', 'folder'])(
    'a %s in the place of a file is neither read nor waited for',
    async (what) => {
      const folder = await mkdtemp(join(tmpdir(), 'tidemark-archive-'));
      try {
        const files = openArchiveStore(readConfig({ ARCHIVE_URL: pathToFileURL(folder).href }));
        await archive(world, files);
        const [{ parts: [{ key = '' } = {}] = [] } = {}] = await listArchivedDays(world.sql, {});
        const path = join(folder, key);
        await rename(path, `${path}.kept`);
        if (what === 'pipe') execFileSync('mkfifo', [path]);
        else if (what === 'folder') await mkdir(path);
        else await symlink(what === 'link to the file' ? `${path}.kept` : '/dev/zero', path);
        for (const part of [undefined, { start: 0, end: 4 }])
          await expect(files.get(key, part)).rejects.toThrow('it is a link, a pipe or a device');
        const problems: (string | null)[] = [];
        const options = { sql: world.sql, storage: await openStorage(world.sql), store: files };
        const onDay = ({ problem }: DayOutcome): void => void problems.push(problem);
        await verifyArchive({ ...options, installationId: 'here', filter: {}, onDay });
        expect(problems).toEqual([expect.stringContaining('it is a link, a pipe or a device')]);
        // A new file takes its place, except that of a folder.
        if (what === 'folder') return;
        await files.put(key, await readFile(`${path}.kept`));
        expect((await files.get(key)).subarray(0, 4).toString()).toBe('PAR1');
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
  );

  test('an app that is gone takes its objects with it, and none of another installation', async () => {
    const other = await openWorld();
    try {
      await store(other, 5);
      await archive(other, memory, 'there');
      await store(other, 5);
      // A restored copy knows the objects of the first one, and writes its own.
      await archive(other, memory, 'here');
      const keys = [...memory.objects.keys()];
      expect(keys.filter((key) => key.startsWith('there/'))).toHaveLength(2);
      await other.sql.begin((tx) => eraseApp(tx, other.app.id));
      await archive(other, memory, 'here');
      expect([...memory.objects.keys()]).toEqual(keys.filter((key) => key.startsWith('there/')));
      expect(await listArchivedDays(other.sql, {})).toEqual([]);
    } finally {
      await other.database.drop();
    }
  });
});

describe('tidemark archive', () => {
  let world: World;
  let folder: string;
  let keepsRows: boolean;

  // Not in the time of the test that happens to be the first.
  beforeAll(build);

  beforeEach(async () => {
    keepsRows = true;
    [world, folder] = [await openWorld(), await mkdtemp(join(tmpdir(), 'tidemark-archive-'))];
    await store(world, 30);
    await store(world, 12, START + DAY_MS);
  });

  afterEach(async () => {
    await world.database.drop();
    await rm(folder, { recursive: true, force: true });
  });

  const settings = (): Record<string, string> => ({
    ...{ DATABASE_URL: world.database.url, DATA_DIR: folder },
    ARCHIVE_URL: pathToFileURL(join(folder, 'archive')).href,
    ARCHIVE_KEEP_ROWS: String(keepsRows),
  });

  async function run(...args: string[]): Promise<Outcome & { readonly answer: Record<string, unknown> }> {
    const outcome = await tidemark(['archive', ...args, '--json'], settings());
    return { ...outcome, answer: outcome.stdout === '' ? {} : JSON.parse(outcome.stdout) };
  }

  test('run, list, verify and restore', async () => {
    const { sql, app } = world;
    expect(await run('run')).toMatchObject({
      code: 0,
      answer: { problems: 0, days: [{ appId: app.appId, day: DAY, events: 30 }, { events: 12 }] },
    });
    await expectManifest();
    expect((await run('list', '--from', '2026-03-29')).answer).toMatchObject({
      days: [{ appId: app.appId, day: '2026-03-29', events: 12, files: [{ events: 12 }] }],
    });
    expect(await run('verify')).toMatchObject({ code: 0, answer: { problems: 0, days: [{}, {}] } });
    const rows = (): Promise<unknown> =>
      sql`SELECT id, payload::text AS payload FROM events WHERE created_at < ${new Date(START + DAY_MS)} ORDER BY id`;
    const before = await rows();
    await sql`DELETE FROM events WHERE created_at < ${new Date(START + DAY_MS / 2)}`;
    expect((await tidemark(['recount', '--from', DAY], settings())).code).toBe(0);
    expect((await run('restore', DAY)).answer).toEqual({ day: DAY, days: 1, events: 30, refused: 0 });
    expect((await run('restore', DAY)).code).toBe(0);
    expect(await rows()).toEqual(before);
    const reader = (await openStorage(sql)).reader(sql);
    expect((await reader.appSpan(app.id)).total).toBe(42);
    const files = await readdir(join(folder, 'archive'), { recursive: true });
    const damaged = files.find((file) => file.includes(DAY) && file.endsWith('.parquet')) ?? '';
    await writeFile(join(folder, 'archive', damaged), 'damaged');
    expect(await run('verify')).toMatchObject({ code: 2, answer: { problems: 1 } });
    const refused = await run('restore', DAY);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('is not what was written')]);
    expect(archiveFindings({ archive: await archiveFacts(readConfig(settings()), sql) })).toEqual([
      expect.objectContaining({ check: 'archive', level: 'ok', found: expect.stringContaining('2 days') }),
    ]);
  });

  test('another place than before is refused while it has nothing of what was archived', async () => {
    const { sql } = world;
    expect((await run('run')).code).toBe(0);
    const from = join(folder, 'archive');
    const to = join(folder, 'before');
    await rename(from, to);
    // What an erasure is to remove is not forgotten.
    await sql`UPDATE archived_days SET obsolete = '["old"]'`;
    const refused = await run('run');
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(
        /has no file of the 2 days that were archived: .* set ARCHIVE_URL to the place where they are/,
      ),
    ]);
    expect(await sql`SELECT FROM archived_days WHERE obsolete = '["old"]'`).toHaveLength(2);
    const doctor = archiveFindings({ archive: await archiveFacts(readConfig(settings()), sql) });
    expect(doctor).toMatchObject([
      { level: 'problem', found: refused.stderr.replace(/^tidemark: |\n$/g, '') },
    ]);
    // Where all files are there it goes on; where they are lost their rows are archived again.
    await rm(from, { recursive: true });
    await rename(to, from);
    expect(await run('run')).toMatchObject({ code: 0, answer: { days: [] } });
    await rm(from, { recursive: true });
    expect(await run('run', '--again')).toMatchObject({
      code: 0,
      answer: { days: [{ events: 30 }, { events: 12 }] },
    });
    expect(await run('verify')).toMatchObject({ code: 0, answer: { problems: 0, days: [{}, {}] } });
  });

  test('days whose rows had left and whose files are lost are named, until the files are there again', async () => {
    const { sql } = world;
    keepsRows = false;
    expect(await run('run', '--to', DAY)).toMatchObject({ code: 0, answer: { days: [{ isAway: true }] } });
    keepsRows = true;
    const [from, to] = [join(folder, 'archive'), join(folder, 'copy')];
    await rename(from, to);
    await mkdir(from);
    const lost = {
      day: DAY,
      isAway: true,
      problem: expect.stringMatching(/\.parquet: there is no such file$/),
    };
    for (const days of [[lost, { events: 12, problem: null }], [lost]])
      expect(await run('run', '--again')).toMatchObject({ code: 2, answer: { days, problems: 1 } });
    // The service does not try it each hour.
    expect(await run('run')).toMatchObject({ code: 0, answer: { days: [] } });
    const list = async (): Promise<unknown> => (await run('list')).answer;
    expect(await list()).toMatchObject({ days: [{ rows: 'lost' }, { rows: 'database' }] });
    const refused = await run('restore', DAY);
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/ stays away: .*\/0-\w+\.parquet: there is no such file\n$/),
    ]);
    const doctor = archiveFindings({ archive: await archiveFacts(readConfig(settings()), sql) });
    expect(doctor).toMatchObject([{ level: 'warning', found: expect.stringContaining('1 days are lost') }]);
    await cp(to, from, { recursive: true });
    expect(await run('run', '--again')).toMatchObject({ code: 0, answer: { problems: 0 } });
    expect(await list()).toMatchObject({ days: [{ rows: 'database' }, { rows: 'database' }] });
    expect((await (await openStorage(sql)).reader(sql).appSpan(world.app.id)).total).toBe(42);
  });

  test('a restore stores nothing that retention hides: its events stay counted once', async () => {
    const { database, sql, app } = world;
    await run('run');
    const settings = { RETENTION_DAYS: 0, CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, CONSUMER_REACH_HOURS: 1 };
    await setRetention(sql, settings, { appId: app.appId, type: 'order', days: 7, now: Date.now() });
    const own = connect(database.address, { connections: 1, name: 'test upkeep' });
    const storage = await openStorage(own);
    await storage.maintenance({ sql: own, slow: sql }, settings, Date.now).everyTenMinutes();
    const left = async (): Promise<readonly unknown[]> => {
      await storage.settleCounts(own, Date.now());
      const stats = await storage.reader(sql).typeStats(app.id);
      return [(await storage.reader(sql).appSpan(app.id)).total, stats];
    };
    const before = await left();
    expect(before[0]).toBe(42);
    expect(await sql`SELECT FROM events`).toHaveLength(21);
    for (const _ of [1, 2]) expect((await run('restore', DAY)).answer).toMatchObject({ events: 15 });
    expect(await left()).toEqual(before);
    expect(await sql`SELECT FROM events`).toHaveLength(21);
    await own.end();
  });

  test('a write that fails leaves no file, and what a killed one has left goes with the next', async () => {
    const archive = join(folder, 'archive');
    const files = async (): Promise<string[]> =>
      (await readdir(archive, { recursive: true })).filter(
        (name) => name.includes('.tmp') || name.includes('probe'),
      );
    await run('run', '--to', DAY);
    const [part = ''] = (await readdir(archive, { recursive: true })).filter((one) =>
      one.endsWith('.parquet'),
    );
    const store = openArchiveStore(readConfig(settings()));
    // A folder where the file should be: it is written whole, and cannot get its name.
    await mkdir(join(archive, dirname(part), 'taken', 'inside'), { recursive: true });
    await expect(store.put(`${dirname(part)}/taken`, new Uint8Array(10))).rejects.toThrow(ArchiveError);
    expect(await files()).toEqual([]);
    const old = [`probe-${'0'.repeat(16)}`, `probe-${'1'.repeat(16)}.${'2'.repeat(12)}.tmp`];
    const others = [`probe-${'3'.repeat(16)}`, 'notes.tmp', 'probe-of-mine'];
    const beside = `${part}.${'4'.repeat(12)}.tmp`;
    for (const name of [...old, ...others, beside]) await writeFile(join(archive, name), 'left');
    for (const name of old) await utimes(join(archive, name), 0, 0);
    await probeArchive(store);
    await store.put(part, await readFile(join(archive, part)));
    expect((await files()).sort()).toEqual([...others].sort());
  });

  test('rows that leave the database are read, erased, brought back, and stored again after a restore of a backup', async () => {
    const { sql, app } = world;
    keepsRows = false;
    const expectRows = async (...places: string[]): Promise<void> =>
      expect((await run('list')).answer).toMatchObject({ days: places.map((rows) => ({ rows })) });
    const count = async (pool: Sql): Promise<string | undefined> =>
      (await pool<{ count: string }[]>`SELECT count(*)::text FROM events`)[0]?.count;
    // The second run finds what is due behind a day that has left.
    for (const upTo of [['--to', DAY], []])
      expect(await run('run', ...upTo)).toMatchObject({ code: 0, answer: { days: [{ isAway: true }] } });
    expect((await run('run')).answer).toMatchObject({ days: [] });
    await expectRows('archive', 'archive');
    expect(await count(sql)).toBe('0');
    expect(archiveFindings({ archive: await archiveFacts(readConfig(settings()), sql) })).toEqual([
      expect.objectContaining({
        level: 'ok',
        found: expect.stringContaining('2 of them in the archive alone'),
      }),
    ]);
    const without = { ...settings(), ARCHIVE_URL: '' };
    expect(archiveFindings({ archive: await archiveFacts(readConfig(without), sql) })).toEqual([
      expect.objectContaining({ level: 'problem' }),
    ]);
    // What an import brings may be there already.
    const lines = join(folder, 'again.ndjson');
    await writeFile(
      lines,
      `${JSON.stringify({ type: 'order', key: 'k', createdAt: `${DAY}T10:00:00Z`, payload: {} })}\n`,
    );
    const imported = await tidemark(['import', lines, '--app', app.appId], settings());
    expect([imported.code, imported.stderr]).toEqual([1, expect.stringContaining(DAY)]);
    // A backup that is restored has none of these days, until they are stored again.
    const file = join(folder, 'tidemark.backup');
    expect(JSON.parse((await tidemark(['backup', file, '--json'], settings())).stdout)).toMatchObject({
      daysInArchive: 2,
    });
    const empty = await testDatabase('postgres18', { empty: true });
    const there = { ...settings(), DATABASE_URL: empty.url, DATA_DIR: join(folder, 'there') };
    expect((await tidemark(['restore', file], there)).code).toBe(0);
    const again = ['archive', 'restore', '--from', '2026-01-01', '--to', '2026-12-31', '--json'];
    const span = { from: '2026-01-01', to: '2026-12-31' };
    expect(JSON.parse((await tidemark(again, there)).stdout)).toEqual({
      ...{ ...span, days: 2, events: 42, refused: 0 },
    });
    expect(await count(empty.sql)).toBe('42');
    const restored = (await openStorage(empty.sql)).readerOfRows(empty.sql);
    const [copy] = await empty.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${app.appId}`;
    expect((await restored.appSpan(copy?.id ?? 0)).total).toBe(42);
    await empty.drop();
    const erase = ['erase', '--app', app.appId, '--filter', 'user.plan:pro', '--json', '--yes-most'];
    const { code, stdout, stderr } = await tidemark(erase, settings());
    expect([code, stderr]).toEqual([0, expect.any(String)]);
    expect(JSON.parse(stdout).receipt).toMatchObject({ events: 9 });
    expect(await run('run')).toMatchObject({ code: 0, answer: { problems: 0 } });
    await expectRows('archive', 'archive');
    const files = (await readdir(join(folder, 'archive'), { recursive: true })).filter((one) =>
      one.endsWith('.parquet'),
    );
    const parts = files.map((one) => readFile(join(folder, 'archive', one)));
    expect(
      await read(
        await Promise.all(parts),
        `SELECT count(*)::text, count(*) FILTER (WHERE payload LIKE '%"pro"%')::text FROM read_parquet(FILES)`,
      ),
    ).toEqual([['33', '0']]);
    expect((await run('restore', DAY)).answer).toMatchObject({ day: DAY, events: 24 });
    await expectRows('database', 'archive');
    expect(await count(sql)).toBe('24');
  });

  test.each([[], ['--anonymize']])(
    'an erasure (%s) reaches archived days, also those of before the retention boundary',
    async (...how) => {
      const { sql, app } = world;
      await run('run');
      await sql`UPDATE retention SET readable_from = ${new Date(START + DAY_MS)}`;
      const erase = ['erase', '--app', app.appId, '--filter', 'user.plan:pro', '--json', ...how];
      const { code, stdout, stderr } = await tidemark(erase, settings());
      expect([code, stderr]).toEqual([0, expect.any(String)]);
      const { receipt } = JSON.parse(stdout);
      // Of each five events one: 3 of the 12 that can be read, and 6 of the 30 before them.
      expect(receipt).toMatchObject({ events: 3, archived: 9 });
      expect(receipt.notDone.map(({ kind }: { kind: string }) => kind)).not.toContain('archive');
      const files = await readdir(join(folder, 'archive'), { recursive: true });
      const parts = files
        .filter((file) => file.endsWith('.parquet'))
        .map((file) => readFile(join(folder, 'archive', file)));
      const query = `SELECT count(*)::text, count(*) FILTER (WHERE payload LIKE '%"pro"%')::text FROM read_parquet(FILES)`;
      expect(await read(await Promise.all(parts), query)).toEqual([[how.length === 0 ? '33' : '42', '0']]);
      expect(parts).toHaveLength(2);
      expect(await run('verify')).toMatchObject({ code: 0, answer: { problems: 0 } });
      expect((await run('run')).code).toBe(0);
    },
  );

  async function expectManifest(): Promise<void> {
    const files = await readdir(join(folder, 'archive'), { recursive: true });
    const path = files.find((file) => file.includes(DAY) && file.endsWith('manifest.json')) ?? '';
    const manifest = JSON.parse(await readFile(join(folder, 'archive', path), 'utf8'));
    expect(manifest).toMatchObject({
      ...{ format: 1, appId: world.app.appId, day: DAY, events: 30 },
      parts: [{ events: 30, first: `${DAY}T00:00:00.000Z`, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) }],
    });
    expect(files).toContain(join(path, '..', manifest.parts[0].file));
  }

  const WRONG: readonly (readonly [string[], number, string])[] = [
    [['restore', '2026-02-30'], 2, 'Write a day as 2026-01-31'],
    [['restore', '2025-01-01'], 2, 'the archive has nothing of 2025-01-01'],
    [['restore', '--from', DAY], 2, 'give both --from and --to'],
    [['restore', DAY, '--to', DAY], 2, 'but not both'],
    [['restore', '--from', '2026-03-29', '--to', DAY], 2, 'is after --to'],
    [['run', '--app', 'app_none'], 2, 'there is no app with the id "app_none"'],
  ];

  test('what is wrong is refused, and a service whose archive cannot be one does not start', async () => {
    for (const [args, code, message] of WRONG) {
      const outcome = await run(...args);
      expect([outcome.code, outcome.stderr]).toEqual([code, expect.stringContaining(message)]);
    }
    const withUrl = (url: string): Record<string, string> => ({ ...settings(), ARCHIVE_URL: url });
    const open = (url: string) => () => openArchiveStore(readConfig(withUrl(url)));
    expect(open('ftp://host/folder')).toThrow('must be like file:///');
    expect(open('s3://bucket/prefix')).toThrow('needs AWS_ACCESS_KEY_ID');
    const outcome = await tidemarkProcess(['serve'], { ...withUrl('file:///proc/none'), PORT: '0' });
    expect([outcome.code, outcome.stderr]).toEqual([
      1,
      expect.stringContaining('cannot be written and read back'),
    ]);
  });

  test('a service archives by itself, in a process of its own that ends with it', async () => {
    build();
    const lines: Record<string, unknown>[] = [];
    const rounds = new ArchiveRounds({
      config: readConfig({ ...settings(), ARCHIVE_AFTER_DAYS: '1' }),
      ...{ log: captured(lines), isLeader: () => true, everyMs: 1 },
      commandLine: [process.execPath, LAUNCHER],
    });
    rounds.start();
    await until(() => rounds.stats.days === 2, 'both days are archived', 60_000);
    await rounds.stop();
    expect(rounds.stats).toMatchObject({ days: 2, events: 42, failures: 0 });
    expect(lines).toContainEqual(expect.objectContaining({ msg: 'archive: days were archived', days: 2 }));
  });
});

describe('a bucket', () => {
  let world: World;
  let folder: string;
  let s3: S3rver;
  let endpoint: string;

  beforeAll(async () => {
    [world, folder] = [await openWorld(), await mkdtemp(join(tmpdir(), 'tidemark-s3-'))];
    await store(world, 30);
    s3 = new S3rver({
      port: 0,
      address: '127.0.0.1',
      silent: true,
      directory: folder,
      configureBuckets: [{ name: 'events', configs: [] }],
    });
    const { port } = await s3.run();
    endpoint = `http://127.0.0.1:${port}`;
  });

  afterAll(async () => {
    await s3.close();
    await world.database.drop();
    await rm(folder, { recursive: true, force: true });
  });

  const run = (args: readonly string[], more: Record<string, string> = {}): Promise<Outcome> =>
    tidemark(['archive', ...args, '--json'], {
      ...{ DATABASE_URL: world.database.url, DATA_DIR: folder, ARCHIVE_URL: 's3://events/a/prefix' },
      ...{ AWS_ACCESS_KEY_ID: 'S3RVER', AWS_SECRET_ACCESS_KEY: 'S3RVER', AWS_ENDPOINT_URL: endpoint },
      ...more,
    });

  test('takes days, and gives them back', async () => {
    expect(JSON.parse((await run(['run'])).stdout)).toMatchObject({ problems: 0, days: [{ events: 30 }] });
    expect(JSON.parse((await run(['verify'])).stdout)).toMatchObject({ problems: 0, days: [{ events: 30 }] });
    expect(JSON.parse((await run(['restore', DAY])).stdout)).toMatchObject({ events: 30 });
  });

  test.each([
    [{ AWS_ACCESS_KEY_ID: 'other' }, '403 InvalidAccessKeyId'],
    [{ ARCHIVE_URL: 's3://other/prefix' }, '404 NoSuchBucket'],
  ])('that refuses (%o) is said', async (more, reason) => {
    const outcome = await run(['run'], more);
    expect([outcome.code, outcome.stderr]).toEqual([1, expect.stringContaining(reason)]);
    expect(outcome.stderr).not.toContain('S3RVER');
  });

  test.each([
    [
      `<?xml version="1.0"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>The region 'us-east-1' is wrong; expecting 'eu-west-1'</Message><AWSAccessKeyId>S3RVER</AWSAccessKeyId></Error>`,
      "400 AuthorizationHeaderMalformed: The region 'us-east-1' is wrong; expecting 'eu-west-1'.",
    ],
    [
      '<Error><Code>PermanentRedirect</Code><Message>Use the\nendpoint of S3RVER.</Message><Endpoint>events.s3.example.com</Endpoint></Error>',
      '400 PermanentRedirect: Use the endpoint of …. (events.s3.example.com)',
    ],
    ['<html><h1>Request too large</h1>\u001b[31m</html>', '400 Request too large [31m'],
    ['', '400. Correct'],
  ])('that says %j is told in its words', async (text, told) => {
    const front = createServer((request, response) => {
      request.resume();
      response.writeHead(400).end(text);
    });
    await once(front.listen(0, '127.0.0.1'), 'listening');
    const { port } = front.address() as AddressInfo;
    const outcome = await run(['run'], { AWS_ENDPOINT_URL: `http://127.0.0.1:${port}` });
    expect([outcome.code, outcome.stderr]).toEqual([
      1,
      expect.stringContaining(`PUT was answered with ${told}`),
    ]);
    expect(outcome.stderr).not.toContain('S3RVER');
    front.closeAllConnections();
    front.close();
  });

  test.each(['cut', 'lie', 'redirect'] as const)(
    'that does this to answers: %s, is not believed',
    async (what) => {
      const front = await faulty(endpoint, what);
      try {
        const { port } = front.address() as AddressInfo;
        const outcome = await run(['verify'], { AWS_ENDPOINT_URL: `http://127.0.0.1:${port}` });
        expect([outcome.code, JSON.parse(outcome.stdout).problems]).toEqual([2, 1]);
      } finally {
        front.closeAllConnections();
        front.close();
      }
    },
  );
});

/** In front of a server of S3: answers to GET are cut off, changed, or lead elsewhere. */
async function faulty(endpoint: string, what: 'cut' | 'lie' | 'redirect'): Promise<Server> {
  const server = createServer((request, response) => {
    void (async () => {
      const headers = {
        authorization: request.headers.authorization ?? '',
        'x-amz-date': String(request.headers['x-amz-date']),
      };
      const bytes = Buffer.from(await (await fetch(`${endpoint}${request.url}`, { headers })).arrayBuffer());
      if (what === 'redirect') {
        response.writeHead(307, { location: `${endpoint}${request.url}` }).end();
      } else if (what === 'lie') {
        response.end(Buffer.alloc(bytes.length || 100));
      } else {
        response.writeHead(200, { 'content-length': 1_000 });
        response.write(bytes.subarray(0, 10), () => response.destroy());
      }
    })();
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return server;
}
