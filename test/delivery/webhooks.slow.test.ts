/** Webhooks from outside: commands, receivers of all kinds, and the receivers of the documentation. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { gzipSync } from 'node:zlib';
import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { checkWebhookUrl, isPublicAddress, Names } from '../../src/delivery/addresses.ts';
import { GIVE_UP_MS, Poster, signingKey, waitAfter } from '../../src/delivery/signed-post.ts';
import { findWebhook, skipEvent } from '../../src/delivery/webhooks.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { readPage } from '../docs/pages.ts';
import { build, type Outcome, tidemark } from '../support/command-line.ts';
import { RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { NameServer } from './name-server.ts';
import { Receiver } from './receiver.ts';

let service: TestService;
let folder: string;
const clock = new RunningClock();
const receivers: Receiver[] = [];
beforeAll(async () => {
  build();
  folder = await mkdtemp(join(tmpdir(), 'tidemark-webhooks-'));
  service = await startTestService({ clock, config: { WEBHOOK_ALLOW_PRIVATE: 'true' } });
}, 120_000);
afterEach(async () => {
  for (const receiver of receivers.splice(0)) receiver.close();
  await service.sql`DELETE FROM consumers WHERE kind = 'webhook'`;
  await service.sql`DELETE FROM webhooks`;
});
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true, force: true });
});

const SECRET = 'the secret of the tests, 32 characters';
const run = (...args: string[]): Promise<Outcome> =>
  tidemark(args, {
    DATABASE_URL: service.database.url,
    DATA_DIR: folder,
    SECRET,
    WEBHOOK_ALLOW_PRIVATE: 'true',
    MAX_WEBHOOKS_PER_APP: '4',
  });
const receive = async (): Promise<{ receiver: Receiver; url: string }> => {
  const receiver = new Receiver();
  receivers.push(receiver);
  return { receiver, url: await receiver.listen() };
};
const add = async (url: string, ...args: string[]): Promise<{ webhookId: string; secret: string }> => {
  const outcome = await run('webhook', 'add', '--app', service.app.appId, '--url', url, '--json', ...args);
  expect(outcome.code, outcome.stderr).toBe(0);
  return JSON.parse(outcome.stdout);
};
const post = async (n: number, typeName = 'test type'): Promise<string> => {
  const response = await service.post({ typeId: undefined, typeName, payload: { n } });
  expect(response.status).toBe(201);
  return JSON.parse(response.body).eventId;
};
const stored = async (webhookId: string): Promise<Record<string, unknown>> => {
  const [row] = await service.sql`SELECT * FROM webhooks WHERE public_id = ${webhookId}`;
  return row ?? {};
};

test('events arrive in order, signed as the standard says, with the text that was sent', async () => {
  const { receiver, url } = await receive();
  const { webhookId, secret } = await add(url);
  expect(webhookId).toMatch(/^whk_/);
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]+=*$/);
  const text = '{ "n":1e2, "x": "\\u00e4" }';
  const sent = await service.request({
    method: 'POST',
    path: '/public/create_event',
    body: service.body(text),
  });
  const { eventId } = JSON.parse(sent.body);
  await post(2);
  await post(3);
  await until(() => receiver.received.length >= 3, 'three events');
  const [first] = receiver.received;
  expect(first?.body).toContain(`"payload":${text}}`);
  expect(JSON.parse(first?.body ?? '')).toMatchObject({
    type: 'event.created',
    data: { eventId, appId: service.app.appId, typeName: 'test type' },
  });
  expect(first?.headers['webhook-id']).toBe(eventId);
  for (const { headers, body } of receiver.received)
    expect(() => new Webhook(secret).verify(body, headers as Record<string, string>)).not.toThrow();
  const forged = (): unknown =>
    new Webhook(secret).verify(`${first?.body} `, first?.headers as Record<string, string>);
  expect(forged).toThrow();
  expect(receiver.numbers.slice(1)).toEqual([2, 3]);
  expect(JSON.stringify(await stored(webhookId))).not.toContain(secret.slice(6));
});

test('webhooks that want the same events from the same place on read them once', async () => {
  const { receiver, url } = await receive();
  const { webhookId } = await add(url);
  await service.sql`UPDATE webhooks SET state = 'paused', delivered = 1`;
  await service.sql`
    INSERT INTO webhooks (public_id, app_id, url, digest, sealed, delivered, state)
    SELECT public_id || n, app_id, url, digest, sealed, 1, state FROM webhooks, generate_series(2, 10) AS n`;
  await service.sql`
    INSERT INTO consumers (app_id, name, kind, tick, position)
    SELECT app_id, name || n, kind, tick, position FROM consumers, generate_series(2, 10) AS n WHERE name = ${webhookId}`;
  for (const n of [1, 2, 3]) await post(n);
  const { lease, read } = ConsumerStore.prototype;
  let leases = 0;
  let reads = 0;
  const spies = [
    vi.spyOn(ConsumerStore.prototype, 'lease').mockImplementation(async function (
      this: ConsumerStore,
      ...args
    ) {
      const leased = await lease.apply(this, args);
      leases += 1;
      return leased;
    }),
    vi.spyOn(ConsumerStore.prototype, 'read').mockImplementation(async function (
      this: ConsumerStore,
      ...args
    ) {
      // As a long read does: it is not over before the others ask.
      await until(() => leases >= 10, 'ten leases');
      const found = await read.apply(this, args);
      if (found.events.length > 0) reads += 1;
      return found;
    }),
  ];
  try {
    await service.sql`UPDATE webhooks SET state = 'active'`;
    await until(() => receiver.received.length === 30, 'three events for each of ten');
    expect(reads).toBeLessThanOrEqual(3);
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
});

test('an event that fails is not sent again by a look that began before', async () => {
  const { receiver, url } = await receive();
  let refuse = (): unknown => undefined;
  receiver.answer = (response) => {
    refuse = () => response.writeHead(500).end();
  };
  const { webhookId } = await add(url);
  await post(1);
  await until(() => receiver.received.length === 1, 'the first try');
  const { waiting } = ConsumerStore.prototype;
  let looks = 0;
  const spy = vi.spyOn(ConsumerStore.prototype, 'waiting').mockImplementation(async function (
    this: ConsumerStore,
  ) {
    // The look has read the webhook, and the turn ends meanwhile.
    if (looks === 0) {
      refuse();
      await until(async () => (await stored(webhookId)).tries === 1, 'the failure');
      await until(async () => {
        const [{ isFree } = { isFree: false }] = await service.sql<{ isFree: boolean }[]>`
          SELECT leased_until IS NULL OR leased_until <= now() AS "isFree" FROM consumers WHERE name = ${webhookId}`;
        return isFree;
      }, 'the end of the turn');
    }
    looks += 1;
    return await waiting.call(this);
  });
  try {
    await add(url);
    await until(() => looks >= 3, 'looks after it');
    expect(receiver.received).toHaveLength(1);
    expect((await stored(webhookId)).tries).toBe(1);
  } finally {
    spy.mockRestore();
  }
});

test('events whose order does not matter are sent over few connections', async () => {
  const { receiver, url } = await receive();
  await add(url, '--unordered');
  await post(0);
  await until(() => receiver.received.length === 1, 'the first event');
  const events = Array.from({ length: 80 }, (_, n) => ({ typeName: 'test type', payload: { n } }));
  await service.request({
    ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
    headers: { Authorization: `Bearer ${service.app.loggingToken}`, 'Content-Type': 'application/json' },
  });
  await until(() => receiver.received.length === 81, 'all events');
  expect(receiver.connections).toBeLessThanOrEqual(9);
});

test('a failing endpoint gets the same event again before any other, and delays no other endpoint', async () => {
  const { receiver: dead, url } = await receive();
  const { receiver: live, url: liveUrl } = await receive();
  dead.answer = (response, count) =>
    count < 3
      ? response.writeHead(count === 1 ? 302 : 500, { location: liveUrl }).end()
      : response.writeHead(200).end();
  const { webhookId } = await add(url);
  await add(liveUrl);
  for (const n of [1, 2, 3]) await post(n);
  await until(() => live.received.length === 3 && dead.received.length === 1, 'the live endpoint');
  await until(async () => (await stored(webhookId)).tries === 1, 'the first failure');
  expect((await stored(webhookId)).blocked_by).toBe(dead.received[0]?.headers['webhook-id']);
  for (let tries = 2; tries <= 3; tries += 1) {
    await until(async () => (await stored(webhookId)).tries === tries - 1, `failure ${tries - 1}`);
    clock.advance(3_600_000);
    await until(() => dead.received.length >= tries, `try ${tries}`);
  }
  await until(() => dead.received.length === 5, 'the rest');
  expect(dead.numbers).toEqual([1, 1, 1, 2, 3]);
  expect(new Set(dead.received.slice(0, 3).map(({ headers }) => headers['webhook-id'])).size).toBe(1);
  expect(live.numbers).toEqual([1, 2, 3]);
  await until(async () => (await stored(webhookId)).tries === 0, 'no failure');
  const { stdout } = await run('webhook', 'list', '--app', service.app.appId, '--json');
  const [listed] = JSON.parse(stdout).webhooks;
  expect(listed.tries.map((one: { status: number }) => one.status)).toEqual([200, 200, 200, 500, 302]);
});

test('Retry-After is obeyed, 410 disables, and so do 72 hours of failures', async () => {
  const { receiver, url } = await receive();
  receiver.answer = (response) => response.writeHead(503, { 'retry-after': '7200' }).end();
  const { webhookId } = await add(url);
  await post(1);
  await until(async () => (await stored(webhookId)).tries === 1, 'a failure');
  const next = (await stored(webhookId)).next_try_at as Date;
  expect(next.getTime()).toBeGreaterThan(clock.wall() + 7_000_000);
  await service.sql`UPDATE webhooks SET failing_since = ${new Date(clock.wall() - GIVE_UP_MS)}, next_try_at = NULL`;
  await until(async () => (await stored(webhookId)).state === 'disabled', 'the end of the tries');
  receiver.answer = (response) => response.writeHead(410).end();
  expect((await run('webhook', 'resume', webhookId)).code).toBe(0);
  await until(async () => (await stored(webhookId)).reason === 'its endpoint answered 410', '410');
  receiver.answer = (response) => response.writeHead(200).end('x'.repeat(10_000_000));
  await run('webhook', 'resume', '--webhook', webhookId, '--app', service.app.appId);
  await until(async () => Number((await stored(webhookId)).delivered) === 1, 'delivery after all');
  const actions = await service.sql`SELECT action FROM audit_entries WHERE action = 'webhook.disable'`;
  expect(actions).toHaveLength(2);
});

test('a webhook that has lost its place is disabled, and sends what is committed from then on once it is resumed', async () => {
  const { receiver, url } = await receive();
  const { webhookId } = await add(url);
  const isLost = async (): Promise<boolean> =>
    (await service.sql`SELECT FROM consumers WHERE name = ${webhookId} AND lost_at IS NOT NULL`).length > 0;
  await service.sql`UPDATE consumers SET lost_at = now() WHERE name = ${webhookId}`;
  await until(async () => (await stored(webhookId)).state === 'disabled', 'it is disabled');
  expect((await stored(webhookId)).reason).toContain('CONSUMER_REACH_HOURS');
  await until(async () => !(await isLost()), 'it has a place again');
  await post(1);
  expect((await run('webhook', 'resume', webhookId)).code).toBe(0);
  await until(() => receiver.received.length === 1, 'the event');
});

test('skip leaves out the event that blocks, and pause stops', async () => {
  const { receiver, url } = await receive();
  receiver.answer = (response) => response.writeHead(500).end();
  const { webhookId } = await add(url, '--filter', 'n>10');
  for (const n of [1, 11, 12]) await post(n);
  await until(async () => (await stored(webhookId)).tries === 1, 'a failure');
  receiver.answer = (response) => response.writeHead(204).end();
  const skipped = await run('webhook', 'skip', webhookId, '--json');
  expect(skipped.code, skipped.stderr).toBe(0);
  await until(() => receiver.received.length === 2, 'the next event');
  expect(receiver.numbers).toEqual([11, 12]);
  expect(JSON.parse(skipped.stdout).eventId).toBe(receiver.received[0]?.headers['webhook-id']);
  expect((await run('webhook', 'pause', webhookId)).code).toBe(0);
  await post(13);
  expect((await run('webhook', 'remove', webhookId)).code).toBe(0);
  expect(receiver.received).toHaveLength(2);
  expect((await run('webhook', 'pause', webhookId)).stderr).toContain('there is no webhook');
});

test('a skip finds the event that blocks at once, however many come before it that are not wanted', async () => {
  const { receiver, url } = await receive();
  receiver.answer = (response) => response.writeHead(500).end();
  const { webhookId } = await add(url, '--filter', 'n>10');
  const events = Array.from({ length: 150 }, () => ({ typeName: 'test type', payload: { n: 1 } }));
  const sent = await service.request({
    ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
    headers: { authorization: `Bearer ${service.app.loggingToken}` },
  });
  expect(sent.status, sent.body).toBe(200);
  await post(11);
  await until(async () => (await stored(webhookId)).tries === 1, 'a failure');
  const found = await findWebhook(service.sql, webhookId);
  const store = new ConsumerStore('postgres', service.sql);
  const eventId = await skipEvent(service.sql, store, found, { mostSteps: 1 });
  expect(eventId).toBe(receiver.received[0]?.headers['webhook-id']);
});

test.each(['suspended', 'paused'])(
  'the app or webhook that is %s sends nothing more, and goes on where it stopped',
  async (how) => {
    const { receiver, url } = await receive();
    const { webhookId } = await add(url);
    const isApp = how === 'suspended';
    const stop = isApp ? ['app', 'suspend', '--app', service.app.appId] : ['webhook', 'pause', webhookId];
    const resume = isApp ? ['app', 'resume', '--app', service.app.appId] : ['webhook', 'resume', webhookId];
    // The third event is answered once the service has looked after the end.
    const { receiver: witness, url: witnessUrl } = await receive();
    const other = JSON.parse((await run('app', 'create', '--name', 'Other', '--json')).stdout);
    receiver.answer = async (response, count) => {
      if (count === 3) {
        expect((await run(...stop)).code).toBe(0);
        const added = await run('webhook', 'add', '--app', other.appId, '--url', witnessUrl, '--json');
        expect(added.code, added.stderr).toBe(0);
        const event = {
          loggingToken: other.loggingToken,
          typeId: undefined,
          typeName: 'x',
          payload: { n: 0 },
        };
        expect((await service.post(event)).status).toBe(201);
        await until(() => witness.received.length > 0, 'a look of the service');
      }
      response.writeHead(204).end();
    };
    const events = Array.from({ length: 6 }, (_, n) => ({ typeName: 'test type', payload: { n: n + 1 } }));
    const batch = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { authorization: `Bearer ${service.app.loggingToken}` },
      body: JSON.stringify({ events }),
    });
    expect(batch.status, batch.body).toBe(200);
    await until(() => witness.received.length > 0, 'the look');
    await until(async () => {
      const rows = await service.sql`SELECT FROM consumers WHERE name = ${webhookId} AND leased_to IS NULL`;
      return rows.length > 0;
    }, 'the end of the turn');
    expect(receiver.received).toHaveLength(3);
    expect((await run(...resume)).code).toBe(0);
    await until(() => receiver.received.length >= 6, 'the rest');
    expect([...receiver.numbers].sort()).toEqual([1, 2, 3, 4, 5, 6]);
  },
);

test('after a rotation both secrets verify; a test message is sent at once', async () => {
  const { receiver, url } = await receive();
  const { webhookId, secret } = await add(url);
  const rotated = JSON.parse((await run('webhook', 'rotate', webhookId, '--json')).stdout);
  const tested = await run('webhook', 'test', webhookId, '--json');
  expect(JSON.parse(tested.stdout)).toMatchObject({ webhookId, status: 204 });
  const [{ headers, body } = { headers: {}, body: '' }] = receiver.received;
  expect(JSON.parse(body).type).toBe('webhook.test');
  for (const one of [secret, rotated.secret])
    expect(() => new Webhook(one).verify(body, headers as Record<string, string>)).not.toThrow();
  receiver.answer = (response) => response.destroy();
  expect((await run('webhook', 'test', webhookId)).code).toBe(1);
});

test('the first 200 characters of an answer are told, on one line and without secrets', async () => {
  const { receiver, url } = await receive();
  const { webhookId, secret } = await add(url);
  const long = 'x'.repeat(70_000);
  receiver.answer = (response) => response.end('taken');
  const taken = await run('webhook', 'test', webhookId, '--json');
  expect(JSON.parse(taken.stdout)).toMatchObject({ status: 200, answer: 'taken' });
  receiver.answer = (response) =>
    response.writeHead(400).end(`{"error":\n"invalid_payload\u001b[31m","secret":"${secret}"} ${long}`);
  const refused = await run('webhook', 'test', webhookId);
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain(
    'did not take the message: answered 400: {"error": "invalid_payload [31m","secret":"whsec_…"} xxx',
  );
  expect(refused.stderr.length).toBeLessThan(300);
  await post(1);
  let problem = '';
  await until(async () => {
    const listed = await run('webhook', 'list', '--app', service.app.appId, '--json');
    const { tries } = JSON.parse(listed.stdout).webhooks[0];
    problem = tries.find(({ type }: { type: string }) => type === 'event.created')?.problem ?? '';
    return problem !== '';
  }, 'the try');
  expect(problem).toMatch(/^answered 400: \{"error": "invalid_payload/);
});

test.each([
  [
    'HTML without its tags',
    'text/html',
    '<html>\n<h1>Bad &quot;it&quot; &amp;lt; &no;</h1></html>',
    '502: Bad "it" &lt; &no;',
  ],
  [
    'by its charset',
    'text/plain; charset=ISO-8859-1',
    Buffer.from('Ung\u00fcltig', 'latin1'),
    '502: Ungültig',
  ],
  ['of a charset that nobody knows', 'text/plain; charset=x', 'wrong', '502: wrong'],
  ['compressed not at all', 'gzip', gzipSync('{"error":"wrong"}'), '502'],
] as const)('the answer of a receiver is told %s', async (_, type, body, told) => {
  const { receiver, url } = await receive();
  const { webhookId } = await add(url);
  const header = type === 'gzip' ? 'content-encoding' : 'content-type';
  receiver.answer = (response) => response.writeHead(502, { [header]: type }).end(body);
  const { stderr } = await run('webhook', 'test', webhookId);
  expect(stderr).toMatch(`did not take the message: answered ${told}`);
  expect(stderr.trim().endsWith(told)).toBe(true);
  expect(receiver.received[0]?.headers).toMatchObject({ 'accept-encoding': 'identity' });
});

test('a restored installation sends nothing until it is told to', async () => {
  const { receiver, url } = await receive();
  await service.sql`INSERT INTO installation (name, value) VALUES ('deliveries', 'stopped')`;
  const { webhookId } = await add(url);
  await post(1);
  await until(async () => {
    const [row] =
      await service.sql`SELECT FROM feed_ticks, consumers WHERE name = ${webhookId} AND feed_ticks.tick > consumers.tick`;
    return row !== undefined;
  }, 'a waiting event');
  expect(receiver.received).toHaveLength(0);
  expect((await run('deliveries', 'resume')).code).toBe(0);
  await until(() => receiver.received.length === 1, 'the event');
});

test('addresses and limits are refused where they are typed', async () => {
  const at = (url: string): Promise<Outcome> =>
    tidemark(['webhook', 'add', '--app', service.app.appId, '--url', url], {
      DATABASE_URL: service.database.url,
      DATA_DIR: folder,
      SECRET,
    });
  for (const url of [
    ...[
      'nonsense',
      'ftp://example.com',
      'https://user:pw@example.com',
      'http://localhost/',
      'http://localhost./',
      'http://127.0.0.1/',
    ],
    ...[
      'http://[::ffff:10.0.0.1]/',
      'http://169.254.169.254/latest',
      'http://0x7f000001/',
      'http://[fd00::1]/',
    ],
  ]) {
    expect(() => checkWebhookUrl(url, false), url).toThrow('URL');
    if (!url.includes('fd00')) continue;
    const { code, stderr } = await at(url);
    expect([code, stderr]).toEqual([2, expect.stringContaining('URL')]);
  }
  await add('https://example.com/', '--type', 'never sent');
  await service.sql`
    INSERT INTO webhooks (public_id, app_id, url, digest, sealed)
    SELECT public_id || n, app_id, url, digest, sealed FROM webhooks, generate_series(1, 3) AS n`;
  const fifth = await run('webhook', 'add', '--app', service.app.appId, '--url', 'https://example.com/');
  expect(fifth.code).toBe(1);
  expect(fifth.stderr).toContain('MAX_WEBHOOKS_PER_APP');
});

test('only public addresses are called, whatever a name resolves to', async () => {
  for (const address of ['8.8.8.8', '2606:4700::1111', '::ffff:8.8.8.8'])
    expect(isPublicAddress(address), address).toBe(true);
  for (const address of [
    ...['127.0.0.1', '10.1.2.3', '172.16.0.1', '192.168.1.1', '169.254.169.254', '100.64.0.1', '0.0.0.0'],
    ...[
      '224.0.0.1',
      '255.255.255.255',
      '::1',
      '::',
      'fe80::1',
      'fd00::1',
      '::ffff:127.0.0.1',
      '64:ff9b::7f00:1',
    ],
    ...['2002:7f00:1::', '::7f00:1', '64:ff9b:1::808:808', '3fff::1', '5f00::1', 'fec0::1', '2001:db8::1'],
    ...['198.18.0.1', '192.0.0.8', '192.0.2.1', '240.0.0.1', 'fe80::1%eth0', 'not an address'],
  ])
    expect(isPublicAddress(address), address).toBe(false);
  const { lookup } = new Names(false);
  const resolved = await new Promise((resolve) => lookup('localhost', {}, (error) => resolve(error)));
  expect(String(resolved)).toContain('not a public address');
  const { receiver, url } = await receive();
  const poster = new Poster({ allowPrivate: false, now: Date.now });
  const message = { id: '1', type: 'x', body: '{}' };
  for (const one of [url, url.replace('127.0.0.1', 'localhost')])
    expect((await poster.send(one, message, [])).problem).toContain('not a public address');
  poster.close();
  expect(receiver.received).toHaveLength(0);
});

test('a name that begins to resolve to a private address is not called, and a silent name server delays no other endpoint', async () => {
  const server = new NameServer();
  const nameServers = [await server.listen()];
  const { receiver, url } = await receive();
  const { port } = new URL(url);
  const message = { id: '1', type: 'x', body: '{}' };
  const strict = new Poster({ allowPrivate: false, now: Date.now, nameServers });
  server.answer = () => '127.0.0.1';
  const rebound = await strict.send(`http://rebound.example.com:${port}/`, message, []);
  expect(rebound.problem).toContain('127.0.0.1 is not a public address');
  strict.close();
  expect(receiver.received).toHaveLength(0);
  const poster = new Poster({ allowPrivate: true, now: Date.now, nameServers });
  server.answer = (name) => (name.startsWith('dead') ? null : '127.0.0.1');
  let settled = 0;
  const dead = Array.from({ length: 20 }, async (_, n) => {
    const answer = await poster.send(`http://dead-${n}.example.com:${port}/`, message, []);
    settled += 1;
    return answer.problem;
  });
  await until(() => server.asked >= 20, 'questions');
  expect((await poster.send(`http://live.example.com:${port}/`, message, [])).status).toBe(204);
  expect((await poster.send(`http://localhost:${port}/`, message, [])).status).toBe(204);
  expect(settled).toBe(0);
  poster.close();
  server.close();
  expect(new Set(await Promise.all(dead)).has(null)).toBe(false);
});

test('silent paths of a host delay no other, and a connection that was closed meanwhile is no failure', async () => {
  const { receiver, url } = await receive();
  const poster = new Poster({ allowPrivate: true, now: Date.now });
  receiver.answer = (response, count) => {
    if (count > 32) response.writeHead(204).end();
  };
  const message = { id: '1', type: 'x', body: '{}' };
  const silent = Array.from({ length: 32 }, () => poster.send(url, message, []));
  await until(() => receiver.received.length === 32, 'the silent ones');
  expect((await poster.send(url, message, [])).status).toBe(204);
  // On the connection of the last answer.
  receiver.answer = (response, count) => (count === 34 ? response.destroy() : response.writeHead(204).end());
  expect(await poster.send(url, message, [])).toMatchObject({ status: 204, problem: null });
  expect(receiver.received).toHaveLength(35);
  receiver.answer = (response) => response.destroy();
  expect((await poster.send(url, message, [])).problem).toMatch(/ECONNRESET|socket hang up/);
  poster.close();
  receiver.close();
  await Promise.all(silent);
});

test('waits grow to hours, with jitter, and never less than Retry-After', () => {
  expect(waitAfter(1, null, 0)).toBe(4_000);
  expect(waitAfter(1, null, 1)).toBe(6_000);
  expect(waitAfter(9, null, 0.5)).toBe(14_400_000);
  expect(waitAfter(99, null, 0.5)).toBe(14_400_000);
  expect(waitAfter(1, 60_000, 0.5)).toBe(60_000);
});

test.each([
  ['js', process.execPath, 'receiver.mjs'],
  ['python', 'python3', 'receiver.py'],
])(
  'the receiver of the documentation in %s verifies and prints each event once',
  async (language, program, file) => {
    const section = readPage('docs/delivery.md').split('### Receivers')[1] ?? '';
    const code = section.split(`\`\`\`${language}\n`)[1]?.split('```')[0] ?? '';
    expect(code.split('\n').length).toBeLessThan(36);
    const path = join(folder, file);
    await writeFile(path, code);
    const { url } = await receive();
    const { webhookId, secret } = await add(url);
    await run('webhook', 'pause', webhookId);
    const child: ChildProcess = spawn(program, [path], {
      env: { PATH: process.env.PATH, WEBHOOK_SECRET: secret },
    });
    if (child.stdout === null) throw new Error('no output');
    const lines: string[] = [];
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
    try {
      await until(() => lines.length > 0, 'the port');
      const target = `http://127.0.0.1:${lines[0]}/`;
      const poster = new Poster({ allowPrivate: true, now: Date.now });
      const message = { id: 'one', type: 'event.created', body: '{"type":"event.created","data":{"n":1}}' };
      const statusOf = async (id: string, secrets: readonly string[]) =>
        (await poster.send(target, { ...message, id }, secrets.map(signingKey))).status;
      expect(await statusOf('one', [secret])).toBe(204);
      expect(await statusOf('one', [secret])).toBe(204);
      expect(await statusOf('two', ['whsec_AAAA'])).toBe(401);
      expect(await statusOf('three', ['whsec_AAAA', secret])).toBe(204);
      poster.close();
      await until(() => lines.length === 3, 'two events');
      expect(lines.slice(1).map((line) => JSON.parse(line))).toEqual([{ n: 1 }, { n: 1 }]);
    } finally {
      child.kill();
    }
  },
);
