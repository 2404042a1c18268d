/** What a pool must keep apart, however much is asked of it at once. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect, endPool, type Sql } from '../../src/storage/connect.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';

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
