/**
 * Takes the screenshots of README.md, of the shop of `tidemark demo`: `node docs/images/take.mjs`, with CHROMIUM or /usr/bin/chromium.
 * A service of its own, on a port and in a folder of its own, is started and removed.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const here = dirname(fileURLToPath(import.meta.url));
const launcher = join(here, '..', '..', 'tidemark.mjs');
const folder = mkdtempSync(join(tmpdir(), 'tidemark-screenshots-'));
const email = 'anna@example.com';
const password = 'correct horse battery';
const PORT = '18080';
const settings = { PATH: process.env.PATH, PORT, DATA_DIR: join(folder, 'data'), LOG_LEVEL: 'error' };
const origin = `http://127.0.0.1:${PORT}`;

function tidemark(args, input = '') {
  const ran = spawnSync(process.execPath, [launcher, ...args], { env: settings, input, encoding: 'utf8' });
  if (ran.status !== 0) throw new Error(ran.stderr);
  return ran.stdout;
}

async function untilReady() {
  for (;;) {
    const ready = await fetch(`${origin}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (ready) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function take(context, name, path, prepare = async () => undefined) {
  const page = await context.newPage();
  await page.goto(`${origin}${path}`);
  await page.waitForLoadState('networkidle');
  await prepare(page);
  await page.screenshot({ path: join(here, `${name}.png`) });
  await page.close();
}

async function signedIn(browser, colorScheme) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme });
  const page = await context.newPage();
  await page.goto(origin);
  await page.getByLabel(/e-?mail/i).fill(email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: /sign in/i }).click();
  await page.getByText('Demo web shop').first().waitFor();
  await page.close();
  return context;
}

const service = spawn(process.execPath, [launcher, 'serve'], { env: settings, stdio: 'ignore' });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
try {
  await untilReady();
  tidemark(['user', 'create', '--email', email, '--password-stdin'], `${password}\n`);
  const { appId } = JSON.parse(tidemark(['demo', '--no-live', '--owner', email, '--json']));
  const chart = `/apps/${appId}?range=30d`;
  const light = await signedIn(browser, 'light');
  await take(light, 'dashboard-apps', '/');
  await take(light, 'dashboard-chart', chart);
  await take(await signedIn(browser, 'dark'), 'dashboard-chart-dark', chart);
} finally {
  await browser.close();
  const ended = new Promise((resolve) => service.once('close', resolve));
  service.kill('SIGTERM');
  await ended;
  rmSync(folder, { recursive: true, force: true });
}
