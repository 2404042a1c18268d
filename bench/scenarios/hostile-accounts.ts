/**
 * Part of hostile: attacks with valid tokens. One account takes all that it can get of what accounts share; innocent accounts write,
 * read and sign in beside it, within their limits, and have their events delivered and alerts mailed.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { grantRole } from '../../src/accounts/people/members.ts';
import { createVerifiedUser } from '../../src/accounts/people/sign-up.ts';
import { Passwords } from '../../src/accounts/sign-in/passwords.ts';
import { declareField } from '../../src/apps/fields.ts';
import { createManagementToken } from '../../src/apps/management-tokens.ts';
import { openSecret } from '../../src/apps/secret.ts';
import { setTypeSchema } from '../../src/apps/type-schemas.ts';
import { addWebhook } from '../../src/delivery/webhooks.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import { openStorage } from '../../src/storage/storage.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadJob, LoadReport, LoadRequest } from '../load/load-job.ts';
import { answersOf, checkLedger, createRequest } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { memoryOf } from '../servers/process-usage.ts';
import type { Spawned } from '../servers/spawned.ts';
import { startSpinners } from '../servers/spinners.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';

const P99_GOAL = { atMost: 3 };
const NO_REFUSAL = { atMost: 0 };
const MEMORY_GOAL_MB = { atMost: 1_000 };
/** An attack begins this long before the innocent are measured, and ends this long after. */
const LEAD_MS = 1_000;
const TAIL_SECONDS = 1;

/** Accounts beside the attacker's, with an app each: together they stay within the limits of a minute. */
const INNOCENTS = 10;
const WRITES_PER_SECOND = 100;
const READS_PER_SECOND = 10;
const SIGN_INS_PER_SECOND = 1;
const PASSWORD = 'correct horse battery';
/** Pages send their origin. */
const PUBLIC_URL = 'http://bench.example';

const ATTACKER_APPS = 20;
const ATTACKER_TOKENS = 60;
const FEED_TOKENS = 520;
const EXPORT_TOKENS = 8;
const HERD_APPS = 3_000;
const NEW_TYPES = 1_000;
/** Webhooks of an account whose endpoint takes that long for an answer. */
const SLOW_WEBHOOKS = 600;
const SLOW_MS = 13_000;
/** Mails of a strange app to each innocent mailbox, and webhooks that take its messages slowly. */
const STRANGE_MAILS = 70;
const SLOW_MESSAGES = 80;
/** Rules by a field with so many values, and lists that are as long. */
const ALERT_RULES = 20;
const ALERT_VALUES = 10_000;
const LISTED = 100;
/** Requests that are hard to parse, and selectors of such a query: with more it is refused before it is computed. */
const PARSES_PER_SECOND = 80;
const SELECTORS = 4;
/** A mail of an innocent's own alert, so often. */
const MAIL_EVERY_MS = 2_000;
/** What was sent in a spell arrives so long after it at the latest. */
const ARRIVAL_MS = 10_000;
/** Events of a batch, and batches of fresh events before the attack that reads them. */
const BATCH_EVENTS = 10_000;
const FIELD = 'status';

interface Attacker {
  readonly bench: Workbench;
  readonly port: number;
  readonly apps: readonly BenchApp[];
  readonly email: string;
  /** Resource tokens of the account, for {@link apps}. */
  readonly tokens: readonly string[];
  /** Batches of fresh events to store before they are read. */
  readonly freshBatches: number;
  /** Where webhooks and mails go. */
  readonly receivers: Receivers;
  /** Makes more apps of the account. */
  readonly seedApps: (count: number) => Promise<readonly Pick<BenchApp, 'loggingToken'>[]>;
}

interface Attack {
  readonly name: string;
  /** What it is, in one sentence. */
  readonly about: string;
  /** Resource tokens of the account; none by default. */
  readonly tokens?: number;
  /** Prepares what the attack needs, outside of the measurement. @returns its load, which goes on for so many seconds */
  readonly prepare: (attacker: Attacker, seconds: number) => Promise<LoadJob>;
}

const ATTACKS: readonly Attack[] = [
  {
    name: 'reads',
    about: `100 connections that read fields, values and searches with ${ATTACKER_TOKENS} resource tokens`,
    tokens: ATTACKER_TOKENS,
    prepare: async (attacker, seconds) => {
      const { port, apps, tokens } = attacker;
      const app = await storeFresh(attacker);
      const paths = ['fields', `fields/values?path=${FIELD}&q=shipped`, 'events?q=nothing-has-this'];
      return {
        kind: 'closed',
        port,
        connections: 100,
        seconds,
        requests: tokens.map((token, index) => {
          return readOf(app ?? apps[0], paths[index % paths.length] ?? '', token);
        }),
      };
    },
  },
  {
    name: 'filters on fresh events',
    about:
      'six connections that ask for exact totals of a declared field in events that have just been stored',
    tokens: ATTACKER_TOKENS,
    prepare: async (attacker, seconds) => {
      const app = await storeFresh(attacker);
      return {
        kind: 'closed',
        port: attacker.port,
        connections: 6,
        seconds,
        requests: attacker.tokens.map((token) =>
          readOf(app, `events?filter=${FIELD}:shipped&total=exact&limit=1`, token),
        ),
      };
    },
  },
  {
    name: 'live feeds',
    about: `${FEED_TOKENS} resource tokens with a live feed each`,
    tokens: FEED_TOKENS,
    prepare: async ({ port, apps, tokens }, seconds) => ({
      kind: 'held',
      port,
      connections: tokens.length,
      seconds,
      requests: tokens.map((token) => readOf(apps[0], 'live', token, { Accept: 'text/event-stream' })),
    }),
  },
  {
    name: 'exports',
    about: `${EXPORT_TOKENS} resource tokens with four exports each, which nobody reads`,
    tokens: EXPORT_TOKENS,
    prepare: async (attacker, seconds) => {
      const app = await storeFresh(attacker);
      const { tokens } = attacker;
      return {
        kind: 'held',
        port: attacker.port,
        connections: 4 * tokens.length,
        seconds,
        requests: tokens.map((token) => readOf(app, 'export', token)),
      };
    },
  },
  {
    name: 'cold herd',
    about: `${HERD_APPS} apps of the account that send their first event, of a new type, over 256 connections`,
    prepare: async ({ port, seedApps }, seconds) => ({
      kind: 'closed',
      port,
      connections: 256,
      seconds,
      once: true,
      requests: (await seedApps(HERD_APPS)).map((app) => postEvent(app, {}, 'signed up')),
    }),
  },
  {
    name: 'new types',
    about: `batches of ${NEW_TYPES} new types each, of ${ATTACKER_APPS} apps, on four connections`,
    prepare: async ({ port, seedApps }, seconds) => ({
      kind: 'closed',
      port,
      connections: 4,
      seconds,
      requests: (await seedApps(ATTACKER_APPS)).map((app) =>
        postBatch(
          app,
          Array.from({ length: NEW_TYPES }, (_, n) => ({ typeName: `new ${n}`, payload: {} })),
        ),
      ),
    }),
  },
  {
    name: 'schema checks',
    about: `${ATTACKER_APPS} apps with a schema that warns of what is not unique, and an event of 77 KB for each of them every 0.6 s`,
    prepare: async ({ bench, port, apps }, seconds) => {
      const schema = { properties: { items: { type: 'array', uniqueItems: true } } };
      for (const { appId, typeId } of apps)
        await setTypeSchema(bench.sql, PROVEN, { appId, typeId, schema, mode: 'warn' });
      const items = Array.from({ length: 7_000 }, (_, n) => ({ n }));
      return {
        kind: 'open',
        port,
        connections: apps.length,
        seconds,
        perSecond: apps.length / 0.6,
        warmUpSeconds: 0,
        requests: apps.map((app) => postEvent(app, { items })),
      };
    },
  },
  {
    name: 'webhook places',
    about: `${SLOW_WEBHOOKS} webhooks of an app whose endpoint takes ${SLOW_MS / 1_000} s for each of its events`,
    prepare: async ({ bench, port, apps, receivers }, seconds) => {
      const app = firstOf(apps);
      const [known] = await bench.sql<{ id: string }[]>`
        SELECT public_id AS id FROM webhooks WHERE app_id = ${app.id} ORDER BY id LIMIT 1`;
      await bench.sql`UPDATE webhooks SET state = 'active' WHERE app_id = ${app.id}`;
      await multiply(bench.sql, known?.id ?? (await hook(bench, app, receivers.urls.slow)), SLOW_WEBHOOKS);
      return {
        ...{ kind: 'open', port, connections: 2, seconds, perSecond: 10, warmUpSeconds: 0 },
        requests: [postEvent(app, {})],
      };
    },
  },
  {
    name: 'alert mails',
    about: `an app with ${STRANGE_MAILS} messages of alerts to each innocent mailbox, whose owners have opened it, and ${SLOW_MESSAGES} webhooks that take messages slowly`,
    prepare: async ({ bench, port, apps, receivers }, seconds) => {
      const app = firstOf(apps);
      const emails = Array.from({ length: INNOCENTS }, (_, index) => innocentAddress(index));
      await bench.sql`
        INSERT INTO app_members (app_id, user_id, role, opened_at)
        SELECT ${app.id}, id, 'viewer', now() FROM users WHERE email = ANY(${emails}) ON CONFLICT DO NOTHING`;
      const webhookId = await hook(bench, app, receivers.urls.slow);
      await multiply(bench.sql, webhookId, SLOW_MESSAGES);
      await tell(bench.sql, app.id, 'webhook', [
        webhookId,
        ...Array.from({ length: SLOW_MESSAGES - 1 }, (_, n) => `${webhookId}${n + 2}`),
      ]);
      const strange = emails.flatMap((email) => new Array<string>(STRANGE_MAILS).fill(email));
      await bench.sql`
        INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
        SELECT ${app.id}, 'mail', target, gen_random_uuid()::text, 'alert.firing', '{"subject":"x","text":"x"}', now(), now()
          FROM unnest(${strange}::text[]) AS target`;
      return {
        ...{ kind: 'open', port, connections: 2, seconds, perSecond: 10, warmUpSeconds: 0 },
        requests: [postEvent(app, {})],
      };
    },
  },
  {
    name: 'alert rules',
    about: `${ALERT_RULES} rules by a field of ${ALERT_VALUES} values with "for" of a day, and as many on one minute, which fire`,
    prepare: async ({ bench, port, apps }, seconds) => {
      const app = firstOf(apps);
      const field = { appId: app.id, path: ['v'], kind: 'value', typeName: null, backfill: false } as const;
      const [declared] = await bench.sql`SELECT FROM declared_fields WHERE app_id = ${app.id}`;
      if (declared === undefined) await declareField(bench.sql, field);
      const by = { of: 'count', by: 'v', window: '7d', above: 1e9, for: '1d' };
      for (const rule of [by, { of: 'count', by: 'v', window: '1m', above: 0 }])
        await bench.sql`
          INSERT INTO alert_rules (public_id, app_id, name, rule, timezone, webhooks, emails)
          SELECT 'alr_' || gen_random_uuid(), ${app.id}, gen_random_uuid()::text, ${JSON.stringify(rule)}, 'UTC', '{}', '{}'
            FROM generate_series(1, ${ALERT_RULES})`;
      // Due again, whatever minute it is.
      await bench.sql`UPDATE alert_rules SET evaluated_at = now() - interval '2 minutes'`;
      const values = Array.from({ length: 10 }, (_, part) =>
        postBatch(
          app,
          Array.from({ length: ALERT_VALUES / 10 }, (__, n) => ({
            typeName: 'page viewed',
            payload: { v: `${part} ${n}` },
          })),
        ),
      );
      return {
        ...{ kind: 'open', port, connections: 2, seconds, perSecond: 2, warmUpSeconds: 0 },
        requests: values,
      };
    },
  },
  {
    name: 'lists and skips',
    about: `20 connections that list the alerts and webhooks of an app with ${LISTED} of each, and skip an event that nothing passes`,
    prepare: async (attacker, seconds) => {
      const { bench, port, apps, receivers } = attacker;
      const app = firstOf(apps);
      const webhookId = await hook(bench, app, receivers.urls.slow);
      await multiply(bench.sql, webhookId, LISTED);
      await bench.sql`UPDATE consumers SET filter = '{n:none}' WHERE name = ${webhookId}`;
      await bench.sql`
        INSERT INTO alert_rules (public_id, app_id, name, rule, timezone, webhooks, emails, is_paused)
        SELECT 'alr_' || gen_random_uuid(), ${app.id}, gen_random_uuid()::text, '{"of":"count","window":"1m","above":1}', 'UTC', '{}', '{}', true
          FROM generate_series(1, ${LISTED})`;
      const headers = await sessionOf(attacker);
      const path = `/api/apps/${app.appId}`;
      const read = (what: string): LoadRequest => ({ method: 'GET', path: `${path}/${what}`, headers });
      const skip = `${path}/webhooks/${webhookId}/skip`;
      return {
        ...{ kind: 'closed', port, connections: 20, seconds },
        requests: [read('alerts'), read('webhooks'), { method: 'POST', path: skip, headers, body: '{}' }],
      };
    },
  },
  {
    name: 'erasures',
    about: 'an erasure of what an event of every 70 ms matches, and another one that is only counted',
    prepare: async (attacker, seconds) => {
      const { port, apps } = attacker;
      const [app, other] = [firstOf(apps), apps[1] ?? firstOf(apps)];
      const headers = await sessionOf(attacker);
      const erase = ({ appId }: BenchApp, dryRun: boolean): LoadRequest => ({
        ...{ method: 'POST', path: `/api/apps/${appId}/erasures`, headers },
        body: JSON.stringify({ filter: ['person:one'], dryRun, password: PASSWORD }),
      });
      const event = postEvent(app, { person: 'one' });
      return {
        ...{ kind: 'open', port, connections: 8, seconds, perSecond: 1_000 / 70, warmUpSeconds: 0 },
        requests: [erase(app, false), ...new Array<LoadRequest>(30).fill(event), erase(other, true)],
      };
    },
  },
  {
    name: 'hard parses',
    about: `${PARSES_PER_SECOND} requests a second: bodies of 1 MB with ill-formed browser keys, PromQL of ${SELECTORS} selectors at 10,900 steps, and configurations with 5,000 nested arrays and 4,000 anchors`,
    tokens: 10,
    prepare: async ({ bench, port, tokens }, seconds) => {
      const { managementToken } = await createManagementToken(bench.sql, {
        ...{ name: 'hostile', scope: 'apply', expiresInSeconds: 3_600 },
      });
      const plain = { 'Content-Type': 'text/plain', Origin: 'https://nobody.example' };
      const keys = `{"x":[${`{"key":"tdb_${'A'.repeat(38)}"},`.repeat(19_000)}1]}`;
      const end = Math.floor(Date.now() / 1_000);
      const selectors = Array.from(
        { length: SELECTORS },
        (_, n) => `increase(tidemark_events_total[5m] offset ${n + 1}m)`,
      );
      const query = new URLSearchParams({
        ...{ query: `sum(${selectors.join(' + ')})`, start: String(end - 10_900 * 15) },
        ...{ end: String(end), step: '15' },
      });
      const nested = `{"apps":${'['.repeat(5_000)}${']'.repeat(5_000)}}`;
      const anchors = Array.from({ length: 4_000 }, (_, n) => `k${n}: &k${n} 1`).join('\n');
      const configure = (body: string, type: string): LoadRequest => {
        const headers = { Authorization: `Bearer ${managementToken}`, 'Content-Type': type };
        return { method: 'PUT', path: '/v1/config?dryRun=true', headers, body };
      };
      const collect: LoadRequest = { method: 'POST', path: '/v1/collect', headers: plain, body: keys };
      const configurations = [configure(nested, 'application/json'), configure(anchors, 'application/yaml')];
      return {
        ...{ kind: 'open', port, connections: 10, seconds, perSecond: PARSES_PER_SECOND, warmUpSeconds: 0 },
        // Forty bodies, ten queries and four configurations: without pause they are an attack of bandwidth, which no parser sees.
        requests: tokens.flatMap((token, index): LoadRequest[] => {
          const headers = { Authorization: `Bearer ${token}` };
          const asked: LoadRequest = { method: 'GET', path: `/api/v1/query_range?${query}`, headers };
          const configured = index < 4 ? configurations.slice(index % 2, (index % 2) + 1) : [];
          return [...new Array<LoadRequest>(4).fill(collect), asked, ...configured];
        }),
      };
    },
  },
];

/** The headers of a session of the attacker. */
async function sessionOf({ port, email }: Attacker): Promise<Readonly<Record<string, string>>> {
  const headers = { Origin: PUBLIC_URL, 'Content-Type': 'application/json' };
  const answer = await fetch(`http://127.0.0.1:${port}/api/session`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ email, password: PASSWORD }),
  });
  const [cookie = ''] = answer.headers.getSetCookie();
  if (!answer.ok) throw new Error(`The attacker cannot sign in: ${answer.status} ${await answer.text()}`);
  return { ...headers, Cookie: cookie.split(';')[0] ?? '' };
}

/** The addresses of innocents. */
const innocentAddress = (index: number): string => `innocent-${index}@example.org`;

/** Where webhooks post to and mails arrive: one address takes at once, the other one slowly. */
class Receivers {
  readonly #taking = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.once('end', () => {
      // A message of the service.
      const { data } = JSON.parse(body) as { data: { createdAt?: string } };
      if (data.createdAt !== undefined) this.deliveries.push(Date.now() - Date.parse(data.createdAt));
      response.writeHead(204).end();
    });
  });
  readonly #slow = createServer((request, response) => {
    request.resume();
    setTimeout(() => response.writeHead(200).end(), SLOW_MS).unref();
  });
  readonly #mailbox = new SMTPServer({
    ...{
      authOptional: true,
      disabledCommands: ['AUTH', 'STARTTLS'],
      disableReverseLookup: true,
      closeTimeout: 0,
    },
    onData: (stream, _session, done) => {
      let text = '';
      stream.on('data', (chunk: Buffer) => {
        text += chunk.toString();
      });
      stream.once('end', () => {
        const sentAt = /^Sent: (\d+)/m.exec(text)?.[1];
        if (sentAt !== undefined) this.mails.push(Date.now() - Number(sentAt));
        done();
      });
    },
  });
  /** Milliseconds from the event, or the message, to its receiver. */
  readonly deliveries: number[] = [];
  readonly mails: number[] = [];

  static async open(): Promise<Receivers> {
    const receivers = new Receivers();
    for (const server of [receivers.#taking, receivers.#slow, receivers.#mailbox.server]) {
      server.on('error', () => undefined);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
    }
    receivers.#mailbox.on('error', () => undefined);
    return receivers;
  }

  get urls(): { readonly taking: string; readonly slow: string; readonly mail: string } {
    // Each listens on a port.
    const at = (server: Pick<Server, 'address'>): string =>
      `127.0.0.1:${(server.address() as AddressInfo).port}`;
    return {
      taking: `http://${at(this.#taking)}/`,
      slow: `http://${at(this.#slow)}/`,
      mail: `smtp://${at(this.#mailbox.server)}`,
    };
  }

  async stop(): Promise<void> {
    for (const server of [this.#taking, this.#slow]) {
      server.closeAllConnections();
      server.close();
    }
    await new Promise<void>((resolve) => this.#mailbox.close(() => resolve()));
  }
}

/** Adds a webhook of an app. @returns its public id */
async function hook(bench: Workbench, app: BenchApp, url: string): Promise<string> {
  const settings = bench.installation.settings;
  const store = new ConsumerStore((await openStorage(bench.sql)).engine, bench.sql);
  const secret = await openSecret({ configured: settings.SECRET ?? '', dataDir: settings.DATA_DIR ?? '' });
  const config = { MAX_WEBHOOKS_PER_APP: 10_000, WEBHOOK_ALLOW_PRIVATE: true };
  const place = { sql: bench.sql, store, secret, config };
  const { webhookId } = await addWebhook(place, app.id, { url }, {});
  return webhookId;
}

/** Makes many webhooks of one: they have sent before, and go on where it is. */
async function multiply(sql: Sql, webhookId: string, count: number): Promise<void> {
  await sql`UPDATE webhooks SET delivered = 1 WHERE public_id = ${webhookId}`;
  await sql`
    INSERT INTO webhooks (public_id, app_id, url, digest, sealed, delivered)
    SELECT public_id || n, app_id, url, digest, sealed, 1 FROM webhooks, generate_series(2, ${count}) AS n
     WHERE public_id = ${webhookId} ON CONFLICT DO NOTHING`;
  await sql`
    INSERT INTO consumers (app_id, name, kind, tick, position)
    SELECT app_id, name || n, kind, tick, position FROM consumers, generate_series(2, ${count}) AS n
     WHERE name = ${webhookId} ON CONFLICT DO NOTHING`;
}

/** Stores messages as the rounds of alerts do. */
async function tell(
  sql: Sql,
  appId: number,
  channel: 'webhook' | 'mail',
  targets: readonly string[],
): Promise<void> {
  const text = `Sent: ${Date.now()}\n`;
  const body = JSON.stringify({ subject: 'An alert', text, data: {} });
  await sql`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
    SELECT ${appId}, ${channel}, target, gen_random_uuid()::text, 'alert.firing', ${body}, now(), now()
      FROM unnest(${[...targets]}::text[]) AS target`;
}

/** The schemas of the bench are valid. */
const PROVEN = { prove: async () => null };

function postEvent(
  app: Pick<BenchApp, 'loggingToken'>,
  payload: object,
  typeName = 'page viewed',
): LoadRequest {
  const body = JSON.stringify({ loggingToken: app.loggingToken, typeName, payload });
  return { method: 'POST', path: '/public/create_event', body };
}

function postBatch({ loggingToken }: Pick<BenchApp, 'loggingToken'>, events: readonly object[]): LoadRequest {
  const headers = { Authorization: `Bearer ${loggingToken}` };
  return { method: 'POST', path: '/v1/events', headers, body: JSON.stringify({ events }) };
}

function readOf(
  app: Pick<BenchApp, 'appId'> | undefined,
  path: string,
  token: string,
  headers: Readonly<Record<string, string>> = {},
): LoadRequest {
  return {
    method: 'GET',
    path: `/v1/apps/${app?.appId}/${path}`,
    headers: { Authorization: `Bearer ${token}`, ...headers },
  };
}

function firstOf(apps: readonly BenchApp[]): BenchApp {
  const [app] = apps;
  if (app === undefined) throw new Error('There is no app.');
  return app;
}

/** Stores events of now with a declared field, once an attack. @returns their app */
async function storeFresh({ bench, port, apps, freshBatches }: Attacker): Promise<BenchApp> {
  const app = firstOf(apps);
  const [declared] = await bench.sql`SELECT FROM declared_fields WHERE app_id = ${app.id}`;
  if (declared === undefined)
    await declareField(bench.sql, {
      appId: app.id,
      path: [FIELD],
      kind: 'value',
      typeName: null,
      backfill: false,
    });
  const events = Array.from({ length: BATCH_EVENTS }, (_, n) => ({
    typeName: 'page viewed',
    payload: { [FIELD]: ['placed', 'paid', 'packed', 'shipped'][n % 4], n },
  }));
  const { path, headers = {}, body = '' } = postBatch(app, events);
  for (let batch = 0; batch < freshBatches; batch += 1) {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...headers },
      body,
    });
    if (!answer.ok) throw new Error(`Fresh events were refused: ${answer.status} ${await answer.text()}`);
  }
  return app;
}

/** What the innocent do, each kind by a generator of its own. */
const KINDS = ['writes', 'reads', 'sign-ins'] as const;
type Kind = (typeof KINDS)[number];

interface Innocents {
  readonly apps: readonly BenchApp[];
  readonly jobs: (port: number, seconds: number) => Readonly<Record<Kind, LoadJob>>;
}

async function makeInnocents(bench: Workbench): Promise<Innocents> {
  const apps: BenchApp[] = [];
  const tokens: string[] = [];
  const emails: string[] = [];
  for (let index = 0; index < INNOCENTS; index += 1) {
    const app = await bench.makeApp(`innocent ${index}`);
    const schema = { type: 'object' };
    await setTypeSchema(bench.sql, PROVEN, { ...app, schema, mode: 'refuse' });
    emails.push(await makeOwner(bench, innocentAddress(index), [app]));
    tokens.push(await bench.makeResourceToken([app]));
    apps.push(app);
  }
  const open = { kind: 'open', warmUpSeconds: 0 } as const;
  return {
    apps,
    jobs: (port, seconds) => ({
      writes: {
        ...{ ...open, port, seconds, connections: 64, perSecond: WRITES_PER_SECOND },
        requests: apps.map((app) => createRequest(app, 180)),
      },
      reads: {
        ...{ ...open, port, seconds, connections: 32, perSecond: READS_PER_SECOND },
        requests: apps.map((app, index) => readOf(app, 'events?limit=10', tokens[index] ?? '')),
      },
      'sign-ins': {
        ...{ ...open, port, seconds, connections: 8, perSecond: SIGN_INS_PER_SECOND },
        requests: emails.map((email, index) => ({
          method: 'POST',
          path: '/api/session',
          headers: { 'X-Forwarded-For': `203.0.113.${index + 1}` },
          body: JSON.stringify({ email, password: PASSWORD }),
        })),
      },
    }),
  };
}

/** An account that owns these apps. @returns its address */
async function makeOwner(bench: Workbench, email: string, apps: readonly BenchApp[]): Promise<string> {
  const address = requireEmail(email);
  await createVerifiedUser(bench.sql, new Passwords(), { email: address, password: PASSWORD });
  for (const { appId } of apps) await grantRole(bench.sql, { appId, email: address, role: 'owner' });
  return address.text;
}

/** An account for an attack: each begins with what an account may do in a minute. */
async function makeAttacker(
  bench: Workbench,
  { name, tokens: tokenCount = 0 }: Attack,
): Promise<Omit<Attacker, 'port' | 'freshBatches' | 'receivers'>> {
  const apps = await bench.makeApps(ATTACKER_APPS, name);
  const email = await makeOwner(bench, `${name.replaceAll(' ', '-')}@example.org`, apps);
  const [owner] = await bench.sql<{ id: number }[]>`SELECT id FROM users WHERE email = ${email}`;
  const tokens: string[] = [];
  // Past any ceiling of tokens: they may be older than that.
  while (tokens.length < tokenCount) tokens.push(await bench.makeResourceToken(apps.slice(0, 1)));
  await bench.sql`UPDATE resource_tokens SET created_by = ${owner?.id ?? null}
                   WHERE id IN (SELECT token_id FROM resource_token_apps WHERE app_id = ${apps[0]?.id ?? 0})`;
  return {
    bench,
    apps,
    email,
    tokens,
    seedApps: async (count) => {
      const seeded = await bench.installation.seedApps(count, 'attacker, more');
      await bench.sql`
        INSERT INTO app_members (app_id, user_id, role)
        SELECT id, ${owner?.id ?? 0}, 'owner' FROM unnest(${seeded.map(({ id }) => id)}::integer[]) AS seeded (id)`;
      return seeded;
    },
  };
}

/** What a time with or without an attack was like. */
interface Spell {
  readonly reports: Readonly<Record<Kind, LoadReport>>;
  /** Null where there was no attack. */
  readonly attack: LoadReport | null;
  /** Statuses of a live feed and of an export that an innocent opened. */
  readonly streams: readonly number[];
  /** Megabytes that the service had in memory. */
  readonly memory: number;
  /** What was sent to innocents' receivers: milliseconds on the way, and how much did not arrive. */
  readonly arrivals: Readonly<Record<Arrival, { readonly ms: readonly number[]; readonly missing: number }>>;
}

/** What innocents are sent. */
const ARRIVALS = ['deliveries', 'mails'] as const;
type Arrival = (typeof ARRIVALS)[number];

/** Watches what innocents are sent in a spell: the events of the first one, and mails of their own alerts. */
async function watchArrivals(
  { sql }: Workbench,
  { apps }: Innocents,
  receivers: Receivers,
): Promise<{ readonly end: () => Promise<Spell['arrivals']> }> {
  const watched = firstOf(apps).id;
  const stored = async (): Promise<number> =>
    await sumOfTable(sql, 'events', [watched]).then(({ events }) => events);
  const [eventsBefore, deliveriesBefore, mailsBefore] = [
    await stored(),
    receivers.deliveries.length,
    receivers.mails.length,
  ];
  let mails = 0;
  const sending = setInterval(() => {
    const index = mails % apps.length;
    mails += 1;
    void tell(sql, apps[index]?.id ?? 0, 'mail', [innocentAddress(index)]);
  }, MAIL_EVERY_MS);
  return {
    end: async () => {
      clearInterval(sending);
      const events = (await stored()) - eventsBefore;
      const missing = (): Record<Arrival, number> => ({
        deliveries: events - (receivers.deliveries.length - deliveriesBefore),
        mails: mails - (receivers.mails.length - mailsBefore),
      });
      const until = performance.now() + ARRIVAL_MS;
      while (performance.now() < until && Object.values(missing()).some((count) => count > 0))
        await new Promise((resolve) => setTimeout(resolve, 100));
      const left = missing();
      return {
        deliveries: { ms: receivers.deliveries.slice(deliveriesBefore), missing: left.deliveries },
        mails: { ms: receivers.mails.slice(mailsBefore), missing: left.mails },
      };
    },
  };
}

/** Two processes that count and send nothing: what an attack costs others by the processors that it and its generator take. */
const BUSY = 'two busy processes';

async function spell(
  service: Pick<Spawned, 'port' | 'pid'>,
  generators: Readonly<Record<Kind | 'attack', LoadGenerator>>,
  innocents: Innocents,
  setting: {
    readonly seconds: number;
    readonly attack: LoadJob | typeof BUSY | null;
    readonly bench: Workbench;
    readonly receivers: Receivers;
  },
): Promise<Spell> {
  const { seconds, attack, bench, receivers } = setting;
  const spinners = attack === BUSY ? startSpinners(LEAD_MS / 1_000 + seconds + TAIL_SECONDS) : null;
  const attacking = attack === null || attack === BUSY ? null : generators.attack.run(attack);
  if (attack !== null) await new Promise((resolve) => setTimeout(resolve, LEAD_MS));
  const jobs = innocents.jobs(service.port, seconds);
  const watch = await watchArrivals(bench, innocents, receivers);
  const [[writes, reads, signIns], streams] = await Promise.all([
    Promise.all(KINDS.map((kind) => generators[kind].run(jobs[kind]))),
    openStreams(jobs.reads),
  ]);
  await spinners?.stop();
  if (writes === undefined || reads === undefined || signIns === undefined)
    throw new Error('A kind is missing.');
  return {
    reports: { writes, reads, 'sign-ins': signIns },
    memory: memoryOf(service.pid).resident,
    arrivals: await watch.end(),
    attack: await attacking,
    streams,
  };
}

const QUIET_TIMEOUT_MS = 60_000;

/** Waits until nothing is left of an earlier attack that waits for its schema checks. */
async function untilQuiet(port: number): Promise<void> {
  const until = performance.now() + QUIET_TIMEOUT_MS;
  while (performance.now() < until) {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    if (/^tidemark_schema_checks_waiting 0$/m.test(text)) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** An innocent opens a live feed and reads an export. */
async function openStreams(job: LoadJob): Promise<readonly number[]> {
  if (!('requests' in job)) return [];
  const [read] = job.requests;
  if (read === undefined) return [];
  const url = `http://127.0.0.1:${job.port}${read.path.replace(/events[?].*/, '')}`;
  const statuses: number[] = [];
  for (const path of ['live', 'export']) {
    const response = await fetch(`${url}${path}`, { headers: { ...read.headers } });
    statuses.push(response.status);
    await response.body?.cancel();
  }
  return statuses;
}

const STATUS: Readonly<Record<Kind, number>> = { writes: 201, reads: 200, 'sign-ins': 200 };

/** Requests that were not answered as they should. */
function refusedOf({ statuses, unanswered, dropped }: LoadReport, kind: Kind): number {
  return answersOf({ statuses } as LoadReport) - (statuses[STATUS[kind]] ?? 0) + unanswered + dropped;
}

/** The 99th percentile. */
function highest(ms: readonly number[]): number {
  const sorted = [...ms].sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Number.NaN;
}

const p99 = (all: readonly Spell[], kind: Kind): number[] =>
  all.map(({ reports }) => reports[kind].latency?.p99 ?? Number.NaN);

function addAttack(
  findings: Findings,
  name: string,
  spells: readonly Spell[],
  alone: readonly Spell[],
): void {
  for (const kind of KINDS) {
    findings.figure(`${name}: ${kind}, p99`, 'ms', p99(spells, kind));
    findings.ratio(`${name}: ${kind}, p99 to alone`, pairwise(p99(spells, kind), p99(alone, kind)), P99_GOAL);
    const refused = spells.map(({ reports }) => refusedOf(reports[kind], kind));
    findings.goal(`${name}: ${kind} refused`, '', Math.max(...refused), NO_REFUSAL);
  }
  for (const what of ARRIVALS) {
    const p99Of = (all: readonly Spell[]): number[] => all.map(({ arrivals }) => highest(arrivals[what].ms));
    findings.figure(`${name}: ${what}, p99`, 'ms', p99Of(spells));
    findings.ratio(`${name}: ${what}, p99 to alone`, pairwise(p99Of(spells), p99Of(alone)), P99_GOAL);
    const missing = spells.map(({ arrivals }) => arrivals[what].missing);
    findings.goal(`${name}: ${what} missing`, '', Math.max(...missing), NO_REFUSAL);
  }
  const streams = spells.flatMap((one) => one.streams.filter((status) => status !== 200));
  findings.goal(`${name}: feeds and exports refused`, '', streams.length, NO_REFUSAL);
  const memory = spells.map((one) => one.memory);
  findings.figure(`${name}: memory`, 'MB', memory);
  findings.goal(`${name}: memory`, 'MB', Math.max(...memory), MEMORY_GOAL_MB);
  const attacks = spells.flatMap(({ attack }) => attack ?? []);
  findings.figure(
    `${name}: attacker's answers`,
    '',
    attacks.map((report) => answersOf(report)),
  );
  findings.figure(
    `${name}: attacker's refusals`,
    '',
    attacks.map((report) => answersOf(report, /^[45]/)),
  );
  const [refusal] = attacks.flatMap(({ refusals }) => refusals);
  if (refusal !== undefined) findings.note(`${name}: the attacker is refused with ${refusal}`);
  const reached = attacks.every((report) => answersOf(report) > 0);
  findings.check(`${name}: the attack reached the service`, reached, reached ? 'each time' : 'not each time');
}

/** Measures the innocent beside each attack, and without. */
export const runAccounts: Scenario['run'] = async (bench, findings, options: RunOptions) => {
  const { seconds, rounds, freshBatches } = byLength(options, {
    full: { seconds: 15, rounds: 3, freshBatches: 100 },
    quick: { seconds: 10, rounds: 1, freshBatches: 30 },
    smoke: { seconds: 4, rounds: 1, freshBatches: 2 },
  });
  findings.note(
    `Attacks of one account, limits as they are: ${ATTACKS.map(({ name, about }) => `${name}: ${about}`).join('; ')}. Beside them ${INNOCENTS} accounts, open loop: ${WRITES_PER_SECOND} events, ${READS_PER_SECOND} pages of ten events and ${SIGN_INS_PER_SECOND} sign-in a second. Two busy processes count in a loop and send nothing: what the processors alone take. A refusal has its latency too: it counts beside the number of refusals.`,
  );
  const receivers = bench.keep(await Receivers.open());
  const service = await bench.startService({
    limits: 'kept',
    settings: {
      ...{ TRUST_PROXY: '1', WEBHOOK_ALLOW_PRIVATE: 'true' },
      ...{ SMTP_URL: receivers.urls.mail, PUBLIC_URL },
    },
  });
  const innocents = await makeInnocents(bench);
  await hook(bench, firstOf(innocents.apps), receivers.urls.taking);
  const attackers = new Map<Attack, Attacker>();
  for (const attack of ATTACKS)
    attackers.set(attack, {
      ...(await makeAttacker(bench, attack)),
      ...{ port: service.port, freshBatches, receivers },
    });
  const generators = {
    writes: bench.startGenerator(),
    reads: bench.startGenerator(),
    'sign-ins': bench.startGenerator(),
    attack: bench.startGenerator(),
  };
  const run = async (attack: LoadJob | typeof BUSY | null, time = seconds): Promise<Spell> => {
    await untilQuiet(service.port);
    return await spell(service, generators, innocents, { seconds: time, attack, bench, receivers });
  };
  const warmUp = await run(null, 3);
  const alone: Spell[] = [];
  const busy: Spell[] = [];
  const beside = new Map<string, Spell[]>();
  for (let round = 0; round < rounds; round += 1) {
    alone.push(await run(null));
    busy.push(await run(BUSY));
    for (const [attack, attacker] of attackers) {
      const job = await attack.prepare(attacker, LEAD_MS / 1_000 + seconds + TAIL_SECONDS);
      beside.set(attack.name, [...(beside.get(attack.name) ?? []), await run(job)]);
      // What waits of it is no part of the next spell.
      await bench.sql`DELETE FROM delivery_messages`;
      await bench.sql`UPDATE webhooks SET state = 'paused' WHERE url = ${receivers.urls.slow}`;
      await bench.sql`DELETE FROM alert_rules`;
    }
  }
  const spells = [warmUp, ...alone, ...busy, ...[...beside.values()].flat()];
  const writes = spells.map(({ reports }) => reports.writes);
  if (writes.every(({ unanswered }) => unanswered === 0))
    checkLedger(
      findings,
      'innocents',
      writes,
      await sumOfTable(
        bench.sql,
        'events',
        innocents.apps.map(({ id }) => id),
      ),
    );
  else findings.note('Requests of innocents without an answer: the ledger could not be compared.');
  for (const kind of KINDS) {
    findings.figure(`innocents alone: ${kind}, p99`, 'ms', p99(alone, kind));
    findings.figure(`${BUSY}: ${kind}, p99`, 'ms', p99(busy, kind));
    findings.ratio(`${BUSY}: ${kind}, p99 to alone`, pairwise(p99(busy, kind), p99(alone, kind)));
    const refused = [warmUp, ...alone].map(({ reports }) => refusedOf(reports[kind], kind));
    findings.check(
      `innocents alone: ${kind} are answered ${STATUS[kind]}`,
      refused.every((count) => count === 0),
      `${refused.join(', ')} are not: ${alone[0]?.reports[kind].refusals[0] ?? ''}`,
    );
  }
  for (const [name, all] of beside) addAttack(findings, name, all, alone);
  await service.stop();
};
