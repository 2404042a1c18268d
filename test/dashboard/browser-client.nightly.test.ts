/** The browser client in Chromium, against the real service: what it accepts is stored exactly once, at the right time. */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { gzipSync } from 'node:zlib';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { buildBrowserClient } from '../../client/browser/build.mjs';
import type { Tidemark } from '../../client/browser/src/tidemark.ts';
import { createBrowserKey, revokeBrowserKey } from '../../src/apps/browser-keys.ts';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { patient } from '../support/patience.ts';
import { startTestService, type TestService, testSecret, until } from '../support/service.ts';
import { pageOf, Site } from './browser-pages.ts';

vi.setConfig({ testTimeout: patient(3_000_000), hookTimeout: patient(120_000) });

/** Events of the campaign. The full size is 100,000, with CAMPAIGN_EVENTS. */
const EVENTS = Number(process.env.CAMPAIGN_EVENTS ?? 2_000);
const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
/** How far a time may be off: the time of a request, on a busy machine. */
const TIME_ERROR_MS = 5_000;

interface Vector {
  readonly type: string;
  readonly repeat?: number;
  readonly payload: string;
  readonly padding?: number;
  readonly accepted: boolean;
}
const VECTORS = JSON.parse(
  readFileSync(new URL('../../client/test-vectors/events.json', import.meta.url), 'utf8'),
) as readonly Vector[];

declare global {
  interface Window {
    tidemark: Tidemark;
    Tidemark: typeof Tidemark;
    accepted(n: number): void;
  }
}

describe.skipIf(withoutBrowser !== '')('the browser client', () => {
  let service: TestService;
  let browser: Browser;
  let site: Site;
  let foreign: Site;
  let key: string;
  beforeAll(async () => {
    const config = {
      CREATE_LIMIT_PER_MINUTE: 0,
      BROWSER_KEY_LIMIT_PER_MINUTE: 0,
      BROWSER_NETWORK_LIMIT_PER_MINUTE: 0,
    };
    [service, browser, site, foreign] = await Promise.all([
      startTestService({ config }),
      launchBrowser(),
      Site.start(),
      Site.start(),
    ]);
    key = (await newKey()).browserKey;
    site.page = pageOf(service.url, key);
  });
  afterAll(async () => {
    await browser.close();
    await Promise.all([site.stop(), foreign.stop(), service.stop()]);
  });

  async function newKey(
    types = ['seen', 'pageview', 'click'],
  ): Promise<{ tokenId: string; browserKey: string }> {
    return await createBrowserKey(service.sql, await testSecret(), {
      ...{ appId: service.app.appId, name: 'site', types, origins: [site.origin] },
    });
  }

  async function countOf(type: string): Promise<number> {
    const [row] = await service.sql<{ n: number }[]>`
      SELECT count(*)::int AS n FROM events JOIN event_types ON event_types.id = type_id WHERE name = ${type}`;
    return row?.n ?? 0;
  }

  /** A profile whose wall clock is wrong by so much. */
  async function profile(skewMs = 0): Promise<BrowserContext> {
    const context = await browser.newContext();
    await context.addInitScript((skew) => {
      const { now } = Date;
      Date.now = () => now() + skew;
    }, skewMs);
    return context;
  }

  const waiting = (page: Page): Promise<number> =>
    page.evaluate(
      (name) =>
        new Promise<number>((resolve, reject) => {
          const request = indexedDB.open(name);
          request.onerror = () => reject(request.error);
          request.onsuccess = () => {
            const count = request.result.transaction('events').objectStore('events').count();
            count.onsuccess = () => {
              request.result.close();
              resolve(count.result);
            };
          };
        }),
      `tidemark ${key}`,
    );

  test('has at most 3 KB, compressed', async () => {
    for (const text of Object.values(await buildBrowserClient(null)))
      expect(gzipSync(text, { level: 9 }).length).toBeLessThanOrEqual(3_072);
  });

  test('tracks page views and clicks by two lines, and nothing by itself; the page passes axe', async () => {
    const context = await profile();
    const page = await context.newPage();
    await page.goto(site.origin);
    await page.click('button');
    await page.evaluate(() => window.tidemark.flush());
    expect([await countOf('pageview'), await countOf('click')]).toEqual([0, 0]);
    site.page = pageOf(service.url, key, 'data-page-views data-clicks');
    await page.goto(`${site.origin}/shop?query=private`);
    await page.click('button');
    await page.click('a');
    await page.evaluate(() => history.pushState({}, '', '/next'));
    await until(
      async () => (await countOf('pageview')) === 2 && (await countOf('click')) === 2,
      'all are stored',
    );
    const rows = await service.sql<
      { payload: string }[]
    >`SELECT payload::text FROM events ORDER BY created_at, id`;
    const texts = rows.map(({ payload }) => payload);
    expect(texts.join()).not.toMatch(/secret|private/);
    expect(texts).toContain('{"path":"/shop","name":"buy","tag":"button"}');
    await page.addScriptTag({ path: createRequire(import.meta.url).resolve('axe-core/axe.min.js') });
    const { violations } = await page.evaluate(() =>
      (window as never as { axe: { run(): Promise<{ violations: [] }> } }).axe.run(),
    );
    expect(violations).toEqual([]);
    await context.close();
    site.page = pageOf(service.url, key);
  });

  test('a foreign origin, a null origin, a preflight, a simple request and a wrong type are answered as documented', async () => {
    const context = await profile();
    const page = await context.newPage();
    const post = (contentType: string, type = 'seen'): Promise<unknown> =>
      page.evaluate(
        async ([url, body, content]) => {
          const headers = content === '' ? {} : { 'Content-Type': content as string };
          const response = await fetch(`${url}/v1/collect`, { method: 'POST', body, headers } as RequestInit);
          return [response.status, (await response.json()).refused ?? null];
        },
        [service.url, JSON.stringify({ key, events: [{ type, payload: {} }] }), contentType],
      );
    const requests: string[] = [];
    const session = await context.newCDPSession(page);
    await session.send('Network.enable');
    // Chromium asks the page's own server for an icon whenever it likes; only requests to the service count.
    session.on('Network.requestWillBeSent', ({ request }) => {
      if (request.url.startsWith(service.url)) requests.push(request.method);
    });
    await page.goto(site.origin);
    const before = await countOf('seen');
    requests.length = 0;
    expect(await post('')).toEqual([200, 0]);
    expect(requests).toEqual(['POST']);
    // A preflight, which Chromium makes by itself and lets pass.
    expect(await post('application/json')).toEqual([200, 0]);
    expect(await post('', 'other')).toEqual([207, 1]);
    expect(await post('application/x-www-form-urlencoded')).toEqual([415, null]);
    expect(
      await page.evaluate(([url, body]) => navigator.sendBeacon(`${url}/v1/collect`, body), [
        service.url,
        JSON.stringify({ key, events: [{ type: 'seen', payload: {} }] }),
      ] as const),
    ).toBe(true);
    await until(async () => (await countOf('seen')) === before + 3, 'the beacon is stored');
    foreign.page = '<!doctype html><title>Elsewhere</title>';
    await page.goto(foreign.origin);
    expect(await post('')).toEqual([403, null]);
    expect(await post('application/json')).toEqual([403, null]);
    foreign.headers = { 'Content-Security-Policy': 'sandbox allow-scripts' };
    await page.goto(foreign.origin);
    expect(await page.evaluate(() => origin)).toBe('null');
    expect(await post('')).toEqual([403, null]);
    expect(await countOf('seen')).toBe(before + 3);
    await context.close();
  });

  test('respects Do Not Track and Global Privacy Control', async () => {
    for (const [name, value] of [
      ['doNotTrack', '1'],
      ['globalPrivacyControl', true],
    ] as const) {
      const context = await browser.newContext();
      await context.addInitScript(
        ([property, set]) => {
          Object.defineProperty(Navigator.prototype, property as string, { get: () => set });
        },
        [name, value] as const,
      );
      const page = await context.newPage();
      await page.goto(site.origin);
      expect(await page.evaluate(() => window.tidemark.track('seen', { private: true }))).toBe(false);
      await page.evaluate(() => window.tidemark.flush());
      await context.close();
    }
    expect(await service.sql`SELECT FROM events WHERE payload ->> 'private' = 'true'`).toHaveLength(0);
  });

  test('falls back to memory, and says so once; drops as it was told; is not broken by its callbacks', async () => {
    const context = await profile();
    await context.addInitScript(() => {
      indexedDB.open = () => {
        throw new DOMException('The storage is blocked', 'SecurityError');
      };
    });
    const page = await context.newPage();
    const warnings: string[] = [];
    page.on('console', (message) => message.type() === 'warning' && warnings.push(message.text()));
    await page.goto(site.origin);
    const stats = await page.evaluate(
      async ([url, text]) => {
        const refused: string[] = [];
        const made = new window.Tidemark({
          ...{ url, key: text, maxEvents: 3, drop: 'newest', delayMs: 3_600_000 },
          onRefused: ({ type }, code) => {
            refused.push(`${type} ${code}`);
            throw new Error('The callback fails');
          },
        });
        const kept = [];
        for (const type of ['seen', 'other', 'seen', 'seen'])
          kept.push(await made.track(type, { memory: true }));
        kept.push(await made.track('seen', { text: 'x'.repeat(16_384) }));
        await made.flush();
        return { kept, codes: refused, ...made.stats };
      },
      [service.url, key] as const,
    );
    expect(stats).toEqual({
      ...{ kept: [true, true, true, false, false], codes: ['seen INVALID_REQUEST', 'other ACCESS_DENIED'] },
      ...{ stored: 2, refused: 2, dropped: 1, waitingInMemory: 0, inMemory: true },
    });
    // The client of the page and this one, each once.
    expect(warnings.filter((text) => text.includes('in memory'))).toHaveLength(2);
    await context.close();
  });

  test('stores what the vectors of all clients say, and never sends again what was refused for good', async () => {
    const own = await newKey(['seen', 'x'.repeat(200)]);
    site.page = pageOf(service.url, own.browserKey);
    const context = await profile();
    const page = await context.newPage();
    const sent: string[] = [];
    page.on('request', (request) => sent.push(request.postData() ?? ''));
    await page.goto(site.origin);
    const before = await service.sql`SELECT FROM events`;
    const stats = await page.evaluate(async (vectors) => {
      for (const { type, repeat = 1, payload, padding = 0 } of vectors)
        await window.tidemark.track(
          type.repeat(repeat),
          JSON.parse(payload.replace(/"(?="\}$)/, `"${'x'.repeat(padding)}`)),
        );
      await window.tidemark.flush();
      return window.tidemark.stats;
    }, VECTORS);
    const good = VECTORS.filter(({ accepted }) => accepted).length;
    expect(stats).toMatchObject({ stored: good, refused: VECTORS.length - good, waitingInMemory: 0 });
    expect(await service.sql`SELECT FROM events`).toHaveLength(before.length + good);
    sent.length = 0;
    await page.evaluate(async () => {
      await window.tidemark.track('seen', { after: true });
      await window.tidemark.flush();
    });
    expect(sent.map((text) => text.match(/"type"/g)?.length)).toEqual([1]);
    site.page = pageOf(service.url, key);
    await context.close();
  });

  test('sends nothing again once its key is revoked', async () => {
    const own = await newKey();
    await revokeBrowserKey(service.sql, own.tokenId);
    const context = await profile();
    const page = await context.newPage();
    let requests = 0;
    page.on('request', (request) => {
      if (request.url().endsWith('/v1/collect')) requests += 1;
    });
    site.page = pageOf(service.url, own.browserKey);
    await page.goto(site.origin);
    await page.evaluate(async () => {
      await window.tidemark.track('seen');
      for (let n = 0; n < 3; n += 1) await window.tidemark.flush();
    });
    expect(requests).toBe(1);
    site.page = pageOf(service.url, key);
    await context.close();
  });

  test(`stores ${EVENTS} events once each through crashes, offline hours, two tabs, full storage and wrong clocks`, async () => {
    const own = await newKey();
    key = own.browserKey;
    site.page = pageOf(service.url, key, `data-max-events="${EVENTS}"`);
    const accepted = new Set<number>();
    const attempted = new Set<number>();
    let next = 0;
    const run = async (page: Page, count: number): Promise<void> => {
      const first = next;
      next += count;
      for (let n = first; n < next; n += 1) attempted.add(n);
      await page.evaluate(
        async ([from, until]) => {
          const one = async (n: number): Promise<void> => {
            const real = performance.timeOrigin + performance.now();
            if (await window.tidemark.track('seen', { n, real })) window.accepted(n);
          };
          for (let n = from as number; n < (until as number); n += 20)
            await Promise.all(
              Array.from({ length: Math.min(20, (until as number) - n) }, (_, more) => one(n + more)),
            );
        },
        [first, next],
      );
    };
    const tab = async (context: BrowserContext): Promise<Page> => {
      const page = await context.newPage();
      await page.goto(site.origin);
      return page;
    };
    const skews = [0, HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS];
    const part = Math.max(10, Math.ceil(EVENTS / skews.length / 8));
    for (const skew of skews) {
      const context = await profile(skew);
      await context.exposeFunction('accepted', (n: number) => accepted.add(n));
      // Two tabs share the queue.
      const [a, b] = await Promise.all([tab(context), tab(context)]);
      await Promise.all([run(a, part), run(b, part)]);
      // Both go offline, and one crashes with what it has.
      await context.setOffline(true);
      await Promise.all([run(a, part), run(b, part)]);
      await a.goto('chrome://crash').catch(() => undefined);
      await a.close().catch(() => undefined);
      await context.setOffline(false);
      await run(b, part);
      // A crash while requests are in flight.
      const c = await tab(context);
      const running = run(c, part).catch(() => undefined);
      await c.evaluate(() => void window.tidemark.flush()).catch(() => undefined);
      await c.goto('chrome://crash').catch(() => undefined);
      await running;
      await c.close().catch(() => undefined);
      // Full storage: events wait in memory, and are sent from there before the page ends.
      const session = await context.newCDPSession(b);
      await session.send('Storage.overrideQuotaForOrigin', { origin: site.origin, quotaSize: 1 });
      await run(b, part);
      await session.send('Storage.overrideQuotaForOrigin', { origin: site.origin });
      await run(b, part);
      await until(
        async () => {
          await b.evaluate(() => window.tidemark.flush());
          const { waitingInMemory } = await b.evaluate(() => window.tidemark.stats);
          return waitingInMemory === 0 && (await waiting(b)) === 0;
        },
        'nothing waits any more',
        600_000,
      );
      await context.close();
    }
    const rows = await service.sql<{ n: number; error: number }[]>`
      SELECT (payload ->> 'n')::int AS n,
             abs(extract(epoch FROM events.created_at) * 1000 - (payload ->> 'real')::float8)::float8 AS error
        FROM events WHERE payload ->> 'n' IS NOT NULL`;
    const found = rows.map(({ n }) => n);
    const stored = new Set(found);
    const worst = Math.max(...rows.map(({ error }) => error));
    const lost = [...accepted].filter((n) => !stored.has(n)).length;
    process.stderr.write(
      `browser campaign: ${attempted.size} tracked, ${accepted.size} accepted, ${stored.size} stored, ${lost} lost, ${found.length - stored.size} doubled, times off by at most ${Math.round(worst)} ms\n`,
    );
    expect({
      lost,
      doubled: found.length - stored.size,
      made: [...stored].filter((n) => !attempted.has(n)),
    }).toEqual({
      ...{ lost: 0, doubled: 0, made: [] },
    });
    expect(accepted.size).toBeGreaterThan(EVENTS / 2);
    expect(worst).toBeLessThan(TIME_ERROR_MS);
  });
});
