/** Retention, erasure and members in the settings of an app: what a change takes is said before, and who may make it. */
import axe from 'axe-core';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { clipboard, visit } from './visitor.ts';

const DAY_MS = 86_400_000;
const EVENTS = 10;

describe.skipIf(withoutBrowser !== '')('in the settings', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let app: Awaited<ReturnType<typeof newOwnApp>>;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    const events = Array.from({ length: EVENTS }, (_, n) => ({
      typeName: n % 2 === 0 ? 'order' : 'visit',
      createdAt: new Date(Date.now() - n * DAY_MS).toISOString(),
      payload: { user: { id: n % 5 } },
    }));
    const stored = await service.request({
      ...{ method: 'POST', path: '/v1/events', body: JSON.stringify({ events }) },
      headers: { Authorization: `Bearer ${app.loggingToken}` },
    });
    expect(stored.status, stored.body).toBe(200);
  }, 120_000);
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  async function settingsOf(person: Person): Promise<Page> {
    const { page } = await visit(browser, service, person);
    await page.goto(`/apps/${app.appId}/settings`);
    await page.getByRole('heading', { name: 'Retention' }).waitFor();
    return page;
  }

  async function violations(page: Page): Promise<string[]> {
    await page.evaluate(axe.source);
    const found = (await page.evaluate('axe.run()')) as { violations: { id: string }[] }; // Its documented result.
    return found.violations.map(({ id }) => id);
  }

  test('owners set retention for a type, and see before what it hides', async () => {
    const page = await settingsOf(owner);
    await page.getByRole('button', { name: 'Change retention…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Change retention' });
    await dialog.getByLabel('Type').fill('ordr');
    await dialog.getByLabel('Days').fill('5');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.locator('.problem').waitFor();
    await dialog.getByLabel('Type').fill('order');
    expect(await violations(page)).toEqual([]);
    await dialog.getByRole('button', { name: 'Preview' }).click();
    // Of the ten days each second one has an order: those of 6 and 8 days ago.
    await dialog.getByText('Events of order would be kept for 5 days: 2 events would go.').waitFor();
    expect(await violations(page)).toEqual([]);
    await dialog.getByRole('button', { name: 'Change retention' }).click();
    await dialog.waitFor({ state: 'detached' });
    const row = page.getByRole('table', { name: 'Retention' }).getByRole('row', { name: /^order 5/ });
    const boundary = new Date(Math.floor(Date.now() / DAY_MS) * DAY_MS - 5 * DAY_MS).toISOString();
    await row.getByText(boundary.slice(0, 10)).waitFor();
  });

  test('owners erase with their password what they have seen counted, and get a receipt', async () => {
    const page = await settingsOf(owner);
    await page.getByRole('button', { name: 'Erase events…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Erase events' });
    await dialog.getByLabel('Conditions').fill('user.id:2');
    await dialog.getByLabel('Reason').fill('a request');
    expect(await violations(page)).toEqual([]);
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('2 events of 8').waitFor();
    expect(await violations(page)).toEqual([]);
    await dialog.getByLabel('Password').fill('another password');
    await dialog.getByRole('button', { name: 'Erase events' }).click();
    await dialog.locator('.problem').waitFor();
    await dialog.getByLabel('Password').fill(PASSWORD);
    const table = page.getByRole('table', { name: 'Erasure' });
    await service.sql.begin(async (tx) => {
      // What is erased cannot be written down yet.
      await tx`LOCK TABLE erased_events IN SHARE MODE`;
      await dialog.getByRole('button', { name: 'Erase events' }).click();
      await dialog.waitFor({ state: 'detached' });
      await table.getByRole('row', { name: /a request 0 events deleted so far/ }).waitFor();
      expect(await violations(page)).toEqual([]);
    });
    // The page looks again by itself.
    await table.getByRole('row', { name: /a request 2 events deleted Copy/ }).waitFor();
    await table.getByRole('button', { name: 'Copy the receipt' }).click();
    expect(JSON.parse(await clipboard(page))).toMatchObject({ state: 'finished', receipt: { events: 2 } });
    expect(await violations(page)).toEqual([]);
  });

  test('owners have values replaced by pseudonyms, also in most of the events', async () => {
    const page = await settingsOf(owner);
    await page.getByRole('button', { name: 'Erase events…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Erase events' });
    await dialog.getByLabel('What to do').selectOption('Anonymize: replace these values by pseudonyms');
    await dialog.getByLabel('Conditions').fill('user.id:*');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.locator('.problem', { hasText: 'anonymize' }).waitFor();
    await dialog.getByLabel('Conditions').fill('user.id:3');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('1 event of 6 match').waitFor();
    await dialog.getByLabel('Password').fill(PASSWORD);
    await dialog.getByRole('button', { name: 'Anonymize events' }).click();
    const table = page.getByRole('table', { name: 'Erasure' });
    await table.getByRole('row', { name: / 1 event anonymized Copy/ }).waitFor();
    const payloads = async (): Promise<string> =>
      (await service.sql<{ payload: string }[]>`SELECT payload::text AS payload FROM events`)
        .map(({ payload }) => payload)
        .sort()
        .join('\n');
    expect(await payloads()).toMatch(/"id":"hmac:/);
    // What is left is more than half of the app.
    await page.getByRole('button', { name: 'Erase events…' }).click();
    await dialog.getByLabel('Conditions').fill('user.id:*');
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('6 events of 6 match: more than half of the app.').waitFor();
    await dialog.getByLabel('Password').fill(PASSWORD);
    await dialog.getByRole('button', { name: 'Erase events' }).click();
    await table.getByRole('row', { name: / 6 events deleted Copy/ }).waitFor();
    // Those that retention hides since the first test go with it.
    expect(await payloads()).toBe('{"user":{"id":1}}\n{"user":{"id":3}}');
  });

  test('others see how long events are kept, and change nothing', async () => {
    const viewer = await newPerson(service, 'viewer@example.com');
    const added = await owner.post(`${app.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
    expect(added.status, added.text).toBe(201);
    const page = await settingsOf(viewer);
    await page.getByRole('table', { name: 'Retention' }).waitFor();
    expect(await page.getByRole('button', { name: 'Change retention…' }).count()).toBe(0);
    expect(await page.getByRole('button', { name: 'Erase events…' }).count()).toBe(0);
  });

  test('owners remove a member, and keep those of the member’s tokens that they choose', async () => {
    const leaver = await newPerson(service, 'leaver@example.com');
    const page = await settingsOf(owner);
    await page.getByLabel('Add a member by email').fill(leaver.email);
    await page.getByLabel('As', { exact: true }).selectOption('maintainer');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Copy the invitation link' }).click();
    const link = new URL(await clipboard(page));
    await page.getByRole('button', { name: 'I have copied it' }).click();
    expect((await leaver.post(`/api${link.pathname}/accept`)).status).toBe(200);
    for (const name of ['Nightly report', 'Ad hoc'])
      await leaver.post(`/api/apps/${app.appId}/tokens`, { name });
    await page.reload();
    await page.getByRole('button', { name: `Remove ${leaver.email}` }).click();
    const dialog = page.getByRole('dialog', { name: 'Remove the member' });
    expect(await dialog.getByLabel(/^Keep Ad hoc/).isChecked()).toBe(false);
    await dialog.getByLabel(/^Keep Nightly report/).check();
    await dialog.getByRole('button', { name: 'Remove the member' }).click();
    const row = (name: RegExp) => page.getByRole('row', { name });
    await row(/Nightly report/)
      .getByText('no longer a member')
      .waitFor();
    await row(/Ad hoc/)
      .getByText(/^revoked/)
      .waitFor();
  });
});
