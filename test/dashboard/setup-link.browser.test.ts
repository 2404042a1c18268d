/** The one-time link that the start prints, in a real browser. */
import { expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { PASSWORD } from '../support/person.ts';
import { startTestService } from '../support/service.ts';
import { visit } from './visitor.ts';

test.skipIf(withoutBrowser !== '')('the printed link makes the first account, once', async () => {
  build();
  const [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
  try {
    // The first account would own the app that nobody owns.
    await service.sql`DELETE FROM apps`;
    const link = service.setupPath ?? '';
    expect(link).toMatch(/^\/setup\/[\w-]+$/);
    const { page } = await visit(browser, service, null);
    await page.goto(link);
    await page.getByLabel('Email').fill('first@example.com');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Create the account' }).click();
    await page.getByRole('heading', { name: 'Create your first app' }).waitFor();

    const second = await visit(browser, service, null);
    await second.page.goto(link);
    await second.page.getByRole('heading', { name: 'Create your first app' }).waitFor({ state: 'detached' });
    expect(await service.sql`SELECT email FROM users`).toEqual([{ email: 'first@example.com' }]);
    const answer = await service.request({
      method: 'POST',
      path: '/api/users',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        email: 'b@example.com',
        password: PASSWORD,
        setupToken: link.split('/').at(-1),
      }),
    });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(await service.sql`SELECT FROM users`).toHaveLength(1);
  } finally {
    await browser.close();
    await service.stop();
  }
});
