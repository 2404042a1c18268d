/** Shares as one uses them: made in a dialog, seen by a stranger without another request, embedded, and revoked. */
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { visit } from './visitor.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

describe.skipIf(withoutBrowser !== '')('the pages of shares', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  let page: Page;
  let complaints: string[];
  let app: { appId: string; path: string; loggingToken: string };

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    app = await newOwnApp(owner);
    for (const country of ['DE', 'DE', 'FR']) {
      const event = { loggingToken: app.loggingToken, typeId: undefined, typeName: 'order' };
      expect((await service.post({ ...event, payload: { country } })).status).toBe(201);
    }
    const viewIds: unknown[] = [];
    for (const name of ['All', 'Again'])
      viewIds.push((await owner.post(`${app.path}/views`, { name, search: 'range=24h' })).data.viewId);
    expect((await owner.post(`${app.path}/boards`, { name: 'Morning', viewIds })).status).toBe(201);
    ({ page, complaints } = await visit(browser, service, owner));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  /** A browser without a session. @returns its page, and what that asks for */
  const stranger = async (): Promise<{ seen: Page; asked: string[]; complaints: string[] }> => {
    const context = await browser.newContext({ baseURL: service.url });
    const seen = await context.newPage();
    const asked: string[] = [];
    const problems: string[] = [];
    seen.on('request', (request) => asked.push(new URL(request.url()).pathname));
    seen.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    return { seen, asked, complaints: problems };
  };
  /** Fills the dialog of a new share, which is open. @returns the link */
  const made = async (fields: Readonly<Record<string, string>>): Promise<string> => {
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'New share…' }).click();
    for (const [label, value] of Object.entries(fields)) {
      const field = dialog.getByLabel(label);
      if ((await field.evaluate((element) => element.tagName)) === 'SELECT') await field.selectOption(value);
      else await field.fill(value);
    }
    await dialog.getByRole('button', { name: 'Make the link' }).click();
    return (await dialog.locator('.copyable code').textContent()) ?? '';
  };
  const violations = async (of: Page): Promise<string[]> => {
    await of.evaluate(AXE);
    const found = (await of.evaluate('axe.run()')) as { violations: { id: string }[] }; // Its documented result.
    return found.violations.map(({ id }) => id);
  };

  test('a board is shared by a link, which shows it to anyone, with one request and no ways on', async () => {
    await page.goto(`/apps/${app.appId}/boards?tz=UTC`);
    await page.getByRole('button', { name: 'Share…' }).click();
    const link = await made({ Ends: '2099-01-01T00:00' });
    expect(await violations(page)).toEqual([]);
    const { seen, asked, complaints: problems } = await stranger();
    await seen.goto(link);
    await seen.getByRole('heading', { name: 'Morning' }).waitFor();
    await until(
      async () => (await seen.locator('.board-figure b').allTextContents()).join() === '3,3',
      'the charts show their numbers',
    );
    expect(await seen.getByRole('heading', { level: 2 }).allTextContents()).toEqual(['All', 'Again']);
    expect(asked.filter((path) => path.startsWith('/api/'))).toEqual([
      new URL(link).pathname.replace('/', '/api/'),
    ]);
    expect(await seen.locator('a[href], nav, header').count()).toBe(1); // It leads to the content.
    expect(await violations(seen)).toEqual([]);
    expect(problems).toEqual([]);
    await seen.context().close();
  });

  test('a view is shared with its events and a password, until it is revoked', async () => {
    await page.goto(`/apps/${app.appId}?range=24h&tz=UTC`);
    await page.getByRole('button', { name: /^Saved views/ }).click();
    await page.getByRole('button', { name: 'Share the view All' }).click();
    const link = await made({ Shows: 'payloads', Password: 'not guessed' });
    await page.getByText('Anyone with this link and the password sees it').waitFor();
    // An address is broken at none of its letters.
    const [text = '', ...lines] = await page
      .getByRole('dialog')
      .locator('tbody th')
      .evaluate((cell) => {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        let node = texts.nextNode();
        while (node !== null && !node.nodeValue?.includes('@')) node = texts.nextNode();
        if (node === null) return [];
        const value = node.nodeValue ?? '';
        const range = document.createRange();
        range.setStart(node, value.indexOf('owner@'));
        range.setEnd(node, value.length);
        return [value, ...[...range.getClientRects()].map(({ top }) => String(top))];
      });
    expect(text).toContain('owner@example.com');
    expect(new Set(lines).size).toBe(1);
    const { seen } = await stranger();
    await seen.goto(link);
    await seen.getByLabel('Password').fill('guessed it');
    await seen.getByRole('button', { name: 'Show' }).click();
    await seen.getByText('The password of the link is wrong').waitFor();
    expect(await violations(seen)).toEqual([]);
    await seen.getByLabel('Password').fill('not guessed');
    await seen.getByRole('button', { name: 'Show' }).click();
    await seen.getByText('{"country":"FR"}').waitFor();
    // The tab keeps the key; another one asks, unless the screen was to keep it.
    await seen.reload();
    await seen.getByText('{"country":"FR"}').waitFor();
    const other = await seen.context().newPage();
    await other.goto(link);
    await other.getByLabel('Password').fill('not guessed');
    await other.getByLabel('Do not ask again on this screen').check();
    await other.getByRole('button', { name: 'Show' }).click();
    await other.getByText('{"country":"FR"}').waitFor();
    await other.close();
    const restarted = await seen.context().newPage();
    await restarted.goto(link);
    await restarted.getByText('{"country":"FR"}').waitFor();
    await restarted.close();
    expect(await seen.getByRole('row').count()).toBe(4);
    expect(await violations(seen)).toEqual([]);

    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('button', { name: 'Revoke the share' }).click();
    await page.getByText('None yet.').waitFor();
    await seen.reload();
    await seen.getByText('Share not found').waitFor();
    await seen.context().close();
    expect(complaints).toEqual([]);
  });

  test('a share is shown in the frames of the sites that it names', async () => {
    const site = await framing();
    const other = await framing();
    const { views } = (await owner.get(`${app.path}/views`)).data as { views: { viewId: string }[] };
    const { data } = await owner.post(`${app.path}/shares`, {
      ...{ viewId: views[0]?.viewId, range: '7d', timezone: 'UTC', origins: [site.origin] },
    });
    const link = service.url + new URL(String(data.url)).pathname;
    const { seen } = await stranger();
    const shownIn = async (origin: string, query: string): Promise<boolean> => {
      await seen.goto(`${origin}/?${encodeURIComponent(`${link}${query}`)}`);
      const frame = seen.frames()[1];
      // What a browser refuses is a page of its own, of an origin that nobody reads.
      return (
        (await frame?.evaluate('document.title !== ""').catch(() => false)) === true &&
        frame?.url() === `${link}${query}`
      );
    };
    expect(await shownIn(site.origin, '?embed=true')).toBe(true);
    await seen.frames()[1]?.getByRole('heading', { name: 'Again' }).waitFor();
    expect(await shownIn(site.origin, '')).toBe(false);
    expect(await shownIn(other.origin, '?embed=true')).toBe(false);
    await seen.context().close();
    for (const { server } of [site, other]) server.close();
  });

  /** A site of somebody, whose page has a frame with the address in its query. */
  async function framing(): Promise<{ origin: string; server: Server }> {
    const server = createServer((request, response) => {
      const src = decodeURIComponent(request.url?.split('?')[1] ?? '');
      response.setHeader('Content-Type', 'text/html');
      response.end(`<!doctype html><iframe src="${src}" title="charts" width="800" height="500"></iframe>`);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
  }
});
