/** cluster: CPU of an event on one server, and in a Citus cluster by the number of nodes. */
import pino from 'pino';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { poolOnNode } from '../../src/storage/connect.ts';
import type { DataNode } from '../../src/storage/nodes.ts';
import { openStorage } from '../../src/storage/storage.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import { connectionsTo } from '../../src/storage/write/copy-connection.ts';
import { type GroupWriter, openWriter } from '../../src/storage/write/routed-writer.ts';
import { SMALL_PAYLOAD_BYTES } from '../contenders.ts';
import type { Findings } from '../findings.ts';
import type { Installation } from '../installation.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../ledger.ts';
import { cpuOfFamily } from '../process-usage.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { postmasterOf, type Workbench } from '../workbench.ts';

const APPS_OF_NODE = 10;
/** Groups of one server, or of each node. */
const GROUP = 500;
const SETTINGS = { CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: 0, RETENTION_DAYS: 0 };
const PAYLOAD = JSON.stringify({ text: 'x'.repeat(SMALL_PAYLOAD_BYTES - 11) });

interface App {
  readonly id: number;
  readonly typeId: number;
}

/** A way of writing, with its apps. */
interface Way {
  readonly name: string;
  readonly writer: GroupWriter;
  readonly apps: readonly App[];
  /** Events of one call of the writer. */
  readonly group: number;
  /** CPU of all servers so far, in milliseconds. */
  readonly cpu: () => number;
  written: number;
  readonly micros: number[];
}

const newId = createEventIds();

async function round(way: Way, events: number): Promise<void> {
  const { writer, apps, group, cpu } = way;
  const before = cpu();
  const calls = Math.ceil(events / group);
  for (let call = 0; call < calls; call += 1) {
    const createdAt = Date.now();
    const batch = Array.from({ length: group }, (_, at): AcceptedEvent => {
      const { id: appId, typeId } = apps[at % apps.length] ?? { id: 0, typeId: 0 };
      const source = { appId: '', typeId: '', typeName: '' };
      return { id: newId(createdAt), appId, typeId, createdAt, payload: PAYLOAD, source };
    });
    const outcomes = await writer.write(batch);
    way.written += outcomes.filter((outcome) => outcome === null).length;
  }
  way.micros.push(((cpu() - before) * 1_000) / (calls * group));
}

/** Apps with a type, on each of some nodes; null: of one server. */
async function makeApps(
  { sql, makeApp }: Pick<Installation, 'sql' | 'makeApp'>,
  nodeOf: (appId: number) => DataNode | null,
  nodes: readonly (DataNode | null)[],
): Promise<App[]> {
  const found = new Map<DataNode | null, App[]>(nodes.map((node) => [node, []]));
  while ([...found.values()].some((apps) => apps.length < APPS_OF_NODE)) {
    const app = await makeApp('cluster');
    const [type] = await sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app.id}`;
    const apps = found.get(nodeOf(app.id));
    if (apps !== undefined && apps.length < APPS_OF_NODE) apps.push({ id: app.id, typeId: type?.id ?? 0 });
  }
  // One of each node after the other.
  return Array.from({ length: APPS_OF_NODE }, (_, at) =>
    [...found.values()].flatMap((apps) => apps[at] ?? []),
  ).flat();
}

/** The ways of a cluster: routed over one, two and four nodes, with whole groups and with split ones, and by the coordinator. */
async function clusterWays(bench: Workbench, installation: Installation): Promise<Way[]> {
  const { sql, address } = installation;
  const storage = await openStorage(sql);
  const nodes = storage.nodesAt(address);
  if (nodes === null) throw new Error('CITUS_URL is no cluster.');
  await storage.maintenance({ sql, slow: sql }, SETTINGS, Date.now).prepare();
  await nodes.ready();
  const all = nodes.names.map((name): DataNode => {
    const [host = '', port = ''] = name.split(/:(?=\d+$)/);
    return { name, host, port: Number(port) };
  });
  const postmasters = await Promise.all([sql, ...all.map((node) => poolOnNode(sql, node))].map(postmasterOf));
  const cpu = (): number => postmasters.reduce((sum, pid) => sum + cpuOfFamily(pid), 0);
  const open = (routed: boolean): GroupWriter => {
    const writer = openWriter({
      ...{ connect: connectionsTo(address), nodes: routed ? nodes : null, engine: 'citus', connections: 2 },
      ...{ log: pino({ level: 'silent' }), now: () => performance.now() },
    });
    bench.keep({ stop: () => writer.close() });
    return writer;
  };
  const writer = open(true);
  const nodeOf = (appId: number): DataNode | null =>
    all.find(({ name }) => name === nodes.nodeOf(appId)?.name) ?? null;
  const ways: Way[] = [];
  const add = (name: string, over: GroupWriter, apps: readonly App[], group: number): void => {
    ways.push({ name, writer: over, apps, group, cpu, written: 0, micros: [] });
  };
  for (const count of [1, 2, 4].filter((number) => number <= all.length)) {
    const makeApp = (name: string) => installation.makeApp(name);
    const apps = await makeApps({ sql, makeApp }, nodeOf, all.slice(0, count));
    const on = `${count} ${count === 1 ? 'node' : 'nodes'}`;
    add(`${on}, groups of ${GROUP} for each`, writer, apps, GROUP * count);
    if (count > 1) add(`${on}, groups of ${GROUP} split`, writer, apps, GROUP);
    else add(`${on}, groups of ${GROUP / 2}`, writer, apps, GROUP / 2);
    if (count === 2) add(`${on}, by the coordinator`, open(false), apps, GROUP);
  }
  return ways;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const url = process.env.CITUS_URL;
  if (url === undefined) {
    findings.note('Skipped: CITUS_URL names no empty database of a Citus cluster on this machine.');
    return;
  }
  const { installation } = bench;
  const server = await openStorage(installation.sql);
  await server.maintenance({ sql: installation.sql, slow: installation.sql }, SETTINGS, Date.now).prepare();
  const writer = openWriter({
    ...{ connect: connectionsTo(installation.address), nodes: null, engine: server.engine, connections: 2 },
    ...{ log: pino({ level: 'silent' }), now: () => performance.now() },
  });
  bench.keep({ stop: () => writer.close() });
  const makeApp = (name: string) => installation.makeApp(name);
  const one: Way = {
    ...{ name: 'one server', writer, group: GROUP, cpu: () => bench.databaseCpu(), written: 0, micros: [] },
    apps: await makeApps({ sql: installation.sql, makeApp }, () => null, [null]),
  };
  const cluster = await bench.openInstallation(url);
  const ways = [one, ...(await clusterWays(bench, cluster))];
  const rounds = byLength(options, { full: 7, quick: 3, guard: 3, smoke: 1 });
  const events = byLength(options, { full: 100_000, quick: 20_000, guard: 20_000, smoke: 5_000 });
  for (let at = 0; at <= rounds; at += 1) {
    for (const way of ways) {
      // What it costs is so much more that a tenth is enough.
      await round(way, way.name.endsWith('coordinator') ? events / 10 : events);
      // The first one warms up.
      if (at === 0) way.micros.length = 0;
    }
  }
  for (const { name, micros, apps, written } of ways) {
    findings.figure(`${name}: CPU of an event`, 'µs', micros);
    if (name !== one.name) findings.ratio(`${name} to one server`, pairwise(micros, one.micros));
    const ids = apps.map(({ id }) => id);
    const { events: stored } = await sumOfTable(
      (name === one.name ? installation : cluster).sql,
      'events',
      ids,
    );
    findings.check(`${name}: what was committed is stored`, stored >= written, `${stored} of ${written}`);
  }
  const [single, ...others] = ways.filter(({ name }) => name.endsWith('for each'));
  for (const { name, micros } of others)
    findings.ratio(`${name} to one node`, pairwise(micros, single?.micros ?? []), { atMost: 1.1 });
}

export const CLUSTER: Scenario = {
  name: 'cluster',
  about: 'CPU of an event in a Citus cluster, by the number of nodes and the size of groups (CITUS_URL).',
  run,
};
