/** Keys of events across backup and restore, export and import: what is sent again is still known. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { answered, type BatchResult, postBatch, storedIds } from '../../support/batch.ts';
import { tidemark } from '../../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { startTestService, type TestApp, type TestService } from '../../support/service.ts';

const DAY_MS = 86_400_000;
const TODAY = new Date(Date.now() - 60_000).toISOString();
const PAST = new Date(Date.now() - 20 * DAY_MS).toISOString();

/** The same key at two times and of two types, and two keys at one time. */
const EVENTS = [
  { typeName: 'order', createdAt: TODAY, key: 'one', payload: { n: 1 } },
  { typeName: 'order', createdAt: PAST, key: 'one', payload: { n: 2 } },
  { typeName: 'refund', createdAt: PAST, key: 'one', payload: { n: 3 } },
  { typeName: 'order', createdAt: PAST, key: 'two', payload: { n: 4 } },
];

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-keys-test-'));
}, 60_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.each(availableEngines())('on %s,', (engine) => {
  let source: TestService;
  let app: TestApp;
  let first: readonly BatchResult[];
  const file = (name: string): string => join(folder, `${engine} ${name}`);

  const run = async ({ url }: TestDatabase, ...args: string[]): Promise<unknown> => {
    const outcome = await tidemark([...args, '--json'], { DATABASE_URL: url, DATA_DIR: folder });
    expect(outcome).toMatchObject({ code: 0, stderr: '' });
    return JSON.parse(outcome.stdout);
  };
  const send = async (service: TestService, events: readonly unknown[]): Promise<readonly BatchResult[]> =>
    answered(await postBatch(service, events, { Authorization: `Bearer ${app.loggingToken}` })).results;

  beforeAll(async () => {
    source = await startTestService({ engine });
    app = source.app;
    // The types are older than the first backup, as they are where one is made every night.
    await send(source, [
      { typeName: 'order', payload: {} },
      { typeName: 'refund', payload: {} },
    ]);
    await run(source.database, 'backup', file('before'));
    first = await send(source, EVENTS);
    expect(first.map(({ repeated }) => repeated)).toEqual(EVENTS.map(() => undefined));
    await run(source.database, 'backup', file('after'));
    await run(source.database, 'export', file('events'), '--app', app.appId);
  }, 60_000);
  afterAll(() => source?.stop());

  /** The events come again, in another batch and beside a new one, to a service on a database that was made anew. */
  async function expectKnown(database: TestDatabase): Promise<void> {
    const service = await startTestService({ database });
    try {
      const before = await storedIds(service);
      const fresh = { ...EVENTS[0], key: 'three' };
      const results = await send(service, [...EVENTS.toReversed(), fresh]);
      const added = results.at(-1);
      expect(results.slice(0, -1)).toEqual(
        first.toReversed().map((result) => ({ ...result, repeated: true })),
      );
      expect(added).not.toHaveProperty('repeated');
      expect((await storedIds(service)).sort()).toEqual([...before, added?.eventId].sort());
    } finally {
      await service.stop();
    }
  }

  async function withRestored(
    backup: string,
    work: (database: TestDatabase) => Promise<void>,
  ): Promise<void> {
    const database = await testDatabase(engine, { empty: true });
    try {
      await run(database, 'restore', file(backup));
      await work(database);
    } finally {
      await database.drop();
    }
  }

  test('after a backup was restored nothing is stored twice', async () => {
    await withRestored('after', expectKnown);
  }, 60_000);

  test('after an older backup was restored and a later export imported nothing is stored twice', async () => {
    await withRestored('before', async (database) => {
      expect(await run(database, 'import', file('events'), '--app', app.appId)).toMatchObject({
        imported: EVENTS.length,
        failed: 0,
      });
      await expectKnown(database);
    });
  }, 60_000);
});
