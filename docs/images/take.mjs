/**
 * Takes the screenshots of README.md and docs/chat-tools.md, of the shop of `tidemark demo`, and those of docs/tutorial.md, whose
 * commands it runs: `node docs/images/take.mjs`, with CHROMIUM or /usr/bin/chromium. `node docs/images/take.mjs tutorial` takes the
 * latter alone, `chat` those of chat tools.
 * With a folder it takes every page there instead, in every state, size and theme, for a designer to look at; with names after it
 * (`explore`, `types-many`, or a width: `390`) these alone.
 * A service of its own, on a port and in a folder of its own, is started and removed.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
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
const settings = {
  ...{ PATH: process.env.PATH, PORT, DATA_DIR: join(folder, 'data'), LOG_LEVEL: 'error' },
  WEBHOOK_ALLOW_PRIVATE: 'true',
};
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

/** How alerts come to a chat tool. A server of its own stands for the tool. */
async function takeChat(browser, appId) {
  const tool = createServer((_, response) => response.end('ok')).on('error', console.error);
  await new Promise((resolve) => tool.listen(0, '127.0.0.1', resolve));
  const context = await open(browser, { viewport: { width: 1280, height: 720 }, colorScheme: 'light' });
  const page = await context.newPage();
  const shot = (name) => page.screenshot({ path: join(here, `chat-${name}.png`) });
  const button = (name) => page.getByRole('button', { name, exact: true });
  const address = page.getByLabel('Address');
  await page.goto(`/apps/${appId}/delivery`);
  for (const [format, url] of [
    ['ntfy', 'https://ntfy.sh/my-topic'],
    ['slack', 'https://hooks.slack.com/services/T000/B000/xyz'],
  ]) {
    await button('New webhook…').click();
    await page.getByLabel('Where to?').selectOption(format);
    await address.fill(url);
    await shot(format);
    if (format === 'ntfy') await page.keyboard.press('Escape');
  }
  await address.fill(`http://127.0.0.1:${tool.address().port}/services/T000/B000/xyz`);
  await button('Add').click();
  await page.getByRole('button', { name: /^Test/ }).click();
  await page.getByText('The endpoint answered 200').waitFor();
  await shot('test');
  await button('New alert…').click();
  await page.getByLabel('Name').fill('Many errors');
  await page.locator('.trial[aria-busy=false]').waitFor();
  const told = page.getByLabel('Webhook that is told');
  await told.selectOption({ index: 1 });
  await told.evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await shot('alert');
  await context.close();
  tool.close();
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
    if (wanted === undefined || wanted === 'chat') await takeChat(browser, appId);
    if (wanted === undefined) {
      const size = { width: 1280, height: 800 };
      const light = await open(browser, { viewport: size, colorScheme: 'light' });
      const dark = await open(browser, { viewport: size, colorScheme: 'dark' });
      await take(light, 'dashboard-apps', '/');
      await take(light, 'dashboard-chart', `/apps/${appId}?range=7d`);
      await take(dark, 'dashboard-chart-dark', `/apps/${appId}?range=7d`);
    } else if (wanted !== 'chat') {
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
