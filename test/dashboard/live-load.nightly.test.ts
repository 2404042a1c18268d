/** A busy live page: what the main thread of the browser has to do while events arrive. */
import type { Browser } from 'playwright-core';
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
});
