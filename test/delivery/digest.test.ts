/** The weekly digest: on Monday at 08:00 of the member's clock, with the numbers of the week, until one click. */
import { PNG } from 'pngjs';
import PostalMime from 'postal-mime';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { dueDigests, nextDigest } from '../../src/delivery/digest/digests.ts';
import { digestMail } from '../../src/delivery/digest/message.ts';
import { weekBefore } from '../../src/delivery/digest/weeks.ts';
import { type Mailbox, openMailbox } from '../support/mailbox.ts';
import { joinApp, newOwnApp, newPerson, Person } from '../support/person.ts';
import { hurryRounds, RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { heightsOf } from './picture-heights.ts';

const ZONE = 'America/New_York';
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

test.each([
  ['UTC', '2026-01-05T07:59:59.999Z', '2026-01-05T08:00:00.000Z'],
  ['UTC', '2026-01-05T08:00:00.000Z', '2026-01-12T08:00:00.000Z'],
  // Summer begins on the Sunday between.
  ['Europe/Berlin', '2026-03-23T08:00:00.000Z', '2026-03-30T06:00:00.000Z'],
  ['Pacific/Auckland', '2026-06-14T19:59:00.000Z', '2026-06-14T20:00:00.000Z'],
  ['Asia/Kolkata', '2026-06-15T02:30:00.000Z', '2026-06-22T02:30:00.000Z'],
])('in %s the digest after %s is due at %s', (zone, after, at) => {
  expect(new Date(nextDigest(zone, Date.parse(after))).toISOString()).toBe(at);
});

hurryRounds();
describe('a member', () => {
  let service: TestService;
  let mailbox: Mailbox;
  let owner: Person;
  let viewer: Person;
  let app: Awaited<ReturnType<typeof newOwnApp>>;
  let path: string;
  const clock = new RunningClock();

  beforeAll(async () => {
    mailbox = await openMailbox();
    const config = {
      SMTP_URL: mailbox.url,
      MAIL_FROM: 'tidemark@example.com',
      PUBLIC_URL: 'https://events.example',
    };
    service = await startTestService({ clock, config: { ...config, CREATE_LIMIT_PER_MINUTE: 0 } });
    owner = await newPerson(service, 'owner@example.com');
    viewer = await newPerson(service, 'viewer@example.com');
    app = await newOwnApp(owner, 'Shop & <b>Sons</b>');
    path = `/api/account/digests/${app.appId}`;
    await joinApp(owner, app.path, viewer, { email: 'viewer@example.com', role: 'viewer' });
    await until(() => mailbox.mails.length === 1, 'the invitation has come');
    mailbox.mails.splice(0);
  });
  afterAll(async () => {
    await service?.stop();
    await mailbox?.close();
  });

  /** The service's clock goes on to an instant; sessions of then have ended. */
  async function goOn(to: number): Promise<void> {
    clock.advance(to - clock.wall());
    await viewer.signIn('viewer@example.com');
  }
  const digest = async (): Promise<unknown> => (await viewer.get(path)).data.digest;
  /** Stores as many events of a type on a day. */
  async function store(typeName: string, at: number, count: number): Promise<void> {
    const events = Array.from({ length: count }, () => ({
      typeName,
      createdAt: new Date(at).toISOString(),
      payload: {},
    }));
    const { status, body } = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { Authorization: `Bearer ${app.loggingToken}` },
      body: JSON.stringify({ events }),
    });
    expect(status, body).toBe(200);
  }

  test('waits for one digest of an account that has many', async () => {
    const due = new Date(clock.wall() + 100 * DAY);
    await service.sql`
      INSERT INTO digests (app_id, user_id, stop_token, timezone, next_at)
      SELECT apps.id, users.id, apps.id || email, 'UTC', ${due}::timestamptz - n * interval '1 minute'
        FROM users, LATERAL (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM apps) AS apps
       WHERE email = 'owner@example.com'`;
    await service.sql`
      INSERT INTO app_members (app_id, user_id, role) SELECT apps.id, users.id, 'owner' FROM apps, users
       WHERE email = 'owner@example.com' ON CONFLICT DO NOTHING`;
    await service.sql`
      INSERT INTO digests (app_id, user_id, stop_token, timezone, next_at)
      SELECT apps.id, users.id, 'x', 'UTC', ${due} FROM apps, users
       WHERE apps.public_id = ${app.appId} AND email = 'viewer@example.com'`;
    const found = await dueDigests(service.sql, due.getTime(), { most: 2, waiting: [] });
    expect(found.map(({ email }) => email)).toEqual(['owner@example.com', 'viewer@example.com']);
    await service.sql`DELETE FROM digests`;
  });

  test('gets it on its Monday, although the clocks were a month ahead for a while', async () => {
    await viewer.put(path, { timezone: ZONE });
    const before = await digest();
    clock.jump(30 * DAY);
    expect((await owner.put(path, { timezone: ZONE, now: true })).status).toBe(200);
    await until(() => mailbox.mails.splice(0).length === 1, 'digests have been looked for');
    clock.jump(-30 * DAY);
    expect(await digest()).toEqual(before);
    await service.sql`DELETE FROM digests`;
  });

  test('asks for it by their own clock, gets it on Monday, and stops it by one click', async () => {
    expect(await digest()).toBeNull();
    expect((await viewer.put(path, { timezone: 'Mars/Base' })).code).toBe('INVALID_REQUEST');
    const first = nextDigest(ZONE, clock.wall());
    expect((await viewer.put(path, { timezone: ZONE })).status).toBe(200);
    expect(await digest()).toEqual({ timezone: ZONE, nextAt: new Date(first).toISOString() });
    // One at once is of the seven days before today, and moves none.
    expect((await viewer.put(path, { timezone: ZONE, now: true })).status).toBe(200);
    await until(() => mailbox.mails.length > 0, 'the one that was asked for has come');
    expect(mailbox.mails.splice(0)[0]?.text).toContain('0 events last week');
    const isOnMonday = async (): Promise<boolean> =>
      JSON.stringify(await digest()).includes(new Date(first).toISOString());
    await until(isOnMonday, 'the next one comes on Monday');
    // As many as an app has boards, and its own, wait for a mailbox: none is added.
    await service.sql`
      INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
      SELECT id, 'mail', 'viewer@example.com', n, 'digest', '{}', ${new Date(clock.wall())}, ${new Date(clock.wall() + HOUR)}
        FROM apps, generate_series(1, 51) AS n WHERE public_id = ${app.appId}`;
    await viewer.put(path, { timezone: ZONE, now: true });
    await until(isOnMonday, 'the one that was asked for has been left out');
    expect(await service.sql`DELETE FROM delivery_messages RETURNING id`).toHaveLength(51);

    // The service was down on that Monday, and for longer: the digest of it is left out.
    const second = nextDigest(ZONE, first);
    await goOn(second - HOUR);
    await until(
      async () => JSON.stringify((await digest()) ?? '').includes(new Date(second).toISOString()),
      'the late one is left out',
    );
    expect(mailbox.mails).toHaveLength(0);

    await store('order', first - 2 * DAY, 10);
    await store('refund', first - 3 * DAY, 9);
    await store('order', first + DAY, 30);
    await store('order', first + 2 * DAY, 1_000);
    await store('<i>new</i>', first + 2 * DAY, 12);
    // Monday itself, after midnight: it belongs to the next week.
    await store('order', second - 2 * HOUR, 5);
    await goOn(second);
    await until(() => mailbox.mails.length > 0, 'the digest has come');
    const [{ to, text } = { to: '', text: '' }] = mailbox.mails;
    expect(to).toBe('viewer@example.com');
    expect(text).toMatch(/^Subject: Shop & <b>Sons<\/b>: 1,042 events last week, \+5,384 %\r$/m);
    expect(text).toMatch(/^List-Unsubscribe-Post: List-Unsubscribe=One-Click\r$/m);
    expect(text).toContain('1,042 events, +5,384 %; 19 in the week before.');
    expect(text).toMatch(/Moved most:\s+order: 1,030, \+10,200 %\s+<i>new<\/i>: 12, new/);
    expect(text).toMatch(/Fell silent:\s+refund: none, 9 in the week before/);
    const { html: markup = '', attachments } = await PostalMime.parse(mailbox.mails[0]?.raw ?? '');
    expect(attachments.map(({ contentId, related }) => [contentId, related])).toEqual([
      ['<chart-1@tidemark>', true],
    ]);
    expect(markup).toMatch(
      /<img src="cid:chart-1@tidemark"[^>]* alt="[^"]+ Mon 0, Tue 30, Wed 1,012, Thu 0, /,
    );
    const heights = heightsOf(PNG.sync.read(Buffer.from(attachments[0]?.content as ArrayBuffer)), 'week');
    // A day of few is seen, one of none is empty.
    expect(heights.map((height) => Math.sign(height))).toEqual([0, 1, 1, 0, 0, 0, 0]);
    expect(heights[2]).toBeGreaterThan(20 * (heights[1] ?? 0));
    expect(markup).toContain('Shop &#38; &#60;b&#62;Sons&#60;/b&#62;');
    expect(markup).toContain('&#60;i&#62;new&#60;/i&#62;: 12, new');
    expect(markup).not.toMatch(/<i>|<b>Sons/);
    expect(await digest()).toMatchObject({ nextAt: new Date(nextDigest(ZONE, second)).toISOString() });

    const stop = /^List-Unsubscribe:\s+<https:\/\/events\.example(\/[^>]+)>/m.exec(text)?.[1] ?? '';
    const follow = (method: string): ReturnType<TestService['request']> =>
      service.request({
        ...{ method, path: stop },
        headers: { 'Content-Type': 'application/x-www-form-urlencoded', Origin: 'https://mail.example' },
        ...(method === 'POST' && { body: 'List-Unsubscribe=One-Click' }),
      });
    // A program that looks at links ends nothing.
    const page = await follow('GET');
    expect([page.status, page.headers['content-security-policy']]).toEqual([
      200,
      expect.stringContaining("'none'"),
    ]);
    expect(await digest()).not.toBeNull();
    expect((await follow('POST')).status).toBe(200);
    expect(await digest()).toBeNull();
    expect((await follow('POST')).status).toBe(200);
    expect((await service.request({ method: 'POST', path: '/api/digests/short/stop' })).status).toBe(404);
  });

  test('gives it up in the dashboard, and gets none of an app that is theirs no more', async () => {
    expect((await viewer.put(path, { timezone: 'UTC' })).status).toBe(200);
    expect((await viewer.delete(path)).status).toBe(200);
    expect(await digest()).toBeNull();
    await viewer.put(path, { timezone: 'UTC' });
    const before = mailbox.mails.length;
    await service.sql`
      DELETE FROM app_members WHERE user_id = (SELECT id FROM users WHERE email = 'viewer@example.com')`;
    const owner = await new Person(service).signIn('owner@example.com');
    expect((await owner.put(path, { timezone: 'UTC' })).status).toBe(200);
    await goOn(nextDigest('UTC', clock.wall()));
    await until(() => mailbox.mails.length > before, "the owner's digest has come");
    expect(mailbox.mails.slice(before).map(({ to }) => to)).toEqual(['owner@example.com']);
  });
});

test('a week without events is said to be one', () => {
  const nothing = [0, 0, 0, 0, 0, 0, 0];
  const { subject, text } = digestMail({
    digest: { appId: 'app_a', appName: 'Quiet', boardId: null, stopToken: 'x', timezone: 'UTC' },
    publicUrl: '',
    week: {
      ...{ ...weekBefore('UTC', 7 * DAY), boardName: null },
      charts: [
        {
          ...{ name: 'Quiet', search: null, unit: 'events', of: '', total: 0, before: 0, lines: [] },
          ...{ days: nothing, daysBefore: nothing, problem: null, format: null },
        },
      ],
    },
  });
  expect(subject).toBe('Quiet: 0 events last week');
  expect(text).not.toContain('Moved');
});

test('a measure far below a hundredth is told as it is', () => {
  const tiny = Array<number>(7).fill(2.5e-9);
  const { text } = digestMail({
    digest: { appId: 'app_a', appName: 'Lab', boardId: 'brd_a', stopToken: 'x', timezone: 'UTC' },
    publicUrl: '',
    week: {
      ...{ ...weekBefore('UTC', 7 * DAY), boardName: 'Noise' },
      charts: [
        {
          ...{ name: 'Noise', search: '', unit: 'measure', of: 'average of noise', total: 2.5e-9 },
          ...{ before: 0, lines: [], days: tiny, daysBefore: tiny, problem: null, format: null },
        },
      ],
    },
  });
  expect(text).toContain('average of noise 2.5e-9');
});

test.each([
  // Clocks go forward on Sunday the 29th of March: the week is an hour short.
  ['Europe/Berlin', '2026-03-30T06:00:00Z', '2026-03-22T23:00:00Z', '2026-03-29T22:00:00Z', 167],
  ['America/New_York', '2026-11-02T13:00:00Z', '2026-10-26T04:00:00Z', '2026-11-02T05:00:00Z', 169],
  ['Asia/Kathmandu', '2026-06-15T02:15:00Z', '2026-06-07T18:15:00Z', '2026-06-14T18:15:00Z', 168],
])('in %s the week before %s begins and ends at midnight of its clock', (zone, at, from, until, hours) => {
  const week = weekBefore(zone, Date.parse(at));
  expect([week.from, week.until, (week.until - week.from) / HOUR]).toEqual([
    Date.parse(from),
    Date.parse(until),
    hours,
  ]);
  expect([week.starts.length, week.starts[0]]).toEqual([7, week.from]);
});
