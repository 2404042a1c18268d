/** The weekly digest of a board: the numbers of its charts from one snapshot, with their pictures, for each member who asks for it. */
import { PNG } from 'pngjs';
import PostalMime, { type Email } from 'postal-mime';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type DueDigest, dueDigests, nextDigest } from '../../src/delivery/digest/digests.ts';
import { DigestRounds } from '../../src/delivery/digest/rounds.ts';
import { weekBefore } from '../../src/delivery/digest/weeks.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { build, tidemark } from '../support/command-line.ts';
import { type Mailbox, openMailbox } from '../support/mailbox.ts';
import { joinApp, newOwnApp, newPerson, type Person } from '../support/person.ts';
import {
  captured,
  hurryRounds,
  RunningClock,
  startTestService,
  type TestService,
  until,
} from '../support/service.ts';
import { heightsOf } from './picture-heights.ts';

const ZONE = 'America/New_York';
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

hurryRounds();
describe('the digest of a board', () => {
  let service: TestService;
  let mailbox: Mailbox;
  let owner: Person;
  let viewer: Person;
  let app: Awaited<ReturnType<typeof newOwnApp>>;
  let boardId: string;
  let path: string;
  const clock = new RunningClock();
  /** A Monday at 08:00. */
  const due = nextDigest(ZONE, clock.wall());
  const week = weekBefore(ZONE, due);
  const config = {
    PUBLIC_URL: 'https://events.example',
    MAIL_FROM: 'tidemark@example.com',
    CREATE_LIMIT_PER_MINUTE: 0,
  };

  beforeAll(async () => {
    build();
    mailbox = await openMailbox();
    service = await startTestService({ clock, config: { ...config, SMTP_URL: mailbox.url } });
    owner = await newPerson(service, 'owner@example.com');
    viewer = await newPerson(service, 'viewer@example.com');
    app = await newOwnApp(owner, 'Shop');
    await joinApp(owner, app.path, viewer, { email: 'viewer@example.com', role: 'viewer' });
    await until(() => mailbox.mails.length === 1, 'the invitation has come');
    mailbox.mails.splice(0);
    for (const [field, kind] of [
      ['country', 'value'],
      ['amount', 'number'],
      ['user', 'distinct'],
    ])
      await owner.post(`${app.path}/declared-fields`, { path: field, kind });
    await goOn(due - HOUR);
    await store();
    const { types } = (await owner.get(`${app.path}/types`)).data as {
      types: { name: string; typeId: string }[];
    };
    const typeId = (name: string): string => types.find((type) => type.name === name)?.typeId ?? '';
    boardId = await newBoard('Morning & <b>Noon</b>', {
      Orders: `range=24h&type=${typeId('order')}`,
      Countries: 'range=1y&by=country',
      Amounts: 'of=amount&stat=sum',
      Users: 'of=user&stat=distinct',
      Refunds: `part=type%3A${typeId('refund')}`,
      Pro: 'filter=plan%3Apro',
    });
    path = `/api/account/digests/${app.appId}/boards/${boardId}`;
    const range = `from=${iso(week.from)}&to=${iso(week.until)}&timezone=${ZONE}&buckets=7`;
    await until(async () => {
      const { data } = await owner.get(`${app.path}/boards/${boardId}/data?${range}`);
      const charts = data.charts as { series: { by: unknown } | null; numbers: unknown }[];
      return (
        charts[1]?.series?.by === 'country' && charts[2]?.numbers !== null && charts[3]?.numbers !== null
      );
    }, 'the fields are counted');
  });
  afterAll(async () => {
    await service?.stop();
    await mailbox?.close();
  });

  const iso = (at: number): string => new Date(at).toISOString();

  /** The service's clock goes on to an instant; sessions of then have ended. */
  async function goOn(to: number): Promise<void> {
    clock.advance(to - clock.wall());
    await owner.signIn('owner@example.com');
    await viewer.signIn('viewer@example.com');
  }

  /** Two weeks of events, none on the third day of the last, and some before and after. */
  async function store(): Promise<void> {
    const events = Array.from({ length: 15 * 8 }, (_, index) => {
      const day = Math.floor(index / 8) - 8;
      const isRefund = index % 8 === 7;
      return {
        typeName: isRefund ? 'refund' : 'order',
        createdAt: iso(week.from + day * DAY + 12 * HOUR + index * 1_000),
        payload: {
          country: day < 0 ? 'FR' : 'DE',
          user: `u${(index * 7) % 11}`,
          ...(!isRefund && { amount: index }),
        },
      };
    }).filter(({ createdAt }, index) => {
      const day = Math.floor((Date.parse(createdAt) - week.from) / DAY);
      return day !== 2 && (day < 0 || index % 8 >= day);
    });
    // Monday itself, after midnight, belongs to the next week.
    await post([...events, { ...events[0], createdAt: iso(week.until + 2 * HOUR) }]);
  }

  async function post(events: readonly object[]): Promise<void> {
    const { status, body } = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { Authorization: `Bearer ${app.loggingToken}` },
      body: JSON.stringify({ events }),
    });
    expect(status, body).toBe(200);
  }

  async function newBoard(name: string, views: Readonly<Record<string, string>>): Promise<string> {
    const viewIds: string[] = [];
    for (const [view, search] of Object.entries(views))
      viewIds.push(String((await owner.post(`${app.path}/views`, { name: view, search })).data.viewId));
    return String((await owner.post(`${app.path}/boards`, { name, viewIds })).data.boardId);
  }

  const digest = async (): Promise<unknown> => (await viewer.get(path)).data.digest;
  const mailsTo = (address: string): typeof mailbox.mails => mailbox.mails.filter(({ to }) => to === address);
  const parsed = async (address: string, index = -1): Promise<Email> => {
    const mail = mailsTo(address).at(index);
    if (mail === undefined) throw new Error(`There is no mail to ${address}.`);
    return await PostalMime.parse(mail.raw);
  };

  /** What SQL says of the days of an interval. */
  async function daysBySql(from: number, what: 'orders' | 'amounts' | 'users'): Promise<number[]> {
    const rows = await service.sql<{ day: number; orders: number; amounts: number; users: number }[]>`
      SELECT floor(extract(epoch FROM (events.created_at AT TIME ZONE ${ZONE}) - (${new Date(from)}::timestamptz AT TIME ZONE ${ZONE})) / 86400)::integer AS day,
             (count(*) FILTER (WHERE event_types.name = 'order'))::integer AS orders,
             coalesce(sum((payload ->> 'amount')::integer), 0)::integer AS amounts,
             count(DISTINCT payload ->> 'user')::integer AS users
        FROM events JOIN event_types ON event_types.id = type_id
       GROUP BY 1`;
    return Array.from({ length: 7 }, (_, day) => rows.find((row) => row.day === day)?.[what] ?? 0);
  }

  test('has the numbers of its charts as SQL counts them, in words and in pictures', async () => {
    expect(await digest()).toBeNull();
    expect((await viewer.put(path, { timezone: ZONE })).data.digest).toEqual({
      timezone: ZONE,
      nextAt: iso(due),
    });
    // The service was down for a day.
    await goOn(due + DAY);
    await until(() => mailsTo('viewer@example.com').length > 0, 'the digest has come');
    const mail = await parsed('viewer@example.com');
    const [orders, ordersBefore] = await Promise.all(
      [week.from, week.before].map((from) => daysBySql(from, 'orders')),
    );
    const total = (values: readonly number[] = []): number => values.reduce((all, one) => all + one, 0);
    const [all, before] = [total(orders), total(ordersBefore)];
    expect([all, before]).toEqual([23, 49]);
    const text = mail.text ?? '';
    expect(mail.subject).toBe('Morning & <b>Noon</b>: Orders 23 events last week, -53 %');
    expect(text).toContain('Last week on the board "Morning & <b>Noon</b>" of "Shop":');
    expect(text).toContain('Orders: 23 events, -53 %; 49 in the week before.');
    const daysOf = (chart: string): string[] =>
      [
        ...(text.split(`\n${chart}: `)[1]?.split('\n\n')[0] ?? '').matchAll(
          /^ {2}\w{3},? \d\d \w{3} {2}(\S+)$/gm,
        ),
      ].map(([, value = '']) => value);
    expect(daysOf('Orders')).toEqual(orders?.map(String));
    expect(daysOf('Amounts').map((value) => (value === '–' ? 0 : Number(value.replace(',', ''))))).toEqual(
      await daysBySql(week.from, 'amounts'),
    );
    expect(daysOf('Users').map((value) => (value === '–' ? 0 : Number(value)))).toEqual(
      await daysBySql(week.from, 'users'),
    );
    expect(text).toMatch(/^Amounts: sum of amount [\d,]+, [+-]\d+ %; [\d,]+ in the week before\.$/m);
    expect(text).toMatch(/^Refunds: [\d.]+ % are refund, [+-][\d.]+ points; 12\.5 % in the week before\.$/m);
    expect(text).toMatch(/^Pro: .*not counted/m);
    expect(text).toMatch(/Moved most:[\s\S]*Countries, DE: \d+, new/);
    expect(text).toMatch(/Fell silent:\s+Countries, FR: none, 56 in the week before/);
    const range = new URLSearchParams({ from: iso(week.from), to: iso(week.until), tz: ZONE });
    expect(text).toContain(`https://events.example/apps/${app.appId}/boards?${range}&board=${boardId}`);

    // Each picture of the HTML is in the mail, and says the same.
    const html = mail.html ?? '';
    expect(html).toContain('Morning &#38; &#60;b&#62;Noon');
    expect(html).not.toContain('<b>Noon');
    const named = [...html.matchAll(/<img src="cid:([^"]+)"[^>]* alt="([^"]+)"/g)];
    expect(named.map(([, cid]) => `<${cid}>`)).toEqual(mail.attachments.map(({ contentId }) => contentId));
    expect(mail.attachments).toHaveLength(5);
    for (const { mimeType, disposition, related } of mail.attachments)
      expect({ mimeType, disposition, related }).toEqual({
        ...{ mimeType: 'image/png', disposition: 'inline', related: true },
      });
    expect(named[0]?.[2]).toMatch(
      new RegExp(`^Orders, events by day: Mon ${orders?.[0]}, Tue ${orders?.[1]}, Wed 0, .* Mon 7,`),
    );
    const [picture, ...others] = mail.attachments.map(({ content }) =>
      PNG.sync.read(Buffer.from(content as ArrayBuffer)),
    );
    if (picture === undefined) throw new Error('There is no picture.');
    for (const png of [picture, ...others]) expect([png.width, png.height]).toEqual([1120, 224]);
    const bars = heightsOf(picture, 'week');
    const highest = Math.max(...bars);
    expect(bars.indexOf(highest)).toBe(orders?.indexOf(Math.max(...(orders ?? []))));
    expect(bars[2]).toBe(0);
    // The highest of both weeks reaches to the top, and the others have their share of it.
    const both = [...bars, ...heightsOf(picture, 'before')];
    const counts = [...(orders ?? []), ...(ordersBefore ?? [])];
    const unit = Math.max(...both) / Math.max(...counts);
    for (const [index, count] of counts.entries())
      expect(Math.abs((both[index] ?? 0) - count * unit)).toBeLessThanOrEqual(1);
    for (const attachment of mail.attachments)
      expect((attachment.content as ArrayBuffer).byteLength).toBeLessThan(16_384);
    expect(await digest()).toMatchObject({ nextAt: iso(nextDigest(ZONE, due + DAY)) });
  });

  test('goes on under the name that the board has then, and one click stops it alone', async () => {
    const ofApp = `/api/account/digests/${app.appId}`;
    for (const one of [path, ofApp]) expect((await viewer.put(one, { timezone: 'UTC' })).status).toBe(200);
    expect((await owner.put(path, { timezone: 'UTC' })).status).toBe(200);
    expect((await owner.patch(`${app.path}/boards/${boardId}`, { name: 'Evening' })).status).toBe(200);
    const before = mailsTo('viewer@example.com').length;
    await goOn(nextDigest('UTC', clock.wall()));
    await until(
      () => mailsTo('viewer@example.com').length === before + 2 && mailsTo('owner@example.com').length === 1,
      'three digests have come',
    );
    const [first, second] = [await parsed('viewer@example.com', -2), await parsed('viewer@example.com')];
    const ofBoard = first.subject?.startsWith('Evening: ') ? first : second;
    expect([first, second].map(({ subject }) => subject?.split(':')[0]).sort()).toEqual(['Evening', 'Shop']);
    const header = (name: string): string => ofBoard.headers.find(({ key }) => key === name)?.value ?? '';
    expect(header('list-unsubscribe-post')).toBe('List-Unsubscribe=One-Click');
    const stop = /^<https:\/\/events\.example(\/[^>]+)>$/.exec(header('list-unsubscribe'))?.[1] ?? '';
    const { status } = await service.request({
      ...{ method: 'POST', path: stop, body: 'List-Unsubscribe=One-Click' },
      headers: { 'Content-Type': 'application/x-www-form-urlencoded', Origin: 'https://mail.example' },
    });
    expect(status).toBe(200);
    expect(await digest()).toBeNull();
    expect((await viewer.get(ofApp)).data.digest).not.toBeNull();
    expect((await owner.get(path)).data.digest).not.toBeNull();
  });

  test('is not sent from the queue once it is not wanted any more', async () => {
    await owner.put(path, { timezone: ZONE });
    const [row] = await service.sql<{ id: number; app: number }[]>`
      SELECT digests.id, boards.app_id AS app FROM digests JOIN boards ON boards.id = board_id
        JOIN users ON users.id = user_id WHERE users.email = 'owner@example.com'`;
    const before = mailsTo('owner@example.com').length;
    await owner.delete(path);
    const body = JSON.stringify({ subject: 'Old numbers', text: 'Old', html: 'Old', pictures: [] });
    await service.sql`
      INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
      VALUES (${row?.app ?? 0}, 'mail', 'owner@example.com', ${`digest-${row?.id}-0`}, 'digest', ${body}, now(), now())`;
    await until(
      async () => (await service.sql`SELECT FROM delivery_messages`).length === 0,
      'the message is gone',
    );
    expect(mailsTo('owner@example.com')).toHaveLength(before);
  });

  test('is of those who may read the app, while they may', async () => {
    const stranger = await newPerson(service, 'stranger@example.com');
    for (const reply of [
      await stranger.get(path),
      await stranger.put(path, { timezone: ZONE }),
      await stranger.delete(path),
    ])
      expect(reply.code).toBe('APP_NOT_FOUND');
    const unknown = path.replace(boardId, `brd_${'a'.repeat(20)}`);
    for (const reply of [
      await viewer.get(unknown),
      await viewer.put(unknown, { timezone: ZONE }),
      await viewer.delete(unknown),
    ])
      expect(reply.code).toBe('BOARD_NOT_FOUND');
    expect((await viewer.put(path, { timezone: 'Mars/Base' })).code).toBe('INVALID_REQUEST');

    const { sql } = service;
    await sql`DELETE FROM digests`;
    await viewer.put(path, { timezone: ZONE });
    const far = clock.wall() + 8 * DAY;
    const receivers = async (): Promise<readonly string[]> =>
      (await dueDigests(sql, far, { most: 10, waiting: [] })).map(({ email }) => email);
    expect(await receivers()).toEqual(['viewer@example.com']);
    // Each is undone, and then they get it again.
    for (const [now, later] of [
      [() => sql`UPDATE apps SET removed_at = now()`, () => sql`UPDATE apps SET removed_at = NULL`],
      [() => sql`UPDATE apps SET suspended_at = now()`, () => sql`UPDATE apps SET suspended_at = NULL`],
      [() => sql`UPDATE users SET suspended_at = now()`, () => sql`UPDATE users SET suspended_at = NULL`],
      [
        () => sql`
          INSERT INTO group_grants (app_id, user_id, role, own_role, group_name, suspended)
          SELECT app_id, user_id, role, NULL, 'sales', true FROM app_members WHERE role = 'viewer'`,
        () => sql`DELETE FROM group_grants`,
      ],
      [
        () => sql`DELETE FROM app_members WHERE role = 'viewer'`,
        () => sql`
          INSERT INTO app_members (app_id, user_id, role)
          SELECT apps.id, users.id, 'viewer' FROM apps, users
           WHERE apps.public_id = ${app.appId} AND users.email = 'viewer@example.com'`,
      ],
    ]) {
      await now?.();
      expect(await receivers()).toEqual([]);
      await later?.();
      expect(await receivers()).toEqual(['viewer@example.com']);
    }
    expect((await owner.delete(`${app.path}/boards/${boardId}`)).status).toBe(200);
    expect(await receivers()).toEqual([]);
    expect((await sql`SELECT FROM digests`).length).toBe(0);
  });

  test('is set, listed and removed by commands', async () => {
    const other = await newBoard('Night', { One: 'range=24h', Two: 'by=country' });
    const settings = {
      DATABASE_URL: service.database.url,
      PUBLIC_URL: config.PUBLIC_URL,
      SMTP_URL: mailbox.url,
      MAIL_FROM: 'a@example.com',
    };
    const run = async (
      ...args: string[]
    ): Promise<{ readonly json: Record<string, unknown>; readonly error: string }> => {
      const { stdout, stderr } = await tidemark(['digest', ...args, '--app', app.appId, '--json'], settings);
      return { json: stdout === '' ? {} : (JSON.parse(stdout) as Record<string, unknown>), error: stderr };
    };
    const of = ['--board', other, '--email', 'Viewer@example.com'];
    const set = { appId: app.appId, boardId: other, email: 'viewer@example.com' };
    expect(await run('set', ...of, '--timezone', ZONE)).toEqual({
      json: { ...set, timezone: ZONE, nextAt: iso(nextDigest(ZONE, Date.now())) },
      error: '',
    });
    expect((await run('list')).json).toMatchObject({
      digests: [{ email: 'viewer@example.com', boardId: other, boardName: 'Night', timezone: ZONE }],
    });
    const inApi = await viewer.get(`/api/account/digests/${app.appId}/boards/${other}`);
    expect(inApi.data.digest).toMatchObject({ timezone: ZONE });
    expect((await run('set', ...of, '--timezone', 'Mars/Base')).error).toContain('IANA time zone');
    expect((await run('set', '--email', 'stranger@example.com', '--timezone', ZONE)).error).toContain(
      'no member of the app',
    );
    expect((await run('remove', ...of)).json).toEqual({ ...set, removed: true });
    expect((await run('remove', ...of)).error).toContain('gets no such digest');
    expect((await run('list')).json).toEqual({ digests: [] });
  });

  test('is stored once where two processes are at it, and by one read for all who ask for the same', async () => {
    const board = await newBoard('Twice', { A: 'range=24h', B: 'by=country' });
    const { sql } = service;
    await sql`DELETE FROM digests`;
    const one = `/api/account/digests/${app.appId}/boards/${board}`;
    for (const person of [owner, viewer]) await person.put(one, { timezone: ZONE });
    const now = nextDigest(ZONE, clock.wall());
    const storage = await openStorage(sql);
    const reads: number[] = [];
    const lines: Record<string, unknown>[] = [];
    const roundsOf = (isBroken = false): DigestRounds =>
      new DigestRounds({
        ...{ sql, isLeader: () => true, publicUrl: '', sendsMail: true, log: captured(lines) },
        storage: {
          reader: (pool) => {
            reads.push(1);
            if (isBroken) throw new Error('out of order');
            return storage.reader(pool);
          },
        },
        now: () => now,
      });
    // What cannot be read stays due, and is said once.
    const broken = roundsOf(true);
    for (const _ of [1, 2]) await broken.look();
    expect(lines).toMatchObject([{ msg: 'digest: cannot read numbers, retrying', boardId: board }]);
    expect(reads).toHaveLength(1);
    const due = await dueDigests(sql, now, { most: 10, waiting: [] });
    expect(due.map(({ email }: DueDigest) => email).sort()).toEqual([
      'owner@example.com',
      'viewer@example.com',
    ]);

    // It is Monday for them alone: the service's own outbox leaves the messages where they are.
    reads.length = 0;
    await Promise.all([roundsOf().look(), roundsOf().look()]);
    expect(reads.length).toBeLessThanOrEqual(2);
    const stored = await sql<{ target: string }[]>`SELECT target FROM delivery_messages ORDER BY target`;
    expect(stored.map(({ target }) => target)).toEqual(['owner@example.com', 'viewer@example.com']);
  });
});
