import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../../src/apps/apps.ts';
import { declareField } from '../../../src/apps/fields.ts';
import { importEvents, type Refusal } from '../../../src/cli/transfer/import-events.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { profileDay } from '../../../src/storage/counts/daily-prefix-sums.ts';
import { compareDay } from '../../../src/storage/counts/differences.ts';
import { DAY_MS, floorTo } from '../../../src/storage/counts/levels.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import { compareFieldDay } from '../../../src/storage/fields/recount.ts';
import { FieldUpkeep } from '../../../src/storage/fields/upkeep.ts';
import { readEventPage } from '../../../src/storage/read/event-page.ts';
import { readSnapshot } from '../../../src/storage/read/snapshot.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import type { ImportedEvent } from '../../../src/storage/write/import-group.ts';
import { ImportWriter } from '../../../src/storage/write/import-writer.ts';
import { type Outcome, tidemark } from '../../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { countedTotal } from '../../support/field-totals.ts';
import { first } from '../../support/fuzz.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import { testSecret, until } from '../../support/service.ts';
import { beginRefresh } from '../../support/slow-refresh.ts';
import { SOURCE } from '../../support/source.ts';
import { upkeepOf } from '../../support/upkeep.ts';
import { writingTo } from '../../support/writers.ts';

const START = Date.UTC(2026, 1, 27, 23, 50);
const MINUTE = 60_000;
const DAY_OF_START = floorTo(START, DAY_MS);
const NO_END = 1_000_000_000;

interface Stored {
  readonly type: string;
  readonly createdAt: string;
  readonly payload: string;
}

function lineOf({ type, createdAt, payload }: Stored): string {
  return `{"type":${JSON.stringify(type)},"createdAt":"${createdAt}","payload":${payload}}`;
}

/** Events a minute apart, over midnight. */
function eventsOf(count: number): Stored[] {
  return Array.from({ length: count }, (_, n) => ({
    type: n % 3 === 0 ? 'ünïcode' : 'plain',
    createdAt: new Date(START + n * MINUTE + (n % 7)).toISOString(),
    payload: `{ "n":${n}, "n" : 1e400, "text":"\\ud800 \\n \\\\ ä\u2028" }`,
  }));
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-import-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.each(first(availableEngines()))('an import on %s', (engine) => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await testDatabase(engine);
  });
  afterAll(() => database.drop());

  async function newApp(): Promise<{ id: number; appId: string }> {
    const { appId } = await createApp(database.sql, await testSecret(), { name: 'import' });
    const [app] = await database.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    if (app === undefined) throw new Error('no app');
    return { id: app.id, appId };
  }

  async function command(appId: string, lines: readonly string[], settings = {}): Promise<Outcome> {
    const file = join(folder, `${appId}.ndjson`);
    await writeFile(file, lines.join('\n'));
    const all = { DATABASE_URL: database.url, DATA_DIR: folder, ...settings };
    return await tidemark(['import', '--app', appId, file, '--json'], all);
  }

  function resultOf({ stdout }: Outcome): unknown {
    return JSON.parse(stdout);
  }

  async function stored(appId: number): Promise<{ total: number; events: Stored[] }> {
    const scope = { appId, typeIds: null, from: null, until: null };
    const request = { scope, offset: 0, limit: 1_000, order: 'asc', maxBytes: NO_END } as const;
    const { total, events } = await readEventPage(database.sql, request);
    const names = new Map(
      (await database.sql<{ id: string; name: string }[]>`SELECT public_id AS id, name FROM event_types`).map(
        ({ id, name }) => [id, name],
      ),
    );
    return {
      total,
      events: events.map(({ typeId, createdAt, payload }) => ({
        type: names.get(typeId) ?? '',
        createdAt: createdAt.toISOString(),
        payload,
      })),
    };
  }

  test('keeps types, times, order and the payloads as they were written', async () => {
    const app = await newApp();
    const events = eventsOf(600);
    const outcome = await command(app.appId, events.map(lineOf));
    expect(outcome).toMatchObject({ code: 0, stderr: '' });
    expect(resultOf(outcome)).toEqual({
      imported: 600,
      skipped: 0,
      failed: 0,
      seconds: expect.any(Number),
      settledSeconds: expect.any(Number),
    });
    expect(await stored(app.id)).toEqual({ total: 600, events });
    expect(await upkeepOf(engine).pending(database.sql)).toBe(0);
  });

  test('that runs twice imports once, and identical lines as often as they are there', async () => {
    const app = await newApp();
    const lines = eventsOf(40).map(lineOf);
    const twins = [...lines, ...lines.slice(0, 5), ...lines.slice(0, 5)];
    expect(resultOf(await command(app.appId, twins))).toMatchObject({ imported: 50, skipped: 0 });
    expect(resultOf(await command(app.appId, twins.toReversed()))).toMatchObject({
      imported: 0,
      skipped: 50,
    });
    const more = [...twins, ...eventsOf(45).slice(40).map(lineOf)];
    expect(resultOf(await command(app.appId, more))).toMatchObject({ imported: 5, skipped: 50 });
    expect((await stored(app.id)).total).toBe(55);
  });

  test('names the first 20 bad lines with number and reason, counts the others, and stores the rest', async () => {
    const app = await newApp();
    const good = eventsOf(3).map(lineOf);
    const bad = Array.from({ length: 23 }, () => 'bad');
    const { code, stderr, stdout } = await command(app.appId, ['', ...good, '{"type":"t"}', ...bad]);
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({ imported: 3, skipped: 0, failed: 24 });
    const lines = stderr.trimEnd().split('\n');
    expect(lines[0]).toBe('tidemark: line 5: the field "createdAt" is missing');
    expect(lines[1]).toBe('tidemark: line 6: it is not valid JSON');
    expect(lines).toHaveLength(21);
    expect(lines.at(-1)).toBe('tidemark: 4 more lines were refused');
    expect((await stored(app.id)).total).toBe(3);
  });

  test('refuses what is in the future and what retention has removed', async () => {
    const app = await newApp();
    const at = (createdAt: string): string => lineOf({ type: 't', createdAt, payload: '{}' });
    const now = Date.now();
    const lines = [now + 3_600_000, now - 3_600_000, now - 40 * 86_400_000].map((ms) =>
      at(new Date(ms).toISOString()),
    );
    const { stdout, stderr } = await command(app.appId, lines, { RETENTION_DAYS: '30' });
    expect(JSON.parse(stdout)).toMatchObject({ imported: 1, failed: 2 });
    expect(stderr).toContain('line 1: the field "createdAt" is in the future');
    expect(stderr).toMatch(/line 3: the field "createdAt" is before \d{4}-\d\d-\d\d, the retention boundary/);
  });

  test('of joined files skips the byte order mark of each, and says of a file that is no UTF-8 what it is', async () => {
    const app = await newApp();
    const lines = eventsOf(2).map(lineOf);
    const joined = await command(
      app.appId,
      lines.flatMap((line) => [`\uFEFF${line}`, '\uFEFF']),
    );
    expect(resultOf(joined)).toMatchObject({ imported: 2, failed: 0 });
    const file = join(folder, 'other');
    for (const [bytes, said] of [
      [gzipSync(lines.join('\n')), 'looks like gzip: decompress it'],
      [Buffer.from(`\uFEFF${lines.join('\n')}`, 'utf16le'), 'looks like UTF-16: save it as UTF-8'],
    ] as const) {
      await writeFile(file, bytes);
      const settings = { DATABASE_URL: database.url, DATA_DIR: folder };
      const outcome = await tidemark(['import', '--app', app.appId, file, '--json'], settings);
      expect([outcome.code, outcome.stderr]).toEqual([1, expect.stringContaining(said)]);
    }
  });

  test.each([
    ['.tsv reads CSV', 'Events.TSV', 'type\tcreatedAt\tpayload\nplain\t2026-01-31T08:30:00Z\t{}\n'],
    [
      '.csv takes a line with its separator',
      'sep.csv',
      'sep=;\r\ntype;createdAt;payload\r\na;2026-01-31T08:30:00Z;{}',
    ],
    ['.csv takes typeName', 'name.csv', 'typeName,createdAt,payload\na,2026-01-31T08:30:00Z,{}\n'],
    [
      '.ndjson takes typeName',
      'a.ndjson',
      '{"typeName":"a","createdAt":"2026-01-31T08:30:00Z","payload":{}}',
    ],
  ])('of a file whose name ends in %s', async (_, name, text) => {
    const app = await newApp();
    const file = join(folder, name);
    await writeFile(file, text);
    const settings = { DATABASE_URL: database.url, DATA_DIR: folder };
    const outcome = await tidemark(['import', '--app', app.appId, file, '--json'], settings);
    expect(resultOf(outcome)).toMatchObject({ imported: 1, failed: 0 });
  });

  test('of a JSON array is refused whole, and says how to make lines of it', async () => {
    const app = await newApp();
    const outcome = await command(app.appId, ['\uFEFF', '[', lineOf(eventsOf(1)[0] as Stored), ']']);
    expect([outcome.code, outcome.stderr]).toEqual([1, expect.stringContaining("jq -c '.[]'")]);
    expect((await stored(app.id)).total).toBe(0);
  });

  test('of CSV that is taken for lines of JSON is refused whole, and names the format', async () => {
    const app = await newApp();
    for (const first of ['type,createdAt,payload', '\uFEFF"type";"createdAt";"payload"', 'sep=;']) {
      const outcome = await command(app.appId, [first, 'a,2026-01-31T08:30:00Z,{}']);
      expect([outcome.code, outcome.stderr]).toEqual([1, expect.stringContaining('--format csv')]);
    }
  });

  test('reads standard input', async () => {
    const app = await newApp();
    const settings = { DATABASE_URL: database.url, DATA_DIR: folder };
    const input = eventsOf(10).map(lineOf).join('\r\n');
    expect(await tidemark(['import', '--app', app.appId, '-'], settings, input)).toMatchObject({ code: 0 });
    expect((await stored(app.id)).total).toBe(10);
  });

  test('says which app is not there', async () => {
    const { code, stderr, stdout } = await command('app_nobody', []);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('app_nobody');
  });

  /** The import within this process. */
  async function imported(
    app: { id: number; appId: string },
    lines: readonly string[],
    address = database.address,
  ): Promise<{ counts: object; refused: Refusal[] }> {
    const storage = engine === 'timescale' ? 'timescale' : 'postgres';
    const writer = new ImportWriter<ImportedEvent>({
      database: address,
      engine: ENGINES[storage].writes,
      appId: app.id,
      boundary: 0,
      timeoutMs: 10_000,
    });
    const refused: Refusal[] = [];
    async function* source(): AsyncGenerator<Buffer> {
      for (const line of lines) yield Buffer.from(`${line}\n`);
    }
    try {
      const counts = await importEvents({
        format: 'ndjson',
        formulas: 'escape',
        source: source(),
        sql: database.sql,
        writer,
        app,
        redacted: (_, payload) => payload,
        maxTypes: 3,
        maxLineBytes: 100_000,
        now: Date.now,
        onRefused: (refusal) => refused.push(refusal),
        onBatch: () => undefined,
      });
      return { counts: { ...counts }, refused };
    } finally {
      await writer.close();
    }
  }

  test('stores each event once, and counts it once, when connections break before and after the commit', async () => {
    const proxy = await FaultyProxy.start(database.address);
    try {
      for (const [what, fate] of [
        ['COPY events', 'lose-request'],
        ['COMMIT\0', 'lose-request'],
        ['COMMIT\0', 'lose-answer'],
      ] as const) {
        const app = await newApp();
        const met = proxy.next((sent) => sent.includes(what), fate);
        const { counts } = await imported(app, eventsOf(30).map(lineOf), proxy.address);
        expect(met()).toBe(1);
        expect(counts).toEqual({ imported: 30, skipped: 0, failed: 0 });
        expect((await stored(app.id)).total).toBe(30);
      }
    } finally {
      await proxy.stop();
    }
  });

  test('goes on beside writers: totals are right, and what they write meanwhile is not touched', async () => {
    const app = await newApp();
    await upkeepOf(engine).prepare(database.sql, START, START + 1_500 * MINUTE);
    const newId = createEventIds();
    const log = pino({ level: 'silent' });
    const live = new EventWriter({
      ...writingTo(database),
      connections: 1,
      log,
      now: performance.now.bind(performance),
    });
    const [type] = await database.sql<{ id: number }[]>`
      INSERT INTO event_types (public_id, app_id, name) VALUES (${`typ_${app.appId}`}, ${app.id}, 'plain') RETURNING id`;
    let importing = true;
    let written = 0;
    const write = async (): Promise<void> => {
      const createdAt = START + (written % 1_000) * MINUTE;
      const ids = { id: newId(createdAt), appId: app.id, typeId: type?.id ?? 0 };
      const event = { ...ids, createdAt, payload: '{}', source: SOURCE };
      expect(await live.write([event])).toEqual([null]);
      written += 1;
      if (written % 200 === 100) await upkeepOf(engine).settle(database.sql);
    };
    // The import keeps this process too busy for a connection to be made in time.
    await write();
    const writing = (async () => {
      while (importing) await write();
    })();
    const { counts } = await imported(app, eventsOf(12_000).map(lineOf));
    importing = false;
    await writing;
    await live.close();
    expect(counts).toEqual({ imported: 12_000, skipped: 0, failed: 0 });
    expect((await stored(app.id)).total).toBe(12_000 + written);
    await upkeepOf(engine).settle(database.sql);
    expect((await stored(app.id)).total).toBe(12_000 + written);
  });

  test('counts what falls between, before and after counts that are there, at every level', async () => {
    const app = await newApp();
    const between = (first: number, step: number): string[] =>
      Array.from({ length: 300 }, (_, n) =>
        lineOf({
          type: ['ünïcode', 'plain', 'third'][(n * step) % 3] ?? '',
          createdAt: new Date(START + first + n * step * MINUTE).toISOString(),
          payload: `{"n":${n},"step":${step}}`,
        }),
      );
    const days = Array.from({ length: 7 }, (_, n) => DAY_OF_START + n * DAY_MS);
    const differing = async (): Promise<number[]> =>
      await Promise.all(days.map(async (day) => (await compareDay(database.sql, day, app.id)).differing));
    let total = 0;
    for (const [first, step] of [
      [0, 7],
      [3 * MINUTE, 7],
      [0, 21],
      [-20 * MINUTE, 1],
    ] as const) {
      await imported(app, between(first + total, step));
      total += 300;
      expect(await differing()).toEqual(days.map(() => 0));
      expect((await stored(app.id)).total).toBe(total);
      // What is made of a day's counts must be made again after the next import.
      for (const day of days) await profileDay(database.sql, { appId: app.id, day });
      const ready = await database.sql`SELECT FROM ready_profiles WHERE app_id = ${app.id}`;
      if (engine !== 'timescale') expect(ready).toHaveLength(days.length);
      const next = await imported(app, between(5_000 + total, 40));
      expect(next.counts).toMatchObject({ imported: 300 });
      total += 300;
      expect(await differing()).toEqual(days.map(() => 0));
      if (engine !== 'timescale')
        expect(await database.sql`SELECT FROM ready_profiles WHERE app_id = ${app.id}`).toHaveLength(0);
    }
    await upkeepOf(engine).settle(database.sql);
    const [month] = await database.sql`
      SELECT sum(count)::integer AS events FROM events_per_month WHERE app_id = ${app.id} AND type_id = 0`;
    expect(month).toEqual({ events: total });
  });

  test('leaves minutes to be counted by the values of a field', async () => {
    const app = await newApp();
    await declareField(database.sql, {
      appId: app.id,
      path: ['n'],
      kind: 'value',
      typeName: null,
      backfill: true,
    });
    const upkeep = new FieldUpkeep(database.sql, () => START + 200 * MINUTE);
    await upkeep.everySecond();
    await imported(app, eventsOf(50).map(lineOf));
    const [noted] = await database.sql`
      SELECT count(*)::integer AS minutes
        FROM (SELECT bucket FROM stamped_minutes WHERE app_id = ${app.id} AND fields = 0
               UNION SELECT bucket FROM uncounted_minutes WHERE app_id = ${app.id}) AS noted`;
    expect(noted).toEqual({ minutes: 50 });
    await upkeepOf(engine).settle(database.sql);
    await upkeep.everySecond();
    expect(await countedTotal(database.sql, app.id, 'n:7')).toBe(0);
    expect(await readSnapshot(database.sql, (tx) => compareFieldDay(tx, DAY_OF_START, app.id))).toMatchObject(
      { differing: 0 },
    );
  });

  test('refuses a line whose type is one too many, and ends where the app is removed', async () => {
    const app = await newApp();
    const lines = ['a', 'b', 'c', 'd'].map((type) =>
      lineOf({ type, createdAt: new Date(START).toISOString(), payload: '{}' }),
    );
    const { counts, refused } = await imported(app, lines);
    expect(counts).toEqual({ imported: 3, skipped: 0, failed: 1 });
    expect(refused).toEqual([{ line: 4, reason: expect.stringContaining('(MAX_EVENT_TYPES_PER_APP)') }]);
    const writer = new ImportWriter({
      database: database.address,
      engine: ENGINES.timescale.writes,
      appId: -1,
      boundary: 0,
      timeoutMs: 0,
    });
    const event = { id: crypto.randomUUID(), appId: -1, typeId: 1, createdAt: START, payload: '{}' };
    await expect(writer.write([event])).rejects.toThrow('the app was removed');
    await writer.close();
  });

  test('finds the one event that the database refuses and stores its neighbors', async () => {
    const app = await newApp();
    await database.sql.unsafe(
      `ALTER TABLE events ADD CONSTRAINT test_poison CHECK (payload::text <> '{"poison":${app.id}}') NOT VALID`,
    );
    try {
      const lines = eventsOf(9).map(lineOf);
      lines[4] = lineOf({
        type: 'plain',
        createdAt: new Date(START).toISOString(),
        payload: `{"poison":${app.id}}`,
      });
      const { counts, refused } = await imported(app, lines);
      expect(counts).toEqual({ imported: 8, skipped: 0, failed: 1 });
      expect(refused).toEqual([{ line: 5, reason: expect.stringContaining('the database refuses it') }]);
      expect((await stored(app.id)).total).toBe(8);
    } finally {
      await database.sql`ALTER TABLE events DROP CONSTRAINT test_poison`;
    }
  });

  test.runIf(engine === 'timescale')(
    'ends well where another program refreshes the counts meanwhile',
    async () => {
      const app = await newApp();
      expect(await command(app.appId, eventsOf(20).map(lineOf))).toMatchObject({ code: 0, stderr: '' });
      const refresh = await beginRefresh(database);
      try {
        const importing = command(app.appId, eventsOf(30).map(lineOf));
        await until(() => refresh.stands(database.sql, 'tidemark'), 'the import waits for the refresh');
        await refresh.end();
        expect(await importing).toMatchObject({ code: 0, stderr: '' });
      } finally {
        await refresh.end();
      }
      expect((await stored(app.id)).total).toBe(30);
      expect(await upkeepOf(engine).pending(database.sql)).toBe(0);
    },
  );

  test.runIf(engine === 'timescale')('skips what is in the columnstore by now, and adds to it', async () => {
    const app = await newApp();
    const lines = eventsOf(2_000).map(lineOf);
    await imported(
      app,
      lines.filter((_, n) => n % 2 === 0),
    );
    await database.sql`SELECT compress_chunk(chunk) FROM show_chunks('events') AS chunk`;
    expect((await imported(app, lines)).counts).toEqual({ imported: 1_000, skipped: 1_000, failed: 0 });
    expect((await imported(app, lines)).counts).toEqual({ imported: 0, skipped: 2_000, failed: 0 });
    expect((await stored(app.id)).total).toBe(2_000);
  });
});
