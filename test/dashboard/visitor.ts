/** Somebody at the dashboard, signed in or not. */
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { openPage, type Watched } from '../support/browser.ts';
import type { Person } from '../support/person.ts';
import type { TestService } from '../support/service.ts';

/** Opens a page that has a person's session, or none. */
export async function visit(
  browser: Browser,
  { url }: Pick<TestService, 'url'>,
  person: Person | null,
  options: BrowserContextOptions = {},
): Promise<Watched> {
  const watched = await openPage(browser, { baseURL: url, ...options });
  if (person !== null) {
    const cookies = person.cookie.split('; ').map((pair) => pair.split('=') as [string, string]); // As Person joins them.
    await watched.page.context().addCookies(cookies.map(([name, value]) => ({ name, value, url })));
  }
  return watched;
}

/** Signs in through the form. */
export async function signIn(page: Page, email: string, password: string): Promise<void> {
  await page.getByLabel('Email').fill(email);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

/** A number that the page shows after a term, such as "In this range". */
export async function figure(page: Page, term: string): Promise<number> {
  const figures = page.locator('dl.figures-row > div', { hasText: term });
  const text = await figures.locator('dd').textContent();
  return Number((/^[\d,]+/.exec(text ?? '')?.[0] ?? 'NaN').replaceAll(',', ''));
}

/** What was copied last. */
export const clipboard = (page: Page): Promise<string> => page.evaluate(() => navigator.clipboard.readText());
