/** A thousand buckets of ten types: no task of hovering or zooming takes long, measured by what the same page takes for a fixed loop. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { visit } from './visitor.ts';

const BUCKETS = 1_000;
const TYPES = 9;
/** Turns of the loop: some 10 ms on a machine of 2026. */
const LOOP_TURNS = 2_000_000;
/** The longest task may take as long as so many loops: 50 ms, where a loop takes 10. */
const LONGEST_LOOPS = 5;

/**
 * What a CPU that is four times slower has for a range, from the click until it is drawn, and for a frame at 30 a second: in
 * loops of 10 ms on this one.
 */
const RANGE_LOOPS = 300 / 4 / 10;
const FRAME_LOOPS = 34 / 4 / 10;
/** Tasks of a drag that may take longer than a frame. */
const LATE_SHARE = 0.05;

/** An event of Chromium's trace format, as far as it is read here; times in microseconds. */
interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  /** How long the thread itself was at work. */
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

describe.skipIf(withoutBrowser !== '')('a full chart', () => {
  let service: TestService;
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    const owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    await service.post({ loggingToken, typeId: undefined, typeName: 'first' });
    page = (await visit(browser, service, owner)).page;
    await page.route('**/series?*', (route) => {
      const from = Date.parse(new URL(route.request().url()).searchParams.get('from') ?? '');
      return route.fulfill({ json: { success: true, data: series(from) } });
    });
    await page.goto(`/apps/${appId}?range=30d&tz=Europe/Berlin&buckets=1000`);
    await page.locator('.plot[data-buckets="1000"]').waitFor();
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /**
   * The tasks of the page's main thread during some work, in milliseconds of its own time: what other tests do to the machine
   * meanwhile is not the page's.
   */
  async function tasksOf(work: () => Promise<unknown>): Promise<number[]> {
    await browser.startTracing(page, { categories: ['toplevel', '__metadata'] });
    await work();
    const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as {
      traceEvents: TraceEvent[];
    };
    const main = traceEvents.find(
      ({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain',
    );
    const tasks = traceEvents.filter(
      ({ pid, tid, tdur }) => pid === main?.pid && tid === main?.tid && tdur !== undefined,
    );
    expect(tasks.length).toBeGreaterThan(0);
    return tasks.map(({ tdur = 0 }) => tdur / 1_000);
  }

  async function longestTask(work: () => Promise<unknown>): Promise<number> {
    return Math.max(...(await tasksOf(work)));
  }

  /** What the page takes for a fixed loop, just before or after: a slow or busy machine is slow for both. */
  const loopTask = (): Promise<number> =>
    longestTask(() =>
      page.evaluate((turns) => {
        let sum = 0;
        for (let turn = 0; turn < turns; turn += 1) sum = (sum * 31 + turn) | 0;
        return sum;
      }, LOOP_TURNS),
    );

  async function expectSmooth(work: () => Promise<void>): Promise<void> {
    const before = await loopTask();
    const longest = await longestTask(work);
    const after = await loopTask();
    expect(longest).toBeLessThan(LONGEST_LOOPS * Math.max(before, after));
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

  test('is drawn for another range in the time that a slow CPU has, from the click on', async () => {
    const pick = async (): Promise<void> => {
      await page.getByRole('button', { name: 'Previous period' }).click();
      await page.locator('.chart-card[aria-busy=false]').waitFor();
    };
    await pick();
    const before = await loopTask();
    const spent = (await tasksOf(pick)).reduce((sum, task) => sum + task, 0);
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
    const tasks = await tasksOf(drag);
    const loop = Math.max(before, await loopTask());
    const late = tasks.filter((task) => task > FRAME_LOOPS * loop).length;
    // Of the hundred moves: the trace has many a task that only passes a message on.
    expect(late / 100).toBeLessThan(LATE_SHARE);
  });

  test('is toggled, accumulated and painted in the other theme smoothly', async () => {
    const change = async (): Promise<void> => {
      await page.getByRole('button', { name: 'Only type 3' }).click();
      await page.getByRole('button', { name: 'Only type 3' }).click();
      await page.getByLabel('Accumulated').check();
      await page.getByLabel('Histogram').check();
      for (let theme = 0; theme < 3; theme++) await page.getByRole('button', { name: /^Theme/ }).click();
    };
    await expectSmooth(change);
  });
});

function series(from: number): unknown {
  const starts = Array.from({ length: BUCKETS }, (_, index) => from + index * 3_600_000);
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
    end: from + BUCKETS * 3_600_000,
    by: null,
    lines,
    all: starts.map((_, index) => lines.reduce((sum, line) => sum + (line.counts[index] ?? 0), 3)),
    other: starts.map(() => 3),
    before: { all: 10, byKey: {} },
    countsOnlyBefore: null,
    interval: { from, until: from + BUCKETS * 3_600_000 },
    compared: null,
  };
}
