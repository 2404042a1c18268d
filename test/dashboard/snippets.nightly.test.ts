/** The programs and configurations of an app, as they are copied from the dashboard on a phone, and what those do that can run here. */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import axe from 'axe-core';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build, LAUNCHER } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { SNIPPETS } from '../support/snippets.ts';
import { clipboard, visit } from './visitor.ts';

const REPOSITORY = dirname(LAUNCHER);
const run = promisify(execFile);
const INTERPRETERS: Readonly<Record<string, readonly string[]>> = {
  sh: ['bash', '-c'],
  js: [process.execPath, '--input-type=module', '-e'],
  python: ['python3', '-c'],
};
/** What the programs for Node import, beside the project's own client. */
const PACKAGES = [
  ...['@opentelemetry', '@segment', '@elastic', 'pino', 'pino-opentelemetry-transport'],
  ...['winston', 'winston-transport', 'bunyan', 'log4js'],
];
/** How many events each program stores, and what it prints where it prints something. */
const STORES: Readonly<Record<string, readonly [events: number, output: RegExp]>> = {
  curl: [1, /"success":true/],
  Node: [1, /^true\n$/],
  Python: [1, /"success":true/],
  Batch: [2, /"success":true,"stored":2/],
  Records: [2, /"success":true,"stored":2/],
  CloudEvents: [1, /"success":true,"stored":1/],
  OpenTelemetry: [1, /^$/],
  pino: [1, /^$/],
  winston: [1, /^$/],
  bunyan: [1, /^$/],
  log4js: [1, /^$/],
  'Python logging': [1, /^$/],
  Segment: [1, /^$/],
  Elasticsearch: [1, /^true\n$/],
  Annotation: [0, /"annotationId":"ann_/],
};
const TARGET = 44;

describe.skipIf(withoutBrowser !== '')('on a phone', () => {
  let service: TestService;
  let browser: Browser;
  let page: Page;
  let owner: Person;
  let path: string;
  let appId: string;
  let loggingToken: string;
  let folder: string;

  beforeAll(async () => {
    build();
    [service, browser] = await Promise.all([startTestService(), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
    ({ path, appId, loggingToken } = await newOwnApp(owner));
    const options = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
    ({ page } = await visit(browser, service, owner, options));
    folder = await mkdtemp(join(tmpdir(), 'tidemark-snippets-'));
    const modules = join(folder, 'node_modules');
    await cp(join(REPOSITORY, 'client', 'package.json'), join(modules, 'tidemark-client', 'package.json'));
    const tsc = join(REPOSITORY, 'node_modules', '.bin', 'tsc');
    const compiled = join(modules, 'tidemark-client', 'dist');
    await run(tsc, ['-p', join(REPOSITORY, 'client'), '--outDir', compiled]);
    for (const name of PACKAGES) await symlink(join(REPOSITORY, 'node_modules', name), join(modules, name));
    const python = 'tidemark_client';
    await symlink(join(REPOSITORY, 'client', 'python', python), join(folder, python));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
  });

  /** Goes through the tabs with the arrow keys. @returns what is copied of each */
  const copied = async (snippets: Locator, groups: readonly string[]): Promise<Map<string, string>> => {
    const expected = SNIPPETS.filter(({ group }) => groups.includes(group)).map(({ name }) => name);
    const tabs = snippets.getByRole('radio');
    await tabs.first().waitFor();
    expect(await snippets.locator('label').allInnerTexts()).toEqual(expected);
    await tabs.first().focus();
    const texts = new Map<string, string>();
    for (const name of expected) {
      await snippets.getByRole('radio', { name, exact: true, checked: true }).waitFor();
      const block = snippets.locator('pre');
      expect(await block.getAttribute('aria-label')).toBe(name);
      await snippets.getByRole('button', { name: 'Copy' }).click();
      const text = await clipboard(page);
      // A token that is masked is copied all the same.
      expect((await block.innerText()).trim()).toBe(text.replace(loggingToken, 'tdl_••••••••'));
      texts.set(name, text);
      await snippets.getByRole('radio', { name, exact: true }).focus();
      await page.keyboard.press('ArrowRight');
    }
    return texts;
  };

  const runProgram = async (name: string, text: string): Promise<string> => {
    const language = SNIPPETS.find((one) => one.name === name)?.language ?? '';
    const [command = '', ...args] = INTERPRETERS[language] ?? [];
    return (await run(command, [...args, text], { cwd: folder })).stdout;
  };

  let texts: Map<string, string>;

  test('the settings of an app have a tab for each, which the keyboard reaches', async () => {
    await page.goto(`/apps/${appId}/settings`);
    const [first, second] = [page.locator('.snippets').nth(0), page.locator('.snippets').nth(1)];
    texts = new Map([...(await copied(first, ['send', 'read'])), ...(await copied(second, ['producers']))]);
    for (const [name, text] of texts) expect(text, name).toContain(String(service.port));
  });

  test('nothing is wider than the window, each tab is large enough for a finger, and axe finds nothing', async () => {
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(
      0,
    );
    const labels = page.locator('.snippets label');
    const outside = await labels.evaluateAll(
      (all, least) =>
        all
          .map((label) => ({ text: label.textContent, box: label.getBoundingClientRect() }))
          .filter(({ box }) => box.left < 0 || box.right > innerWidth || box.height < least - 0.5)
          .map(({ text, box }) => `${text} ${box.left}-${box.right} ${box.height}`),
      TARGET,
    );
    expect(outside).toEqual([]);
    await page.evaluate(axe.source);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      // Its documented result.
      const { violations } = (await page.evaluate('axe.run()')) as {
        violations: { id: string; nodes: { html: string }[] }[];
      };
      expect(violations.map(({ id, nodes }) => `${id} ${nodes[0]?.html}`)).toEqual([]);
    }
  });

  test('each program that sends stores its events', async () => {
    const total = async (): Promise<number> => Number((await owner.get(path)).data.total);
    const programs = SNIPPETS.filter(({ group, language }) => group !== 'read' && language in INTERPRETERS);
    expect(programs.map(({ name }) => name).sort()).toEqual(Object.keys(STORES).sort());
    for (const { name } of programs) {
      const before = await total();
      const [events, output] = STORES[name] ?? [];
      expect(await runProgram(name, texts.get(name) ?? ''), name).toMatch(output ?? /^never$/);
      await until(async () => (await total()) - before === events, `${name} has stored its events`);
    }
  });

  test('the page of usage tells of records that were refused', async () => {
    const text = (texts.get('Records') ?? '').replace('"2026-01-31T08:30:00Z"', '"yesterday"');
    expect(await runProgram('Records', text)).toMatch(/"refused":1/);
    await page.goto(`/apps/${appId}/usage`);
    const card = page.getByRole('region', { name: 'Refused in the last hour' });
    await card.getByText('1 event inside of requests that were accepted').waitFor();
    await card.getByText('INVALID_REQUEST').waitFor();
    await page.goto(`/apps/${appId}/settings`);
  });

  test('a new resource token comes with programs that read, which show the events', async () => {
    await page.getByRole('button', { name: 'New resource token…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('Reader');
    await dialog.getByRole('button', { name: 'Create' }).click();
    const programs = await copied(dialog.locator('.snippets'), ['read']);
    for (const [name, text] of programs) {
      const output = await runProgram(name, text);
      const shown = name === 'Export' ? await readFile(join(folder, 'events.ndjson'), 'utf8') : output;
      for (const from of ['curl', 'node', 'python']) expect(shown, name).toContain(from);
    }
  });

  test('where the file of the programs cannot be loaded, the page says so, and loads it again', async () => {
    await page.route('**/snippets-*.txt', (route) => route.abort());
    await page.goto(`/apps/${appId}/usage`);
    await page.goto(`/apps/${appId}/settings`);
    const retry = page.locator('.snippets').first().getByRole('button', { name: /again/i });
    await retry.waitFor();
    await page.unroute('**/snippets-*.txt');
    await retry.click();
    await page.locator('.snippets').first().getByRole('radio', { name: 'curl', exact: true }).waitFor();
  });
});
