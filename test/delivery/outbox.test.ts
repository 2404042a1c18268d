/** The outbox looks for messages twice a second: what a look costs where none waits, and that it finds one that comes. */
import pino from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { Outbox, type OutboxOptions } from '../../src/delivery/outbox.ts';
import type { Poster } from '../../src/delivery/signed-post.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { hurryRounds, testSecret, until } from '../support/service.ts';

hurryRounds();
let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.drop());

test('a round without messages makes one statement, and the next one finds a message that has come', async () => {
  const { sql } = database;
  const storage = await openStorage(sql);
  const secret = await testSecret();
  await createApp(sql, secret, { name: 'One' });
  let [rounds, statements] = [0, 0];
  const counted = new Proxy(sql, {
    apply: (target, self, given) => {
      statements += 1;
      return Reflect.apply(target, self, given);
    },
  });
  const posted: string[] = [];
  const post = async (url: string) => {
    posted.push(url);
    return { status: 200, problem: null, text: '', retryAfterMs: null, ms: 0 };
  };
  const options: OutboxOptions = {
    ...{ sql: counted, secret, storage, mailer: null, publicUrl: 'http://tidemark.example' },
    // It posts to Alertmanager and does nothing else.
    poster: { post } as unknown as Poster,
    isLeader: () => {
      rounds += 1;
      return true;
    },
    log: pino({ enabled: false }),
    // A clock that is far behind that of whoever has made the message.
    now: () => 0,
    monotonic: () => 0,
  };
  const outbox = new Outbox(options);
  outbox.start(0);
  await until(() => rounds >= 4, 'some rounds have begun');
  await outbox.stop();
  expect(statements).toBe(rounds);

  const other = 'http://alertmanager.example/api/v2/alerts';
  await sql`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
    SELECT id, 'alertmanager', ${other}, 'msg_1', 'alert.firing', '[]', now(), now() FROM apps`;
  const next = new Outbox(options);
  next.start(0);
  await until(async () => (await sql`SELECT FROM delivery_messages`).length === 0, 'the message is sent');
  await next.stop();
  expect(posted).toEqual([other]);
});
