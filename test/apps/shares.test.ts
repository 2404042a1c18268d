/** Shares: what a link shows, to whom, for how long, at what cost, and that it opens nothing else. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { resumeAccount, suspendAccount } from '../../src/accounts/people/suspension.ts';
import type { BoardData, NewShare, SharedData, ShareEntry } from '../../src/api-types/answers.ts';
import { suspendApp } from '../../src/apps/apps.ts';
import { FRESH_MS } from '../../src/apps/shares.ts';
import { dashboardRoutes } from '../support/dashboard-routes.ts';
import { heldLock } from '../support/held-lock.ts';
import { HttpConnection } from '../support/http-client.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { hurryRounds, startTestService, TestClock, type TestService, until } from '../support/service.ts';

const NOW = Date.parse('2026-02-01T12:00:30Z');
const DATES = '2026-01-01T00:00:00Z~2026-02-01T00:00:00Z';

hurryRounds();
describe('shares', () => {
  const clock = new TestClock(NOW);
  let service: TestService;
  let other: TestService;
  let proxy: FaultyProxy;
  let owner: Person;
  let app: { appId: string; loggingToken: string; path: string };
  let viewIds: string[];
  let boardId: string;

  beforeAll(async () => {
    service = await startTestService({
      clock,
      reach: async (address) => {
        proxy = await FaultyProxy.start(address);
        return proxy.address;
      },
    });
    other = await startTestService({ clock, database: service.database });
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    const events = Array.from({ length: 40 }, (_, i) => ({
      typeName: i % 4 === 0 ? 'order' : 'page view',
      createdAt: new Date(Date.parse('2026-01-05T00:00:00Z') + i * 3_600_000).toISOString(),
      payload: { country: i % 2 === 0 ? 'DE' : 'FR', visitor: `private ${i}` },
    }));
    const { status } = await service.request({
      ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
      headers: { Authorization: `Bearer ${app.loggingToken}` },
    });
    expect(status).toBe(200);
    viewIds = [];
    for (const [name, search] of [
      ['All', 'range=24h'],
      ['Of Germany', 'range=1h&filter=country%3ADE&mode=accumulated'],
    ])
      viewIds.push(String((await owner.post(`${app.path}/views`, { name, search })).data.viewId));
    boardId = String((await owner.post(`${app.path}/boards`, { name: 'Morning', viewIds })).data.boardId);
  });
  afterAll(async () => {
    await other?.stop({ keepDatabase: true });
    await service?.stop();
    await proxy?.stop();
  });

  const TERMS = { range: DATES, timezone: 'UTC' };
  const create = (fields: object, person = owner): ReturnType<Person['post']> =>
    person.post(`${app.path}/shares`, { ...TERMS, ...fields });
  /** Makes a share. @returns its id, and the secret of its link */
  const share = async (fields: object, person = owner): Promise<{ shareId: string; secret: string }> => {
    const { status, data, text } = await create(fields, person);
    expect(status, text).toBe(201);
    const { shareId, url } = data as unknown as NewShare; // The route's own answer.
    return { shareId, secret: url.split('/').at(-1) ?? '' };
  };
  const stranger = (): Person => new Person(service);
  const see = async (secret: string, headers = {}): Promise<SharedData> => {
    const { status, data, text } = await stranger().get(`/api/shared/${secret}`, { headers });
    expect(status, text).toBe(200);
    return data as unknown as SharedData; // The route's own answer.
  };
  const codeOf = async (secret: string, at = service): Promise<string> =>
    (await new Person(at).get(`/api/shared/${secret}`)).code;
  const listed = async (): Promise<readonly ShareEntry[]> =>
    (await owner.get(`${app.path}/shares`)).data.shares as readonly ShareEntry[];
  const sum = (counts: readonly number[] | undefined): number =>
    (counts ?? []).reduce((total, count) => total + count, 0);

  test('show a board as its members see it, in the range that its maker has chosen', async () => {
    const { secret } = await share({ boardId, filters: [] });
    const shown = await see(secret);
    expect(shown).toMatchObject({ name: 'Morning', timezone: 'UTC', range: DATES, events: [] });
    const query = `?from=2026-01-01&to=2026-02-01&compareFrom=2025-12-01&compareTo=2026-01-01&timezone=UTC&buckets=60&lines=12`;
    const { data } = await owner.get(`${app.path}/boards/${boardId}/data${query}`);
    const { charts } = data as unknown as BoardData; // The route's own answer.
    expect(shown.charts.map(({ search: _, ...chart }) => chart)).toEqual(
      // Why a chart is missing is told to members.
      charts.map(({ search: _, problem, ...chart }) => ({
        ...chart,
        problem: problem && expect.stringMatching(/^This chart cannot be shown/),
      })),
    );
    expect(sum(shown.charts[0]?.series?.all)).toBe(40);
    // The conditions of a view are its maker's, and so is the app.
    expect(JSON.stringify(shown)).not.toMatch(/country|owner@|app_/);
    expect(shown.charts[1]?.search).toContain('mode=accumulated');
  });

  test('show each view of a board in its own range, where its maker says so', async () => {
    const { secret } = await share({ boardId, range: 'views' });
    const { range, charts } = await see(secret);
    expect(range).toBe('views');
    expect(charts.length).toBeGreaterThan(1);
    expect(charts.every((chart) => chart.range !== null)).toBe(true);
    expect((await create({ viewId: viewIds[0], range: 'views' })).code).toBe('INVALID_REQUEST');
  });

  test('tell no more of a view’s address than its chart is drawn by, whatever is in it', async () => {
    const told = 'by=country&mode=accumulated&scale=log&hide=hidden';
    const kept = 'secret-condition';
    const conditions = [
      'filter',
      'filter2',
      'q',
      'q2',
      'type2',
      'column',
      'event',
      'back',
      'at',
      'compare',
      'from',
      'to',
    ];
    const further = [
      'range',
      'tz',
      'refresh',
      'buckets',
      'table',
      'hide',
      'mode',
      'scale',
      'of_a_later_release',
      '',
    ];
    const search = new URLSearchParams(told);
    for (const name of [...conditions, ...further])
      if (name !== 'filter' && name !== 'q') search.append(name, kept);
    search.append('type', '-typ_unwanted');
    search.append('filter', 'country:DE,FR');
    const view = await owner.post(`${app.path}/views`, { name: 'Much', search: search.toString() });
    const shown = await see((await share({ viewId: view.data.viewId })).secret);
    expect(JSON.stringify(shown)).not.toMatch(/secret-condition|typ_unwanted|country:|filter/);
    const of = [...new URLSearchParams(shown.charts[0]?.search)];
    expect(of.toSorted()).toEqual([...new URLSearchParams(told)].toSorted());
    const types = (await owner.get(`${app.path}/types`)).data.types as { name: string; typeId: string }[];
    const order = types.find(({ name }) => name === 'order')?.typeId ?? '';
    const ratio = new URLSearchParams({ part: `type:${order}`, hide: order });
    const parts = await owner.post(`${app.path}/views`, { name: 'Part', search: ratio.toString() });
    const { charts } = await see((await share({ viewId: parts.data.viewId })).secret);
    // A line that is shown may be left out, and a ratio drawn as one.
    expect(new URLSearchParams(charts[0]?.search).getAll('hide')).toEqual([order]);
    expect(new URLSearchParams(charts[0]?.search).get('part')).toBe(`type:${order}`);
    // One that cannot be counted is not shown as anything else.
    const unread = await owner.post(`${app.path}/views`, {
      name: 'Unread',
      search: 'part=filter:country:DE',
    });
    const [chart] = (await see((await share({ viewId: unread.data.viewId })).secret)).charts;
    expect(chart).toMatchObject({ series: null, part: null });
    expect(new URLSearchParams(chart?.search).get('part')).toBe('filter:…');
  });

  test('move with the clock, on the calendar of their zone', async () => {
    const { secret } = await share({ viewId: viewIds[0], range: '7d', timezone: 'Europe/Berlin' });
    const { range, charts } = await see(secret);
    expect(range).toBe('7d');
    expect(charts[0]?.series).toMatchObject({ timezone: 'Europe/Berlin' });
    // A week of Berlin's clock that ends with this minute: nothing of January's first week.
    expect(sum(charts[0]?.series?.all)).toBe(0);
    expect(charts[0]?.series?.starts.at(0)).toBeLessThanOrEqual(Date.parse('2026-01-25T12:01:00Z'));
  });

  test('have the events of a view only if its maker says so, and their payloads only then', async () => {
    const seen: SharedData[] = [];
    for (const list of [undefined, 'times', 'payloads'])
      seen.push(await see((await share({ viewId: viewIds[0], list })).secret));
    const [charts, times, payloads] = seen;
    expect(charts?.events).toEqual([]);
    expect(JSON.stringify([charts, times])).not.toContain('private');
    expect(times?.events).toHaveLength(40);
    expect(times?.events[0]).toEqual({
      ...{ id: expect.any(String), typeId: expect.any(String), createdAt: '2026-01-06T15:00:00.000Z' },
    });
    expect(Object.values(times?.types ?? {}).toSorted()).toEqual(['order', 'page view']);
    expect(payloads?.events[0]?.payload).toBe('{"country":"FR","visitor":"private 39"}');
    const germans = await see((await share({ viewId: viewIds[1], list: 'payloads' })).secret);
    expect(new Set(germans.events.map(({ payload }) => JSON.parse(payload ?? '').country))).toEqual(
      new Set(['DE']),
    );
  });

  test('show no marks, and do not tell why a chart is missing', async () => {
    const uncounted = await owner.post(`${app.path}/views`, { name: 'Pro', search: 'filter=plan%3Apro' });
    const ids = [viewIds[0], uncounted.data.viewId];
    const board = await owner.post(`${app.path}/boards`, { name: 'Marked', viewIds: ids });
    const types = (await owner.get(`${app.path}/types`)).data.types as { name: string; typeId: string }[];
    const type = `${app.path}/types/${types.find(({ name }) => name === 'order')?.typeId}`;
    await owner.patch(type, { annotation: true });
    const annotation = { kind: 'incident', text: 'Secret outage', at: '2026-01-05T12:00:00Z' };
    expect((await owner.post(`${app.path}/annotations`, annotation)).status).toBe(201);
    const query = '?from=2026-01-01&to=2026-02-01';
    const own = (await owner.get(`${app.path}/boards/${board.data.boardId}/data${query}`)).text;
    for (const told of ['Secret outage', 'private', 'not counted']) expect(own).toContain(told);
    const shown = [
      await see((await share({ boardId: board.data.boardId })).secret),
      await see((await share({ viewId: viewIds[0], list: 'times' })).secret),
    ];
    expect(shown[0]?.charts.map(({ series, problem }) => [series !== null, problem])).toEqual([
      [true, null],
      [false, expect.stringMatching(/^This chart cannot be shown\. Whoever shared it/)],
    ]);
    expect(JSON.stringify(shown)).not.toMatch(/outage|private|marks|annotations|open the view|counted:/);
    await owner.patch(type, { annotation: false });
  });

  test('do not tell what would have to be declared for the lines of a statistic', async () => {
    const measured = await newOwnApp(owner, 'Measured');
    const events = [1, 2].map((ms) => ({
      typeName: 'request',
      createdAt: '2026-01-05T00:00:00Z',
      payload: { ms },
    }));
    await service.request({
      ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
      headers: { Authorization: `Bearer ${measured.loggingToken}` },
    });
    const declared = { path: 'ms', kind: 'number', backfill: true };
    expect((await owner.post(`${measured.path}/declared-fields`, declared)).status).toBe(201);
    const view = { name: 'Slow', search: 'of=ms&stat=max&by=region' };
    const { viewId } = (await owner.post(`${measured.path}/views`, view)).data;
    const { url } = (await owner.post(`${measured.path}/shares`, { ...TERMS, viewId })).data;
    let shown: SharedData | undefined;
    await until(async () => {
      clock.advance(FRESH_MS);
      shown = await see(String(url).split('/').at(-1) ?? '');
      return shown.charts[0]?.numbers != null;
    }, 'the field is counted');
    expect(shown?.charts[0]?.numbers).toMatchObject({ overall: { max: 2 }, lines: null, notBy: null });
    expect(shown?.charts[0]?.problem).toMatch(/^This chart has no lines/);
    expect(JSON.stringify(shown)).not.toMatch(/app_|declare|tidemark/);
  });

  test('give no answer again that an erasure has made false', async () => {
    const visited = await newOwnApp(owner, 'Visited');
    const createdAt = '2026-01-05T00:00:00Z';
    const events = [1, 2, 3].map((n) => ({
      typeName: 'visit',
      createdAt,
      payload: { visitor: `person-${n}` },
    }));
    const { status } = await service.request({
      ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
      headers: { Authorization: `Bearer ${visited.loggingToken}` },
    });
    expect(status).toBe(200);
    const view = { name: 'Visits', search: 'range=24h' };
    const { viewId } = (await owner.post(`${visited.path}/views`, view)).data;
    const { url } = (await owner.post(`${visited.path}/shares`, { ...TERMS, viewId, list: 'payloads' })).data;
    const shown = async (): Promise<string> => JSON.stringify(await see(String(url).split('/').at(-1) ?? ''));
    expect(await shown()).toContain('person-2');
    const erasure = { filter: ['visitor:person-2'], password: PASSWORD };
    const asked = await owner.post(`${visited.path}/erasures`, erasure);
    expect(asked.status, asked.text).toBe(202);
    await until(async () => {
      const { data } = await owner.get(`${visited.path}/erasures`);
      return (data.erasures as { state: string }[])[0]?.state === 'finished';
    }, 'the erasure is finished');
    // The clock stands still: answers are as good as new. The share alone is looked up again, after a change.
    await owner.post(`${visited.path}/views`, { ...view, name: 'Again' });
    expect(await shown()).not.toContain('person-2');
    expect(await shown()).toContain('person-3');
  });

  test('are made and revoked by those who may change the app, with clear answers to what cannot be', async () => {
    const viewer = await newPerson(service, 'viewer@example.com');
    await owner.post(`${app.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
    const { shareId, secret } = await share({
      viewId: viewIds[0],
      password: 'not guessed',
      endsAt: '2026-03-01',
    });
    expect((await create({ viewId: viewIds[0] }, viewer)).code).toBe('ACCESS_DENIED');
    expect((await viewer.get(`${app.path}/shares`)).status).toBe(200);
    expect((await viewer.delete(`${app.path}/shares/${shareId}`)).code).toBe('ACCESS_DENIED');
    for (const [fields, code] of [
      [{}, 'INVALID_REQUEST'],
      [{ viewId: viewIds[0], boardId }, 'INVALID_REQUEST'],
      [{ boardId, list: 'times' }, 'INVALID_REQUEST'],
      [{ viewId: viewIds[0], filters: ['country:DE'] }, 'INVALID_REQUEST'],
      [{ boardId, filters: ['country:'] }, 'INVALID_REQUEST'],
      [{ viewId: 'vie_aaaaaaaaaaaaaaaaaaaa' }, 'VIEW_NOT_FOUND'],
      [{ boardId: 'brd_aaaaaaaaaaaaaaaaaaaa' }, 'BOARD_NOT_FOUND'],
      [{ boardId, range: 'whenever' }, 'INVALID_REQUEST'],
      [{ boardId, range: '-200000-01-01T00:00:00Z~2026-01-01T00:00:00Z' }, 'INVALID_REQUEST'],
      [{ boardId, timezone: 'Mars/North' }, 'INVALID_REQUEST'],
      [{ boardId, list: 'everything' }, 'INVALID_REQUEST'],
      [{ boardId, password: 'short' }, 'INVALID_REQUEST'],
      [{ boardId, endsAt: '2026-01-31' }, 'INVALID_REQUEST'],
      [{ boardId, endsAt: 'soon' }, 'INVALID_REQUEST'],
      [{ boardId, origins: ['https://*.example.com'] }, 'INVALID_REQUEST'],
      [{ boardId, origins: ['http://example.com'] }, 'INVALID_REQUEST'],
      [{ boardId, origins: ['https://example.com;script-src'] }, 'INVALID_REQUEST'],
      [{ boardId, origins: ['https://example.com,b'] }, 'INVALID_REQUEST'],
    ] as const)
      expect((await create(fields)).code, JSON.stringify(fields)).toBe(code);
    const entry = (await listed()).find((one) => one.shareId === shareId);
    expect(entry).toMatchObject({
      ...{ viewId: viewIds[0], boardId: null, name: 'All', hasPassword: true, isAllowed: true },
      ...{ createdBy: 'owner@example.com', endsAt: '2026-03-01T00:00:00.000Z', list: 'none', range: DATES },
    });
    expect(JSON.stringify(await listed())).not.toContain(secret);
    expect((await owner.delete(`${app.path}/shares/${shareId}`)).status).toBe(200);
    expect((await owner.delete(`${app.path}/shares/${shareId}`)).code).toBe('SHARE_NOT_FOUND');
    const { data } = await owner.get(`${app.path}/audit`);
    const entries = data.entries as { action: string; details: object }[];
    expect(entries.filter(({ action }) => action.startsWith('share.')).slice(0, 2)).toMatchObject([
      { action: 'share.revoke', details: { shareId, name: 'All' } },
      {
        action: 'share.create',
        details: { how: `charts of ${DATES}, with a password, until 2026-03-01T00:00:00.000Z` },
      },
    ]);
  });

  test('are at most a hundred of an app', async () => {
    const second = await newOwnApp(owner, 'Second');
    const view = await owner.post(`${second.path}/views`, { name: 'All', search: '' });
    await service.sql`
      INSERT INTO shares (public_id, digest, app_id, view_id, created_by, range, timezone, filters, list, origins)
      SELECT 'shr_' || lpad(n::text, 20, '0'), sha256(n::text::bytea), view.app_id, view.id, view.saved_by, 'all', 'UTC', '{}', 'none', '{}'
        FROM generate_series(1, 100) AS n, saved_views AS view WHERE view.public_id = ${String(view.data.viewId)}`;
    const more = await owner.post(`${second.path}/shares`, { viewId: view.data.viewId, ...TERMS });
    expect(more.code).toBe('TOO_MANY_SHARES');
  });

  test('end at once in every process: revoked, over, or without a maker who may share', async () => {
    const maker = await newPerson(service, 'maker@example.com');
    await owner.post(`${app.path}/members`, { email: 'maker@example.com', role: 'maintainer' });
    const makerId = String(((await maker.get('/api/session')).data.user as { userId: string }).userId);
    const member = `${app.path}/members/${makerId}`;
    const { shareId, secret } = await share({ viewId: viewIds[0] }, maker);
    const ended = await share(
      { viewId: viewIds[0], endsAt: new Date(clock.wall() + 60_000).toISOString() },
      maker,
    );
    const both = async (link: string, code: string): Promise<void> => {
      // The clock stands still: what a process knows is as fresh as a notification makes it.
      expect(await codeOf(link)).toBe(code);
      await until(async () => (await codeOf(link, other)) === code, `the other process answers ${code}`);
    };
    await both(secret, '');
    await both(ended.secret, '');
    clock.advance(59_999);
    expect(await codeOf(ended.secret)).toBe('');
    clock.advance(1);
    expect([await codeOf(ended.secret), await codeOf(ended.secret, other)]).toEqual([
      ...['SHARE_NOT_FOUND', 'SHARE_NOT_FOUND'],
    ]);

    const known = async (): Promise<unknown> =>
      (await listed()).find((one) => one.shareId === shareId)?.isAllowed;
    await owner.patch(member, { role: 'viewer' });
    await both(secret, 'SHARE_NOT_FOUND');
    expect(await known()).toBe(false);
    await owner.patch(member, { role: 'maintainer' });
    await both(secret, '');
    await suspendAccount(service.sql, requireEmail('maker@example.com'));
    await until(async () => (await codeOf(secret)) === 'SHARE_NOT_FOUND', 'the suspension has come');
    await both(secret, 'SHARE_NOT_FOUND');
    await resumeAccount(service.sql, requireEmail('maker@example.com'));
    await until(async () => (await codeOf(secret)) === '', 'the end of the suspension has come');
    await both(secret, '');
    await suspendApp(service.sql, { appId: app.appId, isSuspended: true });
    await until(async () => (await codeOf(secret)) === 'SHARE_NOT_FOUND', 'the suspension has come');
    await suspendApp(service.sql, { appId: app.appId, isSuspended: false });
    await until(async () => (await codeOf(secret)) === '', 'the end of the suspension has come');
    await owner.delete(member);
    await both(secret, 'SHARE_NOT_FOUND');

    const own = await share({ viewId: viewIds[0] });
    await both(own.secret, '');
    await owner.delete(`${app.path}/shares/${own.shareId}`);
    await both(own.secret, 'SHARE_NOT_FOUND');
    // With its board, and with its app.
    const extra = await owner.post(`${app.path}/boards`, { name: 'Short', viewIds });
    const ofBoard = await share({ boardId: extra.data.boardId });
    await both(ofBoard.secret, '');
    await owner.delete(`${app.path}/boards/${extra.data.boardId}`);
    await both(ofBoard.secret, 'SHARE_NOT_FOUND');
    const third = await newOwnApp(owner, 'Third');
    const view = await owner.post(`${third.path}/views`, { name: 'All', search: '' });
    const { data } = await owner.post(`${third.path}/shares`, { viewId: view.data.viewId, ...TERMS });
    const ofApp = String(data.url).split('/').at(-1) ?? '';
    await both(ofApp, '');
    expect((await owner.delete(third.path, { confirm: 'Third' })).status).toBe(200);
    await both(ofApp, 'SHARE_NOT_FOUND');
  });

  test('ask for their password, whose guesses are limited as those of sign-ins', async () => {
    const { secret } = await share({ viewId: viewIds[0], password: 'not guessed' });
    const elsewhere = await share({ viewId: viewIds[0], password: 'not guessed' });
    expect(await codeOf(secret)).toBe('PASSWORD_REQUIRED');
    const guess = (password: string): ReturnType<Person['post']> =>
      stranger().post(`/api/shared/${secret}/key`, { password });
    const right = await guess('not guessed');
    expect(right.status).toBe(200);
    const key = String(right.data.key);
    expect((await see(secret, { 'X-Share-Key': key })).name).toBe('All');
    const other = await stranger().get(`/api/shared/${elsewhere.secret}`, {
      headers: { 'X-Share-Key': key },
    });
    expect(other.code).toBe('PASSWORD_REQUIRED');
    for (const forged of [
      key.replace(/.(?=.{20}$)/, (one) => (one === 'A' ? 'B' : 'A')),
      key.replace(/^shr/, 'usr'),
      'x'.repeat(500),
      secret,
    ])
      expect(
        (await stranger().get(`/api/shared/${secret}`, { headers: { 'X-Share-Key': forged } })).code,
      ).toBe('PASSWORD_REQUIRED');
    const codes: string[] = [];
    for (let tries = 0; tries < 7; tries += 1) codes.push((await guess('guessed it')).code);
    expect(codes).toEqual([...Array(5).fill('WRONG_PASSWORD'), 'TOO_MANY_ATTEMPTS', 'TOO_MANY_ATTEMPTS']);
    // Also the right one waits then, and what was right before stays so.
    expect((await guess('not guessed')).code).toBe('TOO_MANY_ATTEMPTS');
    expect((await see(secret, { 'X-Share-Key': key })).name).toBe('All');
    clock.advance(60_000);
    expect((await guess('not guessed')).status).toBe(200);
    expect((await stranger().post('/api/shared/x/key', { password: '' })).code).toBe('LINK_NOT_VALID');
    expect(service.log.filter(({ event }) => event === 'share.failure').length).toBe(5);
    expect(JSON.stringify(service.log)).not.toContain(secret);
    clock.advance(86_400_000);
    expect((await stranger().get(`/api/shared/${secret}`, { headers: { 'X-Share-Key': key } })).code).toBe(
      'PASSWORD_REQUIRED',
    );
  });

  test('cost one set of queries a second, whether one or a thousand look, and one place among the reads', async () => {
    const { secret } = await share({ boardId });
    let statements = 0;
    proxy.onSent = (sent, name) => {
      if (/reads|lookups of readers/.test(name)) statements += bindings(sent);
    };
    const connections = await Promise.all(
      Array.from({ length: 20 }, () => HttpConnection.open(service.port)),
    );
    const visit = async (count: number): Promise<void> => {
      await Promise.all(
        connections.map(async (connection) => {
          for (let visits = 0; visits < count / 20; visits += 1) {
            await connection.send({ path: `/api/shared/${secret}` });
            expect((await connection.response()).status).toBe(200);
          }
        }),
      );
    };
    await see(secret); // It prepares its statements.
    const costs: number[] = [];
    for (const viewers of [20, 1_000, 1_000]) {
      clock.advance(1_000);
      statements = 0;
      await visit(viewers);
      costs.push(statements);
    }
    expect(costs[0]).toBeGreaterThan(5);
    // A connection that is new has some more of its own: two sets would be twice as many.
    expect(Math.max(...costs), costs.join()).toBeLessThan(1.5 * Math.min(...costs));

    // While reads are held, all who look wait for one.
    clock.advance(1_000);
    const lock = await heldLock(service.sql, 'snapshot_lock', 'ACCESS EXCLUSIVE');
    const visits = visit(200);
    const working = async (): Promise<number> => {
      const [row] = await service.sql<{ count: number }[]>`
        SELECT count(*)::integer AS count FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'tidemark reads' AND state <> 'idle'`;
      return row?.count ?? 0;
    };
    await until(async () => (await working()) === 1, 'one read is held');
    expect(await working()).toBe(1);
    await lock.release();
    await visits;
    for (const connection of connections) connection.end();
  });

  test('security 10: open no other route, as address, session, token or header', async () => {
    const { secret } = await share({ viewId: viewIds[0], list: 'payloads', password: 'not guessed' });
    const { data } = await stranger().post(`/api/shared/${secret}/key`, { password: 'not guessed' });
    const { paths } = JSON.parse((await service.request({ path: '/openapi.json' })).body) as {
      paths: Record<string, Record<string, unknown>>;
    };
    const described = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => ({
        method: method.toUpperCase(),
        path: path.replaceAll(/\{(\w+)\}/g, ':$1'),
      })),
    );
    const declared: readonly { method: string; path: string }[] = await dashboardRoutes(service);
    // Metrics are different each time.
    const routes = [...declared, ...described].filter(
      ({ path }) => !/^(?:\/api)?\/shared\/|^\/metrics$/.test(path),
    );
    expect(routes.length).toBeGreaterThan(120);
    const differing: string[] = [];
    for (const { method, path } of routes) {
      const ask = async (link: string, key: string): Promise<string> => {
        const filled = path.replace(':appId', app.appId).replaceAll(/:\w+/g, link);
        const response = await fetch(`${service.url}${filled}?token=${link}&key=${encodeURIComponent(key)}`, {
          method,
          redirect: 'manual',
          headers: {
            'Content-Type': 'application/json',
            Cookie: `tidemark_session=${link}; __Host-tidemark_session=${link}; share=${link}`,
            Authorization: `Bearer ${link}`,
            'X-Share-Key': key,
          },
          ...(method !== 'GET' && {
            body: JSON.stringify({ loggingToken: link, setupToken: link, challenge: key, code: link }),
          }),
        });
        const body = await response.text();
        const { code = '' } = body.startsWith('{"success":false')
          ? (JSON.parse(body) as { code: string })
          : {};
        return code === 'TOO_MANY_ATTEMPTS'
          ? 'refused'
          : `${response.status} ${code} ${code === '' ? body.length : ''}`;
      };
      const asHolder = await ask(secret, String(data.key));
      const asStranger = await ask(randomBytes(32).toString('base64url'), `shr_${'x'.repeat(90)}`);
      if (asHolder !== asStranger) differing.push(`${method} ${path}: ${asHolder}, not ${asStranger}`);
      if (method !== 'OPTIONS' && /^\/(?:api\/apps|v1)/.test(path) && /^2/.test(asHolder))
        differing.push(`${method} ${path}: ${asHolder}`);
    }
    expect(differing).toEqual([]);
  });
});

/** Executions in what a client of PostgreSQL sends: its messages Bind, and simple queries. */
function bindings(sent: Buffer): number {
  let count = 0;
  for (let at = 0; at + 5 <= sent.length; at += 1 + sent.readInt32BE(at + 1))
    if (sent[at] === 0x42 || sent[at] === 0x51) count += 1;
  return count;
}
