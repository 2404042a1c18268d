/** Declared fields over HTTP: what is declared while events arrive has exact totals, pages and series. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { MINUTE_MS } from '../../src/storage/counts/levels.ts';
import { availableEngines } from '../support/database.ts';
import { DESCRIPTION } from '../support/described.ts';
import { heldLock } from '../support/held-lock.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { hurryRounds, startTestService, type TestService, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';
import { upkeepOf } from '../support/upkeep.ts';

/** More minutes than one read may look at. */
const TOO_MANY = 5_100;
const COUNTRIES = ['DE', 'FR', 'DE', 'IT', 'DE'];

hurryRounds();
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

  test('a declaration says of what its numbers are, is declared again to change it, and refuses what is no unit', async () => {
    const owner = await newPerson(service, 'units@example.com');
    const { appId, path } = await newOwnApp(owner);
    const declare = async (more: object, kind = 'number') => {
      const answer = await owner.post(`${path}/declared-fields`, { path: 'total', kind, ...more });
      const { unit, decimals } = answer.data;
      return answer.status === 201 ? { unit, decimals } : `${answer.status} ${answer.text}`;
    };
    expect(await declare({ unit: '€', decimals: 2 })).toEqual({ unit: '€', decimals: 2 });
    expect(await declare({})).toContain('FIELD_EXISTS');
    expect(await declare({ unit: 'ms' })).toEqual({ unit: 'ms', decimals: 2 });
    expect(await declare({ unit: null, decimals: null })).toEqual({ unit: null, decimals: null });
    for (const unit of ['', ' ', ' €', 'thirteen chars', 'a\nb', '\u202e'])
      expect(await declare({ unit }), unit).toContain('must be 1 to 12 visible characters');
    for (const decimals of [-1, 7, 0.5]) expect(await declare({ decimals })).toContain('from 0 to 6');
    expect(await declare({ unit: '€' }, 'value')).toContain('of fields of the kind number alone');
    await declare({ unit: '€' });
    expect((await owner.get(`${path}/declared-fields`)).data.fields).toMatchObject([{ unit: '€' }]);
    const { rows } = {
      rows: await service.sql`SELECT details FROM audit_entries WHERE action = 'field.unit'`,
    };
    expect(rows.map(({ details }) => details.unit)).toEqual(['ms', null, '€']);
    expect(appId).toMatch(/^app_/);
  });

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
      details: expect.stringMatching(
        /^order\.country is not declared for counts by its values by order\.n\. An owner declares it .*: tidemark field add --app app_\w+ --path order\.country --by order\.n --backfill$/,
      ),
      ...{ param: 'by', declare: '--path order.country --by order.n' },
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
      most: 32,
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
    const all = 'of=ms&interval=1M&stat=sum&stat=avg&stat=min&stat=max&stat=stddev&stat=p50&stat=p99';
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
    const [deviation] = await service.sql<{ stddev: number }[]>`
      SELECT stddev(v)::float8 AS stddev FROM unnest(ARRAY[0.1, 0.2, 9007199254740993, -3]::numeric[]) AS v`;
    expect(overall.stddev).toBe(deviation?.stddev);
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
    const { stats, starts } = chart.data as { stats: { avg: number[] }; starts: number[] };
    expect(stats.avg).toHaveLength(starts.length);
    const old = await service.request({
      method: 'POST',
      path: '/v1/events',
      body: '[{"typeName":"old","payload":{},"createdAt":"2025-01-31T08:30:00Z"}]',
      headers: { Authorization: `Bearer ${loggingToken}` },
    });
    expect(old.status).toBe(200);
    for (const declared of [{ path: 'late' }, { path: 'own', typeName: 'call' }])
      await owner.post(`/api/apps/${appId}/declared-fields`, {
        ...declared,
        kind: 'number',
        backfill: false,
      });
    await until(
      async () => (await get('of=late&stat=sum')).details?.includes('is counted from') === true,
      'the field is counted from now on',
    );
    for (const [query, details] of [
      [
        'of=n&stat=sum',
        /^n is not declared for the statistics of its numbers, but for counts by its values\. .*: tidemark field add --app app_\w+ --path n --kind number --backfill$/,
      ],
      [
        'of=x&stat=sum',
        /^x is not declared for the statistics of its numbers\. An owner declares it .*: tidemark field add --app app_\w+ --path x --kind number --backfill$/,
      ],
      ['by=x', /^x is not declared for counts by its values\. .* --path x --kind value --backfill$/],
      ['filter=x:1', /^x is not declared for counts by its values/],
      [
        'of=late&stat=sum',
        /^late is counted from 20\d\d-.*Z on, and the interval begins with the first event: begin later with from, or .*: tidemark field add --app app_\w+ --path late --kind number --backfill$/,
      ],
      ['of=late&stat=sum&from=2020-01-01', /and the interval begins at 2020-01-01T00:00:00.000Z/],
      [
        'of=own&stat=sum',
        /^own is declared for events of the type "call" alone: name that type with typeName\.$/,
      ],
      ['filter=n:x&filter=ms:1', /^The counts of the field do not answer this: filter must be one condition/],
      ['of=a..b&stat=sum', /^of must be the path of a declared field: column 3/],
      ['of=ms', /^stat is missing/],
      ['stat=sum', /^stat needs of/],
      ['of=ms&stat=median', /^stat must be one of count, sum, avg/],
      [
        'of=ms&stat=sum&filter=n:x',
        /^ms is not declared for the statistics of its numbers by n\. An owner declares it .*: tidemark field add --app app_\w+ --path ms --kind number --by n --backfill$/,
      ],
      ['of=ms&stat=sum&by=type', /^of cannot be combined with/],
      ['of=ms&stat=sum&accumulated=true', /^of cannot be combined with/],
      ['of=ms&stat=sum&interval=1m&from=2020-01-01', /^interval must be \w+ or wider/],
    ] as const)
      expect(await get(query), query).toMatchObject({ status: 400, details: expect.stringMatching(details) });
    expect((await owner.get(`/api/apps/${appId}/numbers?of=n`)).status).toBe(400);
    expect((await owner.get(`/api/apps/${appId}/numbers`)).status).toBe(400);
  });

  test('a histogram counts the numbers of a field by bin and bucket, with the edges of the bins', async () => {
    const owner = await newPerson(service, 'histogram@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    const { resourceToken } = await createResourceToken(service.sql, {
      ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
    });
    const get = async (query: string) => {
      const headers = { Authorization: `Bearer ${resourceToken}` };
      const { status, body } = await service.request({ path: `/v1/apps/${appId}/series?${query}`, headers });
      return { status, ...JSON.parse(body) };
    };
    const literals = ['-1e29', '-250', '-0.5', '0', '-0.0', '1e-60', '0.5', '1', '1.01', '250', '1e29'];
    const events = literals.flatMap((literal, index) =>
      Array.from({ length: 1 + (index % 3) }, (_, copy) => ({
        country: copy === 0 ? 'DE' : 'FR',
        day: `2026-01-0${1 + ((index + copy) % 4)}`,
        literal,
      })),
    );
    const body = events.map(
      ({ country, day, literal }) =>
        `{"typeName":"call","payload":{"ms":${literal},"country":"${country}"},"createdAt":"${day}T10:30:00Z"}`,
    );
    const sent = await service.request({
      ...{ method: 'POST', path: '/v1/events', body: `[${body}]` },
      headers: { Authorization: `Bearer ${loggingToken}` },
    });
    expect(sent.status).toBe(200);
    for (const by of [undefined, 'country'])
      await owner.post(`/api/apps/${appId}/declared-fields`, {
        ...{ path: 'ms', kind: 'number', backfill: true },
        ...(by && { by }),
      });
    const days = 'of=ms&interval=1d&from=2026-01-01&to=2026-01-06&stat=histogram';
    for (const query of [days, `${days}&by=country`])
      await until(async () => (await get(query)).status === 200, 'the numbers are counted');

    type Bin = { readonly from: number; readonly to: number };
    const expected = (bins: readonly Bin[], some: readonly { readonly literal: string }[]): number[] =>
      bins.map(
        ({ from, to }) =>
          some
            .map(({ literal }) => Number(literal))
            .filter((number) =>
              from === to
                ? number === 0
                : from < 0
                  ? from <= number && number < to
                  : from < number && number <= to,
            ).length,
      );
    const { series, bins, overall } = (await get(`${days}&stat=max&bins=200`)).data;
    expect(bins.length).toBeGreaterThan(50);
    expect(bins.length).toBeLessThanOrEqual(200);
    expect(series).toHaveLength(5);
    for (const { start, count, histogram } of series) {
      const own = events.filter(({ day }) => start.startsWith(day));
      expect(histogram).toEqual(expected(bins, own));
      expect(count).toBe(own.length);
    }
    expect(overall).toMatchObject({ count: events.length, histogram: expected(bins, events), max: 1e29 });
    // Edges of wide bins are edges of narrow ones.
    const few = (await get(`${days}&bins=5`)).data.bins as Bin[];
    expect(few).toHaveLength(5);
    expect((await get(days)).data.bins.length).toBeLessThanOrEqual(40);
    const ones = (await get('of=ms&stat=histogram&interval=1d&from=2026-01-04&to=2026-01-05')).data;
    expect(
      expected(
        ones.bins,
        events.filter(({ day }) => day === '2026-01-04'),
      ),
    ).toEqual(ones.overall.histogram);

    const lines = (await get(`${days}&by=country`)).data;
    for (const { value, histogram } of lines.overall) {
      const own = events.filter(({ country }) => country === value);
      expect(histogram).toEqual(expected(lines.bins, own));
    }
    const german = (await get(`${days}&filter=country:DE`)).data;
    expect(german.overall.histogram).toEqual(
      expected(
        german.bins,
        events.filter(({ country }) => country === 'DE'),
      ),
    );
    const empty = (await get('of=ms&stat=histogram&interval=1d&from=2020-01-01&to=2020-01-02')).data;
    expect(empty).toMatchObject({ bins: [], series: [{ count: 0, histogram: [] }] });
    expect((await get(`${days.replace('histogram', 'sum')}`)).data.bins).toBeUndefined();
    for (const [query, details] of [
      ['of=ms&stat=sum&bins=10', 'bins needs stat=histogram.'],
      ['of=ms&stat=histogram&bins=4', /^bins must be a whole number of at least 5/],
      ['stat=histogram', 'stat needs of.'],
      ['of=ms&stat=histogram&stat=distinct', /^stat must be distinct alone/],
      ['of=country&stat=histogram', /^country is not declared for the statistics of its numbers/],
      ['of=ms&stat=histogram&filter=ms:1&filter=country:DE', /^The counts of the field do not answer this/],
      ['of=ms&stat=histogram&by=type', /^of cannot be combined with/],
    ] as const)
      expect(await get(query), query).toMatchObject({
        ...{ status: 400, details: typeof details === 'string' ? details : expect.stringMatching(details) },
      });
    // Charts ask for the same, of events that are not counted too.
    for (const filter of ['', '&filter=country:DE&filter=ms>0']) {
      const chart = await owner.get(
        `/api/apps/${appId}/numbers?of=ms&stat=histogram&width=1d&from=2026-01-01&to=2026-01-06${filter}`,
      );
      const some =
        filter === ''
          ? events
          : events.filter(({ country, literal }) => country === 'DE' && Number(literal) > 0);
      const {
        histogram,
        overall: whole,
        counted,
      } = chart.data as {
        histogram: { bins: Bin[]; counts: number[][] };
        overall: { count: number; p50: number };
        counted: boolean;
      };
      expect(counted).toBe(filter === '');
      expect(whole.count).toBe(some.length);
      expect(histogram.counts.map((own) => own.reduce((sum, count) => sum + count, 0))).toEqual(
        [1, 2, 3, 4, 5].map((day) => some.filter((one) => one.day.endsWith(`0${day}`)).length),
      );
      expect(
        histogram.bins.map((_, bin) => histogram.counts.reduce((sum, own) => sum + (own[bin] ?? 0), 0)),
      ).toEqual(expected(histogram.bins, some));
    }
  });

  test('a field that is not counted yet is answered with 503, on every route that needs its counts', async () => {
    const owner = await newPerson(service, 'notyet@example.com');
    const { appId, loggingToken, path } = await newOwnApp(owner);
    const { resourceToken } = await createResourceToken(service.sql, {
      ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
    });
    const series = async (query: string) => {
      const { status, headers, body } = await service.request({
        path: `/v1/apps/${appId}/series?${query}`,
        headers: { Authorization: `Bearer ${resourceToken}` },
      });
      return { status, headers, code: JSON.parse(body).code, data: JSON.parse(body) };
    };
    await service.request({
      ...{ method: 'POST', path: '/public/create_event' },
      body: `{"loggingToken":"${loggingToken}","typeName":"call","payload":{"ms":1,"country":"DE"}}`,
    });
    // Maintenance cannot count meanwhile.
    const lock = await heldLock(service.sql, 'field_folds', 'SHARE');
    try {
      for (const [field, kind] of [
        ['ms', 'number'],
        ['country', 'value'],
      ] as const)
        await owner.post(`${path}/declared-fields`, { path: field, kind, backfill: true });
      const rule = '{"of":"count","filter":["country:DE"],"window":"1h","above":1}';
      for (const reply of [
        await series('of=ms&stat=sum'),
        await series('by=country'),
        await series('filter=country:DE'),
        await owner.get(`${path}/alerts/trial?rule=${encodeURIComponent(rule)}`),
      ])
        expect(reply).toMatchObject({
          ...{ status: 503, code: 'UNAVAILABLE', headers: { 'retry-after': '5' } },
          data: {
            details: expect.stringMatching(
              /^((ms|country) is (declared|counted)|Events of the last 30 days are being counted).* try again shortly/,
            ),
          },
        });
    } finally {
      await lock.release();
    }
    await until(
      async () => (await series('of=ms&stat=sum')).status === 200,
      'it is answered when it is counted',
    );
  });

  test('values are told under any filter: exactly where they are counted, else of a sample', async () => {
    const owner = await newPerson(service, 'values@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    const { resourceToken } = await createResourceToken(service.sql, {
      ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
    });
    const get = async (query: string) => {
      const headers = { Authorization: `Bearer ${resourceToken}` };
      const path = `/v1/apps/${appId}/fields/values?${query}`;
      const { status, body } = await service.request({ path, headers });
      return { status, ...JSON.parse(body) };
    };
    const log = async (typeName: string, ...payloads: string[]): Promise<void> => {
      for (const payload of payloads) {
        const body = `{"loggingToken":"${loggingToken}","typeName":"${typeName}","payload":${payload}}`;
        const { status } = await service.request({ method: 'POST', path: '/public/create_event', body });
        expect(status).toBe(201);
      }
    };
    const told = async (query: string) => {
      const { data, ...refused } = await get(query);
      expect(refused).toMatchObject({ status: 200 });
      const values = data.values.map(({ value, events }: { value: unknown; events: number }) => [
        value,
        events,
      ]);
      return { values, other: data.otherEvents, exact: data.exact, sampled: data.sample?.events };
    };
    const orders = [
      ...[
        '{"country":"DE","status":200}',
        '{"country":"D\\u0045","status":404}',
        '{"country":"FR","status":200}',
      ],
      ...['{"country":"IT","status":200}', '{"country":["DE","FR"],"status":2e2}', '{"status":"200"}'],
      ...[12345678901234567890n, 1.5, true, null].map((country) => `{"country":${country},"status":9}`),
    ];
    const visit = '{"country":"DE","status":200}';
    let times = 1;
    await log('order', ...orders);
    await log('visit', visit);
    const byStatus = () => ({
      values: [
        ['DE', 2 * times],
        ['FR', times],
        ['IT', times],
      ],
      ...{ other: 2 * times, exact: true, sampled: 6 * times },
    });
    const sorted = (answer: Awaited<ReturnType<typeof told>>) => {
      return {
        ...answer,
        values: answer.values.toSorted((a: [string], b: [string]) => `${a}`.localeCompare(`${b}`)),
      };
    };
    // A search that has come to the end of the scope has counted all.
    expect(sorted(await told('path=country&filter=status:200'))).toEqual(byStatus());
    expect(await told('path=country')).toMatchObject({ exact: true, sampled: 11, other: 2 });
    expect(await told('path=country&limit=1')).toMatchObject({ values: [['DE', 3]], other: 8 });
    const declared = await owner.post(`/api/apps/${appId}/declared-fields`, {
      ...{ path: 'country', kind: 'value', backfill: true },
    });
    expect(declared.status).toBe(201);
    // Values get their ids from writers that know the field, within a second; in between, the newest events tell them.
    await until(async () => {
      await log('order', ...orders);
      await log('visit', visit);
      times += 1;
      const { values, sampled } = await told('path=country');
      return sampled === undefined && values.length === 7;
    }, 'the values have ids');
    expect(await told('path=country&limit=1')).toEqual({
      values: [['DE', 3 * times]],
      other: 8 * times,
      exact: true,
    });
    expect((await told('path=country')).values).toEqual(
      expect.arrayContaining([
        ['12345678901234567890', times],
        [1.5, times],
        [true, times],
        [null, times],
      ]),
    );
    expect(await told('path=country&typeName=visit')).toEqual({
      values: [['DE', times]],
      other: 0,
      exact: true,
    });
    // An array with several values passes, and is counted as none of them.
    expect(await told('path=country&filter=country:FR,IT')).toMatchObject({ other: times, exact: true });
    // Under a filter on another field, counted or not, there is a sample; it may be all there is.
    expect(sorted(await told('path=country&filter=status:200'))).toEqual(byStatus());
    expect(await told('path=status&filter=country:DE')).toEqual({
      values: [
        [200, 3 * times],
        [404, times],
      ],
      ...{ other: 0, exact: true, sampled: 4 * times },
    });
    expect(await told('path=country&q=404')).toEqual({
      values: [['DE', times]],
      other: 0,
      exact: true,
      sampled: times,
    });
    expect(await told('path=country&filter=status:200&typeName=visit')).toMatchObject({
      values: [['DE', times]],
      sampled: times,
    });
    expect((await owner.get(`/api/apps/${appId}/fields/values?path=country&limit=1`)).data).toMatchObject({
      values: [{ value: 'DE', events: 3 * times }],
    });
    for (const [query, details] of [
      ['', /^path is missing/],
      ['path=a..b', /^path must be the path of a field: column 3/],
      ['path=a&limit=0', /^limit must be/],
      ['path=a&filter=b', /^filter is wrong/],
    ] as const)
      expect(await get(query), query).toMatchObject({ status: 400, details: expect.stringMatching(details) });
  });

  test('what only counts know, and they do not have yet, is answered 503 until maintenance has counted it', async () => {
    const owner = await newPerson(service, 'late@example.com');
    const { appId } = await newOwnApp(owner);
    const { resourceToken } = await createResourceToken(service.sql, {
      ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
    });
    const ask = (path: string) => {
      const headers = { Authorization: `Bearer ${resourceToken}` };
      return service.request({ path: `/v1/apps/${appId}${path}`, headers });
    };
    for (const [path, kind] of [
      ['status', 'value'],
      ['total', 'number'],
    ]) {
      const { status, data } = await owner.post(`/api/apps/${appId}/declared-fields`, {
        ...{ path, kind, backfill: true },
      });
      // An app without events has no past to count.
      const complete = { path, backfill: false, completeFrom: '1970-01-01T00:00:00.000Z' };
      expect({ status, ...data }).toMatchObject({ status: 201, ...complete });
    }
    const questions = [
      '/events?filter=status:200&total=exact',
      '/series?filter=status:200',
      '/series?by=status',
      '/series?of=total&stat=sum',
    ];
    for (const question of questions)
      await until(async () => (await ask(question)).status === 200, 'the fields are counted');
    // Maintenance cannot count meanwhile.
    const lock = await heldLock(service.sql, 'field_folds', 'SHARE');
    try {
      const [type] = await service.sql<{ id: number; appId: number }[]>`
        INSERT INTO event_types (public_id, app_id, name)
        SELECT 'typ_late', id, 'late' FROM apps WHERE public_id = ${appId} RETURNING id, app_id AS "appId"`;
      if (type === undefined) throw new Error('the type was not made');
      const now = Date.now();
      await upkeepOf(engine).prepare(service.sql, now - TOO_MANY * MINUTE_MS, now);
      const newId = createEventIds();
      const rows = Array.from({ length: TOO_MANY }, (_, n) => {
        const at = now - (n + 1) * MINUTE_MS;
        return { id: newId(at), appId: type.appId, typeId: type.id, at, payload: '{"status":200,"total":2}' };
      });
      await storeRows(service.sql, service.database.engine, rows);
      for (const question of questions) {
        const { status, headers, body } = await ask(question);
        expect({ status, ...JSON.parse(body) }, question).toMatchObject({
          ...{ status: 503, success: false, code: 'UNAVAILABLE' },
          details: expect.stringMatching(/not counted by the values of the field yet; try again shortly/),
        });
        expect(headers['retry-after']).toBe('5');
        const template = `/v1/apps/{appId}${question.split('?')[0]}`;
        const operation = DESCRIPTION.paths[template]?.get;
        expect(operation).toMatchObject({
          description: expect.stringMatching(/refused with 503 `UNAVAILABLE` and `Retry-After`/),
          responses: { 503: { headers: { 'Retry-After': { $ref: '#/components/headers/Retry-After' } } } },
        });
      }
      // What a search answers as well, it does.
      const { data } = JSON.parse((await ask('/events?filter=status:200&limit=3')).body);
      expect(data).toMatchObject({ pagination: { filteredBy: 'search' } });
      expect(data.events).toHaveLength(3);
      const values = JSON.parse((await ask('/fields/values?path=status')).body).data;
      expect(values).toMatchObject({ values: [{ value: 200, events: 1_000 }], exact: false });
    } finally {
      await lock.release();
    }
  });
});
