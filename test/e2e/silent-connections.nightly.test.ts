/**
 * Connections to the database that fall silent, any subset of them, while new ones work: a load balancer that has died, or a
 * firewall that has forgotten them. Each route answers again within ten seconds, and a stop ends in time.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { newPerson, type Person } from '../support/person.ts';
import { Opened, PATIENT } from '../support/proxied-service.ts';
import { type FaultyProxy, isCopy } from '../support/proxy.ts';
import { type TestService, until } from '../support/service.ts';

/** What the project promises. */
const GOAL_MS = 10_000;

const opened = new Opened();
let number = 0;

interface Subject {
  readonly service: TestService;
  readonly proxy: FaultyProxy;
  readonly token: string;
  readonly person: Person;
}

async function start(): Promise<Subject> {
  // Only the connections' own deadlines end anything.
  const { service, proxy } = await opened.proxied({
    config: { ...PATIENT, READ_LIMIT_PER_MINUTE: 0, NEW_TYPES_PER_MINUTE: 0 },
  });
  const token = await newToken(service);
  const person = await newPerson(service, 'ada@example.com');
  return { service, proxy, token, person };
}

async function newToken(service: TestService): Promise<string> {
  const token = { name: 'reader', appIds: [service.app.appId], expiresInSeconds: null };
  return (await createResourceToken(service.sql, token)).resourceToken;
}

const get = (service: TestService, token: string): Promise<HttpResponse> =>
  service.request({
    path: `/public/get_events?appId=${service.app.appId}&limit=1`,
    headers: { authorization: `Bearer ${token}` },
  });

/** Every way from a client to the database, each with the status of success. */
function routes({ service, token, person }: Subject): Record<string, () => Promise<boolean>> {
  const batch = (headers: Record<string, string>): Promise<HttpResponse> =>
    service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { authorization: `Bearer ${service.app.loggingToken}`, ...headers },
      body: JSON.stringify({ events: [{ typeId: service.type.typeId, payload: {} }] }),
    });
  const idempotent = (): Promise<HttpResponse> =>
    service.request({
      method: 'POST',
      path: '/public/create_event',
      headers: { 'Idempotency-Key': `key-${++number}` },
      body: service.body('{}'),
    });
  const is = async (answer: Promise<{ status: number }>, status: number): Promise<boolean> =>
    (await answer).status === status;
  return {
    create: () => is(service.post(), 201),
    'create of a new type': () => is(service.post({ typeId: null, typeName: `type ${++number}` }), 201),
    'create of another app': async () => {
      const app = await service.newApp();
      return is(service.post({ loggingToken: app.loggingToken, typeId: null, typeName: 'first' }), 201);
    },
    'idempotent create': () => is(idempotent(), 201),
    batch: () => is(batch({}), 200),
    'idempotent batch': () => is(batch({ 'Idempotency-Key': `key-${++number}` }), 200),
    read: () => is(get(service, token), 200),
    'read by a new token': async () => is(get(service, await newToken(service)), 200),
    dashboard: () => is(person.get('/api/apps'), 200),
    readyz: () => is(service.request({ path: '/readyz' }), 200),
  };
}

/** Uses everything several times at once, so that each pool has all of its connections; a busy machine may refuse some. */
async function warmUp(subject: Subject): Promise<void> {
  const isServed = async (): Promise<boolean> => {
    const asked = Object.values(routes(subject)).flatMap((ask) => [ask(), ask(), ask()]);
    return (await Promise.all(asked)).every(Boolean);
  };
  for (let round = 0; round < 3; round += 1) await until(isServed, 'every route serves');
}

describe('with connections that are silent', () => {
  let subject: Subject;
  beforeAll(async () => {
    subject = await start();
  });
  afterAll(opened.stopAll);

  test.each([
    ['those of lookups', /^tidemark lookups/],
    ['those of reads', /^tidemark reads/],
    ['those of the writers', /^tidemark (writer|past)/],
    ['those of idempotent requests', /^tidemark idempotent/],
    ['those of the dashboard', /^tidemark (accounts|dashboard|live)/],
    ['those that ask whether the database is there', /^tidemark (probe|watch)/],
    ['those of maintenance and of notifications', /^tidemark (maintenance|slow maintenance|listener)/],
    ['every second one', /^tidemark (lookups$|writer 1|idempotent events|accounts|maintenance)/],
    ['all of them', /^tidemark/],
  ])(
    '%s, every route answers again',
    async (_, names) => {
      await warmUp(subject);
      const { service, proxy } = subject;
      const silent = proxy.silence((name) => names.test(name));
      expect(silent).toBeGreaterThan(0);
      const answered = await Promise.all(
        Object.entries(routes(subject)).map(async ([route, ask]) => {
          // Once is not enough: another silent connection might come next.
          let inARow = 0;
          await until(
            async () => {
              inARow = (await ask()) ? inARow + 1 : 0;
              return inARow === 3;
            },
            `${route} answers`,
            GOAL_MS,
          );
          return route;
        }),
      );
      expect(answered).toHaveLength(10);
      // And nothing that was silent stays in use.
      await until(() => proxy.silentConnections === 0, 'all of them are replaced', GOAL_MS);
      expect((await service.request({ path: '/readyz' })).status).toBe(200);
    },
    60_000,
  );
});

describe('a stop', () => {
  afterEach(opened.stopAll);

  test.each([
    ['a commit', (sent: Buffer) => isCopy(sent)],
    ['a read', (sent: Buffer) => sent.includes('begin isolation level repeatable read')],
    ['maintenance', (sent: Buffer) => sent.includes('DELETE FROM count_deltas')],
  ])(
    'while %s is silent answers everybody and ends in time',
    async (_, matches) => {
      const subject = await start();
      await warmUp(subject);
      const { service, proxy, token } = subject;
      const met = proxy.next(matches, 'black-hole', 1);
      const asked = [service.post(), get(service, token)];
      await until(() => met() === 1, 'it is silent');
      let isStopped = false;
      opened.remove(service);
      const stopped = service.stop().finally(() => {
        isStopped = true;
      });
      await until(() => isStopped, 'it has stopped', GOAL_MS);
      await stopped;
      const statuses = (await Promise.all(asked)).map(({ status }) => status);
      for (const status of statuses) expect([200, 201, 503]).toContain(status);
    },
    60_000,
  );
});
