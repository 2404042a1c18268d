/** The page of alerts and webhooks, and the alert that the chart proposes, as one uses them. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEventType } from '../../src/apps/event-types.ts';
import { Receiver } from '../delivery/receiver.ts';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { visit } from './visitor.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const HOUR_MS = 3_600_000;

describe.skipIf(withoutBrowser !== '')('the page of deliveries', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let page: Page;
  let complaints: string[];
  let app: { appId: string; path: string; loggingToken: string };
  const receiver = new Receiver();
  let url: string;

  beforeAll(async () => {
    build();
    const config = { WEBHOOK_ALLOW_PRIVATE: 'true', MAX_WEBHOOKS_PER_APP: 1 };
    [service, browser] = await Promise.all([startTestService({ config }), launchBrowser()]);
    url = await receiver.listen();
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    const { typeId } = await createEventType(service.sql, { appId: app.appId, name: 'order', maxTypes: 9 });
    // One in each of the last 20 hours, and three in one of them.
    const hour = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
    const times = Array.from({ length: 20 }, (_, index) => hour - index * HOUR_MS - 1_000);
    const events = [...times, hour - 5 * HOUR_MS - 2_000, hour - 5 * HOUR_MS - 3_000];
    await addPastEvents(
      service,
      typeId,
      events.map((at) => ({ at: new Date(at).toISOString() })),
    );
    ({ page, complaints } = await visit(browser, service, owner));
  });
  afterAll(async () => {
    receiver.close();
    await browser?.close();
    await service?.stop();
  });

  const dialog = (): Locator => page.getByRole('dialog');
  const button = (name: string | RegExp): Locator => page.getByRole('button', { name });
  const violations = async (): Promise<string[]> => {
    await page.evaluate(AXE);
    const { violations: found } = (await page.evaluate('axe.run()')) as {
      violations: { id: string; nodes: { html: string }[] }[]; // Its documented result.
    };
    return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(' ')}`);
  };

  test('adds a webhook, refuses a wrong address in place, and shows the secret once', async () => {
    await page.goto(`/apps/${app.appId}/delivery`);
    await button('New webhook…').click();
    await dialog().getByLabel('Address').fill('ftp://example.com');
    await dialog().getByLabel('Event types').fill('ordre');
    await button('Add').click();
    expect(await dialog().getByRole('alert').textContent()).toContain('http');
    await dialog().getByLabel('Address').fill(url);
    await button('Add').click();
    await dialog().getByText('did you mean "order"').waitFor();
    await dialog().getByLabel('Event types').fill('');
    await button('Add').click();
    await dialog().getByText('It is shown only once').waitFor();
    expect(await dialog().locator('code').textContent()).toMatch(/^whsec_/);
    // Escape does not lose it, and says so.
    await page.keyboard.press('Escape');
    await dialog().getByText('Only its own buttons close this dialog').waitFor();
    expect(await violations()).toEqual([]);
    await button('I have copied it').click();
    await page.getByRole('table', { name: 'Webhooks' }).getByText(url).waitFor();
    expect(await page.locator('body').textContent()).not.toContain('whsec_');
    expect(await button('New webhook…').isDisabled()).toBe(true);
  });

  test('shows deliveries with their answers, tests, pauses and goes on', async () => {
    receiver.answer = (response) => response.writeHead(500).end();
    expect(
      (
        await service.post({
          loggingToken: app.loggingToken,
          typeId: undefined,
          typeName: 'order',
          payload: { n: 1 },
        })
      ).status,
    ).toBe(201);
    await until(() => receiver.received.length > 0, 'the first try');
    await button(/^Test/).click();
    await page.getByText('The endpoint answered 500').waitFor();
    await page.reload();
    await button(/^Skip the event/).waitFor();
    await button(/^Deliveries/).click();
    await dialog()
      .getByText(/event\.created/)
      .waitFor();
    expect(await dialog().getByRole('row').count()).toBeGreaterThanOrEqual(3);
    expect(await violations()).toEqual([]);
    await page.keyboard.press('Escape');
    await button(/^Skip the event/).click();
    await page.getByText('The event was skipped').waitFor();
    await button(/^Pause/).click();
    await button(/^Resume/).click();
    await button(/^Pause/).waitFor();
    await button(/^Rotate/).click();
    expect(await dialog().locator('code').textContent()).toMatch(/^whsec_/);
    await button('I have copied it').click();
  });

  test('tries an alert over 30 days before it is added, with the line where it fires', async () => {
    await button('New alert…').click();
    await dialog().getByLabel('Name').fill('Orders');
    await dialog().getByLabel('within').fill('1h');
    await dialog().getByLabel('the threshold').fill('2');
    await dialog().getByLabel('of events of the type').fill('order');
    await dialog().getByLabel('for', { exact: true }).focus();
    await dialog().getByText('It would have fired 1 time in the last 30 days').waitFor();
    expect(await dialog().locator('svg path.limit').first().getAttribute('d')).toMatch(/^M0 [\d.]+h1/);
    expect(await dialog().locator('svg rect').count()).toBe(1);
    expect(await violations()).toEqual([]);
    await dialog().getByLabel('within').fill('soon');
    await dialog().getByLabel('for', { exact: true }).focus();
    await dialog().getByText('must be whole minutes, hours or days').waitFor();
    await dialog().getByLabel('within').fill('1h');
    await dialog().getByLabel('Webhook that is told').selectOption({ label: url });
    await button('Add').click();
    const list = page.getByRole('table', { name: 'Alerts' });
    await list.getByText('count of "order" in 1h above 2').waitFor();
    await list.getByText(url).waitFor();
    await button('Last 30 days Orders').click();
    await dialog().getByText('It would have fired 1 time').waitFor();
    await page.keyboard.press('Escape');
    await button('Pause Orders').click();
    await button('Resume Orders').click();
    await button('Remove Orders').click();
    await dialog().getByRole('button', { name: 'Remove the alert' }).click();
    await list.waitFor({ state: 'detached' });
    await page.goto(`/apps/${app.appId}/settings`);
    for (const text of ['removed the alert “Orders”', 'added the alert “Orders”', `added the webhook ${url}`])
      await page.getByText(text).waitFor();
    await page.getByText(/rotated the secret of the webhook whk_/).waitFor();
  });

  test('proposes an alert on what the chart shows', async () => {
    await page.goto(`/apps/${app.appId}?range=24h`);
    await button('Chart options').click();
    await button('Alert…').click();
    await dialog().getByText('It would not have fired').waitFor();
    const shown = await dialog().getByLabel('the threshold').inputValue();
    expect(Number(shown)).toBe(3);
    await dialog().getByLabel('the threshold').fill('2');
    await dialog().getByLabel('Name').fill('From the chart');
    await dialog().getByText('It would have fired 1 time').waitFor();
    expect(await violations()).toEqual([]);
    await button('Add').click();
    await page.getByText('The alert was added').waitFor();
    const { alerts } = (await owner.get(`${app.path}/alerts`)).data as { alerts: { rule: object }[] };
    expect(alerts.map(({ rule }) => rule)).toEqual([expect.objectContaining({ of: 'count', above: 2 })]);
    expect(complaints).toEqual([]);
  });

  test('has the fields of an alert in lines, and makes its webhook in place', async () => {
    // There is room for one webhook: that of the tests before goes.
    const { webhooks } = (await owner.get(`${app.path}/webhooks`)).data as {
      webhooks: { webhookId: string }[];
    };
    await owner.delete(`${app.path}/webhooks/${webhooks[0]?.webhookId}`);
    await page.goto(`/apps/${app.appId}/delivery`);
    await button('New alert…').click();
    await dialog().getByLabel('Name').fill('In place');
    const tops = await dialog()
      .locator('.alert-form > .field')
      .evaluateAll((fields) =>
        fields.map((field) =>
          [field, field.querySelector('input, select, textarea')].map((one) =>
            Math.round(one?.getBoundingClientRect().top ?? 0),
          ),
        ),
      );
    // Fields of one line begin alike, and so do their inputs.
    const inputs = new Map<number, Set<number>>();
    for (const [top = 0, input = 0] of tops) inputs.set(top, (inputs.get(top) ?? new Set()).add(input));
    expect(inputs.size).toBeGreaterThan(3);
    expect([...inputs.values()].filter((lines) => lines.size > 1)).toEqual([]);
    await dialog().getByRole('button', { name: 'New webhook…' }).click();
    const hook = page.getByRole('dialog', { name: 'New webhook' });
    await hook.getByLabel('Address').fill(url);
    await hook.getByRole('button', { name: 'Add' }).click();
    await page
      .getByRole('dialog', { name: 'Secret of the webhook' })
      .getByText(/^whsec_/)
      .waitFor();
    await button('I have copied it').click();
    // What was typed is there, and the webhook chosen.
    const alert = page.getByRole('dialog', { name: 'New alert' });
    expect(await alert.getByLabel('Name').inputValue()).toBe('In place');
    await expect
      .poll(() => alert.getByLabel('Webhook that is told').locator('option:checked').innerText())
      .toBe(url);
    await alert.getByRole('button', { name: 'Add', exact: true }).click();
    await page
      .getByRole('table', { name: 'Alerts' })
      .getByRole('row', { name: /In place/ })
      .getByText(url)
      .waitFor();
    expect(complaints).toEqual([]);
  });
});
