/** The page of an app on a phone: what is seen first, what fingers reach, and what they do to the chart. */
import type { Browser, CDPSession, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { visit } from './visitor.ts';

const HEIGHT = 844;
const TARGET = 44;
const HOUR_MS = 3_600_000;

describe.skipIf(withoutBrowser !== '')('on a phone', () => {
  let service: TestService;
  let browser: Browser;
  let page: Page;
  let fingers: CDPSession;
  let url: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    const owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken, path } = await newOwnApp(owner);
    const annotation = { kind: 'incident', text: 'The payment provider answers late. '.repeat(5).trim() };
    const { status } = await owner.post(`${path}/annotations`, { ...annotation, at: '2026-11-10T12:00:00Z' });
    expect(status).toBe(201);
    await service.post({
      loggingToken,
      typeId: undefined,
      typeName: 'order placed',
      payload: { n: 1, o: { p: 2 } },
    });
    const options = { viewport: { width: 390, height: HEIGHT }, hasTouch: true, isMobile: true };
    ({ page } = await visit(browser, service, owner, options));
    fingers = await page.context().newCDPSession(page);
    url = `/apps/${appId}?from=2026-11-10T00:00:00Z&to=2026-11-11T00:00:00Z&tz=UTC`;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (): Promise<void> => {
    await page.goto(url);
    await page.locator('.plot .over').waitFor();
  };
  const over = async () => {
    const box = await page.locator('.plot .over').boundingBox();
    if (box === null) throw new Error('The chart is not shown.');
    return box;
  };
  /** Touches at shares of the chart's width: begins with the first places, moves through the others, and leaves. */
  const touch = async (steps: readonly (readonly number[])[]): Promise<void> => {
    const { x, y, width } = await over();
    // Above what stands in an empty chart.
    const points = (places: readonly number[]) =>
      places.map((place, id) => ({ x: x + place * width, y: y + 30, id }));
    const [first = [], ...rest] = steps;
    await fingers.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: points(first) });
    for (const places of rest)
      await fingers.send('Input.dispatchTouchEvent', { type: 'touchMove', touchPoints: points(places) });
    await fingers.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
  };
  /** For each row of the accessibility tree, what its cells are. */
  const cellsHeard = async (): Promise<string[][]> => {
    const { nodes } = await fingers.send('Accessibility.getFullAXTree');
    const known = new Map(nodes.map((node) => [node.nodeId, node]));
    const within = (id: string): string[] =>
      (known.get(id)?.childIds ?? []).flatMap((child) => [child, ...within(child)]);
    const roleOf = (id: string): string => String(known.get(id)?.role?.value);
    return nodes
      .filter(({ nodeId }) => roleOf(nodeId) === 'row')
      .map(({ nodeId }) =>
        within(nodeId)
          .map(roleOf)
          .filter((role) => /cell|header/.test(role)),
      );
  };
  const instant = (name: string): number => Date.parse(new URL(page.url()).searchParams.get(name) ?? '');

  test('a long annotation is read whole, and moves nothing beyond the edge', async () => {
    await open();
    const name = page.getByRole('list', { name: 'Annotations' }).locator('.name');
    await name.waitFor();
    const beyond = (element: Element): number => element.scrollWidth - element.clientWidth;
    expect(await name.evaluate(beyond)).toBe(0);
    expect(await page.locator('html').evaluate(beyond)).toBe(0);
  });

  test('the chart is in the first screen, below controls of which none is beyond an edge', async () => {
    await open();
    const { y, height } = await over();
    expect(y + height).toBeLessThanOrEqual(HEIGHT);
    // Above it are its range, its filter and its number; its controls are below.
    expect(y).toBeLessThanOrEqual(HEIGHT / 2);
    // Its name in full.
    const cut = await page.locator('.joined .text').evaluate((text) => text.scrollWidth - text.clientWidth);
    expect(cut).toBeLessThanOrEqual(0);
    // The width of a bar is read whole.
    const width = await page.getByLabel('Width of a bar').boundingBox();
    expect(width?.width).toBeGreaterThan(140);
    // Two rows each, and nothing to be swiped to.
    for (const row of ['.chart-controls']) {
      const { rows, beyond } = await page.locator(row).evaluate((element) => ({
        rows: element.clientHeight,
        beyond: [...element.querySelectorAll('button, input')].filter((one) => {
          const { left, right } = one.getBoundingClientRect();
          return left < 0 || right > innerWidth;
        }).length,
      }));
      expect(rows, row).toBeLessThan(3 * TARGET);
      expect(beyond, row).toBe(0);
    }
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(
      0,
    );
  });

  test.each(['types', 'fields'])(
    'the rows of /%s lie within the window, no cell over another, each with a cell for each heading',
    async (tab) => {
      await page.goto(url.replace('?', `/${tab}?`));
      const rows = page.locator('.list tbody tr');
      await rows.first().waitFor();
      const wrong = await rows.evaluateAll((all) =>
        all.flatMap((row) => {
          const cells = [...row.children].map((cell) => ({ cell, box: cell.getBoundingClientRect() }));
          const shown = cells.filter(({ box }) => box.width > 0);
          return shown
            .filter(
              ({ box }, index) =>
                box.left < 0 ||
                box.right > innerWidth ||
                shown
                  .slice(index + 1)
                  .some(
                    ({ box: other }) =>
                      box.left < other.right - 1 &&
                      other.left < box.right - 1 &&
                      box.top < other.bottom - 1 &&
                      other.top < box.bottom - 1,
                  ),
            )
            .map(({ cell }) => cell.outerHTML.slice(0, 120));
        }),
      );
      expect(wrong).toEqual([]);
      // Actions are there without a swipe.
      const action = page.getByRole('button', {
        name: tab === 'types' ? 'Rename order placed' : /^Count n of/,
      });
      const box = await action.boundingBox();
      expect((box?.x ?? 0) + (box?.width ?? Infinity)).toBeLessThanOrEqual(390);
      // A screen reader hears of a table. One field has nothing to be done with.
      if (tab === 'fields') expect(await page.locator('.list td:empty').count()).toBe(1);
      const [head = [], ...heard] = await cellsHeard();
      expect(new Set(head)).toEqual(new Set(['columnheader']));
      expect(heard).toHaveLength(await rows.count());
      for (const row of heard) expect(row).toEqual(['rowheader', ...head.slice(1).map(() => 'cell')]);
      // Not every browser knows the roles of what is shown as blocks.
      const untold = page.locator('.list:not([role]), .list :is(thead, tbody, tr, th, td):not([role])');
      expect(await untold.count()).toBe(0);
      // What has no button or picture says what it is.
      const unnamed = page.locator('.list td:not([data-label], :empty, :has(button, svg))');
      expect(await unnamed.allInnerTexts()).toEqual([]);
    },
  );

  test('the tab that is open is in sight, also the last one', async () => {
    await page.goto(`${url.split('?')[0]}/settings`);
    const tab = page.locator('.tabs [aria-current=page]');
    await tab.waitFor();
    const box = await tab.boundingBox();
    expect(box?.x).toBeGreaterThanOrEqual(0);
    expect((box?.x ?? 0) + (box?.width ?? Infinity)).toBeLessThanOrEqual(390);
  });

  test('the presets of the time range are each in one line', async () => {
    await open();
    await page.getByRole('button', { name: /^Time range/ }).click();
    const lines = await page.locator('.presets .button').evaluateAll((all) =>
      all.map((button) => {
        const text = document.createRange();
        text.selectNodeContents(button);
        return text.getClientRects().length;
      }),
    );
    expect(new Set(lines)).toEqual(new Set([1]));
    await page.keyboard.press('Escape');
  });

  test('everything that is pressed is large enough for a finger', async () => {
    await open();
    const small = await page
      .locator('.explore :is(button, select, a, input:not([type="radio"]))')
      .evaluateAll(
        (all, least) =>
          all
            .map((element) => ({ element, box: element.getBoundingClientRect() }))
            .filter(({ box }) => box.width > 0 && (box.height < least - 0.5 || box.width < least - 0.5))
            .map(({ element, box }) => `${element.outerHTML.slice(0, 80)} ${box.width} x ${box.height}`),
        TARGET,
      );
    expect(small).toEqual([]);
  });

  test('a finger moves the chart, two stretch it, and a tap picks a bar', async () => {
    await open();
    await touch([[0.3], [0.4], [0.5], [0.55]]);
    await expect.poll(() => (instant('from') - Date.parse('2026-11-10T00:00Z')) / HOUR_MS).toBeCloseTo(-6, 0);
    expect(instant('to') - instant('from')).toBe(24 * HOUR_MS);

    await open();
    await touch([
      [0.45, 0.55],
      [0.4, 0.6],
      [0.3, 0.7],
      [0.25, 0.75],
    ]);
    await expect.poll(() => (instant('to') - instant('from')) / HOUR_MS).toBeCloseTo(4.8, 0);

    await open();
    const { x, y, width } = await over();
    await page.touchscreen.tap(x + width * 0.51, y + 40);
    await expect.poll(() => new URL(page.url()).searchParams.get('at')).toMatch(/^2026-11-10T12:00:00Z~/);
  });
});
