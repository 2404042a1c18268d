/** What an analyst lays out, restores and annotates. */
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { clipboard, visit } from './visitor.ts';

const DAY_MS = 86_400_000;
/** A browser on a busy machine takes its time. */
const SOON = { timeout: patient(20_000) };
const STACK = 'Error: out of stock\n    at reserve (stock.js:12)\n    at order (shop.js:7)';

describe.skipIf(withoutBrowser !== '')('an analyst', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;
  /** The beginning of today, in UTC. */
  let today: number;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    ({ appId } = await newOwnApp(owner, 'Web shop'));
    today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const at = (daysAgo: number, n: number): string =>
      new Date(today - daysAgo * DAY_MS + n * 600_000).toISOString();
    const { typeId } = await createEventType(service.sql, { appId, name: 'order placed', maxTypes: 10 });
    const made = Array.from({ length: 60 }, (_, n) => ({
      at: at(1 + (n % 6), n),
      payload: JSON.stringify({ orderId: n }),
    }));
    await addPastEvents(service, typeId, made);
    const failed = await createEventType(service.sql, { appId, name: 'order failed', maxTypes: 10 });
    const failures = Array.from({ length: 12 }, (_, n) => ({
      at: at(2, n),
      payload: JSON.stringify({ error: STACK, code: n, note: `n${n}` }),
    }));
    await addPastEvents(service, failed.typeId, failures);
    watched = await visit(browser, service, owner, {
      viewport: { width: 1440, height: 900 },
      timezoneId: 'UTC',
    });
    page = watched.page;
  }, 180_000);
  beforeEach(() => {
    watched.complaints.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (query = ''): Promise<void> => {
    await page.goto(`/apps/${appId}${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
  };
  const line = (name: string): Locator => page.locator('.legend .line', { hasText: name });

  test('lays the list out: moves and widens columns, wraps a stack trace, and copies rows selected with Shift', async () => {
    await open('?range=7d');
    await line('order failed').click();
    const heads = page.locator('.column-head .name');
    await expect.poll(() => heads.count(), SOON).toBe(3);
    const [first = '', second = '', third = ''] = await heads.allInnerTexts();
    await heads.nth(2).dragTo(heads.nth(0));
    await expect.poll(() => heads.allInnerTexts(), SOON).toEqual([third, first, second]);
    const widthOf = async (): Promise<number> =>
      (await page.locator('.event-row').first().locator('.cell').first().boundingBox())?.width ?? 0;
    const edge = page.getByRole('separator', { name: `Width of ${third}` });
    await edge.hover();
    const before = await widthOf();
    await page.mouse.down();
    const box = await edge.boundingBox();
    await page.mouse.move((box?.x ?? 0) + 66, box?.y ?? 0);
    await page.mouse.up();
    await expect.poll(widthOf, SOON).toBeGreaterThan(before + 40);
    const wide = await widthOf();
    await edge.press('ArrowLeft');
    await expect.poll(widthOf, SOON).toBe(wide - 16);
    await page.reload();
    await expect.poll(widthOf, SOON).toBe(wide - 16);

    const trace = page.locator('.event-row').first().locator('.cell', { hasText: 'out of stock' });
    const height = async (): Promise<number> => (await trace.boundingBox())?.height ?? 0;
    const flat = await height();
    await page.getByRole('button', { name: /^Columns/ }).click();
    await page.getByLabel('Wrap values').check();
    await expect.poll(height, SOON).toBeGreaterThan(flat * 2.5);
    expect(await trace.innerText()).toBe(STACK);
    await page.getByLabel('Wrap values').uncheck();
    await page.keyboard.press('Escape');

    const rows = page.locator('.event-row');
    await rows.nth(1).click({ modifiers: ['Shift'] });
    await page.getByText('1 event selected').waitFor();
    await rows.nth(0).focus();
    await page.keyboard.press('j');
    await page.keyboard.press('Shift+J');
    await page.keyboard.press('Shift+J');
    await page.getByText('3 events selected').waitFor();
    await page.locator('.list-head').getByRole('button', { name: 'Copy', exact: true }).click();
    const copied = (await clipboard(page)).trim().split('\n');
    expect(copied.map((text) => (JSON.parse(text) as { payload: { code: number } }).payload.code)).toEqual([
      10, 9, 8,
    ]);
    expect(await page.locator('article[data-open=true]').count()).toBe(0);
    await page.keyboard.press('Escape');
    await page.getByText('3 events selected').waitFor({ state: 'detached' });
    expect(watched.complaints).toEqual([]);
  });

  test('finds a deleted app in the bin, and has it back', async () => {
    const { appId: other } = await newOwnApp(owner, 'Old shop');
    await page.goto(`/apps/${other}/settings`);
    await page.getByLabel(/^Type Old shop to confirm/).fill('Old shop');
    await page.getByRole('button', { name: 'Delete the app' }).click();
    const bin = page.getByRole('region', { name: 'Deleted apps' });
    await bin.getByText('Old shop').waitFor();
    expect(await page.locator('.app-card', { hasText: 'Old shop' }).count()).toBe(0);
    await bin.getByRole('button', { name: 'Restore Old shop' }).click();
    await page.locator('.app-card', { hasText: 'Old shop' }).waitFor();
    await bin.waitFor({ state: 'detached' });
    expect(watched.complaints).toEqual([]);
  });

  test('annotates the bar that one points at, by a right click and by A', async () => {
    await open('?range=7d');
    const over = page.locator('.plot .over');
    await over.click({ button: 'right', position: { x: 60, y: 40 } });
    const dialog = page.getByRole('dialog', { name: 'Annotate the chart' });
    const when = await dialog.getByLabel('When').inputValue();
    // Not now, with which the form begins otherwise.
    expect(Date.now() - Date.parse(`${when} UTC`)).toBeGreaterThan(3 * DAY_MS);
    await dialog.getByLabel('What happened').fill('Release 7');
    await page.keyboard.press('Enter');
    await dialog.waitFor({ state: 'detached' });
    await page.getByRole('list', { name: 'Annotations' }).getByText('Release 7').waitFor();
    await over.hover({ position: { x: 60, y: 60 } });
    await page.locator('.tooltip', { hasText: 'Release 7' }).waitFor();
    await page.locator('.plot').focus();
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('a');
    await dialog.waitFor();
    await page.keyboard.press('Escape');
    expect(watched.complaints).toEqual([]);
  });
});
