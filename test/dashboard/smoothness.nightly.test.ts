/** A thousand buckets of ten types: no task of hovering or zooming takes long, measured by what the same page takes for a fixed loop. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { LOOP_MS, longestOf, loopTime, tasksOf, timeOf } from './main-thread.ts';
import { visit } from './visitor.ts';

const BUCKETS = 1_000;
const TYPES = 9;
/** The longest task may take as long as so many loops: 50 ms, where a loop takes 10. */
const LONGEST_LOOPS = 5;

/**
 * What a CPU that is four times slower has for a range, from the click until it is drawn, and for a frame at 30 a second: in
 * loops of 10 ms on this one.
 */
const RANGE_LOOPS = 300 / 4 / LOOP_MS;
const FRAME_LOOPS = 34 / 4 / LOOP_MS;
/** The same for the first chart, with an empty cache and with a full one. */
const COLD_LOOPS = 2_000 / 4 / LOOP_MS;
const WARM_LOOPS = 1_000 / 4 / LOOP_MS;
/** Tasks of a drag that may take longer than a frame. */
const LATE_SHARE = 0.05;

describe.skipIf(withoutBrowser !== '')('a full chart', () => {
  let service: TestService;
  let browser: Browser;
  let page: Page;
  let owner: Person;
  let url: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    await service.post({ loggingToken, typeId: undefined, typeName: 'first' });
    page = (await visit(browser, service, owner)).page;
    // A third of it is still to come, and is hatched.
    const [from, to] = [-28, 14].map((days) => new Date(Date.now() + days * 86_400_000).toISOString());
    url = `/apps/${appId}?from=${from}&to=${to}&tz=Europe/Berlin&buckets=1000`;
    await fillChart(page);
    await page.goto(url);
    await drawn(page);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /** Answers with a full chart for whatever is asked. */
  const fillChart = (of: Page): Promise<unknown> =>
    of.route('**/series?*', (route) => {
      const asked = new URL(route.request().url()).searchParams;
      const [from = 0, until = 0] = ['from', 'to'].map((name) => Date.parse(asked.get(name) ?? ''));
      return route.fulfill({ json: { success: true, data: series(from, until) } });
    });
  const drawn = (of: Page): Promise<unknown> => of.locator('.plot[data-buckets="1000"]').waitFor();
  const loopTask = (): Promise<number> => loopTime(browser, page);
  const tasks = (work: () => Promise<unknown>) => tasksOf(browser, page, work);

  /** In the best of three times: a busy machine lengthens some of the tasks, work that is too much all of them. */
  async function expectSmooth(work: () => Promise<void>): Promise<void> {
    const lengths: number[] = [];
    for (let times = 0; times < 3; times += 1) {
      const before = await loopTask();
      const longest = longestOf(await tasks(work));
      lengths.push(longest / Math.max(before, await loopTask()));
    }
    expect(Math.min(...lengths)).toBeLessThan(LONGEST_LOOPS);
  }

  test('is hovered over smoothly', async () => {
    const box = await page.locator('.plot .over').boundingBox();
    const { x, y, width } = box ?? { x: 0, y: 0, width: 0 };
    const hover = async (): Promise<void> => {
      for (let step = 0; step < 100; step++)
        await page.mouse.move(x + (step / 100) * width, y + 80 + (step % 7));
    };
    await expectSmooth(hover);
    await page.locator('.tooltip .total').waitFor(); // The pointer still rests on the last bars.
  });

  test('is zoomed smoothly, and back', async () => {
    const zoom = async (): Promise<void> => {
      const box = await page.locator('.plot .over').boundingBox();
      const { x, y, width } = box ?? { x: 0, y: 0, width: 0 };
      const before = page.url();
      await page.mouse.move(x + 0.3 * width, y + 50);
      await page.mouse.down();
      await page.mouse.move(x + 0.6 * width, y + 60, { steps: 10 });
      await page.mouse.up();
      await expect.poll(() => page.url()).not.toBe(before);
      await page.locator('.chart-card:not(.loading)').waitFor();
      await page.locator('.plot .over').dblclick({ position: { x: 100, y: 100 } });
      await expect.poll(() => page.url()).toBe(before);
      await page.locator('.chart-card:not(.loading)').waitFor();
    };
    await expectSmooth(zoom);
  });

  test('is drawn for the first time in the time that a slow CPU has, with an empty cache and with a full one', async () => {
    const fresh = (await visit(browser, service, owner)).page;
    await fillChart(fresh);
    const open = async (): Promise<number> => {
      const loop = await loopTime(browser, fresh);
      const opened = await tasksOf(browser, fresh, async () => {
        await fresh.goto(url);
        await drawn(fresh);
      });
      return timeOf(opened) / Math.max(loop, await loopTime(browser, fresh));
    };
    expect(await open()).toBeLessThan(COLD_LOOPS);
    expect(await open()).toBeLessThan(WARM_LOOPS);
    await fresh.context().close();
  });

  test('is drawn for another range in the time that a slow CPU has, from the click on', async () => {
    const pick = async (): Promise<void> => {
      await page.getByRole('button', { name: 'Previous period' }).click();
      await page.locator('.chart-card[aria-busy=false]').waitFor();
    };
    await pick();
    const before = await loopTask();
    const spent = timeOf(await tasks(pick));
    const loop = Math.max(before, await loopTask());
    expect(spent / loop).toBeLessThan(RANGE_LOOPS);
  });

  test('is dragged over in frames that a slow CPU has the time for', async () => {
    const box = await page.locator('.plot .over').boundingBox();
    const { x, y, width } = box ?? { x: 0, y: 0, width: 0 };
    const drag = async (): Promise<void> => {
      await page.mouse.move(x + 0.1 * width, y + 50);
      await page.mouse.down();
      for (let step = 0; step < 100; step++)
        await page.mouse.move(x + (0.1 + step / 125) * width, y + 50 + (step % 5));
      await page.keyboard.press('Escape');
      await page.mouse.up();
    };
    const before = await loopTask();
    const dragged = await tasks(drag);
    const loop = Math.max(before, await loopTask());
    const late = dragged.filter(({ spent }) => spent > FRAME_LOOPS * loop).length;
    // Of the hundred moves: the trace has many a task that only passes a message on.
    expect(late / 100).toBeLessThan(LATE_SHARE);
  });

  test('is toggled, accumulated and painted in the other theme smoothly', async () => {
    const change = async (): Promise<void> => {
      await page.getByRole('button', { name: 'Hide type 3 in the chart' }).click();
      await page.getByRole('button', { name: 'Draw type 3 in the chart' }).click();
      await page.getByLabel('Accumulated').check();
      await page.getByLabel('Histogram').check();
      for (let theme = 0; theme < 3; theme++) await page.getByRole('button', { name: /^Theme/ }).click();
    };
    await expectSmooth(change);
  });
});

function series(from: number, until: number): unknown {
  const starts = Array.from({ length: BUCKETS }, (_, index) => from + (index / BUCKETS) * (until - from));
  const counts = (type: number): number[] => starts.map((_, index) => ((index * 7919) % 997) + type);
  const lines = Array.from({ length: TYPES }, (_, type) => ({
    key: `typ_${type}`,
    name: `type ${type}`,
    counts: counts(type),
    total: counts(type).reduce((sum, value) => sum + value, 0),
    number: type,
  }));
  return {
    bucket: '1h',
    timezone: 'Europe/Berlin',
    starts,
    end: until,
    by: null,
    lines,
    all: starts.map((_, index) => lines.reduce((sum, line) => sum + (line.counts[index] ?? 0), 3)),
    other: starts.map(() => 3),
    before: { all: 10, byKey: {} },
    countsOnlyBefore: null,
    interval: { from, until },
    compared: null,
  };
}
