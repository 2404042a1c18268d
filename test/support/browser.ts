/** A real browser for the dashboard: Chromium as the machine has it. */
import {
  type Browser,
  type BrowserContextOptions,
  type BrowserServer,
  chromium,
  type Page,
} from 'playwright-core';
import { CHROMIUM, hasChromium } from './chromium.ts';
import { patient } from './patience.ts';

const ARGUMENTS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-quic',
];

/** Why there is no browser; empty where there is one. The last lines of a run name the suites that are skipped for it. */
export const withoutBrowser = hasChromium ? '' : `chromium is not at ${CHROMIUM} (CHROMIUM)`;

/** One for all files that run in this process, with which it ends. */
let server: Promise<BrowserServer> | null = null;

/** A connection to the browser; closing it closes its pages. */
export async function launchBrowser(): Promise<Browser> {
  server ??= chromium.launchServer({ executablePath: CHROMIUM, args: ARGUMENTS });
  return await chromium.connect((await server).wsEndpoint());
}

/** What a page said that it should not have: errors, warnings, refused resources. */
export interface Watched {
  readonly page: Page;
  readonly complaints: string[];
}

/** Answers of these statuses are told to the page, which shows them; the browser's own line about them is no complaint. */
const TOLD = /Failed to load resource: (the server responded with a status of (4|503)|net::ERR_)/;

/** A page in a profile of its own, in English and in Berlin unless told otherwise. */
export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await browser.newContext({
    locale: 'en-GB',
    timezoneId: 'Europe/Berlin',
    viewport: { width: 1280, height: 900 },
    permissions: ['clipboard-read', 'clipboard-write'],
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(patient(20_000));
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error.stack ?? error)));
  page.on('console', (message) => {
    const isComplaint = message.type() === 'error' || message.type() === 'warning';
    if (isComplaint && !TOLD.test(message.text())) complaints.push(message.text());
  });
  return { page, complaints };
}
