/** PgBouncer in front of the database: refused where it changes sessions, and used where it does not. */
import pino from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { OperatorError } from '../../../src/errors.ts';
import { openDatabase, sharesSessions } from '../../../src/storage/database/open.ts';
import { type TestDatabase, testDatabase } from '../../support/database.ts';
import { hasPgBouncer, type PgBouncer, startPgBouncer } from '../../support/pgbouncer.ts';
import { startTestService } from '../../support/service.ts';

let database: TestDatabase;
let bouncer: PgBouncer | null = null;
beforeAll(async () => {
  database = await testDatabase();
});
afterEach(async () => {
  await bouncer?.stop();
  bouncer = null;
});
afterAll(() => database.drop());

const log = pino({ level: 'silent' });

async function refusal(mode: string, lenient: boolean): Promise<string> {
  bouncer = await startPgBouncer(database.url, { mode, lenient });
  const config = { DATABASE_URL: bouncer.url, DATA_DIR: '' };
  const error = await openDatabase(config, log, { supervise: false }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(OperatorError);
  return (error as OperatorError).message;
}

test('PostgreSQL itself gives each connection a session of its own', async () => {
  expect(await sharesSessions(database.address)).toBe(false);
});

describe.runIf(hasPgBouncer)('PgBouncer', () => {
  test.each(['transaction', 'statement'])('in %s mode is refused, with the mode that works', async (mode) => {
    expect(await refusal(mode, true)).toMatch(/pooler that changes the session .* pool_mode=session/);
  });

  test('with its defaults, which refuse session parameters, is named as the cause', async () => {
    expect(await refusal('transaction', false)).toMatch(
      /connection pooler .*unsupported startup parameter.*ignore_startup_parameters/,
    );
  });

  test('in session mode stores and reads every event', async () => {
    const running = await startTestService({
      reach: async () => {
        bouncer = await startPgBouncer(database.url, { mode: 'session', lenient: true });
        return { url: bouncer.url };
      },
      database,
    });
    try {
      const answers = await Promise.all(Array.from({ length: 50 }, () => running.post()));
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
      const [row] = await database.sql<[{ count: number }]>`SELECT count(*)::int FROM events`;
      expect(row.count).toBe(50);
      expect(await sharesSessions({ url: bouncer?.url ?? '' })).toBe(false);
    } finally {
      await running.stop({ keepDatabase: true });
    }
  });
});
