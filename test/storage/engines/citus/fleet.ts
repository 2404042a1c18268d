/** Many apps offered at their limits to several processes on one cluster, of which a worker is killed in the middle. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../../../src/apps/apps.ts';
import { createEventType } from '../../../../src/apps/event-types.ts';
import { createResourceToken } from '../../../../src/apps/resource-tokens.ts';
import type { Sql } from '../../../../src/storage/database/connect.ts';
import { ServerProcess } from '../../../e2e/server-process.ts';
import type { TestCitus } from '../../../support/citus.ts';
import { build } from '../../../support/command-line.ts';
import type { TestDatabase } from '../../../support/database.ts';
import { HttpConnection, request } from '../../../support/http-client.ts';
import { TestRedis } from '../../../support/redis.ts';
import { REDIS_SERVER } from '../../../support/redis-server.ts';
import { CREATE_EVENT, testSecret, until } from '../../../support/service.ts';

const APPS = 300;
/** Accepted events of an app in any 60 seconds, whichever processes take them. */
const LIMIT = 30;
const WINDOW_MS = 60_000;
/** Redis decides a little before the service dates an event. */
const TOLERANCE_MS = 1_000;
const PROCESSES = 2;
/** Of producers to each process. */
const CONNECTIONS = 32;
/** Apps of each node whose reads are compared with what their producers were told. */
const SAMPLED = 5;
const PAGE = 20;

interface FleetApp {
  /** Internal. */
  readonly id: number;
  readonly appId: string;
  readonly loggingToken: string;
  readonly typeId: string;
  /** The port of its worker. */
  readonly node: number;
}

/** What a producer was told of an event. */
interface Told {
  readonly app: FleetApp;
  readonly port: number;
  readonly status: number;
  readonly code: string;
  /** Null where it was not acknowledged. */
  readonly eventId: string | null;
}

interface StoredRow {
  readonly id: string;
  readonly appId: number;
  readonly key: string;
  readonly createdAt: Date;
}

/** The producers of all apps, and what they were told. */
class Fleet {
  readonly apps: readonly FleetApp[];
  readonly ports: readonly number[];
  readonly told = new Map<string, Told>();
  #events = 0;

  constructor(apps: readonly FleetApp[], ports: readonly number[]) {
    this.apps = apps;
    this.ports = ports;
  }

  /** Some events of each app, the processes in turns. */
  async rounds(rounds: number): Promise<void> {
    const queues = this.ports.map((_, process) =>
      Array.from({ length: rounds }, (__, round) =>
        this.apps.filter((___, at) => (at + round) % this.ports.length === process),
      ).flat(),
    );
    await this.#share(queues, async (connection, port, app) => {
      await this.#post(connection, port, app);
    });
  }

  /** As many events of each app to each process as it takes until it refuses one for the limit. */
  async untilRefused(): Promise<void> {
    const queues = this.ports.map(() => [...this.apps]);
    await this.#share(queues, async (connection, port, app) => {
      while ((await this.#post(connection, port, app)) !== 429);
    });
  }

  /** Works through the queue of each process, on several connections. */
  async #share(
    queues: readonly (readonly FleetApp[])[],
    work: (connection: HttpConnection, port: number, app: FleetApp) => Promise<void>,
  ): Promise<void> {
    const producers = this.ports.flatMap((port, process) => {
      const queue = (queues[process] ?? []).values();
      return Array.from({ length: CONNECTIONS }, async () => {
        const connection = await HttpConnection.open(port);
        for (const app of queue) await work(connection, port, app);
        connection.destroy();
      });
    });
    await Promise.all(producers);
  }

  async #post(connection: HttpConnection, port: number, app: FleetApp): Promise<number> {
    this.#events += 1;
    const key = String(this.#events);
    const { loggingToken, typeId } = app;
    const body = JSON.stringify({ loggingToken, typeId, payload: { key, filler: 'x'.repeat(100) } });
    await connection.send({ method: 'POST', path: CREATE_EVENT, body });
    const { status, body: text } = await connection.response();
    const { eventId, code = '' }: { eventId?: string; code?: string } = JSON.parse(text);
    this.told.set(key, { app, port, status, code, eventId: eventId ?? null });
    return status;
  }

  /** What is stored is what was acknowledged, under the same ids, and nothing is there twice. */
  expectExact(rows: readonly StoredRow[]): void {
    const stored = new Map(rows.map((row) => [row.key, row]));
    expect(stored.size).toBe(rows.length);
    const acknowledged = [...this.told].filter(([, { status }]) => status === 201);
    const wrong = acknowledged.filter(([key, { app, eventId }]) => {
      const row = stored.get(key);
      return row?.id !== eventId || row?.appId !== app.id;
    });
    expect(wrong).toEqual([]);
    const unasked = rows.filter(({ key }) => {
      const told = this.told.get(key);
      return told?.status !== 201 && told?.code !== 'OUTCOME_UNKNOWN';
    });
    expect(unasked).toEqual([]);
  }
}

/** An app's rows of more than its limit within a minute. */
function overLimit(rows: readonly StoredRow[]): number {
  const times = rows.map(({ createdAt }) => createdAt.getTime()).sort((a, b) => a - b);
  return times.filter((time, at) => time - (times[at - LIMIT] ?? -Infinity) < WINDOW_MS - TOLERANCE_MS)
    .length;
}

async function makeApps(sql: Sql): Promise<FleetApp[]> {
  const secret = await testSecret();
  const apps = await Promise.all(
    Array.from({ length: APPS }, async (_, at) => {
      const { appId, loggingToken } = await createApp(sql, secret, { name: `App ${at}` });
      const { typeId } = await createEventType(sql, { appId, name: 'page viewed', maxTypes: 10 });
      return { appId, loggingToken, typeId };
    }),
  );
  const places = await sql<{ id: number; appId: string; node: number }[]>`
    SELECT apps.id, public_id AS "appId", nodeport AS node
      FROM apps JOIN pg_dist_placement ON shardid = get_shard_id_for_distribution_column('events', apps.id)
      JOIN pg_dist_node USING (groupid)`;
  const placeOf = new Map(places.map((place) => [place.appId, place]));
  return apps.map((app) => ({ id: 0, node: 0, ...placeOf.get(app.appId), ...app }));
}

async function nodesAway(port: number): Promise<readonly string[]> {
  const { body } = await request(port, { path: '/readyz' });
  return JSON.parse(body).nodesAway ?? [];
}

/** The values of a metric, by the value of its label; '' where it has none. */
async function metricOf(port: number, name: string): Promise<Map<string, number>> {
  const { body } = await request(port, { path: '/metrics' });
  const lines = [...body.matchAll(new RegExp(`^${name}(?:\\{\\w+="(.*)"\\})? (\\S+)$`, 'gm'))];
  return new Map(lines.map(([, label = '', value]) => [label, Number(value)]));
}

interface ReadPage {
  readonly events: readonly { readonly id: string }[];
  readonly pagination: { readonly total: number };
}

/** @param cluster with two workers */
export function fleetOnCluster(cluster: () => TestCitus): void {
  describe.skipIf(REDIS_SERVER === undefined)('a fleet of apps at their limits, by two processes,', () => {
    let redis: TestRedis;
    let database: TestDatabase;
    let apps: readonly FleetApp[];
    let servers: readonly ServerProcess[] = [];
    let fleet: Fleet;

    beforeAll(async () => {
      build();
      redis = await TestRedis.start();
      database = await cluster().database();
      apps = await makeApps(database.sql);
      const settings = {
        DATABASE_URL: database.url,
        SECRET: 'the secret of the tests, 32 characters',
        REDIS_URL: redis.url,
        // The machine is busy with other tests.
        REDIS_TIMEOUT_MS: '5000',
        CREATE_LIMIT_PER_MINUTE: String(LIMIT),
        READ_LIMIT_PER_MINUTE: '0',
        COMMIT_CONNECTIONS: '2',
        READ_CONNECTIONS: '2',
      };
      servers = await Promise.all(Array.from({ length: PROCESSES }, () => ServerProcess.start(settings)));
      const ports = servers.map(({ port }) => port);
      for (const port of ports)
        await until(
          async () => (await metricOf(port, 'tidemark_limits_shared')).get('') === 1,
          'limits are shared',
        );
      fleet = new Fleet(apps, ports);
    });
    afterAll(async () => {
      for (const server of servers) await server.end('SIGTERM');
      await database?.drop();
      await redis?.remove();
    });

    const everywhere = (condition: (port: number) => Promise<boolean>) => async (): Promise<boolean> =>
      (await Promise.all(fleet.ports.map(condition))).every((holds) => holds);

    const read = async <T>(
      port: number,
      path: string,
      token: string,
    ): Promise<{ status: number; data: T }> => {
      const { status, body } = await request(port, { path, headers: { Authorization: `Bearer ${token}` } });
      return { status, data: JSON.parse(body).data };
    };

    test('acknowledges what it stores and no more than the limits of all, and a worker that is killed disturbs its apps alone', async () => {
      const [worker] = cluster().workers;
      if (worker === undefined) throw new Error('There is no worker.');
      const [theirs, others] = [
        apps.filter(({ node }) => node === worker.port),
        apps.filter(({ node }) => node !== worker.port),
      ];
      const sampled = [...theirs.slice(0, SAMPLED), ...others.slice(0, SAMPLED)];
      expect(sampled).toHaveLength(2 * SAMPLED);
      const { resourceToken } = await createResourceToken(database.sql, {
        ...{ name: 'fleet', appIds: sampled.map(({ appId }) => appId), expiresInSeconds: null },
      });
      const pageOf = (port: number, { appId }: FleetApp, offset = 0) =>
        read<ReadPage>(
          port,
          `/public/get_events?appId=${appId}&limit=${PAGE}&offset=${offset}`,
          resourceToken,
        );

      // The worker is killed while they write, and nobody waits for it.
      await fleet.rounds(6);
      const written = fleet.told.size;
      const offered = fleet.rounds(4);
      await until(() => fleet.told.size > written + APPS, 'producers go on');
      await worker.kill();
      await offered;
      await until(
        everywhere(async (port) => (await nodesAway(port)).includes(`127.0.0.1:${worker.port}`)),
        'it counts as away',
      );
      const before = fleet.told.size;
      await fleet.rounds(2);
      const meanwhile = [...fleet.told.values()].slice(before);
      for (const { app, status } of meanwhile) expect(status).toBe(app.node === worker.port ? 503 : 201);
      for (const port of fleet.ports)
        for (const app of sampled)
          expect((await pageOf(port, app)).status).toBe(app.node === worker.port ? 503 : 200);
      await worker.start();
      await until(
        everywhere(async (port) => (await nodesAway(port)).length === 0),
        'it is back',
      );
      await fleet.untilRefused();

      const troubled = [...fleet.told.values()].filter(({ status }) => status !== 201 && status !== 429);
      expect(new Set(troubled.map(({ app }) => app.node))).toEqual(new Set([worker.port]));
      expect(new Set(troubled.map(({ status }) => status))).toEqual(new Set([503]));
      expect(new Set(troubled.map(({ port }) => port))).toEqual(new Set(fleet.ports));

      const rows = [
        ...(await database.sql<StoredRow[]>`
          SELECT id::text, app_id AS "appId", payload ->> 'key' AS key, created_at AS "createdAt" FROM events`),
      ];
      fleet.expectExact(rows);
      const rowsOf = new Map<number, StoredRow[]>();
      for (const row of rows) rowsOf.set(row.appId, [...(rowsOf.get(row.appId) ?? []), row]);
      expect([...rowsOf.values()].reduce((sum, own) => sum + overLimit(own), 0)).toBe(0);
      // Not less either: two processes have used the limit up together.
      expect(others.filter(({ id }) => (rowsOf.get(id)?.length ?? 0) < LIMIT)).toEqual([]);
      for (const port of fleet.ports)
        expect((await metricOf(port, 'tidemark_limits_own_decisions_total')).get('')).toBe(0);

      const counts = await database.sql<{ id: number; count: number }[]>`
        SELECT app_id AS id, sum(count)::float8 AS count FROM events_per_day WHERE type_id = 0 GROUP BY app_id`;
      expect(new Map(counts.map(({ id, count }) => [id, count]))).toEqual(
        new Map([...rowsOf].map(([id, own]) => [id, own.length])),
      );
      for (const port of fleet.ports)
        for (const app of sampled) {
          const own = (rowsOf.get(app.id) ?? []).map(({ id }) => id).sort();
          const offsets = Array.from({ length: Math.ceil(own.length / PAGE) }, (_, at) => at * PAGE);
          const pages = await Promise.all(offsets.map((offset) => pageOf(port, app, offset)));
          expect(pages.map(({ data }) => data.pagination.total)).toEqual(pages.map(() => own.length));
          const found = pages.flatMap(({ data }) => data.events.map(({ id }) => id));
          expect(found.sort()).toEqual(own);
          const { data } = await read<{ series: readonly { readonly count: number }[] }>(
            ...([port, `/v1/apps/${app.appId}/series`, resourceToken] as const),
          );
          expect(data.series.reduce((sum, { count }) => sum + count, 0)).toBe(own.length);
        }

      // Every commit group went straight to the node of its apps.
      const nodes = cluster().workers.map(({ port }) => `127.0.0.1:${port}`);
      for (const port of fleet.ports) {
        const batches = await metricOf(port, 'tidemark_database_node_batches_total');
        expect(new Set(batches.keys())).toEqual(new Set(nodes));
      }
    });
  });
}
