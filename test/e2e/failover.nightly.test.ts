/**
 * A failover with two real servers: the standby is promoted while the old primary is frozen, the address moves, and the old
 * one thaws with the connections that it had. Nothing may be stored there, or read from there, from then on.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { openDatabase } from '../../src/storage/database/open.ts';
import { hasFailover, type ServerPair, startPair } from '../support/failover.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { FaultyProxy } from '../support/proxy.ts';
import {
  captured,
  startTestService,
  type TestService,
  type TestServiceOptions,
  until,
} from '../support/service.ts';

const opened: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

interface Scene {
  readonly pair: ServerPair;
  readonly proxy: FaultyProxy;
  readonly service: TestService;
}

async function scene(options: TestServiceOptions & { synchronous?: boolean } = {}): Promise<Scene> {
  const pair = await startPair(options.synchronous);
  opened.push(() => pair.stop());
  const proxy = await FaultyProxy.start(pair.primary.database.address);
  opened.push(() => proxy.stop());
  const service = await startTestService({
    ...options,
    config: { CREATE_LIMIT_PER_MINUTE: 0, ...options.config },
    database: pair.primary.testDatabase,
    reach: async () => proxy.address,
  });
  opened.push(() => service.stop());
  return { pair, proxy, service };
}

const keyed = (service: TestService, key: number): Promise<HttpResponse> =>
  service.request({
    method: 'POST',
    path: '/public/create_event',
    headers: { 'Idempotency-Key': `key-${key}` },
    body: service.body('{}'),
  });

/** Uses every way into the database, so that each has its connections open. */
async function useAll(service: TestService): Promise<string> {
  const token = { name: 'reader', appIds: [service.app.appId], expiresInSeconds: null };
  const { resourceToken } = await createResourceToken(service.sql, token);
  await Promise.all([
    ...Array.from({ length: 200 }, () => service.post()),
    ...Array.from({ length: 20 }, (_, key) => keyed(service, key)),
    ...Array.from({ length: 20 }, () => read(service, resourceToken)),
  ]);
  return resourceToken;
}

const read = (service: TestService, token: string): Promise<HttpResponse> =>
  service.request({
    path: `/public/get_events?appId=${service.app.appId}&limit=1`,
    headers: { authorization: `Bearer ${token}` },
  });

async function untilMoved(service: TestService): Promise<void> {
  await until(async () => {
    const metrics = await service.request({ path: '/metrics' });
    return metrics.body.includes('tidemark_database_server_changes_total 1');
  }, 'the move is noticed');
  await until(async () => (await service.request({ path: '/readyz' })).status === 200, 'it is ready again');
}

/** Waits until the standby has everything that was committed so far. */
async function untilCaughtUp({ primary, standby }: ServerPair): Promise<void> {
  const [at] = await primary.sql<{ lsn: string }[]>`SELECT pg_current_wal_lsn()::text AS lsn`;
  await until(async () => {
    const [row] = await standby.sql<{ there: boolean }[]>`
      SELECT pg_last_wal_replay_lsn() >= ${at?.lsn ?? ''}::pg_lsn AS there`;
    return row?.there === true;
  }, 'the standby has all of it');
}

const idOf = ({ body }: HttpResponse): string => String(JSON.parse(body).eventId);

async function missing(sql: TestService['sql'], ids: readonly string[]): Promise<number> {
  const [row] = await sql<{ stored: number }[]>`
    SELECT count(*)::int AS stored FROM events WHERE id = ANY(${ids}::uuid[])`;
  return ids.length - (row?.stored ?? 0);
}

describe.runIf(hasFailover)('after a failover', () => {
  test.each([false, true])(
    'everything that is acknowledged is on the new primary, and is read from there (journal: %s)',
    async (hasJournal) => {
      const folder = await mkdtemp(join(tmpdir(), 'tidemark-failover-'));
      opened.push(() => rm(folder, { recursive: true, force: true }));
      const { pair, proxy, service } = await scene({
        config: hasJournal ? { JOURNAL_DIR: folder } : {},
      });
      const token = await useAll(service);
      const { primary, standby } = pair;
      await untilCaughtUp(pair);
      await primary.freeze();
      await standby.promote();
      proxy.leadTo(standby.database.address);
      await untilMoved(service);
      await primary.thaw();
      const ids: string[] = [];
      const statuses = new Map<number, number>();
      // However long a slow machine refuses what comes first.
      for (let round = 0; round < 20 || ids.length <= 500; round += 1) {
        const answers = await Promise.all([
          ...Array.from({ length: 40 }, () => service.post()),
          ...Array.from({ length: 5 }, (_, key) => keyed(service, 100 + 5 * round + key)),
        ]);
        for (const answer of answers) {
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
          if (answer.status === 201) ids.push(idOf(answer));
        }
      }
      if (hasJournal)
        await until(() => service.stats().journal?.waitingEvents === 0, 'the journal is replayed', 30_000);
      expect(await missing(standby.sql, ids)).toBe(0);
      const [last] = await primary.sql`SELECT FROM events WHERE id = ANY(${ids}::uuid[]) LIMIT 1`;
      expect(last).toBeUndefined();
      await until(async () => (await read(service, token)).status === 200, 'reads go on');
      const { body } = await read(service, token);
      const [row] = await standby.sql<{ total: number }[]>`SELECT count(*)::int AS total FROM events`;
      expect(JSON.parse(body).data.pagination.total).toBe(row?.total);
      expect((await service.request({ path: '/readyz' })).status).toBe(200);
      expect(service.log.some(({ msg }) => String(msg).includes('the address leads to another server'))).toBe(
        true,
      );
    },
    90_000,
  );

  test('an address that has moved is noticed although every connection to the old primary works', async () => {
    const { pair, proxy, service } = await scene();
    const token = await useAll(service);
    await untilCaughtUp(pair);
    const { primary, standby } = pair;
    await standby.promote();
    proxy.leadTo(standby.database.address);
    await untilMoved(service);
    const answers = await Promise.all(Array.from({ length: 100 }, () => service.post()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(await missing(standby.sql, answers.map(idOf))).toBe(0);
    await until(async () => (await read(service, token)).status === 200, 'reads go on');
    // The old primary was left by everybody.
    const left = await primary.sql`
      SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'tidemark%'`;
    expect(left.map(({ application_name: name }) => name)).toEqual([]);
  }, 90_000);

  test('of several hosts the one that takes writes is used, before and after the failover', async () => {
    const pair = await startPair();
    opened.push(() => pair.stop());
    const { primary, standby } = pair;
    const { host, password } = primary.database;
    // The standby comes first.
    const url = `postgres://tidemark:${password}@${standby.database.host},${host}/postgres?target_session_attrs=read-write`;
    const database = await openDatabase({ DATABASE_URL: url, DATA_DIR: '' }, captured([]), {
      supervise: false,
    });
    const service = await startTestService({
      config: { CREATE_LIMIT_PER_MINUTE: 0 },
      database: primary.testDatabase,
      reach: async () => database.address,
    });
    opened.push(() => service.stop());
    expect((await service.post()).status).toBe(201);
    await untilCaughtUp(pair);
    await primary.freeze();
    await standby.promote();
    await untilMoved(service);
    await primary.thaw();
    const answers = await Promise.all(Array.from({ length: 100 }, () => service.post()));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(await missing(standby.sql, answers.map(idOf))).toBe(0);
  }, 90_000);
});

describe.runIf(hasFailover)('with a synchronous standby', () => {
  test('a retry that finds its event stored waits for the standby too', async () => {
    const { pair, service } = await scene({ synchronous: true });
    const { primary, standby } = pair;
    expect((await service.post()).status).toBe(201);
    await standby.freeze();
    let isSettled = false;
    const answer = service.post().finally(() => {
      isSettled = true;
    });
    const first = await untilOneWaits(primary);
    await primary.sql`SELECT pg_terminate_backend(${first})`;
    // It has been committed here, and only here; the second one is the retry.
    const second = await untilOneWaits(primary, first);
    expect(second).not.toBe(first);
    expect(isSettled).toBe(false);
    await standby.thaw();
    const { status, body } = await answer;
    expect(status).toBe(201);
    const id = String(JSON.parse(body).eventId);
    await until(async () => (await missing(standby.sql, [id])) === 0, 'the standby has it');
  }, 90_000);
});

/** The backend, other than one, that has committed and waits for the standby. */
async function untilOneWaits({ sql }: ServerPair['primary'], other = 0): Promise<number> {
  let pid = 0;
  await until(async () => {
    const [row] = await sql<{ pid: number }[]>`
      SELECT pid FROM pg_stat_activity
       WHERE wait_event = 'SyncRep' AND pid <> ${other} AND application_name LIKE 'tidemark writer%'`;
    pid = row?.pid ?? 0;
    return pid !== 0;
  }, 'a commit waits for the standby');
  return pid;
}
