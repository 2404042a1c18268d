/** Filtered pages: exact, within their budget, and the same for tokens and sessions. */
import { beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import {
  readSearchPage,
  type SearchBudget,
  type SearchPageRequest,
} from '../../src/read/events/search-page.ts';
import { parseFilters, payloadFilter } from '../../src/read/filter/payload-filter.ts';
import type { RowFilter } from '../../src/storage/fields/row-filter.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import type { StoredEvent } from '../../src/storage/read/page-request.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { postForLines } from '../support/lines.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { sharedService, type TestService } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

const MINUTE_MS = 60_000;
const EVENTS = 500;
const PLENTY = 1_000_000;
/** Some that PostgreSQL's operators on json fail on. */
const PAYLOADS = [
  '{"status":200,"user":{"id":12345678901234567890}}',
  '{"status":404,"note":"\\u0000"}',
  '{"status":1e400,"status":500}',
  '{"st\\u0061tus":503,"note":"\\ud800"}',
  '{"status":"500"}',
];

let service: TestService;
let reader: EventReader;
let ids: { appId: number; typeId: number };
let stored: { id: string; at: number; payload: string }[];

beforeAll(async () => {
  service = await sharedService({ config: { READ_LIMIT_PER_MINUTE: 0 } });
  const { sql, database } = service;
  reader = (await openStorage(sql)).reader(sql);
  const [row] = await sql<{ appId: number; typeId: number }[]>`
    SELECT app_id AS "appId", id AS "typeId" FROM event_types WHERE public_id = ${service.type.typeId}`;
  if (row === undefined) throw new Error('no type');
  ids = row;
  const start = Math.floor(Date.now() / 86_400_000) * 86_400_000;
  stored = Array.from({ length: EVENTS }, (_, i) => {
    // Three of each minute at the same instant.
    const at = start + Math.floor(i / 3) * (MINUTE_MS / 200);
    const id = `${at
      .toString(16)
      .padStart(12, '0')
      .replace(/^(.{8})/, '$1-')}-7000-8000-${String(i).padStart(12, '0')}`;
    return { id, at, payload: PAYLOADS[i % PAYLOADS.length] ?? '' };
  });
  await storeRows(
    sql,
    database.engine,
    stored.map((event) => ({ ...event, ...ids })),
  );
});

function filterOf(...texts: string[]): RowFilter {
  const conditions = parseFilters(texts);
  const filter = typeof conditions === 'string' ? null : payloadFilter(conditions);
  if (filter === null) throw new Error('no filter');
  return filter;
}

interface Pages {
  readonly events: StoredEvent[];
  /** Of each page: rows that were looked at, and whether the budget has ended it. */
  readonly pages: { readonly looked: number; readonly isShort: boolean; readonly events: number }[];
}

async function allPages(
  filter: RowFilter,
  options: Partial<SearchPageRequest> & { budget?: SearchBudget; now?: () => number } = {},
): Promise<Pages> {
  const { budget = { rows: PLENTY, ms: PLENTY }, now = () => 0, ...request } = options;
  let looked = 0;
  const counting: EventReader = {
    ...reader,
    search: (...asked) => {
      const search = reader.search(...asked);
      return {
        ...search,
        step: async (most) => {
          const step = await search.step(most);
          looked += step.looked;
          return step;
        },
      };
    },
  };
  const all: Pages = { events: [], pages: [] };
  const scope = {
    appId: ids.appId,
    typeIds: null,
    from: null,
    until: null,
    order: 'asc',
    limit: 1_000,
    maxBytes: PLENTY,
  } as const;
  for (let after: SearchPageRequest['after'] = null; ; ) {
    looked = 0;
    const page = await readSearchPage(counting, { ...scope, ...request, after }, filter, {
      ...{ budget, now },
      pass: async () => true,
    });
    all.events.push(...page.events);
    all.pages.push({ looked, isShort: page.searchedUntil !== null, events: page.events.length });
    if (page.next === null) return all;
    after = page.next;
  }
}

const idsOf = (events: readonly { readonly id: string }[]): string[] => events.map(({ id }) => id);
const ofPayloads = (...indexes: number[]): string[] =>
  idsOf(stored.filter((_, i) => indexes.includes(i % PAYLOADS.length)));

test.each([
  [['status>=500'], [2, 3]],
  [['status:500'], [2, 4]],
  [['status:"500"'], [4]],
  [['-status:*'], []],
  [['user.id:12345678901234567890'], [0]],
  [['user.id>12345678901234567889', 'user.id<12345678901234567891'], [0]],
  [['note:"\\u0000","\\ud800"', 'status<500'], [1]],
])('%s finds the right events in either order', async (filters, indexes) => {
  const filter = filterOf(...filters);
  expect(idsOf((await allPages(filter)).events)).toEqual(ofPayloads(...indexes));
  const { events } = await allPages(filter, { order: 'desc' });
  expect(idsOf(events)).toEqual(ofPayloads(...indexes).reverse());
});

test('a page looks at no more events than its budget, says so, and the next one goes on', async () => {
  for (const order of ['asc', 'desc'] as const) {
    const { events, pages } = await allPages(filterOf('status:404'), {
      order,
      budget: { rows: 70, ms: PLENTY },
    });
    const expected = ofPayloads(1);
    expect(idsOf(events)).toEqual(order === 'asc' ? expected : expected.reverse());
    expect(pages.every(({ looked }) => looked <= 70)).toBe(true);
    expect(pages.slice(0, -1).every(({ isShort }) => isShort)).toBe(true);
    expect(pages.at(-1)?.isShort).toBe(false);
    expect(pages.length).toBeGreaterThanOrEqual(EVENTS / 70);
  }
});

test('a page that nobody waits for any more begins no further step', async () => {
  let steps = 0;
  const counting: EventReader = {
    ...reader,
    search: (request, filter) => {
      const search = reader.search(request, filter);
      return {
        ...search,
        // Ten rows at a time.
        step: async (most) => {
          steps += 1;
          return await search.step(Math.min(most, 10));
        },
      };
    },
  };
  const scope = {
    appId: ids.appId,
    typeIds: null,
    from: null,
    until: null,
    after: null,
    order: 'asc',
  } as const;
  const request = { ...scope, limit: 1_000, maxBytes: PLENTY };
  const asked = { budget: { rows: PLENTY, ms: PLENTY }, now: () => 0 };
  const page = await readSearchPage(counting, request, filterOf('status:404'), {
    ...asked,
    pass: async () => steps < 3,
  });
  expect([steps, page.next !== null]).toEqual([3, true]);
});

test('a page begins no step after its time', async () => {
  let time = 0;
  // The days before the first event are steps of their own.
  const from = (stored[0]?.at ?? 0) - 7 * 86_400_000;
  const { events, pages } = await allPages(filterOf('status:404'), {
    from,
    budget: { rows: PLENTY, ms: 10 },
    now: () => (time += 10),
  });
  expect(idsOf(events)).toEqual(ofPayloads(1));
  expect(pages.length).toBeGreaterThan(1);
  expect(pages.slice(0, -1).every(({ isShort }) => isShort)).toBe(true);
});

test('a page ends at its limit of events, and at its limit of bytes', async () => {
  const limited = await allPages(filterOf('status>=500'), { limit: 7 });
  expect(idsOf(limited.events)).toEqual(ofPayloads(2, 3));
  expect(limited.pages.slice(0, -1).every((page) => page.events === 7 && !page.isShort)).toBe(true);
  const small = await allPages(filterOf('status>=500'), { maxBytes: 100, order: 'desc' });
  expect(idsOf(small.events)).toEqual(ofPayloads(2, 3).reverse());
  expect(small.pages.slice(0, -1).every((page) => page.events <= 4)).toBe(true);
});

test('rows that take too long or too much memory together are read in smaller steps', async () => {
  const { sql, database } = service;
  const type = await service.newType(await service.newApp(), 'large');
  const [row] = await sql<{ appId: number; typeId: number }[]>`
    SELECT app_id AS "appId", id AS "typeId" FROM event_types WHERE public_id = ${type.typeId}`;
  const hex = randomHex(700_000);
  const large = stored.slice(0, 40).map((event, i) => ({
    ...event,
    appId: row?.appId ?? 0,
    typeId: row?.typeId ?? 0,
    // Half of them compress well, the others hardly.
    payload: `{"n":${i},"text":"${i % 2 === 0 ? 'x'.repeat(700_000) : hex}"}`,
  }));
  for (let at = 0; at < large.length; at += 10)
    await storeRows(sql, database.engine, large.slice(at, at + 10));
  const { events, pages } = await allPages(filterOf('n>=0'), {
    appId: row?.appId ?? 0,
    maxBytes: 100_000_000,
  });
  expect(idsOf(events)).toEqual(idsOf(large));
  expect(pages).toHaveLength(1);
});

function randomHex(length: number): string {
  let text = '';
  for (let state = 42; text.length < length; state = (state * 48_271) % 2_147_483_647)
    text += state.toString(36);
  return text.slice(0, length);
}

test('the largest filters are searched for too', async () => {
  const values = Array.from({ length: 100 }, (_, i) => `12345${String(i).padStart(3, '0')}`).join(',');
  const filters = Array.from({ length: 20 }, (_, i) => `-${'a.'.repeat(30)}x${i}:${values.slice(0, 900)}`);
  expect((await allPages(filterOf(...filters))).events).toHaveLength(EVENTS);
  expect((await allPages(filterOf(...filters.map((filter) => filter.slice(1))))).events).toEqual([]);
});

test('tokens and sessions get the same, and what is wrong is named with its column', async () => {
  const person = await newPerson(service, 'searcher@example.org');
  const app = await newOwnApp(person);
  for (const payload of ['{"a":1}', '{"a":2}', '{"b":"caf\\u00e9"}', '{"c":"it\'s C:\\\\x"}']) {
    const body = JSON.stringify({ loggingToken: app.loggingToken, typeName: 'x' }).slice(0, -1);
    await service.request({
      method: 'POST',
      path: '/public/create_event',
      body: `${body},"payload":${payload}}`,
    });
  }
  const { resourceToken } = await createResourceToken(service.sql, {
    name: 't',
    appIds: [app.appId],
    expiresInSeconds: null,
  });
  const read = async (query: string) => {
    const byToken = await service.request({
      path: `/v1/apps/${app.appId}/events?${query}`,
      headers: { Authorization: `Bearer ${resourceToken}` },
    });
    const bySession = await person.get(`/api/apps/${app.appId}/events?${query}`);
    expect(bySession.status).toBe(byToken.status);
    // Where a live feed goes on, which a token has none of.
    expect(bySession.text.replace(/,"feed":"[^"]+"/, '')).toBe(byToken.body);
    return JSON.parse(byToken.body);
  };
  const payloadsOf = async (query: string): Promise<unknown[]> =>
    (await read(query)).data.events.map(({ payload }: { payload: unknown }) => payload);
  expect(await payloadsOf('filter=a>=2')).toEqual([{ a: 2 }]);
  expect(await payloadsOf('filter=a:1,2&filter=-a:1')).toEqual([{ a: 2 }]);
  expect(await payloadsOf('q=caf%C3%A9')).toEqual([{ b: 'café' }]);
  for (const quoted of ["it's", 'C:\\x', 'C:\\\\x', "t's C:\\"])
    expect(await payloadsOf(`q=${encodeURIComponent(quoted)}`)).toEqual([{ c: "it's C:\\x" }]);
  expect(await payloadsOf(`filter=${encodeURIComponent('c:"it\'s C:\\\\x"')}`)).toEqual([
    { c: "it's C:\\x" },
  ]);
  expect(await payloadsOf('word=caf%C3%A9')).toEqual([{ b: 'café' }]);
  expect(await payloadsOf('word=ca')).toEqual([]);
  expect(await payloadsOf('word=s&q=it&filter=c:*')).toEqual([{ c: "it's C:\\x" }]);
  expect((await read('word=c')).data.pagination).toMatchObject({ filteredBy: 'search', searchedBy: 'scan' });
  const asked = async (body: object) => {
    const token = { Authorization: `Bearer ${resourceToken}` };
    const { text } = await postForLines(service, `/v1/apps/${app.appId}/query`, body, token);
    return JSON.parse(text.trim().split('\n').at(-1) ?? '');
  };
  expect(await asked({ word: 'café' })).toMatchObject({ complete: true, events: 1, searchedBy: 'scan' });
  expect(await asked({ word: 'a', filter: 'a:2' })).toMatchObject({ events: 1, looked: 4 });
  expect(await asked({ word: 'aa' })).toMatchObject({ complete: true, events: 0, counted: false });
  expect(await asked({})).not.toHaveProperty('searchedBy');
  const { data: part } = await person.get(`/api/apps/${app.appId}/scan?word=a`);
  expect(part).toMatchObject({ looked: 4, searchedBy: 'scan' });
  expect(part.lines).toMatchObject([{ name: 'x', counts: [2] }]);
  expect((await read('word=c&total=exact')).details).toContain('total must be none');
  expect((await read(`word=${'x'.repeat(1_001)}`)).details).toBe('word must have at most 1000 characters.');
  expect((await read('limit=1')).data.pagination).not.toHaveProperty('searchedBy');
  expect(await payloadsOf('filter=a:*&order=desc&limit=1')).toEqual([{ a: 2 }]);
  expect((await read('filter=a:*&limit=1')).data.pagination).toMatchObject({
    limit: 1,
    nextCursor: expect.any(String),
  });
  expect((await read('filter=a%3D5')).details).toBe(
    'filter is wrong at column 2: one of : < <= > >= must follow the name (equal is written status:500, the number alone status==500, and unequal -status:500).',
  );
  expect((await read('filter=a:1&total=exact')).details).toContain('total must be none');
  expect((await read(`q=${'x'.repeat(1_001)}`)).details).toBe('q must have at most 1000 characters.');
});
