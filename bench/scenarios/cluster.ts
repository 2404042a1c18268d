/** cluster: what an event and a read cost on one server, and in a Citus cluster by the number of nodes. */
import pino from 'pino';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect, poolOnNode, type Sql } from '../../src/storage/database/connect.ts';
import { connectionsTo } from '../../src/storage/database/copy-connection.ts';
import { ByNode, HOME, type Nodes, oneServer, partsByNode } from '../../src/storage/database/nodes.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import { EventWriter, type Outcomes } from '../../src/storage/write/event-writer.ts';
import type { Findings } from '../findings.ts';
import { pairwise, spreadOf } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import { SMALL_PAYLOAD_BYTES, startForgetfulRedis } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { startCitusServers } from '../servers/citus-servers.ts';
import type { Installation } from '../servers/installation.ts';
import { readMetrics } from '../servers/metrics.ts';
import { cpuOfFamily } from '../servers/process-usage.ts';
import { postmasterOf, type Workbench } from '../servers/workbench.ts';
import { runFleet } from './fleet.ts';

/** Nodes that hold the apps of a way of writing. */
export const NODE_COUNTS = [1, 2, 4] as const;
const MOST_NODES = 4;
/** Without the routing there is a transaction over all nodes; with two it is the cheapest one. */
const NODES_OF_COORDINATOR = 2;
const APPS_OF_NODE = 10;
/** Events of a commit group. */
export const GROUP = 500;
const CPU_GOAL = 1.1;
const READ_GOAL = 1.5;
const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0, CONSUMER_REACH_HOURS: 168 };
const PAYLOAD = JSON.stringify({ text: 'x'.repeat(SMALL_PAYLOAD_BYTES - 11) });

export const ONE_SERVER = 'one server';
export const COORDINATED = `${NODES_OF_COORDINATOR} nodes, by the coordinator`;

/** Each node gets whole groups, as under load; or all nodes share the events of one. */
export function nameOfWay(nodes: number, groups: 'whole' | 'split'): string {
  const on = `${nodes} ${nodes === 1 ? 'node' : 'nodes'}`;
  return groups === 'whole' ? `${on}, groups of ${GROUP}` : `${on}, groups of ${GROUP / nodes}`;
}

interface App {
  readonly id: number;
  readonly typeId: number;
}

/** One server, or a cluster. */
interface Side {
  readonly installation: Installation;
  readonly storage: Storage;
  readonly nodes: Nodes;
  readonly writer: GroupWriter;
  /** A pool of one connection, for maintenance. */
  readonly alone: Sql;
}

/** A way of writing, with its apps. */
/** Writes events of several apps, each on its server. */
interface GroupWriter {
  write(events: readonly AcceptedEvent[]): Promise<Outcomes>;
}

interface Way {
  readonly name: string;
  readonly side: Side;
  readonly writer: GroupWriter;
  readonly apps: readonly App[];
  /** Events of one call of the writer. */
  readonly group: number;
  /** CPU of the servers that it uses so far, in milliseconds. */
  readonly cpu: () => number;
  written: number;
  readonly micros: number[];
}

const newId = createEventIds();
const SOURCE = { appId: '', typeId: '', typeName: '' };

function openWriterOn(
  bench: Workbench,
  side: Pick<Side, 'installation' | 'storage' | 'nodes'>,
  nodes = side.nodes,
): GroupWriter {
  const options = { engine: side.storage.writes, connections: 2, log: pino({ level: 'silent' }) };
  const writers = new ByNode(
    nodes,
    (node) => new EventWriter({ ...options, node, now: () => performance.now() }),
  );
  bench.keep({ stop: () => Promise.all(writers.all.map((writer) => writer.close())) });
  return {
    write: async (events) => {
      const parts = partsByNode(nodes, events);
      return (await Promise.all(parts.map(({ node, units }) => writers.at(node).write(units)))).flat();
    },
  };
}

async function openSide(bench: Workbench, url: string): Promise<Side> {
  const installation = await bench.openInstallation(url);
  const { sql } = installation;
  const storage = await openStorage(sql);
  await storage.maintenance({ sql, slow: sql }, SETTINGS, Date.now).prepare();
  const nodes = storage.nodesOf(sql.pool.database);
  await nodes.ready();
  const alone = connect(sql.pool.database, { connections: 1, name: 'tidemark bench' });
  bench.keep({ stop: () => alone.end() });
  const side = { installation, storage, nodes, alone };
  return { ...side, writer: openWriterOn(bench, side) };
}

/** Folds what was written, as the service does once a second: it is a part of what an event costs. */
async function settle({ storage, alone }: Side): Promise<void> {
  await storage.settleCounts(alone, Date.now());
}

async function round(way: Way, events: number): Promise<void> {
  const { writer, apps, group, cpu, side } = way;
  const before = cpu();
  const calls = Math.ceil(events / group);
  for (let call = 0; call < calls; call += 1) {
    const createdAt = Date.now();
    const batch = Array.from({ length: group }, (_, at): AcceptedEvent => {
      const { id: appId, typeId } = apps[at % apps.length] ?? { id: 0, typeId: 0 };
      return { id: newId(createdAt), appId, typeId, createdAt, payload: PAYLOAD, source: SOURCE };
    });
    const outcomes = await writer.write(batch);
    way.written += outcomes.filter((outcome) => outcome === null).length;
  }
  await settle(side);
  way.micros.push(((cpu() - before) * 1_000) / (calls * group));
}

async function makeApp(installation: Installation, name: string): Promise<App> {
  const { id } = await installation.makeApp(name);
  const [type] = await installation.sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${id}`;
  return { id, typeId: type?.id ?? 0 };
}

/** Apps of each node. */
async function makeApps(
  installation: Installation,
  nodes: Nodes,
  names: readonly string[],
): Promise<readonly (readonly App[])[]> {
  const found = new Map<string, App[]>(names.map((name) => [name, []]));
  while ([...found.values()].some((apps) => apps.length < APPS_OF_NODE)) {
    const app = await makeApp(installation, 'cluster');
    const apps = found.get(nodes.nodeOf(app.id).name);
    if (apps !== undefined && apps.length < APPS_OF_NODE) apps.push(app);
  }
  return [...found.values()];
}

async function postmasters(pools: readonly Sql[]): Promise<() => number> {
  const pids = await Promise.all(pools.map(postmasterOf));
  return () => pids.reduce((sum, pid) => sum + cpuOfFamily(pid), 0);
}

/** Events of some nodes in turns, so that a split group has as many of each. */
function inTurns(apps: readonly (readonly App[])[]): App[] {
  return Array.from({ length: APPS_OF_NODE }, (_, at) => apps.flatMap((own) => own[at] ?? [])).flat();
}

async function waysOf(bench: Workbench, server: Side, cluster: Side): Promise<Way[]> {
  const { nodes, installation } = cluster;
  if (nodes.names.length < MOST_NODES) throw new Error('The cluster has too few nodes.');
  const ways: Way[] = [];
  const add = (way: Omit<Way, 'written' | 'micros'>): void => {
    ways.push({ ...way, written: 0, micros: [] });
  };
  const own = server.installation;
  const few = await Promise.all(Array.from({ length: APPS_OF_NODE }, () => makeApp(own, 'cluster')));
  add({
    ...{ name: ONE_SERVER, side: server, writer: server.writer, apps: few, group: GROUP },
    cpu: await postmasters([own.sql]),
  });
  const names = nodes.names.slice(0, MOST_NODES);
  const apps = await makeApps(installation, nodes, names);
  const coordinator = openWriterOn(bench, cluster, oneServer(connectionsTo(installation.address)));
  for (const count of NODE_COUNTS) {
    const pools = names.slice(0, count).map((name) => poolOnNode(installation.sql, dataNode(name)));
    const shared = { side: cluster, cpu: await postmasters([installation.sql, ...pools]) };
    const routed = { ...shared, writer: cluster.writer, apps: inTurns(apps.slice(0, count)) };
    add({ ...routed, name: nameOfWay(count, 'whole'), group: GROUP * count });
    if (count > 1) add({ ...routed, name: nameOfWay(count, 'split'), group: GROUP });
    if (count === NODES_OF_COORDINATOR)
      add({ ...routed, name: COORDINATED, writer: coordinator, group: GROUP });
  }
  return ways;
}

function dataNode(name: string): { readonly host: string; readonly port: number } {
  const [host = '', port = ''] = name.split(/:(?=\d+$)/);
  return { host, port: Number(port) };
}

async function measureWrites(
  findings: Findings,
  ways: readonly Way[],
  { rounds, events }: { rounds: number; events: number },
): Promise<void> {
  for (let at = 0; at <= rounds; at += 1) {
    for (const way of at % 2 === 0 ? ways : [...ways].reverse()) {
      // What it costs is so much more that a tenth is enough.
      await round(way, way.name === COORDINATED ? events / 10 : events);
      // The first one warms up.
      if (at === 0) way.micros.length = 0;
    }
  }
  const microsOf = (name: string): number[] => ways.find((way) => way.name === name)?.micros ?? [];
  const oneNode = nameOfWay(1, 'whole');
  for (const { name, micros } of ways) {
    findings.figure(`${name}: CPU of an event`, 'µs', micros);
    if (name !== ONE_SERVER)
      findings.ratio(`CPU of an event, ${name} to one server`, pairwise(micros, microsOf(ONE_SERVER)));
  }
  for (const count of NODE_COUNTS.slice(1)) {
    for (const groups of ['whole', 'split'] as const) {
      const name = nameOfWay(count, groups);
      const goal = groups === 'whole' ? ([{ atMost: CPU_GOAL }] as const) : [];
      findings.ratio(
        `CPU of an event, ${name} to ${oneNode}`,
        pairwise(microsOf(name), microsOf(oneNode)),
        ...goal,
      );
    }
  }
}

/** Ways share apps: all that was committed of an app of the cluster is there, whichever way it came. */
async function checkStored(findings: Findings, ways: readonly Way[]): Promise<void> {
  for (const side of new Set(ways.map((way) => way.side))) {
    const own = ways.filter((way) => way.side === side);
    const ids = [...new Set(own.flatMap(({ apps }) => apps.map(({ id }) => id)))];
    const committed = own.reduce((sum, { written }) => sum + written, 0);
    const { events } = await sumOfTable(side.installation.sql, 'events', ids);
    const { engine } = side.storage;
    findings.check(
      `${engine}: what was committed is stored once`,
      events === committed,
      `${events} of ${committed}`,
    );
  }
}

const DAY_MS = 86_400_000;
const READ_DAYS = 20;
/** Events of one call of the writer when an app is filled. */
const FILL_GROUP = 5_000;
const PAGE = { limit: 100, order: 'asc', maxBytes: 1e9 } as const;

/** The reads that are compared, by what a user asks for. */
export const READS = ['page', 'page in the middle', 'total', 'series'] as const;
type Read = (typeof READS)[number];

/** An app that is read, on each side. */
interface Readable {
  readonly name: string;
  readonly reader: EventReader;
  readonly appId: number;
  readonly millis: Map<Read, number[]>;
}

/** The same events into an app of each side, the ids of apps and types apart. */
async function fill(sides: readonly Side[], events: number, end: number): Promise<Readable[]> {
  const apps = await Promise.all(sides.map(({ installation }) => makeApp(installation, 'read')));
  const step = Math.floor((READ_DAYS * DAY_MS) / events);
  for (let from = 0; from < events; from += FILL_GROUP) {
    const group = Array.from({ length: Math.min(FILL_GROUP, events - from) }, (_, at) => {
      const createdAt = end - READ_DAYS * DAY_MS + (from + at) * step;
      return { id: newId(createdAt), createdAt, payload: PAYLOAD, source: SOURCE };
    });
    for (const [at, { writer }] of sides.entries()) {
      const { id: appId, typeId } = apps[at] ?? { id: 0, typeId: 0 };
      const outcomes = await writer.write(group.map((event) => ({ ...event, appId, typeId })));
      if (outcomes.some((outcome) => outcome !== null)) throw new Error('An event was refused.');
    }
  }
  for (const side of sides) {
    await settle(side);
    await side.installation.sql`VACUUM ANALYZE`;
  }
  return sides.map(({ installation, storage }, at) => ({
    name: storage.engine,
    reader: storage.reader(installation.sql),
    appId: apps[at]?.id ?? 0,
    millis: new Map(READS.map((read) => [read, []])),
  }));
}

/** What is read, as text that is the same wherever the same events are. */
async function readOnce(
  { reader, appId }: Readable,
  read: Read,
  { events, end }: { events: number; end: number },
): Promise<string> {
  const all = { appId, typeIds: null, from: null, until: null };
  if (read === 'series') {
    const from = end - READ_DAYS * DAY_MS;
    const series = await reader.series({
      appId,
      typeIds: null,
      from,
      until: end,
      timezone: 'UTC',
      buckets: '1h',
    });
    if (typeof series === 'string') throw new Error(series);
    return JSON.stringify([series.starts, series.all]);
  }
  // Ends inside of a minute: the rows there are counted.
  const within = { from: end - 15.3 * DAY_MS + 12_345, until: end - 3.7 * DAY_MS - 23_456 };
  const scope = read === 'total' ? { ...all, ...within } : all;
  const offset = read === 'page in the middle' ? Math.floor(events / 2) : 0;
  const page = await reader.page({ ...PAGE, ...(read === 'total' && { limit: 1 }), scope, offset });
  return JSON.stringify([page.total, page.events.map(({ id }) => id)]);
}

async function measureReads(
  findings: Findings,
  sides: readonly Side[],
  { rounds, events, calls }: { rounds: number; events: number; calls: number },
): Promise<void> {
  const end = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const readable = await fill(sides, events, end);
  for (const read of READS) {
    const texts = await Promise.all(readable.map((one) => readOnce(one, read, { events, end })));
    findings.check(`${read}: both read the same`, new Set(texts).size === 1, `${texts[0]?.slice(0, 40)} …`);
  }
  for (let at = 0; at <= rounds; at += 1) {
    for (const read of READS) {
      const took = new Map<Readable, number[]>(readable.map((one) => [one, []]));
      // In turns, so that whatever else the machine does meets all alike.
      for (let call = 0; call < calls; call += 1) {
        for (const one of readable) {
          const startedAt = performance.now();
          await readOnce(one, read, { events, end });
          took.get(one)?.push(performance.now() - startedAt);
        }
      }
      if (at > 0) for (const [one, all] of took) one.millis.get(read)?.push(spreadOf(all).median);
    }
  }
  const [server, cluster] = readable;
  for (const read of READS) {
    const of = (one: Readable | undefined): number[] => one?.millis.get(read) ?? [];
    findings.figure(`${ONE_SERVER}: ${read}`, 'ms', of(server));
    findings.figure(`cluster: ${read}`, 'ms', of(cluster));
    findings.ratio(`${read}, cluster to one server`, pairwise(of(cluster), of(server)), {
      atMost: READ_GOAL,
    });
  }
}

/** The service as it runs in production, as two processes, with apps at their limits: on one server, and on the cluster. */
async function measureFleet(
  bench: Workbench,
  findings: Findings,
  sides: readonly Side[],
  { apps: count, seconds }: { apps: number; seconds: number },
): Promise<void> {
  const redis = await startForgetfulRedis(bench);
  if (redis === null) {
    findings.note('Skipped: the fleet, as there is no redis-server for the limits of two processes.');
    return;
  }
  const generator = bench.startGenerator();
  for (const { installation, nodes } of sides) {
    const pools = nodes.names.map((name) => poolOnNode(installation.sql, dataNode(name)));
    const databaseCpu = await postmasters([installation.sql, ...pools]);
    const apps = await installation.makeApps(count, 'fleet');
    const settings = { WORKERS: '2', READ_CONNECTIONS: '1', REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '5000' };
    const service = await bench.startService({ limits: 'kept', installation, settings });
    const { port, pid } = service;
    const name = `fleet on ${nodes.names.length === 0 ? ONE_SERVER : 'the cluster'}`;
    await runFleet(bench, findings, generator, {
      ...{ name, prefix: `${name}: `, sql: installation.sql, apps, seconds, port, pid, databaseCpu },
      serverCpu: () => cpuOfFamily(pid),
    });
    if (nodes.names.length > 0) await checkRouted(findings, name, port, nodes.names);
    await service.stop();
  }
}

/** Every commit group went to a node, and none through the coordinator. */
async function checkRouted(
  findings: Findings,
  name: string,
  port: number,
  nodes: readonly string[],
): Promise<void> {
  // Each process has samples of its own.
  const samples = [...((await readMetrics(port)) ?? [])].filter(([name]) =>
    name.startsWith('tidemark_database_node_batches_total{'),
  );
  const sent = (node: string): number =>
    samples.reduce((sum, [labels, groups]) => sum + (labels.includes(`node="${node}"`) ? groups : 0), 0);
  const seen = [...nodes, HOME].map((node) => `${sent(node)} to ${node}`).join(', ');
  findings.check(
    `${name}: all groups go to the nodes of their apps`,
    nodes.every((node) => sent(node) > 0) && sent(HOME) === 0,
    seen,
  );
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const home = process.env.CITUS_PG_HOME;
  if (home === undefined) {
    findings.note('Skipped: CITUS_PG_HOME names no installation of PostgreSQL with Citus.');
    return;
  }
  const servers = bench.keep(await startCitusServers(home, MOST_NODES));
  const sides = [await openSide(bench, servers.server), await openSide(bench, servers.cluster)] as const;
  for (const { storage } of sides) findings.note(storage.description);
  findings.note(
    `CPU of all processes of the servers that hold the apps, and of the coordinator, with the folding of counts: ${APPS_OF_NODE} apps on each node, two connections to each.`,
  );
  const length = byLength(options, {
    full: { rounds: 7, events: 100_000, calls: 40, stored: 200_000, apps: 600, seconds: 30 },
    quick: { rounds: 3, events: 20_000, calls: 20, stored: 100_000, apps: 300, seconds: 8 },
    smoke: { rounds: 1, events: 5_000, calls: 5, stored: 20_000, apps: 150, seconds: 4 },
  });
  const ways = await waysOf(bench, ...sides);
  await measureWrites(findings, ways, length);
  await checkStored(findings, ways);
  await measureReads(findings, sides, { ...length, events: length.stored });
  await measureFleet(bench, findings, sides, length);
}

export const CLUSTER: Scenario = {
  name: 'cluster',
  about:
    'CPU of an event and latency of reads on one server and in a Citus cluster, by the number of nodes, and a fleet of apps at their limits on both (CITUS_PG_HOME).',
  run,
};
