/** A service whose clock is wrong: what time ends is there when the clock is right again, and then ends as it should. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rotateLoggingToken } from '../../../src/apps/logging-tokens.ts';
import { createResourceToken } from '../../../src/apps/resource-tokens.ts';
import { DAY_MS, HOUR_MS } from '../../../src/base/time-units.ts';
import type { Clock } from '../../../src/service.ts';
import { ConsumerStore } from '../../../src/storage/feed/consumers.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../../support/database.ts';
import { newPerson, Person } from '../../support/person.ts';
import {
  CREATE_EVENT,
  hurryRounds,
  startTestService,
  type TestService,
  testSecret,
  until,
} from '../../support/service.ts';

hurryRounds();

const JUMPS = { '+30 d': 30 * DAY_MS, '-30 d': -30 * DAY_MS, '+1 h': HOUR_MS };
const DAYS = 7;

/** Both clocks: that of the database is this one. */
class MovedClock implements Clock {
  jump = 0;
  readonly wall = (): number => Date.now() + this.jump;
  readonly monotonic = (): number => performance.now();
}

describe.each(availableEngines())('on %s', (engine) => {
  let database: TestDatabase;
  let service: TestService;
  let appId: string;
  let loggingToken: string;
  let token: string;
  let cookie: string;
  let jump = 0;
  const clock: Clock = {
    wall: () => Date.now() + jump,
    monotonic: () => performance.now(),
    asksDatabase: true,
  };

  const start = async (): Promise<void> => {
    const config = { RETENTION_DAYS: DAYS, CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 };
    service = await startTestService({ engine, database, clock, config });
  };
  beforeAll(async () => {
    database = await testDatabase(engine, { prepared: true });
    await start();
    ({ appId, loggingToken } = service.app);
    ({ resourceToken: token } = await createResourceToken(service.sql, {
      ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
    }));
    cookie = (await newPerson(service, 'a@example.com')).cookie;
    const [app] = await service.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    const store = new ConsumerStore((await openStorage(service.sql)).engine, service.sql);
    await store.add(app?.id ?? 0, { name: 'reader', kind: 'consumer', types: [], filter: [], from: 'now' });
    await post(Array.from({ length: 50 }, (_, n) => ({ at: Date.now() - n * 3 * HOUR_MS, n })));
    expect((await postWithKey()).headers['idempotent-replayed']).toBeUndefined();
    await until(async () => (await ticks()) > 0, 'the consumer has what is to be read');
  });
  afterAll(async () => {
    await service.stop();
    await database.drop();
  });

  const post = async (events: readonly { at: number; n: number }[]): Promise<void> => {
    const { status } = await service.request({
      ...{ method: 'POST', path: '/v1/events', headers: { Authorization: `Bearer ${loggingToken}` } },
      body: JSON.stringify({
        events: events.map(({ at, n }) => ({
          ...{ typeName: 'a', createdAt: new Date(at).toISOString(), payload: { n } },
        })),
      }),
    });
    expect(status).toBe(200);
  };
  const postWithKey = () =>
    service.request({
      ...{ method: 'POST', path: CREATE_EVENT, headers: { 'Idempotency-Key': 'one' } },
      body: JSON.stringify({ loggingToken, typeName: 'a', payload: { once: true } }),
    });
  const total = async (): Promise<number> => {
    const headers = { Authorization: `Bearer ${token}` };
    const { body } = await service.request({ path: `/public/get_events?appId=${appId}&limit=1`, headers });
    return JSON.parse(body).data.pagination.total;
  };
  const ticks = async (): Promise<number> =>
    (await service.sql`SELECT FROM feed_ticks WHERE minutes <> '{}'`).length;
  const bins = async (): Promise<number> =>
    (await service.sql`SELECT FROM apps WHERE removed_at IS NOT NULL`).length;
  const scrape = async (name: string): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    return Number(
      body
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.split(' ')[1],
    );
  };

  test.each(Object.entries(JUMPS))('%s: nothing is lost, and it is told', async (_, ms) => {
    await service.stop({ keepDatabase: true });
    jump = ms;
    if (ms === -30 * DAY_MS) {
      // By the clock of the database its time in the bin is over.
      const { appId: bin } = await service.newApp();
      await service.sql`UPDATE apps SET removed_at = now() - interval '8 days' WHERE public_id = ${bin}`;
    }
    await service.sql`UPDATE retention SET readable_from = '-infinity'`;
    await start();
    await until(async () => {
      const [row] = await service.sql<{ from: string }[]>`SELECT readable_from::text AS from FROM retention`;
      return row?.from !== '-infinity';
    }, 'a round has moved the boundary');
    await until(
      async () =>
        (await service.request({ path: '/metrics' })).body.includes('tidemark_consumers{state="ok"} 1'),
      'consumers are looked at',
    );
    if (ms === -30 * DAY_MS) expect(await bins()).toBe(1);
    expect(await total()).toBe(51);
    expect((await postWithKey()).headers['idempotent-replayed']).toBe('true');
    const person = new Person(service);
    person.cookie = cookie;
    expect((await person.get('/api/session')).status).toBe(200);
    // Whoever signs in sweeps.
    await newPerson(service, `${ms > 0 ? 'plus' : 'minus'}${Math.abs(ms)}@example.com`);
    expect((await person.get('/api/session')).status).toBe(200);
    expect(await service.sql`SELECT FROM consumers WHERE lost_at IS NOT NULL`).toHaveLength(0);
    const { status, body } = await service.request({ path: '/readyz' });
    expect([status, Math.round(JSON.parse(body).clocks.databaseSeconds / 60)]).toEqual([200, -ms / 60_000]);
    expect(Math.round((await scrape('tidemark_clock_difference_seconds')) / 60)).toBe(-ms / 60_000);
    expect(service.log.map(({ msg }) => msg)).toContain(
      'clock: a clock is wrong or has jumped: what is deleted by time waits',
    );
  });

  test('the clock is right again: what is due goes, and the rest stays', async () => {
    await service.stop({ keepDatabase: true });
    jump = 0;
    await start();
    await until(async () => (await bins()) === 0, 'the bin is emptied');
    expect(await total()).toBe(51);
    expect(JSON.parse((await service.request({ path: '/readyz' })).body).clocks).toBeUndefined();
  });

  test('by the clock of the database, a month ahead, no token in its grace, no token of an account and nothing in the bin is over', async () => {
    await service.stop({ keepDatabase: true });
    await service.sql`DELETE FROM installation WHERE name = 'clock'`;
    jump = -30 * DAY_MS;
    await start();
    const person = await newPerson(service, 'owner@example.com');
    const { appId: own } = (await person.post('/api/apps', { name: 'Shop' })).data as { appId: string };
    const { data } = await person.get(`/api/apps/${own}/logging-token`);
    const rotate = () => rotateLoggingToken(service.sql, secret, { appId: own });
    const secret = await testSecret();
    await rotate();
    // Each ends in a fortnight.
    const ends = new Date(Date.now() - 16 * DAY_MS);
    await service.sql`UPDATE logging_tokens SET expires_at = ${ends} WHERE expires_at IS NOT NULL`;
    await rotate();
    const event = JSON.stringify({ loggingToken: data.loggingToken, typeName: 'a', payload: {} });
    const headers = { 'Content-Type': 'application/json' };
    const sent = await service.request({ method: 'POST', path: CREATE_EVENT, headers, body: event });
    expect(sent.status, sent.body).toBe(201);
    await service.sql`UPDATE resource_tokens SET expires_at = ${ends}`;
    expect(await total()).toBe(51);
    await person.delete(`/api/apps/${own}`, { confirm: 'Shop' });
    await service.sql`UPDATE apps SET removed_at = now() - interval '8 days' WHERE removed_id = ${own}`;
    expect((await person.post(`/api/removed-apps/${own}/restore`)).status).toBe(200);
  });

  test('both clocks a month back: what is stored stays, and what would be gone at once is not taken, by every route', async () => {
    const moved = new MovedClock();
    const other = await startTestService({ engine, clock: moved, config: { RETENTION_DAYS: DAYS } });
    try {
      const { appId: own, loggingToken: key } = other.app;
      const { resourceToken } = await createResourceToken(other.sql, {
        ...{ name: 'test', appIds: [own], expiresInSeconds: null },
      });
      const count = async (): Promise<number> => {
        const headers = { Authorization: `Bearer ${resourceToken}` };
        const path = `/public/get_events?appId=${own}&limit=1`;
        return JSON.parse((await other.request({ path, headers })).body).data.pagination.total;
      };
      const one = { typeName: 'a', payload: {} };
      const dated = { ...one, createdAt: new Date().toISOString(), key: 'one' };
      const send = async (): Promise<number[]> => {
        const single = await other.post({ ...one, typeId: undefined, loggingToken: key });
        const statuses = [single.status];
        for (const event of [one, dated]) {
          const request = {
            method: 'POST',
            path: '/v1/events',
            headers: { Authorization: `Bearer ${key}` },
          } as const;
          statuses.push(
            (await other.request({ ...request, body: JSON.stringify({ events: [event] }) })).status,
          );
        }
        return statuses;
      };
      expect(await send()).toEqual([201, 200, 200]);
      const [boundary] = await other.sql`SELECT readable_from FROM retention`;
      moved.jump = -30 * DAY_MS;
      expect(await send()).toEqual([503, 503, 503]);
      expect(await count()).toBe(3);
      // Less than retention keeps: they stay.
      moved.jump = -3 * DAY_MS;
      expect(await send()).toEqual([201, 200, expect.any(Number)]);
      expect(await count()).toBe(5);
      moved.jump = 0;
      expect(await send()).toEqual([201, 200, 200]);
      expect(await count()).toBe(7);
      expect(await other.sql`SELECT readable_from FROM retention`).toEqual([boundary]);
    } finally {
      await other.stop();
    }
  });
});
