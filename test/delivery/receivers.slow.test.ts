/** Receivers that are away for a day, silent, or that reset the connection; and the mails of alerts and of disabled webhooks. */
import type { ServerResponse } from 'node:http';
import { PNG } from 'pngjs';
import PostalMime from 'postal-mime';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { resumeAccount, suspendAccount } from '../../src/accounts/people/suspension.ts';
import { suspendApp } from '../../src/apps/apps.ts';
import { PICTURE_COLORS } from '../../src/delivery/picture.ts';
import { type Mailbox, openMailbox } from '../support/mailbox.ts';
import { newOwnApp, newPerson, type Person, type Reply } from '../support/person.ts';
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
const hook = async (
  answer: Receiver['answer'],
  maker: Person = owner,
  of: { path: string } = app,
): Promise<{ receiver: Receiver; webhookId: string }> => {
  const receiver = new Receiver();
  receivers.push(receiver);
  receiver.answer = answer;
  const reply = await maker.post(`${of.path}/webhooks`, { url: await receiver.listen() });
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
  for (let tries = 1; tries <= 6; tries += 1) {
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
  const mail = () =>
    mailbox.mails.find(({ to, text }) => to === 'owner@example.com' && text.includes('[firing] Orders'));
  await until(() => mail() !== undefined, 'the mail of the alert');
  const said = 'The count of events "sale" in 2m is 2; the alert fires above 1.';
  expect(mail()?.text).toContain(said);
  expect(mail()?.text).toContain(`http://events.example.com/apps/${app.appId}?from=`);
  const { html = '', attachments } = await PostalMime.parse(mail()?.raw ?? '');
  expect(html).toContain(said.replaceAll('"', '&#34;'));
  expect(html).toContain('The count of events &#34;sale&#34; in 2m beside the threshold');
  const [picture, ...others] = attachments;
  expect([picture?.contentId, others]).toEqual(['<trail@tidemark>', []]);
  const png = PNG.sync.read(Buffer.from(picture?.content as ArrayBuffer));
  // What was seen before, where it fires, and the threshold.
  for (const ink of Object.values(PICTURE_COLORS)) expect(hasInk(png, ink), ink).toBe(true);
  const { webhookId } = await hook((response) => response.writeHead(410).end());
  await post(3);
  await until(async () => (await stored(webhookId)).state === 'disabled', 'the end of the webhook');
  const notice = (): string | undefined =>
    mailbox.notices.find(({ text }) => text.includes(`The webhook ${webhookId}`))?.text;
  await until(() => notice() !== undefined, 'the mail of the webhook');
  expect(notice()).toContain('its endpoint answered 410');
});

/** Whether a pixel has an ink in full. @param ink such as `#14899f` */
function hasInk({ data }: PNG, ink: string): boolean {
  return data.toString('hex').includes(`${ink.slice(1)}ff`);
}

/** Messages as the rounds of alerts store them. */
const tell = async (
  appId: string,
  channel: 'webhook' | 'mail',
  targets: readonly string[],
  subject = 'An alert',
  aheadMs = 0,
): Promise<void> => {
  const body = JSON.stringify({ subject, text: subject, type: 'alert.firing', data: {} });
  const at = new Date(clock.wall() + aheadMs);
  await service.sql`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
    SELECT apps.id, ${channel}, target, gen_random_uuid()::text, 'alert.firing', ${body}, ${at}, ${at}
      FROM apps, unnest(${[...targets]}::text[]) AS target WHERE public_id = ${appId}`;
};
const waiting = (target: string): Promise<{ tries: number; problem: string | null }[]> =>
  service.sql`SELECT tries, problem FROM delivery_messages WHERE target = ${target}`;
const mailsOf = (subject: string): number =>
  mailbox.mails.filter(({ text }) => text.includes(subject)).length;

test('no messages are made for a webhook that is paused or disabled; once it goes on it is told what is current', async () => {
  const ok: Receiver['answer'] = (response) => response.writeHead(204).end();
  const stuck = await hook(ok);
  const told = await Promise.all(
    ['paused', 'disabled'].map(async (how) => {
      const names = ['told before', 'ended meanwhile', 'fires still'].map((name) => `${name} ${how}`);
      for (const name of names) await owner.post(`${app.path}/types`, { name });
      return { how, names, ...(await hook(ok)) };
    }),
  );
  // One that cannot be told what is current keeps no other one from it.
  await service.sql`UPDATE webhooks SET stopped_after = 0 WHERE public_id = ${stuck.webhookId}`;
  await service.sql.unsafe(
    `ALTER TABLE webhooks ADD CONSTRAINT stuck CHECK (public_id <> '${stuck.webhookId}' OR stopped_after IS NOT NULL)`,
  );
  for (const { names, webhookId } of told)
    for (const name of names) {
      const rule = JSON.stringify({ of: 'count', type: name, window: '1m', above: 0 });
      const made = await owner.post(`${app.path}/alerts`, { name, rule, webhooks: [webhookId] });
      expect(made.status, made.text).toBe(201);
    }
  await service.sql`UPDATE consumers SET types = '{none}' WHERE kind = 'webhook'`;
  const minute = (): number => Math.floor(clock.wall() / 60_000) * 60_000;
  const nextMinute = (): void => clock.advance(minute() + 66_000 - clock.wall());
  const firing = async (): Promise<string> =>
    (
      await service.sql<{ name: string }[]>`
        SELECT name FROM alert_states JOIN alert_rules ON alert_rules.id = rule_id ORDER BY name`
    )
      .map(({ name }) => name)
      .join();
  /** An event of each of both, and its alerts. */
  const fire = async (index: number): Promise<void> => {
    for (const { names } of told) await post(index, names[index]);
    nextMinute();
    const expected = told.map(({ names }) => names[index]).sort();
    await until(async () => (await firing()) === expected.join(), `the alerts ${index}`);
  };
  const alertsOf = ({ bodies }: Receiver): string[] =>
    bodies
      .filter(({ type }) => type.startsWith('alert.'))
      .map(({ type, data }) => `${type} ${(data.rule as { name: string } | undefined)?.name}`);
  nextMinute();
  await fire(0);
  await until(() => told.every(({ receiver }) => alertsOf(receiver).length === 1), 'the first alerts');
  for (const { how, receiver, webhookId } of told)
    if (how === 'paused') await owner.post(`${app.path}/webhooks/${webhookId}/pause`);
    else {
      receiver.answer = (response) => response.writeHead(410).end();
      await tell(app.appId, 'webhook', [webhookId]);
      await until(async () => (await stored(webhookId)).state === 'disabled', 'the end of the webhook');
      await service.sql`DELETE FROM delivery_messages`;
    }
  const before = told.map(({ receiver }) => receiver.received.length);
  await fire(1);
  await fire(2);
  for (const [index, { names, receiver, webhookId }] of told.entries()) {
    const had = before[index] ?? 0;
    expect(await waiting(webhookId)).toEqual([]);
    expect(receiver.received).toHaveLength(had);
    receiver.answer = ok;
    await owner.post(`${app.path}/webhooks/${webhookId}/resume`);
    await until(() => receiver.received.length >= had + 2, 'what is current');
    expect(alertsOf(receiver).slice(-2)).toEqual([`alert.resolved ${names[0]}`, `alert.firing ${names[2]}`]);
    const [first] = receiver.bodies.filter(({ type }) => type === 'alert.firing');
    const resolved = receiver.bodies.find(({ type }) => type === 'alert.resolved');
    expect(resolved?.data.resolves).toBe(first?.data.messageId);
  }
  await service.sql`ALTER TABLE webhooks DROP CONSTRAINT stuck`;
  for (const [index, { receiver, webhookId }] of told.entries()) {
    await until(async () => (await waiting(webhookId)).length === 0, 'nothing that waits');
    expect(receiver.received).toHaveLength((before[index] ?? 0) + 2);
  }
});

test('messages of what is paused, disabled, suspended or binned wait without a failure, and are sent at once when it goes on', async () => {
  const makers = ['paused', 'disabled', 'suspended', 'binned', 'account'] as const;
  const stopped = await Promise.all(
    makers.map(async (how) => {
      const maker = await newPerson(service, `${how}@example.com`);
      const { appId, path } = await newOwnApp(maker);
      const made = await hook((response) => response.writeHead(500).end(), maker, { path });
      const state = (to: string) => (): Promise<unknown> =>
        maker.post(`${path}/webhooks/${made.webhookId}/${to}`);
      const suspend = (isSuspended: boolean) => () => suspendApp(service.sql, { appId, isSuspended });
      const email = requireEmail(`${how}@example.com`);
      const [stop, goOn]: readonly (() => Promise<unknown>)[] = {
        paused: [state('pause'), state('resume')],
        disabled: [
          () => service.sql`UPDATE webhooks SET state = 'disabled' WHERE public_id = ${made.webhookId}`,
          state('resume'),
        ],
        suspended: [suspend(true), suspend(false)],
        binned: [
          () => maker.delete(path, { confirm: 'Shop' }),
          () => maker.post(`/api/removed-apps/${appId}/restore`),
        ],
        account: [() => suspendAccount(service.sql, email), () => resumeAccount(service.sql, email)],
      }[how];
      return { how, appId, ...made, stop, goOn };
    }),
  );
  for (const { appId, webhookId } of stopped) await tell(appId, 'webhook', [webhookId]);
  for (const { how, webhookId, stop } of stopped) {
    await until(async () => (await waiting(webhookId))[0]?.tries === 1, `a failure of what is ${how}`);
    await stop?.();
  }
  clock.advance(80 * HOUR_MS);
  // Another one, which shows that the rounds went on.
  const { receiver: beside, webhookId: other } = await hook((response) => response.writeHead(204).end());
  for (let n = 1; n <= 2; n += 1) {
    await tell(app.appId, 'webhook', [other]);
    await until(() => beside.received.length === n, 'the messages of another one');
  }
  for (const { how, receiver, webhookId, goOn } of stopped) {
    expect(receiver.received, how).toHaveLength(1);
    expect(await waiting(webhookId), how).toHaveLength(1);
    await goOn?.();
  }
  for (const { how, receiver, webhookId } of stopped) {
    // The first failure after it is no failure of 80 hours.
    await until(() => receiver.received.length === 2, `the message of what was ${how}, at once`);
    await until(async () => (await waiting(webhookId))[0]?.tries === 1, `a first failure of what was ${how}`);
    expect((await stored(webhookId)).state).toBe('active');
    receiver.answer = (response) => response.writeHead(204).end();
  }
  clock.advance(HOUR_MS);
  for (const { how, webhookId } of stopped)
    await until(async () => (await waiting(webhookId)).length === 0, `the message of what was ${how}`);
  expect(service.log.filter(({ msg }) => String(msg).includes('given up'))).toEqual([]);
});

test('a person who was added to an app gets no mail of its alerts before they have opened it, nor after they have left it', async () => {
  const reader = await newPerson(service, 'reader@example.com');
  await owner.post(`${app.path}/members`, { email: 'reader@example.com' });
  const told = async (subject: string): Promise<number> => {
    await tell(app.appId, 'mail', ['reader@example.com', 'ops@example.com'], subject);
    await until(async () => (await waiting('reader@example.com')).length === 0, 'its mail');
    return mailbox.mails.filter(({ to, text }) => to === 'reader@example.com' && text.includes(subject))
      .length;
  };
  expect(await told('before')).toBe(0);
  expect((await reader.get(app.path)).status).toBe(200);
  expect(await told('opened')).toBe(1);
  const { user } = (await reader.get('/api/session')).data as { user: { userId: string } };
  expect((await owner.delete(`${app.path}/members/${user.userId}`)).status).toBe(200);
  expect(await told('after')).toBe(0);
  // An address that the operator wrote has no account.
  await until(
    () => ['before', 'opened', 'after'].every((one) => mailsOf(one) > 0),
    'the mails of the others',
  );
});

test('what a clock ahead has put off is sent once it is right, and what waits for a try waits', async () => {
  const { receiver, webhookId } = await hook((response, count) =>
    response.writeHead(count <= 2 ? 503 : 204).end(),
  );
  await post(1);
  await until(async () => (await stored(webhookId)).tries === 1, 'a failure');
  await tell(app.appId, 'webhook', [webhookId]);
  await until(() => receiver.received.length === 2, 'its failure');
  const putOff = (table: string, ms: number) => service.sql`
    UPDATE ${service.sql(table)} SET next_try_at = ${new Date(clock.wall() + ms)}`;
  await until(
    async () => (await service.sql`SELECT FROM delivery_messages WHERE tries = 1`).length === 1,
    'both wait',
  );
  for (const table of ['webhooks', 'delivery_messages']) await putOff(table, 20 * HOUR_MS);
  const { receiver: other } = await hook((response) => response.writeHead(204).end());
  await post(2);
  await until(() => other.received.length === 1, 'a round');
  expect(receiver.received).toHaveLength(2);
  for (const table of ['webhooks', 'delivery_messages']) await putOff(table, 30 * 24 * HOUR_MS);
  await until(() => receiver.received.length === 5, 'the two events and the message');
  const kinds = receiver.bodies.map(({ type }) => type);
  expect(kinds.slice(2).sort()).toEqual(['alert.firing', 'event.created', 'event.created']);
  // One that was made by a clock an hour ahead, and not tried yet.
  await tell(app.appId, 'webhook', [webhookId], 'An alert', HOUR_MS);
  await until(() => receiver.received.length === 6, 'what was never tried');
});

test('alerts of a stranger fill neither a mailbox nor the places of the outbox', async () => {
  const [reader, stranger] = [
    await newPerson(service, 'victim@example.com'),
    await newPerson(service, 'stranger@example.com'),
  ];
  const [own, foreign] = [await newOwnApp(reader), await newOwnApp(stranger)];
  await stranger.post(`${foreign.path}/members`, { email: 'victim@example.com' });
  expect((await reader.get(foreign.path)).status).toBe(200);
  const { receiver, webhookId } = await hook(() => undefined, stranger, foreign);
  await service.sql`
    INSERT INTO webhooks (public_id, app_id, url, digest, sealed, created_by)
    SELECT public_id || n, app_id, url, digest, sealed, created_by FROM webhooks, generate_series(1, 80) AS n
     WHERE public_id = ${webhookId}`;
  await tell(foreign.appId, 'mail', new Array<string>(70).fill('victim@example.com'), 'Foreign');
  await until(async () => (await waiting('victim@example.com')).length === 50, 'as many as one app may send');
  // An hour is one by a clock that is set back meanwhile, too.
  clock.jump(-30 * 24 * HOUR_MS);
  clock.advance(HOUR_MS);
  await until(async () => (await waiting('victim@example.com')).length === 30, 'those of the next hour');
  clock.jump(30 * 24 * HOUR_MS);
  await tell(
    foreign.appId,
    'webhook',
    Array.from({ length: 80 }, (_, n) => `${webhookId}${n + 1}`),
  );
  await until(() => receiver.received.length >= 63, 'all places that one account gets');
  await tell(own.appId, 'mail', ['victim@example.com'], 'Own');
  await until(() => mailsOf('Own') === 1, 'the own mail');
  expect(receiver.received).toHaveLength(63);
  expect(mailsOf('Foreign')).toBe(40);
  // Waiting for the next hour is no failure.
  expect(await service.sql`SELECT FROM delivery_messages WHERE channel = 'mail' AND tries > 0`).toEqual([]);
  await service.sql`DELETE FROM delivery_messages`;
});

test.each([
  ['answer slowly', 1, 511],
  ['have never taken anything', 0, 128],
])(
  '600 webhooks of one account whose endpoints %s do not delay one of another account',
  async (_, delivered, most) => {
    const stranger = await newPerson(service, `slow-${delivered}@example.com`);
    const foreign = await newOwnApp(stranger);
    const held: ServerResponse[] = [];
    const { receiver, webhookId } = await hook((response) => held.push(response), stranger, foreign);
    const { receiver: live, webhookId: liveId } = await hook((response) => response.writeHead(204).end());
    await service.sql`UPDATE webhooks SET delivered = ${delivered} WHERE public_id IN (${webhookId}, ${liveId})`;
    await service.sql`
    INSERT INTO webhooks (public_id, app_id, url, digest, sealed, created_by, delivered)
    SELECT public_id || n, app_id, url, digest, sealed, created_by, delivered FROM webhooks, generate_series(1, 599) AS n
     WHERE public_id = ${webhookId}`;
    await service.sql`
    INSERT INTO consumers (app_id, name, kind, tick, position)
    SELECT app_id, name || n, kind, tick, position FROM consumers, generate_series(1, 599) AS n WHERE name = ${webhookId}`;
    const event = {
      loggingToken: foreign.loggingToken,
      typeId: undefined,
      typeName: 'slow',
      payload: { n: 1 },
    };
    expect((await service.post(event)).status).toBe(201);
    await until(() => receiver.received.length > 0, 'the first of the others', 60_000);
    await post(1);
    await until(() => live.received.length === 1, 'the event of another account', 60_000);
    expect(receiver.received.length).toBeLessThanOrEqual(most);
    // Not because endpoints of the others have been given up meanwhile.
    expect(await service.sql`SELECT FROM webhooks WHERE failed > 0`).toEqual([]);
    await service.sql`DELETE FROM webhooks WHERE public_id LIKE ${`${webhookId}%`}`;
    for (const response of held) response.writeHead(204).end();
  },
);

test('owners are told of a webhook and of an alert with a new address', async () => {
  const maker = await newPerson(service, 'maintainer@example.com');
  await owner.post(`${app.path}/members`, { email: 'maintainer@example.com', role: 'maintainer' });
  const notices = (subject: string): string[] =>
    mailbox.notices
      .filter(({ to, text }) => to === 'owner@example.com' && text.includes(subject))
      .map(({ text }) => text);
  const before = notices('Webhook added').length;
  await hook((response) => response.writeHead(204).end(), maker);
  await until(() => notices('Webhook added').length > before, 'the notice of the webhook');
  expect(notices('Webhook added').at(-1)).toContain('By: maintainer@example.com');
  await owner.post(`${app.path}/types`, { name: 'watched' });
  const add = (name: string, more: object): Promise<Reply> =>
    maker.post(`${app.path}/alerts`, {
      name,
      rule: '{"of":"count","type":"watched","window":"1m","above":9}',
      ...more,
    });
  expect((await add('own', { emails: ['maintainer@example.com'] })).status).toBe(201);
  const alertmanager = 'http://alertmanager.example.com:9093/path';
  for (const name of ['first', 'second']) expect((await add(name, { alertmanager })).status).toBe(201);
  await until(() => notices('Alert with a new address').length > 0, 'the notice of the alert');
  await hook((response) => response.writeHead(204).end(), maker);
  await until(() => notices('Webhook added').length > before + 1, 'a later notice');
  expect(notices('Alert with a new address')).toHaveLength(1);
  expect(notices('Alert with a new address')[0]).toContain('http://alertmanager.example.com:9093\n'.trim());
});
