/** The second question of an analyst: unique values, sums and percentiles by another field, pairs and two segments, against SQL. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { visit } from './visitor.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const HOURS = 40;
const PER_HOUR = 24;
const COUNTRIES = ['DE', 'FR', 'US', 'NL'];
const PLANS = ['free', 'pro', 'team'];
const PATHS = ['/checkout', '/search', '/home'];
const SOON = { timeout: patient(20_000) };
const DECLARED = [
  { path: 'country', kind: 'value' },
  { path: 'country', kind: 'value', by: 'plan' },
  { path: 'latency', kind: 'number' },
  { path: 'latency', kind: 'number', by: 'path' },
  { path: 'amount', kind: 'number', by: 'country' },
  { path: 'user', kind: 'distinct', by: 'country' },
  { path: 'user', kind: 'distinct', by: 'plan' },
];

describe.skipIf(withoutBrowser !== '')('an app whose fields are counted together', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;
  /** The last 20 hours, and the 20 before them. */
  let [from, middle, to] = ['', '', ''];

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    ({ appId } = await newOwnApp(owner));
    for (const field of DECLARED) await declare(field);
    const end = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
    [from, middle, to] = [HOURS, HOURS / 2, 0].map((hours) =>
      new Date(end - hours * HOUR_MS).toISOString(),
    ) as [string, string, string];
    const visits = await createEventType(service.sql, { appId, name: 'request', maxTypes: 10 });
    const orders = await createEventType(service.sql, { appId, name: 'order', maxTypes: 10 });
    const made = Array.from({ length: HOURS * PER_HOUR }, (_, n) => {
      const at = new Date(end - HOURS * HOUR_MS + n * 2.5 * MINUTE_MS + 1_000).toISOString();
      // Unequal shares, and more of DE in the second half.
      const country = n > (HOURS * PER_HOUR) / 2 && n % 3 === 0 ? 'DE' : COUNTRIES[(n % 13) % 4];
      const plan = PLANS[(n * 5 + Math.floor(n / 11)) % 3];
      const path = PATHS[(n * 7 + Math.floor(n / 5)) % 3];
      const payload = {
        country,
        plan,
        path,
        user: `u${(n * 37) % 211}`,
        latency: ((n * 7919) % 977) + (path === '/checkout' ? 500 : 3),
        amount: ((n * 31) % 400) / 4,
      };
      return { n, at, payload: JSON.stringify(payload) };
    });
    await addPastEvents(
      service,
      visits.typeId,
      made.filter(({ n }) => n % 4 !== 0),
    );
    await addPastEvents(
      service,
      orders.typeId,
      made.filter(({ n }) => n % 4 === 0),
    );
    await untilCounted();
    watched = await visit(browser, service, owner, { viewport: { width: 1440, height: 900 } });
    page = watched.page;
  }, 180_000);
  beforeEach(() => {
    watched.complaints.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const declare = (field: object) =>
    owner.post(`/api/apps/${appId}/declared-fields`, { ...field, backfill: true });
  const untilCounted = (): Promise<void> =>
    until(
      async () => {
        const { fields } = (await owner.get(`/api/apps/${appId}/declared-fields`)).data as {
          fields: { completeFrom: string | null; backfill: boolean }[];
        };
        return fields.every(({ completeFrom, backfill }) => completeFrom !== null && !backfill);
      },
      'the fields are counted',
      60_000,
    );
  const open = async (query: string): Promise<void> => {
    await page.goto(`/apps/${appId}?from=${middle}&to=${to}&tz=UTC${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
  };
  /** What SQL says by value, of the range or of another. */
  const stored = async (
    what: string,
    by: string,
    condition = 'true',
    [start, end] = [middle, to],
  ): Promise<Map<string, number>> => {
    const rows = await service.sql<{ key: string; value: number }[]>`
      SELECT ${service.sql.unsafe(by)} AS key, (${service.sql.unsafe(what)})::float8 AS value
        FROM events JOIN apps ON apps.id = app_id JOIN event_types AS types ON types.id = type_id
       WHERE apps.public_id = ${appId} AND events.created_at >= ${start} AND events.created_at < ${end}
         AND ${service.sql.unsafe(condition)} GROUP BY 1`;
    return new Map(rows.map(({ key, value }) => [key, value]));
  };
  /** The lines beside the chart: what they say by name. */
  const shown = async (): Promise<Map<string, number>> => {
    const lines = await page.locator('.legend .line').all();
    const read = await Promise.all(
      lines.map(
        async (line) =>
          [
            await line.locator('.name').innerText(),
            Number((await line.locator('.value').innerText()).replaceAll(',', '')),
          ] as const,
      ),
    );
    return new Map(read);
  };
  const headline = async (): Promise<number> =>
    Number(/[\d.,]+/.exec(await page.locator('.main-figure dd').innerText())?.[0]?.replaceAll(',', ''));
  const three = (value: number): number => (value < 100 ? Number(value.toPrecision(3)) : Math.round(value));

  test('shows unique values by another field, and of all, which is no sum', async () => {
    await open('&of=user&stat=distinct&by=country');
    const expected = await stored(`count(DISTINCT payload->>'user')`, `payload->>'country'`);
    await expect.poll(shown, SOON).toEqual(expected);
    const all = await stored(`count(DISTINCT payload->>'user')`, `''`);
    expect(await headline()).toBe(all.get(''));
    expect([...expected.values()].reduce((a, b) => a + b)).toBeGreaterThan(all.get('') ?? 0);
    expect(watched.complaints).toEqual([]);
  });

  test('shows the 95th percentile by path as lines, filters by a click, and says so in the table', async () => {
    await open('&of=latency&stat=p95&by=path');
    const exact = await stored(
      `percentile_disc(0.95) WITHIN GROUP (ORDER BY (payload->>'latency')::numeric)`,
      `payload->>'path'`,
    );
    await expect.poll(async () => (await shown()).size, SOON).toBe(PATHS.length);
    for (const [path, value] of await shown())
      expect(Math.abs(value / (exact.get(path) ?? 0) - 1), path).toBeLessThan(0.02);
    expect(await page.locator('.plot').getAttribute('aria-label')).toContain(
      '95th percentile of latency per',
    );
    await page.locator('.legend .line', { hasText: '/checkout' }).click();
    await page.locator('.chip', { hasText: 'path:/checkout' }).waitFor();
    await expect
      .poll(async () => Math.abs((await headline()) / (exact.get('/checkout') ?? 0) - 1), SOON)
      .toBeLessThan(0.02);
    expect(watched.complaints).toEqual([]);
  });

  test('shows a sum by country and by type, with the change to the period before', async () => {
    const sum = `sum((payload->>'amount')::numeric)`;
    await open('&of=amount&stat=sum&by=country');
    const rounded = (sums: Map<string, number>) =>
      new Map([...sums].map(([key, value]) => [key, three(value)]));
    await expect.poll(shown, SOON).toEqual(rounded(await stored(sum, `payload->>'country'`)));
    const before = await stored(sum, `payload->>'country'`, 'true', [from, middle]);
    const german = page.locator('.legend .line', { hasText: 'DE' });
    await expect
      .poll(() => german.locator('.change').getAttribute('title'), SOON)
      .toContain(`${three(before.get('DE') ?? 0).toLocaleString('en-GB')} in the previous period, `);
    // Compared with nothing, the statistic has the same answer, which is not waited for again.
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByLabel('Compare with').selectOption('none');
    await expect.poll(() => german.locator('.change').count(), SOON).toBe(0);
    await expect.poll(shown, SOON).toEqual(rounded(await stored(sum, `payload->>'country'`)));
    await open('&of=amount&stat=sum');
    await expect.poll(shown, SOON).toEqual(rounded(await stored(sum, 'types.name')));
    await open('&of=amount&stat=avg&compare=year');
    await page.getByText('Not compared: no number of then is known.').waitFor();
    expect(watched.complaints).toEqual([]);
  });

  test('lists all values with difference and change, sorted and searched', async () => {
    await open('&of=user&stat=distinct&by=country');
    await page.getByRole('button', { name: /^All .*values/ }).click();
    const table = page.getByRole('dialog').getByRole('table');
    await table.waitFor();
    const distinct = `count(DISTINCT payload->>'user')`;
    const [now, before] = await Promise.all([
      stored(distinct, `payload->>'country'`),
      stored(distinct, `payload->>'country'`, 'true', [from, middle]),
    ]);
    const difference = (key: string): number => (now.get(key) ?? 0) - (before.get(key) ?? 0);
    await table.getByRole('button', { name: 'Difference' }).click();
    const rows = table.locator('tbody tr');
    const names = await rows.locator('th').allInnerTexts();
    expect(names.map(difference)).toEqual([...now.keys()].map(difference).sort((a, b) => b - a));
    for (const name of names) {
      const cells = await rows
        .filter({
          has: page
            .getByRole('button', { name: `Only ${name}` })
            .or(page.getByRole('button', { name, exact: true })),
        })
        .first()
        .locator('td')
        .allInnerTexts();
      expect(Number(cells[0]), name).toBe(now.get(name));
      expect(cells[3]?.replace('−', '-').replace('+', ''), name).toBe(String(difference(name)));
    }
    await page.getByLabel('Find by name').fill('N');
    await expect.poll(() => rows.locator('th').allInnerTexts(), SOON).toEqual(['NL']);
    expect(watched.complaints).toEqual([]);
  });

  test('counts a pair without reading rows, and offers the one that is missing', async () => {
    await open('&by=country&filter=plan:pro');
    await expect
      .poll(shown, SOON)
      .toEqual(await stored('count(*)', `payload->>'country'`, `payload->>'plan' = 'pro'`));
    expect(await page.getByText(/Read from|Searched/).count()).toBe(0);
    await open('&of=latency&stat=p95&by=plan');
    await page.getByText(/Read from [\d,]+ events? in [\d.]+ s/).waitFor();
    const exact = await stored(
      `percentile_disc(0.95) WITHIN GROUP (ORDER BY (payload->>'latency')::numeric)`,
      `payload->>'plan'`,
    );
    expect([...(await shown()).keys()].sort()).toEqual(PLANS);
    for (const [plan, value] of await shown())
      expect(Math.abs(value / (exact.get(plan) ?? 0) - 1), plan).toBeLessThan(0.02);
    await page.getByRole('button', { name: 'Count latency by plan from now on…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Add a counted field' });
    expect(await dialog.getByLabel('Path').inputValue()).toBe('latency');
    expect(await dialog.getByLabel('Count', { exact: true }).inputValue()).toBe('number');
    expect(await dialog.getByLabel('By the values of').inputValue()).toBe('plan');
    await dialog.getByText(`Count earlier events too: ${HOURS * PER_HOUR} are read once`).waitFor();
    await dialog.getByText(`The app uses ${DECLARED.length} of 32 declarations`).waitFor();
    await dialog.getByRole('button', { name: 'Count the field' }).click();
    await dialog.waitFor({ state: 'detached' });
    await untilCounted();
    await open('&of=latency&stat=p95&by=plan');
    await expect.poll(async () => [...(await shown()).keys()].sort(), SOON).toEqual(PLANS);
    expect(await page.getByText(/Read from/).count()).toBe(0);
    expect(watched.complaints).toEqual([]);
  });

  test('reads any measure from the rows where counts cannot tell: by a field, by type, under conditions', async () => {
    const users = `count(DISTINCT payload->>'user')`;
    const isRead = page.getByText(/Read from [\d,]+ events? in [\d.]+ s/);
    await open('&of=user&stat=distinct&by=path');
    await isRead.waitFor();
    await expect.poll(shown, SOON).toEqual(await stored(users, `payload->>'path'`));
    // Two conditions are more than a pair: the lines are of the events that meet both.
    const both = `payload->>'plan' = 'pro' AND payload->>'path' = '/checkout'`;
    await open('&of=user&stat=distinct&filter=plan:pro&filter=path:/checkout');
    await isRead.waitFor();
    await expect.poll(shown, SOON).toEqual(await stored(users, 'types.name', both));
    expect(await headline()).toBe((await stored(users, `''`, both)).get(''));
    await open('&of=amount&stat=sum&filter=plan:pro&filter=path:/checkout');
    const sums = await stored(`sum((payload->>'amount')::numeric)`, 'types.name', both);
    await expect.poll(shown, SOON).toEqual(new Map([...sums].map(([key, value]) => [key, three(value)])));
    expect(watched.complaints).toEqual([]);
  });

  test('shows two fields as a table, from rows where they are not counted together', async () => {
    await open('&of=latency&stat=p95&by=path');
    await page.getByRole('button', { name: 'Table by fields…' }).click();
    const sheet = page.getByRole('dialog');
    await sheet.getByLabel('Second field').selectOption('plan');
    await sheet.getByText(/Read from [\d,]+ events in [\d.]+ s\./).waitFor();
    const table = sheet.getByRole('table');
    const exact = await stored(
      `percentile_disc(0.95) WITHIN GROUP (ORDER BY (payload->>'latency')::numeric)`,
      `(payload->>'path') || ' ' || (payload->>'plan')`,
    );
    const heads = await table.locator('thead th').allInnerTexts();
    for (const row of await table.locator('tbody tr').all()) {
      const [path, ...cells] = await row.locator('th, td').allInnerTexts();
      for (const [index, cell] of cells.entries()) {
        const value = exact.get(`${path} ${heads[index + 1]}`) ?? 0;
        expect(
          Math.abs(Number(cell.replaceAll(',', '')) / value - 1),
          `${path} ${heads[index + 1]}`,
        ).toBeLessThan(0.02);
      }
    }
    expect(await table.locator('tbody tr').count()).toBe(PATHS.length);
    await sheet.getByLabel('First field').selectOption('country');
    await sheet.getByText(/Read from [\d,]+ events/).waitFor();
    expect(watched.complaints).toEqual([]);
  });

  test('compares two segments whose events have to be read, with a column of differences', async () => {
    const [pro, free] = ['pro', 'free'].map(
      (plan) => `payload->>'plan' = '${plan}' AND payload->>'path' = '/checkout'`,
    ) as [string, string];
    const country = `payload->>'country'`;
    const second = '&compare=segment&filter2=plan:free&filter2=path:/checkout';
    const change = page.locator('.main-figure small');
    for (const [first, condition] of [
      ['&filter=plan:pro&filter=path:/checkout', pro],
      // What counts answer beside what they do not.
      ['&filter=plan:pro', `payload->>'plan' = 'pro'`],
    ] as const) {
      await open(`&by=country${first}${second}`);
      const [now, before] = [
        await stored('count(*)', country, condition),
        await stored('count(*)', country, free),
      ];
      const all = [...before.values()].reduce((a, b) => a + b);
      await expect.poll(() => change.getAttribute('title'), SOON).toBe(`${all} before`);
      expect(await shown()).toEqual(now);
      const german = page.locator('.legend .line', { hasText: 'DE' });
      expect(await german.locator('.change').getAttribute('title')).toBe(
        `${before.get('DE')} in the second filter`,
      );
      await page.getByRole('button', { name: /^All .*values/ }).click();
      const rows = page.getByRole('dialog').getByRole('table').locator('tbody tr');
      await expect.poll(() => rows.count(), SOON).toBe(COUNTRIES.length);
      for (const row of await rows.all()) {
        const [name = '', value, , difference] = await row.locator('th, td').allInnerTexts();
        const expected = (now.get(name) ?? 0) - (before.get(name) ?? 0);
        expect([name, Number(value)]).toEqual([name, now.get(name)]);
        expect([name, Number(difference?.replace('−', '-').replace('±', ''))]).toEqual([name, expected]);
      }
      await page.keyboard.press('Escape');
    }
    expect(watched.complaints).toEqual([]);
  });

  test('proposes numbers for a field that has only numbers', async () => {
    await page.goto(`/apps/${appId}/fields`);
    await page.getByRole('button', { name: 'Count amount', exact: true }).click();
    await expect
      .poll(() => page.getByRole('dialog').getByLabel('Count', { exact: true }).inputValue(), SOON)
      .toBe('number');
  });
});
