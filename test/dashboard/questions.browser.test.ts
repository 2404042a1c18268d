/** The second question: what is ticked beside the chart, what is different in a bar, and what an app's overview says, against SQL. */
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Explanation } from '../../src/api-types/answers.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { figure, visit } from './visitor.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Of each hour: a third from each country, but in the one that differs all are from FR. */
const PER_HOUR = 30;
const HOURS = 20;
const ODD_HOUR = 10;
/** A browser on a busy machine takes its time. */
const SOON = { timeout: patient(20_000) };
const COUNTRIES = ['DE', 'FR', 'US'];

describe.skipIf(withoutBrowser !== '')('an app with a counted field', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;
  let ofApp: string;
  /** The hour in which the events are made, which has none of them. */
  const end = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  /** The range of the page, in which the tests also send: one that moves would leave events behind at whatever hour they run. */
  const [first, last] = [end - 22 * HOUR_MS, end + 2 * HOUR_MS];
  const bounds = [first, last].map((time) => new Date(time).toISOString());
  /** Half an hour away from where a range of whole hours that ends now begins and ends. */
  const quiet = Math.min((new Date().getUTCMinutes() + 30) % 60, 56);

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    ({ appId, loggingToken: ofApp } = await newOwnApp(owner));
    const { sql } = service;
    await owner.post(`/api/apps/${appId}/declared-fields`, {
      path: 'country',
      kind: 'value',
      backfill: true,
    });
    const hourAgo = (hour: number, n: number): string =>
      new Date(end - hour * HOUR_MS + n * MINUTE_MS).toISOString();
    const visits = await createEventType(sql, { appId, name: 'page viewed', maxTypes: 10 });
    await addPastEvents(
      service,
      visits.typeId,
      Array.from({ length: HOURS * PER_HOUR }, (_, index) => {
        const hour = 1 + Math.floor(index / PER_HOUR);
        const country = hour === ODD_HOUR ? 'FR' : COUNTRIES[index % 3];
        return { at: hourAgo(hour, index % PER_HOUR), payload: JSON.stringify({ country }) };
      }),
    );
    // Sent every hour until five hours ago, a week ago too.
    const payments = await createEventType(sql, { appId, name: 'payment captured', maxTypes: 10 });
    const hourly = Array.from({ length: 7 * 24 }, (_, hour) => hour + 6);
    await addPastEvents(
      service,
      payments.typeId,
      hourly.flatMap((hour) =>
        [1, 2, 3].map((n) => ({ at: hourAgo(hour, quiet + n), payload: '{"amount":1}' })),
      ),
    );
    await until(
      async () => {
        const { fields } = (await owner.get(`/api/apps/${appId}/declared-fields`)).data as {
          fields: { completeFrom: string | null; backfill: boolean }[];
        };
        return fields.every(({ completeFrom, backfill }) => completeFrom !== null && !backfill);
      },
      'the field is counted',
      60_000,
    );
    watched = await visit(browser, service, owner, { viewport: { width: 1440, height: 900 } });
    page = watched.page;
  });
  beforeEach(() => {
    watched.complaints.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (query = ''): Promise<void> => {
    await page.goto(`/apps/${appId}?from=${bounds[0]}&to=${bounds[1]}&tz=UTC${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
    await page.locator('article').first().waitFor();
  };
  const note = (): Locator => page.locator('.tooltip', { hasText: 'payment captured: {"amount":1}' });
  const typeIdOf = async (name: string): Promise<string> => {
    const { types } = (await owner.get(`/api/apps/${appId}/types`)).data as {
      types: { typeId: string; name: string }[];
    };
    return types.find((type) => type.name === name)?.typeId ?? '';
  };
  const stored = async (condition: string, hours?: number): Promise<number> => {
    const [from, to] = bounds as [string, string];
    const range =
      hours === undefined
        ? service.sql`events.created_at >= ${from} AND events.created_at < ${to}`
        : service.sql`events.created_at > now() - ${hours} * interval '1 hour'`;
    const [row] = await service.sql<{ events: number }[]>`
      SELECT count(*)::int AS events FROM events JOIN apps ON apps.id = app_id
       WHERE apps.public_id = ${appId} AND ${range} AND ${service.sql.unsafe(condition)}`;
    return row?.events ?? Number.NaN;
  };

  test('is filtered by ticks beside the chart: of one value, of several, and of none again', async () => {
    await open();
    await page.getByRole('button', { name: 'Fields', exact: true }).click();
    const rail = page.getByRole('complementary', { name: 'Fields' });
    const facet = rail.getByRole('group', { name: 'country' });
    const total = await stored('true');
    for (const country of COUNTRIES) {
      const own = await stored(`payload->>'country' = '${country}'`);
      await facet.getByText(String(own), { exact: true }).first().waitFor();
      expect(await facet.locator('label', { hasText: country }).innerText()).toContain(
        `${Math.round((own / total) * 100)}%`,
      );
    }
    const shown = async (): Promise<number> => await figure(page, 'In this range');
    await facet.getByRole('checkbox', { name: /^DE/ }).check();
    await expect.poll(shown, SOON).toBe(await stored(`payload->>'country' = 'DE'`));
    await facet.getByRole('checkbox', { name: /^US/ }).check();
    await expect.poll(shown, SOON).toBe(await stored(`payload->>'country' IN ('DE', 'US')`));
    await page.locator('.chip', { hasText: 'country:DE,US' }).waitFor();
    await facet.getByRole('checkbox', { name: /^DE/ }).uncheck();
    await facet.getByRole('checkbox', { name: /^US/ }).uncheck();
    await expect.poll(shown, SOON).toBe(total);
    // It stays for the next visit, until it is closed.
    await open();
    await rail.waitFor();
    await page.getByRole('button', { name: 'Fields', exact: true }).click();
    await rail.waitFor({ state: 'detached' });
    expect(watched.complaints).toEqual([]);
  });

  test('says what is different in a bar, and filters by it', async () => {
    const [from, to] = [ODD_HOUR, ODD_HOUR - 1].map((hour) => new Date(end - hour * HOUR_MS).toISOString());
    await open(`&at=${from}~${to}`);
    await page.getByRole('button', { name: 'What changed?' }).click();
    const sheet = page.getByRole('dialog', { name: 'What changed?' });
    const rows = sheet.locator('.explain li');
    await expect.poll(() => rows.count(), SOON).toBe(3);
    const french = rows.filter({ hasText: 'country: FR' });
    const [inPart, inAll] = await Promise.all([
      stored(`payload->>'country' = 'FR' AND events.created_at >= '${from}' AND events.created_at < '${to}'`),
      stored(`payload->>'country' = 'FR'`),
    ]);
    expect(inPart).toBe(PER_HOUR);
    const bars = await french.locator('.explain-bar').allInnerTexts();
    expect(bars[0]).toContain(String(inPart));
    expect(bars[1]).toContain(String(inAll - inPart));
    await rows.filter({ hasText: 'country: DE' }).getByText('not here').waitFor();
    // What counts do not answer is looked up in the events.
    const range = `from=${new Date(end - DAY_MS).toISOString()}&to=${new Date(end).toISOString()}`;
    const path = `/api/apps/${appId}/explanation?${range}&partFrom=${from}`;
    const { differences } = (await owner.get(`${path}&partTo=${to}&q=country`))
      .data as unknown as Explanation;
    const found = differences.map(({ path: own, key, inPart: events }) => [own, key, events]);
    expect(found.toSorted()).toEqual([
      ['country', '"DE"', 0],
      ['country', '"FR"', PER_HOUR],
      ['country', '"US"', 0],
    ]);
    expect(await owner.get(path)).toMatchObject({ status: 400, code: 'INVALID_REQUEST' });
    await french.getByRole('button').click();
    await sheet.waitFor({ state: 'detached' });
    await page.locator('.chip', { hasText: 'country:FR' }).waitFor();
    expect(watched.complaints).toEqual([]);
  });

  test('says what is different in what is dragged over, compared with the rest of the range before it', async () => {
    await open();
    const odd = end - ODD_HOUR * HOUR_MS;
    const box = await page.locator('.plot .over').boundingBox();
    if (box === null) throw new Error('The chart is not shown.');
    const at = (time: number): number => box.x + (box.width * (time - first)) / (last - first);
    await page.mouse.move(at(odd + 5 * MINUTE_MS), box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(at(odd + 55 * MINUTE_MS), box.y + box.height / 2, { steps: 5 });
    await page.mouse.up();
    await page.getByRole('button', { name: 'What changed?' }).click();
    const french = page.locator('.explain li', { hasText: 'country: FR' });
    const bars = french.locator('.explain-bar');
    await expect.poll(() => bars.first().innerText(), SOON).toContain(String(PER_HOUR));
    const others = (await stored(`payload->>'country' = 'FR'`)) - PER_HOUR;
    expect(await bars.nth(1).innerText()).toContain(String(others));
    await french.getByRole('button').click();
    await page.locator('.chip', { hasText: 'country:FR' }).waitFor();
    await expect.poll(() => figure(page, 'In this range'), SOON).toBe(PER_HOUR);
    expect(watched.complaints).toEqual([]);
  });

  test('compares two segments: a line, a change and the address of each, against SQL', async () => {
    await open('&filter=country:DE');
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByLabel('Compare with').selectOption('segment');
    await page.keyboard.press('Escape');
    const second = page.getByRole('combobox', { name: 'Second filter' });
    await second.fill('country:FR');
    await second.press('Enter');
    const french = await stored(`payload->>'country' = 'FR'`);
    const change = page.locator('.main-figure small');
    await expect.poll(() => change.getAttribute('title'), SOON).toBe(`${french} before`);
    expect(await change.innerText()).toContain('vs the second filter');
    expect(await figure(page, 'In this range')).toBe(await stored(`payload->>'country' = 'DE'`));
    await page.getByText('Dotted line: the second filter.').waitFor();
    await page.reload();
    await page.locator('.second-filter .chip', { hasText: 'country:FR' }).waitFor();
    await expect.poll(() => change.getAttribute('title'), SOON).toBe(`${french} before`);
    await page.getByRole('button', { name: 'The period before' }).click();
    await second.waitFor({ state: 'detached' });
    expect(new URL(page.url()).searchParams.getAll('filter2')).toEqual([]);
    expect(watched.complaints).toEqual([]);
  });

  test('lists the events of a type with its own fields as columns, and moves by J and K', async () => {
    await open();
    expect(await page.locator('.columns-head').count()).toBe(0);
    await page.locator('.legend .line', { hasText: 'page viewed' }).click();
    await expect
      .poll(() => page.locator('.columns-head span').allInnerTexts(), SOON)
      .toEqual(['Time ↓', 'Type', 'country', 'Payload']);
    await page.locator('h2', { hasText: 'Events' }).click();
    const focused = (): Promise<number> =>
      page.evaluate(() =>
        [...document.querySelectorAll('.event-row')].indexOf(document.activeElement as Element),
      );
    for (const [key, row] of [
      ['j', 0],
      ['j', 1],
      ['j', 2],
      ['k', 1],
    ] as const) {
      await page.keyboard.press(key);
      expect(await focused(), key).toBe(row);
    }
    await page.keyboard.press('Enter');
    await page.locator('article[data-open=true]').waitFor();
    expect(watched.complaints).toEqual([]);
  });

  test('has an overview whose numbers are those of SQL, and names the type that fell silent', async () => {
    await page.goto(`/apps/${appId}/overview?tz=UTC`);
    const card = (name: string) => page.locator('.overview-numbers > div', { hasText: name });
    for (const [name, hours] of [
      ['Last 24 hours', 24],
      ['Last 7 days', 7 * 24],
    ] as const)
      await expect
        .poll(async () => {
          await page.reload();
          return Number((await card(name).locator('dd').innerText()).replaceAll(',', ''));
        }, SOON)
        .toBe(await stored('true', hours));
    await expect.poll(() => card('Types that sent').locator('dd').innerText(), SOON).toBe('2');
    const silent = page.locator('.overview-card', { hasText: 'Silent types' });
    await silent.getByText(/payment captured: none for \d+ h, usually [\d.]+ an hour/).waitFor();
    expect(await silent.getByRole('link').count()).toBe(1);
    const moved = page.locator('.overview-card', { hasText: 'Moved most' });
    await moved.getByRole('link', { name: 'country: FR' }).click();
    await page.locator('.chip', { hasText: 'country:FR' }).waitFor();
    await expect
      .poll(() => figure(page, 'In this range'))
      .toBe(await stored(`payload->>'country' = 'FR'`, (7 * DAY_MS) / HOUR_MS));
    expect(watched.complaints).toEqual([]);
  });

  test('marks the events of a type that is shown as annotation, says their text, and opens them', async () => {
    await page.goto(`/apps/${appId}/types?tz=UTC`);
    await page.getByRole('button', { name: 'Mark payment captured' }).click();
    await page.locator('tr', { hasText: 'payment captured' }).locator('.badge').waitFor();
    await open(`&type=${await typeIdOf('page viewed')}`);
    const marks = page.getByRole('list', { name: 'Annotations' });
    await marks.getByText('payment captured: {"amount":1}').first().waitFor();
    const rows = (await stored(`payload->>'amount' = '1'`)) - 4;
    await marks.getByRole('button', { name: `Show all ${rows + 4} annotations` }).click();
    expect(await marks.getByRole('listitem').count()).toBe(rows + 4);
    expect(await marks.getByRole('button', { name: /^Remove/ }).count()).toBe(0);
    // The bar of a mark says its text, too.
    await page.locator('.plot').focus();
    for (let step = 0; step < 96 && !(await note().isVisible()); step += 1)
      await page.keyboard.press('ArrowLeft');
    await note().waitFor();
    await marks.getByRole('link').first().click();
    await page.getByRole('dialog').getByText('"amount"').first().waitFor();
    await page.keyboard.press('Escape');
    // Undone where it was done.
    await page.goto(`/apps/${appId}/types?tz=UTC`);
    await page.getByRole('button', { name: 'Unmark payment captured' }).click();
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByRole('button', { name: 'Unmark payment captured' }).click();
    await page.getByText('payment captured is marked no more').waitFor();
    expect(watched.complaints).toEqual([]);
  });

  test('shows the events by producer, and rotates the token of one of them alone', async () => {
    const made = await owner.post(`/api/apps/${appId}/producers`, { name: 'checkout' });
    const { tokenId, loggingToken } = made.data as { tokenId: string; loggingToken: string };
    const send = async (token: string, events: number): Promise<number> => {
      const { status } = await service.request({
        method: 'POST',
        path: '/v1/events',
        headers: { authorization: `Bearer ${token}` },
        body: JSON.stringify({
          events: Array.from({ length: events }, () => ({ typeName: 'order', payload: {} })),
        }),
      });
      return status;
    };
    expect([await send(loggingToken, 6), await send(ofApp, 2)]).toEqual([200, 200]);
    await open();
    await page.getByRole('combobox', { name: 'Break down by' }).selectOption('producer…');
    const sheet = page.getByRole('dialog', { name: 'By producer' });
    const rows = sheet.getByRole('table', { name: 'Producers' }).getByRole('row');
    await rows.filter({ hasText: 'checkout' }).getByText('75%').waitFor();
    expect(await rows.nth(1).innerText()).toMatch(/^checkout\s+6\s+75%/);
    expect(await rows.nth(2).innerText()).toMatch(/^First token\s+2\s+25%/);
    await sheet.locator('.board-figure', { hasText: '8' }).waitFor();
    await page.keyboard.press('Escape');
    expect(await page.getByRole('combobox', { name: 'Break down by' }).inputValue()).toBe('');
    await page.goto(`/apps/${appId}/settings`);
    await page.getByRole('button', { name: 'Rotate the token of checkout' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: /^Rotate/ }).click();
    const shown = page.getByRole('dialog', { name: 'Logging token of checkout' });
    const rotated = (await shown.locator('code').first().innerText()).trim();
    expect(rotated).toMatch(/^tdl_/);
    expect(rotated).not.toBe(loggingToken);
    const current = (await owner.get(`/api/apps/${appId}/producers/${tokenId}/token`)).data;
    expect(current).toMatchObject({ loggingToken: rotated });
    // The earlier one has its grace, and that of the app stays what it is.
    for (const token of [rotated, loggingToken, ofApp]) expect(await send(token, 1)).toBe(200);
    expect(watched.complaints).toEqual([]);
  });
});
