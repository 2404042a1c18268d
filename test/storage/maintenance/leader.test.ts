/** Upkeep and preparation in one process at a time, each process with a connection of its own. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import {
  MAINTENANCE_NAME,
  MaintenanceLeader,
  prepareAlone,
} from '../../../src/storage/maintenance/leader.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';
import { startTestService, until } from '../../support/service.ts';

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

function newProcess(): Process {
  const sql = connect(database.address, { connections: 1, name: MAINTENANCE_NAME });
  open.push(sql);
  const made = {
    sql,
    turn: new MaintenanceLeader({ sql, onOtherProcess: () => made.neighbors++ }),
    neighbors: 0,
  };
  return made;
}

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
    sql`SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953064037 AND objid = 2 AND granted`;
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
