/** `tidemark erase` and `tidemark erasure`. */
import { hash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField } from '../../src/apps/fields.ts';
import { openSecret } from '../../src/apps/secret.ts';
import { readConfig } from '../../src/config.ts';
import { parseConditions } from '../../src/erasure/conditions.ts';
import { continueErasures, type ErasureParts, runErasure } from '../../src/erasure/erase.ts';
import { askErasure, requireErasure } from '../../src/erasure/erasures.ts';
import { ErasureWorker } from '../../src/erasure/worker.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { lineOf } from '../../src/ingest/journal/quarantine.ts';
import { OwnCommand } from '../../src/process/own-command.ts';
import { MINUTE_MS } from '../../src/storage/counts/levels.ts';
import { connect, endPool, type Sql } from '../../src/storage/database/connect.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import { WordUpkeep } from '../../src/storage/words/upkeep.ts';
import { build, LAUNCHER, type Outcome, tidemark } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import { captured, hurryRounds, testSecret, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const SECRET = 'a secret of 32 characters or more';
const NOW = Date.now();
const newId = createEventIds();

interface TestApp {
  readonly id: number;
  readonly appId: string;
  readonly typeId: number;
  /** Ids of its events, by user. */
  readonly ids: ReadonlyMap<number, readonly string[]>;
}

hurryRounds();
describe.each(first(availableEngines()))('erase on %s', (engine) => {
  let database: TestDatabase;
  let storage: Storage;
  let folder: string;
  let journal: string;
  beforeAll(async () => {
    build();
    database = await testDatabase(engine, { prepared: true });
    storage = await openStorage(database.sql);
    folder = await mkdtemp(join(tmpdir(), 'tidemark-erase-test-'));
    journal = join(folder, 'journal');
    await mkdir(journal);
  });
  afterAll(async () => {
    await database.drop();
    await rm(folder, { recursive: true, force: true });
  });

  const run = (args: readonly string[], on = database): Promise<Outcome> =>
    tidemark(args, { DATABASE_URL: on.url, DATA_DIR: folder, JOURNAL_DIR: journal, SECRET });
  const json = async (args: readonly string[], on?: TestDatabase): Promise<Record<string, unknown>> => {
    const { code, stdout, stderr } = await run([...args, '--json'], on);
    expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
    return JSON.parse(stdout);
  };
  const failure = async (args: readonly string[], exitCode = 2): Promise<string> => {
    const { code, stdout, stderr } = await run([...args, '--json']);
    expect({ code, stdout }).toEqual({ code: exitCode, stdout: '' });
    expect(stderr.trim().split('\n')).toHaveLength(1);
    return stderr;
  };

  /** An app with ten events of each of ten users, in the last 100 minutes. */
  async function newApp(on = database): Promise<TestApp> {
    const { appId } = await createApp(on.sql, await testSecret(), { name: 'erased' });
    const [app] = await on.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    await createEventType(on.sql, { appId, name: 'order', maxTypes: 10 });
    const [type] = await on.sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app?.id ?? 0}`;
    await declareField(on.sql, {
      appId: app?.id ?? 0,
      path: ['user', 'id'],
      kind: 'value',
      typeName: null,
      backfill: true,
    });
    const ids = new Map<number, string[]>();
    const rows = Array.from({ length: 100 }, (_, n) => {
      const at = NOW - (100 - n) * MINUTE_MS;
      const id = newId(at);
      const user = n % 10;
      ids.set(user, [...(ids.get(user) ?? []), id]);
      return {
        id,
        appId: app?.id ?? 0,
        typeId: type?.id ?? 0,
        at,
        payload: `{"user":{"id":${user}}, "n":${n}}`,
      };
    });
    await storeRows(on.sql, storage.engine, rows);
    return { id: app?.id ?? 0, appId, typeId: type?.id ?? 0, ids };
  }

  async function eventsOf({ id }: TestApp, on = database): Promise<{ total: number; payloads: string[] }> {
    const scope = { appId: id, typeIds: null, from: null, until: null };
    const page = await storage
      .reader(on.sql)
      .page({ scope, offset: 0, limit: 1_000, order: 'asc', maxBytes: 1e9 });
    return { total: page.total, payloads: page.events.map(({ payload }) => payload) };
  }

  test('says beforehand what it would take, and refuses what is wrong', async () => {
    const app = await newApp();
    const dry = await json(['erase', '--app', app.appId, '--filter', 'user.id:4', '--dry-run']);
    expect(dry).toMatchObject({ dryRun: true, action: 'delete', matching: 10, total: 100 });
    expect((await eventsOf(app)).total).toBe(100);
    const erase = ['erase', '--app', app.appId, '--filter'];
    expect(await failure([...erase, 'user.id:'])).toContain('the filter is wrong at column 9');
    expect(await failure([...erase, 'n>=40'], 1)).toContain(
      '60 of 100 events match, more than half of the app',
    );
    expect(await failure([...erase, 'n>=90', '--anonymize'])).toContain('only conditions that name values');
    const many = Array.from({ length: 11 }, () => ['--filter', 'n:1']).flat();
    expect(await failure(['erase', '--app', app.appId, ...many])).toContain('1 to 10 conditions, not 11');
    expect(await failure([...erase, 'n:1', '--reason', 'x'.repeat(501)])).toContain('at most 500 characters');
    expect(await failure(['erase', '--app', 'app_x', '--filter', 'n:1'])).toContain('no app with the id');
    expect(await failure(['erasure', 'show', 'ers_x'])).toContain('there is no erasure "ers_x"');
    expect((await eventsOf(app)).total).toBe(100);
  });

  test.skipIf(engine === 'citus')('looks where lists of words name its conditions', async () => {
    const app = await newApp();
    const alone = connect(database.sql.pool.database, { connections: 1, name: 'test upkeep' });
    // Two days later all days of the events are over.
    const upkeep = new WordUpkeep(alone, () => NOW + 48 * 60 * MINUTE_MS, alone, 100);
    await storage.settleCounts(alone, NOW + 48 * 60 * MINUTE_MS);
    await database.sql`UPDATE apps SET word_search = true WHERE id = ${app.id}`;
    for (let seconds = 0; seconds < 8; seconds += 1) await upkeep.everySecond();
    const { looked } = await storage
      .reader(database.sql)
      .search(
        { appId: app.id, typeIds: null, from: null, until: null, order: 'asc', after: null },
        parseConditions(['user.id:4'], 'delete').filter,
      )
      .step(1_000);
    expect(looked).toBeLessThan(80);
    const erase = ['erase', '--app', app.appId, '--filter', 'user.id:4'];
    // The share is that of all events, whatever was looked at.
    expect(await json([...erase, '--dry-run'])).toMatchObject({ matching: 10, total: 100 });
    await json(erase);
    const { payloads, total } = await eventsOf(app);
    expect(total).toBe(90);
    expect(payloads.join()).not.toContain('"id":4}');
    await alone.end();
  });

  test('erases matching events, and gives a receipt', async () => {
    const app = await newApp();
    const source = { appId: app.appId, typeId: 'typ_x', typeName: 'order' };
    const why = { reason: 'unknown-app', details: '' } as const;
    const set = (user: number) =>
      lineOf({
        event: { id: newId(NOW), createdAt: NOW - 1, payload: `{"user":{"id":${user}}}`, source },
        why,
      });
    await writeFile(join(journal, 'quarantine.ndjson'), set(4) + set(5));
    const receipt = await json([
      'erase',
      '--app',
      app.appId,
      '--filter',
      'user.id:4',
      '--reason',
      'asked on May 4',
    ]);
    const { payloads, total } = await eventsOf(app);
    expect(total).toBe(90);
    expect(payloads.filter((payload) => payload.includes('{"id":4}'))).toEqual([]);
    expect(await readFile(join(journal, 'quarantine.ndjson'), 'utf8')).not.toContain('{\\"id\\":4}');
    expect(await readFile(join(journal, 'quarantine.ndjson'), 'utf8')).toContain('{\\"id\\":5}');
    const ids = (app.ids.get(4) ?? []).toSorted();
    expect(receipt).toMatchObject({
      ...{
        appId: app.appId,
        state: 'finished',
        action: 'delete',
        by: 'command line',
        reason: 'asked on May 4',
      },
      receipt: { events: 10, quarantined: 1, idsSha256: hash('sha256', ids.map((id) => `${id}\n`).join('')) },
    });
    const id = String(receipt.erasureId);
    // Nothing of the condition is kept.
    const kept = await database.sql<{ sealed: Uint8Array | null }[]>`
      SELECT sealed_conditions AS sealed FROM erasures WHERE public_id = ${id}`;
    expect(kept).toEqual([{ sealed: null }]);
    const ledger = await readFile(join(folder, 'erasures', `${id}.ndjson`), 'utf8');
    expect(
      ledger
        .trim()
        .split('\n')
        .slice(1)
        .map((line) => line.split(' ')[1])
        .toSorted(),
    ).toEqual(ids);
    expect(ledger).not.toContain('user.id:4');
    expect(await json(['erasure', 'show', id, '--filter', 'user.id:4'])).toMatchObject({
      sameConditions: true,
    });
    expect(await json(['erasure', 'show', id, '--filter', 'user.id:5'])).toMatchObject({
      sameConditions: false,
    });
    expect(await json(['erasure', 'list', '--app', app.appId])).toMatchObject({
      erasures: [{ erasureId: id }],
    });
    const audit = await database.sql<{ action: string }[]>`
      SELECT action FROM audit_entries WHERE app_id = ${app.id} ORDER BY id DESC LIMIT 2`;
    expect(audit.map(({ action }) => action)).toEqual(['erasure.finish', 'erasure.ask']);
    // Once more there is nothing to do, and most of an app goes where that is confirmed.
    const again = await json(['erase', '--app', app.appId, '--filter', 'user.id:4']);
    expect(again).toMatchObject({ receipt: { events: 0 } });
    await json(['erase', '--app', app.appId, '--filter', 'n:*', '--yes-most']);
    expect((await eventsOf(app)).total).toBe(0);
  });

  test('puts pseudonyms in the place of values, and changes no other byte', async () => {
    const app = await newApp();
    const receipt = await json(['erase', '--app', app.appId, '--filter', 'user.id:4', '--anonymize']);
    expect(receipt).toMatchObject({ action: 'anonymize', receipt: { events: 10, paths: [['user', 'id']] } });
    const { payloads, total } = await eventsOf(app);
    expect(total).toBe(100);
    const changed = payloads.filter((payload) => payload.includes('hmac:'));
    expect(new Set(changed.map((payload) => payload.slice(0, 54))).size).toBe(1);
    expect(changed.map((payload) => payload.replace(/"hmac:[0-9a-f]{32}"/, '4'))).toEqual(
      payloads.flatMap((_, n) => (n % 10 === 4 ? [`{"user":{"id":4}, "n":${n}}`] : [])),
    );
  });

  test('a service erases in a process of its own', async () => {
    const app = await newApp();
    const conditions = parseConditions(['user.id:4'], 'delete');
    const secret = await openSecret({ configured: SECRET, dataDir: null });
    const asked = { action: 'delete', conditions, reason: null, matching: 10, askedAt: NOW } as const;
    const { id } = app;
    const { erasureId } = await askErasure(database.sql, secret, {
      ...asked,
      app: { id, appId: app.appId },
      coversUntil: NOW,
    });
    const config = readConfig({ DATABASE_URL: database.url, DATA_DIR: folder, JOURNAL_DIR: journal, SECRET });
    const unexpected = (): never => {
      throw new Error('It is done in this process.');
    };
    const worker = new ErasureWorker({
      ...{ sql: database.sql, storage, secret, config, log: captured([]), now: () => NOW },
      command: new OwnCommand([process.execPath, LAUNCHER], config),
      ...{ open: unexpected, close: unexpected, isLeader: () => true },
    });
    worker.start();
    await until(
      async () => (await requireErasure(database.sql, erasureId)).finishedAt !== null,
      'it is finished',
      60_000,
    );
    await worker.stop();
    expect((await eventsOf(app)).total).toBe(90);
  });

  /** An erasure that was asked for and not begun. @param conditions of its events @param under the secret that seals them */
  async function asked({ id, appId }: TestApp, under = SECRET): Promise<string> {
    const secret = await openSecret({ configured: under, dataDir: null });
    const conditions = parseConditions(['user.id:4'], 'delete');
    const { erasureId } = await askErasure(database.sql, secret, {
      ...{ app: { id, appId }, action: 'delete', conditions, reason: null, matching: 10 },
      ...{ askedAt: NOW, coversUntil: NOW },
    });
    return erasureId;
  }

  /** Its searches look at ten rows at a time. @param onStep before each of them, with the internal id of the app */
  async function partsWith(
    sql: Sql,
    onStep: (app: number) => Promise<unknown>,
    warnings: string[] = [],
  ): Promise<ErasureParts> {
    const readerOfRows: Storage['readerOfRows'] = (of) => {
      const reader = storage.readerOfRows(of);
      const search: typeof reader.search = (request, filter) => {
        const opened = reader.search(request, filter);
        return { ...opened, step: () => onStep(request.appId).then(() => opened.step(10)) };
      };
      return { ...reader, search };
    };
    return {
      ...{ sql, storage: { ...storage, readerOfRows }, config: { DATA_DIR: folder, JOURNAL_DIR: journal } },
      secret: await openSecret({ configured: SECRET, dataDir: null }),
      now: () => NOW,
      log: { warn: (message) => warnings.push(message) },
    };
  }

  test('takes what was committed before it was asked for, and ends while matching events arrive', async () => {
    const app = await newApp();
    const erasureId = await asked(app);
    const sql = connect(database.address, { connections: 1, name: 'test' });
    let steps = 0;
    const parts = await partsWith(sql, async () => {
      steps += 1;
      if (steps > 30) throw new Error('It looks at events that arrive meanwhile.');
      const at = NOW - 100 * MINUTE_MS;
      const row = { id: newId(at), appId: app.id, typeId: app.typeId, at, payload: '{"user":{"id":4}}' };
      await storeRows(database.sql, storage.engine, [row]);
    });
    try {
      expect(await runErasure(parts, erasureId)).toBe('finished');
    } finally {
      await endPool(sql);
    }
    const { receipt } = await requireErasure(database.sql, erasureId);
    expect(receipt?.committedBefore).toBe(new Date(NOW).toISOString());
    const { payloads } = await eventsOf(app);
    // Those of before are gone; of the others those stay that it had passed.
    expect(payloads.filter((payload) => payload.includes('{"id":4}, "n"'))).toEqual([]);
    expect(payloads.length).toBeGreaterThan(90);
  });

  test('erasures of several accounts take turns, and one that fails keeps no other from its turn', async () => {
    const [broken, one, other, late] = [await newApp(), await newApp(), await newApp(), await newApp()];
    const failed = await asked(broken, 'another secret of 32 characters or more');
    const erasures = [await asked(one), await asked(other)];
    const sql = connect(database.address, { connections: 1, name: 'test' });
    const turns: number[] = [];
    const warnings: string[] = [];
    const parts = await partsWith(
      sql,
      async (app) => {
        turns.push(app);
        if (turns.length === 3) erasures.push(await asked(late));
      },
      warnings,
    );
    try {
      expect(await continueErasures(parts)).toEqual([failed]);
    } finally {
      await endPool(sql);
      await database.sql`DELETE FROM erasures WHERE public_id = ${failed}`;
    }
    for (const erasureId of erasures)
      expect((await requireErasure(database.sql, erasureId)).finishedAt).not.toBeNull();
    expect(turns.slice(0, 6)).toEqual([one.id, other.id, one.id, other.id, one.id, other.id]);
    expect(new Set(turns)).toEqual(new Set([one.id, other.id, late.id]));
    expect(warnings.filter((line) => line.includes('another SECRET'))).toHaveLength(1);
  });

  test('a backup that is restored later loses the same events again', async () => {
    const app = await newApp();
    const file = join(folder, `${app.appId}.backup`);
    await json(['backup', file]);
    const erased = await json(['erase', '--app', app.appId, '--filter', 'user.id:4']);
    const anonymized = await json(['erase', '--app', app.appId, '--filter', 'user.id:5', '--anonymize']);
    const expected = await eventsOf(app);
    const other = await testDatabase(engine, { empty: true });
    try {
      expect(await json(['restore', file], other)).toMatchObject({ erasures: 2 });
      expect(await eventsOf(app, other)).toEqual(expected);
      for (const { erasureId, receipt } of [erased, anonymized]) {
        const { events, idsSha256 } = receipt as { events: number; idsSha256: string };
        const again = await json(['erasure', 'show', String(erasureId)], other);
        expect(again).toMatchObject({
          state: 'finished',
          receipt: { events, idsSha256, appliedAgain: [expect.any(String)] },
        });
      }
    } finally {
      await other.drop();
    }
  });
});
