/** The pointer and the keyboard select buckets of the same chart. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { visit } from './visitor.ts';

describe.skipIf(withoutBrowser !== '')('a chart', () => {
  let service: TestService;
  let browser: Browser;
  let watched: Watched;
  let page: Page;
  let url: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    const owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    await service.post({ loggingToken, typeId: undefined, typeName: 'order placed' });
    watched = await visit(browser, service, owner);
    page = watched.page;
    url = `/apps/${appId}?range=24h&tz=Europe/Berlin`;
  });
  beforeEach(async () => {
    watched.complaints.length = 0;
    await page.goto(url);
    await page.locator('.plot .over').waitFor();
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /** A point of the chart, in shares of its width and height. */
  const point = async (x: number, y: number): Promise<[number, number]> => {
    const box = await page.locator('.plot .over').boundingBox();
    if (box === null) throw new Error('The chart is not shown.');
    return [box.x + x * box.width, box.y + y * box.height];
  };
  /** Pixels, without the borders. */
  const selectedArea = (): Promise<number> =>
    page
      .locator('.selection')
      .evaluate((element) => element.clientWidth * element.getBoundingClientRect().height);
  const selectByKeyboard = async (): Promise<void> => {
    await page.getByRole('application').focus();
    for (const key of ['ArrowLeft', 'Shift+ArrowLeft', 'Shift+ArrowLeft']) await page.keyboard.press(key);
    expect(await selectedArea()).toBeGreaterThan(0);
  };

  /** The range of the address, which a zoom changes. */
  const range = (): string | null => new URL(page.url()).searchParams.get('range');

  test('takes a press of the mouse without an error, and does not zoom', async () => {
    await page.mouse.click(...(await point(0.4, 0.5)));
    await page.mouse.click(...(await point(0.6, 0.5)));
    expect([range(), watched.complaints]).toEqual(['24h', []]);
  });

  test('forgets a drag at Escape, and leaves no line', async () => {
    await page.mouse.move(...(await point(0.4, 0.5)));
    await page.mouse.down();
    await page.mouse.move(...(await point(0.6, 0.5)), { steps: 5 });
    expect(await selectedArea()).toBeGreaterThan(0);
    await page.keyboard.press('Escape');
    expect(await selectedArea()).toBe(0);
    await page.mouse.up();
    expect([range(), watched.complaints]).toEqual(['24h', []]);
  });

  test('leaves no line after a zoom by the keyboard', async () => {
    await selectByKeyboard();
    await page.keyboard.press('Enter');
    await expect.poll(range).not.toBe('24h');
    const boxes = page.locator('.plot .over > :not([hidden])');
    await expect.poll(() => boxes.count()).toBe(0);
  });

  test('zooms into what is dragged over', async () => {
    const before = page.url();
    await page.mouse.move(...(await point(0.4, 0.5)));
    await page.mouse.down();
    await page.mouse.move(...(await point(0.6, 0.5)), { steps: 5 });
    await page.mouse.up();
    await expect.poll(() => page.url()).not.toBe(before);
    expect(watched.complaints).toEqual([]);
  });

  test.each([
    ['in the chart', async (): Promise<void> => page.mouse.click(...(await point(0.3, 0.5)))],
    [
      'in the chart with an unsteady hand',
      async (): Promise<void> => {
        const [x, y] = await point(0.3, 0.5);
        await page.mouse.move(x, y);
        await page.mouse.down();
        await page.mouse.move(x + 3, y + 1);
        await page.mouse.up();
      },
    ],
    ['beside it', (): Promise<void> => page.locator('main').click({ position: { x: 2, y: 2 } })],
  ])('forgets what the keyboard has selected at a click %s', async (_where, click) => {
    await selectByKeyboard();
    await click();
    await expect.poll(selectedArea).toBe(0);
    await page.getByRole('application').focus();
    // Enter without a bucket zooms nowhere.
    await page.keyboard.press('Enter');
    expect([range(), watched.complaints]).toEqual(['24h', []]);
  });
});
