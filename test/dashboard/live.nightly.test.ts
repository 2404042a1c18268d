/** The live mode in a browser: the chart and the list move, a pause keeps the place and counts, a lost server comes back. */
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Browser, Page, Request } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { freePort } from '../support/cluster.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { figure, visit } from './visitor.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Folder for pictures of the pages, for whoever wants to look at them. */
const PICTURES = process.env.PICTURES ?? '';

/** Waits with the patience that a busy machine needs: how quick the feed itself is, test/live measures. */
const expectSoon = <T>(value: () => T | Promise<T>) => expect.poll(value, { timeout: patient(15_000) });

describe.skipIf(withoutBrowser !== '')('the live mode', { timeout: patient(120_000) }, () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let app: { appId: string; loggingToken: string; path: string };
  let watched: Watched;
  let page: Page;
  let sent = 0;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });
  beforeEach(async () => {
    await page?.context().close();
    app = await newOwnApp(owner);
    sent = 0;
    await post(3, 'order placed');
    watched = await visit(browser, service, owner);
    page = watched.page;
  });

  /** Posts events with the running number as payload. */
  async function post(count: number, typeName = 'order placed'): Promise<void> {
    for (let posted = 0; posted < count; posted += 1) {
      sent += 1;
      const response = await service.post({
        loggingToken: app.loggingToken,
        typeId: undefined,
        typeName,
        payload: { n: sent },
      });
      expect(response.status).toBe(201);
    }
  }

  const open = async (tab: '' | '/events', query = 'range=1h&tz=UTC'): Promise<void> => {
    const following = page.waitForRequest((request) => request.url().includes('/live'));
    await page.goto(`/apps/${app.appId}${tab}?${query}`);
    await following;
    if (tab === '') await expectSoon(() => figure(page, 'In this range')).toBe(sent);
    else await expectSoon(() => numbers()).toEqual(descending(sent));
  };
  /** What is posted from here on finds it paused: a busy page may hear of an event before it has drawn a click. */
  const pause = async (): Promise<void> => {
    await page.getByRole('button', { name: 'Live', exact: true }).click();
    // With what is new and not in the chart yet.
    await page.getByRole('button', { name: /^Paused/ }).waitFor();
  };
  const numbers = async (): Promise<number[]> => {
    const texts = await page.locator('article code').allTextContents();
    return texts.map((text) => Number(/"n":(\d+)/.exec(text)?.[1]));
  };
  const descending = (from: number, to = 1): number[] =>
    Array.from({ length: from - to + 1 }, (_, index) => from - index);
  const picture = async (name: string): Promise<void> => {
    if (PICTURES === '') return;
    mkdirSync(PICTURES, { recursive: true });
    await page.screenshot({ path: join(PICTURES, `${name}.png`) });
  };
  const expectAccessible = async (): Promise<void> => {
    await page.evaluate(AXE);
    const violations = await page.evaluate(async () => {
      const { axe } = globalThis as unknown as {
        axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
      };
      const result = await axe.run();
      return result.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
    });
    expect(violations).toEqual([]);
  };

  test('the chart moves with what is committed, and with what another type adds', async () => {
    await open('');
    await post(4);
    await expectSoon(() => figure(page, 'In this range')).toBe(7);
    await post(2, 'user signed in');
    await page.getByRole('button', { name: /^user signed in/, pressed: false }).waitFor();
    await page.getByRole('button', { name: 'Hide user signed in in the chart' }).waitFor();
    await expectSoon(() => figure(page, 'In this range')).toBe(9);
    await page
      .locator('.app-head')
      .getByText(/^\s*9 events/)
      .waitFor();
    await expectAccessible();
    await picture('chart-live-light');
    expect(watched.complaints).toEqual([]);
  });

  test('the numbers under the pointer move too, and stay under it', async () => {
    await open('', 'range=15m&tz=UTC');
    const box = await page.locator('.plot .over').boundingBox();
    const { x, y, width } = box ?? { x: 0, y: 0, width: 0 };
    await page.mouse.move(x + width - 12, y + 60);
    await page.locator('.tooltip .total').waitFor();
    await post(5);
    await expectSoon(() => figure(page, 'In this range')).toBe(8);
    expect(await page.locator('.tooltip .total').isVisible()).toBe(true);
  });

  test('a paused chart keeps its numbers and counts what is new; going on shows it', async () => {
    await open('');
    await pause();
    await post(3);
    await post(1, 'user signed in');
    await page.getByRole('button', { name: 'Paused · 4 new' }).waitFor();
    expect(await figure(page, 'In this range')).toBe(3);
    expect(await page.getByRole('status').filter({ hasText: 'There are new events' }).count()).toBe(1);
    await picture('chart-paused-light');
    await page.getByRole('button', { name: 'Paused · 4 new' }).click();
    await expectSoon(() => figure(page, 'In this range')).toBe(7);
    await page.getByRole('button', { name: 'Live', exact: true }).waitFor();
  });

  test('a list that is read keeps its place: scrolled down, or with an event open', async () => {
    await post(60);
    await open('/events', 'range=1h&tz=UTC').catch(() => undefined); // The second page comes when it is scrolled to.
    await page.locator('article').nth(40).waitFor();
    await page.mouse.move(600, 600);
    await page.mouse.wheel(0, 700);
    await page.waitForFunction(() => scrollY > 500);
    const place = await page.evaluate(() => scrollY);
    await post(2);
    const pill = page.getByRole('button', { name: '2 new events' });
    await pill.waitFor();
    expect(await pill.evaluate((element) => element.getBoundingClientRect().top >= 0)).toBe(true);
    await picture('events-scrolled-light');
    expect(await page.evaluate(() => scrollY)).toBe(place);
    await pill.click();
    await expectSoon(async () => (await numbers())[0]).toBe(sent);
    expect(await page.evaluate(() => scrollY)).toBe(0);

    await page.locator('article button').first().click();
    await post(1);
    await page.getByRole('button', { name: '1 new event' }).waitFor();
    expect((await numbers())[0]).toBe(sent - 1);
  });

  test('a lost feed is said, comes back by itself, and nothing is missing then', async () => {
    await page.route('**/live?*', (route) => route.abort());
    await open('/events');
    await page.getByRole('button', { name: 'Reconnecting…' }).waitFor();
    await picture('events-lost-light');
    await post(2);
    await page.unroute('**/live?*');
    await expectSoon(numbers).toEqual(descending(5));
    await page.getByRole('button', { name: 'Live', exact: true }).waitFor();
  });

  test('a page goes on with the server that takes the place of its own', async () => {
    const settings = { database: service.database, config: { PORT: await freePort() } };
    const first = await startTestService(settings);
    const visitor = await visit(browser, first, owner);
    const rows = visitor.page.locator('article code');
    const shown = async (): Promise<number> => (await rows.allTextContents()).length;
    await visitor.page.goto(`/apps/${app.appId}/events?range=1h&tz=UTC`);
    await expectSoon(shown).toBe(3);
    await post(1);
    await expectSoon(shown).toBe(4);
    await first.stop();
    await visitor.page.getByRole('button', { name: 'Reconnecting…' }).waitFor();
    await post(2);
    const second = await startTestService(settings);
    try {
      await expectSoon(shown).toBe(6);
      await visitor.page.getByRole('button', { name: 'Live', exact: true }).waitFor();
      await post(1);
      await expectSoon(shown).toBe(7);
    } finally {
      await visitor.page.context().close();
      await second.stop();
    }
  });

  test('a tab that nobody looks at gives its connection back, and catches up when it is seen again', async () => {
    await page.clock.install();
    await open('/events');
    const turn = (hidden: boolean): Promise<void> =>
      page.evaluate((value) => {
        Object.defineProperty(document, 'hidden', { value, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      }, hidden);
    const isLive = (request: Request): boolean => request.url().includes('/live');
    const ended = Promise.race([
      page.waitForEvent('requestfailed', isLive),
      page.waitForEvent('requestfinished', isLive),
    ]);
    await turn(true);
    await page.clock.fastForward(11_000);
    await ended;
    await post(2);
    const opened = page.waitForRequest(isLive);
    await turn(false);
    await opened;
    await expectSoon(numbers).toEqual(descending(5));
  });

  test.each([
    ['dark', { colorScheme: 'dark' }],
    ['narrow', { viewport: { width: 375, height: 740 } }],
    ['narrow-dark', { colorScheme: 'dark', viewport: { width: 375, height: 740 } }],
  ] as const)('it is as usable %s', async (name, options) => {
    await page.context().close();
    watched = await visit(browser, service, owner, options);
    page = watched.page;
    await open('');
    await post(2);
    await expectSoon(() => figure(page, 'In this range')).toBe(sent);
    await expectAccessible();
    await picture(`chart-live-${name}`);
    await open('/events');
    await post(2);
    await expectSoon(numbers).toEqual(descending(sent));
    await picture(`events-live-${name}`);
    // A chart that is paused before it has them says that they are new.
    await expectSoon(() => figure(page, 'In this range')).toBe(sent);
    await pause();
    await post(3);
    await page.getByRole('button', { name: '3 new events' }).waitFor();
    await expectAccessible();
    await picture(`events-paused-${name}`);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(overflow).toBeLessThanOrEqual(0);
  });

  test('the keyboard alone pauses, brings what is new, and goes on', async () => {
    await open('/events');
    await page.getByRole('button', { name: 'Live', exact: true }).focus();
    await page.keyboard.press('Space');
    await post(1);
    const pill = page.getByRole('button', { name: '1 new event' });
    await pill.waitFor();
    const isOnPill = (): Promise<boolean> => pill.evaluate((element) => element === document.activeElement);
    for (let steps = 0; steps < 40 && !(await isOnPill()); steps += 1) await page.keyboard.press('Tab');
    expect(await isOnPill()).toBe(true);
    await page.keyboard.press('Enter');
    await expectSoon(numbers).toEqual(descending(4));
  });
});
