/** A real browser for the dashboard: Debian's chromium, fetched where it is missing and may be installed. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
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

/**
 * Why there is no browser, to be named where its suites are skipped; empty where there is one.
 * @throws with CI=true: there the suites must run
 */
export const withoutBrowser = prepare();

function prepare(): string {
  if (!existsSync(CHROMIUM)) install();
  if (existsSync(CHROMIUM)) return '';
  const reason = `chromium is not at ${CHROMIUM} (CHROMIUM) and could not be installed`;
  if (process.env.CI === 'true') throw new Error(`${reason}: in CI the suites must run`);
  console.log(`\nSkipped: the suites in a browser; ${reason}.`);
  return reason;
}

/** Debian's own package, as root only. Failing is no fault: the suites are then skipped by name. */
function install(): void {
  if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) return;
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args: string[]): boolean =>
    spawnSync('apt-get', ['-qq', ...args], { env, stdio: 'ignore', timeout: 300_000 }).status === 0;
  if (!apt('install', '-y', '--no-install-recommends', 'chromium') && apt('update')) {
    apt('install', '-y', '--no-install-recommends', 'chromium');
  }
}

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
