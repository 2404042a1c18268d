/**
 * axe-core on every route: light and dark, with data, empty, loading and in error, on a small phone and in forced colors. A page is
 * loaded once for all of them, because loading takes longer than the rest.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { codeAt } from '../support/authenticator.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { sized } from '../support/fuzz.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { signIn, visit } from './visitor.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const NOW = Date.now();
const HOUR_MS = 3_600_000;
/** Fields of an answer that the server refuses with. */
const REFUSAL = {
  status: 503,
  contentType: 'application/json',
  headers: { 'X-Request-Id': 'request-7' },
  body: '{"success":false,"error":"Service unavailable","details":"The database cannot be reached; try again shortly.","code":"UNAVAILABLE"}',
};

const WINDOW = { width: 1280, height: 900 };
/** Of the pages of an app. */
const SHAPES = new Set(['an empty range', 'one event', 'types', 'fields', 'settings']);

/** Cumulative layout shift: the share of the window that moves, times how far; below 0.1 counts as good. */
const MOST_SHIFT = 0.03;

/** Runs in the page: adds up what moves. */
function watchShifts(): void {
  Reflect.set(window, 'shifted', 0);
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      // Of type LayoutShift, which TypeScript's DOM library does not have yet.
      Reflect.set(window, 'shifted', Reflect.get(window, 'shifted') + Reflect.get(entry, 'value'));
    }
  }).observe({ type: 'layout-shift', buffered: true });
}

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

describe.skipIf(withoutBrowser !== '')('every page', { timeout: patient(400_000) }, () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let full: string;
  let empty: string;
  let eventId: string;
  let invitation: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    const helper = await newPerson(service, 'helper@example.com');
    empty = (await newOwnApp(owner, 'Nothing yet')).appId;
    const app = await newOwnApp(owner, 'Web shop');
    full = app.appId;
    for (let type = 0; type < 13; type++) {
      const name = `type ${type}`;
      const { typeId } = await createEventType(service.sql, { appId: full, name, maxTypes: 100 });
      const events = Array.from({ length: 40 - 3 * type }, (_, index) => ({
        at: new Date(NOW - index * 0.55 * HOUR_MS - type * 60_000).toISOString(),
        payload: `{"index":${index},"nested":{"list":[1,"two",null,true,{}]}}`,
      }));
      await addPastEvents(service, typeId, events);
    }
    const listed = await owner.get(`${app.path}/events?limit=1`);
    eventId = /"id":"([^"]+)"/.exec(listed.text)?.[1] ?? '';
    await owner.post(`${app.path}/members`, { email: 'helper@example.com' });
    const { data } = await owner.post(`${app.path}/members`, { email: 'invited@example.com' });
    invitation = new URL(String(data.link)).pathname;
    await helper.post(`${app.path}/tokens`, { name: 'Of the helper' });
    await helper.post(`${app.path}/tokens`, { name: 'Of the helper too' });
    await owner.post(`${app.path}/declared-fields`, { path: 'nested.list', kind: 'value', backfill: true });
    const types = (await owner.get(`${app.path}/types`)).data.types as { typeId: string }[]; // As the route declares it.
    await owner.put(`${app.path}/types/${types[0]?.typeId}/schema`, { schema: { type: 'object' } });
    await owner.post(`${app.path}/webhooks`, { url: 'https://example.com/hook' });
    await owner.post(`${app.path}/alerts`, { name: 'Many', rule: '{"of":"count","window":"5m","above":9}' });
    await owner.post(`${app.path}/tokens`, { name: 'Analytics', expiresInDays: 30 });
    await owner.post(`${app.path}/tokens`, { name: 'Export', expiresInDays: null });
    const page = { types: ['pageview', 'a type of a page'], origins: ['https://shop.example'] };
    await owner.post(`${app.path}/browser-keys`, { name: 'Web shop', ...page });
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /** By name: the address, and what is there once it has loaded. */
  const routes = (): Record<string, readonly [path: string, ready: string]> => ({
    apps: ['/', '.app-card .sparkline'],
    chart: [`/apps/${full}`, '.legend'],
    'a running total': [`/apps/${full}?mode=running&scale=log`, '.legend'],
    accumulated: [`/apps/${full}?mode=accumulated&table=1`, '.chart-table'],
    'an empty range': [`/apps/${full}?from=2020-01-01T00:00Z&to=2020-01-02T00:00Z`, '.nothing'],
    'an empty app': [`/apps/${empty}`, '.snippets'],
    events: [`/apps/${full}`, '.events article'],
    'a filter': [`/apps/${full}?filter=nested.list:two&filter=-index:3&column=index`, '.events article'],
    'a filter that could be counted': [`/apps/${full}?filter=index:3`, 'text=Count index from now on'],
    'no events': [`/apps/${full}?from=2020-01-01T00:00Z&to=2020-01-02T00:00Z`, '.event-list .end'],
    'one event': [`/apps/${full}?event=${eventId}`, 'dialog .json'],
    overview: [`/apps/${full}/overview`, '.overview-numbers'],
    types: [`/apps/${full}/types`, '.list'],
    'no types': [`/apps/${empty}/types`, '.empty'],
    fields: [`/apps/${full}/fields`, '.examples'],
    'no fields': [`/apps/${empty}/fields`, '.empty'],
    delivery: [`/apps/${full}/delivery`, '.list'],
    usage: [`/apps/${full}/usage`, '.bars'],
    settings: [`/apps/${full}/settings`, '.activity li'],
    account: ['/account', '.activity li'],
    'no such app': ['/apps/app_nowhere', '.empty'],
  });
  /** Pages to be seen while they load or fail, but for the account, which asks for nothing of an app: one of each shape, at night all. */
  const unfinished = (): [name: string, page: readonly [path: string, ready: string]][] =>
    Object.entries(routes()).filter(
      ([name], index) => name !== 'account' && (index < sized(2, Infinity) || SHAPES.has(name)),
    );
  const visitors = (): Record<string, readonly [path: string, ready: string]> => ({
    'sign in': ['/sign-in', 'form'],
    'sign up': ['/sign-up', '.narrow h1'],
    setup: ['/setup/some-token', '.narrow h1'],
    invitation: [invitation, 'form'],
    'an invitation that is over': ['/invitations/some-token', '.problem'],
    'email verification': ['/email-verifications/some-token', '.problem'],
    'password reset': ['/password-reset', '.narrow h1'],
    'new password': ['/password-reset/some-token', 'form'],
    'no such page': ['/nowhere', '.narrow h1'],
  });

  /** What is wrong in the light, and what of the colors is wrong in the dark, where nothing else differs. */
  async function violations(
    page: Page,
    schemes: readonly ('dark' | 'light')[] = ['dark', 'light'],
  ): Promise<string[]> {
    if (await page.evaluate(() => !('axe' in window))) await page.evaluate(AXE);
    const found: string[] = [];
    for (const scheme of schemes) {
      const run =
        scheme === 'light' ? 'axe.run()' : "axe.run({ runOnly: ['color-contrast', 'link-in-text-block'] })";
      await page.emulateMedia({ colorScheme: scheme });
      const { violations } = (await page.evaluate(run)) as { violations: Violation[] }; // Its documented result.
      for (const { id, nodes } of violations)
        for (const { html, failureSummary } of nodes)
          found.push(`${scheme}, ${id}: ${html.slice(0, 200)} ${failureSummary ?? ''}`);
    }
    return found;
  }

  const open = (person: Person | null): Promise<Watched> =>
    visit(browser, service, person, { viewport: WINDOW, colorScheme: 'light', reducedMotion: 'reduce' });

  /** Where a page is wider than the window, with the name of what is. */
  const overflow = (page: Page): Promise<string | null> =>
    page.evaluate(() => {
      if (document.documentElement.scrollWidth <= innerWidth) return null;
      const wide = [...document.querySelectorAll('body *')].filter(
        (e) => e.getBoundingClientRect().right > innerWidth + 1,
      );
      return wide.map((element) => `${element.tagName}.${element.className}`).join(' ');
    });

  test.each(['an owner', 'a visitor'] as const)(
    'has no violations for %s, with data or without, and fits windows of 320 px in forced colors to 3,840 px',
    async (who) => {
      const { page, complaints } = await open(who === 'an owner' ? owner : null);
      for (const [name, [path, ready]] of Object.entries(who === 'an owner' ? routes() : visitors())) {
        await page.goto(path);
        await page.locator(ready).first().waitFor();
        // Of pages alike one is looked at in all ways, at night each.
        const isWhole = sized(SHAPES.has(name) || name === 'chart' || who === 'a visitor', true);
        expect(await violations(page, isWhole ? undefined : ['light']), name).toEqual([]);
        // 720 is a laptop at a zoom of 200 %.
        for (const width of isWhole ? [3_840, 720, 390, 320] : [390]) {
          await page.emulateMedia({ forcedColors: width === 320 ? 'active' : 'none' });
          await page.setViewportSize({ ...WINDOW, width });
          // Charts are drawn again in a later frame.
          await expect.poll(() => overflow(page), { message: `${name}, ${width}` }).toBeNull();
          if (width === 320) expect(await violations(page, ['light']), `${name}, ${width}`).toEqual([]);
        }
        await page.emulateMedia({ forcedColors: 'none' });
        await page.setViewportSize(WINDOW);
      }
      expect(complaints).toEqual([]);
      await page.context().close();
    },
  );

  test('has no violations while loading, and nothing jumps when the answer comes', async () => {
    const { page } = await open(owner);
    await page.addInitScript(watchShifts);
    for (const [name, [path, ready]] of unfinished()) {
      let release = (): void => undefined;
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      await page.route(/\/api\/apps/, async (route) => {
        await held;
        await route.continue().catch(() => undefined); // The page may have gone on.
      });
      await page.goto(path);
      await page.locator('main .skeleton, main [aria-busy=true]').first().waitFor();
      expect(await violations(page), name).toEqual([]);
      release();
      await page.locator(ready).first().waitFor();
      await page.unroute(/\/api\/apps/);
      expect(await page.evaluate(() => Reflect.get(window, 'shifted')), name).toBeLessThan(MOST_SHIFT);
    }
  });

  test('has no violations in error, says the request and offers another try', async () => {
    const { page } = await open(owner);
    await page.route(/\/api\/apps/, (route) => route.fulfill(REFUSAL));
    for (const [name, [path]] of unfinished()) {
      await page.goto(path);
      const alert = page.getByRole('alert').first();
      await alert.getByText('request-7').waitFor();
      await alert.getByRole('button', { name: 'Try again' }).waitFor();
      expect(await violations(page), name).toEqual([]);
    }
  });

  test('has no violations in its dialogs and panels', async () => {
    const { page } = await open(owner);
    await page.goto(`/apps/${full}`);
    for (const name of [/^Time range/, /^Chart options/, /^Columns/]) {
      await page.getByRole('button', { name }).click();
      await page.locator('.panel :is(input, select)').first().waitFor();
      expect(await violations(page), String(name)).toEqual([]);
      await page.keyboard.press('Escape');
    }
    await page.getByRole('button', { name: /^All .*types →$/ }).click();
    await page.locator('.all-lines tbody tr').first().waitFor();
    expect(await violations(page), 'all types').toEqual([]);
    await page.keyboard.press('Escape');
    await page.locator('.event-row').first().click();
    await page.locator('.event-body .json').waitFor();
    expect(await violations(page), 'an open event').toEqual([]);
    await page.goto(`/apps/${full}/fields`);
    for (const types of await page.locator('.types-of summary').all()) await types.click();
    expect(await violations(page), 'the types of a field').toEqual([]);
    for (const [tab, name] of [
      ['fields', 'Count index'],
      ['fields', 'Remove nested.list'],
      ['types', 'Schema of type 0: Warns'],
    ] as const) {
      await page.goto(`/apps/${full}/${tab}`);
      await page.getByRole('button', { name, exact: true }).click();
      await page.locator('dialog :is(input, textarea, b)').first().waitFor();
      expect(await violations(page), name).toEqual([]);
    }
    await page.goto(`/apps/${full}/settings`);
    for (const name of [
      ...['Rotate…', 'New resource token…', 'New browser key…', 'Script tag of Web shop'],
      'Remove helper@example.com',
    ]) {
      await page.getByRole('button', { name }).click();
      await page.getByRole('dialog').waitFor();
      if (name.startsWith('Remove')) await page.getByLabel(/^Keep Of the helper too/).waitFor();
      expect(await violations(page), name).toEqual([]);
      await page.keyboard.press('Escape');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      // The focus is back where it was.
      expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('BUTTON');
    }
    // Done at once, and undone.
    for (const name of ['Revoke Export', 'Revoke Web shop']) {
      await page.getByRole('button', { name }).click();
      await page.getByRole('button', { name: 'Undo' }).waitFor();
      expect(await violations(page), name).toEqual([]);
      // What it says of it leaves after some seconds; the list has the same.
      await page.getByRole('button', { name: name.replace('Revoke', 'Restore') }).click();
      await page.getByRole('button', { name }).waitFor();
    }
    await page.getByLabel('Add a member by email').fill('new@example.com');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('dialog', { name: 'The invitation' }).waitFor();
    expect(await violations(page), 'an invitation').toEqual([]);
    await page.getByRole('button', { name: 'I have copied it' }).click();
    await page.context().clearCookies();
    await page.getByRole('button', { name: 'Rename' }).click();
    await page.getByRole('dialog', { name: 'Your session has ended' }).waitFor();
    expect(await violations(page), 'the end of a session').toEqual([]);
  });

  test('has no violations while a second factor is set up and used', async () => {
    const email = 'careful@example.com';
    const { page, complaints } = await open(await newPerson(service, email));
    const check = async (name: string, selector: string): Promise<void> => {
      await page.locator(selector).first().waitFor();
      expect(await violations(page), name).toEqual([]);
    };
    await page.goto('/account');
    await page.getByRole('button', { name: 'Turn on…' }).click();
    await check('the question', 'dialog input');
    await page.getByRole('dialog').getByLabel('Password').fill(PASSWORD);
    await page.keyboard.press('Enter');
    await check('the QR code', 'dialog .qr');
    const secret = (await page.getByRole('dialog').locator('code').textContent()) ?? '';
    await page.getByRole('textbox', { name: 'Code' }).fill(codeAt(secret, Date.now()));
    await page.keyboard.press('Enter');
    await check('the recovery codes', 'dialog .recovery-codes');
    await page.getByRole('button', { name: 'I have stored them' }).click();
    await check('the account', '.activity li');
    await page.getByRole('button', { name: 'Sign out everywhere…' }).click();
    await check('the end of all sessions', 'dialog .danger');
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out everywhere' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await signIn(page, email, PASSWORD);
    await page.getByRole('heading', { name: 'Enter your code' }).waitFor();
    await check('the second step', '.narrow input');
    expect(complaints).toEqual([]);
    await page.context().close();
  });
});
