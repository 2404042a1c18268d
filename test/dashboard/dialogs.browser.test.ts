/** Dialogs and settings as one uses them: the first field has the focus, nothing that matters is lost or out of sight. */
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { clipboard, visit } from './visitor.ts';

const APPS = 300;
/** As long as a name may be, without a place to break it at. */
const LONG_NAME = 'Warehouse'.padEnd(200, 'x');

describe.skipIf(withoutBrowser !== '')('dialogs', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let page: Page;
  let app: { appId: string; path: string };

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    // The first account owns the app that nobody owned.
    await service.sql`DELETE FROM apps`;
    app = await newOwnApp(owner, LONG_NAME);
    await service.sql`
      WITH made AS (INSERT INTO apps (public_id, name)
                    SELECT 'app_' || lpad(n::text, 20, '0'), ${LONG_NAME} || n FROM generate_series(1, ${APPS}) AS n
                    RETURNING id)
      INSERT INTO app_members (app_id, user_id, role) SELECT made.id, users.id, 'owner' FROM made, users`;
    page = (await visit(browser, service, owner)).page;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const dialog = (): Locator => page.getByRole('dialog');
  const activity = (): Locator => page.getByRole('region', { name: 'Activity' });
  const settings = async (): Promise<void> => {
    await page.goto(`/apps/${app.appId}/settings`);
    await activity().locator('li').first().waitFor();
  };
  const fits = (): Promise<boolean> =>
    dialog().evaluate(
      (element) => element.scrollWidth <= element.clientWidth && element.clientWidth <= innerWidth,
    );

  test('focus their first field: what is typed at once is kept', async () => {
    await page.goto('/');
    await page.getByRole('button', { name: 'New app' }).click();
    await page.keyboard.type('Typed at once');
    expect(await dialog().getByLabel('Name').inputValue()).toBe('Typed at once');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Typed at once', level: 1 }).waitFor();
  });

  test('take the focus before the next key, however busy the page is', async () => {
    await page.goto('/');
    await page.getByRole('button', { name: 'New app' }).waitFor();
    // Within one task, so that neither a frame nor a timer comes between the click and the answer.
    const focused = await page.evaluate(async () => {
      const button = [...document.querySelectorAll('button')].find((one) => one.textContent === 'New app');
      button?.focus();
      button?.click();
      for (let turn = 0; turn < 20; turn++) await null;
      return (document.activeElement as HTMLInputElement | null)?.name;
    });
    expect(focused).toBe('name');
    // And gives it back to the button that opened it.
    await dialog().getByRole('button', { name: 'Cancel' }).click();
    await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toBe('New app');
  });

  test('find one of 300 apps, and keep their button in sight', async () => {
    await settings();
    await page.getByRole('button', { name: 'New resource token…' }).click();
    await page.keyboard.type('Of two apps');
    await dialog().getByText('Let it read further apps').click();
    await expect.poll(() => dialog().getByRole('checkbox').count()).toBe(APPS + 1);
    expect(await fits()).toBe(true);
    const [create, viewport] = [
      await dialog().getByRole('button', { name: 'Create' }).boundingBox(),
      page.viewportSize(),
    ];
    expect((create?.y ?? Infinity) + (create?.height ?? 0)).toBeLessThanOrEqual(viewport?.height ?? 0);
    await dialog().getByLabel('Find an app').fill(`${LONG_NAME}277`);
    await dialog().getByRole('checkbox').check();
    // Chosen is chosen, also while it is not listed.
    await dialog().getByLabel('Find an app').fill('Typed');
    await dialog().getByText('Let it read further apps (1)').waitFor();
    await dialog().getByRole('button', { name: 'Create' }).click();
    await dialog().getByText(/^tdr_/).waitFor();
    const { tokens } = (await owner.get(`${app.path}/tokens`)).data as {
      tokens: { name: string; appIds: string[] }[];
    };
    expect(tokens.map(({ name, appIds }) => [name, appIds])).toEqual([
      ['Of two apps', [app.appId, 'app_00000000000000000277']],
    ]);
  });

  test('keep a token that is shown once until it is said to be copied', async () => {
    const text = dialog().getByText(/^tdr_/);
    await page.mouse.click(4, 4);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    expect(await text.isVisible()).toBe(true);
    await dialog().getByText('Only its own buttons close this dialog').waitFor();
    expect(await dialog().getByRole('button', { name: 'Close' }).count()).toBe(0);
    await dialog().getByRole('button', { name: 'I have copied it' }).click();
    await text.waitFor({ state: 'detached' });
  });

  test('ask with a way back, and do nothing on the way back', async () => {
    await page.getByRole('button', { name: 'Rotate…' }).click();
    expect(await fits()).toBe(true);
    await dialog().getByRole('button', { name: 'Cancel' }).click();
    await dialog().waitFor({ state: 'detached' });
    await page.goto('/account');
    await page.getByRole('button', { name: 'Sign out everywhere…' }).click();
    await dialog().getByRole('button', { name: 'Cancel' }).click();
    await dialog().waitFor({ state: 'detached' });
    expect((await owner.get('/api/apps')).status).toBe(200);
    expect((await owner.get(`${app.path}/logging-token`)).data).toMatchObject({ previousValidUntil: null });
  });

  test('say of a token that can be shown again where, and what it is for, and close at Escape', async () => {
    await settings();
    await page.getByRole('button', { name: 'New producer…' }).click();
    await page.keyboard.type('The till');
    await page.keyboard.press('Enter');
    await dialog().getByText(/^tdl_/).waitFor();
    await dialog().getByText('Show has it again at any time').waitFor();
    await dialog().getByText('The program sends it as').waitFor();
    await page.keyboard.press('Escape');
    await dialog().waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Show the token of The till' }).click();
    await dialog().locator('.form-actions').getByRole('button', { name: 'Close' }).click();
    await dialog().waitFor({ state: 'detached' });
  });

  test('have an index of the settings at their left, which leads to each', async () => {
    await page.setViewportSize({ width: 1600, height: 700 });
    await settings();
    const index = page.getByRole('navigation', { name: 'Sections' });
    expect(await index.getByRole('link').allTextContents()).toEqual(
      await page.locator('.section h2').allTextContents(),
    );
    await index.getByRole('link', { name: 'Retention' }).click();
    await expect
      .poll(() => page.locator('#retention').evaluate((head) => Math.round(head.getBoundingClientRect().top)))
      .toBeLessThan(200);
    expect(await index.getByRole('link', { name: 'Retention' }).isVisible()).toBe(true);
    await page.setViewportSize({ width: 1280, height: 720 });
  });

  test('a browser key is made for an origin, and its script tag copied', async () => {
    await settings();
    await page.getByRole('button', { name: 'New browser key…' }).click();
    await page.keyboard.type('The shop');
    await dialog().getByLabel('Origins').fill('https://shop.example/cart');
    await dialog().getByRole('button', { name: 'Create' }).click();
    await dialog().getByRole('alert').getByText('has a path or a query').waitFor();
    await dialog().getByLabel('Origins').fill('https://shop.example');
    await dialog().getByRole('button', { name: 'Create' }).click();
    await dialog().getByRole('button', { name: 'Copy the script tag' }).click();
    await page.getByText('Copied').waitFor();
    const { keys } = (await owner.get(`${app.path}/browser-keys`)).data as {
      keys: { browserKey: string; types: string[]; origins: string[] }[];
    };
    const [key] = keys;
    expect([key?.types, key?.origins]).toEqual([['pageview', 'click'], ['https://shop.example']]);
    expect(await clipboard(page)).toBe(
      `<script async src="${service.url}/tidemark.js" data-key="${key?.browserKey}" data-page-views data-clicks></script>`,
    );
    await dialog().locator('footer, .form-actions').getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'Revoke The shop' }).click();
    await activity().getByText('owner@example.com revoked the browser key “The shop”').waitFor();
    expect(await page.getByRole('button', { name: 'Revoke The shop' }).count()).toBe(0);
  });

  test('the activity has each change as soon as it is made, as a sentence', async () => {
    await settings();
    await page.getByRole('button', { name: 'Revoke Of two apps' }).click();
    await activity().getByText('owner@example.com revoked the resource token “Of two apps”').waitFor();
    await page.getByLabel('Add a member by email').fill('new@example.com');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await activity().getByText('owner@example.com invited new@example.com as viewer').waitFor();
    // Without mail the link is shown once: it stays until it is said to be copied.
    const invitation = page.getByRole('dialog', { name: 'The invitation' });
    await page.keyboard.press('Escape');
    await invitation.getByText(/\/invitations\//).waitFor();
    await invitation.getByRole('button', { name: 'I have copied it' }).click();
    await invitation.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Withdraw the invitation of new@example.com' }).click();
    await dialog().getByRole('button', { name: 'Withdraw the invitation' }).click();
    await activity().getByText('withdrew the invitation of new@example.com').waitFor();
    await activity().getByLabel('Show').selectOption('Tokens');
    expect(await activity().locator('li').count()).toBe(5);
  });

  test('a token and a key are revoked without a question, undone at once, or restored later from the list', async () => {
    const { data } = await owner.post(`${app.path}/tokens`, { name: 'Nightly' });
    await owner.post(`${app.path}/browser-keys`, { name: 'Nightly page', types: ['view'], origins: [] });
    const headers = { Authorization: `Bearer ${data.resourceToken}` };
    const read = async (): Promise<number> =>
      (await service.request({ path: `/public/get_events?appId=${app.appId}`, headers })).status;
    await settings();
    for (const name of ['Nightly', 'Nightly page']) {
      const own = (text: string): Locator =>
        page.getByRole('button', { name: `${text} ${name}`, exact: true });
      await own('Revoke').click();
      await own('Restore').waitFor();
      expect(await dialog().count()).toBe(0);
      if (name === 'Nightly') expect(await read()).toBe(401);
      const notice = page.getByRole('status');
      await notice.getByText(`${name} was revoked`).waitFor();
      await notice.getByRole('button', { name: 'Undo' }).click();
      await own('Revoke').waitFor();
      await activity()
        .getByText(new RegExp(`restored the .* “${name}”`))
        .waitFor();
      await own('Revoke').click();
      await own('Restore').waitFor();
    }
    await settings();
    // Restored elsewhere in the meantime: the page says why it cannot be restored again.
    expect((await owner.post(`${app.path}/tokens/${data.tokenId}/restore`)).status).toBe(200);
    await page.getByRole('button', { name: 'Restore Nightly', exact: true }).click();
    await page
      .getByRole('alert')
      .getByText('there is no resource token that was revoked within a day')
      .waitFor();
    expect(await read()).toBe(200);
    await page.getByRole('button', { name: 'Restore Nightly page' }).click();
    await page.getByRole('button', { name: 'Revoke Nightly page' }).waitFor();
  });
});
