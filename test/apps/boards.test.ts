/** Boards: several saved views on one page, which agree with each other. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Board, BoardData } from '../../src/api-types/answers.ts';
import { availableEngines } from '../support/database.ts';
import { sized } from '../support/fuzz.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { hurryRounds, startTestService, type TestService, until } from '../support/service.ts';

hurryRounds();

const FROM = Date.UTC(2026, 0, 1);
const RANGE = '?from=2026-01-01&to=2026-02-01&timezone=Europe/Berlin&buckets=40';

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  let owner: Person;
  let app: Awaited<ReturnType<typeof newOwnApp>>;
  let typeIds: Record<string, string>;

  beforeAll(async () => {
    service = await startTestService({ engine, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    for (const [path, kind] of [
      ['country', 'value'],
      ['amount', 'number'],
      ['user', 'distinct'],
    ])
      expect((await owner.post(`${app.path}/declared-fields`, { path, kind })).status).toBe(201);
    await store(
      Array.from({ length: 60 }, (_, index) => ({
        typeName: index % 3 === 0 ? 'order' : 'view',
        createdAt: new Date(FROM + index * 36_000_000).toISOString(),
        payload: {
          country: index % 2 === 0 ? 'DE' : 'FR',
          user: `u${index % 7}`,
          ...(index % 3 === 0 && { amount: index }),
        },
      })),
    );
    const { types } = (await owner.get(`${app.path}/types`)).data as {
      types: { name: string; typeId: string }[];
    };
    typeIds = Object.fromEntries(types.map(({ name, typeId }) => [name, typeId]));
  });
  afterAll(() => service?.stop());

  async function store(events: readonly object[]): Promise<void> {
    const { status } = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { Authorization: `Bearer ${app.loggingToken}` },
      body: JSON.stringify({ events }),
    });
    expect(status).toBe(200);
  }

  const viewOf = async (name: string, search: string): Promise<string> =>
    String((await owner.post(`${app.path}/views`, { name, search })).data.viewId);
  const boardsOf = async (person = owner): Promise<readonly Board[]> =>
    (await person.get(`${app.path}/boards`)).data.boards as readonly Board[];
  const dataOf = async (boardId: string, query = RANGE): Promise<BoardData> => {
    const { status, data, text } = await owner.get(`${app.path}/boards/${boardId}/data${query}`);
    expect(status, text).toBe(200);
    return data as unknown as BoardData; // The route's own answer.
  };
  const boardOf = async (name: string, searches: readonly string[]): Promise<string> => {
    const viewIds: string[] = [];
    for (const [index, search] of searches.entries()) viewIds.push(await viewOf(`${name} ${index}`, search));
    const { status, data, text } = await owner.post(`${app.path}/boards`, { name, viewIds });
    expect(status, text).toBe(201);
    return String(data.boardId);
  };
  const sum = (counts: readonly number[] | undefined): number =>
    (counts ?? []).reduce((total, count) => total + count, 0);

  test('keeps the width of a view, the unit of its field, and what a running sum had before', async () => {
    const boardId = await boardOf('Widths', [
      'range=7d&width=7d',
      'range=7d&width=1m',
      'range=7d&width=2h',
      'range=7d&of=amount&stat=sum&mode=running&width=1d',
    ]);
    const field = { path: 'amount', kind: 'number' };
    const format = { unit: '€', decimals: 2 };
    expect((await owner.post(`${app.path}/declared-fields`, { ...field, ...format })).status).toBe(201);
    const { charts } = await dataOf(boardId, '?from=2026-01-11&to=2026-02-01&timezone=UTC&buckets=40');
    // A minute is more than there may be: the next width of which there are not too many.
    expect(charts.map(({ series }) => series?.bucket)).toEqual(['7d', '1h', '1d', '1d']);
    const numbers = charts[3]?.numbers;
    expect([numbers?.format, numbers?.before?.all]).toEqual([format, 0 + 3 + 6 + 9 + 12 + 15 + 18 + 21]);
    expect(numbers?.lines?.map(({ key }) => numbers.before?.byKey[key])).toEqual([84]);
    expect(numbers?.stats.sum?.length).toBe(charts[3]?.series?.starts.length);
    await owner.post(`${app.path}/declared-fields`, { ...field, unit: null, decimals: null });
  });

  test('shows each view in its own range, and says why where that is none', async () => {
    const boardId = await boardOf('Own', [
      'from=2026-01-11T00%3A00Z&to=2026-01-13T00%3A00Z',
      'range=7d',
      '',
      'from=-200000-01-01T00%3A00%3A00Z&to=2026-01-01T00%3A00Z',
    ]);
    // A range of the board is not that of its views.
    const { charts } = await dataOf(
      boardId,
      '?ranges=views&timezone=Europe/Berlin&buckets=40&from=2020-01-01&to=2020-01-02',
    );
    expect(charts.map(({ range }) => range)).toEqual([
      '2026-01-11T00:00:00Z~2026-01-13T00:00:00Z',
      '7d',
      '24h',
      '-200000-01-01T00:00:00Z~2026-01-01T00:00:00Z',
    ]);
    const HOURS = 3_600_000;
    const lengths = charts.map(
      ({ series }) => series && (series.interval.until - series.interval.from) / HOURS,
    );
    expect(lengths).toEqual([48, 168, 24, null]);
    expect(charts[0]?.series?.compared?.interval).toEqual({
      from: Date.parse('2026-01-09T00:00Z'),
      until: Date.parse('2026-01-11T00:00Z'),
    });
    expect(charts[3]?.problem).toContain('save the view with another one');
    const shared = await dataOf(boardId, '?timezone=UTC&buckets=40&from=2026-01-11&to=2026-01-12');
    expect(shared.charts.map(({ range }) => range)).toEqual([null, null, null, null]);
    expect((await owner.get(`${app.path}/boards/${boardId}/data?ranges=mine`)).code).toBe('INVALID_REQUEST');
  });

  test('never answers another question than that of a view: it says why not', async () => {
    const order = typeIds.order ?? '';
    const boardId = await boardOf('Questions', [
      'of=amount&stat=sum&by=plan',
      'of=amount&stat=p95&filter=plan%3Apro',
      'of=plan&stat=distinct',
      'by=plan',
      `part=filter%3Aplan%3Apro`,
      `type=${order}&q=pro`,
    ]);
    const { charts } = await dataOf(boardId);
    const [{ numbers, problem } = {}, ...others] = charts;
    // The sum of all is right; it has no lines, and says so.
    expect([numbers?.lines, problem]).toEqual([null, expect.stringContaining('not declared')]);
    for (const { name, series, numbers, part, problem } of others) {
      expect([series, numbers, part], name).toEqual([null, null, null]);
      expect(problem, name).toMatch(/not (?:declared|counted)|No counts/);
    }
  });

  test('gets a view with the request that saves it, once, and only one of its app', async () => {
    const boardId = await boardOf('Growing', ['range=1h', 'range=2h']);
    const save = (name: string, search: string, more: object = { boardId }) =>
      owner.post(`${app.path}/views`, { name, search, ...more });
    expect((await save('Grown', 'range=3h')).status).toBe(201);
    expect((await save('Grown', 'range=4h')).status).toBe(200);
    const { charts } = await dataOf(boardId, '?ranges=views&timezone=UTC');
    expect(charts.map(({ name, range }) => [name, range])).toEqual([
      ['Growing 0', '1h'],
      ['Growing 1', '2h'],
      ['Grown', '4h'],
    ]);
    // What is refused is not saved either.
    const wrong = await save('Lost', 'range=1h', { boardId: 'brd_aaaaaaaaaaaaaaaaaaaa' });
    expect(wrong.code).toBe('BOARD_NOT_FOUND');
    for (let n = 3; n < 12; n += 1) expect((await save(`Grown ${n}`, 'range=1h')).status).toBe(201);
    expect((await save('Too many', 'range=1h')).code).toBe('INVALID_REQUEST');
    const { data } = await owner.get(`${app.path}/views`);
    const names = (data.views as { name: string }[]).map(({ name }) => name);
    expect(names.filter((name) => /^(?:Lost|Too many)$/.test(name))).toEqual([]);
  });

  test('shows each view as its own page does, over one range and filter', async () => {
    const order = typeIds.order ?? '';
    const boardId = await boardOf('Shop', [
      'range=24h',
      `range=7d&type=${order}&mode=accumulated`,
      'range=1y&by=country',
      `type=-${order}&filter=country%3ADE`,
      'of=amount&stat=sum',
      'of=user&stat=distinct&by=country',
      `part=type%3A${order}`,
      'filter=plan%3Apro',
    ]);
    const served = async (): Promise<BoardData> => await dataOf(boardId);
    await until(async () => (await served()).charts[2]?.series?.by === 'country', 'the fields are counted');
    await until(async () => (await served()).charts[4]?.numbers !== null, 'the numbers are counted');
    const { name, charts } = await served();
    expect([name, charts.map((chart) => chart.name)]).toEqual([
      'Shop',
      Array.from({ length: 8 }, (_, index) => `Shop ${index}`),
    ]);
    const [all, orders, byCountry, german, amounts, users, ratio, unknown] = charts;
    // Exactly what the page of the view asks for itself.
    const asked = async (query: string): Promise<unknown> =>
      (await owner.get(`${app.path}/series${RANGE}${query}`)).data;
    expect(all?.series).toEqual(await asked(''));
    expect(orders?.series).toEqual(await asked(`&typeId=${order}`));
    expect(byCountry?.series).toEqual(await asked('&by=country'));
    expect(german?.series).toEqual(await asked(`&exceptTypeId=${order}&filter=country:DE`));
    expect([sum(all?.series?.all), sum(orders?.series?.all), sum(german?.series?.all)]).toEqual([60, 20, 20]);
    expect(amounts?.numbers?.overall.sum).toBe(
      Array.from({ length: 20 }, (_, i) => i * 3).reduce((a, b) => a + b),
    );
    expect(users?.numbers?.overall.distinct).toBe(7);
    expect(sum(ratio?.part?.all)).toBe(20);
    expect(unknown).toMatchObject({ series: null, problem: expect.stringContaining('not counted') });
    // The board's filter is met by all of its charts.
    const filtered = (await dataOf(boardId, `${RANGE}&filter=country:FR`)).charts;
    expect(sum(filtered[0]?.series?.all)).toBe(30);
    expect(sum(filtered[1]?.series?.all)).toBe(10);
    const compared = await dataOf(boardId, `${RANGE}&compareFrom=2025-12-01&compareTo=2026-01-01`);
    expect(sum(compared.charts[0]?.series?.compared?.all)).toBe(0);
  });

  test('marks annotations, and events of types that are shown as such, once for all charts', async () => {
    const boardId = await boardOf('Marked', ['', 'by=country', 'filter=plan%3Apro']);
    expect(await dataOf(boardId)).toMatchObject({ annotations: [], marks: [] });
    await store([
      { typeName: 'deploy', createdAt: '2026-01-07T10:00:00Z', payload: { text: 'v12' } },
      { typeName: 'deploy', createdAt: '2026-02-07T10:00:00Z', payload: { text: 'after the range' } },
    ]);
    const types = (await owner.get(`${app.path}/types`)).data.types as { name: string; typeId: string }[];
    const deploy = types.find(({ name }) => name === 'deploy')?.typeId ?? '';
    await owner.patch(`${app.path}/types/${deploy}`, { annotation: true });
    for (const at of ['2026-01-08T12:00:00Z', '2026-03-01T12:00:00Z'])
      await owner.post(`${app.path}/annotations`, { kind: 'incident', text: `Outage ${at}`, at });
    const { charts, annotations, marks } = await dataOf(boardId);
    expect(marks).toEqual([
      { eventId: expect.any(String), at: '2026-01-07T10:00:00.000Z', text: 'deploy: v12' },
    ]);
    expect(annotations.map(({ text }) => text)).toEqual(['Outage 2026-01-08T12:00:00Z']);
    // Told once: charts of a view have their own.
    expect(charts.map(({ series }) => series?.marks)).toEqual([undefined, undefined, undefined]);
    const { data } = await owner.get(`${app.path}/series${RANGE}`);
    expect(data.marks).toEqual(marks);
    await owner.patch(`${app.path}/types/${deploy}`, { annotation: false });
    expect((await dataOf(boardId)).marks).toEqual([]);
  });

  test('has charts that agree with each other while events are stored', async () => {
    const boardId = await boardOf('Agreeing', [
      '',
      'by=country',
      `part=type%3A${typeIds.order}`,
      'mode=running',
    ]);
    let isWriting = true;
    const writers = [1, 2].map(async () => {
      while (isWriting)
        await store([{ typeName: 'order', createdAt: '2026-01-05T00:00:00Z', payload: { country: 'DE' } }]);
    });
    for (let read = 0; read < sized(8, 25); read += 1) {
      const totals = (await dataOf(boardId)).charts.map(({ series }) => sum(series?.all));
      expect(new Set(totals).size, JSON.stringify(totals)).toBe(1);
    }
    isWriting = false;
    await Promise.all(writers);
  });

  test('is made, renamed, put in another order and removed, by those who may', async () => {
    const viewer = await newPerson(service, 'viewer@example.com');
    await owner.post(`${app.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
    const stranger = await newPerson(service, 'stranger@example.com');
    const other = await newOwnApp(stranger, 'Other');
    const boardId = await boardOf('Changing', ['range=1h', 'range=2h', 'range=3h']);
    const path = `${app.path}/boards/${boardId}`;
    const shown = async (): Promise<Board | undefined> =>
      (await boardsOf(viewer)).find((board) => board.boardId === boardId);
    const ids = (await shown())?.views.map(({ viewId }) => viewId) ?? [];
    expect(ids).toHaveLength(3);
    expect(
      (await owner.patch(path, { name: 'Changed', viewIds: [ids[2], ids[0]], basedOn: ids })).status,
    ).toBe(200);
    expect(await shown()).toMatchObject({ name: 'Changed', views: [{ viewId: ids[2] }, { viewId: ids[0] }] });

    const code = async (body: object, method: 'patch' | 'post' = 'patch'): Promise<string> =>
      (await owner[method](method === 'patch' ? path : `${app.path}/boards`, body)).code;
    const [first = '', second = ''] = ids;
    expect(await code({ viewIds: [first] })).toBe('INVALID_REQUEST');
    expect(await code({ viewIds: [first, first] })).toBe('INVALID_REQUEST');
    expect(await code({ viewIds: Array.from({ length: 13 }, () => first) })).toBe('INVALID_REQUEST');
    expect(await code({ viewIds: [first, 'vie_aaaaaaaaaaaaaaaaaaaa'] })).toBe('VIEW_NOT_FOUND');
    expect(await code({ name: '' })).toBe('INVALID_REQUEST');
    await boardOf('Taken', ['range=1m', 'range=2m']);
    expect(await code({ name: 'Taken' })).toBe('BOARD_EXISTS');
    expect(await code({ name: 'Taken', viewIds: [first, second] }, 'post')).toBe('BOARD_EXISTS');
    expect(await code({ name: 'New' }, 'post')).toBe('INVALID_REQUEST');

    expect((await viewer.get(`${path}/data${RANGE}`)).status).toBe(200);
    expect((await viewer.patch(path, { name: 'Mine' })).code).toBe('ACCESS_DENIED');
    expect((await stranger.get(`${path}/data`)).code).toBe('APP_NOT_FOUND');
    expect((await stranger.get(`${other.path}/boards/${boardId}/data`)).code).toBe('BOARD_NOT_FOUND');
    expect((await stranger.delete(`${other.path}/boards/${boardId}`)).code).toBe('BOARD_NOT_FOUND');
    expect((await owner.get(`${path}/data?from=2026-02-01&to=2026-01-01`)).status).toBe(400);

    // A view that is removed leaves its boards.
    await owner.delete(`${app.path}/views/${first}`);
    expect((await shown())?.views).toMatchObject([{ viewId: ids[2] }]);
    expect((await owner.delete(path)).status).toBe(200);
    expect(await shown()).toBeUndefined();
    const { data } = await owner.get(`${app.path}/audit`);
    const actions = (data.entries as { action: string }[]).map(({ action }) => action);
    expect(actions.filter((action) => action.startsWith('board.')).slice(0, 3)).toEqual([
      ...['board.remove', 'board.create', 'board.change'],
    ]);
  });

  test('keep what others have changed since the page was read that is written back', async () => {
    const boardId = await boardOf('Shared', ['', 'by=country', 'mode=running', 'scale=log']);
    const path = `${app.path}/boards/${boardId}`;
    const shown = async (): Promise<string[]> => (await dataOf(boardId)).charts.map(({ viewId }) => viewId);
    const basedOn = await shown();
    const [a = '', b = '', c = '', d = ''] = basedOn;
    const added = String(
      (await owner.post(`${app.path}/views`, { name: 'Later', search: 'range=2h' })).data.viewId,
    );
    // A colleague adds one and removes one.
    await owner.patch(path, { viewIds: [a, added, b, c], basedOn });
    expect(await shown()).toEqual([a, added, b, c]);
    // A page that knows nothing of it moves one, removes one and adds another.
    const other = String(
      (await owner.post(`${app.path}/views`, { name: 'Other', search: 'range=3h' })).data.viewId,
    );
    expect(await owner.patch(path, { viewIds: [d, c, a, other], basedOn })).toMatchObject({ status: 200 });
    expect(await shown()).toEqual([c, a, added, other]);
    // Without it, a view may be moved or added, and none is left out that a colleague may have added.
    const refused = await owner.patch(path, { name: 'Not this either', viewIds: [a, c, other] });
    expect([refused.status, refused.code, JSON.parse(refused.text).param]).toEqual([
      ...[409, 'BASIS_REQUIRED', 'basedOn'],
    ]);
    expect(await owner.patch(path, { viewIds: [b, other, added, a, c] })).toMatchObject({ status: 200 });
    expect(await shown()).toEqual([b, other, added, a, c]);
    const now = [b, other, added, a, c];
    expect(await owner.patch(path, { viewIds: [b, a], basedOn: now })).toMatchObject({ status: 200 });
    expect(await shown()).toEqual([b, a]);
    // What would be too many is refused, and nothing changes.
    const many: string[] = [];
    for (let index = 0; index < 12; index += 1)
      many.push(
        String((await owner.post(`${app.path}/views`, { name: `Many ${index}`, search: '' })).data.viewId),
      );
    expect(await owner.patch(path, { viewIds: many, basedOn: [] })).toMatchObject({ status: 400 });
    expect(await shown()).toEqual([b, a]);
  });

  test('are at most fifty of an app', async () => {
    const [{ id } = { id: 0 }] = await service.sql<{ id: number }[]>`
      SELECT id FROM apps WHERE public_id = ${app.appId}`;
    await service.sql`
      INSERT INTO boards (public_id, app_id, name)
      SELECT 'brd_' || lpad(n::text, 20, '0'), ${id}, 'board ' || n FROM generate_series(1, 50) AS n`;
    const viewIds = [await viewOf('a', ''), await viewOf('b', '')];
    expect((await owner.post(`${app.path}/boards`, { name: 'more', viewIds })).code).toBe('TOO_MANY_BOARDS');
  });
});
