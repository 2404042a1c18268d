/** Connections that fall silent, and addresses that move: what is replaced, and what is left alone. */
import { randomUUID } from 'node:crypto';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import {
  connect,
  endPool,
  errorCode,
  isUnavailable,
  type Sql,
} from '../../../src/storage/database/connect.ts';
import { CopyConnection } from '../../../src/storage/database/copy-connection.ts';
import { readInstallation } from '../../../src/storage/database/installation-id.ts';
import type { PoolKind } from '../../../src/storage/database/pools.ts';
import type { WalPositions } from '../../../src/storage/database/server-address.ts';
import { ASK_WAL, ServerWatch } from '../../../src/storage/database/server-watch.ts';
import type { AcceptedEvent } from '../../../src/storage/write/accepted-event.ts';
import { EventWriter } from '../../../src/storage/write/event-writer.ts';
import { everyEngine, type TestDatabase, testDatabase } from '../../support/database.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import { until } from '../../support/service.ts';
import { writingTo } from '../../support/writers.ts';

const opened: (() => Promise<unknown>)[] = [];
let database: TestDatabase;
let proxy: FaultyProxy;
let watch: ServerWatch;
let moves = 0;
let isForeign = false;

beforeAll(async () => {
  database = await testDatabase();
  await readInstallation(database.sql);
});
afterAll(() => database.drop());
beforeEach(async () => {
  moves = 0;
  isForeign = false;
  proxy = await FaultyProxy.start(database.address);
  watch = new ServerWatch(proxy.address, {
    engine: 'postgres',
    log: pino({ level: 'silent' }),
    onMoved: () => {
      moves += 1;
    },
    onForeign: (state) => {
      isForeign = state;
    },
  });
});
afterEach(async () => {
  for (const close of opened.splice(0)) await close();
  await watch.stop();
  await proxy.stop();
});

function pool(name: string, kind: PoolKind, connections = 1): Sql {
  const sql = connect(watch.database, { connections, name, kind });
  opened.push(() => endPool(sql));
  return sql;
}

/** Turns the watch's clock until something holds. */
async function turnUntil(condition: () => boolean, what: string): Promise<void> {
  await until(async () => {
    await watch.turn();
    return condition();
  }, what);
}

async function breakAll(): Promise<void> {
  watch.breakAll();
  await until(() => proxy.connections === 0, 'all connections are closed');
}

const replaced = (kind: PoolKind): string[] =>
  watch.replaced.filter(({ pool: of }) => of === kind).map(({ reason, count }) => `${reason} ${count}`);

/** A database of the same name on another server. */
async function twin(): Promise<Pick<TestDatabase, 'sql' | 'address'>> {
  const { address, sql, drop } = await testDatabase('postgres15');
  opened.push(drop);
  if ('url' in address || 'url' in database.address) throw new Error('Both are reached by a Unix socket.');
  await sql.end();
  const admin = connect({ ...address, database: 'postgres' }, { connections: 1, name: 'test setup' });
  const { database: name } = database.address;
  await admin`ALTER DATABASE ${admin(address.database)} RENAME TO ${admin(name)}`;
  opened.unshift(async () => {
    await admin`DROP DATABASE ${admin(name)} WITH (FORCE)`;
    await admin.end();
  });
  const renamed = { ...address, database: name };
  return { address: renamed, sql: connect(renamed, { connections: 1, name: 'test' }) };
}

test('a statement on a silent connection fails, and the next one has a new connection', async () => {
  const sql = pool('reader', 'reads');
  await sql`SELECT 1`;
  expect(proxy.silence((name) => name === 'reader')).toBe(1);
  let code = '';
  const failed = sql`SELECT 2`.catch((error: unknown) => {
    code = errorCode(error);
  });
  await turnUntil(() => code !== '', 'it fails');
  await failed;
  expect(code).toBe('ETIMEDOUT');
  expect(replaced('reads')).toEqual(['silent 1']);
  expect(await sql`SELECT 3 AS three`).toEqual([{ three: 3 }]);
});

test('a query that is sent in answer to the failure of another one is answered, and so are all later ones', async () => {
  const sql = pool('reader', 'reads');
  for (let round = 0; round < 2; round += 1) {
    await sql`SELECT 1`;
    expect(proxy.silence((name) => name === 'reader')).toBe(1);
    let answer: unknown = null;
    // The client has heard of the error, and not yet that the connection has ended.
    const next = sql`SELECT 2`
      .catch(() => sql`SELECT 3 AS three`)
      .then((rows) => {
        answer = rows;
      });
    await turnUntil(() => answer !== null, 'the second one is answered');
    await next;
    expect(answer).toEqual([{ three: 3 }]);
  }
});

test('a transaction whose connection is lost fails and sends nothing more, and all later ones are answered', async () => {
  const sql = pool('reader', 'reads');
  for (let round = 0; round < 2; round += 1) {
    let failure: unknown = null;
    const lost = sql
      .begin(async (transaction) => {
        await transaction`SELECT 1`;
        expect(proxy.silence((name) => name === 'reader')).toBe(1);
        await transaction`SELECT 2`;
      })
      .catch((error: unknown) => {
        failure = error;
      });
    await turnUntil(() => failure !== null, 'the transaction fails');
    await lost;
    expect(isUnavailable(failure)).toBe(true);
    expect(await sql.begin((transaction) => [transaction`SELECT 3 AS three`])).toEqual([[{ three: 3 }]]);
  }
});

test('a transaction that fails as the connection of another pool is lost is rolled back', async () => {
  const sql = database.sql;
  const failure = Object.assign(new Error('lost'), { code: 'CONNECTION_CLOSED', query: 'SELECT 1' });
  await expect(
    sql.begin(async (transaction) => {
      await transaction`CREATE TABLE left_behind ()`;
      throw failure;
    }),
  ).rejects.toBe(failure);
  expect(await sql`SELECT to_regclass('left_behind') AS found`).toEqual([{ found: null }]);
});

test('an idle connection that is silent is found without anybody using it', async () => {
  const sql = pool('listener', 'listen');
  let lost = 0;
  await sql.listen(
    'channel',
    () => undefined,
    () => {
      lost += 1;
    },
  );
  expect(lost).toBe(1);
  expect(proxy.silence((name) => name === 'listener')).toBe(1);
  await turnUntil(() => lost === 2, 'it listens again on a new connection');
  expect(replaced('listen')).toEqual(['silent 1']);
});

test('a statement that takes long is left alone, however long nothing comes', async () => {
  const sql = pool('slow', 'slow maintenance');
  const [own] = await sql<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
  let isDone = false;
  const long = sql`SELECT pg_sleep(60)`
    .catch(() => undefined)
    .finally(() => {
      isDone = true;
    });
  await until(async () => {
    const rows =
      await database.sql`SELECT FROM pg_stat_activity WHERE pid = ${own?.pid ?? 0} AND state = 'active'`;
    return rows.length === 1;
  }, 'it is under way');
  // Each question takes a connection of its own.
  let asked = 0;
  proxy.onSent = (sent) => {
    if (sent.includes('FROM pg_stat_activity')) asked += 1;
  };
  await turnUntil(() => asked >= 5, 'the server was asked about it');
  expect(isDone).toBe(false);
  expect(watch.replaced).toEqual([]);
  await database.sql`SELECT pg_cancel_backend(${own?.pid ?? 0})`;
  await long;
});

test('a statement that outlasts its pool ends at the server, and its connection goes on', async () => {
  const sql = pool('hasty', 'probe');
  const [before] = await sql<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
  const error: unknown = await sql`SELECT pg_sleep(60)`.catch((reason: unknown) => reason);
  expect(errorCode(error)).toBe('57014');
  expect(await sql`SELECT pg_backend_pid() AS pid`).toEqual([before]);
});

test('nothing that a client sends or gets is lost or doubled by signs of life', async () => {
  const sql = pool('busy', 'reads', 2);
  const copy = new CopyConnection(watch.database, 'copy');
  opened.push(() => copy.close());
  const asked = Array.from({ length: 80 }, (_, n) => n);
  const answers: number[] = [];
  for (const n of asked) {
    for (let turn = 0; turn < 5; turn += 1) void watch.turn();
    const [[row], { rows }] = await Promise.all([
      sql<{ n: number; text: string }[]>`SELECT ${n}::int AS n, repeat('x', ${n * 3_989}) AS text`,
      copy.query<{ n: number }>('SELECT $1::int AS n', [n]),
    ]);
    if (row?.text.length === n * 3_989 && rows[0]?.n === n) answers.push(row.n);
  }
  expect(answers).toEqual(asked);
  expect(watch.replaced).toEqual([]);
});

test('a server that is read-only, or whose database is another one, is refused with its reason', async () => {
  const sql = pool('reader', 'reads');
  await sql`SELECT 1`;
  const [{ name = '' } = {}] = await database.sql<{ name: string }[]>`SELECT current_database() AS name`;
  await database.sql.unsafe(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  await breakAll();
  const refusal: unknown = await sql`SELECT 1`.catch((reason: unknown) => reason);
  expect(errorCode(refusal)).toBe('SERVER_READ_ONLY');
  expect(watch.problem).toBe('read-only');
  await database.sql.unsafe(`ALTER DATABASE ${name} RESET default_transaction_read_only`);
  await sql`SELECT 1`;
  expect(watch.problem).toBeNull();
  await database.sql`UPDATE installation SET value = 'other' WHERE name = 'database_identity'`;
  await breakAll();
  const foreign: unknown = await sql`SELECT 1`.catch((reason: unknown) => reason);
  expect(errorCode(foreign)).toBe('SERVER_IS_FOREIGN');
  expect(isForeign).toBe(true);
});

test('a restored database drops what is remembered: each new connection compares its generation', async () => {
  const sql = pool('reader', 'reads', 2);
  await Promise.all([sql`SELECT pg_sleep(0.05)`, sql`SELECT pg_sleep(0.05)`]);
  await database.sql`UPDATE installation SET value = 'next' WHERE name = 'generation'`;
  const epoch = watch.epoch;
  const other = pool('other', 'lookups');
  await other`SELECT 1`;
  expect(moves).toBe(1);
  expect(watch.epoch).toBe(epoch + 1);
  expect(replaced('reads')).toEqual(['moved 2']);
});

test('events that were accepted for another database are not stored, and later ones are', async () => {
  const [app] = await database.sql<{ id: number }[]>`
    INSERT INTO apps (public_id, name) VALUES ('app_1', 'one') RETURNING id`;
  const [type] = await database.sql<{ id: number }[]>`
    INSERT INTO event_types (public_id, app_id, name) VALUES ('typ_1', ${app?.id ?? 0}, 'one') RETURNING id`;
  await database.sql`SELECT create_events_partition(now()::date)`;
  const log = pino({ level: 'silent' });
  const writer = new EventWriter({
    ...{ ...writingTo({ ...database, address: watch.database }), connections: 1, log },
    now: () => performance.now(),
  });
  opened.push(() => writer.close());
  const event = (epoch: number): AcceptedEvent => ({
    ...{ id: randomUUID(), appId: app?.id ?? 0, typeId: type?.id ?? 0, createdAt: Date.now(), payload: '{}' },
    source: { appId: 'app_1', typeId: 'typ_1', typeName: 'one', epoch },
  });
  const before = watch.epoch;
  expect(await writer.write([event(before)])).toEqual([null]);
  // The connection that notices is the writer's own, with the events in hand.
  await database.sql`UPDATE installation SET value = 'the one after' WHERE name = 'generation'`;
  await breakAll();
  const [refusal] = await writer.write([event(before)]);
  expect(refusal).toMatchObject({ status: 503 });
  expect(watch.epoch).toBe(before + 1);
  expect(await writer.write([event(watch.epoch)])).toEqual([null]);
  const [row] = await database.sql<{ stored: number }[]>`SELECT count(*)::int AS stored FROM events`;
  expect(row?.stored).toBe(2);
});

test('a connection whose greeting arrives late, after others have seen more of the log, is no older copy', async () => {
  const sql = pool('reader', 'reads');
  await sql`SELECT 1`;
  const met = proxy.next((sent) => sent.includes('pg_control_system'), 'hold-answer');
  const late = pool('late', 'reads')<{ one: number }[]>`SELECT 1 AS one`;
  const settled = late.then(
    (rows) => rows,
    (error: unknown) => error,
  );
  await until(() => met() === 1, 'its greeting is answered, and held');
  for (let round = 0; round < 2; round += 1) {
    await database.sql`CREATE TABLE ${database.sql(`more_${round}`)} AS SELECT generate_series(1, 1000)`;
    const [row] = await sql<WalPositions[]>`${sql.unsafe(ASK_WAL)}`;
    if (row !== undefined) watch.noteWal(row);
  }
  proxy.release();
  expect(await settled).toEqual([{ one: 1 }]);
  expect(watch.problem).toBeNull();
});

test.runIf(everyEngine().includes('postgres15'))(
  'when the address leads to another server, every connection leaves the old one before its next statement',
  async () => {
    const sql = pool('reader', 'reads', 3);
    const copy = new CopyConnection(watch.database, 'copy', {
      pool: 'write',
      connectMs: 5_000,
      answerMs: 10_000,
    });
    opened.push(() => copy.close());
    await Promise.all([copy.query('SELECT 1', []), ...[1, 2, 3].map(() => sql`SELECT pg_sleep(0.05)`)]);
    const next = await twin();
    const rows = await database.sql<{ name: string; value: string }[]>`SELECT name, value FROM installation`;
    await next.sql`INSERT INTO installation ${next.sql(rows)} ON CONFLICT (name) DO UPDATE SET value = excluded.value`;
    await next.sql.end();
    proxy.leadTo(next.address);
    // A fresh connection is made from time to time.
    await turnUntil(() => moves === 1, 'the move is noticed');
    expect(replaced('reads')).toEqual(['moved 3']);
    expect(replaced('write')).toEqual(['moved 1']);
    const ask = "SELECT left(current_setting('server_version'), 2) AS v";
    const versions = new Set<unknown>();
    // What is sent before a connection is closed fails, and is not stored or read anywhere.
    await until(async () => {
      const answers = await Promise.allSettled([
        sql.unsafe<{ v: string }[]>(ask),
        copy.query<{ v: string }>(ask, []),
      ]);
      const [first, second] = answers;
      if (first.status === 'fulfilled') versions.add(first.value[0]?.v);
      if (second.status === 'fulfilled') versions.add(second.value.rows[0]?.v);
      return answers.every(({ status }) => status === 'fulfilled');
    }, 'both are answered again');
    expect([...versions]).toEqual(['15']);
  },
);
