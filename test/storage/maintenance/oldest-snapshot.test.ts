/** The oldest snapshot in use: who holds it, for how long, and what tells of it. */
import { randomUUID } from 'node:crypto';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import {
  readOldestSnapshot,
  SnapshotWatch,
  snapshotsBefore,
} from '../../../src/storage/maintenance/oldest-snapshot.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';
import { Exposition } from '../../support/exposition.ts';
import { reserved } from '../../support/reserved.ts';
import { hurryRounds, startTestService, until } from '../../support/service.ts';

hurryRounds();

let database: TestDatabase;
let sql: Sql;
beforeEach(async () => {
  database = await testDatabase();
  sql = database.sql;
});
afterEach(() => database.drop());

/** A session that is idle in a transaction with a snapshot. */
async function forgottenSession(): Promise<{ end(): Promise<void> }> {
  const session = connect(database.address, { connections: 1, name: 'forgotten session' });
  const held = await reserved(session);
  await held`BEGIN ISOLATION LEVEL REPEATABLE READ`;
  await held`SELECT FROM apps`;
  return {
    end: async () => {
      await held`ROLLBACK`;
      held.release();
      await session.end();
    },
  };
}

function logInto(lines: string[]): pino.Logger {
  return pino({}, { write: (line: string) => void lines.push(line) });
}

test('is named with its holder, and told in the log once', async () => {
  const alone = connect(database.address, { connections: 1, name: 'test upkeep' });
  const lines: string[] = [];
  const watch = new SnapshotWatch(alone, logInto(lines), Date.now, 0);
  try {
    const session = await forgottenSession();
    for (let n = 0; n < 3; n += 1) await sql`CREATE TEMPORARY TABLE t ON COMMIT DROP AS SELECT 1`;
    const oldest = await readOldestSnapshot(alone);
    expect(oldest?.name).toMatch(/^process \d+ \(forgotten session, user tidemark, idle in transaction/);
    expect(oldest?.transactions).toBeGreaterThanOrEqual(3);
    for (let round = 0; round < 3; round += 1) await watch.look();
    expect(watch.seconds).toBeGreaterThan(0);
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ level: 40, holder: oldest?.name });
    await session.end();
    await until(async () => {
      await watch.look();
      return watch.seconds === 0;
    }, 'it has ended');
    expect(JSON.parse(lines[1] ?? '')).toMatchObject({ level: 30 });
  } finally {
    await alone.end();
  }
});

test('of another role, whose times PostgreSQL does not tell, is as old as it has been seen', async () => {
  const role = `owner_${randomUUID().replaceAll('-', '')}`;
  await sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'ordinary'`);
  const url = new URL(database.url);
  [url.username, url.password] = [role, 'ordinary'];
  const ordinary = connect({ url: url.href }, { connections: 1, name: 'test upkeep' });
  const session = await forgottenSession();
  let now = 1_000;
  const lines: string[] = [];
  const watch = new SnapshotWatch(ordinary, logInto(lines), () => now);
  try {
    // Another test's transaction may be the oldest for a moment, and the session is then seen for the first time again.
    await until(async () => {
      await watch.look();
      now += 59_000;
      await watch.look();
      return watch.seconds === 59;
    }, 'the session is the oldest twice');
    expect(lines).toEqual([]);
    now += 1_000;
    await watch.look();
    expect([watch.seconds, lines.length]).toEqual([60, 1]);
  } finally {
    await session.end();
    await ordinary.end();
    await sql.unsafe(`DROP ROLE ${role}`);
  }
});

test('is compared with a transaction', async () => {
  const alone = connect(database.address, { connections: 1, name: 'test upkeep' });
  const next = async (): Promise<string> =>
    (await alone<{ next: string }[]>`SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next`)[0]
      ?.next ?? '';
  try {
    let session = await forgottenSession();
    // A snapshot is as old as the oldest transaction that was open when it was taken: also of other tests on this server.
    await until(async () => {
      if (!(await snapshotsBefore(alone, await next()))) return true;
      await session.end();
      session = await forgottenSession();
      return false;
    }, 'no transaction has come between');
    await sql`CREATE TEMPORARY TABLE t ON COMMIT DROP AS SELECT 1`;
    expect(await snapshotsBefore(alone, await next())).toBe(true);
    await session.end();
    await until(async () => !(await snapshotsBefore(alone, await next())), 'none is older');
  } finally {
    await alone.end();
  }
});

test('is a metric of the process that does the maintenance', async () => {
  const session = await forgottenSession();
  const service = await startTestService({ database });
  const metric = async (): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    return new Exposition(body).value('tidemark_oldest_snapshot_seconds');
  };
  try {
    await until(async () => (await metric()) > 0, 'its age is told');
  } finally {
    await session.end();
  }
  await until(async () => (await metric()) === 0, 'its end is told');
  await service.stop();
});
