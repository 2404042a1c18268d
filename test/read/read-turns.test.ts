/** What reads of one account may take of others, counted by connections that work and by the order of answers. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { Exposition } from '../support/exposition.ts';
import { type HeldLock, heldLock } from '../support/held-lock.ts';
import { HttpConnection, type HttpResponse } from '../support/http-client.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { PATIENT } from '../support/proxied-service.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const READS = 5;
const METRICS = 'the-token-of-the-metrics-of-this-test';

let service: TestService;
/** One account with many tokens, and another with an app of its own. */
let hostile: { person: Person; appId: string; tokens: string[] };
let innocent: { person: Person; appId: string; token: string };
let lock: HeldLock | null = null;

beforeAll(async () => {
  const config = { ...PATIENT, READ_CONNECTIONS: READS, METRICS_TOKEN: METRICS, MAX_BODY_BYTES: 100_000 };
  service = await startTestService({ config });
  const [one, other] = [
    await newPerson(service, 'eve@example.com'),
    await newPerson(service, 'ada@example.com'),
  ];
  const [ofOne, ofOther] = [await newOwnApp(one), await newOwnApp(other)];
  hostile = {
    person: one,
    appId: ofOne.appId,
    tokens: await Promise.all(Array.from({ length: 40 }, () => newToken(ofOne.appId))),
  };
  innocent = { person: other, appId: ofOther.appId, token: await newToken(ofOther.appId) };
});
afterEach(async () => {
  await lock?.release();
  lock = null;
  await until(async () => (await working()) === 0, 'no read is left');
});
afterAll(() => service.stop());

/** A token without a creator is its app's owner's. */
async function newToken(appId: string): Promise<string> {
  return (await createResourceToken(service.sql, { name: 'test', appIds: [appId], expiresInSeconds: null }))
    .resourceToken;
}

/** Every snapshot waits from now on, with its connection. */
async function holdReads(): Promise<void> {
  lock = await heldLock(service.sql, 'snapshot_lock', 'ACCESS EXCLUSIVE');
}

/** Connections with a transaction of a read. */
async function working(): Promise<number> {
  const [row] = await service.sql<{ count: number }[]>`
    SELECT count(*)::integer AS count FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'tidemark reads' AND state <> 'idle'`;
  return row?.count ?? 0;
}

async function metric(name: string, labels: Record<string, string>): Promise<number> {
  const { body } = await service.request({
    path: '/metrics',
    headers: { Authorization: `Bearer ${METRICS}` },
  });
  return new Exposition(body).value(name, labels);
}

const read = (token: string, path: string): Promise<HttpResponse> =>
  service.request({ path, headers: { Authorization: `Bearer ${token}` } });

const secondOf = (n: number): string => new Date(1_700_000_000_000 + n * 1_000).toISOString();

/** A read that no other shares. */
const ATTACKS: readonly ((appId: string, n: number) => string)[] = [
  (appId, n) => `/v1/apps/${appId}/fields?from=${secondOf(n)}`,
  (appId, n) => `/v1/apps/${appId}/events?q=${n}`,
  (appId, n) => `/v1/apps/${appId}/fields/values?path=a&q=${n}`,
  (appId, n) => `/public/get_events?appId=${appId}&offset=${n}`,
];

test('whatever one account asks with forty tokens and its session, another one’s page is among the next answers', async () => {
  await holdReads();
  const order: string[] = [];
  const done = (name: string) => (answer: HttpResponse | { status: number }) => {
    order.push(`${name} ${answer.status}`);
  };
  const attack = hostile.tokens.flatMap((token, i) =>
    ATTACKS.map((path, n) => read(token, path(hostile.appId, i * 10 + n)).then(done('hostile'))),
  );
  for (let i = 0; i < 10; i += 1)
    attack.push(hostile.person.get(`/api/apps/${hostile.appId}/events?q=${i}`).then(done('hostile')));
  await until(async () => (await working()) === READS - 1, 'the account has all that it may have');
  await until(
    async () =>
      (await metric('tidemark_reads_waiting', { kind: 'token' })) +
        (await metric('tidemark_reads_waiting', { kind: 'get_events' })) +
        (await metric('tidemark_reads_waiting', { kind: 'dashboard' })) ===
      170 - (READS - 1),
    'all others wait',
  );
  const page = `/public/get_events?appId=${innocent.appId}`;
  const mine = [
    read(innocent.token, page).then(done('innocent')),
    innocent.person.get(`/api/apps/${innocent.appId}/events`).then(done('innocent')),
  ];
  await until(async () => (await working()) === READS, 'one of them has the place that was left');
  await lock?.release();
  lock = null;
  await Promise.all(mine);
  // Those that had a place before, and a turn for each of its own; and what the other places answer while its own are read, which
  // may take several times as long as theirs.
  expect(order.length).toBeLessThanOrEqual(6 * READS);
  expect(order.filter((one) => one === 'innocent 200')).toHaveLength(2);
  await Promise.all(attack);
  expect(new Set(order)).toEqual(new Set(['hostile 200', 'innocent 200']));
});

// Charts that are over: those of now share the look for their feed.
test('reads that stand still keep nobody from signing in, from his session and from what he changes', async () => {
  await holdReads();
  const reads = Array.from({ length: 20 }, (_, i) =>
    hostile.person.get(`/api/apps/${hostile.appId}/series?from=${secondOf(i)}&to=2024-01-01&timezone=UTC`),
  );
  const others = [
    hostile.person.get('/api/apps'),
    hostile.person.get(`/api/apps/${hostile.appId}`),
    hostile.person.get(`/api/apps/${hostile.appId}/type-activity`),
    hostile.person.get(`/api/apps/${hostile.appId}/events`),
  ];
  await until(async () => (await working()) === READS - 1, 'the account has all that it may have');
  const person = await new Person(service).signIn('ada@example.com', PASSWORD);
  expect((await person.get('/api/session')).data.user).toMatchObject({ email: 'ada@example.com' });
  expect((await person.post(`/api/apps/${innocent.appId}/types`, { name: 'made meanwhile' })).status).toBe(
    201,
  );
  await lock?.release();
  lock = null;
  for (const answer of await Promise.all([...reads, ...others])) expect(answer.status, answer.text).toBe(200);
});

test('a read whose client leaves gives its connection back at once, and one that waits is never begun', async () => {
  await holdReads();
  const clients: HttpConnection[] = [];
  for (const [i, token] of hostile.tokens.entries()) {
    const client = await HttpConnection.open(service.port);
    const path = ATTACKS[i % ATTACKS.length]?.(hostile.appId, 1_000 + i) ?? '';
    await client.send({ path, headers: { Authorization: `Bearer ${token}` } });
    clients.push(client);
  }
  await until(async () => (await working()) === READS - 1, 'the account has all that it may have');
  for (const client of clients) client.destroy();
  // The lock is still held: nothing but their end gives them back.
  await until(async () => (await working()) === 0, 'all of them are back');
  expect(await metric('tidemark_reads_waiting', { kind: 'token' })).toBe(0);
  expect(await metric('tidemark_reads_running', { kind: 'token' })).toBe(0);
  await lock?.release();
  lock = null;
  // The connections are good, and no request to cancel comes late.
  for (let i = 0; i < 20; i += 1)
    expect((await read(innocent.token, `/public/get_events?appId=${innocent.appId}`)).status).toBe(200);
  expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
});

test('requests for the same answer share it, and the next one makes it where the first one’s client leaves', async () => {
  await holdReads();
  const path = `/v1/apps/${hostile.appId}/fields?from=${secondOf(5_000)}`;
  const headers = { Authorization: `Bearer ${hostile.tokens[0]}` };
  const first = await HttpConnection.open(service.port);
  await first.send({ path, headers });
  await until(async () => (await working()) === 1, 'the first one works');
  const others = [1, 2, 3].map((n) => read(hostile.tokens[n] ?? '', path));
  // What is sent after them is answered after they have come: its list of apps waits for no snapshot.
  expect((await read(hostile.tokens[1] ?? '', '/v1/apps')).status).toBe(200);
  first.destroy();
  await until(async () => (await working()) === 1, 'another one works');
  await lock?.release();
  lock = null;
  for (const answer of await Promise.all(others)) expect(answer.status).toBe(200);
});

test('a read whose deadline has passed is answered 503 and gives its connection back, although its statement goes on', async () => {
  const own = await startTestService({ config: { REQUEST_TIMEOUT_SECONDS: 1, READ_CONNECTIONS: 2 } });
  const held = await heldLock(own.sql, 'snapshot_lock', 'ACCESS EXCLUSIVE');
  try {
    const { resourceToken } = await createResourceToken(own.sql, {
      name: 'test',
      appIds: [own.app.appId],
      expiresInSeconds: null,
    });
    const headers = { Authorization: `Bearer ${resourceToken}` };
    const path = `/public/get_events?appId=${own.app.appId}`;
    const answers = await Promise.all([1, 2, 3].map(() => own.request({ path, headers })));
    for (const { status, headers: sent } of answers)
      expect([status, sent['retry-after']]).toEqual([503, '1']);
    const details = answers.map(({ body }) => String(JSON.parse(body).details));
    expect(details.filter((text) => text.startsWith('The service is busy'))).toHaveLength(1);
    const left = async (): Promise<boolean> => {
      const rows = await own.sql`
        SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'tidemark reads' AND state <> 'idle'`;
      return rows.length === 0;
    };
    await until(left, 'the connections are back while the lock is held');
  } finally {
    await held.release();
    await own.stop();
  }
});
