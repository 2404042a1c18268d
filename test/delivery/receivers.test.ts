/** Receivers that are away for a day, silent, or that reset the connection; and the mails of alerts and of disabled webhooks. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Mailbox, openMailbox } from '../support/mailbox.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { Receiver } from './receiver.ts';

const HOUR_MS = 3_600_000;
const clock = new RunningClock();
let service: TestService;
let mailbox: Mailbox;
let owner: Person;
let app: { appId: string; path: string; loggingToken: string };
const receivers: Receiver[] = [];
beforeAll(async () => {
  mailbox = await openMailbox();
  service = await startTestService({
    clock,
    config: {
      WEBHOOK_ALLOW_PRIVATE: 'true',
      SMTP_URL: mailbox.url,
      PUBLIC_URL: 'http://events.example.com',
    },
  });
  owner = await newPerson(service, 'owner@example.com');
  app = await newOwnApp(owner);
});
afterEach(async () => {
  for (const receiver of receivers.splice(0)) receiver.close();
  await service.sql`DELETE FROM consumers WHERE kind = 'webhook'`;
  await service.sql`DELETE FROM webhooks`;
  await service.sql`DELETE FROM alert_rules`;
});
afterAll(async () => {
  await service.stop();
  await mailbox.close();
});

const post = async (n: number, typeName = 'order'): Promise<void> => {
  const event = { loggingToken: app.loggingToken, typeId: undefined, typeName, payload: { n } };
  expect((await service.post(event)).status).toBe(201);
};
const hook = async (answer: Receiver['answer']): Promise<{ receiver: Receiver; webhookId: string }> => {
  const receiver = new Receiver();
  receivers.push(receiver);
  receiver.answer = answer;
  const reply = await owner.post(`${app.path}/webhooks`, { url: await receiver.listen() });
  expect(reply.status, reply.text).toBe(201);
  return { receiver, webhookId: String(reply.data.webhookId) };
};
const stored = async (webhookId: string): Promise<Record<string, unknown>> => {
  const [row] = await service.sql`SELECT * FROM webhooks WHERE public_id = ${webhookId}`;
  return row ?? {};
};

test('a receiver that is away for more than a day gets every event after it, in order', async () => {
  let isAway = true;
  const { receiver, webhookId } = await hook((response) => response.writeHead(isAway ? 503 : 204).end());
  const sent: number[] = [];
  for (let tries = 1; tries <= 7; tries += 1) {
    for (const n of [2 * tries, 2 * tries + 1]) {
      await post(n);
      sent.push(n);
    }
    await until(async () => (await stored(webhookId)).tries === tries, `try ${tries}`);
    // Longer than the longest wait.
    clock.advance(5 * HOUR_MS);
  }
  isAway = false;
  clock.advance(5 * HOUR_MS);
  const before = receiver.received.length;
  await until(() => receiver.received.length >= before + sent.length, 'all that waited', 30_000);
  expect([...new Set(receiver.numbers.slice(0, before))]).toEqual([2]);
  const taken = receiver.numbers.slice(receiver.numbers.length - sent.length);
  expect(taken).toEqual(sent);
  await until(async () => (await stored(webhookId)).tries === 0, 'the end of the failure');
  expect(await stored(webhookId)).toMatchObject({ state: 'active', failing_since: null });
});

test('one that resets the connection is tried again, and one that is silent delays no other', async () => {
  const { receiver: silent } = await hook(() => undefined);
  const { receiver: broken, webhookId } = await hook((response, count) =>
    count === 1 ? response.destroy() : response.writeHead(204).end(),
  );
  const { receiver: live } = await hook((response) => response.writeHead(204).end());
  for (const n of [1, 2, 3]) await post(n);
  await until(() => live.received.length === 3 && silent.received.length === 1, 'the live one');
  await until(async () => (await stored(webhookId)).tries === 1, 'the failure');
  expect((await owner.get(`${app.path}/webhooks`)).text).toContain('ECONNRESET');
  clock.advance(60_000);
  await until(() => broken.received.length === 4, 'the rest');
  expect(broken.numbers).toEqual([1, 1, 2, 3]);
  expect(live.numbers).toEqual([1, 2, 3]);
  expect(silent.received).toHaveLength(1);
});

test('an alert is mailed with its value and threshold, and a disabled webhook to the owners', async () => {
  const rule = '{"of":"count","type":"sale","window":"2m","above":1}';
  // The type has to be known.
  await owner.post(`${app.path}/types`, { name: 'sale' });
  const made = await owner.post(`${app.path}/alerts`, {
    name: 'Orders',
    rule,
    emails: ['owner@example.com'],
  });
  expect(made.status, made.text).toBe(201);
  const minute = (): number => Math.floor(clock.wall() / 60_000) * 60_000;
  clock.advance(minute() + 61_000 - clock.wall());
  await post(1, 'sale');
  await post(2, 'sale');
  clock.advance(minute() + 66_000 - clock.wall());
  const mail = (): string | undefined =>
    mailbox.mails.find(({ to, text }) => to === 'owner@example.com' && text.includes('[firing] Orders'))
      ?.text;
  await until(() => mail() !== undefined, 'the mail of the alert');
  expect(mail()).toContain('The count of events "sale" in 2m is 2; the alert fires above 1.');
  expect(mail()).toContain(`http://events.example.com/apps/${app.appId}?from=`);
  const { webhookId } = await hook((response) => response.writeHead(410).end());
  await post(3);
  await until(async () => (await stored(webhookId)).state === 'disabled', 'the end of the webhook');
  const notice = (): string | undefined =>
    mailbox.notices.find(({ text }) => text.includes(`The webhook ${webhookId}`))?.text;
  await until(() => notice() !== undefined, 'the mail of the webhook');
  expect(notice()).toContain('its endpoint answered 410');
});
