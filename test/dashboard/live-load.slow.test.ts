/** A busy live page: what the main thread of the browser has to do while events arrive. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { visit } from './visitor.ts';

const EVENTS_PER_SECOND = 20;
const SECONDS = 8;
/** The share of the time that the page's own work may take. */
const MOST_SHARE = 0.1;

/** An event of Chromium's trace format, as far as it is read here; times in microseconds. */
interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  /** How long the thread itself was at work. */
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** Work of the main thread as a share of the time that was traced: tasks within others count once. */
function shareOfMainThread(events: readonly TraceEvent[]): number {
  const main = events.find(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain');
  const tasks = events
    .filter(({ pid, tid, tdur }) => pid === main?.pid && tid === main?.tid && tdur !== undefined)
    .sort((a, b) => a.ts - b.ts);
  let [end, work] = [0, 0];
  for (const { ts, dur = 0, tdur = 0 } of tasks) {
    if (ts < end) continue;
    end = ts + dur;
    work += tdur;
  }
  return work / (end - (tasks[0]?.ts ?? 0));
}

describe.skipIf(withoutBrowser !== '')('a live page', { timeout: 120_000 }, () => {
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

  test(`takes less than a tenth of the main thread at ${EVENTS_PER_SECOND} events a second`, async () => {
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
    await browser.startTracing(page, { categories: ['toplevel', '__metadata'] });
    const start = performance.now();
    for (let sent = 0; sent < EVENTS_PER_SECOND * SECONDS; sent += 1) {
      const due = start + (sent * 1_000) / EVENTS_PER_SECOND;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
      await post(200 + sent);
    }
    await page.getByText(`"n":${199 + EVENTS_PER_SECOND * SECONDS},`).waitFor();
    const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as {
      traceEvents: TraceEvent[];
    };
    expect(shareOfMainThread(traceEvents)).toBeLessThan(MOST_SHARE);
    expect(complaints).toEqual([]);
  });
});
