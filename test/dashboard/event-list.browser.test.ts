/** The list of events while one scrolls: every event once, in its order, and never all of them in the document. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { visit } from './visitor.ts';

const EVENTS = 1_500;
const MOST_ROWS = 400;

describe.skipIf(withoutBrowser !== '')('a long list', () => {
  let service: TestService;
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    const owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken } = await newOwnApp(owner);
    const { typeId } = await createEventType(service.sql, { appId, name: 'tick', maxTypes: 10 });
    const start = Date.now() - 3_600_000;
    const events = Array.from({ length: EVENTS }, (_, index) => ({
      at: new Date(start - index * 1_000).toISOString(),
      payload: `{"n":${index}}`,
    }));
    await addPastEvents(service, typeId, events);
    page = (await visit(browser, service, owner)).page;
    await page.goto(`/apps/${appId}/events?range=24h&tz=UTC`);
    await page.locator('article').first().waitFor();
    // Arrives while one scrolls: it must shift nothing.
    await page.mouse.wheel(0, 600);
    await page.waitForFunction(() => scrollY > 300);
    await service.post({ loggingToken, typeId, payload: { n: -1 } });
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  test('has every event once, newest first, and a bounded number of rows', async () => {
    const seen = new Set<number>();
    let mostRows = 0;
    const end = page.getByText(`${EVENTS.toLocaleString('en-GB')} events: these are all`);
    for (let step = 0; step < 200 && !((await end.isVisible()) && seen.size === EVENTS); step++) {
      const texts = await page.locator('article code').allTextContents();
      const numbers = texts.map((text) => Number(/\{"n":(-?\d+)\}/.exec(text)?.[1]));
      expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
      for (const number of numbers) seen.add(number);
      mostRows = Math.max(mostRows, numbers.length);
      await page.mouse.wheel(0, 1_500);
      await page.waitForFunction(() => new Promise((resolve) => requestAnimationFrame(() => resolve(true))));
    }
    expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: EVENTS }, (_, index) => index));
    expect(mostRows).toBeLessThan(MOST_ROWS);
  });

  test('keeps its place: back at the top is the first row, and newer events wait for a click', async () => {
    await page.evaluate(() => scrollTo(0, 0));
    await page.getByText('{"n":0}', { exact: true }).waitFor();
    await page.getByRole('button', { name: '1 new event' }).click();
    await page.getByText('{"n":-1}', { exact: true }).waitFor();
    expect(await page.getByRole('button', { name: 'new event' }).count()).toBe(0);
  });
});
