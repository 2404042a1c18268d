/** A real browser for the dashboard: Chromium as the machine has it. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { CHROMIUM, hasChromium } from './chromium.ts';

const LAUNCHER = fileURLToPath(new URL('../../tidemark.mjs', import.meta.url));

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

/** Brings dist/dashboard up to date: what is tested is what is served. */
export function buildDashboard(): void {
  const { status, stderr } = spawnSync(process.execPath, [LAUNCHER, '--build-only'], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`The dashboard is not built: ${stderr}`);
}

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
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
  page.setDefaultTimeout(10_000);
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error.stack ?? error)));
  page.on('console', (message) => {
    const isComplaint = message.type() === 'error' || message.type() === 'warning';
    if (isComplaint && !TOLD.test(message.text())) complaints.push(message.text());
  });
  return { page, complaints };
}
