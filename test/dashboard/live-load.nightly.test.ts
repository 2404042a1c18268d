/** A busy live page: what the main thread of the browser has to do while events arrive. */
import type { Browser, CDPSession } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { LOOP_MS, loopTime, tasksOf, timeOf } from './main-thread.ts';
import { visit } from './visitor.ts';

const EVENTS_PER_SECOND = 20;
const SECONDS = 8;
/** The share of the time that the page's own work may take, where a loop takes 10 ms: a slower machine is slower for both. */
const MOST_SHARE = 0.1;

describe.skipIf(withoutBrowser !== '')('a live page', { timeout: patient(120_000) }, () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  test(`takes less than a tenth of the main thread of a usual machine at ${EVENTS_PER_SECOND} events a second`, async () => {
    const { appId, loggingToken } = await newOwnApp(owner);
    const post = (n: number) =>
      service.post({
        loggingToken,
        typeId: undefined,
        typeName: `type ${n % 7}`,
        payload: { n, of: 'the load' },
      });
    for (let n = 0; n < 200; n += 1) await post(n);
    const { page, complaints } = await visit(browser, service, owner);
    await page.goto(`/apps/${appId}?range=15m&tz=UTC`);
    await page.locator('article').nth(40).waitFor();
    const before = await loopTime(browser, page);
    await page.evaluate(() => {
      const isRow = (node: Node): boolean => node.nodeName === 'ARTICLE';
      let made = 0;
      new MutationObserver((changes) => {
        for (const { addedNodes } of changes) made += [...addedNodes].filter(isRow).length;
        document.body.dataset.madeRows = String(made);
      }).observe(document.body, { childList: true, subtree: true });
    });
    const tasks = await tasksOf(browser, page, async () => {
      const start = performance.now();
      for (let sent = 0; sent < EVENTS_PER_SECOND * SECONDS; sent += 1) {
        const due = start + (sent * 1_000) / EVENTS_PER_SECOND;
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
        await post(200 + sent);
      }
      await page.getByText(`"n":${199 + EVENTS_PER_SECOND * SECONDS},`).waitFor();
    });
    const elapsed = (tasks.at(-1)?.end ?? 0) - (tasks[0]?.start ?? 0);
    const slowness = (before + (await loopTime(browser, page))) / 2 / LOOP_MS;
    expect(timeOf(tasks) / slowness / elapsed).toBeLessThan(MOST_SHARE);
    // A row is made once, and again when it moves into another page of rows.
    const made = Number(await page.locator('body').getAttribute('data-made-rows'));
    expect(made).toBeGreaterThanOrEqual(EVENTS_PER_SECOND * SECONDS * 0.5);
    expect(made).toBeLessThanOrEqual(2 * EVENTS_PER_SECOND * SECONDS);
    expect(complaints).toEqual([]);
  });

  test('is as light after ten minutes as after three', async () => {
    const { appId, loggingToken } = await newOwnApp(owner);
    await service.post({ loggingToken, typeId: undefined, typeName: 'type 0' });
    const { page, complaints } = await visit(browser, service, owner);
    await page.clock.install();
    await page.goto(`/apps/${appId}?range=15m&tz=UTC`);
    await page.locator('article').first().waitFor();
    const developer = await page.context().newCDPSession(page);
    await developer.send('Performance.enable', { timeDomain: 'threadTicks' });
    let sent = 0;
    /** A minute of events, as fast as they are stored; the page's clock moves with them. */
    const minute = async (): Promise<Load> => {
      const before = await metricsOf(developer);
      for (let part = 0; part < PARTS; part += 1) {
        const lines = Array.from({ length: (EVENTS_PER_SECOND * 60) / PARTS }, () => {
          sent += 1;
          return JSON.stringify({ typeName: `type ${sent % 7}`, payload: { n: sent, of: 'ten minutes' } });
        });
        const stored = await service.request({
          method: 'POST',
          path: '/v1/events',
          headers: { Authorization: `Bearer ${loggingToken}`, 'Content-Type': 'application/x-ndjson' },
          body: lines.join('\n'),
        });
        expect(stored.status).toBe(200);
        await page.clock.runFor(60_000 / PARTS);
      }
      await page.clock.runFor(2_000);
      await page.getByText(`"n":${sent},`).waitFor();
      await developer.send('HeapProfiler.collectGarbage');
      const after = await metricsOf(developer);
      return { ...after, work: after.work - before.work };
    };
    await developer.send('HeapProfiler.collectGarbage');
    const first = await metricsOf(developer);
    const loads: Load[] = [];
    for (let minutes = 0; minutes < 10; minutes += 1) loads.push(await minute());
    // The list has filled and begun anew by then.
    const [early, late] = [loads.slice(2, 6), loads.slice(6)];
    for (const { heap, nodes } of loads) {
      expect(heap - first.heap, JSON.stringify(loads)).toBeLessThan(MOST_GROWTH_BYTES);
      expect(nodes, JSON.stringify(loads)).toBeLessThan(MOST_NODES);
    }
    const most = (of: readonly Load[], name: keyof Load): number => Math.max(...of.map((load) => load[name]));
    for (const [name, factor] of Object.entries(FLAT) as [keyof Load, number][]) // Its own names.
      expect(most(late, name), `${name}: ${JSON.stringify(loads)}`).toBeLessThan(factor * most(early, name));
    expect(complaints).toEqual([]);
    await page.context().close();
  });
});

/** What ten minutes may add to the heap. */
const MOST_GROWTH_BYTES = 10_000_000;
/** Those of the page, and of the rows near the viewport: a list of a thousand rows has more, and none of them is kept. */
const MOST_NODES = 5_000;
/** Batches of a minute of events. */
const PARTS = 6;
/** What grows by less is flat: four minutes beside four others. What the CPU takes for the same work varies on a busy machine. */
const FLAT = { heap: 1.25, nodes: 1.25, listeners: 1.25, work: 2 };

/** What a page takes: bytes of memory after a collection, elements, and seconds of its main thread. */
interface Load {
  readonly heap: number;
  readonly nodes: number;
  readonly listeners: number;
  readonly work: number;
}

async function metricsOf(developer: CDPSession): Promise<Load> {
  const { metrics } = await developer.send('Performance.getMetrics');
  const metric = (name: string): number => metrics.find((one) => one.name === name)?.value ?? Number.NaN;
  return {
    heap: metric('JSHeapUsedSize'),
    nodes: metric('Nodes'),
    listeners: metric('JSEventListeners'),
    work: metric('TaskDuration'),
  };
}
