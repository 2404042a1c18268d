/** The whole story with the keyboard alone: from the first account to a bar, the events behind it, and the way out. */
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { PASSWORD } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { clipboard, figure, visit } from './visitor.ts';

/** More steps than any page has places for the focus. */
const MOST_STEPS = 150;

describe.skipIf(withoutBrowser !== '')('with the keyboard alone', () => {
  let service: TestService;
  let browser: Browser;
  let watched: Watched;
  let page: Page;
  let loggingToken: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    // The first account would own the app that nobody owns.
    await service.sql`DELETE FROM apps`;
    watched = await visit(browser, service, null);
    page = watched.page;
    // Whatever is pressed with a pointer fails the test.
    await page.addInitScript(() => {
      addEventListener('pointerdown', () => console.error('a pointer was used'), true);
    });
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /** Goes on with Tab until an element has the focus, which it must show. */
  async function tabTo(wanted: Locator, key: 'Tab' | 'Shift+Tab' = 'Tab'): Promise<void> {
    await wanted.waitFor();
    const isThere = () => wanted.evaluate((element) => element === document.activeElement);
    for (let steps = 0; !(await isThere()); steps += 1) {
      if (steps > MOST_STEPS) throw new Error(`Tab does not come to ${wanted}`);
      await page.keyboard.press(key);
    }
    const ring = await wanted.evaluate((element) => {
      const shown = (one: Element): boolean => {
        const { outlineStyle, boxShadow } = getComputedStyle(one);
        return outlineStyle !== 'none' || boxShadow !== 'none';
      };
      // Of a radio button the label has it.
      return shown(element) || [...(element.parentElement?.children ?? [])].some(shown);
    });
    expect(ring, `${wanted} shows its focus`).toBe(true);
  }

  const press = async (wanted: Locator): Promise<void> => {
    await tabTo(wanted);
    await page.keyboard.press('Enter');
  };
  const type = (text: string): Promise<void> => page.keyboard.type(text);
  const button = (name: string | RegExp): Locator =>
    page.getByRole('button', typeof name === 'string' ? { name, exact: true } : { name });
  const goTo = async (place: string): Promise<void> => {
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'Where to' }).waitFor();
    await type(place);
    await page.locator('.palette-list [aria-selected=true]', { hasText: place }).waitFor();
    await page.keyboard.press('Enter');
  };
  const parameter = (name: string): string[] => new URL(page.url()).searchParams.getAll(name);

  test('the first account and its app are made', async () => {
    await page.goto('/');
    await tabTo(page.getByLabel('Email'));
    await type('owner@example.com');
    await tabTo(page.getByLabel('Password'));
    await type(PASSWORD);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Create your first app' }).waitFor();
    await press(button('New app').first());
    await page.getByRole('dialog').waitFor();
    await type('Web shop');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Send the first event' }).waitFor();
    await press(button('Copy').first());
    await expect.poll(() => clipboard(page)).toContain('tdl_');
    loggingToken = /tdl_\w+/.exec(await clipboard(page))?.[0] ?? '';
  });

  test('events come, and a bar of the chart leads to those behind it', async () => {
    for (let sent = 0; sent < 6; sent += 1) {
      const typeName = sent % 2 === 0 ? 'order placed' : 'payment failed';
      const payload = { country: sent < 4 ? 'DE' : 'FR', n: sent };
      expect((await service.post({ loggingToken, typeId: undefined, typeName, payload })).status).toBe(201);
    }
    const chart = page.getByRole('application');
    await chart.waitFor();
    await expect.poll(() => figure(page, 'In this range')).toBe(6);
    await tabTo(chart);
    await page.keyboard.press('End');
    await expect.poll(() => chart.locator('[aria-live]').textContent()).toMatch(/\d+ in all/);
    await page.keyboard.press('Space');
    await expect.poll(() => parameter('at').length).toBe(1);
    await press(button('Show the events of the whole range'));
    await expect.poll(() => parameter('at')).toEqual([]);
    await tabTo(chart, 'Shift+Tab');
    await page.keyboard.press('End');
    await page.keyboard.press('Shift+Home');
    await page.keyboard.press('Enter');
    await expect.poll(() => parameter('back')).toEqual(['24h']);
    await tabTo(chart);
    await page.keyboard.press('Backspace');
    await expect.poll(() => parameter('range')).toEqual(['24h']);
  });

  test('events are filtered by what is typed, and by a value of one that is open', async () => {
    await page.keyboard.press('/');
    await type('country:FR');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('article').count()).toBe(2);
    await press(button('Remove the filter country:FR'));
    await expect.poll(() => page.locator('article').count()).toBe(6);
    await press(page.locator('.event-row').first());
    await press(page.locator('article').first().getByRole('button', { name: '"FR"', exact: true }));
    await press(button('Filter by it'));
    await expect.poll(() => parameter('filter')).toEqual(['country:FR']);
    await page.keyboard.press('/');
    await page.keyboard.press('Backspace');
    await expect.poll(() => parameter('filter')).toEqual([]);
  });

  test('range, legend, kind of chart and table are chosen, and the view is saved', async () => {
    await press(button(/^Time range/));
    await press(button('7 d'));
    await expect.poll(() => parameter('range')).toEqual(['7d']);
    await press(button(/^payment failed/));
    await expect.poll(() => figure(page, 'In this range')).toBe(3);
    await tabTo(page.getByRole('radio', { name: 'Histogram' }), 'Shift+Tab');
    await page.keyboard.press('ArrowRight');
    await expect.poll(() => parameter('mode')).toEqual(['accumulated']);
    await press(button(/^Chart options/));
    await press(button('Show as a table'));
    await page.keyboard.press('Escape');
    await page.getByRole('table').waitFor();
    await tabTo(button(/^Saved views/), 'Shift+Tab');
    await page.keyboard.press('Enter');
    await press(button('Save this view…'));
    await page.getByRole('dialog').waitFor();
    await type('Failures');
    await page.keyboard.press('Enter');
    await page.getByText('The view was saved').waitFor();
  });

  test('pages and saved views are found by typing, types are hidden, and a token is made and revoked', async () => {
    await goTo('Types');
    await press(button('Hide payment failed'));
    await button('Show payment failed').waitFor();
    await goTo('Settings');
    await press(button('New resource token…'));
    await page.getByRole('dialog').waitFor();
    await type('Analytics');
    await page.keyboard.press('Enter');
    await press(button('Copy the resource token'));
    await expect.poll(() => clipboard(page)).toMatch(/^tdr_/);
    await press(button('I have copied it'));
    await press(button('Revoke Analytics'));
    await page.getByText(/^revoked/).waitFor();
    await goTo('Failures');
    // A line that is shown alone is shown, although its type is hidden.
    await expect.poll(() => parameter('mode')).toEqual(['accumulated']);
    await page.getByRole('application').waitFor();
  });

  test('the keys are listed, and signing out ends the story', async () => {
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await press(button('Sign out'));
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(watched.complaints).toEqual([]);
  });
});
