/** Twelve tasks of the dashboard, each from the page where it begins to its result, within as many interactions as it may take. */
import { execFile } from 'node:child_process';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { comparedSpan, resolveRange, type Span } from '../../dashboard/range.ts';
import type { AlertTrial } from '../../src/api-types/answers.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { Receiver } from '../delivery/receiver.ts';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, PASSWORD, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { addPastEvents } from './past-events.ts';
import { clipboard, figure, visit } from './visitor.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const STEP_MS = 600_000;
const DAYS = 63;
/** A browser on a busy machine takes its time. */
const SOON = { timeout: patient(20_000) };
const COUNTRIES = ['DE', 'FR', 'US', 'AT'];
const PATHS = ['/', '/search', '/checkout'];
const DECLARED = [
  { path: 'country', kind: 'value' },
  { path: 'error', kind: 'value' },
  { path: 'plan', kind: 'value' },
  { path: 'amount', kind: 'number', by: 'country', unit: '€', decimals: 2 },
  { path: 'user.id', kind: 'distinct' },
];
/** The hour of yesterday without orders. */
const SILENT_HOUR = 20;

/** A person: each click, each choice, and each text with the key that ends it is an interaction. */
class Hands {
  readonly #most: number;
  #used = 0;

  constructor(most: number) {
    this.#most = most;
  }

  async do(act: () => Promise<unknown>): Promise<void> {
    this.#used += 1;
    if (this.#used > this.#most) throw new Error(`More than ${this.#most} interactions`);
    await act();
  }

  click(target: Locator): Promise<void> {
    return this.do(() => target.click());
  }

  choose(target: Locator, option: string): Promise<void> {
    return this.do(() => target.selectOption(option));
  }

  /** @param key pressed after it; absent: none */
  type(target: Locator, text: string, key?: 'Enter'): Promise<void> {
    return this.do(async () => {
      await target.fill(text);
      if (key !== undefined) await target.press(key);
    });
  }
}

describe.skipIf(withoutBrowser !== '')('within its interactions', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let app: { appId: string; path: string; loggingToken: string };
  let today: number;
  const pages: Record<'desk' | 'phone', Page | null> = { desk: null, phone: null };
  const receiver = new Receiver();
  let hook: string;

  beforeAll(async () => {
    build();
    const config = { WEBHOOK_ALLOW_PRIVATE: 'true', ALLOW_SIGNUP: 'open' };
    [service, browser] = await Promise.all([startTestService({ config }), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner, 'Web shop');
    const { appId, path } = app;
    for (const field of DECLARED) await owner.post(`${path}/declared-fields`, { ...field, backfill: true });
    today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const add = async (name: string, events: readonly (readonly [at: number, payload: object])[]) => {
      const { typeId } = await createEventType(service.sql, { appId, name, maxTypes: 10 });
      const rows = events
        .filter(([at]) => at < Date.now())
        .map(([at, payload]) => ({ at: new Date(at).toISOString(), payload: JSON.stringify(payload) }));
      await addPastEvents(service, typeId, rows);
    };
    const days = Array.from({ length: DAYS }, (_, index) => today - index * DAY_MS);
    // Every ten minutes, but for an hour of yesterday.
    const orders = days.flatMap((day, index) => {
      return Array.from({ length: DAY_MS / STEP_MS }, (_, n) => day + n * STEP_MS)
        .filter((at) => index !== 1 || Math.floor((at - day) / HOUR_MS) !== SILENT_HOUR)
        .map((at, n): [number, object] => {
          const number = index * 200 + n;
          const amount = ((number * 37) % 9_900) / 100 + 1;
          const payload = {
            ...{ orderId: 1_000 + number, amount, country: COUNTRIES[(number * number) % 4] },
            ...{ plan: number % 3 === 0 ? 'pro' : 'free', user: { id: (number * 7) % 211 } },
          };
          return [at, payload];
        });
    });
    await add('order placed', orders);
    const yesterday = today - DAY_MS;
    await add(
      'page viewed',
      Array.from({ length: 300 }, (_, n) => [
        yesterday + n * 280_000,
        { path: PATHS[n % 3], latency: ((n * 37) % 90) + (n % 3 === 1 ? 400 : 5) },
      ]),
    );
    await add(
      'payment failed',
      Array.from({ length: 120 }, (_, n) => [
        yesterday + 14 * HOUR_MS + n * 29_000,
        { error: 'provider timeout', country: 'FR' },
      ]),
    );
    await until(
      async () => {
        const { fields } = (await owner.get(`${path}/declared-fields`)).data as {
          fields: { completeFrom: string | null; backfill: boolean }[];
        };
        return fields.every(({ completeFrom, backfill }) => completeFrom !== null && !backfill);
      },
      'the fields are counted',
      60_000,
    );
    const zone = { timezoneId: 'UTC' };
    const desk = { viewport: { width: 1440, height: 900 }, ...zone };
    const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, ...zone };
    pages.desk = (await visit(browser, service, owner, desk)).page;
    pages.phone = (await visit(browser, service, owner, phone)).page;
    hook = await receiver.listen();
  }, 180_000);
  afterAll(async () => {
    receiver.close();
    await browser?.close();
    await service?.stop();
  });

  const at = (where: keyof typeof pages): Page => {
    const page = pages[where];
    if (page === null) throw new Error('The page is not open.');
    return page;
  };
  const explore = async (page: Page, query = ''): Promise<void> => {
    await page.goto(`/apps/${app.appId}${query}`);
    await page.locator('.chart-card[aria-busy=false] .plot .over').waitFor();
  };
  const row = async <T extends object>(sql: string, { from, to }: Span): Promise<T> => {
    const [found] = await service.sql.unsafe<T[]>(
      `WITH own AS (SELECT events.*, type.name AS type
                      FROM events JOIN event_types AS type ON type.id = type_id JOIN apps ON apps.id = events.app_id
                     WHERE apps.public_id = $3 AND events.created_at >= $1::timestamptz AND events.created_at < $2::timestamptz) ${sql}`,
      [new Date(from ?? 0).toISOString(), new Date(to).toISOString(), app.appId],
    );
    if (found === undefined) throw new Error('No row was found.');
    return found;
  };
  const yesterday = (): Span => ({ from: today - DAY_MS, to: today });
  const line = (page: Page, name: string): Locator =>
    page
      .locator('.legend .line')
      .filter({ has: page.locator('.name', { hasText: new RegExp(`^${name}$`) }) });
  const numberIn = async (target: Locator): Promise<number> =>
    Number(/[\d,.]+/.exec(await target.innerText())?.[0].replaceAll(',', ''));
  const range = async (page: Page, hands: Hands, name: string): Promise<void> => {
    await hands.click(page.getByRole('button', { name: /^Time range/ }));
    const presets = page.getByRole('group', { name: 'Presets' });
    await hands.click(presets.getByRole('button', { name, exact: true }));
  };
  const dialog = (page: Page): Locator => page.getByRole('dialog');
  const button = (page: Page, name: string | RegExp): Locator => page.getByRole('button', { name });

  describe.each(['desk', 'phone'] as const)('on a %s', (where) => {
    test('an account, an app and its first event', async () => {
      const { page } = await visit(browser, service, null, {
        timezoneId: 'UTC',
        ...(where === 'phone' && { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }),
      });
      await page.goto('/sign-up');
      const hands = new Hands(8);
      await hands.type(page.getByLabel('Email'), `new-${where}@example.com`);
      await hands.type(page.getByLabel('Password'), PASSWORD, 'Enter');
      await hands.click(button(page, 'New app').first());
      await hands.type(dialog(page).getByLabel('Name'), 'First shop', 'Enter');
      await page.getByText('Waiting for the first event').waitFor();
      await hands.click(page.getByTitle('Copy the snippet').first());
      await promisify(execFile)('bash', ['-c', await clipboard(page)]);
      await page.locator('article .event-row').first().waitFor();
      await expect.poll(() => figure(page, 'In this range'), SOON).toBe(1);
      await page.context().close();
    });

    test('the 95th percentile of latency by path, yesterday', async () => {
      const page = at(where);
      await explore(page);
      const hands = new Hands(7);
      await range(page, hands, 'Yesterday');
      await hands.click(button(page, /^What the chart shows/));
      await hands.choose(page.getByLabel('Statistic'), 'p95');
      await hands.choose(page.getByLabel('of the field'), 'latency');
      await hands.click(button(page, 'Show the statistic'));
      await hands.choose(page.getByLabel('Break down by'), 'path');
      for (const path of PATHS) {
        const { exact } = await row<{ exact: number }>(
          `SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY (payload->>'latency')::float8) AS exact FROM own WHERE payload->>'path' = '${path}'`,
          yesterday(),
        );
        const value = line(page, path).locator('.value');
        await expect
          .poll(async () => Math.abs((await numberIn(value)) / exact - 1), SOON)
          .toBeLessThan(0.011);
      }
      // The slowest is first.
      expect(await page.locator('.legend .line .name').first().innerText()).toBe('/search');
    });

    test('revenue by country, this month and the month before', async () => {
      const page = at(where);
      await explore(page);
      const hands = new Hands(9);
      await range(page, hands, 'This month');
      await hands.click(button(page, /^What the chart shows/));
      await hands.choose(page.getByLabel('Statistic'), 'sum');
      await hands.choose(page.getByLabel('of the field'), 'amount');
      await hands.click(button(page, 'Show the statistic'));
      await hands.choose(page.getByLabel('Break down by'), 'country');
      await hands.click(button(page, /^Chart options/));
      await hands.choose(page.getByLabel('Compare with'), 'month');
      const month = { kind: 'calendar', period: 'month' } as const;
      const span = resolveRange(month, Date.now(), 'UTC');
      const before = comparedSpan('month', month, span, Date.now(), 'UTC');
      if (before === null) throw new Error('A month has one before.');
      const sum = async (interval: Span): Promise<number> =>
        (
          await row<{ sum: number }>(
            `SELECT coalesce(sum((payload->>'amount')::numeric), 0)::float8 AS sum FROM own WHERE payload->>'country' = 'DE'`,
            interval,
          )
        ).sum;
      const shown = line(page, 'DE');
      await expect.poll(() => numberIn(shown.locator('.value')), SOON).toBeCloseTo(await sum(span), 2);
      expect(await shown.locator('.value').innerText()).toMatch(/^[\d,]+\.\d\d\s€$/);
      const title = await shown.locator('.change').getAttribute('title');
      const [, told = ''] = /^([\d,.]+)\s€ in the month before/.exec(title ?? '') ?? [];
      expect(Number(told.replaceAll(',', '')), title ?? '').toBeCloseTo(await sum(before), 2);
    });

    test('unique users of a plan by week', async () => {
      const page = at(where);
      await explore(page);
      const hands = new Hands(8);
      await range(page, hands, '30 d');
      await hands.type(page.getByRole('combobox', { name: 'Filter', exact: true }), 'plan:pro', 'Enter');
      await hands.click(button(page, /^What the chart shows/));
      await hands.choose(page.getByLabel('Statistic'), 'distinct');
      await hands.click(button(page, 'Show the statistic'));
      await hands.choose(page.getByLabel('Width of a bar'), '7d');
      const address = new URL(page.url()).searchParams;
      expect([address.get('of'), address.get('stat')]).toEqual(['user.id', 'distinct']);
      await expect.poll(() => page.locator('.main-figure dt').innerText(), SOON).toContain('user.id');
      const span = resolveRange({ kind: 'last', amount: 30, unit: 'd' }, Date.now(), 'UTC');
      const { users } = await row<{ users: number }>(
        `SELECT count(DISTINCT payload#>>'{user,id}')::integer AS users FROM own WHERE payload->>'plan' = 'pro'`,
        span,
      );
      await expect.poll(() => numberIn(page.locator('.main-figure dd')), SOON).toBe(users);
      await page.keyboard.press('Escape');
      const week = today - ((new Date(today).getUTCDay() + 6) % 7) * DAY_MS - 7 * DAY_MS;
      const { users: ofWeek } = await row<{ users: number }>(
        `SELECT count(DISTINCT payload#>>'{user,id}')::integer AS users FROM own WHERE payload->>'plan' = 'pro'`,
        { from: week, to: week + 7 * DAY_MS },
      );
      const spoken = page.getByRole('application').locator('[aria-live]');
      const ofLastWeek = async (): Promise<string | null> => {
        await page.getByRole('application').focus();
        await page.keyboard.press('End');
        await page.keyboard.press('ArrowLeft');
        return await spoken.textContent();
      };
      await expect.poll(ofLastWeek, SOON).toMatch(new RegExp(`user\\.id ${ofWeek}\\b`));
    });

    test('what changed in an hour', async () => {
      const page = at(where);
      await explore(page, '?range=yesterday');
      const hands = new Hands(3);
      const box = await page.locator('.plot .over').boundingBox();
      if (box === null) throw new Error('The chart is not shown.');
      const x = (hour: number): number => box.x + (hour / 24) * box.width;
      const y = box.y + box.height / 2;
      await hands.do(async () => {
        if (where === 'phone') return await page.touchscreen.tap(x(14.5), y);
        await page.mouse.move(x(14.1), y);
        await page.mouse.down();
        await page.mouse.move(x(14.9), y, { steps: 5 });
        await page.mouse.up();
      });
      await hands.click(button(page, 'What changed?'));
      const found = dialog(page).getByRole('button', { name: 'error: provider timeout' });
      await found.waitFor();
      await hands.click(found);
      await expect.poll(() => figure(page, 'In this range'), SOON).toBe(120);
    });
  });

  test('an order by its number, its neighbors, and a copy', async () => {
    const page = at('desk');
    const [order] = await service.sql<{ id: string; orderId: string }[]>`
      SELECT id, payload->>'orderId' AS "orderId" FROM events WHERE payload->>'orderId' = '2001'`;
    await explore(page);
    const hands = new Hands(6);
    await hands.type(
      page.getByRole('combobox', { name: 'Filter', exact: true }),
      `orderId:${order?.orderId}`,
      'Enter',
    );
    await hands.click(button(page, 'Search all time'));
    const event = page.locator('article .event-row');
    await expect.poll(() => event.count(), SOON).toBe(1);
    await expect.poll(() => page.locator('.main-figure').innerText(), SOON).toMatch(/\n1$/);
    await hands.click(event);
    await hands.click(page.getByTitle('Copy the payload as it was sent'));
    expect(JSON.parse(await clipboard(page))).toMatchObject({ orderId: 2_001 });
    await hands.click(page.getByRole('link', { name: 'Show surrounding events' }));
    const marked = page.locator('article[data-selected=true]');
    await marked.waitFor();
    expect(await marked.getAttribute('data-id')).toBe(order?.id);
    expect(await page.locator('article').count()).toBeGreaterThan(1);
  });

  test('an alert for orders that stop, with a webhook and a trial', async () => {
    const page = at('desk');
    await explore(page);
    const hands = new Hands(10);
    await hands.click(page.getByRole('link', { name: 'Alerts & webhooks' }));
    await hands.click(button(page, 'New alert…'));
    await hands.type(dialog(page).getByLabel('Name'), 'Orders stopped');
    await hands.type(dialog(page).getByLabel('of events of the type'), 'order placed');
    await hands.choose(dialog(page).getByLabel('is', { exact: true }), 'absent');
    await hands.type(dialog(page).getByLabel('within'), '15m');
    await hands.click(dialog(page).getByRole('button', { name: 'New webhook…' }));
    await hands.type(dialog(page).getByLabel('Address'), hook, 'Enter');
    await hands.click(button(page, 'I have copied it'));
    // The trial has seen the hour without orders, and says so by the clock of the page.
    const rule = JSON.stringify({ absent: true, type: 'order placed', window: '15m' });
    const query = new URLSearchParams({ rule, timezone: 'UTC' });
    // As the route declares it.
    const trial = (await owner.get(`${app.path}/alerts/trial?${query}`)).data as unknown as AlertTrial;
    const last = new Date(trial.firings.at(-1)?.from ?? 0);
    const time = last.toLocaleString('en-GB', {
      ...{
        day: 'numeric',
        month: 'short',
        year: 'numeric',
        hour: '2-digit',
        minute: '2-digit',
        timeZone: 'UTC',
      },
    });
    await dialog(page).getByText(`${trial.total} time in the last 30 days, last on ${time}.`).waitFor();
    await hands.click(dialog(page).getByRole('button', { name: 'Add', exact: true }));
    const alerts = page.getByRole('table', { name: 'Alerts' });
    await alerts
      .getByRole('row', { name: /^Orders stopped/ })
      .getByText(hook)
      .waitFor();
  });

  test('a board of six views, shared and in a frame', async () => {
    const page = at('desk');
    const views = ['', 'by=country', 'mode=running', 'range=7d', 'of=amount&stat=sum', 'of=amount&stat=avg'];
    for (const [n, query] of views.entries()) {
      await explore(page, `?${query}`);
      const hands = new Hands(3);
      await hands.click(button(page, /^Saved views/));
      await hands.click(button(page, 'Save this view…'));
      await hands.type(dialog(page).getByLabel('Name'), `View ${n}`, 'Enter');
      await page.getByText('The view was saved').waitFor();
    }
    const making = new Hands(9);
    await making.click(page.getByRole('link', { name: 'Boards' }));
    await making.click(button(page, 'New board'));
    for (const n of views.keys()) await making.click(dialog(page).getByLabel(`View ${n}`));
    await making.type(dialog(page).getByLabel('Name'), 'Morning', 'Enter');
    await expect.poll(() => page.locator('.board-chart canvas').count(), SOON).toBe(6);
    // Its lines are of all time.
    const soFar = page.locator('.board-chart', { hasText: 'View 2' }).locator('.board-figure');
    expect(await soFar.innerText()).toContain('in this range');
    const sharing = new Hands(6);
    await sharing.click(button(page, 'Share…'));
    await sharing.click(button(page, 'New share…'));
    await sharing.type(dialog(page).getByLabel('Sites that may embed it'), 'https://intranet.example');
    await sharing.click(button(page, 'Make the link'));
    await sharing.click(button(page, 'Copy the link'));
    const link = await clipboard(page);
    const stranger = await visit(browser, service, null, { timezoneId: 'UTC' });
    for (const url of [link, `${link}?embed=true`]) {
      const answer = await stranger.page.goto(url);
      await expect.poll(() => stranger.page.locator('.board-chart canvas').count(), SOON).toBe(6);
      const policy = (await answer?.headerValue('content-security-policy')) ?? '';
      if (url !== link) expect(policy).toContain('frame-ancestors https://intranet.example');
    }
    await stranger.page.context().close();
  });

  test('an export of what is on the screen', async () => {
    const page = at('desk');
    await explore(page, '?range=yesterday');
    const hands = new Hands(2);
    await hands.click(button(page, /^Export the events/));
    const downloading = page.waitForEvent('download');
    await hands.click(page.getByRole('link', { name: 'As CSV' }));
    const csv = String(await buffer(await (await downloading).createReadStream()));
    const { count } = await row<{ count: number }>('SELECT count(*)::integer AS count FROM own', yesterday());
    expect(csv.trim().split('\r\n').length - 1).toBe(count);
    expect(await figure(page, 'In this range')).toBe(count);
  });

  test('a viewer, a rotation, who sends, and what was refused', async () => {
    const page = at('desk');
    await owner.post(`${app.path}/producers`, { name: 'checkout' });
    const send = (loggingToken: string, typeName: string) =>
      service.post({ loggingToken, typeId: undefined, typeName });
    await explore(page);
    const inviting = new Hands(3);
    await inviting.click(page.getByRole('link', { name: 'Settings' }));
    await inviting.type(page.getByLabel('Add a member by email'), 'viewer@example.com', 'Enter');
    await inviting.click(dialog(page).locator('.primary'));
    await page.getByText(/invited as viewer until/).waitFor();

    const rotating = new Hands(3);
    const producers = page.getByRole('table', { name: 'Producers' });
    await rotating.click(producers.getByRole('button', { name: 'Rotate the token of checkout' }));
    await rotating.click(dialog(page).getByRole('button', { name: 'Rotate', exact: true }));
    const token = await page
      .getByRole('dialog', { name: 'Logging token of checkout' })
      .locator('code')
      .first()
      .innerText();
    await rotating.click(dialog(page).locator('.primary'));
    expect((await send(token, 'order placed')).status).toBe(201);
    expect((await send(token, '')).status).toBe(400);

    await explore(page);
    const asking = new Hands(2);
    await asking.click(page.getByRole('link', { name: 'Settings' }));
    await expect
      .poll(async () => {
        await page.reload();
        return producers
          .getByRole('row', { name: /^checkout/ })
          .locator('[data-label="Last used"]')
          .innerText();
      }, SOON)
      .not.toBe('never');

    await explore(page);
    const looking = new Hands(1);
    await looking.click(page.getByRole('link', { name: /^Usage/ }));
    const refused = page.getByRole('table', { name: 'Last refused requests' });
    await refused.getByRole('row', { name: /checkout.*typeName/ }).waitFor();
    await page.getByText('1 request with this app’s logging token').waitFor();
  });

  test('how long a type is kept, and an erasure', async () => {
    const page = at('desk');
    await explore(page);
    const keeping = new Hands(5);
    await keeping.click(page.getByRole('link', { name: 'Settings' }));
    await keeping.click(button(page, 'Change retention…'));
    await keeping.type(dialog(page).getByLabel('Type'), 'order placed');
    await keeping.type(dialog(page).getByLabel('Days'), '60', 'Enter');
    const old = { from: 0, to: today - 60 * DAY_MS };
    const { count } = await row<{ count: number }>(
      `SELECT count(*)::integer AS count FROM own WHERE type = 'order placed'`,
      old,
    );
    await dialog(page)
      .getByText(`Events of order placed would be kept for 60 days: ${count} events would go.`)
      .waitFor();
    await keeping.click(dialog(page).getByRole('button', { name: 'Change retention' }));
    await page
      .getByRole('table', { name: 'Retention by type' })
      .getByRole('row', { name: /^order placed 60/ })
      .waitFor();

    const erasing = new Hands(5);
    await erasing.click(button(page, 'Erase events…'));
    await erasing.type(dialog(page).getByLabel('Conditions'), 'user.id:42');
    await erasing.click(button(page, 'Preview'));
    const kept = { from: today - 60 * DAY_MS, to: Date.now() };
    const { own, all } = await row<{ own: number; all: number }>(
      `SELECT count(*) FILTER (WHERE payload#>>'{user,id}' = '42')::integer AS own, count(*)::integer AS all FROM own`,
      kept,
    );
    const match = dialog(page).getByText(/ events of .* match/);
    expect(await match.innerText()).toBe(`${own} events of ${all.toLocaleString('en-GB')} match.`);
    await erasing.type(dialog(page).getByLabel('Password'), PASSWORD, 'Enter');
    await page
      .getByRole('table', { name: 'Erasure' })
      .getByRole('row', { name: new RegExp(` ${own} events deleted Copy`) })
      .waitFor();
  });
});
