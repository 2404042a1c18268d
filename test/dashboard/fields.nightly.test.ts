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
  const row = (region: Locator, name: string): Locator => region.getByRole('row').filter({ hasText: name });
  const declared = async (): Promise<readonly Record<string, unknown>[]> =>
    (await owner.get(`${app.path}/declared-fields`)).data.fields as Record<string, unknown>[]; // As the route declares it.

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

  test('are counted by the owner from there, and removed after a question', async () => {
    await page.goto(`/apps/${app.appId}/fields`);
    await page.getByRole('button', { name: 'Count "with space" of order' }).click();
    const dialog = page.getByRole('dialog', { name: 'Add a counted field' });
    expect(await dialog.getByLabel('Path').inputValue()).toBe('"with space"');
    await dialog.getByRole('button', { name: 'Count the field' }).click();
    await dialog.waitFor({ state: 'detached' });
    expect(await declared()).toMatchObject([{ path: '"with space"', typeName: 'order', kind: 'value' }]);
    await row(seen(), '"with space"').getByText('counted', { exact: true }).waitFor();
    // By itself: progress is asked for again.
    await row(counted(), '"with space"').getByText('the first event').waitFor();
    await log('order', { 'with space': false });
    await until(async () => (await declared())[0]?.values === 1, 'the value is counted');
    await page.reload();
    await counted().getByText('1 of 32').waitFor();
    expect(await row(counted(), '"with space"').innerText()).toMatch(/order\s+the first event\s+1\s/);

    await page.getByRole('button', { name: 'Remove "with space"' }).click();
    const question = page.getByRole('dialog', { name: 'Remove the field' });
    await question.getByRole('button', { name: 'Cancel' }).click();
    expect(await declared()).toHaveLength(1);
    await page.getByRole('button', { name: 'Remove "with space"' }).click();
    await question.getByRole('button', { name: 'Remove the field' }).click();
    await counted().getByText('None yet').waitFor();
    expect(await declared()).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test('that are typed wrong are refused with the column, and the dialog stays', async () => {
    await page.goto(`/apps/${app.appId}/fields`);
    await page.getByRole('button', { name: 'Add a counted field…' }).click();
    await page.getByLabel('Path').fill('order..country');
    await page.getByRole('button', { name: 'Count the field' }).click();
    await page.getByRole('dialog').getByRole('alert').getByText('column 7').waitFor();
    expect(await page.getByLabel('Path').inputValue()).toBe('order..country');
    expect(await declared()).toEqual([]);
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

  test('break the chart down by their values, in the address, with colors of their own', async () => {
    // Declared at the beginning: a value has a line of its own once it has got its id.
    await until(
      async () => ((await owner.get(`${shop.path}/series?by=country`)).data.lines as unknown[]).length === 2,
      'the values have ids',
    );
    await page.goto(`/apps/${shop.appId}`);
    await page.getByLabel('Break down by').selectOption('country');
    const legend = page.locator('.legend .line');
    const lines = async (): Promise<readonly string[]> =>
      (await legend.allInnerTexts()).map((text) => text.split(/\s+/).slice(0, 2).join(' '));
    await expect.poll(lines).toEqual(['DE 8', 'FR 4', 'All other']);
    expect(new URL(page.url()).searchParams.get('by')).toBe('country');
    const colors = () =>
      legend.locator('.swatch').evaluateAll((all) => all.map((swatch) => swatch.className));
    const before = await colors();
    expect(new Set(before).size).toBe(3);
    // An event has the color of the line that counts it.
    const dots = await page.locator('article').evaluateAll((rows) =>
      rows.map((row) => {
        const country = /"country":"(..)"/.exec(row.textContent ?? '')?.[1] ?? 'none';
        return `${country} ${row.querySelector('.swatch')?.className}`;
      }),
    );
    expect([...new Set(dots)].sort()).toEqual([`DE ${before[0]}`, `FR ${before[1]}`, `none ${before[2]}`]);
    // A busier one comes first, and nothing changes its color.
    for (let index = 0; index < 6; index++) await log('order', { country: 'FR' }, shop);
    await page.reload();
    await expect.poll(lines).toEqual(['FR 10', 'DE 8', 'All other']);
    expect(await colors()).toEqual([before[1], before[0], before[2]]);
    // A click filters by the value: chart, list and address say so.
    await page.getByRole('button', { name: /^DE/, pressed: false }).click();
    await expect.poll(() => figure(page, 'In this range')).toBe(8);
    expect(new URL(page.url()).searchParams.getAll('filter')).toEqual(['country:DE']);
    await expect.poll(() => page.locator('article').count()).toBe(8);
    await page.getByRole('button', { name: /^All .*values →$/ }).click();
    const all = page.getByRole('dialog', { name: 'All values of country' });
    // A line of head and a line for each value.
    await expect.poll(() => all.getByRole('row').count()).toBe(3);
    await all.getByRole('button', { name: 'FR', exact: true }).click();
    await expect.poll(() => figure(page, 'In this range')).toBe(10);
    await page.getByRole('button', { name: /^FR/, pressed: true }).click();
    await expect.poll(lines).toEqual(['FR 10', 'DE 8', 'All other']);
    // A condition on the same field is counted too.
    await page.goto(`/apps/${shop.appId}?by=country&filter=country:DE`);
    await expect.poll(lines).toEqual(['DE 8']);
    expect(await figure(page, 'In this range')).toBe(8);
    // With another one rows are read. The visit has no country.
    await page.goto(`/apps/${shop.appId}?by=country&filter=-country:DE`);
    await expect.poll(lines).toEqual(['FR 10', 'All other']);
    // The filter completes values of the events that the view is about.
    const asked = page.waitForResponse((response) => response.url().includes('/fields/values?'));
    await page.getByRole('combobox', { name: 'Filter' }).fill('country:');
    const answer = await asked;
    expect(new URL(answer.url()).searchParams.getAll('filter')).toEqual(['-country:DE']);
    expect((await answer.json()).data).toMatchObject({ values: [{ value: 'FR', events: 10 }], exact: true });
    await page.getByRole('option', { name: 'country: FR' }).waitFor();
    // A word is looked for among the values that are counted, and how many events have them is said.
    await page.goto(`/apps/${shop.appId}?by=country`);
    await page.getByRole('combobox', { name: 'Filter' }).fill('FR');
    await page.getByRole('option', { name: /^Is\s*country: FR\s*10$/ }).waitFor();
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).searchParams.getAll('filter')).toEqual(['country:FR']);
    expect(complaints).toEqual([]);
  });

  test('of numbers have statistics, shown as a line with the value of the whole range', async () => {
    await page.goto(`/apps/${shop.appId}`);
    await page.getByRole('button', { name: /^What the chart shows/ }).click();
    await page.getByLabel('Statistic').selectOption({ label: 'Average' });
    expect(await page.getByLabel('of the field').inputValue()).toBe('total');
    await page.getByRole('button', { name: 'Show the statistic' }).click();
    const main = page.locator('.main-figure');
    // 0 to 11 of the twelve orders.
    await expect.poll(() => main.innerText()).toMatch(/Average of total\s+5\.5/);
    expect(new URL(page.url()).searchParams.get('stat')).toBe('avg');
    await page.goto(`/apps/${shop.appId}?of=total&stat=max&table=1`);
    await expect.poll(() => main.innerText()).toMatch(/Maximum of total\s+11/);
    const cells = await page.locator('.chart-table tbody td b').allInnerTexts();
    expect(cells.filter((text) => text !== '')).toContain('11');
    await page.goto(`/apps/${shop.appId}?of=total&stat=sum&filter=country:DE`);
    await expect.poll(() => main.innerText()).toMatch(/Sum of total\s+(?!66)\d/);
    // A type that is hidden is in none of it, until it is asked for.
    await log('refund', { total: -1_000 }, shop);
    await page.goto(`/apps/${shop.appId}?of=total&stat=min`);
    await expect.poll(() => main.innerText()).toMatch(/Minimum of total\s+−1,000/);
    const { types } = (await owner.get(`${shop.path}/types`)).data as {
      types: { typeId: string; name: string }[];
    };
    const refund = types.find(({ name }) => name === 'refund')?.typeId;
    await owner.patch(`${shop.path}/types/${refund}`, { hidden: true });
    await page.reload();
    await expect.poll(() => main.innerText()).toMatch(/Minimum of total\s+0/);
    await page.getByRole('button', { name: 'Show hidden types' }).click();
    await expect.poll(() => main.innerText()).toMatch(/Minimum of total\s+−1,000/);
    await page.goto(`/apps/${shop.appId}?of=country&stat=sum`);
    await page.getByText('country is not shown:').waitFor();
    await page.goto(`/apps/${shop.appId}/fields`);
    expect(await row(counted(), 'total').innerText()).toMatch(/numbers\s+all types\s+the first event/);
    const total = row(seen(), 'total').filter({ hasText: 'order' });
    await total.getByRole('cell').last().getByText('numbers', { exact: true }).waitFor();
    expect(await total.getByRole('button').count()).toBe(0);
    await page.goto(`/apps/${shop.appId}`);
    await page.getByRole('combobox', { name: 'Filter' }).click();
    await page.getByRole('option', { name: /total/ }).getByText('numbers counted').waitFor();
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
