/** Servers that run and would lose what is written to them: what their engine needs is not loaded, or switched off. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { TestCitus } from '../../support/citus.ts';
import type { TestDatabase } from '../../support/database.ts';
import { hasCitus } from '../../support/engine-homes.ts';

import { Ledger } from '../../support/ledger.ts';
import { RestartablePostgres } from '../../support/restartable-postgres.ts';
import { startTestService, type TestService, until } from '../../support/service.ts';
import { hasTimescale, TIMESCALE } from '../../support/timescale-home.ts';

const NOTHING_WRONG = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

async function readyz(service: TestService): Promise<{ status: number; body: Record<string, unknown> }> {
  const { status, body } = await service.request({ path: '/readyz' });
  return { status, body: JSON.parse(body) };
}

describe.runIf(hasTimescale)('TimescaleDB', () => {
  let server: RestartablePostgres;
  let sql: Sql;
  let database: TestDatabase;
  beforeAll(async () => {
    server = await RestartablePostgres.make({}, TIMESCALE);
    sql = connect(server.address, { connections: 4, name: 'test' });
    const storage = await openStorage(sql);
    expect(storage.engine).toBe('timescale');
    await storage.migrate(sql);
    database = {
      engine: 'timescale',
      sql,
      address: server.address,
      url: server.url,
      drop: async () => undefined,
    };
  });
  afterAll(async () => {
    await sql?.end();
    await server?.stop();
  });

  let service: TestService;
  let ledger: Ledger;
  beforeEach(async () => {
    await sql`TRUNCATE events`;
    service = await startTestService({ database, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
    ledger = new Ledger({
      loggingToken: service.app.loggingToken,
      typeName: `made ${Math.random()}`,
      port: () => service.port,
    });
    ledger.start(4);
    await acknowledged(50);
  });
  afterEach(async () => {
    await ledger?.stop();
    await service?.stop();
  });

  async function acknowledged(more: number): Promise<void> {
    const before = ledger.acknowledged;
    await until(() => ledger.acknowledged > before + more, 'events are acknowledged');
  }

  /** What the service says of its database, once it does not use it. */
  async function refusal(): Promise<{ details: unknown; metrics: string; log: string }> {
    await until(async () => (await readyz(service)).status === 503, 'the server is refused');
    await until(() => service.log.some(({ problem }) => problem === 'unfit'), 'the log says so');
    return {
      details: (await readyz(service)).body.details,
      metrics: (await service.request({ path: '/metrics' })).body,
      log: String(service.log.find(({ problem }) => problem === 'unfit')?.msg),
    };
  }

  /** Does something after which the server must not be used, then something after which it can: nothing is lost meanwhile. */
  async function survives(
    break_: () => Promise<unknown>,
    repair: () => Promise<unknown>,
    reason: RegExp,
  ): Promise<void> {
    try {
      await break_();
      const said = await refusal();
      expect(said.details).toContain('would lose what is written to it');
      expect(said.log).toMatch(reason);
      expect(said.metrics).toMatch(/^tidemark_database_server_refused\{.*reason="unfit"\} 1$/m);
      expect((await service.post()).status).toBe(503);
      // A start, and every command, say the same.
      const fresh = connect(server.address, { connections: 1, name: 'test' });
      await expect(openStorage(fresh).finally(() => fresh.end())).rejects.toThrow(reason);
    } finally {
      await repair();
    }
    await until(async () => (await readyz(service)).status === 200, 'the server is used again');
    await acknowledged(50);
    await ledger.stop();
    expect(await ledger.compare(sql)).toEqual(NOTHING_WRONG);
  }

  const restart = async (options = ''): Promise<void> => {
    await server.kill();
    await server.start(options);
  };
  const alterSystem = async (statement: string): Promise<void> => {
    await sql.unsafe(`ALTER SYSTEM ${statement}`);
    await sql`SELECT pg_reload_conf()`;
  };

  test('restarts without its library', () =>
    survives(
      () => restart('-c shared_preload_libraries='),
      () => restart(),
      /timescaledb.*is (not loaded|installed but not in shared_preload_libraries)/i,
    ));

  test('restarts with its library switched off', () =>
    survives(
      () => restart('-c timescaledb.disable_load=on'),
      () => restart(),
      /timescaledb is not loaded/,
    ));

  test('is left restoring, for new sessions', () =>
    survives(
      () => sql`SELECT timescaledb_pre_restore()`,
      () => sql`SELECT timescaledb_post_restore()`,
      /timescaledb.restoring is on/,
    ));

  test('is left restoring, for all sessions', () =>
    survives(
      () => alterSystem('SET timescaledb.restoring = on'),
      () => alterSystem('RESET timescaledb.restoring'),
      /timescaledb.restoring is on/,
    ));

  test('takes no row from a session that is open already, from the moment on that it is left restoring', async () => {
    const open = connect(server.address, { connections: 1, name: 'open session' });
    try {
      await open`SELECT 1`;
      await open`SET timescaledb.restoring = on`;
      const row = open`
        INSERT INTO events (id, app_id, type_id, created_at, payload) VALUES (gen_random_uuid(), 1, 1, now(), '{}')`;
      await expect(row).rejects.toMatchObject({ code: '25006' });
      await expect(open`COPY events FROM PROGRAM 'true'`).rejects.toMatchObject({ code: '25006' });
    } finally {
      await open.end();
    }
  });

  test('has its triggers switched off', () =>
    survives(
      () => sql`ALTER ROLE CURRENT_USER SET session_replication_role = replica`,
      () => sql`ALTER ROLE CURRENT_USER RESET session_replication_role`,
      /session_replication_role is replica/,
    ));

  test('has a chunk that a crash would empty', async () => {
    const [chunk] = await sql<
      { name: string }[]
    >`SELECT chunk::text AS name FROM show_chunks('events') AS chunk`;
    await survives(
      () => sql.unsafe(`ALTER TABLE ${chunk?.name} SET UNLOGGED`),
      () => sql.unsafe(`ALTER TABLE ${chunk?.name} SET LOGGED`),
      /a crash would empty what is not logged: .*_hyper_1/,
    );
  });

  test('has lost the unique key of events', () =>
    survives(
      () => sql`ALTER TABLE events DROP CONSTRAINT events_key`,
      () => sql`ALTER TABLE events ADD CONSTRAINT events_key UNIQUE (app_id, created_at, id)`,
      /the unique key of events is gone/,
    ));

  test('restarts without fsync', async () => {
    await restart('-c fsync=off');
    expect((await refusal()).log).toMatch(/fsync was switched off/);
    await restart();
    await acknowledged(50);
    await ledger.stop();
    expect(await ledger.compare(sql)).toEqual(NOTHING_WRONG);
  });
});

describe.runIf(hasCitus)('a worker of Citus', () => {
  let cluster: TestCitus;
  let database: TestDatabase;
  let service: TestService;
  let ledger: Ledger;
  /** The worker of the ledger's app. */
  let worker: RestartablePostgres;
  let name: string;
  beforeAll(async () => {
    cluster = await TestCitus.start();
    database = await cluster.database();
  });
  afterAll(async () => {
    await database?.drop();
    await cluster?.stop();
  });

  beforeEach(async () => {
    await database.sql`TRUNCATE events, count_deltas, minute_counts, quarter_hour_counts, hour_counts, day_counts`;
    service = await startTestService({ database, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
    const { loggingToken } = service.app;
    ledger = new Ledger({ loggingToken, typeName: `made ${Math.random()}`, port: () => service.port });
    ledger.start(4);
    worker = await workerOf(service.app.appId);
    name = `127.0.0.1:${worker.port}`;
    await acknowledged(50);
  });
  afterEach(async () => {
    await ledger?.stop();
    await service?.stop();
  });

  async function workerOf(appId: string): Promise<RestartablePostgres> {
    const [place] = await database.sql<{ port: number }[]>`
      SELECT nodeport AS port
        FROM apps JOIN pg_dist_placement ON shardid = get_shard_id_for_distribution_column('events', apps.id)
        JOIN pg_dist_node USING (groupid) WHERE public_id = ${appId}`;
    const found = cluster.workers.find(({ port }) => port === place?.port);
    if (found === undefined) throw new Error('The app is on no worker.');
    return found;
  }

  async function acknowledged(more: number): Promise<void> {
    const before = ledger.acknowledged;
    await until(() => ledger.acknowledged > before + more, 'events are acknowledged');
  }

  const nodesAway = async (): Promise<unknown> => (await readyz(service)).body.nodesAway;

  test('restarts without its library', async () => {
    await worker.kill();
    await worker.start('-c shared_preload_libraries=');
    await until(() => service.log.some(({ problem }) => problem === 'unfit'), 'it is refused');
    await until(async () => Array.isArray(await nodesAway()), 'it is named');
    expect(await readyz(service)).toMatchObject({ status: 200, body: { nodesAway: [name] } });
    expect(service.log.find(({ problem }) => problem === 'unfit')).toMatchObject({ server: name });
    const { body } = await service.request({ path: '/metrics' });
    expect(body).toContain(`tidemark_database_server_refused{server="${name}",reason="unfit"} 1\n`);
    expect((await service.post()).status).toBe(503);
    await worker.kill();
    await worker.start();
    await until(async () => (await nodesAway()) === undefined, 'it is used again');
    await acknowledged(50);
    await ledger.stop();
    expect(await ledger.compare(database.sql)).toEqual(NOTHING_WRONG);
  });

  test('comes back with older data', async () => {
    await worker.kill();
    const putBack = await worker.snapshot();
    await worker.start();
    await until(async () => (await nodesAway()) === undefined, 'it is used again');
    await acknowledged(50);
    const sql = connect(
      { url: worker.urlOf(new URL(database.url).pathname.slice(1)) },
      { connections: 1, name: 'test' },
    );
    await probes(sql, 'tidemark node probe').finally(() => sql.end());
    await worker.kill();
    await putBack();
    await worker.start();
    await until(() => service.log.some(({ problem }) => problem === 'behind'), 'it is refused');
    expect(service.log.find(({ problem }) => problem === 'behind')).toMatchObject({ server: name });
    await until(async () => Array.isArray(await nodesAway()), 'it is named');
    expect(await readyz(service)).toMatchObject({ status: 200, body: { nodesAway: [name] } });
    expect((await service.post()).status).toBe(503);
  });
});

/** Waits until a server has been asked often enough for what it had before to be known as durable. */
async function probes(sql: Sql, name: string): Promise<void> {
  const seen = new Set<string>();
  await until(async () => {
    const rows = await sql<{ at: string }[]>`
      SELECT query_start::text AS at FROM pg_stat_activity WHERE application_name = ${name}`;
    for (const { at } of rows) seen.add(at);
    return seen.size > 3;
  }, 'it is probed');
}

describe('one server', () => {
  test('that comes back with older data is not used, and is after a restart', async () => {
    const server = await RestartablePostgres.make();
    const sql = connect(server.address, { connections: 2, name: 'test' });
    const database = { engine: 'postgres', sql, address: server.address, url: server.url } as const;
    const options = { database: { ...database, drop: async () => undefined } };
    try {
      const storage = await openStorage(sql);
      await storage.migrate(sql);
      const service = await startTestService(options);
      try {
        expect((await service.post()).status).toBe(201);
        await server.kill();
        const putBack = await server.snapshot();
        await server.start();
        await until(async () => (await service.post()).status === 201, 'it is used again');
        await probes(sql, 'tidemark probe');
        // A crash alone loses nothing.
        await server.kill();
        await server.start();
        await until(async () => (await service.post()).status === 201, 'it is used again');
        await probes(sql, 'tidemark probe');
        await server.kill();
        await putBack();
        await server.start();
        await until(() => service.log.some(({ problem }) => problem === 'behind'), 'it is refused');
        const { status, body } = await readyz(service);
        expect(status).toBe(503);
        expect(body.details).toContain('come back with older data');
        expect((await service.post()).status).toBe(503);
      } finally {
        await service.stop();
      }
      const later = await startTestService(options);
      expect((await later.post()).status).toBe(201);
      await later.stop();
    } finally {
      await sql.end();
      await server.stop();
    }
  });
});
