/** The configuration of an installation as a file. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { COMMAND_LINE } from '../../src/accounts/log/audit.ts';
import { Passwords } from '../../src/accounts/sign-in/passwords.ts';
import { type ApplyOptions, applyConfig, showConfig } from '../../src/configuration/apply.ts';
import type { AppEntry, ConfigDocument } from '../../src/configuration/document.ts';
import { ConfigMistake, type Path, parseConfig } from '../../src/configuration/parse.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ConsumerStore } from '../../src/storage/feed/consumers.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService, testSecret } from '../support/service.ts';

let service: TestService;
/** Another installation, with its own app alone. */
let empty: TestService;
let folder: string;
/** As a command has: one connection. */
let session: Sql;
let store: ConsumerStore;
let events: EventReader;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tidemark-config-'));
  service = await startTestService();
  empty = await startTestService();
  session = connect(service.database.address, { connections: 1, name: 'test configuration' });
  const storage = await openStorage(session);
  store = new ConsumerStore(storage.engine, session);
  events = storage.reader(session);
});
afterAll(async () => {
  await session.end();
  await service.stop();
  await empty.stop();
  rmSync(folder, { recursive: true });
});

function run(on: TestService, args: readonly string[], input = ''): Promise<Outcome> {
  const settings = { DATABASE_URL: on.database.url, SECRET: 'the secret of the tests, 32 characters' };
  return tidemark(args, settings, input);
}

let files = 0;
function file(content: unknown): string {
  files += 1;
  const path = join(folder, `${files}.yaml`);
  writeFileSync(path, typeof content === 'string' ? content : stringify(content));
  return path;
}

/**
 * Applies a document as the command does, without its process.
 * @param content a text is read as a file is, in a thread; a document is taken as it is
 * @returns its changes, as "action kind name"
 */
async function apply(content: string | object, options: Partial<ApplyOptions> = {}): Promise<string[]> {
  const { changes } = await applyConfig(
    {
      ...{ sql: session, store, events, secret: testSecret, config: service.config },
      ...{ passwords: new Passwords(), by: COMMAND_LINE },
    },
    // Documents of this file are valid: the thread has nothing to say of them.
    typeof content === 'string'
      ? await parseConfig(content)
      : { document: content as ConfigDocument, mistake },
    { dryRun: false, prune: false, deleteEvents: false, ...options },
  );
  return changes.map(({ action, kind, name }) => `${action} ${kind} ${name}`);
}

const mistake = (path: Path, problem: string): ConfigMistake => new ConfigMistake(path, null, problem);

async function appOf(name: string, owner: string): Promise<AppEntry | undefined> {
  const document = await showConfig({ sql: session, store }, null);
  return document?.apps?.find((app) => app.name === name && app.owner === owner);
}

const TABLES =
  'apps event_types type_schemas saved_views app_members users group_mappings audit_entries logging_tokens ' +
  'redaction_rules retention_rules webhooks';

/** Every version of every row of tables that nothing else writes to meanwhile: any write changes it. */
async function versions(): Promise<unknown[]> {
  return await Promise.all(
    TABLES.split(' ').map(
      (table) =>
        service.sql`SELECT ctid::text, xmin::text, xmax::text FROM ${service.sql(table)} ORDER BY ctid`,
    ),
  );
}

const SHOP = {
  name: 'Shop',
  owner: 'ann@config.example',
  limits: { bytesPerDay: 1_000_000, types: 50 },
  retention: 30,
  types: [
    { name: 'purchase', schema: { type: 'object', required: ['amount'] }, schemaMode: 'refuse' },
    {
      name: 'noise',
      hidden: true,
      annotation: true,
      retention: 'forever',
      redact: [
        { path: 'card.number', action: 'mask' },
        { path: 'user', action: 'hmac' },
      ],
    },
  ],
  fields: [
    { path: 'amount', kind: 'number', by: 'country', type: 'purchase' },
    { path: 'country', kind: 'value' },
    { path: 'user', kind: 'distinct' },
  ],
  views: [{ name: 'Week', search: 'range=7d' }],
  members: [
    { email: 'ben@config.example', role: 'owner' },
    { email: 'cat@config.example', role: 'viewer' },
  ],
  groups: [{ group: 'shop staff', role: 'maintainer' }],
  webhooks: [
    { url: 'https://hooks.example/a', types: ['purchase'], filter: ['amount > 10'], unordered: true },
    { url: 'https://hooks.example/b', events: false, paused: true },
  ],
  alerts: [
    {
      name: 'Too dear',
      rule: { of: 'max', field: 'amount', type: 'purchase', by: 'country', window: '1h', above: 1_000 },
      timezone: 'Europe/Berlin',
      webhooks: ['https://hooks.example/a', 'https://hooks.example/b'],
      alertmanager: 'https://alerts.example/',
    },
    { name: 'Nothing', rule: { absent: true, window: '2h' }, paused: true },
  ],
};

test('an app that is not in the file goes with --prune, and one that has events only if that is asked for', async () => {
  const shown = async (): Promise<unknown> =>
    JSON.parse((await run(empty, ['show', '--all', '--json'])).stdout);
  expect((await empty.post()).status).toBe(201);
  const document = { apps: [{ name: 'New' }] };
  const refusal = await run(empty, ['apply', file(document), '--prune']);
  expect([refusal.code, refusal.stdout]).toEqual([1, '']);
  expect(refusal.stderr).toMatch(/has events: add it, or have them deleted with --delete-events/);
  expect(await shown()).toMatchObject({ apps: [{ name: 'Test app' }] });
  const done = await run(empty, ['apply', file(document), '--json', '--prune', '--delete-events']);
  expect(JSON.parse(done.stdout)).toMatchObject({
    changes: expect.arrayContaining([expect.objectContaining({ action: 'remove', kind: 'app' })]),
  });
  expect(await shown()).toEqual({ version: 1, apps: [{ name: 'New' }], groups: [] });
});

test('what is applied is shown, is no change the second time, and makes the same on an empty installation', async () => {
  const document = { partial: true, apps: [SHOP], groups: [{ group: 'all staff', role: 'viewer' }] };
  const dry = await run(service, ['apply', file(document), '--dry-run']);
  expect([dry.code, dry.stdout.includes('+ type "purchase" in "Shop"')]).toEqual([2, true]);
  expect(await appOf('Shop', SHOP.owner)).toBeUndefined();

  const done = await run(service, ['apply', file(document)]);
  expect([done.code, done.stderr]).toEqual([0, '']);
  expect(done.stdout).toMatch(/^\+ account "ann@config\.example"\n\+ app "Shop"[\s\S]*\d+ changes made\.\n$/);
  expect(await appOf('Shop', SHOP.owner)).toEqual(SHOP);

  const before = await versions();
  const again = await run(service, ['apply', file(document), '--dry-run']);
  expect([again.code, again.stdout]).toEqual([0, 'No changes.\n']);
  expect(await apply(document)).toEqual([]);
  expect(await versions()).toEqual(before);

  const all = await run(service, ['show', '--all']);
  await empty.sql`DELETE FROM apps`;
  expect((await run(empty, ['apply', '-'], all.stdout)).code).toBe(0);
  expect((await run(empty, ['show', '--all'])).stdout).toBe(all.stdout);
  expect(all.stdout).not.toMatch(/tdl_|whsec|sealed/);
});

test('nothing is removed without --prune; with it, what the file does not have, but for types', async () => {
  const owner = 'prune@config.example';
  const full = { ...SHOP, name: 'Pruned', owner };
  await apply({ partial: true, apps: [full] });
  const little = { name: 'Pruned', owner, types: [{ name: 'noise' }], fields: [{ path: 'country' }] };
  expect(await apply({ partial: true, apps: [little] })).toEqual([]);
  const pruned = await apply({ partial: true, apps: [little] }, { prune: true });
  expect(pruned.sort()).toEqual([
    'remove alert Nothing',
    'remove alert Too dear',
    'remove field amount (number) by country of "purchase"',
    'remove field user (distinct)',
    'remove group shop staff',
    'remove member ben@config.example',
    'remove member cat@config.example',
    'remove redaction card.number of "noise"',
    'remove redaction user of "noise"',
    'remove view Week',
    'remove webhook https://hooks.example/a',
    'remove webhook https://hooks.example/b',
    'update limits Pruned',
    'update retention Pruned',
    'update retention noise',
    'update type noise',
    'update type noise',
  ]);
  expect(await appOf('Pruned', owner)).toEqual({
    name: 'Pruned',
    owner,
    types: [SHOP.types[0], { name: 'noise' }],
    fields: [{ path: 'country', kind: 'value' }],
  });
  const [extra] = await service.sql`SELECT count(*)::int AS left FROM consumers WHERE name LIKE 'whk%'`;
  const [hooks] = await service.sql`SELECT count(*)::int AS left FROM webhooks WHERE sends_events`;
  expect(extra?.left).toBe(hooks?.left);
});

test('an alert that says something else is one change, and its mistakes have their places', async () => {
  const [owner, url] = ['alerts@config.example', 'https://hooks.example/changed'];
  const alert = { name: 'Many', rule: { of: 'count', window: '5m', above: 10 }, webhooks: [url] };
  const app = { name: 'Alerts', owner, webhooks: [{ url }], alerts: [alert] };
  const document = (changed: object) => ({ partial: true, apps: [{ ...app, ...changed }] });
  expect(await apply(document({}))).toContain('create alert Many');
  await service.sql`
    INSERT INTO alert_transitions (public_id, rule_id, series, kind, at, window_from, window_to)
    SELECT 'said before', id, '', 'firing', now(), now(), now() FROM alert_rules WHERE name = 'Many'`;
  const stored = async (): Promise<Record<string, unknown>> => {
    const [row] = await service.sql`
      SELECT id, public_id, rule, changed_at, is_paused,
             (SELECT count(*)::integer FROM alert_transitions WHERE rule_id = alert_rules.id) AS said
        FROM alert_rules WHERE name = 'Many'`;
    return row ?? {};
  };
  const before = await stored();
  expect(before).toMatchObject({ said: 1, changed_at: null });
  const other = { ...alert, rule: { ...alert.rule, above: 20 } };
  expect(await apply(document({ alerts: [other] }))).toEqual(['update alert Many']);
  // It keeps its id and what it has said.
  const { id, public_id } = before;
  const changed = await stored();
  expect(changed).toMatchObject({ id, public_id, said: 1, rule: JSON.stringify(other.rule) });
  expect(changed.changed_at).toBeInstanceOf(Date);
  expect(await apply(document({ alerts: [{ ...other, timezone: 'Europe/Berlin', paused: true }] }))).toEqual([
    'update alert Many',
  ]);
  expect(await stored()).toMatchObject({ id, is_paused: true });
  expect(await apply(document({ alerts: [{ ...other, paused: false }] }))).toEqual(['update alert Many']);
  expect(await apply(document({ alerts: [{ ...other, paused: true }] }))).toEqual(['update alert Many']);
  expect(await apply(document({ alerts: [other] }))).toEqual([]);
  // Another webhook of the same address takes the place of the one that goes, also for the alert.
  const replaced = document({ webhooks: [{ url, unordered: true }], alerts: [other] });
  expect(await apply(replaced, { prune: true })).toEqual([
    `create webhook ${url}`,
    'update alert Many',
    `remove webhook ${url}`,
  ]);
  expect(await apply(replaced, { prune: true })).toEqual([]);
  for (const [wrong, where] of [
    [
      { alerts: [{ ...alert, rule: { of: 'cuont', window: '5m', above: 1 } }] },
      /\/apps\/0\/alerts\/0\/rule\/of must be one of/,
    ],
    [
      { alerts: [{ ...alert, webhooks: ['https://hooks.example/none'] }] },
      /\/apps\/0\/alerts\/0\/webhooks\/0 is not the address/,
    ],
    [
      { alerts: [{ ...alert, emails: ['a@example.com'] }] },
      /\/apps\/0\/alerts\/0\/emails need a mail server/,
    ],
    [{ alerts: [{ ...alert, timezone: 'Mars' }] }, /\/apps\/0\/alerts\/0\/timezone must be the name/],
    [
      { types: [{ name: 'a', redact: [{ path: 'a..b', action: 'mask' }] }] },
      /\/apps\/0\/types\/0\/redact\/0\/path is wrong/,
    ],
    [
      { types: [{ name: 'a', redact: [{ path: 'a', action: 'hide' }] }] },
      /redact\/0\/action must be drop or mask or hmac/,
    ],
  ] as const)
    await expect(apply(stringify(document(wrong)))).rejects.toThrow(where);
});

test('an alert that is judged before its late events are there is warned of in the plan', async () => {
  const { app, type } = service;
  await service.sql`
    INSERT INTO late_events (type_id, hour, up_to, events, minutes)
    SELECT id, date_trunc('hour', now()), 7, 10, 1023 FROM event_types WHERE public_id = ${type.typeId}`;
  const rule = { absent: true, type: type.name, window: '5m' };
  const [{ name } = { name: '' }] = await service.sql<{ name: string }[]>`
    SELECT name FROM apps WHERE public_id = ${app.appId}`;
  const alerts = [
    { name: 'Late', rule },
    { name: 'In time', rule: { ...rule, delay: '7m' } },
  ];
  const path = file({ partial: true, apps: [{ name, alerts }] });
  const planned = await run(service, ['apply', path, '--dry-run', '--json']);
  expect(JSON.parse(planned.stdout).warnings).toEqual([
    { app: name, alert: 'Late', warning: expect.stringContaining('Give it "delay":"7m".') },
  ]);
  const { code, stdout } = await run(service, ['apply', path]);
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^! alert "Late" in ".*": In the last day/m)]);
  expect(JSON.parse((await run(service, ['apply', path, '--json'])).stdout)).toMatchObject({ warnings: [] });
  const ids = JSON.parse((await run(service, ['alert', 'list', '--app', app.appId, '--json'])).stdout) as {
    alerts: { alertId: string }[];
  };
  for (const { alertId } of ids.alerts) await run(service, ['alert', 'remove', alertId]);
});

test('an app is its name and its owner: apps of others are not touched, and a rename says the earlier name', async () => {
  const person = await newPerson(service, 'other@config.example');
  const foreign = await newOwnApp(person, 'Same name');
  const owner = 'mine@config.example';
  expect(await apply({ partial: true, apps: [{ name: 'Same name', owner }] })).toEqual([
    `create account ${owner}`,
    'create app Same name',
  ]);
  await expect(apply(stringify({ apps: [{ name: 'Same name' }] }))).rejects.toThrow(
    /line 2: \/apps\/0\/name may mean 2 apps: add "owner"/,
  );
  const renamed = { name: 'Renamed', renamedFrom: 'Same name', owner };
  const types = [{ name: 'new', renamedFrom: 'old' }];
  await apply({
    partial: true,
    apps: [{ name: 'Same name', owner, types: [{ name: 'old' }], fields: [{ path: 'a', type: 'old' }] }],
  });
  const withType = { ...renamed, types, fields: [{ path: 'a', type: 'new' }] };
  expect(await apply({ partial: true, apps: [withType] }, { prune: true })).toEqual([
    'update app Renamed',
    'update type new',
  ]);
  expect(await apply({ partial: true, apps: [withType] })).toEqual([]);
  expect((await person.get(foreign.path)).data).toMatchObject({ name: 'Same name' });
});

test('what is wrong is refused with its line and its place, and nothing is changed', async () => {
  const wrong: readonly [what: string, text: string, message: RegExp][] = [
    [
      'a misspelled key',
      'apps:\n  - name: A\n    typs: []\n',
      /line 3: \/apps\/0\/typs is not known: did you mean types\?$/,
    ],
    [
      'a wrong value',
      'apps:\n  - name: A\n    fields:\n      - path: a\n        kind: numbr\n',
      /line 5: \/apps\/0\/fields\/0\/kind must be value or number or distinct$/,
    ],
    ['no YAML', 'apps:\n  - name: "A\n', /line \d: the document is not valid: Missing closing/],
    ['a key twice', 'apps: []\napps: []\n', /line 2: the document is not valid: Map keys must be unique$/],
    ['JSON', '{\n "apps": [\n  {"name": "A",\n   "x": 1}\n ]\n}', /line 4: \/apps\/0\/x is not known/],
    [
      'a name twice',
      'apps:\n  - name: A\n    types:\n      - name: a\n      - name: a\n',
      /line 5: \/apps\/0\/types\/1 repeats "a"$/,
    ],
    [
      'an unknown type',
      'apps:\n  - name: A\n    fields: [{path: a, type: b}]\n',
      /line 3: \/apps\/0\/fields\/0\/type names no event type of the app: "b"$/,
    ],
    [
      'a private webhook',
      'apps:\n  - name: A\n    webhooks: [{url: "http://127.0.0.1/"}]\n',
      /line 3: \/apps\/0\/webhooks\/0 is refused: .*WEBHOOK_ALLOW_PRIVATE/,
    ],
    [
      'a schema that does not compile',
      'apps:\n  - name: A\n    types:\n      - name: a\n        schema: {type: nonsense}\n',
      /line 5: \/apps\/0\/types\/0\/schema cannot be used/,
    ],
    ['nothing', '', /^the document must be an object$/],
    ['two documents', 'version: 1\n---\nversion: 1\n', /line 2: .*must be one document, and another begins/],
  ];
  const before = await versions();
  for (const [what, text, message] of wrong) await expect(apply(text), what).rejects.toThrow(message);
  const [, text, message] = wrong[0] ?? ['', '', /^$/];
  const outcome = await run(service, ['apply', file(text)]);
  expect([outcome.code, outcome.stdout]).toEqual([1, '']);
  expect(outcome.stderr.replace('.yaml:', 'line ').trimEnd()).toMatch(message);
  expect(await versions()).toEqual(before);
});

test('a step that fails leaves no part of its app, keeps the apps before it, and says which these are', async () => {
  const many = Array.from({ length: 33 }, (_, index) => ({ path: `field${index}` }));
  const owner = 'half@config.example';
  const document = {
    partial: true,
    apps: [
      { name: 'First half', owner },
      { name: 'Second half', owner, types: [{ name: 'a' }], fields: many },
    ],
  };
  const outcome = await run(service, ['apply', file(document)]);
  expect(outcome.code).toBe(1);
  expect(outcome.stderr).toMatch(/field "field32" in "Second half" failed: an app may have 32 fields/);
  expect(outcome.stderr).toMatch(
    /\(2 of 37 changes were made, and stay; done before it: \+ account .*; \+ app "First half"/,
  );
  expect(await appOf('First half', owner)).toEqual({ name: 'First half', owner });
  expect(await appOf('Second half', owner)).toBeUndefined();
});

test('a thousand objects take few transactions, and are no change the second time', async () => {
  const apps = Array.from({ length: 20 }, (_, app) => ({
    name: `Many ${app}`,
    owner: `many${app % 3}@config.example`,
    types: Array.from({ length: 30 }, (_, index) => ({ name: `type ${index}` })),
    fields: Array.from({ length: 10 }, (_, index) => ({ path: `field${index}` })),
    views: Array.from({ length: 10 }, (_, index) => ({ name: `view ${index}`, search: `range=${index}d` })),
  }));
  const commits = async (): Promise<number> => {
    const [row] = await service.sql`SELECT count(DISTINCT xmin::text)::int AS count FROM saved_views`;
    return Number(row?.count);
  };
  const before = await commits();
  expect(await apply({ partial: true, apps })).toHaveLength(20 * 51 + 3);
  expect((await commits()) - before).toBe(20);
  expect(await apply({ partial: true, apps })).toEqual([]);
});

test('one app is shown as a document that leaves the others alone', async () => {
  const { stdout } = await run(service, ['show', '--app', service.app.appId]);
  const document = parse(stdout) as { partial: boolean; apps: object[] };
  expect([document.partial, document.apps.length]).toEqual([true, 1]);
  expect(await apply(document, { prune: true })).toEqual([]);
  expect((await run(service, ['show', '--app', 'app_00000000000000000000'])).code).toBe(2);
  expect((await run(service, ['show'])).stderr).toMatch(/--all, or one app with --app/);
});
