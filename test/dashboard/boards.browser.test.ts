/** Boards as one uses them: made of saved views, moved by mouse and keyboard, filtered as one, live by one feed. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { BoardList } from '../../src/api-types/answers.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { visit } from './visitor.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

describe.skipIf(withoutBrowser !== '')('the page of boards', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let page: Page;
  let complaints: string[];
  let app: { appId: string; path: string; loggingToken: string };

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    for (const path of ['country', 'plan'])
      expect((await owner.post(`${app.path}/declared-fields`, { path, kind: 'value' })).status).toBe(201);
    for (const country of ['DE', 'DE', 'FR'])
      for (const plan of ['free', 'pro'])
        expect((await service.post(order({ country, plan }))).status).toBe(201);
    for (const [name, search] of [
      ['All', 'range=24h'],
      ['By country', 'range=7d&by=country'],
      ['Germany', 'range=1h&filter=country%3ADE'],
    ])
      expect((await owner.post(`${app.path}/views`, { name, search })).status).toBe(201);
    ({ page, complaints } = await visit(browser, service, owner));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const order = (payload: object): Record<string, unknown> => ({
    ...{ loggingToken: app.loggingToken, typeId: undefined, typeName: 'order', payload },
  });
  const charts = (): Locator =>
    page.getByRole('listitem').filter({ has: page.getByRole('heading', { level: 2 }) });
  const names = (): Promise<string[]> => page.getByRole('heading', { level: 2 }).allTextContents();
  /** The number of each chart, in their order. */
  const figures = async (): Promise<number[]> => (await charts().locator('b').allTextContents()).map(Number);
  const showing = (wanted: readonly number[]): Promise<void> =>
    until(
      async () => JSON.stringify(await figures()) === JSON.stringify(wanted),
      `the charts show ${wanted}`,
    );
  const stored = async (): Promise<string[]> =>
    ((await owner.get(`${app.path}/boards`)).data as unknown as BoardList).boards.flatMap(({ views }) =>
      views.map(({ name }) => name),
    );

  test('makes a board of saved views, which have one range', async () => {
    await page.goto(`/apps/${app.appId}/boards?tz=UTC`);
    await page.getByRole('button', { name: 'New board' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('Morning');
    await dialog.getByLabel('All').check();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.getByText('2 to 12 different saved views').waitFor();
    await dialog.getByLabel('By country').check();
    await dialog.getByLabel('Germany').check();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await showing([6, 6, 4]);
    expect(await names()).toEqual(['All', 'By country', 'Germany']);
    // A stack names its colors.
    const legend = charts().filter({ hasText: 'By country' }).locator('.board-legend li');
    expect(await legend.allTextContents()).toEqual(['DE 4', 'FR 2']);
    await page.evaluate(AXE);
    const { violations } = (await page.evaluate('axe.run()')) as { violations: { id: string }[] }; // Its documented result.
    expect(violations.map(({ id }) => id)).toEqual([]);
  });

  test('filters all charts as one, and leads from a chart to its view with the same range and filter', async () => {
    const filter = page.getByLabel('Filter all charts');
    await filter.fill('plan:pro');
    await filter.press('Enter');
    await page.getByText('not counted: open the view').waitFor();
    await page.getByRole('button', { name: 'Remove the filter plan:pro' }).click();
    await filter.fill('country:FR');
    await filter.press('Enter');
    await showing([2, 2]);
    const link = await page.getByRole('link', { name: 'By country', exact: true }).getAttribute('href');
    expect(link).toContain('range=7d&tz=UTC&filter=country:FR&by=country');
    await page.getByRole('button', { name: 'Remove the filter country:FR' }).click();
    await showing([6, 6, 4]);
  });

  test('has the range of each view until one is picked for all, and again after that', async () => {
    const ranges = (): Promise<string[]> => charts().locator('.board-figure + .hint').allTextContents();
    expect(await ranges()).toEqual(['Last 24 hours', 'Last 7 days', 'Past hour']);
    const picker = page.getByRole('button', { name: /^Time range/ });
    expect(await picker.innerText()).toContain('The views’ ranges');
    expect(new URL(page.url()).searchParams.has('range')).toBe(false);
    await picker.click();
    await page.getByRole('button', { name: '30 d', exact: true }).click();
    await until(async () => (await ranges()).length === 0, 'all have the range of the board');
    const href = (): Promise<string | null> =>
      page.getByRole('link', { name: 'By country', exact: true }).getAttribute('href');
    expect(await href()).toContain('range=30d');
    await page.getByRole('link', { name: 'The views’ ranges' }).click();
    await until(async () => (await ranges()).length === 3, 'each has its own again');
    expect(await href()).toContain('range=7d');
    await showing([6, 6, 4]);
  });

  test('has its boxes beside their labels', async () => {
    await page.getByRole('button', { name: 'Change board' }).click();
    const gap = await page
      .getByRole('dialog')
      .locator('.board-views label')
      .first()
      .evaluate((label) => {
        const [box, text] = [...label.children].map((one) => one.getBoundingClientRect());
        return box === undefined || text === undefined ? 0 : text.left - box.right;
      });
    expect(gap).toBeGreaterThanOrEqual(6);
    await page.keyboard.press('Escape');
  });

  test('is put in another order by keyboard and by mouse, for everyone', async () => {
    const handle = (name: string): Locator => page.getByRole('button', { name: `Move ${name}:` });
    await handle('All').focus();
    await page.keyboard.press('ArrowRight');
    await showing([6, 6, 4]);
    await until(async () => (await stored()).join() === 'By country,All,Germany', 'the order is stored');
    expect(await handle('All').evaluate((element) => element === document.activeElement)).toBe(true);
    await handle('Germany').dragTo(charts().first());
    await until(async () => (await stored()).join() === 'Germany,By country,All', 'the drag is stored');
    expect(await names()).toEqual(['Germany', 'By country', 'All']);
    await page.reload();
    await showing([4, 6, 6]);
  });

  test('has the views that a colleague adds meanwhile, and keeps them when it is put in another order', async () => {
    const boards = (await owner.get(`${app.path}/boards`)).data as unknown as BoardList;
    const [board] = boards.boards;
    const { data } = await owner.post(`${app.path}/views`, { name: 'Log', search: 'scale=log' });
    const viewIds = [...(board?.views.map(({ viewId }) => viewId) ?? []), data.viewId];
    // The page shows three: it learns of the fourth with the answer to its own change.
    await owner.patch(`${app.path}/boards/${board?.boardId}`, { viewIds });
    await page.getByRole('button', { name: 'Move All:' }).focus();
    await page.keyboard.press('ArrowLeft');
    // The added one is behind "All", which it was behind, unless the page had learned of it before.
    const both = ['Germany,All,Log,By country', 'Germany,All,By country,Log'];
    await until(async () => both.includes((await stored()).join()), 'all four are stored');
    await showing([4, 6, 6, 6]);
    expect(both).toContain((await names()).join());
    // The dialog knows the three with which the list of boards was read, and takes one of them away.
    await page.getByRole('button', { name: 'Change board' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('By country').uncheck();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await showing([4, 6, 6]);
    expect(await names()).toEqual(['Germany', 'All', 'Log']);
    await owner.patch(`${app.path}/boards/${board?.boardId}`, { viewIds: viewIds.slice(0, 3) });
    await page.reload();
    await showing([4, 6, 6]);
  });

  test('is begun where a view is saved, and says in local time since when a field is counted', async () => {
    const { appId, path } = await newOwnApp(owner);
    const { typeId } = await createEventType(service.sql, { appId, name: 'order', maxTypes: 10 });
    const at = new Date(Date.now() - 50 * 3_600_000).toISOString();
    await addPastEvents(service, typeId, [{ at, payload: '{"total":5}' }]);
    await owner.post(`${path}/declared-fields`, { path: 'total', kind: 'number' });
    await owner.post(`${path}/views`, { name: 'All', search: 'range=24h' });
    await page.goto(`/apps/${appId}?range=7d&tz=Asia/Kathmandu&of=total&stat=sum`);
    await page.getByRole('button', { name: /^Saved views/ }).click();
    await page.getByRole('button', { name: 'Save this view…' }).click();
    const saving = page.getByRole('dialog', { name: 'Save this view' });
    await saving.getByLabel('Name').fill('Total');
    await saving.getByLabel('Put it on a board').selectOption({ label: 'a new board…' });
    await saving.getByRole('button', { name: 'Save', exact: true }).click();
    const making = page.getByRole('dialog', { name: 'New board' });
    expect(await making.getByRole('checkbox', { name: 'Total' }).isChecked()).toBe(true);
    await making.getByRole('checkbox', { name: 'All' }).check();
    await making.getByLabel('Name').fill('Sales');
    await making.getByRole('button', { name: 'Save', exact: true }).click();
    await making.waitFor({ state: 'detached' });
    const { boards } = (await owner.get(`${path}/boards`)).data as unknown as BoardList;
    expect(boards.map(({ name, views }) => [name, ...views.map((view) => view.name)])).toEqual([
      ['Sales', 'Total', 'All'],
    ]);
    const told = page.locator('.board-chart', { hasText: 'total is counted from' });
    await until(async () => {
      await page.goto(`/apps/${appId}/boards?tz=Asia/Kathmandu`);
      await page.locator('.board-chart').nth(1).waitFor();
      return (await told.count()) === 1;
    }, 'the field is counted');
    const text = await told.innerText();
    expect(text).toMatch(
      /total is counted from \d+ \w+ 20\d\d, \d\d:\d\d on, and the interval begins at \d+ \w+ 20\d\d/,
    );
    expect(text).not.toMatch(/\d{4}-\d\d-\d\dT/);
  });

  test('gets a view where it is saved', async () => {
    await page.goto(`/apps/${app.appId}?range=7d&tz=UTC&filter=country:FR`);
    await page.getByRole('button', { name: /^Saved views/ }).click();
    await page.getByRole('button', { name: 'Save this view…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('France');
    await dialog.getByLabel('Put it on a board').selectOption({ label: 'Morning' });
    await dialog.getByRole('button', { name: 'Save', exact: true }).click();
    await dialog.waitFor({ state: 'detached' });
    expect(await stored()).toEqual(['Germany', 'All', 'Log', 'France']);
    await page.goto(`/apps/${app.appId}/boards?tz=UTC`);
    await showing([4, 6, 6, 2]);
    const boards = (await owner.get(`${app.path}/boards`)).data as unknown as BoardList;
    const [{ boardId = '', views = [] } = {}] = boards.boards;
    const viewIds = views.map(({ viewId }) => viewId);
    const kept = { viewIds: viewIds.slice(0, 3), basedOn: viewIds };
    expect((await owner.patch(`${app.path}/boards/${boardId}`, kept)).status).toBe(200);
    await page.reload();
    await showing([4, 6, 6]);
  });

  test('marks what happened on each chart, as text for those who do not see it', async () => {
    await owner.post(`${app.path}/annotations`, {
      ...{ kind: 'deployment', text: 'Release 2.4.1', at: new Date().toISOString() },
    });
    await page.reload();
    await showing([4, 6, 6]);
    for (const chart of [0, 2]) {
      await charts().nth(chart).getByRole('application').focus();
      await page.keyboard.press('ArrowLeft');
      await charts()
        .nth(chart)
        .getByText(/Release 2\.4\.1/)
        .first()
        .waitFor({ state: 'attached' });
    }
  });

  test('follows one feed, with one request for all charts', async () => {
    const asked: string[] = [];
    const board = page.url();
    // What the page before still asks for is not counted.
    await page.goto('about:blank');
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await page.goto(board);
    await showing([4, 6, 6]);
    const of = (end: string): number => asked.filter((path) => path.endsWith(end)).length;
    await until(() => of('/live') > 0, 'the feed is open');
    expect([of('/live'), of('/series'), of('/numbers')]).toEqual([1, 0, 0]);
    await service.post(order({ country: 'DE', plan: 'pro' }));
    await showing([5, 7, 7]);
    expect([of('/live'), of('/series'), of('/numbers')]).toEqual([1, 0, 0]);
  });

  test('is mailed each week where the service has a mail server, to who ticks its box', async () => {
    // The service of this test has none: what is asked of it is answered here.
    const asked: unknown[] = [];
    let digest: object | null = null;
    await page.route('**/api/account/digests/**', async (route) => {
      const method = route.request().method();
      if (method !== 'GET') {
        asked.push([method, new URL(route.request().url()).pathname, route.request().postDataJSON()]);
        digest = method === 'PUT' ? { timezone: 'Asia/Tokyo', nextAt: '2026-12-07T23:00:00Z' } : null;
      }
      await route.fulfill({ json: { success: true, data: { sendsMail: true, digest } } });
    });
    await page.reload();
    const box = page.getByRole('region', { name: 'Weekly mail' }).getByRole('checkbox');
    await box.click();
    await page.getByLabel('every Monday at 08:00 Asia/Tokyo').waitFor();
    expect(await box.isChecked()).toBe(true);
    await page.evaluate(AXE);
    const { violations } = (await page.evaluate('axe.run()')) as { violations: { id: string }[] }; // Its documented result.
    expect(violations.map(({ id }) => id)).toEqual([]);
    await page.getByRole('button', { name: 'Send me one now' }).click();
    await page.getByText('is on its way').waitFor();
    await box.click();
    await until(async () => !(await box.isChecked()), 'the box is not ticked');
    const { boards } = (await owner.get(`${app.path}/boards`)).data as unknown as BoardList;
    const path = `/api/account/digests/${app.appId}/boards/${boards[0]?.boardId}`;
    expect(asked).toEqual([
      ['PUT', path, { timezone: expect.any(String), now: false }],
      ['PUT', path, { timezone: expect.any(String), now: true }],
      ['DELETE', path, expect.anything()],
    ]);
    await page.unroute('**/api/account/digests/**');
    await page.reload();
    await showing([5, 7, 7]);
  });

  test('fills the screen, and is removed', async () => {
    await page.getByRole('button', { name: 'Full screen' }).click();
    await page.waitForFunction('document.fullscreenElement?.className === "board"');
    // What is above a chart leaves no hole: it has the rest of its card.
    const holes = await page.locator('.board-chart').evaluateAll((cards) =>
      cards.map((card) => {
        const [plot, before] = [
          card.querySelector('.plot'),
          card.querySelector('.plot')?.previousElementSibling,
        ];
        return Math.round(
          (plot?.getBoundingClientRect().top ?? 0) - (before?.getBoundingClientRect().bottom ?? 0),
        );
      }),
    );
    expect(holes.length).toBe(3);
    expect(Math.max(...holes)).toBeLessThan(20);
    const [card, plot] = await Promise.all([
      page.locator('.board-chart').first().boundingBox(),
      page.locator('.plot').first().boundingBox(),
    ]);
    expect(plot?.height ?? 0).toBeGreaterThan((card?.height ?? 0) / 2);
    await page.evaluate('document.exitFullscreen()');
    await page.getByRole('button', { name: 'Change board' }).click();
    await page.getByRole('button', { name: 'Remove the board…' }).click();
    await page.getByRole('button', { name: 'Remove the board', exact: true }).click();
    await page.getByText('A board shows two to twelve saved views').waitFor();
    expect(await stored()).toEqual([]);
    expect(complaints).toEqual([]);
  });
});
