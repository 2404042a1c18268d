/** What a view keeps: steps back through it, links to it, its panels within the window, and what is typed when the session ends. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { clipboard, figure, visit } from './visitor.ts';

const HOUR_MS = 3_600_000;
/** Types of one event each, beside two that have 30. */
const RARE = 14;
const ALL = 30 + RARE;
const EMAIL = 'owner@example.com';

describe.skipIf(withoutBrowser !== '')('a view', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let watched: Watched;
  let page: Page;
  let appId: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, EMAIL);
    ({ appId } = await newOwnApp(owner));
    const start = Math.floor(Date.now() / HOUR_MS) * HOUR_MS - HOUR_MS;
    for (const [name, every] of [
      ['page viewed', 1],
      ['order placed', 2],
    ] as const) {
      const { typeId } = await createEventType(service.sql, { appId, name, maxTypes: 20 });
      const events = Array.from({ length: 20 / every }, (_, index) => ({
        at: new Date(start - index * every * HOUR_MS).toISOString(),
        payload: `{"n":${index},"a field with a long name, and then some more":"x","m":${index % 3}}`,
      }));
      await addPastEvents(service, typeId, events);
    }
    // More than have a line of their own.
    for (let index = 0; index < RARE; index += 1) {
      const { typeId } = await createEventType(service.sql, { appId, name: `rare ${index}`, maxTypes: 20 });
      await addPastEvents(service, typeId, [{ at: new Date(start).toISOString() }]);
    }
    watched = await visit(browser, service, owner, { viewport: { width: 1440, height: 900 } });
    page = watched.page;
  });
  beforeEach(() => {
    watched.complaints.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (query = ''): Promise<void> => {
    await page.goto(`/apps/${appId}?range=24h&tz=UTC${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
    await page.locator('article').first().waitFor();
  };
  const parameter = (name: string): string | null => new URL(page.url()).searchParams.get(name);
  const focused = (): Promise<string> =>
    page.evaluate(() => document.activeElement?.closest('label, button')?.textContent?.trim() ?? '');

  test('has its panels within the window', async () => {
    await open();
    for (const name of [/^Time range/, /^Chart options/, /^Columns/, /^Export/, /^Saved views/]) {
      await page.getByRole('button', { name }).click();
      const box = await page.locator('.panel').boundingBox();
      expect((box?.x ?? -1) >= 0 && (box?.x ?? 0) + (box?.width ?? Infinity) <= 1440, String(name)).toBe(
        true,
      );
      await page.keyboard.press('Escape');
      await page.locator('.panel').waitFor({ state: 'detached' });
    }
  });

  test('keeps the focus on a column that is picked and moved, and closes at Escape', async () => {
    await open();
    await page.getByRole('button', { name: /^Columns/ }).click();
    await page.getByRole('checkbox', { name: 'm', exact: true }).focus();
    await page.keyboard.press('Space');
    await expect.poll(() => parameter('column')).toBe('m');
    expect(await focused()).toBe('m');
    await page.getByRole('checkbox', { name: 'n', exact: true }).focus();
    await page.keyboard.press('Space');
    await expect.poll(() => new URL(page.url()).searchParams.getAll('column')).toEqual(['m', 'n']);
    await page.getByRole('button', { name: 'Move n to the left' }).focus();
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).searchParams.getAll('column')).toEqual(['n', 'm']);
    expect(await page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe(
      'Move n to the left',
    );
    await page.keyboard.press('Escape');
    await page.locator('.panel').waitFor({ state: 'detached' });
    expect(await focused()).toContain('2 columns');
    await page.evaluate(() => localStorage.clear());
  });

  /** What headline and list say. */
  const numbers = async (): Promise<(number | string)[]> => [
    await figure(page, 'In this range'),
    await page.locator('.list-head p').innerText(),
  ];
  const line = (name: string) => page.locator('.legend .line', { hasText: name });
  const typesListed = async (): Promise<string[]> => [
    ...new Set(await page.locator('.event .type').allInnerTexts()),
  ];

  test('loads the names on screen, though there are many types, and leaves one of them out', async () => {
    const many = await newOwnApp(owner, 'Many types');
    const at = new Date(Date.now() - HOUR_MS).toISOString();
    const { sql } = service;
    await sql`
      INSERT INTO event_types (app_id, public_id, name)
      SELECT apps.id, 'typ_many' || lpad(n::text, 12, '0'), 'kind ' || n
        FROM apps, generate_series(1, 130) AS n WHERE apps.public_id = ${many.appId}`;
    // The one that is seen is not among the first by name, nor by its number of events.
    const last = new Date(Date.now() - HOUR_MS / 2).toISOString();
    await addPastEvents(service, `typ_many${'130'.padStart(12, '0')}`, [{ at: last }]);
    for (let n = 1; n <= 101; n += 1)
      await addPastEvents(service, `typ_many${String(n).padStart(12, '0')}`, [{ at }, { at }]);
    const asked: string[] = [];
    const note = (request: { url(): string }): void => {
      if (request.url().includes('/types')) asked.push(new URL(request.url()).search);
    };
    page.on('request', note);
    try {
      await page.goto(`/apps/${many.appId}?range=24h&tz=UTC`);
      await page.locator('.event .type', { hasText: 'kind 130' }).waitFor();
      expect(asked).toHaveLength(2);
      for (const query of asked) expect(query).toMatch(/limit=100|typeId=/);
      await page.getByRole('combobox', { name: 'Filter' }).fill('kind 130');
      await page.getByRole('option', { name: /^Type\s*kind 130/ }).waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('combobox', { name: 'Filter' }).fill('');
      await page.goto(`/apps/${many.appId}?range=24h&tz=UTC`);
      await page
        .locator('.legend .line')
        .first()
        .click({ modifiers: ['Alt'] });
      await expect.poll(numbers).toEqual([201, '201 events']);
      expect(parameter('type')).toMatch(/^-typ_many/);
    } finally {
      page.off('request', note);
    }
  });

  test('is gone to from anywhere: a type, a field, and an event by its id', async () => {
    await open();
    const go = async (text: string, name: string | RegExp): Promise<void> => {
      await page.keyboard.press('Control+K');
      await page.getByRole('combobox', { name: 'Where to, or what to do' }).fill(text);
      await page.getByRole('option', { name }).first().click();
    };
    await go('orde', /^order placed\s*type$/);
    await expect.poll(numbers).toEqual([10, '10 events']);
    await go('long name', /field$/);
    await expect.poll(() => parameter('filter')).toBe('"a field with a long name, and then some more":*');
    const { data } = await owner.get(`/api/apps/${appId}/events?limit=1`);
    const [event] = (data as { events: { id: string }[] }).events;
    await page.goto('/');
    // The keys are heard once the page has been drawn, which the list comes after.
    await page.locator('main a[href^="/apps/"]').first().waitFor();
    await go(event?.id ?? '', /^[\da-f-]{36}\s*event$/);
    await expect.poll(() => parameter('event'), { timeout: patient(20_000) }).toBe(event?.id);
    await page
      .getByRole('dialog')
      .getByText(event?.id ?? '')
      .first()
      .waitFor();
    await page.keyboard.press('Escape');
  });

  test('draws a line or not, and counts and lists it all the same', async () => {
    await open();
    await page.getByRole('button', { name: 'Hide page viewed in the chart' }).click();
    await page.locator('.legend .off', { hasText: 'page viewed' }).waitFor();
    expect(await numbers()).toEqual([ALL, `${ALL} events`]);
    expect(await typesListed()).toContain('page viewed');
    // The pointer rests on the line: nothing is dimmed for what is not drawn.
    const [red, green, blue] = await line('order placed')
      .locator('.swatch')
      .evaluate((swatch) => {
        const context = new OffscreenCanvas(1, 1).getContext('2d');
        if (context === null) return [];
        context.fillStyle = getComputedStyle(swatch).backgroundColor;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data];
      });
    const isDrawn = (): Promise<boolean> =>
      page.locator('.plot canvas').evaluate(
        (element, color) => {
          const { width, height } = element as HTMLCanvasElement; // The locator names one.
          const copy = new OffscreenCanvas(width, height).getContext('2d');
          copy?.drawImage(element as HTMLCanvasElement, 0, 0);
          const pixels = copy?.getImageData(0, 0, width, height).data ?? [];
          for (let at = 0; at < pixels.length; at += 4)
            if (color.every((part, index) => part === pixels[at + index])) return true;
          return false;
        },
        [red, green, blue],
      );
    await expect.poll(isDrawn).toBe(true);
    await page.getByText('Lines with a closed eye are not drawn').waitFor();
    await page.getByRole('button', { name: 'Draw page viewed in the chart' }).click();
    await page.locator('.legend .off').waitFor({ state: 'detached' });
  });

  test('is linked to as it moves on, or with its dates', async () => {
    await open();
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByRole('button', { name: 'Copy link', exact: true }).click();
    expect(new URL(await clipboard(page)).searchParams.get('range')).toBe('24h');
    await page.getByRole('button', { name: 'Copy link with these dates' }).click();
    const dated = new URL(await clipboard(page));
    const [from, to] = ['from', 'to'].map((name) => Date.parse(dated.searchParams.get(name) ?? ''));
    expect((to ?? 0) - (from ?? 0)).toBe(24 * HOUR_MS);
    await page.goto(dated.href);
    await page.locator('.plot .over').waitFor();
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByRole('button', { name: 'Copy link', exact: true }).waitFor();
    // Such a link has its dates already.
    expect(await page.getByRole('button', { name: 'Copy link with these dates' }).count()).toBe(0);
  });

  test('moves the chart for neither the fields beside it nor the total so far', async () => {
    await open();
    const top = async (): Promise<number> => {
      await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
      return await page.locator('.plot').evaluate((plot) => Math.round(plot.getBoundingClientRect().top));
    };
    const before = await top();
    await page.getByLabel('Total so far', { exact: true }).check();
    await page.locator('.figures-row dt', { hasText: 'Total so far' }).waitFor();
    expect(await top()).toBe(before);
    await page.getByRole('button', { name: 'Fields', exact: true }).click();
    await page.locator('aside.facets').waitFor();
    expect(await top()).toBe(before);
    await page.getByRole('button', { name: 'Fields', exact: true }).click();
  });

  test('has its number in one line at a zoom of 200 %', async () => {
    await page.setViewportSize({ width: 720, height: 450 });
    await open();
    const lines = await page.locator('.main-figure small').evaluate((text) => {
      const range = document.createRange();
      range.selectNodeContents(text);
      return new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom / 8))).size;
    });
    expect(lines).toBe(1);
    const { width } = (await page.locator('.figures-row').boundingBox()) ?? { width: 0 };
    expect(width).toBeGreaterThan(600);
    await page.setViewportSize({ width: 1440, height: 900 });
  });

  test('says that it is not live without a network', async () => {
    await open();
    await page.getByRole('button', { name: 'Live', exact: true }).waitFor();
    await page.context().setOffline(true);
    await page.getByRole('button', { name: 'Reconnecting…' }).waitFor();
    await page.context().setOffline(false);
    await page.getByRole('button', { name: 'Live', exact: true }).waitFor();
  });

  test('keeps what is typed when the session ends, and sends it after signing in over the page', async () => {
    const { page: other, complaints } = await visit(browser, service, owner);
    await other.goto(`/apps/${appId}/settings`);
    const name = other.getByRole('textbox', { name: 'Name', exact: true });
    await name.fill('Renamed shop');
    await other.context().clearCookies();
    await other.getByRole('button', { name: 'Rename', exact: true }).click();
    const dialog = other.getByRole('dialog', { name: 'Your session has ended' });
    await dialog.waitFor();
    await other.keyboard.press('Escape');
    expect(await dialog.getByLabel('Email').inputValue()).toBe(EMAIL);
    await dialog.getByLabel('Password').fill('not the password');
    await other.keyboard.press('Enter');
    await dialog.getByRole('alert').waitFor();
    await dialog.getByLabel('Password').fill(PASSWORD);
    await other.keyboard.press('Enter');
    await dialog.waitFor({ state: 'detached' });
    await other.getByRole('heading', { level: 1, name: 'Renamed shop' }).waitFor();
    expect([await name.inputValue(), complaints]).toEqual(['Renamed shop', []]);
    await other.context().close();
  });

  test('is gone when another account signs in over it, and when nobody does', async () => {
    await newPerson(service, 'other@example.com');
    const { page: other } = await visit(browser, service, await newPerson(service, 'first@example.com'));
    await other.goto('/account');
    await other.locator('.activity li').first().waitFor();
    await other.context().clearCookies();
    await other.getByRole('link', { name: 'Apps' }).click();
    const dialog = other.getByRole('dialog', { name: 'Your session has ended' });
    await dialog.getByLabel('Email').fill('other@example.com');
    await dialog.getByLabel('Password').fill(PASSWORD);
    await other.keyboard.press('Enter');
    await other.getByRole('link', { name: 'Account of other@example.com' }).waitFor();
    expect(new URL(other.url()).pathname).toBe('/');
    await other.locator('.empty, .app-card').first().waitFor();
    await other.context().clearCookies();
    // The page may have asked by itself, and lie behind the dialog by now.
    await other.getByRole('link', { name: /Account of/, includeHidden: true }).dispatchEvent('click');
    await dialog.getByRole('button', { name: 'Sign out' }).click();
    await other.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await other.getByText('other@example.com').count()).toBe(0);
    await other.context().close();
  });
});
