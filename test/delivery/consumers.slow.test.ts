/** Consumers from outside: commands, and batches for resource tokens. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { build, type Outcome, tidemark } from '../support/command-line.ts';
import { availableEngines } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { hurryRounds, startTestService, type TestService, until } from '../support/service.ts';

hurryRounds();

interface BatchBody {
  readonly events: readonly {
    readonly id: string;
    readonly typeName: string;
    readonly payload: { readonly n: number };
    readonly position: string;
  }[];
  readonly position: string;
  readonly lease: string | null;
  readonly deliveries: number;
  readonly hasMore: boolean;
}

describe.each(first(availableEngines()))('on %s', (engine) => {
  let service: TestService;
  let token: string;
  let folder: string;
  beforeAll(async () => {
    build();
    folder = await mkdtemp(join(tmpdir(), 'tidemark-consumers-'));
    service = await startTestService({ engine, config: { READ_LIMIT_PER_MINUTE: 0 } });
    const { resourceToken } = await createResourceToken(service.sql, {
      name: 'test',
      appIds: [service.app.appId],
      expiresInSeconds: null,
    });
    token = resourceToken;
  });
  afterAll(async () => {
    await service.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const run = (...args: string[]): Promise<Outcome> =>
    tidemark(['consumer', ...args], {
      DATABASE_URL: service.database.url,
      DATA_DIR: folder,
      MAX_CONSUMERS_PER_APP: '6',
    });
  const add = (name: string, ...args: string[]): Promise<Outcome> =>
    run('add', '--app', service.app.appId, '--name', name, '--json', ...args);
  const call = (name: string, path: string, body?: object): Promise<HttpResponse> =>
    service.request({
      method: body === undefined ? 'GET' : 'POST',
      path: `/v1/apps/${service.app.appId}/consumers/${encodeURIComponent(name)}${path}`,
      headers: { Authorization: `Bearer ${token}` },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const read = async (name: string, query = ''): Promise<BatchBody> => {
    const response = await call(name, `/events${query}`);
    expect(response.status, response.body).toBe(200);
    return JSON.parse(response.body).data;
  };
  /** Until events are there. */
  const next = async (name: string, query = ''): Promise<BatchBody> => {
    let batch: BatchBody | null = null;
    await until(async () => {
      batch = await read(name, query);
      return batch.events.length > 0;
    }, 'events');
    if (batch === null) throw new Error('no batch');
    return batch;
  };
  const post = async (n: number, typeName = 'test type'): Promise<string> => {
    const response = await service.post({ typeId: undefined, typeName, payload: { n } });
    expect(response.status).toBe(201);
    return JSON.parse(response.body).eventId;
  };

  test('events are leased, acknowledged in parts, and come once', async () => {
    expect((await add('orders')).code).toBe(0);
    const ids = [await post(1), await post(2), await post(3)];
    const seen: string[] = [];
    while (seen.length < 3) {
      const { events, lease, position } = await next('orders', '?limit=2');
      const second = await call('orders', '/events');
      expect(second.status, second.body).toBe(409);
      expect(JSON.parse(second.body).code).toBe('CONSUMER_LEASED');
      expect(Number(second.headers['retry-after'])).toBeGreaterThan(0);
      seen.push(...events.map(({ id }) => id));
      const acknowledged = await call('orders', '/ack', { lease, position });
      expect(acknowledged.status, acknowledged.body).toBe(200);
      const again = await call('orders', '/ack', { lease, position });
      expect(again.status).toBe(409);
      expect(JSON.parse(again.body).code).toBe('LEASE_OVER');
    }
    expect(seen).toEqual(ids);
    expect(await read('orders')).toMatchObject({ events: [], lease: null });
  });

  test('an event that a client fails at is left out by a command, and the next one comes', async () => {
    await add('fails', '--type', 'poison');
    const [first] = [await post(1, 'poison'), await post(2, 'other'), await post(3, 'poison')];
    expect((await next('fails', '?limit=1&leaseSeconds=3600')).events.map(({ id }) => id)).toEqual([first]);
    const skip = (): Promise<Outcome> => run('skip', '--app', service.app.appId, '--name', 'fails', '--json');
    expect(JSON.parse((await skip()).stdout)).toMatchObject({ name: 'fails', eventId: first });
    const batch = await next('fails');
    expect(batch.events.map(({ payload }) => payload)).toEqual([{ n: 3 }]);
    expect((await call('fails', '/ack', { lease: batch.lease, position: batch.position })).status).toBe(200);
    expect(await skip()).toMatchObject({ code: 1, stderr: 'tidemark: no event waits for this consumer\n' });
    await run('remove', '--app', service.app.appId, '--name', 'fails');
  });

  test('a batch says how often it was handed out, and the API leaves out the event that comes next', async () => {
    await add('counted', '--type', 'counted');
    const [first, second] = [await post(1, 'counted'), await post(2, 'counted')];
    await until(async () => {
      const { events, lease } = await read('counted');
      if (lease !== null) await call('counted', '/release', { lease });
      return events.length === 2;
    }, 'both events');
    await run('seek', '--app', service.app.appId, '--name', 'counted', '--to', 'start');
    const released = async (query = ''): Promise<number> => {
      const { deliveries, lease } = await next('counted', query);
      expect((await call('counted', '/release', { lease })).status).toBe(200);
      return deliveries;
    };
    expect([await released(), await released('?limit=1'), await released()]).toEqual([1, 2, 3]);
    const list = await run('list', '--app', service.app.appId, '--json');
    expect(JSON.parse(list.stdout).consumers).toContainEqual(
      expect.objectContaining({ name: 'counted', deliveries: 3 }),
    );
    const before = await next('counted', '?limit=1');
    expect((await call('counted', '/skip', {})).body).toBe(`{"success":true,"data":{"eventId":"${first}"}}`);
    expect((await call('counted', '/ack', { lease: before.lease, position: before.position })).status).toBe(
      409,
    );
    expect([await released(), await released()]).toEqual([1, 2]);
    expect(JSON.parse((await call('counted', '/skip', {})).body).data).toEqual({ eventId: second });
    expect(JSON.parse((await call('counted', '/skip', {})).body).data).toEqual({ eventId: null });
    expect(await read('counted')).toMatchObject({ events: [], deliveries: 0 });
    const [entry] = await service.sql`
      SELECT actor, details FROM audit_entries WHERE action = 'consumer.skip' ORDER BY id DESC LIMIT 1`;
    expect(entry).toEqual({ actor: 'resource token test', details: { name: 'counted' } });
    expect((await call('nobody', '/skip', {})).status).toBe(404);
    expect(
      (
        await service.request({
          method: 'POST',
          path: `/v1/apps/${service.app.appId}/consumers/counted/skip`,
        })
      ).status,
    ).toBe(401);
    // What is not wanted before it was looked at for the lease.
    for (let n = 0; n < 3; n += 1) {
      const events = Array.from({ length: 700 }, () => ({ typeName: 'counted', payload: { n } }));
      const headers = { Authorization: `Bearer ${service.app.loggingToken}` };
      const request = { method: 'POST', path: '/v1/events', headers, body: JSON.stringify({ events }) };
      expect((await service.request(request)).status).toBe(200);
    }
    const third = await post(7_000, 'counted');
    await add('rare', '--type', 'counted', '--filter', 'n:7000', '--from', 'start');
    await until(async () => (await read('rare')).events.length === 1, 'the event is leased');
    const rare = await call('rare', '/skip', {});
    expect(rare.body).toBe(`{"success":true,"data":{"eventId":"${third}"}}`);
    await run('remove', '--app', service.app.appId, '--name', 'rare');
    await service.sql`UPDATE consumers SET lost_at = now() WHERE name = 'counted'`;
    expect(JSON.parse((await call('counted', '/skip', {})).body)).toMatchObject({ code: 'CONSUMER_LOST' });
    await run('remove', '--app', service.app.appId, '--name', 'counted');
  });

  test('types and filters choose events', async () => {
    await service.post({ typeId: undefined, typeName: 'other', payload: {} });
    expect((await add('chosen', '--type', 'other', '--filter', 'n>1')).code).toBe(0);
    await post(1, 'other');
    await post(2);
    const id = await post(3, 'other');
    const { events, lease, position } = await next('chosen');
    expect(events.map((event) => event.id)).toEqual([id]);
    expect(events[0]?.payload).toEqual({ n: 3 });
    await call('chosen', '/ack', { lease, position });
  });

  test('what is wrong is refused with what was expected', async () => {
    expect((await call('nobody', '/events')).status).toBe(404);
    await add('strict');
    await post(1);
    const { lease, position } = await next('strict');
    const refusals = [
      await call('strict', '/ack', { lease, position: 'x' }),
      await call('strict', '/ack', { lease }),
      await call('strict', '/ack', { lease: 'x', position }),
      await call('strict', '/ack', {
        lease,
        position: Buffer.from('["999999999999"]').toString('base64url'),
      }),
      await call('strict', '/events?limit=0'),
      await call('strict', '/events?limti=1'),
    ];
    expect(refusals.map(({ status }) => status)).toEqual([400, 400, 400, 400, 400, 400]);
    expect(refusals.at(-1)?.body).toContain('did you mean limit?');
    expect((await call('strict', '/ack', { lease, position })).status).toBe(200);
    const withoutToken = await service.request({
      path: `/v1/apps/${service.app.appId}/consumers/strict/events`,
    });
    expect(withoutToken.status).toBe(401);
  });

  test('commands refuse what is wrong with exit code 2, and say how it is right', async () => {
    const wrong = [
      await add('x'.repeat(101)),
      await add('a/b'),
      await add('w1', '--filter', 'n>'),
      await add('w2', '--type', 'test tipe'),
      await add('w3', '--from', 'yesterday'),
    ];
    expect(wrong.map(({ code }) => code)).toEqual([2, 2, 2, 2, 2]);
    expect(wrong[3]?.stderr).toContain('did you mean "test type"?');
    expect((await add('orders')).code).toBe(1);
    expect(
      (await run('seek', '--app', service.app.appId, '--name', 'ordres', '--to', 'now')).stderr,
    ).toContain('did you mean "orders"?');
  });

  test('consumers are listed, sought, limited and removed', async () => {
    const app = ['--app', service.app.appId] as const;
    for (const name of ['one', 'two', 'three']) expect((await add(name)).code).toBe(0);
    const fourth = await add('four');
    expect(fourth.code).toBe(1);
    expect(fourth.stderr).toContain('MAX_CONSUMERS_PER_APP');
    const { consumers } = JSON.parse((await run('list', ...app, '--json')).stdout);
    expect(consumers).toHaveLength(6);
    expect(consumers[0]).toMatchObject({ name: 'orders', state: 'ok' });
    expect((await run('seek', ...app, '--name', 'one', '--to', 'start')).code).toBe(0);
    expect((await next('one', '?limit=1')).events[0]?.payload).toEqual({ n: 1 });
    expect((await run('remove', ...app, '--name', 'one')).code).toBe(0);
    expect((await call('one', '/events')).status).toBe(404);
    const [row] =
      await service.sql`SELECT count(*)::integer AS count FROM audit_entries WHERE action LIKE 'consumer.%' AND details->>'name' NOT IN ('counted', 'rare')`;
    expect(row?.count).toBe(11);
  });
});
