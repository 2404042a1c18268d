/** The live feed over HTTP: what comes, in which form, for whom, and for how long. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { insertSelected } from '../../support/insert-selected.ts';
import { LiveClient } from '../../support/live-client.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../../support/person.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import {
  startTestService,
  TestClock,
  type TestService,
  until,
  withTestService,
} from '../../support/service.ts';

const HOUR_MS = 3_600_000;

describe('over HTTP,', () => {
  const clock = new TestClock();
  let service: TestService;
  let email: string;
  let owner: Person;
  let app: { appId: string; loggingToken: string; path: string };
  let clients: LiveClient[] = [];

  beforeAll(async () => {
    service = await startTestService({ clock });
  });
  afterAll(() => service.stop());
  beforeEach(async () => {
    email = `${randomUUID()}@example.com`;
    owner = await newPerson(service, email);
    app = await newOwnApp(owner);
    clients = [];
  });
  afterEach(() => {
    for (const client of clients) client.close();
  });

  const follow = async (person: Person, lastEventId = ''): Promise<LiveClient> => {
    const client = await LiveClient.follow(service.port, app.appId, { cookie: person.cookie, lastEventId });
    clients.push(client);
    return client;
  };
  const post = async (payload: string, typeName = 'order'): Promise<string> => {
    const body = `{"loggingToken":"${app.loggingToken}","typeName":"${typeName}","payload":${payload}}`;
    const response = await service.request({ method: 'POST', path: '/public/create_event', body });
    expect(response.status).toBe(201);
    return JSON.parse(response.body).eventId;
  };

  test('an event arrives with its counts, and its response must not be cached or buffered', async () => {
    const client = await follow(owner);
    expect(client.response.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-store, no-transform',
      'x-accel-buffering': 'no',
    });
    const eventId = await post('{"a":1}');
    await until(() => client.events.length === 1, 'the event has come');
    const [data] = client.data;
    const [event] = client.events;
    expect(event).toMatchObject({
      id: eventId,
      payload: { a: 1 },
      createdAt: new Date(clock.wall()).toISOString(),
    });
    const minute = new Date(Math.floor(clock.wall() / 60_000) * 60_000).toISOString();
    expect(data).toMatchObject({ counts: [{ typeId: event?.typeId, minute, count: 1 }], skipped: 0 });
  });

  test('a client that reconnects receives what it missed, once', async () => {
    const before = await follow(owner);
    const first = await post('{}');
    await until(() => before.events.length === 1, 'the first event has come');
    before.close();
    const missed = [await post('{}'), await post('{}', 'other')];
    const after = await follow(owner, before.lastEventId);
    await until(() => after.events.length >= 2, 'the missed events have come');
    const next = await post('{}');
    await until(() => after.events.length >= 3, 'the next event has come');
    expect(after.events.map(({ id }) => id).sort()).toEqual([...missed, next].sort());
    expect(before.events.map(({ id }) => id)).toEqual([first]);
    expect(after.has('reset')).toBe(false);
  });

  test('a heartbeat is sent after fifteen seconds without a message', async () => {
    const client = await follow(owner);
    const before = client.comments;
    clock.advance(14_000);
    await post('{}');
    await until(() => client.events.length === 1, 'the event has come');
    clock.advance(14_000);
    await owner.get(app.path);
    expect(client.comments).toBe(before);
    clock.advance(1_000);
    await until(() => client.comments > before, 'a heartbeat has come');
  });

  test('a stop of the server ends it without a message that would keep the client from reconnecting', () =>
    withTestService({ clock }, async (stopping) => {
      const person = await newPerson(stopping, email);
      const { appId } = await newOwnApp(person);
      const client = await LiveClient.follow(stopping.port, appId, {
        cookie: person.cookie,
        lastEventId: '',
      });
      await stopping.stop();
      await until(() => client.isOver, 'the feed has ended');
      expect(client.has('end')).toBe(false);
    }));

  test('events of another app do not', async () => {
    const client = await follow(owner);
    await service.post();
    const eventId = await post('{}');
    await until(() => client.events.length > 0, 'an event has come');
    expect(client.events.map(({ id }) => id)).toEqual([eventId]);
  });

  test('no payload breaks a message', async () => {
    const payloads: readonly (readonly [text: string, value: object])[] = [
      // Line breaks of every kind.
      ['{\r\n"a":\r1,\n\n"b":\r\r\n2}', { a: 1, b: 2 }],
      // What looks like a message.
      [
        '{"a":"\\n\\nevent: end\\ndata: {}"\n\n,"b"\n:\n"\\r\\ndata: x"}',
        { a: '\n\nevent: end\ndata: {}', b: '\r\ndata: x' },
      ],
      // Separators of Unicode.
      ['{"a":"\u2028\u2029\u0085"}', { a: '\u2028\u2029\u0085' }],
      // Lines that begin with a colon or a blank.
      ['{"k"\n:\n "v",\n  "l":[\n 1]}', { k: 'v', l: [1] }],
    ];
    const client = await follow(owner);
    const sent = new Map<string, object>();
    for (const [text, value] of payloads) sent.set(await post(text), value);
    await until(() => client.events.length >= sent.size, 'the events have come');
    expect(client.messages.map(({ event }) => event).filter((event) => event !== 'events')).toEqual([
      'ready',
    ]);
    expect(new Map(client.events.map(({ id, payload }) => [id, payload]))).toEqual(sent);
  });

  test('a payload is the text that was sent, and a long one is its length', async () => {
    const client = await follow(owner);
    await post('{"n":1e400, "a":1,"a":-0}');
    const long = JSON.stringify({ text: 'x'.repeat(20_000) });
    await post(long, 'long');
    await until(() => client.events.length === 2, 'both events have come');
    expect(client.messages.some(({ data }) => data.includes('"payload":{"n":1e400, "a":1,"a":-0}'))).toBe(
      true,
    );
    const [longEvent] = client.events.filter(({ payloadBytes }) => payloadBytes !== undefined);
    expect(longEvent).toMatchObject({ payloadBytes: long.length });
    expect(longEvent).not.toHaveProperty('payload');
  });

  test('the cursor may also be in the query, for pages that reconnect themselves', async () => {
    const before = await follow(owner);
    before.close();
    const missed = await post('{}');
    const client = await LiveClient.follow(service.port, app.appId, {
      cookie: owner.cookie,
      query: `?after=${before.lastEventId}`,
    });
    clients.push(client);
    expect(client.events.map(({ id }) => id)).toEqual([missed]);
  });

  test('a feed goes on from what several answers have, and tells what one of them lacks', async () => {
    const chart = async (): Promise<string> => {
      const to = new Date(clock.wall() + HOUR_MS).toISOString();
      return String((await owner.get(`${app.path}/series?to=${to}`)).data.feed);
    };
    const list = async (): Promise<string> => {
      const { pagination } = (await owner.get(`${app.path}/events?order=desc`)).data;
      return String((pagination as { feed: string }).feed);
    };
    await post('{"n":1}');
    const before = await chart();
    const second = await post('{"n":2}');
    const after = await list();
    for (const cursors of [`${before},${after}`, `${after},${before}`]) {
      const client = await follow(owner, cursors);
      await until(() => client.events.length === 1, 'the event between them has come');
      expect(client.events[0]?.id).toBe(second);
    }
    const client = await follow(owner, `${after},${await chart()}`);
    await until(() => client.messages.some(({ event }) => event === 'ready'), 'nothing is lacking');
    const third = await post('{"n":3}');
    await until(() => client.events.length === 1, 'the next one has come');
    expect(client.events[0]?.id).toBe(third);
    const lost = await follow(owner, `${after},none`);
    await until(() => lost.messages.some(({ event }) => event === 'reset'), 'the page begins again');
  });

  test('a position that is none makes the page begin again', async () => {
    const positions = [
      'nonsense',
      '%00',
      'reset',
      '0.0.0',
      '0.0..0',
      'zzzzzzzzz.zzzzzzzzzzzz..0',
      '9'.repeat(3_000),
    ];
    for (const position of positions) await follow(owner, position);
    for (const [index, client] of clients.entries())
      expect(
        client.messages.map(({ event }) => event),
        positions[index],
      ).toEqual(['reset']);
    const eventId = await post('{}');
    await until(() => clients.every(({ events }) => events.length === 1), 'the next event has come');
    expect(new Set(clients.map(({ events }) => events[0]?.id))).toEqual(new Set([eventId]));
  });

  test('a client that reconnects after more than five minutes is reset; one that stayed is not', async () => {
    const stayed = await follow(owner);
    const left = await follow(owner);
    left.close();
    for (let minute = 0; minute < 6; minute++) {
      const position = stayed.lastEventId;
      clock.advance(61_000);
      await until(() => stayed.lastEventId !== position, 'an idle reader is told where the feed stands');
    }
    const late = await follow(owner, left.lastEventId);
    expect(late.messages.map(({ event }) => event)).toEqual(['reset']);
    stayed.close();
    const missed = await post('{}');
    const again = await follow(owner, stayed.lastEventId);
    expect(again.events.map(({ id }) => id)).toEqual([missed]);
    expect(stayed.messages.map(({ event }) => event)).toEqual(['ready']);
  });

  test('a client that missed more than a thousand events is reset', async () => {
    const before = await follow(owner);
    await post('{}');
    await until(() => before.events.length === 1, 'the event has come');
    before.close();
    await insert(1_001, clock.wall());
    const after = await follow(owner, before.lastEventId);
    expect(after.messages.map(({ event }) => event)).toEqual(['reset']);
  });

  test('of many events at once the newest are sent, and counts of the others', async () => {
    const client = await follow(owner);
    await post('{}');
    await until(() => client.events.length === 1, 'the event has come');
    await insert(3_000, clock.wall() - 90_000);
    await until(() => client.data.length === 2, 'the second message has come');
    const data = client.data[1];
    expect(data?.events).toHaveLength(200);
    expect(data?.skipped).toBe(2_800);
    expect(data?.counts.reduce((sum, { count }) => sum + count, 0)).toBe(3_000);
    const times = data?.events.map(({ createdAt, id }) => createdAt + id) ?? [];
    expect(times).toEqual([...times].sort().reverse());
    const [newest] =
      await service.sql`SELECT events.id FROM events JOIN apps ON apps.id = app_id WHERE apps.public_id = ${app.appId} AND events.created_at < ${clock.wall()} ORDER BY events.created_at DESC, events.id DESC LIMIT 1`;
    expect(data?.events[0]?.id).toBe(newest?.id);
  });

  test('old events only cause a hint that counts have changed', async () => {
    const client = await follow(owner);
    await post('{}');
    await until(() => client.events.length === 1, 'the event has come');
    await insert(10, clock.wall() - 2 * HOUR_MS);
    clock.advance(4_000);
    await until(() => client.has('recount'), 'the hint has come');
    expect(client.events).toHaveLength(1);
  });

  /** Events of the app's first type, a millisecond apart, up to an instant. */
  async function insert(count: number, until: number): Promise<void> {
    const { sql, database } = service;
    const rows = sql`
      SELECT gen_random_uuid(), apps.id, (SELECT min(id) FROM event_types WHERE app_id = apps.id),
             ${new Date(until).toISOString()}::timestamptz - n * interval '1 millisecond', '{}'::json
        FROM apps, generate_series(1, ${count}::integer) n WHERE public_id = ${app.appId}`;
    await insertSelected(sql, database.engine, rows);
  }

  test('a client without a session, or whose user is not a member, is refused', async () => {
    const stranger = await newPerson(service, `stranger.${email}`);
    const statusOf = async (cookie: string): Promise<number | undefined> => {
      const client = await LiveClient.open(service.port, app.appId, { cookie });
      clients.push(client);
      return client.response.statusCode;
    };
    expect(await statusOf('')).toBe(401);
    expect(await statusOf(stranger.cookie)).toBe(404);
  });

  test('signing out ends it with a message that reconnecting is useless', async () => {
    const client = await follow(owner);
    const other = await follow(await new Person(service).signIn(email));
    await owner.delete('/api/session');
    await expectEnd(client, 'session');
    expect(other.isOver).toBe(false);
  });

  test('a change of the password ends it', async () => {
    const elsewhere = await new Person(service).signIn(email);
    const client = await follow(elsewhere);
    const reply = await owner.post('/api/password', {
      currentPassword: PASSWORD,
      newPassword: 'another good password',
    });
    expect([200, 201], reply.text).toContain(reply.status);
    await expectEnd(client, 'session');
  });

  test('watching does not extend a session', async () => {
    const client = await follow(owner);
    for (let hour = 0; hour < 167; hour += 1) clock.advance(HOUR_MS);
    await post('{}');
    await until(() => client.messages.length > 1, 'the feed goes on');
    expect(client.isOver).toBe(false);
    clock.advance(HOUR_MS);
    await expectEnd(client, 'session');
  });

  test('the end of a membership ends it', async () => {
    const member = await newPerson(service, `member.${email}`);
    await owner.post(`${app.path}/members`, { email: `member.${email}` });
    const client = await follow(member);
    const { data } = await owner.get(`${app.path}/members`);
    const members = data.members as { userId: string; email: string }[];
    const userId = members.find((one) => one.email === `member.${email}`)?.userId;
    expect((await owner.delete(`${app.path}/members/${userId}`)).status).toBe(200);
    await expectEnd(client, 'access');
  });

  test('the deletion of the app ends it', async () => {
    const client = await follow(owner);
    expect((await owner.delete(app.path, { confirm: 'Shop' })).status).toBe(200);
    await expectEnd(client, 'access');
  });

  async function expectEnd(client: LiveClient, reason: string): Promise<void> {
    await until(() => client.isOver, 'the feed has ended');
    expect(client.messages.at(-1)).toMatchObject({ event: 'end', data: JSON.stringify({ reason }) });
  }

  test('an account has twenty, and may open another after closing one', async () => {
    for (let opened = 0; opened < 20; opened += 1) await follow(owner);
    const refused = await LiveClient.open(service.port, app.appId, { cookie: owner.cookie });
    expect(refused.response.statusCode).toBe(429);
    expect(refused.response.headers['retry-after']).toBe('10');
    clients[0]?.close();
    await until(async () => {
      const client = await LiveClient.open(service.port, app.appId, { cookie: owner.cookie });
      clients.push(client);
      return client.response.statusCode === 200;
    }, 'there is room again');
  });
});

describe('the limits of the feeds', () => {
  let service: TestService;
  let clients: LiveClient[] = [];
  beforeAll(async () => {
    const config = { MAX_LIVE_FEEDS: 10, MAX_LIVE_FEEDS_PER_APP: 8, MAX_LIVE_FEEDS_PER_ACCOUNT: 5 };
    service = await startTestService({ config });
  });
  afterAll(() => service.stop());
  afterEach(() => {
    for (const client of clients) client.close();
    clients = [];
  });

  interface Watching {
    readonly person: Person;
    readonly email: string;
    readonly appId: string;
    readonly path: string;
  }
  const newWatcher = async (): Promise<Watching> => {
    const email = `${randomUUID()}@example.com`;
    const person = await newPerson(service, email);
    return { person, email, ...(await newOwnApp(person)) };
  };
  const open = async ({ person }: Watching, appId: string): Promise<LiveClient> => {
    const client = await LiveClient.open(service.port, appId, { cookie: person.cookie });
    clients.push(client);
    return client;
  };
  const openMany = async (watcher: Watching, count: number, appId = watcher.appId): Promise<LiveClient[]> => {
    const opened: LiveClient[] = [];
    for (let i = 0; i < count; i++) opened.push(await open(watcher, appId));
    return opened;
  };
  const isRefused = async (client: LiveClient, status: number, code: string, setting: string) => {
    expect(client.response.statusCode).toBe(status);
    await until(() => client.isOver, 'the refusal has come');
    expect(JSON.parse(client.refusal)).toMatchObject({ code, details: expect.stringContaining(setting) });
  };

  test('an app has its own limit, whichever users watch, and does not use that of other apps', async () => {
    const [owner, member, other] = [await newWatcher(), await newWatcher(), await newWatcher()];
    await owner.person.post(`${owner.path}/members`, { email: member.email });
    await openMany(owner, 4);
    for (const client of await openMany(member, 4, owner.appId)) expect(client.response.statusCode).toBe(200);
    await isRefused(
      await open(member, owner.appId),
      429,
      'TOO_MANY_LIVE_FEEDS',
      'An app may have 8 live feeds open (MAX_LIVE_FEEDS_PER_APP)',
    );
    expect((await open(member, member.appId)).response.statusCode).toBe(200);
    expect((await open(other, other.appId)).response.statusCode).toBe(200);
  });

  test('a few accounts cannot use all: at the limit, the account with the most feeds loses its oldest', async () => {
    const [one, two, three] = [await newWatcher(), await newWatcher(), await newWatcher()];
    const ofOne = await openMany(one, 5);
    const ofTwo = await openMany(two, 5);
    const ofThree = await openMany(three, 3);
    for (const client of ofThree) expect(client.response.statusCode).toBe(200);
    await until(() => [...ofOne, ...ofTwo].filter(({ isOver }) => isOver).length === 3, 'three have ended');
    expect(ofOne.map(({ isOver }) => isOver)).toEqual([true, true, false, false, false]);
    expect(ofTwo.map(({ isOver }) => isOver)).toEqual([true, false, false, false, false]);
    expect(ofThree.every(({ isOver }) => !isOver)).toBe(true);
    // Shares are equal now, as far as ten go into three: no one takes one from another.
    await isRefused(
      await open(one, one.appId),
      503,
      'UNAVAILABLE',
      'The server has 10 live feeds open (MAX_LIVE_FEEDS)',
    );
    await isRefused(await open(three, three.appId), 503, 'UNAVAILABLE', 'MAX_LIVE_FEEDS');
  });
});

test('an event arrives with the first poll that begins after its commit', async () => {
  let polls = 0;
  let proxy: FaultyProxy | undefined;
  const service = await startTestService({
    reach: async (address) => {
      proxy = await FaultyProxy.start(address);
      proxy.onSent = (sent) => {
        if (sent.includes('SELECT pg_current_snapshot()::text AS snapshot')) polls += 1;
      };
      return proxy.address;
    },
  });
  try {
    const owner = await newPerson(service, `${randomUUID()}@example.com`);
    const { appId, loggingToken } = await newOwnApp(owner);
    const client = await LiveClient.follow(service.port, appId, { cookie: owner.cookie, lastEventId: '' });
    for (let sent = 1; sent <= 5; sent += 1) {
      const body = JSON.stringify({ loggingToken, typeName: 'order', payload: {} });
      const { status } = await service.request({ method: 'POST', path: '/public/create_event', body });
      expect(status).toBe(201);
      const committed = polls;
      await until(() => client.events.length === sent, 'the event has come');
      // The next one may have begun while the event was on its way to the client.
      expect(polls - committed).toBeLessThanOrEqual(2);
    }
    client.close();
  } finally {
    await service.stop();
    await proxy?.stop();
  }
});
