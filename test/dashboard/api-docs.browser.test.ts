/** The page at /docs: what it shows, and that the strict CSP and an unplugged network have nothing to refuse. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { API } from '../../src/service/api-description.ts';
import { launchBrowser, openPage, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { startTestService, type TestService } from '../support/service.ts';

describe.skipIf(withoutBrowser !== '')('the page of the API', () => {
  let service: TestService;
  let browser: Browser;
  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  test('shows every operation and its schemas, from this service alone', async () => {
    const { page, complaints } = await openPage(browser);
    const elsewhere: string[] = [];
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.protocol !== 'data:' && url.origin !== service.url) elsewhere.push(request.url());
    });
    const response = await page.goto(`${service.url}/docs`);
    expect(response?.headers()['content-security-policy']).toContain("script-src 'self'; style-src 'self';");
    await page.locator('.opblock').first().waitFor();
    const paths = await page.locator('.opblock-summary-path').allTextContents();
    // It puts invisible spaces where a path may break.
    expect(paths.map((path) => path.replaceAll('\u200b', '')).sort()).toEqual(
      API.map(({ path }) => path.replaceAll(/:(\w+)/g, '{$1}')).sort(),
    );
    await page
      .locator('.opblock', { hasText: 'Read events page by page.' })
      .locator('button')
      .first()
      .click();
    await page.getByText('nextCursor', { exact: false }).first().waitFor();
    expect(await page.getByText('Try it out').count()).toBe(0);
    expect(elsewhere).toEqual([]);
    expect(complaints).toEqual([]);
  });

  test('loads nothing of the dashboard, and the dashboard nothing of it', async () => {
    const page = await service.request({ path: '/docs' });
    expect(page.body).not.toContain('/assets/');
    expect(page.body).not.toMatch(/<style|style=|\son\w+=|<script(?![^>]*src=)/);
    expect((await service.request({ path: '/' })).body).not.toContain('/docs/');
  });
});
