/** `tidemark export`, and that `tidemark import` takes what it writes. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../../src/apps/apps.ts';
import { createEventType } from '../../../src/apps/event-types.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { tidemark } from '../../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { first } from '../../support/fuzz.ts';
import { testSecret } from '../../support/service.ts';
import { storeRows } from '../../support/stored-events.ts';

const START = Date.UTC(2026, 4, 4);
const HOUR_MS = 3_600_000;
const TYPES = ['page viewed', 'a "type", with\na line break; ü', '=1+1'];
const PAYLOADS = [
  '{"n":1e400,\r\n "n":-0}',
  '{"s":"\\u0000\\ud800","q":"a \\"b\\", c"}',
  '{"status":500}',
  '{ }',
];
const EVENTS = 60;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-export-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Stored {
  readonly id: string;
  readonly type: string;
  readonly createdAt: string;
  readonly payload: string;
}

describe.each(first(availableEngines()))('on %s,', (engine) => {
  let database: TestDatabase;
  let appId: string;
  let stored: Stored[];

  beforeAll(async () => {
    database = await testDatabase(engine);
    const { sql } = database;
    const storage = await openStorage(sql);
    const settings = {
      CHUNK_HOURS: 24,
      COMPRESS_AFTER_DAYS: 7,
      RETENTION_DAYS: 0,
      CONSUMER_REACH_HOURS: 168,
    };
    await storage.maintenance({ sql, slow: sql }, settings, () => START).prepare();
    ({ appId } = await newApp());
    for (const name of TYPES) await createEventType(sql, { appId, name, maxTypes: 10 });
    const types = await sql<{ id: number; name: string }[]>`SELECT id, name FROM event_types ORDER BY id`;
    const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE apps.public_id = ${appId}`;
    const rows = Array.from({ length: EVENTS }, (_, i) => {
      const at = START + i * HOUR_MS;
      const time = at.toString(16).padStart(12, '0');
      return {
        id: `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${String(i).padStart(12, '0')}`,
        appId: app?.id ?? 0,
        typeId: types[i % TYPES.length]?.id ?? 0,
        at,
        payload: PAYLOADS[i % PAYLOADS.length] ?? '',
      };
    });
    await storeRows(sql, database.engine, rows);
    stored = rows.map(({ id, at, payload }, i) => ({
      id,
      type: TYPES[i % TYPES.length] ?? '',
      createdAt: new Date(at).toISOString(),
      payload: payload.replaceAll(/[\r\n]/g, ' '),
    }));
  }, 60_000);
  afterAll(() => database.drop());

  const newApp = async () => await createApp(database.sql, await testSecret(), { name: 'App' });

  const run = (...args: string[]) =>
    tidemark([...args, '--json'], { DATABASE_URL: database.url, DATA_DIR: folder });

  async function exported(...options: string[]): Promise<string> {
    const file = join(folder, `${engine}.out`);
    const outcome = await run('export', file, '--app', appId, ...options);
    expect(outcome.stderr).toBe('');
    const text = await readFile(file, 'utf8');
    expect(JSON.parse(outcome.stdout)).toMatchObject({ bytes: Buffer.byteLength(text) });
    return text;
  }

  /** The stored events with one of the payloads. */
  const rowsOf = (index: number): Stored[] => stored.filter((_, at) => at % PAYLOADS.length === index);

  const eventsIn = (text: string): Stored[] =>
    text
      .split('\n')
      .slice(0, -1)
      .map((line) => {
        const { id, type, createdAt } = JSON.parse(line);
        return { id, type, createdAt, payload: line.slice(line.indexOf(',"payload":') + 11, -1) };
      });

  test('every event is in the file, oldest first', async () => {
    expect(eventsIn(await exported())).toEqual(stored);
  });

  test('events shows the newest, or those with a word, a text or conditions, with payloads as they were sent', async () => {
    const found = async (...options: string[]) => {
      const { stdout, stderr } = await run('events', '--app', appId, ...options);
      expect(stderr).toBe('');
      const { events, ...end } = JSON.parse(stdout) as { events: { id: string }[] };
      return { ids: events.map(({ id }) => id), end, stdout };
    };
    const newest = (index: number): string[] =>
      rowsOf(index)
        .map(({ id }) => id)
        .toReversed();
    expect((await found('--limit', '1000')).ids).toEqual(stored.map(({ id }) => id).toReversed());
    expect((await found('--limit', '7')).end).toEqual({ isWhole: false });
    const words = await found('--find', 'status', '--limit', '1000');
    expect(words.ids).toEqual(newest(2));
    expect(words.end).toEqual({ isWhole: true, searchedBy: 'scan' });
    expect((await found('--find', 'stat')).ids).toEqual([]);
    expect((await found('--inside', 'tatu', '--limit', '1000')).ids).toEqual(newest(2));
    expect((await found('--find', 'status', '--filter', 'status>500')).ids).toEqual([]);
    const [first] = rowsOf(0);
    const exact = await found(
      '--find',
      '1e400',
      '--limit',
      '1',
      '--to',
      first?.createdAt.replace('.000', '.001') ?? '',
    );
    expect(exact.ids).toEqual([first?.id]);
    expect(exact.stdout).toContain('{"n":1e400,');
    const text = await tidemark(['events', '--app', appId, '--find', 'status', '--limit', '1'], {
      ...{ DATABASE_URL: database.url, DATA_DIR: folder },
    });
    expect(text.stdout).toMatch(
      /^Time .*Event .*Payload\n2026-05-\S+ +[0-9a-f-]{36} +\{"status":500\}\nThere may be older/,
    );
  });

  test('types, times and conditions choose events', async () => {
    const some = await exported(
      '--type',
      TYPES[0] ?? '',
      '--type',
      TYPES[2] ?? '',
      '--filter',
      'status>=500',
    );
    expect(eventsIn(some)).toEqual(stored.filter((event, i) => i % 4 === 2 && event.type !== TYPES[1]));
    const from = new Date(START + 5 * HOUR_MS).toISOString();
    expect(eventsIn(await exported('--from', from, '--to', '2026-05-04T09:00'))).toEqual(stored.slice(5, 9));
  });

  test.each([
    ['ndjson', ''],
    ['csv', 'semicolon'],
  ])(
    'import takes its %s %s: another app gets the same events, its own app nothing new',
    async (format, separator) => {
      const form = separator === '' ? [] : ['--separator', separator, '--bom', '--texts', 'quoted'];
      const file = join(folder, `${engine}.${format}`);
      await writeFile(file, await exported('--format', format, ...form));
      // The format is that of the name.
      const again = await run('import', file, '--app', appId);
      expect(JSON.parse(again.stdout)).toMatchObject({ imported: 0, skipped: EVENTS, failed: 0 });
      const other = await newApp();
      const copied = await run('import', file, '--app', other.appId, '--format', format);
      expect(copied.stderr).toBe('');
      expect(JSON.parse(copied.stdout)).toMatchObject({ imported: EVENTS, skipped: 0, failed: 0 });
      const text = (await run('export', '-', '--app', other.appId)).stdout;
      expect(eventsIn(text)).toEqual(stored);
    },
  );

  test('what is wrong ends it before a file is made', async () => {
    for (const [options, problem] of [
      [['--filter', 'status=5'], '--filter is wrong at column 7: one of : < <= > >= must follow the name'],
      [['--type', 'none'], 'the app has no event type "none"'],
      [
        ['--from', '2026-05-05', '--to', '2026-05-05'],
        '--from must be before --to: --to is exclusive, and a date is its midnight: for the whole day choose --to 2026-05-06',
      ],
      [['--from', 'yesterday'], 'must be an ISO 8601 date or time'],
      [['--format', 'xml'], 'Allowed choices are ndjson, csv'],
      [['--app', 'app_none'], 'app_none'],
    ] as const) {
      const outcome = await run('export', join(folder, 'none'), '--app', appId, ...options);
      expect(outcome.code, problem).toBe(2);
      expect(outcome.stderr).toContain(problem);
      expect(outcome.stdout).toBe('');
    }
    expect(await readdir(folder)).not.toContain('none');
  });
});

const FORMULA_NAMES = [
  '=HYPERLINK("http://example.com")',
  '+1',
  '-1',
  '@SUM(A1)',
  '\tx',
  '\rx',
  '\nx',
  '＝1',
  "'=1",
  "''+1",
];
const PLAIN_NAMES = ["'quoted'", 'a=b', "it's"];

test('CSV escapes type names that a spreadsheet would run, unless told otherwise, and an import takes the escape off', async () => {
  const database = await testDatabase();
  const { sql } = database;
  const names = [...FORMULA_NAMES, ...PLAIN_NAMES];
  const run = async (...args: string[]): Promise<string> => {
    const outcome = await tidemark(args, { DATABASE_URL: database.url, DATA_DIR: folder });
    expect(outcome).toMatchObject({ code: 0, stderr: expect.not.stringMatching(/refused/) });
    return outcome.stdout;
  };
  const typesOf = async (appId: string): Promise<string[]> => {
    const rows = await sql<{ name: string }[]>`
      SELECT event_types.name FROM event_types JOIN apps ON apps.id = app_id WHERE apps.public_id = ${appId}`;
    return rows.map(({ name }) => name).sort();
  };
  try {
    const secret = await testSecret();
    const [from, to, kept] = await Promise.all(
      ['From', 'To', 'Kept'].map(async (name) => (await createApp(sql, secret, { name })).appId),
    );
    const lines = names.map((type) =>
      JSON.stringify({ type, createdAt: '2026-01-31T08:30:00Z', payload: {} }),
    );
    const file = join(folder, 'formulas');
    await writeFile(file, lines.join('\n'));
    await run('import', file, '--app', String(from));

    const csv = await run('export', '-', '--app', String(from), '--format', 'csv');
    const cell = (name: string): string => `,"${name.replaceAll('"', '""')}",2026-`;
    for (const name of FORMULA_NAMES) expect(csv).toContain(cell(`'${name}`));
    for (const name of PLAIN_NAMES) expect(csv).toContain(cell(name));
    await writeFile(file, csv);
    await run('import', file, '--app', String(to), '--format', 'csv');
    expect(await typesOf(String(to))).toEqual(names.toSorted());

    const raw = await run('export', '-', '--app', String(from), '--format', 'csv', '--formulas', 'keep');
    for (const name of names) expect(raw).toContain(cell(name));
    await writeFile(file, raw);
    await run('import', file, '--app', String(kept), '--format', 'csv', '--formulas', 'keep');
    expect(await typesOf(String(kept))).toEqual(names.toSorted());
  } finally {
    await database.drop();
  }
});

test('a record of CSV that cannot be read is named and left out', async () => {
  const database = await testDatabase();
  try {
    const { appId } = await createApp(database.sql, await testSecret(), { name: 'App' });
    const file = join(folder, 'bad.csv');
    const time = '2026-01-31T08:30:00Z';
    const records = [
      // The first payload is the column of a field of that name.
      'createdAt,payload,type,payload',
      `${time},y,x,"{""a"":1}"`,
      `${time},{},x`,
      `${time},,x,"{""a"":""b"""`,
      `${time},"{}"z,x,`,
      `${time},,"two`,
      'lines",{}',
      `${time},,x,"{},""type"":""y"""`,
      `${time},"{}","open`,
    ];
    await writeFile(file, records.join('\r\n'));
    const outcome = await tidemark(['import', file, '--app', appId, '--format', 'csv', '--json'], {
      DATABASE_URL: database.url,
      DATA_DIR: folder,
    });
    expect(JSON.parse(outcome.stdout)).toMatchObject({ imported: 2, failed: 5 });
    expect(outcome.code).toBe(2);
    expect(outcome.stderr.split('\n').slice(0, -1)).toEqual([
      'tidemark: line 3: it has 3 fields in place of the 4 of the first line',
      'tidemark: line 4: the field "payload" is not valid JSON',
      'tidemark: line 5: it has a quote within a field that does not begin with one, or text after the closing quote',
      'tidemark: line 8: the field "payload" is not valid JSON',
      'tidemark: line 9: it has a quote without its end',
    ]);
    const types = await database.sql<{ name: string }[]>`SELECT name FROM event_types ORDER BY id`;
    expect(types.map(({ name }) => name)).toEqual(['x', 'two\r\nlines']);
  } finally {
    await database.drop();
  }
});
