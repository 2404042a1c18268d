/** Numbers on the screen against SQL, in the states that a view can have: what the address asks for is what the numbers are of. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { figure, visit } from './visitor.ts';

const [FROM, TO, BEFORE] = ['2026-10-20T00:00:00Z', '2026-10-27T00:00:00Z', '2026-10-13T00:00:00Z'];
const RANGE = `from=${FROM}&to=${TO}&tz=UTC`;
const COUNTRIES = ['DE', 'FR', 'IT', 'ES', 'AT', 'CH', 'PL'];
const PATHS = ['/', '/product', '/checkout'];
const TYPES = ['page viewed', 'order placed', 'payment failed'];
/** Of each type: more than a search looks at by itself in one part of the tests' budget. */
const EVENTS = 1_200;

describe.skipIf(withoutBrowser !== '')('the numbers of a view', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;
  let typeIds: string[];

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    const app = await newOwnApp(owner);
    ({ appId } = app);
    typeIds = [];
    const [start, length] = [Date.parse(BEFORE), Date.parse(TO) - Date.parse(BEFORE)];
    for (const [place, name] of TYPES.entries()) {
      const { typeId } = await createEventType(service.sql, { appId, name, maxTypes: 10 });
      typeIds.push(typeId);
      const events = Array.from({ length: EVENTS }, (_, index) => {
        const n = index * 3 + place;
        const payload = {
          country: COUNTRIES[(n * n) % 7],
          plan: n % 5 === 0 ? 'pro' : 'free',
          path: PATHS[n % 3],
          orderId: n,
          latency: ((n * 7_919) % 1_000) / 10 + (PATHS[n % 3] === '/checkout' ? 300 : 0),
          ...(n % 4 === 0 && { note: 'order “late”' }),
        };
        const at = new Date(start + Math.floor((index * length) / EVENTS) + place).toISOString();
        return { at, payload: JSON.stringify(payload) };
      });
      await addPastEvents(service, typeId, events);
    }
    watched = await visit(browser, service, owner);
    page = watched.page;
  });
  beforeEach(() => {
    watched.complaints.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (query: string): Promise<void> => {
    await page.goto(`/apps/${appId}?${RANGE}&${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
  };
  /** @param condition SQL on `payload` and `type`; a constant of this file */
  const stored = async (condition: string, from = FROM, to = TO): Promise<number> => {
    const [row] = await service.sql.unsafe<{ count: number }[]>(
      `SELECT count(*)::integer AS count FROM events JOIN event_types AS type ON type.id = type_id
        WHERE events.created_at >= $1::timestamptz AND events.created_at < $2::timestamptz AND (${condition})`,
      [from, to],
    );
    return row?.count ?? 0;
  };
  const groups = async (expression: string, condition = 'true'): Promise<Record<string, number>> => {
    const rows = await service.sql.unsafe<{ name: string; count: number }[]>(
      `SELECT ${expression} AS name, count(*)::integer AS count FROM events JOIN event_types AS type ON type.id = type_id
        WHERE events.created_at >= $1::timestamptz AND events.created_at < $2::timestamptz AND (${condition})
        GROUP BY 1 ORDER BY 2 DESC, 1`,
      [FROM, TO],
    );
    return Object.fromEntries(rows.map(({ name, count }) => [name, count]));
  };
  const amount = (): Promise<string> => page.locator('.list-head p').innerText();
  const legend = async (): Promise<Record<string, number>> => {
    const lines = await page.locator('.legend .line').all();
    const read = await Promise.all(
      lines.map(
        async (line) =>
          [await line.locator('.name').innerText(), await line.locator('.value').innerText()] as const,
      ),
    );
    return Object.fromEntries(read.map(([name, value]) => [name, Number(value.replaceAll(',', ''))]));
  };
  const summed = async (): Promise<number> => {
    const cells = await page
      .locator('.chart-table tbody tr')
      .evaluateAll((rows) =>
        rows.map((row) => Number((row.querySelector('b')?.textContent ?? '0').replaceAll(',', ''))),
      );
    return cells.reduce((sum, cell) => sum + cell, 0);
  };

  const STATES: readonly (readonly [state: string, query: string, condition: string])[] = [
    ['no condition', '', 'true'],
    ['a filter on a field that is not counted', 'filter=country:DE', `payload->>'country' = 'DE'`],
    [
      'two conditions',
      'filter=country:DE&filter=plan:free',
      `payload->>'country' = 'DE' AND payload->>'plan' = 'free'`,
    ],
    ['a condition that is not met', 'filter=-country:DE', `payload->>'country' <> 'DE'`],
    ['numbers above a limit', 'filter=latency>=300', `(payload->>'latency')::numeric >= 300`],
    ['a text', 'q=order', `payload::text LIKE '%order%'`],
    [
      'a text and a filter',
      'q=late&filter=plan:pro',
      `payload::text LIKE '%late%' AND payload->>'plan' = 'pro'`,
    ],
  ];
  test.each(STATES)(
    'with %s are those of SQL: headline, list, legend, bars and comparison',
    async (_, query, condition) => {
      await open(`${query}&table=1`);
      const count = await stored(condition);
      await expect.poll(() => figure(page, 'In this range')).toBe(count);
      await expect.poll(amount).toBe(`${count.toLocaleString('en-GB')} events`);
      expect(await legend()).toEqual(await groups('type.name', condition));
      expect(await summed()).toBe(count);
      const earlier = await stored(condition, BEFORE, FROM);
      await expect
        .poll(() => page.locator('.main-figure small').getAttribute('title'))
        .toBe(`${earlier.toLocaleString('en-GB')} before`);
      // No number stands there that is of other events.
      expect(await page.getByText(/so far|before the filter|Search the whole range/).count()).toBe(0);
      expect(watched.complaints).toEqual([]);
    },
  );

  test('with chosen types and two conditions are those of SQL', async () => {
    await open(`type=${typeIds[0]}&type=${typeIds[2]}&filter=country:DE&filter=plan:free`);
    const condition = `type.name IN ('page viewed', 'payment failed') AND payload->>'country' = 'DE' AND payload->>'plan' = 'free'`;
    await expect.poll(() => figure(page, 'In this range')).toBe(await stored(condition));
    expect(await legend()).toEqual(await groups('type.name', condition));
  });

  test('by a field, whatever the filter, are those of SQL, with all others in one line', async () => {
    for (const [query, condition] of [
      ['', 'true'],
      ['&filter=plan:free&filter=path:/', `payload->>'plan' = 'free' AND payload->>'path' = '/'`],
    ] as const) {
      await open(`by=country${query}`);
      const all = Object.entries(await groups(`payload->>'country'`, condition));
      await expect.poll(() => page.getByLabel('Break down by').inputValue()).toBe('country');
      const shown = await legend();
      const named = Object.entries(shown).filter(([name]) => name !== 'All other events');
      const counts = new Map(all);
      for (const [name, count] of named) expect(count, name).toBe(counts.get(name));
      const total = await stored(condition);
      expect(Object.values(shown).reduce((sum, count) => sum + count, 0)).toBe(total);
      expect(await figure(page, 'In this range')).toBe(total);
    }
  });

  test('by a field that nobody sends, or whose values are single events, are those of types, and it is said', async () => {
    await open('by=nope');
    await page.getByText('Not broken down by nope: no event of this range has this field').waitFor();
    expect(await legend()).toEqual(await groups('type.name'));
    await open('by=orderId&filter=plan:free');
    await expect.poll(() => figure(page, 'In this range')).toBe(await stored(`payload->>'plan' = 'free'`));
  });

  test('of a hidden type are left out until they are asked for, also of a search', async () => {
    await owner.patch(`/api/apps/${appId}/types/${typeIds[2]}`, { hidden: true });
    const condition = `payload->>'country' = 'DE' AND payload->>'plan' = 'free'`;
    try {
      await open('filter=country:DE&filter=plan:free');
      const without = await stored(`${condition} AND type.name <> 'payment failed'`);
      await expect.poll(() => figure(page, 'In this range')).toBe(without);
      await expect.poll(amount).toBe(`${without} events`);
      expect((await legend())['payment failed (hidden)']).toBe(
        await stored(`${condition} AND type.name = 'payment failed'`),
      );
      await page.getByRole('button', { name: 'Show hidden types' }).click();
      await expect.poll(() => figure(page, 'In this range')).toBe(await stored(condition));
      await expect.poll(amount).toBe(`${await stored(condition)} events`);
    } finally {
      await owner.patch(`/api/apps/${appId}/types/${typeIds[2]}`, { hidden: false });
    }
  });

  /** The number at ⌊0.95 (n − 1)⌋ in order. */
  const percentile = async (condition: string): Promise<number> => {
    const [row] = await service.sql.unsafe<{ value: number }[]>(
      `SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY (payload->>'latency')::float8) AS value
         FROM events WHERE created_at >= $1::timestamptz AND created_at < $2::timestamptz AND (${condition})`,
      [FROM, TO],
    );
    return row?.value ?? Number.NaN;
  };
  test('that are a statistic are of the events that meet the filter, declared or not', async () => {
    const shown = (): Promise<number> => figure(page, 'of latency');
    for (const [query, condition] of [
      ['', 'true'],
      ['&filter=path:/checkout', `payload->>'path' = '/checkout'`],
      ['&filter=path:/&filter=plan:pro', `payload->>'path' = '/' AND payload->>'plan' = 'pro'`],
      ['&q=late', `payload::text LIKE '%late%'`],
    ] as const) {
      await open(`of=latency&stat=p95${query}`);
      const exact = await percentile(condition);
      await expect.poll(shown, { message: query }).toBeGreaterThan(0.98 * exact);
      expect(await shown(), query).toBeLessThan(1.02 * exact);
      const events = await stored(condition);
      await expect.poll(amount).toBe(`${events.toLocaleString('en-GB')} events`);
      await open(`of=latency&stat=sum${query}`);
      const [row] = await service.sql.unsafe<{ sum: number }[]>(
        `SELECT round(sum((payload->>'latency')::numeric))::float8 AS sum
           FROM events WHERE created_at >= $1::timestamptz AND created_at < $2::timestamptz AND (${condition})`,
        [FROM, TO],
      );
      await expect.poll(shown, { message: query }).toBe(row?.sum);
    }
    await open('of=latency&stat=p95&by=path');
    await page.getByText(/Read from [\d,]+ events? in [\d.]+ s/).waitFor();
    for (const line of await page.locator('.legend .line').all()) {
      const path = await line.locator('.name').innerText();
      const own = Number((await line.locator('.value').innerText()).replaceAll(',', ''));
      const exact = await percentile(`payload->>'path' = '${path}'`);
      expect(Math.abs(own / exact - 1), path).toBeLessThan(0.02);
    }
    await open('of=nope&stat=p95');
    await page.getByText('nope is not shown: no event of this range has a number in nope.').waitFor();
  });
});
