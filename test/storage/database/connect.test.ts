import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  connect,
  endPool,
  errorCode,
  isUnavailable,
  poolFor,
  type Sql,
  type Transaction,
} from '../../../src/storage/database/connect.ts';
import { openCopyClient } from '../../../src/storage/database/copy-client.ts';
import { CopyConnection } from '../../../src/storage/database/copy-connection.ts';
import { Database } from '../../../src/storage/database/database.ts';
import { PoolSockets } from '../../../src/storage/database/pool-sockets.ts';
import { freePort } from '../../support/cluster.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import { until } from '../../support/service.ts';
import { type ConnectError, failConnects } from '../../support/unroutable.ts';

let database: TestDatabase;
let pool: Sql;

beforeAll(async () => {
  database = await testDatabase();
  pool = connect(database.address, { connections: 2, name: 'pool under test' });
});

afterAll(async () => {
  await endPool(pool);
  await database.drop();
});

test('work of a transaction whose connection is lost while it waits for something else sends nothing more', async () => {
  const single = connect(database.address, { connections: 1, name: 'single' });
  onTestFinished(() => endPool(single));
  // What is written to a connection that is gone would end the process.
  const faults: unknown[] = [];
  const note = (fault: unknown): void => {
    faults.push(fault);
  };
  process.on('uncaughtExceptionMonitor', note);
  onTestFinished(() => {
    process.off('uncaughtExceptionMonitor', note);
  });
  const ends: readonly ((tx: Transaction) => Promise<unknown>)[] = [
    async () => 'done',
    async (tx) => await tx`SELECT 1`,
    async (tx) => await tx.unsafe(`SELECT 1 -- ${'x'.repeat(2_000)}`),
    async () => {
      throw new Error('a failure of its own');
    },
  ];
  for (const end of ends) {
    let goOn = (): void => undefined;
    const isLost = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const begun = single.begin(async (tx) => {
      const [backend] = await tx<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
      await database.sql`SELECT pg_terminate_backend(${backend?.pid ?? 0})`;
      await isLost;
      return await end(tx);
    });
    await expect(begun).rejects.toSatisfy(isUnavailable);
    goOn();
    // In the second turn the client writes what it was given in the first one.
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(await single.begin((tx) => [tx`SELECT 3 AS three`])).toEqual([[{ three: 3 }]]);
  }
  expect(faults).toEqual([]);
});

test('nobody waits any more for work that was on a lost connection: what the next session runs is not canceled', async () => {
  const single = connect(database.address, { connections: 1, name: 'single' });
  onTestFinished(() => endPool(single));
  let [goOn, settle] = [(): void => undefined, (): void => undefined];
  const isLost = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const waiter = {
    settled: false,
    whenSettled: (listener: () => void) => {
      settle = listener;
      return () => undefined;
    },
  };
  const begun = poolFor(waiter, single).begin('', async (tx) => {
    const [backend] = await tx<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
    await database.sql`SELECT pg_terminate_backend(${backend?.pid ?? 0})`;
    await isLost;
  });
  await expect(begun).rejects.toSatisfy(isUnavailable);
  const opened = vi.spyOn(single.pool.database, 'openBeside');
  const next = await database.sql.begin(async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(1)`;
    const waiting = single`SELECT pg_advisory_xact_lock(1)::text, 1 AS one`.execute();
    waiting.catch(() => undefined);
    const isRunning = async (): Promise<boolean> =>
      (
        await tx`
        SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND NOT granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
      ).length > 0;
    await until(isRunning, 'the next statement runs');
    settle();
    // The server ends a request to cancel when it has done what that asks.
    const beside = await opened.mock.results[0]?.value;
    if (beside?.closed === false) await once(beside, 'close');
    return { waiting };
  });
  expect(await next.waiting).toMatchObject([{ one: 1 }]);
  goOn();
});

test('a transaction has its connection to itself, however many queries are before it and behind it', async () => {
  await database.sql`CREATE TABLE balances (owner int PRIMARY KEY, amount int NOT NULL)`;
  await database.sql`INSERT INTO balances SELECT n, 0 FROM generate_series(1, 400) AS n`;
  const look = (): Promise<unknown> =>
    pool`SELECT pg_current_xact_id_if_assigned() AS "transaction"`.execute();
  let owner = 0;
  // The client's own bound on queries in a row is a hundred a connection.
  for (let ahead = 190; ahead <= 210; ahead += 1) {
    // Both connections are busy while everything else comes.
    const busy = [1, 2].map(() => pool`SELECT pg_sleep(0.02)`.execute());
    const outside = Array.from({ length: ahead }, look);
    const transactions = Array.from({ length: 4 }, async (_, index) => {
      owner += 1;
      const mine = owner;
      const transfer = pool.begin(async (tx) => {
        await tx`UPDATE balances SET amount = amount + 1 WHERE owner = ${mine}`;
        if (index % 2 === 0) throw new Error('taken back');
      });
      return await transfer.catch((error: unknown) => String(error));
    });
    outside.push(...Array.from({ length: 20 }, look));
    await Promise.all(busy);
    const seen = new Set((await Promise.all(outside)).map((rows) => JSON.stringify(rows)));
    expect([...seen], `${ahead} ahead`).toEqual(['[{"transaction":null}]']);
    expect(await Promise.all(transactions)).toEqual([
      'Error: taken back',
      undefined,
      'Error: taken back',
      undefined,
    ]);
  }
  const [kept] = await database.sql`
    SELECT count(*) FILTER (WHERE amount = 1)::int AS kept, count(*) FILTER (WHERE owner % 2 = 0 AND amount = 1)::int AS right
      FROM balances`;
  expect(kept).toEqual({ kept: owner / 2, right: owner / 2 });
});

/** Errors that nobody handled while a test ran: each of them would have ended a service. */
function unhandled(): unknown[] {
  const found: unknown[] = [];
  const note = (error: unknown): unknown => found.push(error);
  process.on('uncaughtException', note).on('unhandledRejection', note);
  onTestFinished(() => {
    process.off('uncaughtException', note).off('unhandledRejection', note);
  });
  return found;
}

async function failureOf(query: PromiseLike<unknown>): Promise<unknown> {
  try {
    await query;
  } catch (error) {
    return error;
  }
  throw new Error('It did not fail.');
}

test('session parameters of DATABASE_URL are set beside those that durability depends on, on every kind of connection', async () => {
  const database = await testDatabase();
  const url = new URL(database.url);
  url.searchParams.set('options', '-c work_mem=7MB -c synchronous_commit=off');
  const address = { url: url.href };
  const SETTINGS = `
    SELECT current_setting('work_mem') AS memory, current_setting('synchronous_commit') AS commit,
           current_setting('statement_timeout') AS statement`;
  const pool = connect(address, { connections: 1, name: 'test', kind: 'reads' });
  const writer = new CopyConnection(address, 'test', { connectMs: 5_000, answerMs: 20_000, lockMs: 500 });
  const copier = await openCopyClient(address, 'test');
  onTestFinished(async () => {
    await Promise.all([pool.end(), writer.close(), copier.end()]);
    await database.drop();
  });
  const common = { memory: '7MB', commit: 'on' };
  expect(await pool.unsafe(SETTINGS)).toEqual([{ ...common, statement: '25s' }]);
  expect((await writer.query(SETTINGS, [])).rows).toEqual([{ ...common, statement: '18s' }]);
  expect((await copier.query(SETTINGS)).rows).toEqual([{ ...common, statement: '0' }]);
});

describe('a connection that fails at once', () => {
  test.each<ConnectError>(['ENETUNREACH', 'EHOSTUNREACH', 'ENETDOWN', 'EADDRNOTAVAIL', 'EMFILE'])(
    'with %s fails its query as an outage, and nothing else; the pool goes on afterwards',
    async (code) => {
      const faults = unhandled();
      const proxy = await FaultyProxy.start(database.address);
      onTestFinished(() => proxy.stop());
      const { port } = proxy.address as { port: number };
      const distant = connect(proxy.address, { connections: 1, name: 'distant' });
      onTestFinished(() => endPool(distant));
      expect(await distant`SELECT 1 AS one`).toEqual([{ one: 1 }]);
      const restore = failConnects(code, port);
      onTestFinished(restore);
      await proxy.goAway();
      for (let attempt = 0; attempt < 3; attempt += 1) {
        const failure = await failureOf(distant`SELECT 1`);
        // The first one may still have gone to the connection that has just been broken.
        if (attempt > 0) expect(errorCode(failure)).toBe(code);
        expect(isUnavailable(failure)).toBe(true);
      }
      await proxy.comeBack();
      restore();
      await until(async () => {
        const rows = await distant`SELECT 1 AS one`.catch(() => []);
        return rows.length === 1;
      }, 'the pool has a connection again');
      expect(faults).toEqual([]);
    },
  );

  test('to an address that this machine has no way to is an outage too', async () => {
    const faults = unhandled();
    const nowhere = connect(
      { url: 'postgres://u@255.255.255.255:5432/d' },
      { connections: 1, name: 'nowhere' },
    );
    const failures = await Promise.all([failureOf(nowhere`SELECT 1`), failureOf(nowhere`SELECT 2`)]);
    expect(failures.map((failure) => isUnavailable(failure))).toEqual([true, true]);
    await endPool(nowhere);
    expect(faults).toEqual([]);
  });

  test('and is closed before the client hears of it does not end the process', async () => {
    const faults = unhandled();
    const address = { url: `postgres://u@127.0.0.1:${await freePort()}/d` };
    const socket = await new PoolSockets(new Database(address), { name: 'closed', kind: null }).connect();
    const closed = once(socket, 'close');
    socket.destroy();
    await closed;
    // As the client does.
    socket.removeAllListeners();
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(faults).toEqual([]);
  });

  test("of a file is no outage: only connections' refusals by a firewall are", () => {
    const failure = (syscall: string): Error => Object.assign(new Error(), { code: 'EACCES', syscall });
    expect(isUnavailable(failure('connect'))).toBe(true);
    expect(isUnavailable(failure('open'))).toBe(false);
  });
});
