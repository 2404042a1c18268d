/** A service on a cluster whose workers come, go and fall silent: each disturbs its own apps alone. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect, type DatabaseAddress } from '../../../../src/storage/database/connect.ts';
import { openCopyClient } from '../../../../src/storage/database/copy-client.ts';
import { clusterOf } from '../../../../src/storage/engines/citus/cluster.ts';
import { markAppDeleted } from '../../../../src/storage/maintenance/deleted-apps.ts';
import { openStorage } from '../../../../src/storage/storage.ts';
import { documentedSql, TestCitus } from '../../../support/citus.ts';
import type { TestDatabase } from '../../../support/database.ts';
import { hasCitus } from '../../../support/engine-homes.ts';
import { FaultyProxy } from '../../../support/proxy.ts';
import type { RestartablePostgres } from '../../../support/restartable-postgres.ts';
import { startTestService, type TestApp, type TestService, until } from '../../../support/service.ts';

const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };
const DAY_MS = 86_400_000;
const SCOPE = { typeIds: null, from: null, until: null };

describe.runIf(hasCitus)('a service on a Citus cluster', () => {
  let cluster: TestCitus;
  beforeAll(async () => {
    cluster = await TestCitus.start();
  });
  afterAll(() => cluster.stop());

  test('a worker is added and taken out as documented, while producers write; what the journal held meanwhile is replayed where its app is', async () => {
    const [first, added] = cluster.workers;
    if (first === undefined || added === undefined) throw new Error('There are no two workers.');
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-grow-test-'));
    const database = await cluster.database({ workers: [first], shards: 2 });
    const service = await startTestService({
      database,
      config: { JOURNAL_DIR: folder, CREATE_LIMIT_PER_MINUTE: 0 },
    });
    const name = `127.0.0.1:${added.port}`;
    const run = async (statements: string): Promise<readonly Record<string, unknown>[]> => {
      let rows: readonly Record<string, unknown>[] = [];
      for (const statement of statements.replaceAll("'db-3', 5432", `'127.0.0.1', ${added.port}`).split(';'))
        if (statement.trim() !== '') rows = await database.sql.unsafe(statement);
      return rows;
    };
    const knows = async (): Promise<boolean> =>
      (await service.request({ method: 'GET', path: '/metrics' })).body.includes(
        `tidemark_database_node_up{node="${name}"} 1`,
      );
    const ledger = new Ledger(service, await appsOfTwoShards(service));
    try {
      const [add = '', start = '', state = '', parts = ''] = documentedSql('Add a worker');
      await until(() => ledger.count(201) > 20, 'events are stored');
      await run(add);
      await run(start);
      await until(async () => (await run(state))[0]?.state === 'finished', 'the shards are moved', 60_000);
      expect(await run(parts)).toMatchObject([{ count: '1' }, { count: '1' }]);
      await until(knows, 'the service has followed', 30_000);
      await added.kill();
      await until(
        async () => (service.stats().journal?.waitingEvents ?? 0) > 20,
        'its events wait in the journal',
      );
      await added.start();
      await until(
        async () => service.stats().journal?.waitingEvents === 0,
        'the journal is replayed',
        30_000,
      );
      const [drain = '', remove = ''] = documentedSql('Remove a worker');
      // Connections of the coordinator to a worker that was restarted fail once. Old copies of shards are removed in a second or not at
      // all: a vacuum may just be at one.
      await until(
        () =>
          run(drain).then(
            () => true,
            (error: Error) => {
              if (!/connection|orphaned shard/.test(error.message)) throw error;
              return false;
            },
          ),
        'the worker is drained',
        60_000,
      );
      await until(async () => !(await knows()), 'the service has followed back', 30_000);
      const [{ name: ofDatabase = '' } = {}] = await database.sql<
        { name: string }[]
      >`SELECT current_database() AS name`;
      const onAdded = connect({ url: added.urlOf(ofDatabase) }, { connections: 1, name: 'test worker' });
      await until(
        async () =>
          (
            await onAdded`
            SELECT FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'tidemark node probe'`
          ).length === 0,
        'nobody asks the worker any more',
        30_000,
      );
      await onAdded.end();
      await run(remove);
      const before = ledger.count(201);
      await until(() => ledger.count(201) > before + 20, 'events are stored');
      await ledger.end();
      await until(async () => service.stats().journal?.waitingEvents === 0, 'nothing waits');
      expect(ledger.count(503)).toBe(0);
      await ledger.expectExact();
    } finally {
      await ledger.end();
      await service.stop();
      await database.drop();
      await rm(folder, { recursive: true, force: true });
    }
  });

  describe('the service', () => {
    let database: TestDatabase;
    let service: TestService;
    /** In front of the last worker. */
    let proxy: FaultyProxy;
    const portOf = (worker: { readonly port: number }): number =>
      worker.port === cluster.workers.at(-1)?.port ? portOfAddress(proxy.address) : worker.port;
    beforeAll(async () => {
      proxy = await FaultyProxy.start({ url: cluster.workers.at(-1)?.url ?? '' });
      database = await cluster.database({ portOf });
      service = await startTestService({
        database,
        config: { COMMIT_CONNECTIONS: 2, COMMIT_BUFFER_EVENTS: 64, CREATE_LIMIT_PER_MINUTE: 0 },
      });
    });
    afterAll(async () => {
      await service.stop();
      // Before the database: what is silent holds it.
      await proxy.stop();
      await database.drop();
    });

    test('a worker that is stopped takes its share of the room alone: events of the others are stored before that is noticed', async () => {
      const [worker, other] = cluster.workers;
      if (worker === undefined || other === undefined) throw new Error('There are no two workers.');
      const [here, there] = [await appOn(worker.port, service), await appOn(portOf(other), service)] as const;
      const post = async ({ loggingToken, typeId }: PlacedApp): Promise<number> =>
        (await service.post({ loggingToken, typeId })).status;
      expect([await post(here), await post(there)]).toEqual([201, 201]);
      let isWithout = false;
      // A machine that stands still for seconds may take all the time until the worker counts as away.
      for (let attempt = 1; attempt <= 5 && !isWithout; attempt += 1) {
        await worker.pause();
        try {
          let answered = 0;
          const silent = Array.from({ length: 150 }, () =>
            post(here).then((status) => {
              answered += 1;
              return status;
            }),
          );
          // Those beyond its share are refused at once.
          await until(() => answered >= 80, 'its share is full');
          const waiting = await metric(service, 'tidemark_commit_buffer_events');
          expect(waiting).toBeLessThanOrEqual(64);
          for (let round = 0; round < 3; round += 1)
            expect(await Promise.all(Array.from({ length: 32 }, () => post(there)))).toEqual(
              Array.from({ length: 32 }, () => 201),
            );
          isWithout = answered < silent.length && waiting > 0;
          await worker.resume();
          await Promise.all(silent);
        } finally {
          await worker.resume();
        }
        await until(async () => (await post(here)) === 201, 'its apps are stored again');
      }
      expect(isWithout).toBe(true);
    });

    test.each([
      [
        'killed',
        0,
        (worker: RestartablePostgres) => worker.kill(),
        (worker: RestartablePostgres) => worker.start(),
      ],
      [
        'stopped',
        0,
        (worker: RestartablePostgres) => worker.pause(),
        (worker: RestartablePostgres) => worker.resume(),
      ],
      ['cut off', 1, () => proxy.swallow(), () => proxy.stopSwallowing()],
    ])(
      'a worker that is %s disturbs its own apps alone, and nothing is lost or doubled',
      async (_, at, fail, recover) => {
        const [worker, other] = [cluster.workers[at], cluster.workers[1 - at]];
        if (worker === undefined || other === undefined) throw new Error('There are no two workers.');
        const ledger = new Ledger(service, [
          await appOn(portOf(worker), service),
          await appOn(portOf(other), service),
        ]);
        const name = `127.0.0.1:${portOf(worker)}`;
        await until(() => ledger.count(201) > 20, 'events are stored');
        await fail(worker);
        await until(
          async () => (await readiness(service)).nodesAway?.[0] === name,
          'the worker counts as away',
        );
        const [here, there] = ledger.apps;
        expect(await readiness(service)).toMatchObject({ status: 'ready', nodesAway: [name] });
        const metrics = await service.request({ method: 'GET', path: '/metrics' });
        expect(metrics.body).toContain(`tidemark_database_node_up{node="${name}"} 0`);
        // Many of both at once: none of the other worker's waits or is refused.
        const both = await Promise.all(
          Array.from({ length: 32 }, (__, at) => ledger.post(at % 2 === 0 ? here : there)),
        );
        expect(both).toEqual(both.map((__, at) => (at % 2 === 0 ? 503 : 201)));
        // Reads of the other worker's apps and new apps need nothing of it.
        await service.newApp();
        expect(await ledger.total(there)).toBeGreaterThan(16);
        await recover(worker);
        try {
          await until(async () => (await ledger.post(here)) === 201, 'its apps are stored again', 60_000);
        } finally {
          await ledger.end();
        }
        expect(await readiness(service)).not.toHaveProperty('nodesAway');
        await ledger.expectExact();
      },
    );

    test('a worker that falls silent while a backup takes its snapshots keeps no writers out of the others', async () => {
      const [worker, other] = cluster.workers;
      if (worker === undefined || other === undefined) throw new Error('There are no two workers.');
      const there = await appOn(portOf(other), service);
      const post = async (): Promise<number> =>
        (await service.post({ loggingToken: there.loggingToken, typeId: there.typeId })).status;
      const name = new URL(database.url).pathname.slice(1);
      const node = connect({ url: worker.urlOf(name) }, { connections: 2, name: 'test holder' });
      const client = await openCopyClient(database.address, 'test export');
      const storage = await openStorage(database.sql);
      const isWaiting = async (): Promise<boolean> => {
        const waiting = await node`
          SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
           WHERE NOT granted AND datname = ${name} AND application_name = 'tidemark backup'`;
        return waiting.length > 0;
      };
      // The backup waits for whoever writes on the worker, and keeps writers out of the other one meanwhile.
      await node.begin(async (tx) => {
        await tx`SELECT lock_shard_metadata(5, (SELECT array_agg(shardid) FROM pg_dist_shard))`;
        const outcome = storage
          .beginExport(client, database.sql.pool.database)
          .catch((error: unknown) => error);
        await until(isWaiting, 'the backup waits');
        await worker.pause();
        try {
          await until(async () => (await post()) === 201, 'the other one takes events');
          expect(await outcome).toMatchObject({
            message: `The node 127.0.0.1:${worker.port} of the cluster does not answer: a backup needs all nodes`,
          });
        } finally {
          await worker.resume();
        }
      });
      await Promise.all([client.end(), node.end()]);
      await until(async () => (await readiness(service)).nodesAway === undefined, 'it is back');
    });

    test('maintenance goes on while a worker is away, and does what is due there when it is back', async () => {
      const [worker, other] = cluster.workers;
      if (worker === undefined || other === undefined) throw new Error('There are no two workers.');
      const [here, there] = [await appOn(worker.port, service), await appOn(portOf(other), service)] as const;
      const idOf = async ({ appId }: PlacedApp): Promise<number> => {
        const [app] = await service.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
        return app?.id ?? 0;
      };
      const ids = [await idOf(here), await idOf(there)] as const;
      for (const { loggingToken, typeId } of [here, there])
        expect((await service.post({ loggingToken, typeId })).status).toBe(201);
      // The one whose node is away comes first.
      for (const id of ids) await service.sql.begin((tx) => markAppDeleted(tx, id));
      const eventsOf = async (id: number): Promise<number> =>
        (await service.sql`SELECT FROM events WHERE app_id = ${id}`).length;
      const sql = connect(database.sql.pool.database, { connections: 1, name: 'test maintenance' });
      // It is due a new partition, for which it needs all nodes.
      const tomorrow = (): number => Date.now() + DAY_MS;
      const storage = await openStorage(sql);
      const maintenance = storage.maintenance({ sql, slow: sql }, SETTINGS, tomorrow);
      const partitions = async (): Promise<number> => (await sql`SELECT FROM events_partitions`).length;
      const before = await partitions();
      // As a service does, beside the one that serves.
      const nodes = clusterOf(database.sql.pool.database);
      nodes.start({
        log: pino({ level: 'silent' }),
        now: () => performance.now(),
        onBack: () => undefined,
      });
      const isUnreachable = async (): Promise<boolean> =>
        nodes.unreachable.length > 0 || (await readiness(service)).nodesAway !== undefined;
      await worker.kill();
      try {
        await until(() => nodes.unreachable.length > 0, 'the worker counts as away');
        await maintenance.everySecond();
        expect(await maintenance.everyTenMinutes()).toEqual([]);
        expect(await eventsOf(ids[1])).toBe(0);
        expect(await partitions()).toBe(before);
      } finally {
        await worker.start();
      }
      await until(async () => !(await isUnreachable()), 'it is back');
      // Connections to a worker that was restarted fail once.
      await until(
        () =>
          maintenance.everyTenMinutes().then(
            () => true,
            () => false,
          ),
        'maintenance is done',
      );
      expect(await eventsOf(ids[0])).toBe(0);
      expect(await partitions()).toBe(before + 1);
      await nodes.stop();
      await sql.end();
    });
  });
});

/** Producers of two apps, and what each of their events was told. */
class Ledger {
  readonly apps: readonly [PlacedApp, PlacedApp];
  readonly #service: TestService;
  readonly #told = new Map<string, { readonly status: number; readonly code: string }>();
  readonly #producers: readonly Promise<void>[];
  #isOver = false;
  #events = 0;

  constructor(service: TestService, apps: readonly [PlacedApp, PlacedApp]) {
    this.#service = service;
    this.apps = apps;
    this.#producers = Array.from({ length: 8 }, (_, at) => this.#produce(at % 2 === 0 ? apps[0] : apps[1]));
  }

  count(status: number): number {
    return [...this.#told.values()].filter((told) => told.status === status).length;
  }

  /** @returns the status */
  async post({ loggingToken, typeId }: PlacedApp): Promise<number> {
    this.#events += 1;
    const key = String(this.#events);
    const { status, body } = await this.#service.post({ loggingToken, typeId, payload: { key } });
    const answer: { code?: string } = JSON.parse(body);
    this.#told.set(key, { status, code: answer.code ?? '' });
    return status;
  }

  async #produce(app: PlacedApp): Promise<void> {
    while (!this.#isOver) await this.post(app);
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#producers);
  }

  /** What a reader with connections of its own is told. */
  async total({ appId }: PlacedApp): Promise<number> {
    const { sql } = this.#service;
    const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    const reader = (await openStorage(sql)).reader(sql);
    const scope = { appId: app?.id ?? 0, ...SCOPE };
    return (await reader.page({ scope, offset: 0, limit: 1, order: 'asc', maxBytes: 1_000 })).total;
  }

  /** Each event that was acknowledged is there once, and none of those that were refused. */
  async expectExact(): Promise<void> {
    const { sql } = this.#service;
    const ids = this.apps.map(({ appId }) => appId);
    const apps = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ANY(${ids})`;
    const rows = await sql<{ key: string }[]>`
      SELECT payload ->> 'key' AS key FROM events WHERE app_id = ANY(${apps.map(({ id }) => id)})`;
    const stored = rows.map(({ key }) => key);
    const withStatus = (...codes: string[]): string[] =>
      [...this.#told]
        .filter(([, { status, code }]) => status === 201 || codes.includes(code))
        .map(([key]) => key);
    expect(new Set(stored).size).toBe(stored.length);
    expect(withStatus().filter((key) => !stored.includes(key))).toEqual([]);
    expect(stored.filter((key) => !withStatus('OUTCOME_UNKNOWN').includes(key))).toEqual([]);
  }
}

/** A metric without labels. */
async function metric(service: TestService, name: string): Promise<number> {
  const { body } = await service.request({ method: 'GET', path: '/metrics' });
  return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(body)?.[1]);
}

function portOfAddress(address: DatabaseAddress): number {
  return 'url' in address ? Number(new URL(address.url).port) : address.port;
}

async function readiness(service: TestService): Promise<{ nodesAway?: readonly string[] }> {
  return JSON.parse((await service.request({ method: 'GET', path: '/readyz' })).body);
}

interface PlacedApp extends TestApp {
  readonly typeId: string;
}

/** New apps whose events are in different shards. */
async function appsOfTwoShards(service: TestService): Promise<readonly [PlacedApp, PlacedApp]> {
  const found = new Map<string, PlacedApp>();
  for (;;) {
    const app = await service.newApp();
    const [place] = await service.sql<{ shard: string }[]>`
      SELECT get_shard_id_for_distribution_column('events', id)::text AS shard FROM apps WHERE public_id = ${app.appId}`;
    found.set(place?.shard ?? '', { ...app, ...(await service.newType(app, 'test type')) });
    const [one, other] = [...found.values()];
    if (one !== undefined && other !== undefined) return [one, other];
  }
}

/** A new app whose events are on a worker. */
async function appOn(port: number, service: TestService): Promise<PlacedApp> {
  for (;;) {
    const app = await service.newApp();
    const [place] = await service.sql<{ port: number }[]>`
      SELECT nodeport AS port
        FROM apps JOIN pg_dist_placement ON shardid = get_shard_id_for_distribution_column('events', apps.id)
        JOIN pg_dist_node USING (groupid) WHERE public_id = ${app.appId}`;
    if (place?.port === port) return { ...app, ...(await service.newType(app, 'test type')) };
  }
}
