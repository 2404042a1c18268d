/** The whole story in a real browser, in its order: from the first account to a lost server. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CODE_EVERY_MS, codeAt } from '../support/authenticator.ts';
import { launchBrowser, type Watched, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
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
  let secret: string;

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

  test('types have identifiers to copy, and events sent with them are in the chart', async () => {
    await page.getByRole('link', { name: 'Types' }).click();
    await page.getByRole('button', { name: 'New type' }).click();
    await page.getByRole('dialog').getByLabel('Name').fill('user signed in');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Copy the identifier of user signed in' }).click();
    const typeId = await clipboard(page);
    for (let sent = 0; sent < 4; sent++) expect((await post({ loggingToken, typeId })).status).toBe(201);
    expect((await post({ loggingToken, typeName: 'order placed' })).status).toBe(201);

    await page.getByRole('link', { name: 'Explore' }).click();
    const line = (pressed: boolean) => page.getByRole('button', { name: /^user signed in/, pressed });
    await line(false).waitFor();
    expect(await figure(page, 'In this range')).toBe(6);
    await line(false).click();
    await expect.poll(() => figure(page, 'In this range')).toBe(4);
    await page.reload();
    await line(true).waitFor();
    expect(await figure(page, 'In this range')).toBe(4);
    await line(true).click();
  });

  test('the table has the numbers of the chart, and accumulated ends at all of them', async () => {
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByRole('button', { name: 'Show as a table' }).click();
    await page.keyboard.press('Escape');
    const totals = async (): Promise<number[]> =>
      (await page.getByRole('table').locator('tbody td:nth-child(2)').allInnerTexts()).map(Number);
    expect((await totals()).reduce((sum, value) => sum + value, 0)).toBe(6);
    await page.getByLabel('Accumulated').check();
    await expect.poll(async () => (await totals())[0]).toBe(6);
    expect((await totals()).at(-1)).toBe(0);
    expect(new URL(page.url()).searchParams.get('mode')).toBe('accumulated');
    await page.goBack();
    await expect.poll(async () => (await totals()).reduce((sum, value) => sum + value, 0)).toBe(6);
  });

  test('the arrow keys speak the buckets, and zoom in and back out', async () => {
    const chart = page.getByRole('application');
    await chart.focus();
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => chart.locator('[aria-live]').textContent()).toMatch(/GMT\+\d: \d+ in all/);
    await page.keyboard.press('Shift+Home');
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).searchParams.get('back')).toBe('24h');
    expect(await figure(page, 'In this range')).toBe(6);
    await chart.focus();
    await page.keyboard.press('Backspace');
    await expect.poll(() => new URL(page.url()).searchParams.get('range')).toBe('24h');
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
    expect(await figure(helper.page, 'In this range')).toBe(6);
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

  test('a rotated token stops working, and the new one works', async () => {
    await page.reload();
    const masked = page.locator('code.token');
    expect(await masked.textContent()).not.toContain(loggingToken.slice(4));
    await page.getByRole('button', { name: 'Reveal' }).click();
    expect(await masked.textContent()).toBe(loggingToken);
    await page.getByRole('button', { name: 'Rotate…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('The old token stays valid for').selectOption('0');
    await dialog.getByLabel(/to confirm/).fill('Web shop');
    await dialog.getByRole('button', { name: 'Rotate' }).click();
    await expect.poll(() => masked.textContent()).not.toBe(loggingToken);
    expect((await post({ loggingToken, typeName: 'order placed' })).status).toBe(401);
    loggingToken = (await masked.textContent()) ?? '';
    expect((await post({ loggingToken, typeName: 'order placed' })).status).toBe(201);
  });

  test('a resource token is shown once, reads what the chart shows, and is revoked', async () => {
    await page.getByRole('button', { name: 'New resource token…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('Analytics');
    await dialog.getByRole('button', { name: 'Create' }).click();
    await dialog.getByRole('button', { name: 'Copy the resource token' }).click();
    const resourceToken = await clipboard(page);
    await dialog.getByRole('button', { name: 'I have copied it' }).click();
    const read = () =>
      service.request({
        path: `/public/get_events?appId=${appId}`,
        headers: { Authorization: `Bearer ${resourceToken}` },
      });
    expect(JSON.parse((await read()).body).data.pagination.total).toBe(7);
    await page.getByRole('button', { name: 'Revoke Analytics' }).click();
    await page.getByText(/^revoked/).waitFor();
    expect((await read()).status).toBe(401);
    expect(await page.content()).not.toContain(resourceToken);
  });

  test('the activity names who changed what', async () => {
    await page.reload();
    const activity = page.getByRole('region', { name: 'Activity' });
    await activity.getByText(/rotated the logging token/).waitFor();
    await activity.getByText(/revoked the resource token/).waitFor();
    expect(await activity.textContent()).toContain(OWNER);
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

  test('events are listed with the spelling they were sent in, and can be linked to', async () => {
    const payload = '{"big":1e400, "n":12345678901234567890,"a":1,"a":2,"in":{"deep":[1,{}]}}';
    const body = `{"loggingToken":"${loggingToken}","typeName":"order placed","payload":${payload}}`;
    expect((await service.request({ method: 'POST', path: '/public/create_event', body })).status).toBe(201);
    await page.getByRole('link', { name: 'Explore' }).click();
    const row = page.locator('article').first();
    await row.getByRole('button').first().click();
    await row.getByText('1e400', { exact: true }).waitFor();
    await row.getByText('12345678901234567890', { exact: true }).waitFor();
    expect(await row.getByText('"a"', { exact: true }).count()).toBe(2);
    await row.getByRole('button', { name: /^"in"/ }).click();
    await row.getByRole('button', { name: /^"deep"/ }).waitFor();
    await row.getByRole('button', { name: 'Copy JSON' }).click();
    expect(await clipboard(page)).toBe(payload);
    await row.getByRole('button', { name: 'Copy as curl' }).click();
    expect(await clipboard(page)).toContain(payload);
    await row.getByRole('button', { name: 'Copy link' }).click();

    const link = await clipboard(page);
    await helper.page.goto(link);
    await helper.page.getByRole('dialog', { name: 'Event' }).getByText('1e400', { exact: true }).waitFor();
    await helper.page.keyboard.press('Escape');
    await expect.poll(() => new URL(helper.page.url()).searchParams.has('event')).toBe(false);
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

  test('a lost server is said where it matters, and trying again helps', async () => {
    await page.goto(`/apps/${appId}?range=24h&tz=UTC`);
    await page.getByRole('application').waitFor();
    await page.route('**/api/**', (route) => route.abort());
    await page.getByRole('button', { name: /^Time range/ }).click();
    await page.getByRole('button', { name: '7 d', exact: true }).click();
    await page.getByText('The server cannot be reached').first().waitFor();
    expect(await page.getByRole('application').count()).toBe(1); // What was known stays.
    await page.unroute('**/api/**');
    await page.getByRole('button', { name: 'Try again' }).first().click();
    await page.getByText('The server cannot be reached').first().waitFor({ state: 'detached' });
    await expect.poll(() => figure(page, 'In this range')).toBe(8);
  });

  test('a live chart follows by itself, a paused one does not', async () => {
    await page.goto(`/apps/${appId}?range=1h&tz=UTC&refresh=off`);
    await expect.poll(() => figure(page, 'In this range')).toBe(8);
    await page.getByRole('button', { name: 'Paused' }).waitFor();
    expect((await post({ loggingToken, typeName: 'order placed' })).status).toBe(201);
    await page.getByRole('button', { name: 'Paused' }).click();
    await expect.poll(() => figure(page, 'In this range'), { timeout: patient(20_000) }).toBe(9);
    await page.getByRole('button', { name: 'Live' }).waitFor();
  });

  test('an app is renamed and, once its name is typed, deleted', async () => {
    await page.getByRole('link', { name: 'Settings' }).click();
    await page.getByLabel('Name', { exact: true }).fill('Shop');
    await page.getByRole('button', { name: 'Rename' }).click();
    await page.getByRole('heading', { name: 'Shop', level: 1 }).waitFor();
    await page.getByLabel(/^Type Shop to confirm/).fill('Web shop');
    await page.getByRole('button', { name: 'Delete the app' }).click();
    await page.getByRole('heading', { name: 'Shop', level: 1 }).waitFor();
    await page.getByLabel(/^Type Shop to confirm/).fill('Shop');
    await page.getByRole('button', { name: 'Delete the app' }).click();
    await page.getByRole('heading', { name: 'Create your first app' }).waitFor();
    await page.goto(`/apps/${appId}`);
    await page.getByRole('heading', { name: 'There is no such app' }).waitFor();
  });

  /** Goes on with Tab until a control has the focus, as somebody without a mouse does. */
  async function tabTo(name: string): Promise<void> {
    for (let i = 0; i < 60; i++) {
      const focused = await page.evaluate(() => {
        const element = document.activeElement;
        const labels = element instanceof HTMLInputElement ? [...(element.labels ?? [])] : [];
        return [element?.textContent, ...labels.map((label) => label.textContent)].join(' ').trim();
      });
      if (focused.startsWith(name)) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not lead to ${name}`);
  }

  test('a second factor is turned on by the keyboard alone', async () => {
    await page.goto('/account');
    await page.getByRole('button', { name: 'Turn on…' }).waitFor();
    await tabTo('Turn on…');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByLabel('Password').waitFor();
    await page.keyboard.type(PASSWORD);
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog', { name: 'Scan this with the authenticator app' });
    await dialog.getByRole('img', { name: 'QR code of the secret below' }).waitFor();
    secret = (await dialog.locator('code').textContent()) ?? '';
    await page.keyboard.type(codeAt(secret, Date.now()));
    await page.keyboard.press('Enter');
    const codes = page.getByRole('dialog', { name: 'Recovery codes' });
    await expect.poll(() => codes.getByRole('listitem').count()).toBe(10);
    // They are shown once: Escape does not lose them.
    await page.keyboard.press('Escape');
    expect(await codes.isVisible()).toBe(true);
    await page.keyboard.press('Enter');
    await codes.waitFor({ state: 'detached' });
    await page.getByText('10 of 10 recovery codes left').waitFor();
    await page.getByRole('row', { name: /Chrome on Linux.*this one/ }).waitFor();
    await page.getByText('The second factor was turned on').waitFor();
  });

  test('signing out ends it, and nothing of the account stays on the page', async () => {
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await page.content()).not.toContain(OWNER);
    await page.goto('/account');
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(owner.complaints).toEqual([]);
  });

  test('signing in then asks for a code, and takes one from the keyboard', async () => {
    await tabTo('Email');
    await page.keyboard.type(OWNER);
    await page.keyboard.press('Tab');
    await page.keyboard.type(PASSWORD);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Enter your code' }).waitFor();
    await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('INPUT');
    await page.keyboard.type('not a code');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').filter({ hasText: 'Code is wrong' }).waitFor();
    await page.getByLabel('Code').fill('');
    // That of the present was used to turn it on, if no half a minute has passed.
    await page.keyboard.type(codeAt(secret, Date.now() + CODE_EVERY_MS));
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Second factor' }).waitFor();
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });

  test('where an account has been, the first one is not offered again', async () => {
    await newPerson(service, 'third@example.com');
    await page.goto('/sign-up');
    await page.getByRole('heading', { name: 'By invitation' }).waitFor();
  });
});
