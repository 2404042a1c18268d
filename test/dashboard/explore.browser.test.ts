/** What one does with the page of an app beside looking: print it, save its picture, stop a search; and the warning of its usage. */
import { buffer } from 'node:stream/consumers';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { visit } from './visitor.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const EVENTS = 20;
const LIMIT = 10;
/** Messages of a feed, one each 50 ms, which the page gathers for a second. */
const MESSAGES = 30;
/** The grid lines of the chart in the light theme (tokens.css). */
const LIGHT_GRID = [228, 234, 237];

describe.skipIf(withoutBrowser !== '')('the page of an app', () => {
  const clock = new RunningClock();
  let service: TestService;
  let browser: Browser;
  let watched: Watched;
  let page: Page;
  let app: { appId: string; loggingToken: string };

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([
      startTestService({ clock, config: { CREATE_LIMIT_PER_MINUTE: LIMIT } }),
      launchBrowser(),
    ]);
    const owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner, 'Shop');
    const { typeId } = await createEventType(service.sql, {
      ...{ appId: app.appId, name: 'order placed', maxTypes: 10 },
    });
    const start = Date.now() - 2 * HOUR_MS;
    const events = Array.from({ length: EVENTS }, (_, index) => ({
      at: new Date(start - index * HOUR_MS).toISOString(),
      payload: `{"n":${index}}`,
    }));
    await addPastEvents(service, typeId, events);
    watched = await visit(browser, service, owner, { colorScheme: 'dark' });
    page = watched.page;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const open = async (query = ''): Promise<void> => {
    await page.goto(`/apps/${app.appId}?range=2d&tz=UTC${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
    await page.locator('article').first().waitFor();
  };
  /** Whether a color is drawn on the chart without being blended. */
  const isDrawn = (color: readonly number[]): Promise<boolean> =>
    page.locator('.plot canvas').evaluate((element, [red, green, blue]) => {
      const drawn = element as HTMLCanvasElement;
      const { width, height } = drawn;
      const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
      copy?.drawImage(drawn, 0, 0);
      const pixels = copy?.getImageData(0, 0, width, height).data ?? [];
      for (let at = 0; at < pixels.length; at += 4)
        if (
          pixels[at] === red &&
          pixels[at + 1] === green &&
          pixels[at + 2] === blue &&
          pixels[at + 3] === 255
        )
          return true;
      return false;
    }, color);
  const metric = async (name: string): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(body)?.[1]);
  };

  test('is printed light and without its controls, though the theme is dark', async () => {
    await open();
    const ground = (): Promise<string> =>
      page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect([await ground(), await isDrawn(LIGHT_GRID)]).toEqual(['rgb(12, 17, 20)', false]);
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
    try {
      expect(await ground()).toBe('rgb(247, 248, 249)');
      await expect.poll(() => isDrawn(LIGHT_GRID)).toBe(true);
      for (const shown of ['.plot canvas', '.main-figure', '.legend', 'article', 'h1', '.list-head h2'])
        expect(await page.locator(shown).first().isVisible(), shown).toBe(true);
      for (const hidden of [
        'header.top',
        '.tabs',
        '.controls',
        '.popover',
        '.segmented',
        '.filter-bar',
        '.eye',
      ])
        expect(await page.locator(hidden).first().isVisible(), hidden).toBe(false);
      expect(await page.locator('.button:visible, .icon-button:visible').count()).toBe(0);
      expect(await page.locator('article').count()).toBe(EVENTS);
    } finally {
      await page.emulateMedia({ media: 'screen', colorScheme: 'dark' });
    }
    await expect.poll(() => isDrawn(LIGHT_GRID)).toBe(false);
    expect(watched.complaints).toEqual([]);
  });

  test('is printed with its filter, and without the way to remove it', async () => {
    await open('&filter=n:3');
    await page.emulateMedia({ media: 'print' });
    try {
      expect(await page.locator('.filter-bar .chip-name').isVisible()).toBe(true);
      // Of when it is, and on whose clock.
      await page.getByText(/^\d+( \w+ \d+)?, \d\d:\d\d – \d+ \w+ \d+, \d\d:\d\d \(UTC\)$/).waitFor();
      for (const hidden of ['.chip-remove', '.filter-bar input'])
        expect(await page.locator(hidden).first().isVisible(), hidden).toBe(false);
    } finally {
      await page.emulateMedia({ media: 'screen' });
    }
  });

  test('is saved as a picture: the chart as it is drawn, below a title and above its legend', async () => {
    await open();
    await page.getByRole('button', { name: /^Chart options/ }).click();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Picture (PNG)' }).click(),
    ]);
    expect(download.suggestedFilename()).toMatch(/^shop-\d{4}-\d\d-\d\dt.*\.png$/);
    const file = await buffer(await download.createReadStream());
    const seen = await page.evaluate(async (base64) => {
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
      const picture = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      const drawn = document.querySelector<HTMLCanvasElement>('.plot canvas');
      if (drawn === null) return null;
      const ratio = devicePixelRatio;
      const readable = (source: CanvasImageSource, width: number, height: number) => {
        const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
        context?.drawImage(source, 0, 0);
        return (...place: [left: number, top: number, width: number, height: number]): Uint8ClampedArray =>
          context?.getImageData(...place).data ?? new Uint8ClampedArray();
      };
      const { width, height } = drawn;
      const read = readable(picture, picture.width, picture.height);
      const inPicture = read(16 * ratio, 64 * ratio, width, height);
      const onPage = readable(drawn, width, height)(0, 0, width, height);
      const colorsOf = (from: number, rows: number): number =>
        new Set(new Uint32Array(read(0, from, picture.width, rows).buffer)).size;
      let [opaque, different] = [0, 0];
      for (let at = 0; at < onPage.length; at += 4) {
        if (onPage[at + 3] !== 255) continue;
        opaque += 1;
        if ([0, 1, 2].some((part) => inPicture[at + part] !== onPage[at + part])) different += 1;
      }
      const below = 64 * ratio + height;
      return {
        opaque,
        different,
        title: colorsOf(0, 64 * ratio),
        legend: colorsOf(below, picture.height - below),
      };
    }, file.toString('base64'));
    expect(seen?.opaque).toBeGreaterThan(1_000);
    expect(seen?.different).toBe(0);
    expect(Math.min(seen?.title ?? 0, seen?.legend ?? 0)).toBeGreaterThan(2);
    expect(watched.complaints).toEqual([]);
  });

  test('searches for an undeclared field until it is stopped, on the server too', async () => {
    // The feed says again and again that the page has to be read anew.
    let [told, isLocked] = [0, false];
    const recount = 'event: recount\nid: 1\ndata: {}\n\n';
    await page.route('**/live?*', async (route) => {
      const body = `retry: 50\n${isLocked ? recount : '\n'}`;
      await route.fulfill({ contentType: 'text/event-stream', body });
      if (isLocked) told += 1;
    });
    await open();
    const aborted = await metric('tidemark_requests_aborted_total');
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const locked = service.sql.begin(async (tx) => {
      await tx`LOCK TABLE events IN ACCESS EXCLUSIVE MODE`;
      isLocked = true;
      await released;
    });
    await until(() => isLocked, 'the events are locked');
    const requests: string[] = [];
    page.on('request', (request) => requests.push(request.url()));
    try {
      await page.getByRole('combobox', { name: 'Filter' }).fill('n:3');
      await page.keyboard.press('Enter');
      const stop = page.getByRole('button', { name: 'Stop', exact: true });
      await stop.waitFor();
      expect(await page.getByRole('progressbar', { name: 'Progress of the search' }).isVisible()).toBe(true);
      await page.getByRole('status').getByText('Searching').waitFor();
      const searches = (): string[] => requests.filter((url) => /\/events\?.*filter=n%3A3/.test(url));
      await until(() => searches().length === 1, 'the search is asked for');
      const first = told;
      await until(() => told > first + MESSAGES, 'the feed has told it');
      await stop.click();
      await page.getByRole('button', { name: 'Search the whole range' }).waitFor();
      const before = told;
      await until(() => told > before + MESSAGES, 'the feed has told it once more');
      await until(
        async () => (await metric('tidemark_requests_aborted_total')) > aborted,
        'the server has noticed it',
      );
      release();
      await locked;
      expect(searches()).toHaveLength(1);
    } finally {
      release();
      await locked;
      isLocked = false;
      await page.unroute('**/live?*');
    }
    expect(await page.locator('.list-head p').innerText()).toBe('0 found so far');
    await page.getByRole('button', { name: 'Search the whole range' }).click();
    await expect.poll(() => page.locator('.list-head p').innerText()).toBe('1 event');
  });

  test('warns of the limit before it is reached, and says what came beyond it', async () => {
    const send = async (requests: number): Promise<number[]> => {
      const statuses: number[] = [];
      for (let sent = 0; sent < requests; sent++)
        statuses.push((await service.post({ ...app, typeId: undefined, typeName: 'click' })).status);
      return statuses;
    };
    /** The requests of this minute, and the warning; both as soon as there are so many. */
    const shown = async (requests: number): Promise<string> => {
      const cards = page.locator('.usage-cards');
      await until(async () => {
        await page.goto(`/apps/${app.appId}/usage`);
        await cards.waitFor();
        return (await cards.locator('.figure').first().innerText()) === String(requests);
      }, `${requests} requests are shown`);
      return (await page.locator('.usage .callout').allInnerTexts()).join();
    };
    // The requests are all of one minute.
    clock.advance(MINUTE_MS + 5_000 - (clock.wall() % MINUTE_MS));
    expect(await send(2)).toEqual([201, 201]);
    expect(await shown(2)).toBe('');
    expect(await send(LIMIT - 2)).not.toContain(429);
    expect(await shown(LIMIT)).toContain('The busiest minute of the last hour had 10 of 10 requests.');
    expect(await send(3)).toEqual([429, 429, 429]);
    await expect
      .poll(async () => await shown(LIMIT))
      .toContain('3 requests of the last hour came beyond the limit.');

    // What a producer has to correct, with a mark at the tab.
    clock.advance(2 * MINUTE_MS);
    expect((await service.post({ ...app, typeId: undefined, payload: [1] })).status).toBe(400);
    const list = page.getByRole('region', { name: 'Last refused requests' });
    await expect
      .poll(async () => {
        await shown(0);
        return (await list.locator('tbody tr').allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' '));
      })
      .toHaveLength(2);
    const [latest, limited] = await list.locator('tbody tr').allInnerTexts();
    for (const text of ['First token', '/public/create_event', 'INVALID_REQUEST', '"payload":[1]'])
      expect(latest).toContain(text);
    expect(latest).not.toContain(app.loggingToken);
    expect(limited).toContain('RATE_LIMIT_EXCEEDED');
    await expect
      .poll(() => page.getByRole('link', { name: /Usage.*refused in the last hour/ }).count())
      .toBe(1);
  });
});
