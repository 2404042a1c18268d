/** `tidemark demo`: an app with the events of a web shop, so that the dashboard shows what it is for. */
import { setTimeout as wait } from 'node:timers/promises';
import { requireEmail } from '../accounts/people/email.ts';
import { hasUsers, requireVerifiedUser } from '../accounts/people/users.ts';
import { DAY_MS } from '../base/time-units.ts';
import { localOrigin, readConfig } from '../config.ts';
import { OperatorError } from '../errors.ts';
import { openDemoApp, removeDemoApp } from './demo/demo-app.ts';
import { type DemoEvent, WebShop } from './demo/web-shop.ts';
import type { Answer, Command, Session } from './session.ts';
import { onStopSignal } from './stop-request.ts';
import { grouped, Progress } from './transfer/progress.ts';

const HELP = `
It needs the running service, by which it stores 30 days of events of a web shop: page views, orders, errors, deployments, and
one that went wrong. Then it adds what happens in the shop now, until it is interrupted. Called again, it goes on with
the same app. The app belongs to --owner, to the only account, or to the oldest verified one.`;

const DAYS = 30;
/** Events of one request. */
const BATCH = 5_000;
const REQUEST_TIMEOUT_MS = 60_000;
const LIVE_EVERY_MS = 1_000;

interface DemoOptions {
  readonly owner?: string;
  readonly live: boolean;
  readonly remove?: true;
}

/** Where events go. */
interface Target {
  readonly origin: string;
  readonly loggingToken: string;
}

export function addDemoCommand(program: Command): void {
  program
    .command('demo')
    .description('fill an app with the events of a web shop, and go on with live ones')
    .option('--owner <email>', 'the account that owns the app')
    .option('--no-live', 'stop after the past is stored')
    .option('--remove', 'delete the app with all its events')
    .option('--json', 'print one JSON object')
    .addHelpText('after', HELP)
    .action(function (options: DemoOptions) {
      return options.remove === true ? this.onInstallation(remove) : fill(this, options);
    });
}

async function remove({ sql }: Session): Promise<Answer> {
  const appId = await removeDemoApp(sql);
  const text =
    appId === null ? 'There is no demo app.' : `${appId} is deleted; its events go in the background.`;
  return { json: { removed: appId }, text };
}

async function fill(command: Command, options: DemoOptions): Promise<void> {
  const config = readConfig(process.env);
  const origin = localOrigin(config.HOST, config.PORT);
  await requireService(origin);
  let loggingToken = '';
  let shop = new WebShop(Date.now(), DAYS);
  let until = Date.now();
  await command.onInstallation(async ({ sql, secret }) => {
    const owner =
      options.owner === undefined ? null : await requireVerifiedUser(sql, requireEmail(options.owner), false);
    const app = await openDemoApp(sql, await secret(), owner?.id ?? null);
    loggingToken = app.loggingToken;
    until = Date.now();
    shop = new WebShop(until, DAYS);
    const events = app.isNew ? await storePast({ origin, loggingToken }, shop, until) : 0;
    const page = `${config.PUBLIC_URL || origin}/apps/${app.appId}`;
    const done = app.isNew
      ? `${grouped(events)} events of ${DAYS} days are stored.`
      : 'The demo app is there.';
    const first = (await hasUsers(sql))
      ? ''
      : `\nCreate the first account at ${origin} before: it will own the app.`;
    const text = `${done}\n${page}${first}`;
    return { json: { appId: app.appId, events, url: page }, text };
  });
  if (options.live) await stream({ origin, loggingToken }, shop, until);
}

/** @throws OperatorError where no service answers */
async function requireService(origin: string): Promise<void> {
  const response = await fetch(`${origin}/readyz`, { signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) }).catch(
    () => null,
  );
  await response?.arrayBuffer();
  if (response?.status === 200) return;
  throw new OperatorError(
    `the service does not answer at ${origin}: start it first (tidemark serve), with the same HOST and PORT`,
  );
}

/** @returns how many events it stored */
async function storePast(target: Target, shop: WebShop, until: number): Promise<number> {
  const from = (Math.floor(until / DAY_MS) - DAYS) * DAY_MS;
  const progress = new Progress();
  let stored = 0;
  let batch: DemoEvent[] = [];
  const send = async (): Promise<void> => {
    await post(target, batch);
    stored += batch.length;
    const last = batch.at(-1)?.at ?? until;
    batch = [];
    progress.update(() => ({ fraction: (last - from) / (until - from), text: `${grouped(stored)} events` }));
  };
  try {
    for (const event of shop.events(from, until)) {
      batch.push(event);
      if (batch.length === BATCH) await send();
    }
    if (batch.length > 0) await send();
  } finally {
    progress.end();
  }
  return stored;
}

/** Stores what happens from `from` on, second by second, until a signal. */
async function stream(target: Target, shop: WebShop, from: number): Promise<void> {
  process.stderr.write('tidemark: adding live events; Ctrl-C ends it\n');
  const interrupted = new AbortController();
  onStopSignal(() => interrupted.abort());
  for (let done = from; !interrupted.signal.aborted; ) {
    await wait(LIVE_EVERY_MS, undefined, { signal: interrupted.signal }).catch(() => undefined);
    const now = Date.now();
    const events = [...shop.events(done, now)];
    if (events.length > 0) await post(target, events);
    done = now;
  }
}

/** @throws Error with the service's answer where an event was not stored */
async function post({ origin, loggingToken }: Target, events: readonly DemoEvent[]): Promise<void> {
  for (;;) {
    const response = await fetch(`${origin}/v1/events`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${loggingToken}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({
        events: events.map(({ typeName, at, payload }) => ({
          typeName,
          createdAt: new Date(at).toISOString(),
          payload,
        })),
      }),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    const answer = await response.text();
    if (response.status === 200) return;
    if (response.status !== 429 && response.status !== 503)
      throw new Error(`events were not stored: ${answer}`);
    await wait(1_000 * Number(response.headers.get('retry-after') ?? 1));
  }
}
