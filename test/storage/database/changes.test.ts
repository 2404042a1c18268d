/** What one process changes counts in the others: at once by notification, and soon where that is broken. */
import { afterEach, expect, test } from 'vitest';
import { createResourceToken, revokeResourceToken } from '../../../src/apps/resource-tokens.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import {
  startTestService,
  TestClock,
  type TestService,
  type TestServiceOptions,
  until,
} from '../../support/service.ts';

const open: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.stop();
});

interface Pair {
  /** Where things are changed. */
  readonly changing: TestService;
  /** Where they are remembered. */
  readonly remembering: TestService;
  /** Status of a post, and of a read, with tokens that the other one remembers. */
  post(): Promise<number>;
  read(): Promise<number>;
  revoke(): Promise<void>;
}

/** Two services on one database, of which the second has seen both tokens. */
async function startPair(options: TestServiceOptions = {}): Promise<Pair> {
  const changing = await startTestService();
  open.push(changing);
  const remembering = await startTestService({ ...options, database: changing.database });
  open.push(remembering);
  const { sql } = changing;
  const { appId, loggingToken } = remembering.app;
  const { tokenId, resourceToken } = await createResourceToken(sql, {
    name: 'T',
    appIds: [appId],
    expiresInSeconds: null,
  });
  const post = async (): Promise<number> =>
    (await remembering.post({ loggingToken, typeId: remembering.type.typeId })).status;
  const read = async (): Promise<number> =>
    (
      await remembering.request({
        method: 'GET',
        path: `/public/get_events?appId=${appId}`,
        headers: { Authorization: `Bearer ${resourceToken}` },
      })
    ).status;
  await until(async () => (await post()) === 201 && (await read()) === 200, 'both tokens are good');
  const revoke = async (): Promise<void> => {
    await revokeResourceToken(sql, tokenId);
    await sql`DELETE FROM logging_tokens`;
  };
  return { changing, remembering, post, read, revoke };
}

test('a change is known in the other process without an expiry of its memory, of tokens, of types and of apps', async () => {
  // The clock stands: nothing that is remembered gets too old.
  const { changing, remembering, post, read, revoke } = await startPair({ clock: new TestClock() });
  const { sql } = changing;
  const postTo = async (typeId: string): Promise<number> => (await remembering.post({ typeId })).status;
  const type = await remembering.newType(remembering.app, 'to be removed');
  expect(await postTo(type.typeId)).toBe(201);
  await sql`DELETE FROM event_types WHERE public_id = ${type.typeId}`;
  await until(async () => (await postTo(type.typeId)) === 404, 'the type is gone there too');
  await revoke();
  await until(async () => (await post()) === 401, 'the logging token is refused');
  await until(async () => (await read()) === 401, 'the resource token is refused');
});

test('where notification is broken a revoked token lives for TOKEN_CACHE_SECONDS at most', async () => {
  const clock = new TestClock();
  const { changing, post, read, revoke } = await startPair({ clock, config: { TOKEN_CACHE_SECONDS: 20 } });
  const { sql } = changing;
  for (const table of ['logging_tokens', 'resource_tokens', 'resource_token_apps'])
    await sql`DROP TRIGGER notify_change ON ${sql(table)}`;
  await revoke();
  // So it really is broken.
  expect([await post(), await read()]).toEqual([201, 200]);
  clock.advance(20_000);
  expect([await post(), await read()]).toEqual([401, 401]);
});

test('what changed while the listening connection was lost is known once it is back, however long that took', async () => {
  const proxies: FaultyProxy[] = [];
  const { changing, post, read, revoke } = await startPair({
    // Its clock stands still: nothing that it remembers grows old.
    clock: new TestClock(),
    reach: async (address) => {
      const proxy = await FaultyProxy.start(address);
      proxies.push(proxy);
      open.push(proxy);
      return proxy.address;
    },
  });
  const [proxy] = proxies;
  const lost = proxy?.next(() => true, 'lose-request', Number.POSITIVE_INFINITY);
  await changing.sql`
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
     WHERE datname = current_database() AND query ILIKE 'listen%' AND pid <> pg_backend_pid()`;
  await until(() => (lost?.() ?? 0) > 10, 'several attempts to listen again have failed');
  await revoke();
  proxy?.release();
  await until(async () => (await post()) === 401, 'the logging token is refused');
  await until(async () => (await read()) === 401, 'the resource token is refused');
});
