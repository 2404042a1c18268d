/** Declared fields over HTTP: what is declared while events arrive has exact totals, pages and series. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { availableEngines } from '../support/database.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const COUNTRIES = ['DE', 'FR', 'DE', 'IT', 'DE'];

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  let token: string;
  beforeAll(async () => {
    service = await startTestService({
      engine,
      config: { READ_LIMIT_PER_MINUTE: 0, CREATE_LIMIT_PER_MINUTE: 0 },
    });
  });
  afterAll(() => service.stop());

  test('an owner declares a field, and reads are answered from its counts', async () => {
    const owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    token = (
      await createResourceToken(service.sql, { name: 'test', appIds: [appId], expiresInSeconds: null })
    ).resourceToken;
    const get = async (path: string) => {
      const { status, body } = await service.request({
        path: `/v1/apps/${appId}${path}`,
        headers: { Authorization: `Bearer ${token}` },
      });
      return { status, ...JSON.parse(body) };
    };
    const log = async (from: number): Promise<void> => {
      for (const [index, country] of COUNTRIES.entries()) {
        const body = JSON.stringify({
          loggingToken,
          typeName: 'order',
          payload: { order: { country, n: from + index } },
        });
        expect((await service.request({ method: 'POST', path: '/public/create_event', body })).status).toBe(
          201,
        );
      }
    };
    await log(0);
    expect((await get('/events?filter=order.country:DE&total=exact')).status).toBe(400);
    const declared = await owner.post(`/api/apps/${appId}/declared-fields`, {
      path: 'order.country',
      kind: 'value',
      backfill: true,
    });
    expect(declared.status).toBe(201);
    await log(5);
    await until(
      async () => (await get('/events?filter=order.country:DE&total=exact')).status === 200,
      'the field is counted',
    );
    await log(10);
    const chart = async (query: string) => (await owner.get(`/api/apps/${appId}/series?${query}`)).data;
    const counted = await chart('filter=order.country:DE');
    expect(counted).toMatchObject({ isFiltered: true, by: null, lines: [{ total: 9 }] });
    expect((counted.all as number[]).reduce((sum, count) => sum + count, 0)).toBe(9);
    // What counts do not answer is searched for by the page.
    const excluded = await chart('filter=-order.country:DE');
    expect(excluded).toMatchObject({ isFiltered: false, lines: [{ total: 15 }] });

    const page = await get('/events?filter=order.country:DE&total=exact&limit=4');
    expect(page.data.pagination).toMatchObject({ total: 9, filteredBy: 'counts', limit: 4 });
    expect(page.data.events).toHaveLength(4);
    const rest = await get(`/events?filter=order.country:DE&cursor=${page.data.pagination.nextCursor}`);
    expect(rest.data.events).toHaveLength(5);
    expect(rest.data.pagination.nextCursor).toBeUndefined();
    const searched = await get('/events?filter=order.n>=12');
    expect(searched.data.pagination.filteredBy).toBe('search');
    const rows = async (query: string): Promise<Record<string, unknown>[]> =>
      (await get(`/series?interval=1d&${query}`)).data.series;
    expect((await rows('filter=order.country:DE,IT')).at(-1)).toMatchObject({ count: 12 });
    // A value has a line of its own once it has got its id.
    await until(async () => (await rows('by=order.country')).length === 4, 'the values have ids');
    const byCountry = await rows('by=order.country&accumulated=true');
    expect(
      byCountry.map(({ value, other, count, accumulated }) => [value, other, count, accumulated]),
    ).toEqual([
      ['DE', undefined, 9, 9],
      ['FR', undefined, 3, 3],
      ['IT', undefined, 3, 3],
      [undefined, true, 0, 0],
    ]);
    expect((await get('/series?by=order.n')).status).toBe(400);
    // The chart has the busiest first; a value keeps the number of its first appearance.
    expect(await chart('by=order.country&compareFrom=2026-01-01&compareTo=2026-01-02')).toMatchObject({
      by: 'order.country',
      lines: [
        { key: '"DE"', name: 'DE', total: 9, number: 0 },
        { key: '"FR"', name: 'FR', total: 3, number: 1 },
        { key: '"IT"', name: 'IT', total: 3, number: 2 },
      ],
      other: null,
      before: { all: 0, byKey: { '"DE"': 0 } },
    });
    for (const refused of ['by=order.n', 'by=..', 'by=order.country&filter=order.n:1'])
      expect(await chart(refused)).toMatchObject({ by: null, lines: [{ name: 'order' }] });
    // Values and types of what passes a filter on the same field.
    expect(await chart('by=order.country&filter=order.country:DE,IT')).toMatchObject({
      by: 'order.country',
      isFiltered: true,
      lines: [
        { name: 'DE', total: 9 },
        { name: 'IT', total: 3 },
      ],
      other: null,
    });
    const passing = async (query: string): Promise<unknown[]> =>
      (await rows(query)).map(({ value, typeName, count }) => [value ?? typeName, count]);
    expect(await passing('by=order.country&filter=order.country:DE,IT')).toEqual([
      ['DE', 9],
      ['IT', 3],
      [undefined, 0],
    ]);
    expect(await passing('by=type&filter=order.country:DE,IT')).toEqual([['order', 12]]);
    expect(await passing('by=order.country&typeName=order')).toEqual(await passing('by=order.country'));
    expect(await get('/series?by=order.country&filter=order.n:1')).toMatchObject({
      status: 400,
      details: expect.stringMatching(/^by must be none, type or the field of filter/),
    });
    // Events of a hidden type are in none of what leaves them out.
    const noise = JSON.stringify({ loggingToken, typeName: 'noise', payload: { order: { country: 'DE' } } });
    expect(
      (await service.request({ method: 'POST', path: '/public/create_event', body: noise })).status,
    ).toBe(201);
    const types = (await owner.get(`/api/apps/${appId}/types`)).data.types as {
      typeId: string;
      name: string;
    }[]; // As declared.
    const hidden = types.find(({ name }) => name === 'noise')?.typeId;
    expect((await owner.patch(`/api/apps/${appId}/types/${hidden}`, { hidden: true })).status).toBe(200);
    expect((await get('/events?total=exact')).data.pagination.total).toBe(16);
    expect((await get('/events?total=exact&hidden=exclude')).data.pagination.total).toBe(15);
    expect((await get('/events?hidden=exclude&typeName=noise')).data.events).toHaveLength(1);
    for (const filter of ['filter=order.country:DE', 'q=DE']) {
      expect((await get(`/events?${filter}`)).data.events).toHaveLength(10);
      expect((await get(`/events?${filter}&hidden=exclude`)).data.events).toHaveLength(9);
    }
    expect((await get('/events?filter=order.country:DE&hidden=exclude&total=exact')).status).toBe(400);
    for (const [query, shown] of [
      ['', 15],
      ['filter=order.country:DE', 9],
      ['by=order.country', 15],
      ['by=order.country&filter=order.country:DE', 9],
    ] as const) {
      const counts = await chart(query);
      expect(
        (counts.all as number[]).reduce((sum, count) => sum + count, 0),
        query,
      ).toBe(shown);
      expect((counts.hidden as { counts: number[] }).counts.reduce((sum, count) => sum + count, 0)).toBe(1);
      expect((counts.lines as { total: number }[])[0]?.total).toBe(query === '' ? 15 : 9);
    }
    // Spelled as and filters spell it.
    await owner.post(`/api/apps/${appId}/declared-fields`, { path: '"with space".a', kind: 'value' });
    const { fields, most } = (await owner.get(`/api/apps/${appId}/declared-fields`)).data;
    expect({ fields, most }).toMatchObject({
      fields: [{ path: 'order.country' }, { path: '"with space".a', backfill: false }],
      most: 16,
    });
    const removed = await owner.post(`/api/apps/${appId}/declared-fields/remove`, {
      path: 'order.country',
      kind: 'value',
    });
    expect(removed.status).toBe(200);
    expect((await get('/events?filter=order.country:DE&total=exact')).status).toBe(400);
  });

  test('the numbers of a field have statistics, exact but for quantiles', async () => {
    const owner = await newPerson(service, 'numbers@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    const { resourceToken } = await createResourceToken(service.sql, {
      ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
    });
    const get = async (query: string) => {
      const headers = { Authorization: `Bearer ${resourceToken}` };
      const { status, body } = await service.request({ path: `/v1/apps/${appId}/series?${query}`, headers });
      return { status, ...JSON.parse(body) };
    };
    const log = async (...literals: string[]): Promise<void> => {
      for (const literal of literals) {
        const body = `{"loggingToken":"${loggingToken}","typeName":"call","payload":{"ms":${literal},"n":"x"}}`;
        const { status } = await service.request({ method: 'POST', path: '/public/create_event', body });
        expect(status).toBe(201);
      }
    };
    await log('0.1', '0.2', '"5"', 'null');
    for (const kind of ['number', 'value'])
      await owner.post(`/api/apps/${appId}/declared-fields`, {
        path: kind === 'number' ? 'ms' : 'n',
        kind,
        backfill: true,
      });
    const all = 'of=ms&interval=1M&stat=sum&stat=avg&stat=min&stat=max&stat=p50&stat=p99';
    await until(async () => (await get(all)).status === 200, 'the numbers are counted');
    await log('1e400', '[1,2]', '9007199254740993', '-3');
    const { series, overall, leftOut } = (await get(all)).data;
    const expected = {
      count: 4,
      sum: '9007199254740990.3',
      avg: Number('9007199254740990.3') / 4,
      min: -3,
      max: '9007199254740993',
    };
    expect(series.at(-1)).toMatchObject({ ...expected, partial: true });
    expect(overall).toMatchObject(expected);
    expect(leftOut).toEqual({ several: 1, unrepresentable: 1 });
    expect(Math.abs(overall.p50 - 0.1)).toBeLessThanOrEqual(0.001);
    expect(Object.keys(series[0])).not.toContain('p90');
    const empty = (await get('of=ms&stat=sum&stat=min&interval=1d&from=2020-01-01&to=2020-01-02')).data;
    expect(empty.series).toMatchObject([{ count: 0, sum: 0, min: null, partial: false }]);
    expect((await get('of=ms&stat=count&typeName=call&interval=1M')).data.overall).toEqual({ count: 4 });

    const chart = await owner.get(`/api/apps/${appId}/numbers?of=ms&buckets=10`);
    expect(chart.data).toMatchObject({
      of: 'ms',
      overall: { count: 4, min: -3, max: Number('9007199254740993'), sum: Number('9007199254740990.3') },
      leftOut: { several: 1, unrepresentable: 1 },
    });
    // Of the types that charts leave out the statistics have nothing, where none is chosen.
    const { types } = (await owner.get(`/api/apps/${appId}/types`)).data as { types: { typeId: string }[] };
    const [call] = types;
    await service.request({
      method: 'POST',
      path: '/public/create_event',
      body: JSON.stringify({ loggingToken, typeName: 'noise', payload: { ms: -1e6 } }),
    });
    const overallOf = async (query: string) =>
      (await owner.get(`/api/apps/${appId}/numbers?of=ms&buckets=10${query}`)).data.overall;
    const noise = (
      (await owner.get(`/api/apps/${appId}/types`)).data as { types: { typeId: string }[] }
    ).types.find(({ typeId }) => typeId !== call?.typeId);
    expect(await overallOf('&hidden=exclude')).toMatchObject({ count: 5, min: -1e6 });
    expect((await owner.patch(`/api/apps/${appId}/types/${noise?.typeId}`, { hidden: true })).status).toBe(
      200,
    );
    expect(await overallOf('&hidden=exclude')).toMatchObject({ count: 4, min: -3 });
    expect(await overallOf('')).toMatchObject({ count: 5, min: -1e6 });
    expect(await overallOf(`&hidden=exclude&typeId=${noise?.typeId}`)).toMatchObject({ count: 1, max: -1e6 });
    const { stats, starts } = chart.data as { stats: { count: number[] }; starts: number[] };
    expect(stats.count).toHaveLength(starts.length);
    for (const [query, details] of [
      ['of=n&stat=sum', /^of must be a declared field of the kind number/],
      ['of=x&stat=sum', /^of must be a declared field of the kind number/],
      ['of=a..b&stat=sum', /^of must be the path of a declared field: column 3/],
      ['of=ms', /^stat is missing/],
      ['stat=sum', /^stat needs of/],
      ['of=ms&stat=median', /^stat must be of count, sum, avg/],
      ['of=ms&stat=sum&filter=n:x', /^of cannot be combined with/],
      ['of=ms&stat=sum&by=type', /^of cannot be combined with/],
      ['of=ms&stat=sum&accumulated=true', /^of cannot be combined with/],
      ['of=ms&stat=sum&interval=1m&from=2020-01-01', /^interval must be wider/],
    ] as const)
      expect(await get(query), query).toMatchObject({ status: 400, details: expect.stringMatching(details) });
    expect((await owner.get(`/api/apps/${appId}/numbers?of=n`)).status).toBe(400);
    expect((await owner.get(`/api/apps/${appId}/numbers`)).status).toBe(400);
  });
});
