/** An erasure that is ended anywhere is continued, and is what it would have been. */
import { hash } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField } from '../../src/apps/fields.ts';
import { leftErasures } from '../../src/cli/doctor/erasure-facts.ts';
import { parseConditions } from '../../src/erasure/conditions.ts';
import { applyLedger, type ErasureParts, runErasure } from '../../src/erasure/erase.ts';
import { askErasure, requireErasure } from '../../src/erasure/erasures.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { FieldUpkeep } from '../../src/storage/fields/upkeep.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { dying } from '../support/dying.ts';
import { testSecret, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const KEPT = 3;
const newId = createEventIds();
const conditions = parseConditions(['user.id:4'], 'delete');

let database: TestDatabase;
let storage: Storage;
let folder: string;
let app: { readonly id: number; readonly appId: string };

beforeAll(async () => {
  database = await testDatabase(undefined, { prepared: true });
  storage = await openStorage(database.sql);
  folder = await mkdtemp(join(tmpdir(), 'tidemark-erase-kills-'));
  const { appId } = await createApp(database.sql, await testSecret(), { name: 'erased' });
  const [found] = await database.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
  app = { id: found?.id ?? 0, appId };
  await createEventType(database.sql, { appId, name: 'order', maxTypes: 10 });
  await declareField(database.sql, {
    appId: app.id,
    path: ['user', 'id'],
    kind: 'value',
    typeName: null,
    backfill: true,
  });
});
afterAll(async () => {
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});

async function partsWith(sql: Sql): Promise<ErasureParts> {
  const config = { DATA_DIR: folder, JOURNAL_DIR: join(folder, 'journal') };
  return {
    sql,
    storage,
    secret: await testSecret(),
    config,
    now: () => Date.now(),
    log: { warn: () => undefined },
  };
}

/** Ten events of user 4 and three of another one, in the last minutes. @returns the ids of the former */
async function store(): Promise<readonly string[]> {
  const [type] = await database.sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app.id}`;
  const now = Date.now() - 1_000;
  const rows = Array.from({ length: 10 + KEPT }, (_, n) => ({
    ...{ id: newId(now), appId: app.id, typeId: type?.id ?? 0, at: now - n * 20_000 },
    payload: `{"user":{"id":${n < 10 ? 4 : 5}}}`,
  }));
  await storeRows(database.sql, 'postgres', rows);
  return rows.slice(0, 10).map(({ id }) => id);
}

test.each(['before', 'after'] as const)('killed at each step, %s it, and continued', async (when) => {
  const upkeepSql = connect(database.address, { connections: 1, name: 'test upkeep' });
  const upkeep = new FieldUpkeep(upkeepSql, () => Date.now());
  const reader = storage.reader(database.sql);
  let kept = (await reader.appSpan(app.id)).total;
  let deaths = 0;
  for (let calls = 1; ; calls += 1) {
    const ids = await store();
    kept += KEPT;
    await upkeep.everySecond();
    const askedAt = Date.now();
    const asked = { app, action: 'delete', conditions, reason: null, matching: 10, askedAt } as const;
    const { erasureId } = await askErasure(database.sql, await testSecret(), {
      ...asked,
      coversUntil: askedAt,
    });
    const own = connect(database.address, { connections: 1, name: 'test erasure' });
    const { sql, isDead } = dying(own, calls, when);
    await runErasure(await partsWith(sql), erasureId).catch((error: unknown) => {
      if (!isDead()) throw error;
    });
    await own.end();
    if (isDead()) {
      deaths += 1;
      const isFinished = (await requireErasure(database.sql, erasureId)).finishedAt !== null;
      const isLeft = async (): Promise<boolean> =>
        (await leftErasures(database.sql)).some((one) => one.erasureId === erasureId);
      if (!isFinished) await until(isLeft, 'the doctor names the erasure that is left');
      const next = connect(database.address, { connections: 1, name: 'test erasure' });
      expect(await runErasure(await partsWith(next), erasureId)).toBe('finished');
      await next.end();
    }
    const { receipt, sealedConditions } = await requireErasure(database.sql, erasureId);
    const idsSha256 = hash(
      'sha256',
      ids
        .toSorted()
        .map((id) => `${id}\n`)
        .join(''),
    );
    expect(receipt, `at step ${calls}`).toMatchObject({ events: 10, idsSha256 });
    expect(sealedConditions).toBeNull();
    expect((await reader.appSpan(app.id)).total).toBe(kept);
    expect(await readdir(join(folder, 'erasures'))).toContain(`${erasureId}.ndjson`);
    if (!isDead()) break;
  }
  expect(deaths).toBeGreaterThan(12);
  const values = await database.sql<{ value: string }[]>`SELECT DISTINCT value FROM field_series`;
  expect(values.map(({ value }) => value)).toEqual(['5']);
  await upkeepSql.end();
  expect(await applyLedger(await partsWith(database.sql))).toBe(0);
});
