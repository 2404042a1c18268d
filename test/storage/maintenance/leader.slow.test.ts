/** Upkeep and preparation in one process at a time, each process with a connection of its own. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import {
  MAINTENANCE_NAME,
  MaintenanceLeader,
  type MaintenanceLeaderOptions,
  prepareAlone,
} from '../../../src/storage/maintenance/leader.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';
import { startTestService, TestClock, until } from '../../support/service.ts';

let database: TestDatabase;
const open: Sql[] = [];
beforeAll(async () => {
  database = await testDatabase();
});
afterEach(async () => {
  for (const sql of open.splice(0)) await sql.end();
});
afterAll(() => database.drop());

interface Process {
  readonly sql: Sql;
  readonly turn: MaintenanceLeader;
  neighbors: number;
}

function newProcess(options: Partial<MaintenanceLeaderOptions> = {}): Process {
  const sql = connect(database.address, { connections: 1, name: MAINTENANCE_NAME });
  open.push(sql);
  const made = {
    sql,
    turn: new MaintenanceLeader({ sql, onOtherProcess: () => made.neighbors++, ...options }),
    neighbors: 0,
  };
  return made;
}

const isAlive = async (pid: number): Promise<boolean> =>
  (await database.sql`SELECT FROM pg_stat_activity WHERE pid = ${pid}`).length > 0;

const backendOf = async (sql: Sql): Promise<number> => {
  const [row] = await sql<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
  return row?.pid ?? 0;
};

test('one process keeps the turn, and another takes it over when the first one dies', async () => {
  const [first, second] = [newProcess(), newProcess()];
  expect(await first.turn.take()).toBe(true);
  for (let round = 0; round < 3; round += 1) {
    expect(await second.turn.take()).toBe(false);
    expect(await first.turn.take()).toBe(true);
  }
  await database.sql`SELECT pg_terminate_backend(${await backendOf(first.sql)}, 5000)`;
  expect(await second.turn.take()).toBe(true);
  // The first one was only cut off: it is back, and has lost its turn.
  await until(
    () =>
      first.turn.take().then(
        (ours) => ours === false,
        () => false,
      ),
    'it is back without the turn',
  );
  await second.sql.end();
  await until(() => first.turn.take(), 'the turn is its own again');
});

test('a process that stands still loses the turn, and knows it before it does anything else', async () => {
  const clock = new TestClock();
  const first = newProcess({ monotonic: clock.monotonic });
  let takenOver = 0;
  const second = newProcess({ leaseMs: 100, onTakenOver: () => takenOver++ });
  expect(await first.turn.take()).toBe(true);
  expect(first.turn.isOurs).toBe(true);
  const pid = await backendOf(first.sql);
  // Nothing is heard of it any more: neither a round nor a beat.
  await until(() => second.turn.take(), 'the turn is taken over');
  expect({ takenOver, isAlive: await isAlive(pid) }).toEqual({ takenOver: 1, isAlive: false });
  clock.advance(15_000);
  expect(first.turn.isOurs).toBe(false);
  await until(
    () =>
      first.turn
        .take()
        .then((ours) => !ours)
        .catch(() => false),
    'it asks again',
  );
  expect(first.turn.isOurs).toBe(false);
  expect(await second.turn.take()).toBe(true);
});

test('a process that runs is heard of while its connection has nothing to do, and is left alone while it works', async () => {
  const { sql, turn } = newProcess({ leaseMs: 100, monotonic: new TestClock().monotonic });
  expect(await turn.take()).toBe(true);
  const pid = await backendOf(sql);
  const heardOf = async (): Promise<number> => {
    const [row] = await database.sql<{ at: Date }[]>`
      SELECT state_change AS at FROM pg_stat_activity WHERE pid = ${pid}`;
    return row?.at.getTime() ?? 0;
  };
  turn.start();
  try {
    for (let beats = 0; beats < 2; beats += 1) {
      const before = await heardOf();
      await until(async () => (await heardOf()) > before, 'a beat');
    }
    await database.sql.begin(async (tx) => {
      await tx`SELECT pg_advisory_xact_lock(1, 1)`;
      const work = sql`SELECT pg_advisory_lock(1, 1)`.then(() => undefined);
      await until(async () => {
        const rows = await tx`SELECT FROM pg_stat_activity WHERE pid = ${pid} AND wait_event_type = 'Lock'`;
        return rows.length > 0;
      }, 'work that takes long');
      expect(await newProcess({ leaseMs: 1 }).turn.take()).toBe(false);
      return { work };
    });
    expect(await turn.take()).toBe(true);
  } finally {
    turn.stop();
  }
});

test('a process that finds itself stopped in the middle of its question is no leader by the old answer', async () => {
  const clock = new TestClock();
  const { turn } = newProcess({ monotonic: clock.monotonic });
  const asked = turn.take();
  clock.advance(15_000);
  expect(await asked).toBe(false);
  expect(turn.isOurs).toBe(false);
  expect(await turn.take()).toBe(true);
});

test('a process learns of another one once, and of a third one again', async () => {
  const first = newProcess();
  await first.turn.take();
  expect(first.neighbors).toBe(0);
  const second = newProcess();
  await second.turn.take();
  for (let round = 0; round < 3; round += 1) await first.turn.take();
  expect([first.neighbors, second.neighbors]).toEqual([1, 1]);
  await newProcess().turn.take();
  await first.turn.take();
  expect(first.neighbors).toBe(2);
});

test('what a start prepares is prepared by one process at a time', async () => {
  let working = 0;
  let most = 0;
  let done = 0;
  await Promise.all(
    [newProcess(), newProcess(), newProcess()].map(({ sql }) =>
      prepareAlone(sql, async () => {
        working += 1;
        most = Math.max(most, working);
        await sql`SELECT pg_sleep(0.02)`;
        working -= 1;
        done += 1;
      }),
    ),
  );
  expect({ most, done }).toEqual({ most: 1, done: 3 });
});

test('of two services on one database one folds, and the other goes on when the first has stopped', async () => {
  const first = await startTestService();
  const second = await startTestService({ database: first.database });
  const { sql } = first;
  const pending = async (): Promise<number> => (await sql`SELECT 1 FROM count_deltas`).length;
  const holders = (): Promise<{ pid: number }[]> =>
    sql`SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953064037 AND objid = 2 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
  try {
    await until(async () => (await holders()).length === 1, 'one of them has the turn');
    const [before] = await holders();
    await sql`SELECT pg_terminate_backend(${before?.pid ?? 0}, 5000)`;
    await until(
      async () => (await holders()).some(({ pid }) => pid !== before?.pid),
      'the turn is taken over',
    );
    expect((await second.post()).status).toBe(201);
    await until(async () => (await pending()) === 0, 'its count is folded');
  } finally {
    await second.stop();
    await first.stop();
  }
});
