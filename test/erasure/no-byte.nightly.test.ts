/** After an erasure, and what docs/erasure.md says of the disk, no byte of the value is in any file. */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField } from '../../src/apps/fields.ts';
import { isRoot, unprivilegedUser } from '../../src/embedded/user.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { lineOf } from '../../src/ingest/journal/quarantine.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { FieldUpkeep } from '../../src/storage/fields/upkeep.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { addressOf, type Cluster, startCluster, urlOf } from '../support/cluster.ts';
import { build, tidemark } from '../support/command-line.ts';
import { testSecret } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const CANARY = 'canary-0815-4711';
const DOCS = new URL('../../docs/erasure.md', import.meta.url);
const BIN = process.env.POSTGRES15_BIN ?? '/usr/lib/postgresql/15/bin';
const newId = createEventIds();

describe.runIf(existsSync(join(BIN, 'initdb')))('on a cluster of its own', () => {
  let cluster: Cluster;
  let sql: Sql;
  let folder: string;

  beforeAll(async () => {
    build();
    const user = isRoot() ? await unprivilegedUser() : undefined;
    cluster = await startCluster(BIN, ['--locale=C.UTF-8'], user, '-c wal_recycle=off');
    sql = connect(addressOf(cluster.address, 'postgres'), { connections: 1, name: 'test' });
    folder = await mkdtemp(join(tmpdir(), 'tidemark-no-byte-'));
    await mkdir(join(folder, 'journal'));
  });
  afterAll(async () => {
    await sql.end();
    await cluster.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** The files that hold the value. */
  async function filesWith(root: string): Promise<string[]> {
    const found: string[] = [];
    for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      const bytes = await readFile(path).catch(() => Buffer.alloc(0)); // It may just have gone.
      if (bytes.includes(CANARY)) found.push(path);
    }
    return found;
  }

  test('nothing is left in the database, its log of writes, the ledger and the journal', async () => {
    const storage = await openStorage(sql);
    await storage.migrate(sql);
    await storage
      .maintenance(
        { sql, slow: sql },
        { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 1 },
        () => Date.now(),
      )
      .prepare();
    const { appId } = await createApp(sql, await testSecret(), { name: 'erased' });
    await createEventType(sql, { appId, name: 'visit', maxTypes: 10 });
    const [app] = await sql<{ id: number; typeId: number }[]>`
      SELECT apps.id, event_types.id AS "typeId" FROM apps JOIN event_types ON app_id = apps.id`;
    const { id = 0, typeId = 0 } = app ?? {};
    await declareField(sql, { appId: id, path: ['user'], kind: 'value', typeName: null, backfill: true });
    const now = Date.now();
    const rows = Array.from({ length: 400 }, (_, n) => {
      const filler = n % 100 === 0 ? ` "${newId(now)}",`.repeat(400) : '';
      const payload = `{"user":"${n % 10 === 0 ? CANARY : `user-${n % 7}`}","some":[${filler} 0]}`;
      return { id: newId(now), appId: id, typeId, at: now - n * 60_000, payload };
    });
    await storeRows(sql, 'postgres', rows);
    await sql`
      INSERT INTO idempotency_keys (app_id, key_digest, body_digest, status, answer, created_at)
      VALUES (${id}, decode(repeat('01', 32), 'hex'), decode(repeat('ff', 32), 'hex'), 201,
              ${`{"eventId":"${rows[0]?.id ?? ''}","${CANARY}":1}`}, now())`;
    const source = { appId, typeId: 'typ_x', typeName: 'visit' };
    const event = { id: newId(now), createdAt: now, payload: `{"user":"${CANARY}"}`, source };
    const why = { reason: 'unknown-app', details: '' } as const;
    await writeFile(join(folder, 'journal', 'quarantine.ndjson'), lineOf({ event, why }));
    await storage.settleCounts(sql, now);
    const upkeep = new FieldUpkeep(sql, () => now);
    await upkeep.everySecond();
    await sql`CHECKPOINT`;
    const socket = cluster.address.socket ?? '';
    expect((await filesWith(socket)).length).toBeGreaterThan(2);
    const settings = {
      DATABASE_URL: urlOf(cluster.address, 'postgres'),
      DATA_DIR: folder,
      JOURNAL_DIR: join(folder, 'journal'),
      SECRET: 'a secret of 32 characters or more',
    };
    const { code, stderr } = await tidemark(
      ['erase', '--app', appId, '--filter', `user:${CANARY}`],
      settings,
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('40 of 400 events match') });
    const statements = /```sql\n([^`]*)```/.exec(await readFile(DOCS, 'utf8'))?.[1] ?? '';
    expect(statements).toContain('VACUUM FULL events');
    for (const statement of statements.split(';').map((one) => one.trim()))
      if (statement !== '') await sql.unsafe(statement);
    expect(await filesWith(socket)).toEqual([]);
    expect(await filesWith(folder)).toEqual([]);
  });
});
