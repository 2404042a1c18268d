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
    for (const refused of ['by=order.n', 'by=..', 'by=order.country&filter=order.country:DE'])
      expect(await chart(refused)).toMatchObject({ by: null, lines: [{ name: 'order' }] });
    // Spelled as the catalogue and filters spell it.
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
});
