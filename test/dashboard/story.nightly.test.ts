/** The whole story in a real browser, in its order: from the first account to a lost server. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newPerson, PASSWORD } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { clipboard, figure, signIn, visit } from './visitor.ts';

const OWNER = 'owner@example.com';
const HELPER = 'helper@example.com';
const LEAVER = 'leaver@example.com';

describe.skipIf(withoutBrowser !== '')('the story', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Watched;
  let helper: Watched;
  let page: Page;
  let appId: string;
  let loggingToken: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    // The first account would own the app that nobody owns.
    await service.sql`DELETE FROM apps`;
    owner = await visit(browser, service, null);
    page = owner.page;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  const post = (body: Record<string, unknown>): Promise<{ status: number }> =>
    service.request({
      method: 'POST',
      path: '/public/create_event',
      body: JSON.stringify({ payload: {}, ...body }),
    });

  test('a new server offers to make the first account', async () => {
    await page.goto('/apps/app_somewhere');
    await page.getByRole('heading', { name: 'Welcome to Tidemark' }).waitFor();
    await page.getByLabel('Email').fill(OWNER);
    await page.getByLabel('Password').fill('password');
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByRole('alert').filter({ hasText: 'most common' }).waitFor();
    // What the reader can correct is not in the operator’s log.
    expect(await page.getByRole('alert').textContent()).not.toContain('Request');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByRole('heading', { name: 'Create your first app' }).waitFor();
  });

  test('an app is made, and shows how to send its first event', async () => {
    await page.getByRole('button', { name: 'New app' }).first().click();
    await page.getByRole('dialog').getByLabel('Name').fill('Web shop');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Send the first event' }).waitFor();
    appId = /\/apps\/([^/?]+)/.exec(page.url())?.[1] ?? '';
    for (const language of ['Python', 'Node', 'curl']) {
      await page.getByLabel(language, { exact: true }).check();
      await page.getByRole('button', { name: 'Copy' }).click();
      const snippet = await clipboard(page);
      expect(snippet).toContain(service.url);
      loggingToken = /tdl_\w+/.exec(snippet)?.[0] ?? '';
    }
    expect(loggingToken).toMatch(/^tdl_\w{38}$/);
  });

  test('the page turns into the chart when the first event arrives', async () => {
    expect((await post({ loggingToken, typeName: 'order placed' })).status).toBe(201);
    await page.getByRole('application', { name: /^Events per/ }).waitFor();
    await page.getByText('The first event has arrived').waitFor();
    await expect.poll(() => figure(page, 'In this range')).toBe(1);
  });

  test('a maintainer is added by email, joins by the link, and may not what the owner may', async () => {
    await page.getByRole('link', { name: 'Settings' }).click();
    await page.getByLabel('Add a member by email').fill(HELPER);
    // Whoever is added sees alone, unless another role is chosen.
    await page.getByLabel('As', { exact: true }).selectOption('maintainer');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Copy the invitation link' }).click();
    const link = new URL(await clipboard(page));
    await page.getByRole('button', { name: 'I have copied it' }).click();

    helper = await visit(browser, service, null);
    await helper.page.goto(link.pathname);
    await helper.page.getByText('You are invited to').waitFor();
    // The first thing to be typed.
    await expect
      .poll(() => helper.page.evaluate(() => document.activeElement?.getAttribute('name')))
      .toBe('password');
    await helper.page.getByLabel('Show characters').check();
    expect(await helper.page.getByLabel('Password', { exact: true }).getAttribute('type')).toBe('text');
    // It is refused before it is sent, or without a number that only an operator could look for.
    await helper.page.getByText('At least 8 characters').waitFor();
    await helper.page.getByLabel('Password', { exact: true }).fill('password');
    await helper.page.getByRole('button', { name: 'Create the account and join' }).click();
    const refusal = helper.page.getByRole('alert');
    await refusal.waitFor();
    expect(await refusal.innerText()).not.toContain('Request');
    await helper.page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await helper.page.getByRole('button', { name: 'Create the account and join' }).click();
    await helper.page.getByRole('heading', { level: 1, name: 'Web shop' }).waitFor();
    expect(await figure(helper.page, 'In this range')).toBe(1);
    await helper.page.getByRole('link', { name: 'Settings' }).click();
    await helper.page.getByText('you are maintainer').waitFor();
    await helper.page.getByRole('button', { name: 'Leave' }).waitFor();
    for (const name of ['Rename', 'Delete the app', 'Add']) {
      expect(await helper.page.getByRole('button', { name, exact: true }).count()).toBe(0);
    }
    const refused = await helper.page.evaluate(
      (path) =>
        fetch(path, {
          method: 'PATCH',
          headers: { 'Content-Type': 'application/json' },
          body: '{"name":"Mine"}',
        }).then(({ status }) => status),
      `/api/apps/${appId}`,
    );
    expect(refused).toBe(403);
    expect(helper.complaints).toEqual([]);
  });

  test('removing a member ends the tokens of the member, except those that the owner keeps', async () => {
    const leaver = await newPerson(service, LEAVER);
    await page.getByLabel('Add a member by email').fill(LEAVER);
    await page.getByLabel('As', { exact: true }).selectOption('maintainer');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Copy the invitation link' }).click();
    const link = new URL(await clipboard(page));
    await page.getByRole('button', { name: 'I have copied it' }).click();
    expect((await leaver.post(`/api${link.pathname}/accept`)).status).toBe(200);
    await page.reload();
    const newToken = async (name: string): Promise<string> => {
      const { data } = await leaver.post(`/api/apps/${appId}/tokens`, { name });
      return String(data.resourceToken);
    };
    const [nightly, adhoc] = [await newToken('Nightly report'), await newToken('Ad hoc')];
    const read = async (token: string): Promise<number> =>
      (
        await service.request({
          path: `/public/get_events?appId=${appId}`,
          headers: { Authorization: `Bearer ${token}` },
        })
      ).status;
    expect([await read(nightly), await read(adhoc)]).toEqual([200, 200]);
    await page.getByRole('button', { name: `Remove ${LEAVER}` }).click();
    const dialog = page.getByRole('dialog', { name: 'Remove the member' });
    expect(await dialog.getByLabel(/^Keep Ad hoc/).isChecked()).toBe(false);
    await dialog.getByLabel(/^Keep Nightly report/).check();
    await dialog.getByRole('button', { name: 'Remove the member' }).click();
    const kept = page.getByRole('row', { name: /Nightly report/ });
    await kept.getByText('no longer a member').waitFor();
    await page
      .getByRole('row', { name: /Ad hoc/ })
      .getByText(/^revoked/)
      .waitFor();
    expect([await read(nightly), await read(adhoc)]).toEqual([200, 401]);
    expect(await page.getByRole('button', { name: `Remove ${LEAVER}` }).count()).toBe(0);
  });

  test('a session that has ended asks to sign in, and goes on where one was', async () => {
    const { page } = helper;
    // A page without a live feed, which would say so by itself.
    const identifier = page.getByRole('button', { name: 'Copy the identifier of order placed' });
    await page.goto(`/apps/${appId}/types`);
    await identifier.waitFor();
    const { page: elsewhere } = await visit(browser, service, null);
    // What a link of a stranger may say: it leads to the list of apps, and the page goes on.
    await elsewhere.goto('/sign-in?next=/..//evil.example');
    await signIn(elsewhere, HELPER, PASSWORD);
    await elsewhere.getByRole('link', { name: /Web shop/ }).waitFor();
    expect(elsewhere.url()).toBe(`${service.url}/`);
    await elsewhere.getByRole('link', { name: /Account of/ }).click();
    await elsewhere.getByRole('button', { name: 'Sign out everywhere…' }).click();
    await elsewhere.getByRole('dialog').getByRole('button', { name: 'Sign out everywhere' }).click();
    await elsewhere.getByRole('heading', { name: 'Sign in' }).waitFor();

    await page.getByRole('link', { name: 'Explore' }).click();
    await page.getByText('Your session has ended').waitFor();
    const again = page.getByRole('dialog', { name: 'Your session has ended' });
    await again.getByLabel('Password').fill(PASSWORD);
    await page.keyboard.press('Enter');
    await again.waitFor({ state: 'detached' });
    await page.getByRole('application').waitFor();
    expect(helper.complaints).toEqual([]);
  });

  test('signing out ends it, and nothing of the account stays on the page', async () => {
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await page.content()).not.toContain(OWNER);
    await page.goto('/account');
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(owner.complaints).toEqual([]);
  });

  test('where an account has been, the first one is not offered again', async () => {
    await newPerson(service, 'third@example.com');
    await page.goto('/sign-up');
    await page.getByRole('heading', { name: 'By invitation' }).waitFor();
  });
});
