/** delivery: what consumers and webhooks cost, and how quick they are; alerts by {@link measureAlerts}. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { openSecret, type Secret } from '../../src/apps/secret.ts';
import { IN_FLIGHT } from '../../src/delivery/signed-post.ts';
import { addWebhook } from '../../src/delivery/webhooks.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { openStorage } from '../../src/storage/storage.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { LatencyHistogram } from '../load/latency.ts';
import type { LoadRequest } from '../load/load-job.ts';
import { answersOf, checkStatuses, createRequest, withCost } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { seededApp } from '../servers/seed-events.ts';
import type { Spawned } from '../servers/spawned.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { measureAlerts } from './delivery-alerts.ts';

const EVENT_GOAL = 1.02;
const CATCH_UP_GOAL = 100_000;
const POST_P99_GOAL = 1_500;
/** CPU of a delivery to that of a bare request. */
const DELIVERY_GOAL = 2;
const DEAD_GOAL = 1.1;

const CONSUMERS = 100;
const CONNECTIONS = 256;
const BATCH_EVENTS = 1_000;
const PAGES = [1_000, 10_000];
/** Hexadecimal digits of an id, at its random end, whose sum says whether all events were read once: it stays exact. */
const SUMMED_DIGITS = 7;
/** Events a second that are watched on their way to a receiver. */
const WATCHED_PER_SECOND = 20;
const DEAD = 1_000;
const LIVE = 10;
const POLL_MS = 100;
const MOST_POLLS = 1_200;

interface Scene {
  readonly bench: Workbench;
  readonly findings: Findings;
  readonly store: ConsumerStore;
  readonly secret: Secret;
  readonly service: Spawned;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  const { engine } = await openStorage(bench.sql);
  const { settings } = bench.installation;
  const scene: Scene = {
    ...{ bench, findings },
    store: new ConsumerStore(engine, bench.sql),
    secret: await openSecret({ configured: settings.SECRET ?? '', dataDir: settings.DATA_DIR ?? '' }),
    service: await bench.startService({ limits: 'lifted', settings: { WEBHOOK_ALLOW_PRIVATE: 'true' } }),
  };
  await measureEventCost(scene, options);
  await measureCatchUp(scene, options);
  await measureDelivery(scene, options);
  await measureDeadEndpoints(scene, options);
  await measureAlerts(bench, findings, options);
}

/** A condition of the database that the service brings about. */
async function untilTrue(what: string, isTrue: () => Promise<boolean> | boolean): Promise<void> {
  for (let polls = 0; polls < MOST_POLLS; polls += 1) {
    if (await isTrue()) return;
    await pause(POLL_MS);
  }
  throw new Error(`Waited too long: ${what}.`);
}

function untilFolded({ bench }: Scene): Promise<void> {
  return untilTrue('counts are folded', async () => {
    const [row] = await bench.sql<
      { pending: boolean }[]
    >`SELECT EXISTS (SELECT FROM pending_deltas) AS pending`;
    return row?.pending === false;
  });
}

/** What an event costs, with the folding of its count, without consumers and with a hundred that wait. */
async function measureEventCost(scene: Scene, options: RunOptions): Promise<void> {
  const { bench, findings, store, service } = scene;
  const { seconds, rounds } = byLength(options, {
    full: { seconds: 10, rounds: 6 },
    quick: { seconds: 8, rounds: 4 },
    smoke: { seconds: 2, rounds: 1 },
  });
  findings.note(
    `CPU of an event: limits lifted, ${CONNECTIONS} connections, one app, with the folding of its counts. ${CONSUMERS} consumers wait and read nothing.`,
  );
  const app = await bench.makeApp('consumers');
  const generator = bench.startGenerator();
  const requests = [createRequest(app, SMALL_PAYLOAD_BYTES)];
  const costs: Record<'alone' | 'followed', number[]> = { alone: [], followed: [] };
  const load = () =>
    generator.run({ kind: 'closed', port: service.port, connections: CONNECTIONS, seconds, requests });
  const warm = [await load()];
  const turn = async (which: 'alone' | 'followed'): Promise<void> => {
    if (which === 'followed')
      for (let n = 0; n < CONSUMERS; n += 1)
        await store.add(app.id, { name: `c${n}`, kind: 'consumer', types: [], filter: [], from: 'now' });
    const { result, serverMs, databaseMs } = await withCost(bench, service, async () => {
      const report = await load();
      await untilFolded(scene);
      return report;
    });
    warm.push(result);
    costs[which].push(((serverMs + databaseMs) * 1_000) / answersOf(result));
    await bench.sql`DELETE FROM consumers`;
  };
  for (let round = 0; round < rounds; round += 1)
    for (const which of round % 2 === 0 ? (['alone', 'followed'] as const) : (['followed', 'alone'] as const))
      await turn(which);
  checkStatuses(findings, 'events', warm, [201]);
  findings.figure('CPU of an event, no consumer', 'µs', costs.alone);
  findings.figure(`CPU of an event, ${CONSUMERS} consumers`, 'µs', costs.followed);
  findings.ratio(`CPU of an event, ${CONSUMERS} consumers to none`, pairwise(costs.followed, costs.alone), {
    atMost: EVENT_GOAL,
  });
}

/** A thousand events of about the size of createRequest's. */
function batchRequest({ loggingToken, typeId }: BenchApp): LoadRequest {
  const payload = `{"path":"/articles/1001","referrer":"https://example.org/","user":"u-4711","seconds":42,"text":"${'x'.repeat(90)}"}`;
  const events = Array.from({ length: BATCH_EVENTS }, () => `{"typeId":"${typeId}","payload":${payload}}`);
  return {
    method: 'POST',
    path: '/v1/events',
    headers: { Authorization: `Bearer ${loggingToken}` },
    body: `{"events":[${events.join(',')}]}`,
  };
}

async function storeEvents({ bench, service }: Scene, app: BenchApp, events: number): Promise<void> {
  const request = batchRequest(app);
  for (let stored = 0; stored < events; stored += BATCH_EVENTS) {
    const { method, path, headers, body } = request;
    const answer = await fetch(`http://127.0.0.1:${service.port}${path}`, {
      ...{ method, headers: { ...headers, 'Content-Type': 'application/json' } },
      ...(body !== undefined && { body }),
    });
    if (answer.status !== 200)
      throw new Error(`A batch was answered ${answer.status}: ${await answer.text()}`);
    await answer.arrayBuffer();
  }
  await bench.sql`SELECT 1`;
}

/** How many events a second one consumer reads that has fallen behind: from ticks, and from what was stored before it began. */
async function measureCatchUp(scene: Scene, options: RunOptions): Promise<void> {
  const { bench, findings, store } = scene;
  const events = byLength(options, { full: 1_000_000, quick: 300_000, smoke: 50_000 });
  const app = await bench.makeApp('catch-up');
  const token = await bench.makeResourceToken([app]);
  findings.note(
    `Catch-up: ${events.toLocaleString('en')} events with 190-byte payloads, batches of ${PAGES.join(' and ')}, one client that acknowledges each before it reads the next.`,
  );
  const add = async (kind: string, from: 'now' | 'start'): Promise<void> => {
    for (const page of PAGES)
      await store.add(app.id, { name: `${kind} ${page}`, kind: 'consumer', types: [], filter: [], from });
  };
  await add('catch-up', 'now');
  await storeEvents(scene, app, events);
  await untilFolded(scene);
  await pause(2_000);
  await add('from the start', 'start');
  for (const [kind, page] of PAGES.flatMap((page) => [
    ['catch-up', page] as const,
    ['from the start', page] as const,
  ])) {
    const of = `${kind}, pages of ${page}`;
    await readAll(scene, { app, token, of, name: `${kind} ${page}`, page, events });
  }
  await measureWholeLog(scene, options);
  await bench.sql`DELETE FROM consumers`;
}

/** A consumer that begins with the first of as many events as the scenarios have that read. */
async function measureWholeLog(scene: Scene, options: RunOptions): Promise<void> {
  const { bench, store } = scene;
  const app = await seededApp(bench, options.events);
  const token = await bench.makeResourceToken([app]);
  const [page, name] = [10_000, 'whole log'];
  await store.add(app.id, { name, kind: 'consumer', types: [], filter: [], from: 'start' });
  const of = `from the start of ${app.events.toLocaleString('en')} events, pages of ${page}`;
  await readAll(scene, { app, token, of, name, page, events: app.events });
}

/** Reads a consumer to its end by one client, which acknowledges each batch before it asks for the next. */
async function readAll(
  { bench, findings, service }: Scene,
  reading: {
    readonly app: BenchApp;
    readonly token: string;
    /** Before the names of figures. */
    readonly of: string;
    readonly name: string;
    readonly page: number;
    readonly events: number;
  },
): Promise<void> {
  const { app, token, of, page, events } = reading;
  const name = encodeURIComponent(reading.name);
  const path = `http://127.0.0.1:${service.port}/v1/apps/${app.appId}/consumers/${name}`;
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  const [stored] = await bench.sql<{ sum: number }[]>`
    SELECT sum(('x' || right(id::text, ${SUMMED_DIGITS}::integer))::bit(28)::integer::bigint)::float8 AS sum
      FROM events WHERE app_id = ${app.id}`;
  let read = 0;
  let sum = 0;
  const startedAt = performance.now();
  const { serverMs, databaseMs } = await withCost(bench, service, async () => {
    for (;;) {
      const answer = await fetch(`${path}/events?limit=${page}`, { headers });
      if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`);
      const text = await answer.text();
      // Ids are counted and added up without parsing: the client's time is not the service's.
      for (let at = text.indexOf('{"id":"'); at !== -1; at = text.indexOf('{"id":"', at + 1)) {
        sum += Number.parseInt(text.slice(at + 43 - SUMMED_DIGITS, at + 43), 16);
        read += 1;
      }
      // The shape of the API's description.
      const { lease, position, hasMore } = JSON.parse(
        `{${text.slice(text.lastIndexOf('"position":'), -1)}`,
      ) as {
        lease: string | null;
        position: string;
        hasMore: boolean;
      };
      if (lease !== null) {
        const body = JSON.stringify({ lease, position });
        const acknowledged = await fetch(`${path}/ack`, { method: 'POST', headers, body });
        if (acknowledged.status !== 200) throw new Error(await acknowledged.text());
        await acknowledged.arrayBuffer();
      }
      if (!hasMore) return;
    }
  });
  const rate = (read * 1_000) / (performance.now() - startedAt);
  findings.check(
    `${of}: every event is read once`,
    read === events && sum === stored?.sum,
    `${read} of ${events}, ids ${sum} of ${stored?.sum}`,
  );
  findings.figure(`${of}: server CPU`, 'µs/event', [(serverMs * 1_000) / read]);
  findings.figure(`${of}: database CPU`, 'µs/event', [(databaseMs * 1_000) / read]);
  findings.goal(`${of}: events of one consumer`, '/s', rate, { atLeast: CATCH_UP_GOAL });
}

/** Takes what is posted, and tells when. */
class Receiver {
  readonly #server: Server;
  onMessage: (id: string, path: string) => void = () => undefined;
  received = 0;

  constructor(answer: 'takes' | 'fails' | 'silent') {
    this.#server = createServer((request, response) => {
      request.resume();
      request.once('end', () => {
        this.received += 1;
        this.onMessage(String(request.headers['webhook-id']), request.url ?? '');
        if (answer !== 'silent') response.writeHead(answer === 'takes' ? 204 : 500).end();
      });
    });
    this.#server.on('error', () => undefined);
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<number> {
    this.#server.closeAllConnections();
    this.#server.close();
    return 0;
  }
}

async function hook(
  { bench, store, secret }: Scene,
  app: BenchApp,
  url: string,
  isUnordered = false,
): Promise<string> {
  const config = { MAX_WEBHOOKS_PER_APP: 10_000, WEBHOOK_ALLOW_PRIVATE: true };
  const place = { sql: bench.sql, store, secret, config };
  const { webhookId } = await addWebhook(place, app.id, { url, unordered: isUnordered }, {});
  return webhookId;
}

/** What a delivery costs, one after the other to one receiver, beside a bare request with the same bytes. */
async function measureDelivery(scene: Scene, options: RunOptions): Promise<void> {
  const { bench, findings, service } = scene;
  const events = byLength(options, { full: 40_000, quick: 20_000, smoke: 2_000 });
  findings.note(
    `A delivery: ${events.toLocaleString('en')} events that wait for one webhook, each signed, posted and answered before the next. ` +
      `Bare: a request of node:http with the same bytes on a connection that is kept, ${IN_FLIGHT} at once beside unordered deliveries.`,
  );
  const bare = await bench.startContender('bare-post');
  for (const isUnordered of [false, true]) {
    const name = isUnordered ? 'delivery, unordered' : 'delivery';
    const app = await bench.makeApp(name);
    const receiver = bench.keep(new Receiver('takes'));
    const url = await receiver.listen();
    const webhookId = await hook(scene, app, url, isUnordered);
    await bench.sql`UPDATE webhooks SET state = 'paused' WHERE public_id = ${webhookId}`;
    await storeEvents(scene, app, events);
    await untilFolded(scene);
    await pause(2_000);
    const startedAt = performance.now();
    const { serverMs, databaseMs } = await withCost(bench, service, async () => {
      await bench.sql`UPDATE webhooks SET state = 'active' WHERE public_id = ${webhookId}`;
      await untilTrue('all deliveries', () => receiver.received >= events);
    });
    findings.figure(`${name}: rate`, '/s', [(events * 1_000) / (performance.now() - startedAt)]);
    findings.figure(`${name}: database CPU`, 'µs', [(databaseMs * 1_000) / events]);
    findings.check(
      `${name}: every event is posted once`,
      receiver.received === events,
      `${receiver.received}`,
    );
    const { serverMs: bareMs } = await withCost(bench, bare, async () => {
      const posts = `${new URL(url).port}/${events}/${isUnordered ? IN_FLIGHT : 1}`;
      const answer = await fetch(`http://127.0.0.1:${bare.port}/${posts}`);
      if (answer.status !== 200) throw new Error(await answer.text());
      await answer.text();
    });
    findings.figure(`${name}: server CPU`, 'µs', [(serverMs * 1_000) / events]);
    findings.figure(`${name}: CPU of a bare request`, 'µs', [(bareMs * 1_000) / events]);
    findings.ratio(`${name}: server CPU to that of a bare request`, [serverMs / bareMs], {
      atMost: DELIVERY_GOAL,
    });
    await bench.sql`DELETE FROM webhooks`;
    await bench.sql`DELETE FROM consumers`;
  }
}

/** From the response to an event to its POST, to receivers that live, alone and beside a thousand that are dead. */
async function measureDeadEndpoints(scene: Scene, options: RunOptions): Promise<void> {
  const { bench, findings } = scene;
  const { seconds, rounds } = byLength(options, {
    full: { seconds: 60, rounds: 1 },
    quick: { seconds: 40, rounds: 1 },
    smoke: { seconds: 5, rounds: 1 },
  });
  findings.note(
    `Commit to POST: ${WATCHED_PER_SECOND} events a second of ${LIVE} apps with a webhook each, from the response of the event on. ` +
      `Dead: ${DEAD} more webhooks of the same apps, a third of them silent, a third closed, a third answering 500, from their first event on.`,
  );
  const live = bench.keep(new Receiver('takes'));
  const liveUrl = await live.listen();
  const apps = await bench.makeApps(LIVE, 'webhooks');
  for (const app of apps) await hook(scene, app, `${liveUrl}/live`);
  const dead = [bench.keep(new Receiver('silent')), bench.keep(new Receiver('fails'))];
  const closed = new Receiver('silent');
  const urls = [...(await Promise.all(dead.map((one) => one.listen()))), await closed.listen()];
  await closed.stop();
  const p99s: Record<'alone' | 'beside', number[]> = { alone: [], beside: [] };
  for (let round = 0; round < rounds; round += 1) {
    for (const which of ['alone', 'beside'] as const) {
      if (which === 'beside')
        for (let n = 0; n < DEAD; n += 1) {
          const app = apps[n % apps.length];
          if (app !== undefined) await hook(scene, app, `${urls[n % urls.length]}/${n}`);
        }
      const latency = await watch(scene, apps, live, seconds);
      p99s[which].push(latency.p99);
      const name = which === 'alone' ? 'commit to POST' : `commit to POST beside ${DEAD} dead`;
      findings.figure(`${name}: p50`, 'ms', [latency.p50]);
      findings.figure(`${name}: max`, 'ms', [latency.max]);
      if (which === 'alone') findings.goal(`${name}: p99`, 'ms', latency.p99, { atMost: POST_P99_GOAL });
      else findings.figure(`${name}: p99`, 'ms', [latency.p99]);
    }
  }
  findings.ratio(`p99 beside ${DEAD} dead endpoints to alone`, pairwise(p99s.beside, p99s.alone), {
    atMost: DEAD_GOAL,
  });
  const [row] = await bench.sql<{ failing: number }[]>`
    SELECT count(*)::integer AS failing FROM webhooks WHERE tries > 0`;
  findings.check('the dead ones fail', row?.failing === DEAD, `${row?.failing} of ${DEAD}`);
  await bench.sql`DELETE FROM webhooks`;
  await bench.sql`DELETE FROM consumers`;
}

async function watch(
  { findings, service }: Scene,
  apps: readonly BenchApp[],
  live: Receiver,
  seconds: number,
): Promise<{ readonly p50: number; readonly p99: number; readonly max: number }> {
  const histogram = new LatencyHistogram();
  const answeredAt = new Map<string, number>();
  const postedAt = new Map<string, number>();
  let posts = 0;
  const note = (id: string): void => {
    const [answered, posted] = [answeredAt.get(id), postedAt.get(id)];
    if (answered === undefined || posted === undefined) return;
    histogram.record(posted - answered);
  };
  live.onMessage = (id) => {
    posts += 1;
    postedAt.set(id, performance.now());
    note(id);
  };
  const total = seconds * WATCHED_PER_SECOND;
  const startedAt = performance.now();
  const sent: Promise<void>[] = [];
  for (let n = 0; n < total; n += 1) {
    const due = startedAt + (n * 1_000) / WATCHED_PER_SECOND;
    await pause(Math.max(0, due - performance.now()));
    const app = apps[n % apps.length];
    if (app === undefined) continue;
    const { method, path, body } = createRequest(app, SMALL_PAYLOAD_BYTES);
    sent.push(
      fetch(`http://127.0.0.1:${service.port}${path}`, {
        ...{ method, headers: { 'Content-Type': 'application/json' } },
        ...(body !== undefined && { body }),
      }).then(async (answer) => {
        const at = performance.now();
        // The shape of the contract.
        const { eventId } = (await answer.json()) as { eventId: string };
        answeredAt.set(eventId, at);
        note(eventId);
      }),
    );
  }
  await Promise.all(sent);
  await untilTrue('live deliveries', () => histogram.count >= total);
  findings.checkAll('live receivers get every event once', posts === total && histogram.count === total);
  return histogram.summary() ?? { p50: Number.NaN, p99: Number.NaN, max: Number.NaN };
}

export const DELIVERY: Scenario = {
  name: 'delivery',
  about:
    'Consumers that catch up, webhooks to live and dead receivers, 10,000 alert rules, and a year of one rule.',
  run,
};
