/**
 * Takes the screenshots of README.md, of the shop of `tidemark demo`, and those of docs/tutorial.md, whose commands it runs:
 * `node docs/images/take.mjs`, with CHROMIUM or /usr/bin/chromium. `node docs/images/take.mjs tutorial` takes the latter alone.
 * With a folder it takes every page there instead, in every state, size and theme, for a designer to look at; with names after it
 * (`explore`, `types-many`, or a width: `390`) these alone.
 * A service of its own, on a port and in a folder of its own, is started and removed.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { tour } from './tour.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const launcher = join(here, '..', '..', 'tidemark.mjs');
const folder = mkdtempSync(join(tmpdir(), 'tidemark-screenshots-'));
const email = 'anna@example.com';
const password = 'correct horse battery';
const PORT = process.env.PORT ?? '18080';
const settings = { PATH: process.env.PATH, PORT, DATA_DIR: join(folder, 'data'), LOG_LEVEL: 'error' };
const origin = `http://127.0.0.1:${PORT}`;
const [wanted, ...names] = process.argv.slice(2);

function tidemark(args, input = '') {
  const ran = spawnSync(process.execPath, [launcher, ...args], { env: settings, input, encoding: 'utf8' });
  if (ran.status !== 0) throw new Error(ran.stderr);
  return ran.stdout;
}

/** Runs the commands of docs/tutorial.md as they are written there. @returns the id of its app */
function followTutorial() {
  const page = readFileSync(join(here, '..', 'tutorial.md'), 'utf8');
  const blocks = [...page.matchAll(/(?<!not run: .*\n)^```sh\n([\s\S]*?)^```$/gm)].map(([, text]) => text);
  const script = `${blocks.join('\n').replaceAll(':8080', `:${PORT}`)}\necho; echo "$APP_ID"`;
  const cwd = join(here, '..', '..');
  const ran = spawnSync('bash', ['--norc', '-euo', 'pipefail', '-c', script], {
    cwd,
    env: settings,
    encoding: 'utf8',
  });
  if (ran.status !== 0) throw new Error(ran.stderr);
  return ran.stdout.trim().split('\n').at(-1);
}

async function takeTutorial(browser) {
  const appId = followTutorial();
  const { types } = JSON.parse(tidemark(['type', 'list', '--app', appId, '--json']));
  const { typeId } = types.find(({ name }) => name === 'error');
  const options = { viewport: { width: 1024, height: 600 }, colorScheme: 'light' };
  const context = await open(browser, options, 'you@example.com', 'correct horse battery staple');
  await take(context, 'tutorial-country', `/apps/${appId}?range=24h&by=country&type=${typeId}`);
  await take(context, 'tutorial-p95', `/apps/${appId}?range=24h&of=duration_ms&stat=p95`);
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

async function take(context, name, path) {
  const page = await context.newPage();
  await page.goto(`${origin}${path}`);
  await page.waitForLoadState('networkidle');
  await page.screenshot({ path: join(here, `${name}.png`) });
  await page.close();
}

/** A context of a browser; without a person's session where `as` is null. */
async function open(browser, options, as = email, secret = password) {
  const context = await browser.newContext({
    baseURL: origin,
    locale: 'en-GB',
    timezoneId: 'Europe/Berlin',
    reducedMotion: 'reduce',
    ...options,
  });
  if (as === null) return context;
  const signedIn = await context.request.post('/api/session', {
    data: { email: as, password: secret },
    headers: { Origin: origin },
  });
  if (!signedIn.ok()) throw new Error(await signedIn.text());
  return context;
}

const service = spawn(process.execPath, [launcher, 'serve'], { env: settings, stdio: 'ignore' });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
try {
  await untilReady();
  if (wanted === undefined || wanted === 'tutorial') await takeTutorial(browser);
  if (wanted !== 'tutorial') {
    tidemark(['user', 'create', '--email', email, '--password-stdin'], `${password}\n`);
    const { appId } = JSON.parse(tidemark(['demo', '--no-live', '--owner', email, '--json']));
    if (wanted === undefined) {
      const size = { width: 1280, height: 800 };
      const light = await open(browser, { viewport: size, colorScheme: 'light' });
      const dark = await open(browser, { viewport: size, colorScheme: 'dark' });
      await take(light, 'dashboard-apps', '/');
      await take(light, 'dashboard-chart', `/apps/${appId}?range=7d`);
      await take(dark, 'dashboard-chart-dark', `/apps/${appId}?range=7d`);
    } else {
      const to = resolve(wanted);
      mkdirSync(to, { recursive: true });
      await tour({ open: (options, as) => open(browser, options, as), appId, to, names });
    }
  }
} finally {
  await browser.close();
  const ended = new Promise((resolve) => service.once('close', resolve));
  service.kill('SIGTERM');
  await ended;
  rmSync(folder, { recursive: true, force: true });
}
