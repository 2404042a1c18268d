/** What a visit to an app's page asks for before it shows the chart and the list: each thing once, and nothing that has to wait for another. */
import type { Browser, Request } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, withoutBrowser } from '../support/browser.ts';
import { build } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { visit } from './visitor.ts';

const EVENTS = 60;
const TYPES = 3;
/** What is sent with the first script, while the one that draws is still on its way. */
const EARLY = ['', '/events', '/series', '/types'];
/** What the page asks for when it is drawn: each has its place in it. */
const LATER = ['/annotations', '/declared-fields', '/fields', '/live', '/views'];
const FILES = [
  'explore.js',
  'favicon.svg',
  'index.js',
  'instrument-sans-latin-wght-normal.woff2',
  'style.css',
];
/** Of the content, in the name of a file. */
const HASH = /-[\w-]{8}(?=\.)/;
/** Statements of the reads and lookups of all of them together: some 110, and more where charts do not ask at the same time. */
const MOST_STATEMENTS = 140;

/** Execute and Query, which begin a statement in PostgreSQL's protocol. */
const STATEMENTS = new Set(['E'.charCodeAt(0), 'Q'.charCodeAt(0)]);

function statementsIn(sent: Buffer): number {
  let count = 0;
  for (let at = 0; at + 5 <= sent.length; at += 1 + sent.readUInt32BE(at + 1))
    if (STATEMENTS.has(sent[at] ?? 0)) count += 1;
  return count;
}

describe.skipIf(withoutBrowser !== '')('a visit', () => {
  let service: TestService;
  let browser: Browser;
  let owner: Person;
  const statements = new Map<string, number>();
  beforeAll(async () => {
    build();
    let proxy: FaultyProxy | undefined;
    const reach = async (address: Parameters<typeof FaultyProxy.start>[0]) => {
      proxy = await FaultyProxy.start(address);
      proxy.onSent = (sent, name) => statements.set(name, (statements.get(name) ?? 0) + statementsIn(sent));
      return proxy.address;
    };
    [service, browser] = await Promise.all([startTestService({ reach }), launchBrowser()]);
    owner = await newPerson(service, 'owner@example.com');
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    await service?.stop();
  });

  test('asks for everything once, for the data before what draws it is there, and goes on with the feed', async () => {
    const { appId, loggingToken } = await newOwnApp(owner);
    const post = (n: number) =>
      service.post({
        loggingToken,
        typeId: undefined,
        typeName: `type ${n % TYPES}`,
        payload: { n, of: 'the visit' },
      });
    for (let n = 0; n < EVENTS; n += 1) await post(n);
    const { page, complaints } = await visit(browser, service, owner);
    const path = `/apps/${appId}`;
    const asked: string[] = [];
    const ofApp = (): string[] =>
      asked.flatMap((one) => (one.startsWith(`/api${path}`) ? one.slice(`/api${path}`.length) : []));
    page.on('request', (request: Request) => asked.push(new URL(request.url()).pathname));
    await page.route('**/assets/explore-*.js', async (route) => {
      await until(async () => EARLY.every((one) => ofApp().includes(one)), 'the data is asked for');
      await route.continue();
    });
    statements.clear();
    await page.goto(`${path}?range=15m&tz=UTC`);
    await page.locator('article').nth(49).waitFor();
    await until(async () => LATER.every((one) => ofApp().includes(one)), 'the page has asked for the rest');
    expect(ofApp().sort()).toEqual([...EARLY, ...LATER].sort());
    const ofReads = [...statements].filter(([name]) => /dashboard|lookups|reads/.test(name));
    const total = ofReads.reduce((sum, [, count]) => sum + count, 0);
    expect(total, JSON.stringify(ofReads)).toBeGreaterThan(EARLY.length);
    expect(total, JSON.stringify(ofReads)).toBeLessThanOrEqual(MOST_STATEMENTS);
    const others = asked.filter((one) => !one.startsWith(`/api${path}`)).map((one) => one.replace(HASH, ''));
    expect(others.sort()).toEqual(['/api/session', path, ...FILES.map((name) => `/assets/${name}`)].sort());
    await post(EVENTS);
    await page.getByText(`"n":${EVENTS},`).waitFor();
    expect(ofApp().filter((one) => one === '/events')).toEqual(['/events']);
    expect(complaints).toEqual([]);
  });
});
