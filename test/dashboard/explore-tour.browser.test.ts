/** One page from "when" to "which": filters, bars, comparison, exact ends, and what stays true when the server is away. */
import { buffer } from 'node:stream/consumers';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { clipboard, figure, visit } from './visitor.ts';

const MINUTE_MS = 60_000;
/** A day on which an event was stored every ten minutes, and the one before with every second of them. */
const DAY = '2026-11-10';
const DAY_BEFORE = '2026-11-09';
const COUNTRIES = ['DE', 'FR', 'IT'];
const WHOLE_DAY = `from=${DAY}T00:00:00Z&to=2026-11-11T00:00:00Z&tz=UTC`;

describe.skipIf(withoutBrowser !== '')('the page of an app', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    ({ appId } = await newOwnApp(owner));
    const placed = await createEventType(service.sql, { appId, name: 'order placed', maxTypes: 10 });
    const failed = await createEventType(service.sql, { appId, name: 'payment failed', maxTypes: 10 });
    const every = (day: string, minutes: number) =>
      Array.from({ length: 1_440 / minutes }, (_, index) => ({
        at: new Date(Date.parse(`${day}T00:00Z`) + index * minutes * MINUTE_MS).toISOString(),
        payload: `{"country":"${COUNTRIES[index % 3]}","order":{"total":${index}},"n.o":${index}}`,
      }));
    await addPastEvents(service, placed.typeId, [...every(DAY_BEFORE, 20), ...every(DAY, 10)]);
    await addPastEvents(service, failed.typeId, every(DAY, 120));
    watched = await visit(browser, service, owner);
    page = watched.page;
  });
  beforeEach(async () => {
    watched.complaints.length = 0;
    await page.unrouteAll();
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (query: string): Promise<void> => {
    await page.goto(`/apps/${appId}?${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
  };
  const countBetween = async (from: string, to: string): Promise<number> => {
    const [row] = await service.sql<{ count: number }[]>`
      SELECT count(*)::integer AS count FROM events
       WHERE created_at >= ${from}::timestamptz AND created_at < ${to}::timestamptz`;
    return row?.count ?? 0;
  };
  const parameter = (name: string): string[] => new URL(page.url()).searchParams.getAll(name);
  const listed = (): Promise<number> => page.locator('article').count();
  const amount = (): Promise<string> => page.locator('.list-head p').innerText();
  /** A point of the chart, in shares of its width and height. */
  const point = async (x: number, y = 0.5): Promise<[number, number]> => {
    const box = await page.locator('.plot .over').boundingBox();
    if (box === null) throw new Error('The chart is not shown.');
    return [box.x + x * box.width, box.y + y * box.height];
  };

  test.each(['events', 'chart'])('is where /%s was, with the same view', async (old) => {
    await page.goto(`/apps/${appId}/${old}?${WHOLE_DAY}`);
    await page.locator('.plot .over').waitFor();
    expect(new URL(page.url()).pathname).toBe(`/apps/${appId}`);
    expect(parameter('from')).toEqual([`${DAY}T00:00:00Z`]);
    expect(await figure(page, 'In this range')).toBe(156);
  });

  test('counts exactly the interval that is asked for, and says which bars are parts', async () => {
    const [from, to] = [`${DAY}T14:37:00Z`, `${DAY}T19:12:00Z`];
    await open(`from=${from}&to=${to}&tz=UTC&buckets=100&table=1`);
    const count = await countBetween(from, to);
    expect(await figure(page, 'In this range')).toBe(count);
    expect(await amount()).toBe(`${count} events`);
    await page.getByRole('application').focus();
    const spoken = page.getByRole('application').locator('[aria-live]');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Home');
    await expect.poll(() => spoken.textContent()).toContain('Only a part of it: 10 Nov 2026, 14:37');
    await page.keyboard.press('ArrowRight');
    await expect.poll(() => spoken.textContent()).not.toContain('Only a part');
    await page.keyboard.press('End');
    await expect.poll(() => spoken.textContent()).toMatch(/Only a part of it: .*19:12/);
  });

  test('compares with the period before, and with a week before', async () => {
    await open(WHOLE_DAY);
    const before = await countBetween(`${DAY_BEFORE}T00:00Z`, `${DAY}T00:00Z`);
    const main = page.locator('.main-figure small');
    expect(await main.getAttribute('title')).toBe(`${before} before`);
    expect(await main.innerText()).toMatch(
      new RegExp(`^\\+${Math.round(((156 - before) / before) * 100)}% vs the previous period, .*\\d`),
    );
    const legend = page.getByRole('button', { name: /^order placed/ });
    expect(await legend.locator('.change').innerText()).toBe('+100%');
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByLabel('Compare with').selectOption('week');
    await expect.poll(() => parameter('compare')).toEqual(['week']);
    await expect.poll(() => main.getAttribute('title')).toBe('0 before');
    await page.getByLabel('Compare with').selectOption('none');
    await expect.poll(() => main.count()).toBe(0);
  });

  test('shows no number under the name of a statistic that it is not of, and ways to have it', async () => {
    await open(`${WHOLE_DAY}&of=country&stat=sum`);
    const why = page.locator('.nothing', {
      hasText: 'country is not shown: no event of this range has a number in country.',
    });
    await why.waitFor();
    const main = page.locator('.main-figure');
    expect(await main.locator('dt').innerText()).toBe('Sum of country');
    expect(await main.locator('dd').innerText()).toBe('–');
    expect(await page.locator('.legend').count()).toBe(0);
    expect(await page.locator('.chart-card').innerText()).not.toContain('156');
    // One that takes too long is not given up: it is counted from now on, or read to its end.
    await page.route(/\/numbers\?/, async (route) => {
      const refusal = {
        error: 'Invalid',
        code: 'INVALID_PARAMETERS',
        details: 'it is not counted, and cannot be read in time',
        declare: 'x',
      };
      await route.fulfill({ status: 400, json: { success: false, ...refusal } });
    });
    await open(`${WHOLE_DAY}&of=order.total&stat=sum`);
    await page.getByRole('button', { name: 'Count order.total from now on…' }).waitFor();
    expect(await main.locator('dd').innerText()).toBe('–');
    await page.getByRole('button', { name: 'Read anyway' }).click();
    const [row] = await service.sql<{ sum: number }[]>`
      SELECT sum((payload #>> '{order,total}')::integer)::integer AS sum FROM events
       WHERE created_at >= ${`${DAY}T00:00Z`}::timestamptz AND created_at < ${`${DAY}T24:00Z`}::timestamptz`;
    await page
      .getByRole('dialog')
      .getByRole('cell', { name: (row?.sum ?? 0).toLocaleString('en-US'), exact: true })
      .waitFor();
    await page.keyboard.press('Escape');
    await page.unrouteAll();
    await page.getByRole('button', { name: 'Show numbers of events' }).click();
    await expect.poll(() => figure(page, 'In this range')).toBe(156);
  });

  test('shows the events around one of them, without the filter that it was found by, and marks it', async () => {
    await open(`${WHOLE_DAY}&filter=${encodeURIComponent('"n.o":7')}`);
    await page.locator('article .event-row').first().click();
    await page.getByRole('link', { name: 'Show surrounding events' }).click();
    await expect.poll(() => parameter('filter')).toEqual([]);
    const marked = page.locator('article[data-selected=true]');
    await marked.waitFor();
    expect(parameter('mark')).toEqual([await marked.getAttribute('data-id')]);
    expect(await listed()).toBeGreaterThan(3);
    expect(parameter('back')).not.toEqual([]);
  });

  test('offers every path that events have to break down by, and what it costs', async () => {
    await open(WHOLE_DAY);
    const undeclared = page.locator('[aria-label="Break down by"] optgroup');
    await undeclared.waitFor({ state: 'attached' });
    expect(await undeclared.getAttribute('label')).toBe('From rows: 156 events to read');
    expect(await undeclared.locator('option').allTextContents()).toContain('order.total');
    await page.getByRole('button', { name: 'Table by fields…' }).waitFor();
    // Measures and filters say the same.
    await page.getByRole('button', { name: /^What the chart shows/ }).click();
    const ofRows = page.locator('.measure-form optgroup');
    await ofRows.waitFor({ state: 'attached' });
    expect(await ofRows.getAttribute('label')).toBe('From rows: 156 events to read');
    await page.keyboard.press('Escape');
    await page.getByRole('combobox', { name: 'Filter', exact: true }).fill('countr');
    await page.getByRole('option', { name: /Field.*country.*reads 156 events/ }).waitFor();
    await page.keyboard.press('Escape');
    // The first use of one offers to count it: for those who may, at its price.
    await open(`${WHOLE_DAY}&filter=country:DE`);
    await page.getByRole('button', { name: 'Count country from now on…' }).click();
    await page
      .getByRole('dialog')
      .getByText(/Count earlier events too: [\d,]+ are read once/)
      .waitFor();
    await page.keyboard.press('Escape');
  });

  test('searches for what is not in the range in longer ones', async () => {
    await open(`from=${DAY}T00:00:00Z&to=${DAY}T02:00:00Z&tz=UTC&filter=${encodeURIComponent('"n.o":77')}`);
    await page.getByRole('heading', { name: 'No events meet the filter' }).waitFor();
    await page.getByRole('button', { name: 'Search the last 30 days' }).waitFor();
    await page.getByRole('button', { name: 'Search all time' }).click();
    await expect.poll(listed).toBe(1);
    expect(parameter('range')).toEqual(['all']);
    expect(parameter('filter')).toEqual(['"n.o":77']);
  });

  test('shows everything of a value, of any type and time, and leads to its erasure', async () => {
    await open(`from=${DAY}T02:00:00Z&to=${DAY}T03:00:00Z&tz=UTC&filter=country:DE`);
    await page.locator('article .event-row').first().click();
    await page.locator('.event-body .json .scalar', { hasText: /^1\d$/ }).first().click();
    await page.getByRole('button', { name: 'Everything of it' }).click();
    await expect.poll(() => parameter('range')).toEqual(['all']);
    const [filter = '', ...more] = parameter('filter');
    expect(more).toEqual([]);
    expect(filter).not.toContain('country');
    await page.getByRole('link', { name: 'Erase them…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Erase events' });
    expect(await dialog.getByLabel('Conditions').inputValue()).toBe(filter);
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText(/^[1-9]\d* events? of \d+ match/).waitFor();
    await page.keyboard.press('Escape');
  });

  test('is calm while a search has found nothing yet', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route(/\/scan\?|\/events\?/, async (route) => {
      await held;
      await route.continue();
    });
    await page.goto(`/apps/${appId}?${WHOLE_DAY}&filter=country:DE`);
    const main = page.locator('.main-figure');
    await main.locator('dt', { hasText: 'Searching' }).waitFor();
    expect(await main.locator('dd').innerText()).toBe('…');
    expect(await amount()).toBe('');
    release();
    await expect.poll(() => main.locator('dt').innerText()).toBe('In this range');
  });

  test('saves events as CSV for the spreadsheet that is chosen', async () => {
    await open(WHOLE_DAY);
    await page.getByRole('button', { name: 'Export the events' }).click();
    const link = page.getByRole('link', { name: 'As CSV' });
    expect(await link.getAttribute('href')).not.toMatch(/separator|bom|texts/);
    await page.getByLabel('Columns of the CSV file are separated by').selectOption('semicolon');
    await page.getByLabel('Byte order mark, for Excel').check();
    await page.getByLabel('Texts like 00123 stay texts, for spreadsheets').check();
    expect(await link.getAttribute('href')).toContain(
      '&separator=semicolon&bom=true&texts=quoted&format=csv',
    );
    const text = await (await page.request.get((await link.getAttribute('href')) ?? '')).text();
    expect(text.slice(0, 3)).toBe('\ufeffid');
    expect(text.split('\r\n')[0]).toContain(';');
  });

  test('asks again by itself for what failed, once there is a connection', async () => {
    await open(WHOLE_DAY);
    await page.route(/\/(series|events)\?/, (route) => route.abort());
    await page.getByRole('button', { name: 'Previous period' }).click();
    await page.getByText('The server cannot be reached').first().waitFor();
    await page.unrouteAll();
    await page.evaluate(`dispatchEvent(new Event('online'))`);
    await expect.poll(() => page.locator('.problem').count()).toBe(0);
    expect(await figure(page, 'In this range')).toBe(
      await countBetween(`${DAY_BEFORE}T00:00Z`, `${DAY}T00:00Z`),
    );
  });

  test('lists an event that arrives now and is dated back, under a condition too', async () => {
    const late = await newOwnApp(owner);
    const send = async (payload: object, createdAt?: string): Promise<void> => {
      const events = [{ typeName: 'import', payload, createdAt }];
      const { status } = await service.request({
        ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
        headers: { Authorization: `Bearer ${late.loggingToken}`, 'Content-Type': 'application/json' },
      });
      expect(status).toBe(200);
    };
    await send({ shop: 'south' });
    // Over a bar of the chart a pointer would list the bar's events, and hold others back.
    await page.mouse.move(0, 0);
    await page.goto(`/apps/${late.appId}?range=24h&tz=UTC&filter=shop:north`);
    await page.getByText('No events meet the filter').waitFor();
    await send({ shop: 'north' });
    await expect.poll(listed).toBe(1);
    // The page may have read the first one by itself: the second one is told, so that the page follows.
    await send({ shop: 'north' });
    await expect.poll(listed).toBe(2);
    await send({ shop: 'north' }, new Date(Date.now() - 3 * 60 * MINUTE_MS).toISOString());
    await expect.poll(listed).toBe(3);
  });

  test('shows the ratio of a type to all events as a line, with its numbers, against SQL', async () => {
    await open(`${WHOLE_DAY}&table=1`);
    await page.getByRole('button', { name: /^What the chart shows/ }).click();
    await page.getByLabel('Ratio of').selectOption('payment failed');
    await page.getByRole('button', { name: 'Show the ratio' }).click();
    await expect.poll(() => parameter('part').map((part) => part.slice(0, 9))).toEqual(['type:typ_']);
    const main = page.locator('.main-figure');
    await expect.poll(() => main.locator('dd').innerText()).toMatch(/^7\.69%/);
    expect(await main.locator('dt').innerText()).toBe('payment failed ÷ all events');
    const rows = await service.sql<{ ratio: number }[]>`
      SELECT count(*) FILTER (WHERE type.name = 'payment failed')::float8 / count(*) AS ratio
        FROM events JOIN event_types AS type ON type.id = type_id
       WHERE events.created_at >= ${`${DAY}T00:00Z`}::timestamptz AND events.created_at < ${`${DAY}T00:00Z`}::timestamptz + interval '1 day'
       GROUP BY date_bin('15 minutes', events.created_at, '2026-01-01Z') ORDER BY date_bin('15 minutes', events.created_at, '2026-01-01Z') DESC`;
    const shown = await page.locator('.chart-table tbody td b').allInnerTexts();
    expect(shown).toEqual(rows.map(({ ratio }) => `${Number((ratio * 100).toPrecision(3))}%`));
    await page.getByRole('application').focus();
    await page.keyboard.press('Home');
    const spoken = page.getByRole('application').locator('[aria-live]');
    await expect.poll(() => spoken.textContent()).toMatch(/payment failed ÷ all events \d/);
    // A condition that is not counted has no ratio, and the chart says so.
    await open(`${WHOLE_DAY}&part=filter:country:DE`);
    await page.getByText('The ratio is not shown').waitFor();
    expect(await main.innerText()).toMatch(/^country:DE ÷ all events\s+–$/);
  });

  test('is saved under a name, which members find in the list and in the palette, and removed', async () => {
    await open(`${WHOLE_DAY}&mode=accumulated`);
    await page.getByRole('button', { name: /^Saved views/ }).click();
    await page.getByRole('button', { name: 'Save this view…' }).click();
    await page.getByLabel('Name').fill('A whole day');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    const views = page.getByRole('button', { name: /^Saved views/ });
    await expect.poll(() => views.innerText()).toContain('A whole day');

    const viewer = await newPerson(service, 'viewer@example.com');
    await owner.post(`/api/apps/${appId}/members`, { email: 'viewer@example.com', role: 'viewer' });
    const theirs = await visit(browser, service, viewer, { timezoneId: 'Asia/Tokyo' });
    await theirs.page.goto(`/apps/${appId}`);
    await theirs.page.getByRole('button', { name: /^Saved views/ }).click();
    expect(await theirs.page.getByRole('button', { name: /Save this view|Remove the view/ }).count()).toBe(0);
    await theirs.page.getByRole('link', { name: 'A whole day' }).click();
    await expect.poll(() => figure(theirs.page, 'In this range')).toBe(156);
    const query = new URL(theirs.page.url()).searchParams;
    expect([query.get('mode'), query.get('from'), query.get('tz')]).toEqual([
      'accumulated',
      `${DAY}T00:00:00Z`,
      'Asia/Tokyo',
    ]);
    expect(theirs.complaints).toEqual([]);
    await theirs.page.context().close();

    await page.goto(`/apps/${appId}/usage`);
    // Keys are heard once the session is known.
    await page.getByRole('heading', { level: 1, name: 'Shop' }).waitFor();
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Where to' }).fill('whole');
    await page.getByRole('option', { name: 'A whole day' }).waitFor();
    await page.keyboard.press('Enter');
    await expect.poll(() => parameter('mode')).toEqual(['accumulated']);
    await views.click();
    await page.getByRole('button', { name: 'Remove the view A whole day' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove the view' }).click();
    await expect.poll(() => views.innerText()).toContain('Views');
    expect(watched.complaints).toEqual([]);
  });

  test('shows what pipelines and members annotate, at its bar, in a list, until it is removed', async () => {
    const { loggingToken } = (await owner.get(`/api/apps/${appId}/logging-token`)).data;
    const body = JSON.stringify({ kind: 'deployment', text: 'Release 2.4.1', at: `${DAY}T06:20:00Z` });
    const headers = { Authorization: `Bearer ${loggingToken}` };
    expect((await service.request({ method: 'POST', path: '/v1/annotations', headers, body })).status).toBe(
      201,
    );
    await open(`${WHOLE_DAY}&at=${DAY}T12:00:00Z~${DAY}T12:15:00Z`);
    const list = page.getByRole('list', { name: 'Annotations' });
    await list.getByText('Release 2.4.1').waitFor();
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByRole('button', { name: 'Annotate…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Annotate the chart' });
    // The bar that is picked is proposed.
    expect(await dialog.getByLabel('When').inputValue()).toBe('10 Nov 2026, 12:00');
    await dialog.getByLabel('When').fill('10 Nov 2026 12:00 to 13:30');
    await dialog.getByLabel('What happened').fill('Outage of the shop');
    await dialog.getByLabel('Kind').selectOption('incident');
    await dialog.getByRole('button', { name: 'Add the annotation' }).click();
    await expect
      .poll(() => list.getByRole('listitem').allInnerTexts())
      .toEqual([
        expect.stringMatching(/Incident:\s+Outage of the shop.*12:00.*13:30/s),
        expect.stringMatching(/Deployment:\s+Release 2.4.1.*06:20/s),
      ]);
    const { annotations } = (await owner.get(`/api/apps/${appId}/annotations`)).data as {
      annotations: object[];
    }; // As the route declares it.
    expect(annotations[0]).toMatchObject({ at: `${DAY}T12:00:00.000Z`, until: `${DAY}T13:30:00.000Z` });
    // The pointer reads it at its bar.
    await page.mouse.move(...(await point(25.5 / 96)));
    await page.locator('.tooltip').getByText('06:20 Release 2.4.1').waitFor();
    await page.mouse.move(...(await point(28.5 / 96)));
    await expect.poll(() => page.locator('.tooltip .note').count()).toBe(0);
    await list.getByRole('button', { name: 'Remove the annotation Outage of the shop' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove the annotation' }).click();
    await expect.poll(() => list.getByRole('listitem').count()).toBe(1);
    expect(watched.complaints).toEqual([]);
  });

  test('leaves a type that is hidden out of chart, list, completion and files until it is asked for', async () => {
    await page.goto(`/apps/${appId}/types`);
    await page.getByRole('button', { name: 'Hide payment failed', exact: true }).click();
    await page.getByRole('row').filter({ hasText: 'payment failed' }).getByText('hidden').waitFor();
    expect(
      await page.getByRole('row').filter({ hasText: 'payment failed' }).locator('td').first().innerText(),
    ).toBe('12');
    await open(WHOLE_DAY);
    expect(await figure(page, 'In this range')).toBe(144);
    expect(await amount()).toBe('144 events');
    // Shares are of what is shown.
    expect(await page.locator('.legend .share').allInnerTexts()).toEqual(['100%', '']);
    expect(await page.locator('.event .type', { hasText: 'payment failed' }).count()).toBe(0);
    await page.getByRole('combobox', { name: 'Filter' }).fill('pay');
    await page.locator('.offers li').first().waitFor();
    expect(await page.locator('.offers li').allInnerTexts()).toEqual([
      expect.stringContaining('anywhere in the payload'),
      expect.stringContaining('also inside longer words'),
    ]);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Export the events' }).click();
    const files = page.getByRole('link', { name: 'As NDJSON' });
    const linesOf = async (): Promise<number> => {
      const href = (await files.getAttribute('href')) ?? '';
      const text = await page.evaluate((path) => fetch(path).then((answer) => answer.text()), href);
      return text.trim().split('\n').length;
    };
    expect(await linesOf()).toBe(144);
    await page.keyboard.press('Escape');
    // Values of a field, and what a condition on it leaves, are without it too.
    await page.getByRole('combobox', { name: 'Filter' }).fill('country:DE');
    await page.keyboard.press('Enter');
    await expect.poll(amount).toBe('48 events');
    await open(WHOLE_DAY);
    await page.getByRole('button', { name: 'Show hidden types' }).click();
    await expect.poll(amount).toBe('156 events');
    await page.locator('.event .type', { hasText: 'payment failed' }).first().waitFor();
    await page.getByRole('button', { name: 'Leave out hidden types' }).click();
    await expect.poll(amount).toBe('144 events');
    await page
      .getByRole('button', { name: /^payment failed \(hidden\)/ })
      .first()
      .click();
    await expect.poll(() => figure(page, 'In this range')).toBe(156);
    await expect.poll(amount).toBe('156 events');
    expect(parameter('hide')).toEqual(['hidden']);
    await page.reload();
    await expect.poll(() => figure(page, 'In this range')).toBe(156);
    // Where it is chosen it is shown.
    const failed = (await owner.get(`/api/apps/${appId}/types`)).data.types as {
      typeId: string;
      name: string;
    }[]; // As the route declares it.
    const typeId = failed.find(({ name }) => name === 'payment failed')?.typeId;
    await open(`${WHOLE_DAY}&type=${typeId}`);
    expect(await figure(page, 'In this range')).toBe(12);
    await page.goto(`/apps/${appId}/types`);
    await page.getByRole('button', { name: 'Show payment failed', exact: true }).click();
    await page.getByRole('button', { name: 'Hide payment failed', exact: true }).waitFor();
    await open(WHOLE_DAY);
    expect(await figure(page, 'In this range')).toBe(156);
    expect(watched.complaints).toEqual([]);
  });

  test('lists the events of a bar that is clicked, of all again, and of what is dragged over', async () => {
    await open(`${WHOLE_DAY}&compare=none`);
    expect(await amount()).toBe('156 events');
    await page.mouse.click(...(await point(8.5 / 96)));
    await expect.poll(() => parameter('at')).toEqual([`${DAY}T02:00:00Z~${DAY}T02:15:00Z`]);
    await expect.poll(listed).toBe(await countBetween(`${DAY}T02:00Z`, `${DAY}T02:15Z`));
    expect(await amount()).toBe('3 events');
    await page.reload();
    await expect.poll(listed).toBe(3);
    await page.getByRole('button', { name: 'Show the events of the whole range' }).click();
    await expect.poll(listed).toBeGreaterThan(3);

    await page.mouse.move(...(await point(16.2 / 96)));
    await page.mouse.down();
    await page.mouse.move(...(await point(27.8 / 96)), { steps: 4 });
    await page.mouse.up();
    await expect.poll(() => parameter('from')).toEqual([`${DAY}T04:00:00Z`]);
    await expect.poll(() => parameter('to')).toEqual([`${DAY}T07:00:00Z`]);
    await expect.poll(listed).toBe(await countBetween(`${DAY}T04:00Z`, `${DAY}T07:00Z`));
    await page.getByRole('button', { name: 'Back', exact: true }).click();
    await expect.poll(() => figure(page, 'In this range')).toBe(156);
  });

  test('lists the events of the bar under the pointer while it rests there', async () => {
    await open(`${WHOLE_DAY}&compare=none`);
    await page.mouse.move(...(await point(32.5 / 96)));
    await expect.poll(listed).toBe(3);
    await page.mouse.move(10, 10);
    await expect.poll(listed).toBe(50);
    expect(parameter('at')).toEqual([]);
  });

  test('filters by what is typed and completed, and by a value that is clicked, all of it in the address', async () => {
    await open(WHOLE_DAY);
    await page.locator('article').first().waitFor();
    const filter = page.getByRole('combobox', { name: 'Filter' });
    await filter.fill('coun');
    await page.getByRole('option', { name: /^Field\s*country/ }).click();
    await page.getByRole('option', { name: /^Is\s*country: FR/ }).waitFor();
    await page.keyboard.type('FR');
    await page.keyboard.press('Enter');
    await expect.poll(() => parameter('filter')).toEqual(['country:FR']);
    const french = await service.sql`
      SELECT 1 FROM events WHERE payload ->> 'country' = 'FR' AND created_at >= ${`${DAY}T00:00Z`}::timestamptz`;
    await expect.poll(amount).toBe(`${french.length} events`);
    await expect.poll(listed).toBe(50);

    await page.locator('article button').first().click();
    await page.locator('article').first().getByRole('button', { name: /^\d+$/ }).first().click();
    await page.getByRole('button', { name: 'Exclude' }).click();
    await expect.poll(() => parameter('filter')).toEqual(['country:FR', '-"n.o"==142']);
    await expect.poll(amount).toBe(`${french.length - 1} events`);
    await page.reload();
    await page.getByRole('button', { name: 'Remove the filter country:FR' }).waitFor();
    expect(await page.locator('.filter-bar .chip').count()).toBe(2);
    await page.getByRole('button', { name: 'Remove the filter country:FR' }).click();
    await page.getByRole('button', { name: 'Remove the filter -"n.o"==142' }).click();
    await expect.poll(amount).toBe('156 events');

    await filter.fill('order pl');
    await page.getByRole('option', { name: /^Type\s*order placed/ }).click();
    await expect.poll(amount).toBe('144 events');
    await filter.fill('"n.o":143');
    await page.getByRole('option', { name: /^Text/ }).click();
    await expect.poll(() => parameter('q')).toEqual(['"n.o":143']);
    await expect.poll(amount).toBe('1 event');
    // A word comes before a text, which is also found inside longer words.
    await filter.fill('n.o');
    await page.getByRole('option', { name: /^Word\s*n\.o/ }).waitFor();
    await filter.fill('"n.o":14');
    await page.getByRole('option', { name: /^Word/ }).click();
    await expect.poll(() => parameter('word')).toEqual(['"n.o":14']);
    expect(parameter('q')).toEqual([]);
    await expect.poll(amount).toBe('1 event');
    await page.getByText(/Read from [\d,]+ events? in [\d.]+ s/).waitFor();
    await owner.put(`/api/apps/${appId}/search`, { isOn: true });
    const lists = async (): Promise<number> =>
      (await owner.get(`/api/apps/${appId}/search`)).data.listedEvents as number;
    await expect.poll(lists).toBe(72 + 144 + 12);
    await open(`range=all&tz=UTC&word=${encodeURIComponent('"n.o":14')}`);
    await page
      .getByText(/Searched all of time in [\d.]+ s: lists of words named [\d,]+ events? to read/)
      .waitFor();
    expect(watched.complaints).toEqual([]);
  });

  test('takes a word for a type before a text, conditions as other tools write them, and says what it does not understand', async () => {
    await open(WHOLE_DAY);
    await page.locator('article').first().waitFor();
    const filter = page.getByRole('combobox', { name: 'Filter' });
    await filter.fill('payment');
    await page.getByRole('option', { name: /^Type\s*payment failed/ }).waitFor();
    await filter.press('Enter');
    await expect.poll(() => parameter('type').length).toBe(1);
    expect(parameter('q')).toEqual([]);
    await expect.poll(amount).toBe('12 events');
    await open(WHOLE_DAY);
    await filter.fill("country = 'DE' AND order.total >= 100");
    await filter.press('Enter');
    await expect.poll(() => parameter('filter')).toEqual(['country:"DE"', 'order.total>=100']);
    const [row] = await service.sql<{ count: number }[]>`
      SELECT count(*)::integer AS count FROM events
       WHERE payload ->> 'country' = 'DE' AND (payload #>> '{order,total}')::integer >= 100
         AND created_at >= ${`${DAY}T00:00Z`}::timestamptz AND created_at < ${`${DAY}T00:00Z`}::timestamptz + interval '1 day'`;
    await expect.poll(() => figure(page, 'In this range')).toBe(row?.count);
    await filter.fill('country:DE OR order.total:1');
    await page.getByRole('option', { name: /^Not understood\s*OR joins values of one field/ }).waitFor();
    await filter.press('Enter');
    expect(await filter.inputValue()).toBe('country:DE OR order.total:1');
    expect(parameter('q')).toEqual([]);
    await page.goto(`/apps/${appId}?range=banana&mode=pie`);
    await page.getByText('Not understood in this address, and left out: range=banana, mode=pie').waitFor();
    await page.getByText('24 hours').first().waitFor();
  });

  test('says of a search what was found so far, and gives no number of other events', async () => {
    const ends = `from=2026-10-01T00:00:00Z&to=2026-11-11T00:00:00Z&tz=UTC`;
    // As if the first part of it had come to the tenth of November, and the rest took long.
    const until = Date.parse(`${DAY}T00:00Z`);
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route(/\/scan\?/, async (route) => {
      const url = new URL(route.request().url());
      const cursor = url.searchParams.get('cursor');
      const isFirst = cursor === null;
      if (!isFirst && cursor !== 'x') return await route.continue();
      if (isFirst) url.searchParams.set('from', `${DAY}T00:00:00Z`);
      else {
        await held;
        url.searchParams.set('to', `${DAY}T00:00:00Z`);
        url.searchParams.delete('cursor');
      }
      const response = await route.fetch({ url: url.href });
      const { data } = (await response.json()) as { data: Record<string, unknown> };
      const whole = new URL(route.request().url());
      whole.searchParams.delete('cursor');
      const frame = (await (await route.fetch({ url: whole.href })).json()) as {
        data: { starts: number[]; end: number; interval: object; bucket: string };
      };
      const { starts, end, interval, bucket } = frame.data;
      const own = (data.starts as number[]) ?? [];
      const move = <T extends { at: number[] }>(column: T): T => ({
        ...column,
        at: column.at.map((index) => starts.findLastIndex((start) => start <= (own[index] ?? 0))),
      });
      const lines = (data.lines as { at: number[] }[]).map(move);
      const rest = move(data.rest as { at: number[] });
      const moved = { ...data, starts, end, interval, bucket, lines, rest };
      const next = isFirst ? { next: 'x', searchedUntil: until } : {};
      await route.fulfill({ response, json: { success: true, data: { ...moved, ...next } } });
    });
    const passing = async (from: string): Promise<number> => {
      const [row] = await service.sql<{ count: number }[]>`
        SELECT count(*)::integer AS count FROM events
         WHERE payload ->> 'country' IN ('DE', 'FR') AND created_at >= ${from}::timestamptz`;
      return row?.count ?? 0;
    };
    await open(`${ends}&by=country&filter=country:DE,FR&compare=none`);
    const part = await passing(`${DAY}T00:00Z`);
    await expect.poll(amount).toBe(`${part} found so far`);
    const main = page.locator('.main-figure');
    expect(await main.locator('dt').innerText()).toBe('Found so far');
    expect(await main.locator('dd').innerText()).toMatch(new RegExp(`^${part}\\+`));
    // The lines are of all events: without numbers, shares, or what they are compared with.
    await page.locator('.chart-side').getByText('All events, before the filter').waitFor();
    expect(await page.locator('.legend .line').allInnerTexts()).toEqual(['order placed', 'payment failed']);
    await page.mouse.move(...(await point(40.5 / 41)));
    await page.locator('.tooltip').getByText('All, before the filter').waitFor();
    expect(await page.locator('.tooltip .dashes').count()).toBe(0);
    await page.mouse.move(10, 10);
    // What the lines are is what is chosen, and why it is not what was asked for.
    expect(await page.getByLabel('Break down by').inputValue()).toBe('');
    await page.getByText(/^Not broken down by country yet/).waitFor();
    const progress = await page.locator('.search-progress [role=status]').innerText();
    const [, looked, all] = /about (\d+) of (\d+) events/.exec(progress) ?? [];
    expect(Number(all)).toBe(await countBetween('2026-10-01T00:00Z', '2026-11-11T00:00Z'));
    expect(Number(looked)).toBe(await countBetween(`${DAY}T00:00Z`, '2026-11-11T00:00Z'));
    // It is stopped, and goes on from there.
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    const goOn = page.getByRole('button', { name: 'Search the whole range' });
    await goOn.waitFor();
    release();
    expect(await main.locator('dd').innerText()).toMatch(new RegExp(`^${part}\\+`));
    await goOn.click();
    const found = await passing('2026-10-01T00:00Z');
    await expect.poll(() => figure(page, 'In this range')).toBe(found);
    await expect.poll(amount).toBe(`${found} events`);
    expect(await page.getByLabel('Break down by').inputValue()).toBe('country');
    await page.unrouteAll();
  });

  test('never shows old numbers under a new label', async () => {
    await open(`${WHOLE_DAY}`);
    await page.route('**/api/**', (route) => route.abort());
    await page.getByRole('button', { name: /^Time range/ }).click();
    await page.getByRole('button', { name: '7 d', exact: true }).click();
    await page.getByText(/^Not up to date: these are the numbers of 10 Nov 2026, 00:00/).waitFor();
    await expect
      .poll(() => page.locator('.stale.failed').evaluate((element) => getComputedStyle(element).opacity))
      .toBe('0.35');
    expect(await page.getByRole('alert').filter({ hasText: 'cannot be reached' }).count()).toBeGreaterThan(0);
    await page.unroute('**/api/**');
    await page.getByRole('button', { name: 'Try again' }).first().click();
    await expect.poll(() => page.locator('.stale').count()).toBe(0);
  });

  test('picks a range in words, of days, and by the preset that has the focus', async () => {
    await open('range=7d&tz=UTC');
    const button = page.getByRole('button', { name: /^Time range/ });
    await button.click();
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('7 d');
    const words = page.getByLabel('Time range in words');
    await words.fill('10 Nov 2026 09:00 to 2026-11-10 10:30');
    await page.getByText('10 Nov 2026, 09:00–10:30, in UTC').waitFor();
    await words.press('Enter');
    await expect.poll(() => parameter('to')).toEqual([`${DAY}T10:30:00Z`]);
    await expect
      .poll(() => figure(page, 'In this range'))
      .toBe(await countBetween(`${DAY}T09:00Z`, `${DAY}T10:30Z`));
    await button.click();
    await page.getByRole('button', { name: '9 Nov 2026', exact: true }).click();
    await page.getByRole('button', { name: '10 Nov 2026', exact: true }).click();
    await expect.poll(() => parameter('from')).toEqual([`${DAY_BEFORE}T00:00:00Z`]);
    await expect.poll(() => parameter('to')).toEqual(['2026-11-11T00:00:00Z']);
    await page.getByRole('button', { name: 'Go live' }).click();
    await expect.poll(() => parameter('range')).toEqual(['7d']);
  });

  test('steps back from now, and forth to live', async () => {
    await open('range=today&tz=Europe/Berlin');
    const next = page.getByRole('button', { name: 'Next period' });
    expect(await next.isDisabled()).toBe(true);
    await page.getByRole('button', { name: 'Previous period' }).click();
    await expect.poll(() => parameter('back')).toEqual(['today']);
    await next.click();
    await expect.poll(() => parameter('range')).toEqual(['today']);
    await page.getByRole('button', { name: 'Live', exact: true }).waitFor();
  });

  test('opens an event with its exact time, and the ones beside it', async () => {
    await open(WHOLE_DAY);
    const row = page.locator('article').nth(1);
    await row.getByRole('button').first().click();
    // All of it is there, so that nothing else has to be opened for it.
    await row.getByText(/10 Nov 2026, \d\d:\d\d:00\.000 UTC/).waitFor();
    await row.getByRole('button', { name: 'Copy the event identifier' }).waitFor();
    await row.getByRole('button', { name: 'Copy link' }).click();
    await page.goto(await clipboard(page));
    const sheet = page.getByRole('dialog', { name: 'Event' });
    await sheet.getByText(/10 Nov 2026, \d\d:\d\d:00\.000 UTC/).waitFor();
    const first = parameter('event')[0];
    await sheet.getByRole('button', { name: 'Older' }).click();
    await expect.poll(() => parameter('event')[0]).not.toBe(first);
    await sheet.getByRole('button', { name: 'Newer' }).click();
    await expect.poll(() => parameter('event')[0]).toBe(first);
    await page.keyboard.press('Escape');
    await sheet.waitFor({ state: 'detached' });
  });

  test('has fields as columns, in the address and remembered', async () => {
    await open(WHOLE_DAY);
    await page.locator('article').first().waitFor();
    await page.getByRole('button', { name: /^Columns/ }).click();
    await page.getByRole('checkbox', { name: 'order.total' }).check();
    await page.getByRole('checkbox', { name: 'country' }).check();
    await expect.poll(() => parameter('column')).toEqual(['order.total', 'country']);
    const cells = (): Promise<string[]> => page.locator('article').first().locator('.cell').allInnerTexts();
    await expect.poll(cells).toEqual(['143', 'IT']);
    await open(WHOLE_DAY);
    await expect.poll(cells).toEqual(['143', 'IT']);
    await page.getByRole('button', { name: /^Columns/ }).click();
    await page.getByRole('checkbox', { name: 'country' }).uncheck();
    await page.getByRole('checkbox', { name: 'order.total' }).uncheck();
    await open(WHOLE_DAY);
    await page.locator('article').first().waitFor();
    expect(await cells()).toEqual([]);
  });

  test('saves what is shown as CSV and as a picture', async () => {
    await open(WHOLE_DAY);
    await page.getByRole('button', { name: /^Chart options/ }).click();
    const saved = async (role: 'button' | 'link', name: string): Promise<{ name: string; bytes: Buffer }> => {
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole(role, { name }).click(),
      ]);
      return {
        name: download.suggestedFilename(),
        bytes: await buffer(await download.createReadStream()),
      };
    };
    const csv = await saved('button', 'Counts as CSV');
    expect(csv.name).toBe('shop-2026-11-10t00-00-2026-11-11t00-00.csv');
    const rows = csv.bytes.toString().trim().split('\r\n');
    expect(rows[0]).toBe('start,end,"order placed","payment failed"');
    const sums = rows.slice(1).map((row) => row.split(',').slice(2).map(Number));
    expect(sums.flat().reduce((sum, value) => sum + value, 0)).toBe(156);
    const picture = await saved('button', 'Picture (PNG)');
    expect(picture.bytes.subarray(1, 4).toString()).toBe('PNG');
    expect(picture.bytes.length).toBeGreaterThan(5_000);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /^Export the events/ }).click();
    const { bytes } = await saved('link', 'As NDJSON');
    const lines = bytes.toString().trim().split('\n');
    expect(lines.length).toBe(156);
    expect(JSON.parse(lines[0] ?? '').createdAt).toBe(`${DAY}T00:00:00.000Z`);
    await open(`${WHOLE_DAY}&column=country`);
    await page.getByRole('button', { name: /^Export the events/ }).click();
    const shown = await saved('link', 'As CSV');
    expect(shown.name).toBe(`Shop_${DAY}.csv`);
    expect(shown.bytes.toString()).toMatch(
      /^id,typeId,type,createdAt,"country",payload\r\n[^\r]+Z,"[A-Z]{2}","\{/,
    );
    expect(watched.complaints).toEqual([]);
  });

  test('cuts no label off', async () => {
    const { page: own } = await visit(browser, service, owner);
    await own.addInitScript(() => {
      const { fillText } = CanvasRenderingContext2D.prototype;
      Reflect.set(window, 'labels', []);
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const half = this.measureText(text).width / (this.textAlign === 'center' ? 2 : 1);
        const ends = this.textAlign === 'right' ? x : x + half;
        Reflect.get(window, 'labels').push([text, ends <= this.canvas.width && x - half >= 0]);
        fillText.call(this, text, x, y);
      };
    });
    for (const query of [
      'range=24h',
      'range=7d',
      WHOLE_DAY,
      `from=${DAY}T00:00:00Z&to=${DAY}T23:59:00Z&buckets=1000`,
    ]) {
      await own.goto(`/apps/${appId}?${query}`);
      await own.locator('.plot .over').waitFor();
      const labels = (await own.evaluate('window.labels')) as [string, boolean][]; // As it is filled above.
      expect(labels.length).toBeGreaterThan(4);
      expect(labels.filter(([, isWhole]) => !isWhole)).toEqual([]);
    }
    await own.context().close();
  });

  test('tells lines apart in forced colors', async () => {
    const { page: own } = await visit(browser, service, owner, { forcedColors: 'active' });
    await own.goto(`/apps/${appId}?${WHOLE_DAY}`);
    const swatches = own.locator('.legend .swatch');
    await swatches.nth(1).waitFor();
    const grounds = await swatches.evaluateAll((all) =>
      all.map(
        (swatch) => `${getComputedStyle(swatch).backgroundColor} ${getComputedStyle(swatch).backgroundImage}`,
      ),
    );
    expect(new Set(grounds).size).toBe(2);
    await own.context().close();
  });

  test('draws what arrives one by one about once a second', async () => {
    const live = await newOwnApp(owner, 'Live');
    const post = (n: number) =>
      service.post({ loggingToken: live.loggingToken, typeId: undefined, typeName: 'tick', payload: { n } });
    await post(0);
    await page.goto(`/apps/${live.appId}?range=15m&tz=UTC`);
    await page.locator('article').first().waitFor();
    await page.evaluate(() => {
      const times: number[] = [];
      Reflect.set(window, 'drawn', times);
      new MutationObserver((changes) => {
        const isDrawn = changes.some(({ addedNodes }) =>
          [...addedNodes].some(({ nodeName }) => nodeName === 'ARTICLE'),
        );
        if (isDrawn) times.push(performance.now());
      }).observe(document.querySelector('.event-list') ?? document, { childList: true, subtree: true });
    });
    const begun = Date.now();
    for (let n = 1; n <= 40; n += 1) {
      await post(n);
      await page.waitForTimeout(100);
    }
    await page.locator('article').nth(40).waitFor();
    const seconds = (Date.now() - begun) / 1_000;
    const drawn = (await page.evaluate(() => Reflect.get(window, 'drawn'))) as number[];
    expect(drawn.length).toBeLessThanOrEqual(seconds + 3);
  });
});
