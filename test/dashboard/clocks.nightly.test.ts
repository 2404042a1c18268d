/** Weeks in which clocks change, as the chart's table shows them: one event was stored in every hour. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { figure, visit } from './visitor.ts';

const HOUR_MS = 3_600_000;
const PERIODS = [
  ['2026-02-27T00:00Z', '2026-03-31T00:00Z'],
  ['2026-10-09T00:00Z', '2026-11-04T00:00Z'],
] as const;

interface Week {
  readonly zone: string;
  /** From Sunday's midnight to the next one's, in UTC. */
  readonly from: string;
  readonly to: string;
  readonly hours: number;
  readonly sunday: string;
  /** That day's hours around the change, as they are shown: the hour of the change has both offsets. */
  readonly around: readonly string[];
}

const WEEKS: readonly Week[] = [
  {
    zone: 'Europe/Berlin',
    from: '2026-10-18T22:00:00Z',
    to: '2026-10-25T23:00:00Z',
    hours: 169,
    sunday: 'Sun, 25 Oct 2026',
    around: [
      '01:00 – 02:00 GMT+2',
      '02:00 GMT+2 – 02:00 GMT+1',
      '02:00 – 03:00 GMT+1',
      '03:00 – 04:00 GMT+1',
    ],
  },
  {
    zone: 'America/New_York',
    from: '2026-10-26T04:00:00Z',
    to: '2026-11-02T05:00:00Z',
    hours: 169,
    sunday: 'Sun, 1 Nov 2026',
    around: [
      '00:00 – 01:00 GMT-4',
      '01:00 GMT-4 – 01:00 GMT-5',
      '01:00 – 02:00 GMT-5',
      '02:00 – 03:00 GMT-5',
    ],
  },
  {
    zone: 'Europe/Berlin',
    from: '2026-03-22T23:00:00Z',
    to: '2026-03-29T22:00:00Z',
    hours: 167,
    sunday: 'Sun, 29 Mar 2026',
    around: ['00:00 – 01:00 GMT+1', '01:00 GMT+1 – 03:00 GMT+2', '03:00 – 04:00 GMT+2'],
  },
  {
    zone: 'America/New_York',
    from: '2026-03-09T04:00:00Z',
    to: '2026-03-16T04:00:00Z',
    hours: 168,
    sunday: 'Sun, 15 Mar 2026',
    around: ['01:00 – 02:00 GMT-4', '02:00 – 03:00 GMT-4'],
  },
  {
    // Clocks change at midnight: a day that begins at 01:00, and one that ends with 23:00 twice.
    zone: 'Asia/Beirut',
    from: '2026-03-22T22:00:00Z',
    to: '2026-03-29T21:00:00Z',
    hours: 167,
    sunday: 'Sun, 29 Mar 2026',
    around: ['01:00 – 02:00 GMT+3', '02:00 – 03:00 GMT+3'],
  },
  {
    zone: 'Asia/Beirut',
    from: '2026-10-18T21:00:00Z',
    to: '2026-10-25T22:00:00Z',
    hours: 169,
    sunday: 'Sat, 24 Oct 2026',
    around: ['22:00 – 23:00 GMT+3', '23:00 GMT+3 – 23:00 GMT+2', '23:00 – 00:00 GMT+2'],
  },
  {
    zone: 'America/New_York',
    from: '2026-03-07T05:00:00Z',
    to: '2026-03-14T04:00:00Z',
    hours: 167,
    sunday: 'Sun, 8 Mar 2026',
    around: ['00:00 – 01:00 GMT-5', '01:00 GMT-5 – 03:00 GMT-4', '03:00 – 04:00 GMT-4'],
  },
];

describe.skipIf(withoutBrowser !== '')('when clocks change', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let page: Page;
  let appId: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    const app = await newOwnApp(owner);
    ({ appId } = app);
    const lines = PERIODS.flatMap(([from, to]) => {
      const hours = (Date.parse(to) - Date.parse(from)) / HOUR_MS;
      const at = (hour: number): string => new Date(Date.parse(from) + hour * HOUR_MS).toISOString();
      return Array.from({ length: hours }, (_, hour) =>
        JSON.stringify({ typeName: 'tick', createdAt: at(hour), payload: {} }),
      );
    });
    const stored = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { Authorization: `Bearer ${app.loggingToken}`, 'Content-Type': 'application/x-ndjson' },
      body: lines.join('\n'),
    });
    expect(stored.status).toBe(200);
    page = (await visit(browser, service, owner, { timezoneId: 'Asia/Tokyo' })).page;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /** The table's rows, oldest first: when, and how many. */
  async function rows(): Promise<[when: string, count: number][]> {
    const table = page.locator('.chart-table');
    await table.waitFor();
    for (let more = table.getByRole('button', { name: /^Show/ }); (await more.count()) > 0; )
      await more.click();
    const texts = await table
      .locator('tbody tr')
      .evaluateAll((all) =>
        all.map((row) => [...row.children].slice(0, 2).map((cell) => cell.textContent ?? '')),
      );
    return texts.reverse().map(([when = '', count = '']) => [when, Number(count.replaceAll(',', ''))]);
  }

  test.each(WEEKS)('$zone, week to $sunday: every hour is there once', async (week) => {
    const { zone, from, to, hours, sunday, around } = week;
    await page.goto(`/apps/${appId}?from=${from}&to=${to}&tz=${zone}&buckets=250&table=1`);
    const table = await rows();
    expect(table).toHaveLength(hours);
    expect(table.every(([, count]) => count === 1)).toBe(true);
    const ofSunday = table.map(([when]) => when).filter((when) => when.startsWith(sunday));
    const first = ofSunday.findIndex((when) => when.endsWith(around[0] ?? ''));
    expect(ofSunday.slice(first, first + around.length)).toEqual(around.map((hour) => `${sunday}, ${hour}`));
    expect(await figure(page, 'In this range')).toBe(hours);
    // The week before, from midnight to midnight on the clock of the zone, has its own hours.
    const [before] = await service.sql<{ count: number }[]>`
      SELECT count(*)::integer AS count FROM events
       WHERE created_at >= (${from}::timestamptz AT TIME ZONE ${zone} - interval '7 days') AT TIME ZONE ${zone}
         AND created_at < ${from}::timestamptz`;
    expect(before?.count).toBeGreaterThan(166);
    const compared = page.locator('.main-figure small');
    expect(await compared.getAttribute('title')).toBe(`${before?.count} before`);
    expect(await page.locator('.legend .change').getAttribute('title')).toContain(`${before?.count} in the `);
    expect(
      Number(
        (await owner.get(`/api/apps/${appId}/series?from=${from}&to=${to}`)).text.match(/"total":(\d+)/)?.[1],
      ),
    ).toBe(hours);
  });

  test('a day of 25 hours is one bar, and the period before a week is a week', async () => {
    await page.goto(
      `/apps/${appId}?from=2026-08-31T22:00:00Z&to=2026-11-29T23:00:00Z&tz=Europe/Berlin&buckets=100&table=1`,
    );
    const days = new Map(await rows());
    expect(days.get('Sun, 25 Oct 2026')).toBe(25);
    expect(days.get('Sat, 24 Oct 2026')).toBe(24);
    await page.getByRole('button', { name: /^Chart options/ }).click();
    await page.getByLabel('Time zone').selectOption('America/New_York');
    await expect.poll(async () => new Map(await rows()).get('Sun, 1 Nov 2026')).toBe(25);

    await page.goto(`/apps/${appId}?from=2026-10-25T23:00:00Z&to=2026-11-01T23:00:00Z&tz=Europe/Berlin`);
    await page.getByRole('button', { name: 'Previous period' }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('from')).toBe('2026-10-18T22:00:00Z');
    await expect.poll(() => figure(page, 'In this range')).toBe(169);
    await page.getByRole('button', { name: 'Next period' }).click();
    await expect.poll(() => figure(page, 'In this range')).toBe(168);
  });
});
