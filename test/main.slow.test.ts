import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { tidemark } from './support/command-line.ts';
import { type TestDatabase, testDatabase } from './support/database.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-main-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('on a server', () => {
  let database: TestDatabase;
  let settings: Record<string, string>;
  beforeAll(async () => {
    database = await testDatabase();
    settings = { DATABASE_URL: database.url, DATA_DIR: join(folder, 'server') };
  });
  afterAll(() => database.drop());

  /** The one JSON object that a command prints; standard error stays empty. */
  async function json(...args: string[]): Promise<Record<string, unknown>> {
    const { code, stdout, stderr } = await tidemark([...args, '--json'], settings);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.match(/\n/g)).toHaveLength(1);
    const answer: unknown = JSON.parse(stdout);
    if (typeof answer !== 'object' || answer === null) throw new Error(`no object: ${stdout}`);
    return { ...answer };
  }
  const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const LOGGING_TOKEN = expect.stringMatching(/^tdl_\w{38}$/);
  const RESOURCE_TOKEN = expect.stringMatching(/^tdr_\w{38}$/);

  test('every command answers in the documented shape', async () => {
    const app = await json('app', 'create', '--name', 'Café');
    expect(app).toEqual({ appId: expect.stringMatching(/^app_/), name: 'Café', loggingToken: LOGGING_TOKEN });
    const appId = String(app.appId);
    const other = String((await json('app', 'create', '--name', 'Other')).appId);
    expect(await json('app', 'list')).toEqual({
      apps: [
        { appId, name: 'Café', createdAt: TIME, owners: [] },
        { appId: other, name: 'Other', createdAt: TIME, owners: [] },
      ],
    });
    const rotated = await json('app', 'rotate-token', '--app', appId, '--grace', '0.5');
    expect(rotated).toEqual({ appId, loggingToken: LOGGING_TOKEN, previousValidUntil: TIME });
    expect(rotated.loggingToken).not.toBe(app.loggingToken);

    const type = await json('type', 'create', '--app', appId, '--name', 'login');
    expect(type).toEqual({ typeId: expect.stringMatching(/^typ_/), name: 'login' });
    expect(await json('type', 'list', '--app', appId)).toEqual({ types: [{ ...type, createdAt: TIME }] });

    const token = await json(
      'token',
      'create',
      '--name',
      'R',
      '--app',
      appId,
      '--app',
      other,
      '--expires-in',
      '30d',
    );
    expect(token).toEqual({
      tokenId: expect.stringMatching(/^tok_/),
      resourceToken: RESOURCE_TOKEN,
      expiresAt: TIME,
    });
    const { tokenId } = token;
    expect(await json('token', 'revoke', String(tokenId))).toEqual({ tokenId, revokedAt: TIME });
    expect(await json('token', 'list')).toEqual({
      tokens: [
        {
          tokenId,
          name: 'R',
          appIds: [appId, other],
          createdBy: null,
          createdAt: TIME,
          expiresAt: token.expiresAt,
          revokedAt: TIME,
          lastUsedAt: null,
        },
      ],
    });
    expect(await json('migrate')).toEqual({ applied: [] });
  });

  test('people read aligned columns, in which a name cannot command the terminal', async () => {
    const app = await json('app', 'create', '--name', 'Shop');
    await tidemark(['type', 'create', '--app', String(app.appId), '--name', 'a\u001b[31m\nb'], settings);
    await tidemark(['type', 'create', '--app', String(app.appId), '--name', 'short'], settings);
    const { stdout } = await tidemark(['type', 'list', '--app', String(app.appId)], settings);
    const [head = '', first = '', second = ''] = stdout.split('\n');
    expect(first).toContain('a\\u001b[31m\\u000ab');
    expect(head.indexOf('Created')).toBe(first.indexOf('20', first.indexOf('000ab')));
    expect(head.indexOf('Name')).toBe(second.indexOf('short'));
  });

  test('migrate brings an empty database to the schema, and names the files', async () => {
    const empty = await testDatabase('postgres18', { empty: true });
    try {
      const { stdout } = await tidemark(['migrate', '--json'], { ...settings, DATABASE_URL: empty.url });
      expect(JSON.parse(stdout).applied[0]).toBe('0001_accounts_and_apps.sql');
    } finally {
      await empty.drop();
    }
  });

  test('a command with another SECRET does its work and warns on standard error', async () => {
    await json('app', 'create', '--name', 'First');
    const other = { ...settings, SECRET: 'another secret of more than thirty-two characters' };
    const { code, stdout, stderr } = await tidemark(['app', 'create', '--name', 'Second', '--json'], other);
    expect(code).toBe(0);
    expect(JSON.parse(stdout).name).toBe('Second');
    expect(stderr).toMatch(/^tidemark: SECRET differs from the original one .*\n$/);
  });

  test('a failure is one line on standard error, nothing on standard output, and exit code 2 where what was typed is wrong', async () => {
    const { appId } = await json('app', 'create', '--name', 'Failures');
    await json('type', 'create', '--app', String(appId), '--name', 'there');
    const failures: [string[], Record<string, string>, RegExp][] = [
      [['app', 'create', '--name', ''], {}, /the name must not be empty/],
      [['app', 'create'], {}, /required option '--name <name>'/],
      [['app', 'nonsense'], {}, /unknown command 'app nonsense'/],
      [['app', 'list', '--what'], {}, /unknown option '--what'/],
      [['type', 'list', '--app', 'app_no'], {}, /there is no app with the id "app_no"/],
      [['type', 'create', '--app', String(appId), '--name', 'there'], {}, /already has an event type.*typ_/],
      [
        ['type', 'create', '--app', String(appId), '--name', 'x'],
        { MAX_EVENT_TYPES_PER_APP: '1' },
        /may have, 1/,
      ],
      [['token', 'revoke', 'tok_no'], {}, /there is no resource token with the id "tok_no"/],
      [['token', 'create', '--name', 'a', '--app', String(appId), '--expires-in', '30'], {}, /90m, 12h, 30d/],
      [['token', 'create', '--name', 'a', '--app', String(appId), '--expires-in', '0d'], {}, /90m, 12h, 30d/],
      [['token', 'create', '--name', 'a', '--app', String(appId), '--expires-in', '9999w'], {}, /100 years/],
      [['app', 'rotate-token', '--app', String(appId), '--grace', '-1'], {}, /number of hours/],
      [['app', 'list'], { WORKERS: 'x' }, /WORKERS: must be a whole number/],
      [['app', 'list'], { SECRET: 'short' }, /SECRET: must have at least 32/],
    ];
    const others = [/already has/, /may have, 1/, /WORKERS/, /SECRET/].map(String);
    for (const [args, more, message] of failures) {
      const { code, stdout, stderr } = await tidemark([...args, '--json'], { ...settings, ...more });
      expect({ code, stdout, lines: stderr.split('\n').length }, `${args.join(' ')}: ${stderr}`).toEqual({
        code: others.some((one) => String(message).startsWith(one.slice(0, -1))) ? 1 : 2,
        stdout: '',
        lines: 2,
      });
      expect(stderr).toMatch(/^tidemark: /);
      expect(stderr).toMatch(message);
    }
  });

  test('a server that cannot be used is named without its password, whatever is wrong', async () => {
    const url = new URL(database.url);
    const password = url.password;
    const variant = (change: (changed: URL) => void): string => {
      const changed = new URL(database.url);
      change(changed);
      return changed.href;
    };
    const failures: [string, RegExp][] = [
      [
        variant((to) => (to.port = '1')),
        /127\.0\.0\.1:1\/test_\w+ of DATABASE_URL cannot be reached \(.*ECONNREFUSED/,
      ],
      [variant((to) => (to.hostname = 'nowhere.invalid')), /cannot be reached \(.*ENOTFOUND/],
      [variant((to) => (to.pathname = '/absent')), /does not exist: CREATE DATABASE "absent"/],
      [variant((to) => (to.username = 'nobody')), /does not let the user "nobody" in/],
      [`postgres://tidemark:${password}@[::1/x`, /is no valid URL/],
      [`${database.url.replace(url.host, `${url.host}0`)}`, /is no valid URL|cannot be reached/],
    ];
    for (const [bad, message] of failures) {
      const { code, stdout, stderr } = await tidemark(['app', 'list', '--json'], {
        ...settings,
        DATABASE_URL: bad,
      });
      expect({ code, stdout }, bad).toEqual({ code: 1, stdout: '' });
      expect(stderr).toMatch(message);
      expect(stderr.split('\n')).toHaveLength(2);
      expect(stderr).not.toContain(password);
    }
  });
});

test('a DATA_DIR that cannot be one is a matter of one line', async () => {
  const file = join(folder, 'file');
  await writeFile(file, '');
  const { code, stdout, stderr } = await tidemark(['app', 'list', '--json'], { DATA_DIR: file });
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).toMatch(/^tidemark: DATA_DIR .* is a file: set DATA_DIR to a folder\n$/);
});

test('a new service whose port is taken says so before it makes a database', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const address = other.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const dataDir = join(folder, 'never-made');
  const { code, stderr } = await tidemark(['serve'], { DATA_DIR: dataDir, PORT: String(address.port) });
  other.close();
  expect({ code, stderr }).toEqual({
    code: 1,
    stderr: `tidemark: Port ${address.port} on 127.0.0.1 is in use: stop the process that listens there, or set PORT to another port.\n`,
  });
  expect(existsSync(dataDir)).toBe(false);
});

test('--version prints the version of package.json, --help the commands', async () => {
  expect((await tidemark(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  const { code, stdout } = await tidemark(['--help']);
  expect(code).toBe(0);
  for (const command of ['serve', 'migrate', 'app', 'type', 'token'])
    expect(stdout).toContain(`\n  ${command}`);
});
