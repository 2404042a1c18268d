/** `tidemark journal`: what is in quarantine is listed, imported or dropped, and nothing of it is lost on the way. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { Quarantine, quarantinePath } from '../../src/ingest/journal/quarantine.ts';
import type { EventSource, JournaledEvent } from '../../src/storage/write/accepted-event.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { testSecret } from '../support/service.ts';

const newId = createEventIds();
const START = Date.UTC(2026, 4, 1);
const PAYLOAD = '{ "line\\n":\n1e400 }';

let folder: string;
let database: TestDatabase;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-quarantine-'));
  database = await testDatabase();
});

afterEach(async () => {
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});

async function run(...args: string[]): Promise<Outcome & { readonly answer: unknown }> {
  const settings = { DATABASE_URL: database.url, DATA_DIR: folder, JOURNAL_DIR: folder };
  const outcome = await tidemark(['journal', ...args, '--json'], settings);
  return { ...outcome, answer: outcome.stdout === '' ? null : JSON.parse(outcome.stdout) };
}

async function setAside(source: EventSource, count: number): Promise<JournaledEvent[]> {
  const events = Array.from({ length: count }, (_, n) => ({
    id: newId(START + n),
    createdAt: START + n,
    payload: PAYLOAD,
    source,
  }));
  const why = { reason: 'unknown-app', details: 'the database has no such app' } as const;
  await new Quarantine(folder).add(events.map((event) => ({ event, why })));
  return events;
}

async function stored(appId: string): Promise<unknown[]> {
  return [
    ...(await database.sql`
      SELECT events.id, payload::text AS payload, event_types.name
        FROM events JOIN apps ON apps.id = app_id JOIN event_types ON event_types.id = type_id
       WHERE apps.public_id = ${appId} ORDER BY events.id`),
  ];
}

const LOST = { appId: 'app_lost', typeId: 'typ_1', typeName: 'a type' };
const OTHER = { appId: 'app_other', typeId: 'typ_2', typeName: 'another type' };

test('list counts by app and reason, and an empty quarantine is none', async () => {
  expect(await run('list')).toMatchObject({ code: 0, answer: { groups: [], unreadable: 0 } });
  await setAside(LOST, 3);
  await setAside(OTHER, 1);
  expect((await run('list')).answer).toEqual({
    groups: [
      {
        ...{ appId: 'app_lost', reason: 'unknown-app', events: 3, types: 1 },
        ...{ oldest: '2026-05-01T00:00:00.000Z', newest: '2026-05-01T00:00:00.002Z' },
      },
      {
        ...{ appId: 'app_other', reason: 'unknown-app', events: 1, types: 1 },
        ...{ oldest: '2026-05-01T00:00:00.000Z', newest: '2026-05-01T00:00:00.000Z' },
      },
    ],
    unreadable: 0,
  });
});

test('import stores what it can in the named apps, keeps the rest, and may be repeated', async () => {
  const { appId } = await createApp(database.sql, await testSecret(), { name: 'in its place' });
  const lost = await setAside(LOST, 1_500);
  await setAside(OTHER, 2);
  expect(await run('import')).toMatchObject({ code: 2, answer: { stored: 0, kept: 1_502 } });
  expect(await run('import', '--app', `app_lost=${appId}`)).toMatchObject({
    code: 2,
    answer: { stored: 1_500, kept: 2 },
  });
  expect(await stored(appId)).toEqual(lost.map(({ id }) => ({ id, payload: PAYLOAD, name: 'a type' })));
  const lines = (await readFile(quarantinePath(folder), 'utf8')).trimEnd().split('\n');
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([OTHER, OTHER]);
  // What was imported before is not imported twice.
  await setAside(LOST, 0);
  expect((await run('import', '--app', `app_other=${appId}`)).answer).toEqual({ stored: 2, kept: 0 });
  expect(await stored(appId)).toHaveLength(1_502);
  expect(await readdir(folder)).toEqual([]);
  expect((await run('import', '--app', 'nonsense')).stderr).toContain('app_OLD=app_NEW');
});

test('an import that the database ends leaves quarantine as it was', async () => {
  const { appId } = await createApp(database.sql, await testSecret(), { name: 'without a table' });
  await setAside(LOST, 3);
  const before = await readFile(quarantinePath(folder), 'utf8');
  await database.sql`ALTER TABLE events RENAME TO gone`;
  const { code, stdout, stderr } = await run('import', '--app', `app_lost=${appId}`);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).toContain('quarantine is as it was');
  expect(await readFile(quarantinePath(folder), 'utf8')).toBe(before);
  expect((await readdir(folder)).filter((name) => name.startsWith('quarantine'))).toEqual([
    'quarantine.ndjson',
  ]);
});

test('drop deletes only after a confirmation, and only events of one app if it is named', async () => {
  await setAside(LOST, 3);
  await setAside(OTHER, 2);
  const asked = await run('drop', '--app', 'app_lost');
  expect(asked).toMatchObject({ code: 1, stdout: '' });
  expect(asked.stderr).toContain('would delete 3 events for good: run it again with --yes');
  expect((await run('drop', '--app', 'app_lost', '--yes')).answer).toEqual({ dropped: 3, kept: 2 });
  expect((await run('drop', '--yes')).answer).toEqual({ dropped: 2, kept: 0 });
  expect(await readdir(folder)).toEqual([]);
});
