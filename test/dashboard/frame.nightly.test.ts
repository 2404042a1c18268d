/** What stands around every page: what is said of a failure and of a page that is not there, forced colors, sizes of text. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { visit } from './visitor.ts';

describe.skipIf(withoutBrowser !== '')('the frame', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let page: Page;
  let app: { appId: string; loggingToken: string; path: string };

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    for (let type = 0; type < 12; type++) await owner.post(`${app.path}/types`, { name: `type ${type}` });
    await service.post({ loggingToken: app.loggingToken, typeId: undefined, typeName: 'type 1' });
    page = (await visit(browser, service, owner)).page;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  test.each(['', '/types', '/settings'])('an outage is told once, at /apps/…%s', async (tab) => {
    await page.route(/\/api\/apps/, (route) => route.abort());
    await page.goto(`/apps/${app.appId}${tab}`);
    await page.getByText('The server cannot be reached').first().waitFor();
    await page.waitForLoadState('networkidle');
    expect(await page.getByRole('alert').count()).toBe(1);
    // No empty card: that of the chart has the message.
    expect(await page.locator('main .card:not(:has([role=alert]))').count()).toBe(0);
    await page.unroute(/\/api\/apps/);
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('heading', { name: 'Shop', level: 1 }).waitFor();
    await page.getByRole('alert').waitFor({ state: 'detached' });
    if (tab === '') await page.locator('article').first().waitFor();
  });

  test('an outage leaves the name of the app and the controls of the view', async () => {
    await page.goto('/');
    await page.locator('.app-card').first().waitFor();
    await page.route(/\/api\/apps\//, (route) => route.abort());
    await page.locator('.app-card', { hasText: 'Shop' }).first().click();
    await page.locator('.chart-card').getByRole('alert').waitFor();
    expect(await page.getByRole('heading', { level: 1 }).innerText()).toBe('Shop');
    await page.getByRole('button', { name: /^Time range/ }).click();
    await page.getByRole('button', { name: '1 h', exact: true }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('range')).toBe('1h');
    expect(await page.getByRole('combobox', { name: 'Filter' }).isVisible()).toBe(true);
    await page.unroute(/\/api\/apps\//);
  });

  test('a server without mail promises no link to reset a password', async () => {
    const { page: visitor } = await visit(browser, service, null);
    await visitor.goto('/password-reset');
    await visitor.getByText('This server sends no mail').waitFor();
    expect(await visitor.locator('form').count()).toBe(0);
    await visitor.context().close();
  });

  test('a failure of the settings alone is told once, and tried again', async () => {
    await page.route(/\/api\/apps\/[^/]+\/./, (route) => route.abort());
    await page.goto(`/apps/${app.appId}/settings`);
    await page.getByText('The server cannot be reached').first().waitFor();
    expect(await page.getByRole('alert').count()).toBe(1);
    await page.unroute(/\/api\/apps\/[^/]+\/./);
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('region', { name: 'Members' }).getByText('owner@example.com').waitFor();
  });

  test('apps are sorted, with their last event and on one scale; types have their last day', async () => {
    const [busy, quiet] = [await newOwnApp(owner, 'Busy'), await newOwnApp(owner, 'A quiet one')];
    for (let event = 0; event < 4; event++)
      await service.post({ loggingToken: busy.loggingToken, typeId: undefined, typeName: 'type 1' });
    await service.post({ loggingToken: quiet.loggingToken, typeId: undefined, typeName: 'type 1' });
    await newOwnApp(owner, 'Empty');
    await page.goto('/');
    const cards = page.locator('.app-card');
    const names = (): Promise<string[]> => cards.locator('.name').allInnerTexts();
    // The first account took the app that nobody owned.
    await expect.poll(names).toEqual(['Test app', 'Shop', 'Busy', 'A quiet one', 'Empty']);
    expect(await cards.locator('.last').allInnerTexts()).toEqual([
      'No events yet',
      ...Array.from({ length: 3 }, () => 'Last event just now'),
      'No events yet',
    ]);
    await page.getByLabel('Sort by').selectOption('name');
    await expect.poll(names).toEqual(['A quiet one', 'Busy', 'Empty', 'Shop', 'Test app']);
    await page.getByLabel('Sort by').selectOption('last');
    await expect.poll(names).toEqual(['A quiet one', 'Busy', 'Shop', 'Empty', 'Test app']);
    const highest = () =>
      cards
        .filter({ hasText: 'A quiet one' })
        .locator('rect')
        .evaluateAll((all) => Math.max(...all.map((bar) => Number(bar.getAttribute('height')))));
    expect(await highest()).toBe(40);
    await page.getByLabel('Same scale for all').check();
    await expect.poll(highest).toBe(10);
    await page.goto(`/apps/${busy.appId}/types`);
    const row = page.getByRole('row').filter({ hasText: 'type 1' }).first();
    await row.getByRole('img', { name: 'Last 24 hours: 4' }).waitFor();
    expect(await page.getByRole('img').count()).toBe(1);
  });

  test('an address where nothing is shows a page, to members and to visitors', async () => {
    const { page: visitor } = await visit(browser, service, null);
    for (const one of [page, visitor]) {
      const response = await one.goto('/nowhere');
      expect([response?.status(), response?.headers()['content-type']]).toEqual([
        404,
        'text/html; charset=utf-8',
      ]);
      await one.getByRole('heading', { name: 'There is no such page' }).waitFor();
    }
    await page.getByRole('link', { name: 'All apps' }).click();
    await page.getByRole('link', { name: /Shop/ }).waitFor();
  });

  test('a selected tab can be told from the others in forced colors', async () => {
    await page.emulateMedia({ forcedColors: 'active' });
    await page.goto(`/apps/${app.appId}/types`);
    const looks = (name: string): Promise<string> =>
      page.getByRole('link', { name, exact: true }).evaluate((tab) => {
        const { backgroundColor, borderBlockEndColor } = getComputedStyle(tab);
        return `${backgroundColor} ${borderBlockEndColor}`;
      });
    expect(await looks('Types')).not.toBe(await looks('Settings'));
    expect(await looks('Settings')).toBe(await looks('Explore'));
    await page.emulateMedia({ forcedColors: 'none' });
  });

  test('text is as large as the reader has set it in the browser', async () => {
    const { page: large } = await visit(browser, service, owner);
    const session = await large.context().newCDPSession(large);
    await session.send('Page.setFontSizes', { fontSizes: { standard: 32 } });
    await large.goto('/');
    await page.goto('/');
    const size = (one: Page): Promise<number> =>
      one.evaluate(() => Number.parseFloat(getComputedStyle(document.body).fontSize));
    expect(await size(large)).toBeCloseTo(2 * (await size(page)));
    await large.context().close();
  });

  test('a type that is hidden stays where it is, so that the next one is in reach', async () => {
    await page.goto(`/apps/${app.appId}/types`);
    const names = page.locator('.list tbody th a');
    await names.first().waitFor();
    const before = await names.allInnerTexts();
    const first = before[0] ?? '';
    await page.getByRole('button', { name: `Hide ${first}`, exact: true }).click();
    await page.getByText(`${first} is hidden`).waitFor();
    await page.getByRole('button', { name: `Show ${first}`, exact: true }).waitFor();
    expect(await names.allInnerTexts()).toEqual(before);
    await page.getByRole('button', { name: `Show ${first}`, exact: true }).click();
    await page.getByRole('button', { name: `Hide ${first}`, exact: true }).waitFor();
  });

  test('types are ordered by any column, and renamed', async () => {
    await page.goto(`/apps/${app.appId}/types`);
    const first = (): Promise<string> => page.getByRole('rowheader').first().innerText();
    await expect.poll(first).toBe('type 1');
    await page.getByRole('button', { name: 'Name', exact: true }).click();
    expect(await first()).toBe('type 0');
    expect(await page.getByRole('columnheader', { name: 'Name' }).getAttribute('aria-sort')).toBe(
      'ascending',
    );
    await page.getByRole('button', { name: 'Name', exact: true }).click();
    expect(await first()).toBe('type 11');
    await page.getByRole('button', { name: 'Rename type 11' }).click();
    await page.getByRole('dialog').getByLabel('Name').fill('zebra');
    await page.keyboard.press('Enter');
    await expect.poll(first).toBe('zebra');
  });

  test('a viewer is offered nothing that is refused', async () => {
    const viewer = await newPerson(service, 'viewer@example.com');
    await owner.post(`${app.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
    const { page: own, complaints } = await visit(browser, service, viewer);
    await own.goto(`/apps/${app.appId}/settings`);
    await own.getByText('you are viewer').waitFor();
    await own.getByRole('button', { name: 'Leave' }).waitFor();
    for (const name of ['Rename', 'Reveal', 'Rotate…', 'New resource token…', 'Add', 'Delete the app'])
      expect(await own.getByRole('button', { name, exact: true }).count(), name).toBe(0);
    await own.goto(`/apps/${app.appId}/types`);
    await own.getByRole('rowheader').first().waitFor();
    for (const name of ['New type', /^Rename/])
      expect(await own.getByRole('button', { name }).count()).toBe(0);
    await own.goto(`/apps/${app.appId}/usage`);
    await own.getByText('Requests this minute').waitFor();
    expect(await own.getByRole('alert').count()).toBe(0);
    expect(complaints).toEqual([]);

    // The owner makes a maintainer of them.
    await page.goto(`/apps/${app.appId}/settings`);
    await page.getByLabel('Role of viewer@example.com').selectOption('maintainer');
    await page
      .getByRole('region', { name: 'Activity' })
      .getByText('made viewer@example.com maintainer')
      .waitFor();
  });
});
