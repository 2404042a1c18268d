/** How numbers are distributed over time: cells, boxes, boards and files, against SQL. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { text } from 'node:stream/consumers';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { BoardList } from '../../src/api-types/answers.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { visit } from './visitor.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const HOUR_MS = 3_600_000;
const HOURS = 48;
const PER_HOUR = 40;
/** Hours from the end in which the slow ones are. */
const SLOW = [20, 24] as const;
const SOON = { timeout: patient(20_000) };

describe.skipIf(withoutBrowser !== '')('a chart of a distribution', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;
  let path: string;
  let [from, to] = ['', ''];
  /** Hours before the end as an instant. */
  const before = (hours: number): string => new Date(Date.parse(to) - hours * HOUR_MS).toISOString();

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    ({ appId, path } = await newOwnApp(owner));
    for (const [field, kind] of [
      ...(['latency', 'balance', 'same', 'narrow'] as const).map((name) => [name, 'number'] as const),
      ...(['country', 'plan'] as const).map((name) => [name, 'value'] as const),
    ])
      await owner.post(`${path}/declared-fields`, { path: field, kind, backfill: true });
    const end = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
    to = new Date(end).toISOString();
    from = before(HOURS);
    const [requests, reports] = await Promise.all(
      ['request', 'report'].map((name) => createEventType(service.sql, { appId, name, maxTypes: 10 })),
    );
    const events = Array.from({ length: HOURS * PER_HOUR }, (_, n) => {
      const hours = (HOURS * PER_HOUR - n) / PER_HOUR;
      const isSlow = hours > SLOW[0] && hours <= SLOW[1] && n % 2 === 0;
      const spread = Math.exp((((n * 7919) % 1009) / 1009 - 0.5) * 3);
      const payload = {
        latency: isSlow ? 2_000 + (n % 700) : Number((60 * spread).toFixed(2)),
        // Both signs, and 0.
        balance: n % 10 === 0 ? 0 : ((n * 31) % 2_001) - 1_000,
        same: 7,
        narrow: 20 + ((n * 13) % 100) / 10,
        country: isSlow ? 'DE' : ['FR', 'US', 'NL', 'DE'][n % 4],
        plan: ['free', 'pro'][n % 2],
      };
      const typeId = (isSlow ? reports : requests)?.typeId ?? '';
      return {
        typeId,
        at: new Date(end - hours * HOUR_MS + 1_000).toISOString(),
        payload: JSON.stringify(payload),
      };
    });
    for (const { typeId = '' } of [requests, reports].flatMap((type) => type ?? []))
      await addPastEvents(
        service,
        typeId,
        events.filter((event) => event.typeId === typeId),
      );
    await until(
      async () => {
        const { fields } = (await owner.get(`${path}/declared-fields`)).data as {
          fields: { completeFrom: string | null; backfill: boolean }[];
        };
        return fields.every(({ completeFrom, backfill }) => completeFrom !== null && !backfill);
      },
      'the fields are counted',
      60_000,
    );
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

  const open = async (query: string): Promise<void> => {
    await page.goto(`/apps/${appId}?from=${from}&to=${to}&tz=UTC${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
    await page.locator('.strengths li').first().waitFor();
  };
  const stored = async (condition: string): Promise<number> => {
    const [row] = await service.sql<{ count: number }[]>`
      SELECT count(*)::int AS count FROM events
       WHERE created_at >= ${from} AND created_at < ${to} AND ${service.sql.unsafe(condition)}`;
    return row?.count ?? -1;
  };
  const number = (field: string): string => `(payload->>'${field}')::numeric`;

  test('has every number in its cell, by the edges that its file tells, as SQL counts them', async () => {
    for (const field of ['latency', 'balance', 'narrow', 'same']) {
      await open(`&of=${field}&stat=histogram&width=3h&table=1`);
      await page.getByRole('button', { name: /^Chart options/ }).click();
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: 'Counts as CSV' }).click(),
      ]);
      const read = await file.createReadStream();
      const [head = '', ...rows] = (await text(read)).trim().split('\r\n');
      const names = head.split(',').map((cell) => cell.replaceAll('"', ''));
      expect(names.slice(0, 5)).toEqual([
        'start',
        'end',
        'Events with a number',
        'Median',
        '99th percentile',
      ]);
      const bins = names
        .slice(5)
        .map((name) => / ([-\d.e+]+) to ([-\d.e+]+)$/.exec(name)?.slice(1).map(Number));
      expect(bins.length, field).toBeGreaterThan(field === 'same' ? 0 : 10);
      let counted = 0;
      for (const row of rows) {
        const [start, end, all, , , ...counts] = row.split(',');
        const numbers = await service.sql<{ value: number }[]>`
          SELECT ${service.sql.unsafe(number(field))}::float8 AS value FROM events
           WHERE created_at >= ${start ?? ''} AND created_at < ${end ?? ''}`;
        const expected = bins.map(
          ([low = 0, high = 0] = []) =>
            numbers.filter(({ value }) =>
              low < 0 ? low <= value && value < high : (low < value || low === 0) && value <= high,
            ).length,
        );
        expect(counts.map(Number), `${field} ${start}`).toEqual(expected);
        expect(Number(all)).toBe(numbers.length);
        counted += expected.reduce((sum, value) => sum + value, 0);
      }
      expect(counted, field).toBe(HOURS * PER_HOUR);
      await page.keyboard.press('Escape');
    }
    expect(watched.complaints).toEqual([]);
  });

  test('asks what is different in a box, and lists its events', async () => {
    await open('&of=latency&stat=histogram&width=1h');
    const plot = await page.locator('.plot .over').boundingBox();
    if (plot === null) throw new Error('The chart is not shown.');
    const at = (hours: number): number => plot.x + (plot.width * (HOURS - hours)) / HOURS;
    await page.mouse.move(at(SLOW[1] - 0.5), plot.y + 2);
    await page.mouse.down();
    await page.mouse.move(at(SLOW[0] + 0.5), plot.y + plot.height * 0.15, { steps: 5 });
    await page.mouse.up();
    const sheet = page.getByRole('dialog', { name: 'What is different?' });
    const german = sheet.locator('.explain li', { hasText: 'country: DE' });
    await german.waitFor();
    const [, low = ''] = /values=(\d+)~(?:&|$)/.exec(page.url()) ?? [];
    // An end that reads well: three digits at most.
    expect(low).toMatch(/^[1-9]\d{0,2}0*$/);
    const inBox = `${number('latency')} >= ${low} AND created_at >= '${before(SLOW[1])}' AND created_at < '${before(SLOW[0])}'`;
    const events = await stored(inBox);
    expect(events).toBe((SLOW[1] - SLOW[0]) * (PER_HOUR / 2));
    const bars = german.locator('.explain-bar');
    expect(await bars.first().innerText()).toContain(String(events));
    expect(await bars.nth(1).innerText()).toContain(
      String((await stored(`payload->>'country' = 'DE'`)) - events),
    );
    expect(await sheet.innerText()).not.toContain('latency:');
    await sheet.locator('.explain li', { hasText: 'type: report' }).getByText('only here').waitFor();
    await page.keyboard.press('Escape');
    const found = page.locator('.list-head', { hasText: / found/ });
    await found.waitFor();
    await expect
      .poll(async () => {
        await page.mouse.wheel(0, 5_000);
        return await found.innerText();
      }, SOON)
      .toContain(`${events} found`);
    // A reload shows the same, and the box ends.
    await page.reload();
    await page.locator('.band.picked').waitFor();
    await page.locator('.list-head .chip', { hasText: `latency >= ${low}` }).waitFor();
    await page.getByRole('button', { name: 'Zoom in' }).click();
    await expect.poll(() => page.url(), SOON).toContain(`from=${before(SLOW[1]).slice(0, 16)}`);
    await page.goBack();
    await page.getByRole('button', { name: 'Clear the box' }).click();
    await page
      .locator('.list-head', { hasText: `${(HOURS * PER_HOUR).toLocaleString('en')} events` })
      .waitFor();
    expect(page.url()).not.toContain('values=');
    expect(watched.complaints).toEqual([]);
  });

  test('takes an upright box within one bucket', async () => {
    await open('&of=latency&stat=histogram&width=3h');
    const plot = await page.locator('.plot .over').boundingBox();
    if (plot === null) throw new Error('The chart is not shown.');
    const x = plot.x + plot.width / 2;
    await page.mouse.move(x, plot.y + 5);
    await page.mouse.down();
    await page.mouse.move(x + 1, plot.y + plot.height / 2, { steps: 5 });
    await page.mouse.up();
    await page.getByRole('dialog', { name: 'What is different?' }).waitFor();
    const [, start = '', end = ''] = /at=([^~]+)~([^&]+)/.exec(page.url()) ?? [];
    expect(Date.parse(end) - Date.parse(start)).toBe(3 * HOUR_MS);
    await page.keyboard.press('Escape');
  });

  test('takes a box from a finger that has rested, and lets another one scroll', async () => {
    const { page: phone, complaints } = await visit(browser, service, owner, {
      ...{ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true },
    });
    const fingers = await phone.context().newCDPSession(phone);
    await phone.goto(`/apps/${appId}?from=${from}&to=${to}&tz=UTC&of=latency&stat=histogram`);
    await phone.locator('.strengths li').first().waitFor();
    const plot = await phone.locator('.plot .over').boundingBox();
    if (plot === null) throw new Error('The chart is not shown.');
    const touch = async (type: 'touchStart' | 'touchMove' | 'touchEnd', ...at: number[][]): Promise<void> => {
      const touchPoints = at.map(([x = 0, y = 0], id) => ({
        ...{ x: plot.x + x * plot.width, y: plot.y + y * plot.height, id },
      }));
      await fingers.send('Input.dispatchTouchEvent', { type, touchPoints });
    };
    const scrolled = (): Promise<number> => phone.evaluate(() => scrollY);
    await touch('touchStart', [0.3, 0.9]);
    await phone.locator('.selection').waitFor();
    for (const step of [0.8, 0.6, 0.4, 0.2]) await touch('touchMove', [1 - step, step]);
    await touch('touchEnd');
    await phone.getByRole('dialog', { name: 'What is different?' }).waitFor();
    expect(await scrolled()).toBe(0);
    const url = new URL(phone.url());
    expect(url.searchParams.get('values')).toMatch(/\d/);
    const [first = 0, last = 0] = url.searchParams.get('at')?.split('~').map(Date.parse) ?? [];
    expect((last - first) / HOUR_MS).toBeGreaterThan(HOURS * 0.4);
    // The range has not moved.
    expect(Date.parse(url.searchParams.get('from') ?? '')).toBe(Date.parse(from));
    await phone.keyboard.press('Escape');
    await phone.getByRole('button', { name: 'Clear the box' }).click();
    await touch('touchStart', [0.5, 0.9]);
    for (const step of [0.7, 0.5, 0.3, 0.1, -0.2]) await touch('touchMove', [0.5, step]);
    await touch('touchEnd');
    await expect.poll(scrolled, SOON).toBeGreaterThan(0);
    expect(phone.url()).not.toContain('values=');
    expect(complaints).toEqual([]);
    await phone.close();
  });

  test('has a table whose times stay in sight on a phone', async () => {
    const { page: phone, complaints } = await visit(browser, service, owner, {
      viewport: { width: 390, height: 844 },
    });
    await phone.goto(`/apps/${appId}?from=${from}&to=${to}&tz=UTC&of=latency&stat=histogram&table=1`);
    const region = phone.locator('.chart-table .scroll');
    const time = region.locator('tbody th').first();
    await time.waitFor();
    await region.evaluate((element) => element.scrollTo({ left: 600 }));
    const [box, frame] = [await time.boundingBox(), await region.boundingBox()];
    expect(box?.x).toBeCloseTo(frame?.x ?? -1, 0);
    expect(box?.width).toBeLessThan((frame?.width ?? 0) / 2);
    expect(complaints).toEqual([]);
    await phone.close();
  });

  test('has no violations of accessibility, with a box and its table, in both themes', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await open(
        `&of=latency&stat=histogram&width=12h&table=1&at=${before(SLOW[1])}~${before(SLOW[0])}&values=1000~`,
      );
      await page.locator('.chart-table').waitFor();
      await page.evaluate(AXE);
      const { violations } = await page.evaluate<{ violations: { id: string }[] }>('axe.run()');
      expect(violations.map(({ id }) => id)).toEqual([]);
    }
    await page.emulateMedia({ colorScheme: 'light' });
  });

  test('is read, selected and asked about by keyboard', async () => {
    await open('&of=latency&stat=histogram&width=1h');
    const plot = page.locator('.plot');
    const spoken = plot.locator('[aria-live]');
    await plot.focus();
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => spoken.innerText(), SOON).toMatch(/[\d.]+ – [\d.]+: \d+, 40 in all/);
    const first = await spoken.innerText();
    await page.keyboard.press('ArrowUp');
    await expect.poll(() => spoken.innerText(), SOON).not.toBe(first);
    await page.keyboard.press('ArrowDown');
    await expect.poll(() => spoken.innerText(), SOON).toBe(first);
    await page.keyboard.press('Space');
    await page.locator('.band.picked').waitFor();
    expect(page.url()).toMatch(/values=\d/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.locator('.band.picked').waitFor({ state: 'hidden' });
    await page.keyboard.press('ArrowLeft');
    for (const key of ['ArrowLeft', 'ArrowUp', 'ArrowUp']) await page.keyboard.press(`Shift+${key}`);
    await expect.poll(() => spoken.innerText(), SOON).toContain('selected');
    await page.keyboard.press('Space');
    await page.getByRole('dialog', { name: 'What is different?' }).waitFor();
    await page.keyboard.press('Escape');
    const span = Number(
      /at=([^~]+)~([^&]+)/
        .exec(page.url())
        ?.slice(1)
        .map(Date.parse)
        .reduce((a, b) => b - a),
    );
    expect(span).toBe(2 * HOUR_MS);
    expect(watched.complaints).toEqual([]);
  });

  test('says why it has nothing: no numbers, no field, or no way to draw it', async () => {
    const told = async (query: string, text: string): Promise<void> => {
      await page.goto(`/apps/${appId}?${query}&tz=UTC&stat=histogram`);
      await page.locator('.chart-card', { hasText: text }).waitFor();
    };
    await told('from=2020-01-01&to=2020-02-01&of=latency', 'No event of this range has a number in latency.');
    await told(
      `from=${from}&to=${to}&of=missing`,
      'missing is not shown: no event of this range has a number in missing.',
    );
    await page.route(/heatmap-/, (route) => route.abort());
    await told(
      `from=${from}&to=${to}&of=latency`,
      'latency is not shown: the server cannot be reached, or was updated',
    );
    await page.unroute(/heatmap-/);
    await open('&of=latency&stat=histogram');
  });

  test('is chosen in the menu of measures, and is on boards and shares', async () => {
    await page.goto(`/apps/${appId}?from=${from}&to=${to}&tz=UTC`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
    await page.getByRole('button', { name: /^What the chart shows/ }).click();
    await page.getByLabel('Statistic').selectOption('Distribution');
    await page.getByLabel('of the field').selectOption('latency');
    await page.getByRole('button', { name: 'Show the statistic' }).click();
    await page.locator('.strengths li').first().waitFor();
    expect(page.url()).toContain('of=latency&stat=histogram');
    const searches = ['of=latency&stat=histogram&range=48h', 'of=balance&stat=histogram&range=48h'];
    const viewIds = [];
    for (const [index, search] of searches.entries())
      viewIds.push((await owner.post(`${path}/views`, { name: `View ${index}`, search })).data.viewId);
    expect((await owner.post(`${path}/boards`, { name: 'Morning', viewIds })).status).toBe(201);
    await page.goto(`/apps/${appId}/boards?tz=UTC`);
    await expect.poll(() => page.locator('.board-chart .strengths').count(), SOON).toBe(2);
    const { boards } = (await owner.get(`${path}/boards`)).data as unknown as BoardList;
    const { data } = await owner.post(`${path}/shares`, {
      ...{ boardId: boards[0]?.boardId, range: 'views', timezone: 'UTC', filters: [], expiresInDays: 7 },
    });
    const { page: strange, complaints } = await visit(browser, service, null);
    await strange.goto(new URL(String(data.url)).pathname);
    await expect.poll(() => strange.locator('.board-chart .strengths').count(), SOON).toBe(2);
    expect(complaints).toEqual([]);
    await strange.close();
    expect(watched.complaints).toEqual([]);
  });
});
