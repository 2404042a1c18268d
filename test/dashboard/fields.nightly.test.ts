/** Fields and schemas in a real browser: what payloads carry, what is counted, and what a payload must be. */
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { figure, visit } from './visitor.ts';

const SCHEMA = '{"type":"object","properties":{"total":{"type":"number"}}}';

describe.skipIf(withoutBrowser !== '')('fields', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let viewer: Person;
  let page: Page;
  let complaints: string[];
  let app: { appId: string; loggingToken: string; path: string };
  /** One whose field has been counted from the start. */
  let shop: typeof app;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    viewer = await newPerson(service, 'viewer@example.com');
    app = await newOwnApp(owner);
    shop = await newOwnApp(owner, 'Shop');
    await owner.post(`${shop.path}/declared-fields`, { path: 'country', kind: 'value' });
    await owner.post(`${shop.path}/declared-fields`, { path: 'total', kind: 'number' });
    await owner.post(`${app.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
    for (let index = 0; index < 12; index++)
      await log('order', {
        country: index % 3 ? 'DE' : 'FR',
        total: index < 6 ? `${index}` : index,
        ...(index === 0 && { 'with space': true, shared: 1 }),
      });
    await log('visit', { url: '/', shared: 'two' });
    // Counted from its first event on: values have ids soon.
    await until(
      async () =>
        (await owner.get(`${shop.path}/series?by=country`)).data.by === 'country' &&
        (await owner.get(`${shop.path}/numbers?of=total`)).status === 200,
      'the field is counted',
    );
    for (let index = 0; index < 12; index++)
      await log('order', { country: index % 3 ? 'DE' : 'FR', total: index }, shop);
    await log('visit', { url: '/' }, shop);
    ({ page, complaints } = await visit(browser, service, owner));
  });
  beforeEach(async () => {
    complaints.length = 0;
    await page.unrouteAll();
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  async function log(typeName: string, payload: object, { loggingToken } = app): Promise<number> {
    const body = JSON.stringify({ loggingToken, typeName, payload });
    return (await service.request({ method: 'POST', path: '/public/create_event', body })).status;
  }
  const seen = (one = page): Locator => one.getByRole('region', { name: 'Fields of recent events' });
  const counted = (one = page): Locator => one.getByRole('region', { name: 'Counted fields' });
  const row = (region: Locator, name: string): Locator => region.getByRole('row').filter({ hasText: name }); // As the route declares it.

  test('of recent events are listed with kinds, share, examples and where a kind has changed', async () => {
    await page.goto(`/apps/${app.appId}/fields`);
    const total = row(seen(), 'total');
    await total.waitFor();
    expect(await total.innerText()).toMatch(
      /order\s+(string, number|number, string)\s*was string, now number\s+100%/,
    );
    await row(seen(), 'country').getByRole('link', { name: '"FR"' }).waitFor();
    expect(await row(seen(), '"with space"').innerText()).toMatch(/boolean\s+8%\s+true\s+just now/);
    await counted().getByText('None yet').waitFor();
    expect(complaints).toEqual([]);
  });

  test('that several types have are one row, with its types in it', async () => {
    await page.goto(`/apps/${app.appId}/fields`);
    const shared = page
      .getByRole('row')
      .filter({ has: page.getByRole('rowheader', { name: 'shared', exact: true }) });
    await shared.first().waitFor();
    expect(await shared.count()).toBe(1);
    expect(await shared.innerText()).toMatch(/string, number|number, string/);
    await shared.getByText('2 event types').click();
    const types = shared.getByRole('listitem');
    expect((await types.locator('a').allInnerTexts()).toSorted()).toEqual(['order', 'visit']);
    await types.filter({ hasText: 'visit' }).getByRole('button', { name: 'Count shared of visit' }).waitFor();
    await shared.getByRole('button', { name: 'Count shared', exact: true }).waitFor();
  });

  test('are seen and not changed by viewers', async () => {
    const { page: theirs, complaints: said } = await visit(browser, service, viewer);
    await theirs.goto(`/apps/${app.appId}/fields`);
    await row(seen(theirs), 'country').waitFor();
    await counted(theirs).getByText('An owner of the app can have fields counted').waitFor();
    expect(await theirs.getByRole('button', { name: /^Count|^Remove/ }).count()).toBe(0);
    await theirs.goto(`/apps/${app.appId}?filter=country:DE`);
    await theirs.locator('.legend .value').first().waitFor();
    expect(await theirs.getByRole('button', { name: /^Count country/ }).count()).toBe(0);
    expect(said).toEqual([]);
    await theirs.context().close();
  });

  test('that nobody has sent, that fail and that load are told as such', async () => {
    const empty = await newOwnApp(owner, 'Empty');
    await page.goto(`/apps/${empty.appId}/fields`);
    await seen().getByText('No events yet').waitFor();
    await page.route(/\/api\/.*fields$/, (route) => route.abort());
    await page.goto(`/apps/${app.appId}/fields`);
    await page.getByText('The server cannot be reached').waitFor();
    expect(await page.getByRole('alert').count()).toBe(1);
    await page.unrouteAll();
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route(/\/api\/.*fields$/, async (route) => {
      await held;
      await route.continue();
    });
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.reload();
    await page.getByRole('status', { name: 'Loading' }).first().waitFor();
    release();
    await row(seen(), 'country').waitFor();
  });

  test('that a search is for are counted from the chart, which needs none then', async () => {
    await page.goto(`/apps/${app.appId}?filter=country:DE`);
    await page.getByRole('button', { name: 'Count country from now on…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Add a counted field' });
    expect(await dialog.getByLabel('Path').inputValue()).toBe('country');
    await dialog.getByRole('button', { name: 'Count the field' }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: /^Count country/ }).waitFor({ state: 'detached' });
    await until(
      async () => (await owner.get(`${app.path}/series?filter=country:DE`)).data.isFiltered === true,
      'counts answer',
    );
    await page.reload();
    await expect.poll(() => figure(page, 'In this range')).toBe(8);
    expect(await page.getByText('conditions on fields are searched for').count()).toBe(0);

    await page.getByRole('combobox', { name: 'Filter' }).click();
    const offer = page.getByRole('option', { name: /country/ });
    await offer.getByText('counted').waitFor();
    // What is counted comes before what is not.
    expect(
      await page
        .getByRole('option', { name: /^Field/ })
        .first()
        .innerText(),
    ).toContain('country');
    expect(complaints).toEqual([]);
  });

  test('say since when they are complete and further values count as other, and count the past on demand', async () => {
    const { types } = (await owner.get(`${app.path}/types`)).data as { types: { typeId: string }[] }; // As the route declares it.
    const at = new Date(Date.now() - 7_200_000).toISOString();
    await addPastEvents(service, types[0]?.typeId ?? '', [{ at, payload: '{"country":"DE"}' }]);
    await service.sql`
      UPDATE declared_fields SET complete_from = date_trunc('minute', now()), full_since = now(), known_values = 10000, backfill = false
       WHERE removed_at IS NULL`;
    await page.goto(`/apps/${app.appId}?filter=country:DE`);
    await page.getByText(/^country is counted from .* on: a range after that needs no search/).waitFor();
    await page.goto(`/apps/${app.appId}/fields`);
    await row(counted(), 'country').waitFor();
    expect(await row(counted(), 'country').innerText()).toMatch(/\d.*\s+10,000\s+other since \d/);
    await page.getByRole('button', { name: 'Count earlier events by country' }).click();
    await row(counted(), 'country').getByText('the first event').waitFor();
    expect(complaints).toEqual([]);
  });

  describe('a schema', () => {
    const open = async (name: RegExp): Promise<Locator> => {
      await page.getByRole('button', { name }).click();
      const dialog = page.getByRole('dialog', { name: 'Schema of order' });
      await dialog.waitFor();
      return dialog;
    };

    test('is set by the owner; a mistake has its place', async () => {
      await page.goto(`/apps/${app.appId}/types`);
      const dialog = await open(/^Add schema to order/);
      const text = dialog.getByLabel('JSON Schema');
      await text.fill('{\n  "type": "object"\n  "required": []\n}');
      await dialog.getByRole('button', { name: 'Set the schema' }).click();
      await dialog.getByRole('alert').getByText('at line 3, column 3').waitFor();
      expect(
        await text.evaluate((area: HTMLTextAreaElement) => [
          area === document.activeElement,
          area.selectionStart,
        ]),
      ).toEqual([true, 23]);
      await text.fill('{"properties":{"total":{"type":"money"}}}');
      await dialog.getByRole('button', { name: 'Set the schema' }).click();
      await dialog.getByRole('alert').getByText('schema/properties/total/type').waitFor();
      await text.fill(SCHEMA);
      await dialog.getByLabel('An event that violates it').selectOption('refuse');
      await dialog.getByRole('button', { name: 'Set the schema' }).click();
      await page.getByRole('button', { name: 'Schema of order: Refuses' }).waitFor();
    });

    test('shows what it refuses, is changed, and removed after a question', async () => {
      await until(async () => (await log('order', { total: 'x' })) === 400, 'violations are refused');
      await until(
        async () =>
          ((await owner.get(`${app.path}/type-schemas`)).data.schemas as { violations: number }[])[0]
            ?.violations === 1,
        'the violation is written',
      );
      await page.reload();
      let dialog = await open(/^Schema of order: Refuses, 1 violation/);
      await dialog.getByText('/total must be number').waitFor();
      expect(JSON.parse(await dialog.getByLabel('JSON Schema').inputValue())).toEqual(JSON.parse(SCHEMA));
      await dialog.getByLabel('An event that violates it').selectOption('warn');
      await dialog.getByRole('button', { name: 'Change the schema' }).click();
      dialog = await open(/^Schema of order: Warns$/);

      const { page: theirs } = await visit(browser, service, viewer);
      await theirs.goto(`/apps/${app.appId}/types`);
      await theirs.getByRole('button', { name: 'Schema of order: Warns' }).click();
      await theirs.getByLabel('JSON Schema').getByText('"number"').waitFor();
      expect(await theirs.getByRole('dialog').getByRole('button').count()).toBe(1);
      await theirs.context().close();

      await dialog.getByRole('button', { name: 'Remove the schema…' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Remove the schema' }).click();
      await page.getByRole('button', { name: 'Add schema to order' }).waitFor();
      expect(complaints).toEqual([]);
    });
  });
});
