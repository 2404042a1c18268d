import type { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commandLine } from '../../src/cli/command-line.ts';
import { openDemoApp } from '../../src/cli/demo/demo-app.ts';
import { codeAt } from '../support/authenticator.ts';
import { type Outcome, tidemark as run } from '../support/command-line.ts';
import { isLong, sized } from '../support/fuzz.ts';
import { openMailbox } from '../support/mailbox.ts';
import { newOwnApp, newPerson, PASSWORD, Person } from '../support/person.ts';
import { startTestService, type TestService, testSecret } from '../support/service.ts';

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.stop());

/** Runs a command on the service's database, with this on its standard input. */
const tidemark = (
  args: readonly string[],
  input = '',
  further: Readonly<Record<string, string>> = {},
): Promise<Outcome> => {
  const settings = {
    DATABASE_URL: service.database.url,
    SECRET: 'the secret of the tests, 32 characters',
    PUBLIC_URL: 'https://events.example.com',
    ...further,
  };
  return run(args, settings, input);
};
const json = (outcome: Outcome): Record<string, unknown> => {
  expect(outcome.stderr).toBe('');
  return JSON.parse(outcome.stdout);
};

test('an account is made with a password from standard input, owns an app of the command line, and grants are noted', async () => {
  const email = 'operator@example.com';
  const made = json(
    await tidemark(['user', 'create', '--email', email, '--password-stdin', '--json'], `${PASSWORD}\n`),
  );
  expect(made).toEqual({ userId: expect.stringMatching(/^usr_/), email });
  const person = await new Person(service).signIn(email);
  expect((await person.get('/api/session')).data.user).toMatchObject({ emailVerified: true });

  const app = json(await tidemark(['app', 'create', '--name', 'Shop', '--owner', email, '--json']));
  expect((await person.get(`/api/apps/${app.appId}`)).data).toMatchObject({ name: 'Shop', role: 'owner' });

  const helper = await newPerson(service, 'helper@example.com');
  const grant = ['app', 'grant', '--app', String(app.appId), '--email', 'Helper@example.com', '--role'];
  expect(json(await tidemark([...grant, 'maintainer', '--json']))).toMatchObject({ role: 'maintainer' });
  expect((await helper.get(`/api/apps/${app.appId}`)).data.role).toBe('maintainer');
  const { entries } = (await person.get(`/api/apps/${app.appId}/audit`)).data as {
    entries: { actor: string; action: string }[];
  };
  expect(entries.map(({ actor, action }) => [actor, action])).toEqual([
    ['command line', 'member.add'],
    ['command line', 'app.create'],
  ]);

  const sole = ['app', 'grant', '--app', String(app.appId), '--email', email, '--role', 'maintainer'];
  expect(await tidemark(sole)).toMatchObject({ code: 1, stdout: '' });
  expect((await tidemark(['user', 'list'])).stdout).toMatch(/helper@example\.com +yes/);
}, 60_000);

test('the first account owns what nobody owns, and the commands say who sees an app', async () => {
  const own = await startTestService();
  const settings = {
    DATABASE_URL: own.database.url,
    SECRET: 'the secret of the tests, 32 characters',
    PORT: String(own.port),
  };
  try {
    const first = await run(['app', 'create', '--name', 'Before'], settings);
    expect(first.stdout).toContain('nobody yet: the first account of the dashboard will own it');
    const email = 'first@example.com';
    const made = await run(['user', 'create', '--email', email, '--password-stdin'], settings, PASSWORD);
    expect(made).toMatchObject({ code: 0 });
    const person = await new Person(own).signIn(email);
    expect((await person.get(`/api/apps/${own.app.appId}`)).data).toMatchObject({ role: 'owner' });
    const [, appId = ''] = /^App +(app_\w+)/m.exec(first.stdout) ?? [];
    expect((await person.get(`/api/apps/${appId}`)).data).toMatchObject({ role: 'owner' });

    const later = await run(['app', 'create', '--name', 'Later'], settings);
    expect(later.stdout).toMatch(/nobody, so no account sees it: tidemark app grant --app app_\w+ --email/);
    await run(['user', 'create', '--email', 'second@example.com', '--password-stdin'], settings, PASSWORD);
    const { apps } = JSON.parse((await run(['app', 'list', '--json'], settings)).stdout) as {
      apps: { name: string; owners: string[] }[];
    };
    expect(apps.slice(-2).map(({ name, owners }) => [name, owners])).toEqual([
      ['Before', [email]],
      ['Later', []],
    ]);
    expect((await run(['app', 'list'], settings)).stdout).toMatch(/Owners[\s\S]*Before +first@example\.com/);
  } finally {
    await own.stop();
  }
});

test('the demo belongs to the only account, also when that comes later or its email is not verified', async () => {
  const own = await startTestService({ config: { ALLOW_SIGNUP: 'open' } });
  const ownerOf = async (appId: string): Promise<string[]> => {
    const rows = await own.sql<{ email: string }[]>`
      SELECT email FROM app_members JOIN users ON users.id = user_id JOIN apps ON apps.id = app_id
       WHERE apps.public_id = ${appId} AND role = 'owner'`;
    return rows.map(({ email }) => email);
  };
  try {
    const secret = await testSecret();
    const { appId, isNew } = await openDemoApp(own.sql, secret, null);
    expect([isNew, await ownerOf(appId)]).toEqual([true, []]);
    const [one, two] = [new Person(own), new Person(own)];
    await one.post('/api/users', { email: 'one@example.com', password: PASSWORD });
    expect(await openDemoApp(own.sql, secret, null)).toMatchObject({ appId, isNew: false });
    expect(await ownerOf(appId)).toEqual(['one@example.com']);
    expect((await one.get(`/api/apps/${appId}`)).data).toMatchObject({ role: 'owner' });
    // A second account changes nothing for an app that has its owner; a new one is nobody's to guess.
    await two.post('/api/users', { email: 'two@example.com', password: PASSWORD });
    await own.sql`DELETE FROM installation WHERE name = 'demo app'`;
    await expect(openDemoApp(own.sql, secret, null)).rejects.toThrow(/name the one .* with --owner/);
  } finally {
    await own.stop();
  }
});

test('a second factor is removed and its owner is told; the audit log is exported in lines', async () => {
  const mailbox = await openMailbox();
  const email = 'lost-phone@example.com';
  const person = await newPerson(service, email);
  const { appId } = await newOwnApp(person);
  const { data } = await person.post('/api/second-factor', { password: PASSWORD });
  const code = codeAt(String(data.secret), Date.now());
  expect((await person.post('/api/second-factor/confirmation', { code })).status).toBe(200);
  expect((await tidemark(['user', 'list'])).stdout).toMatch(/lost-phone@example\.com +yes +yes/);
  const settings = { SMTP_URL: mailbox.url };
  const remove = ['user', 'remove-second-factor', '--email', email];
  expect(json(await tidemark([...remove, '--json'], '', settings))).toMatchObject({
    email,
    secondFactor: false,
  });
  expect((await new Person(service).signIn(email)).cookie).not.toBe('');
  expect(mailbox.notices.map(({ to, text }) => [to, /Subject: (.*)/.exec(text)?.[1]])).toEqual([
    [email, 'Second factor removed'],
  ]);
  expect(await tidemark(remove)).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('no second factor'),
  });
  const rotate = ['app', 'rotate-token', '--app', appId, '--json'];
  json(await tidemark(rotate, '', settings));
  expect(mailbox.notices.at(-1)).toMatchObject({
    to: email,
    text: expect.stringContaining('By: command line'),
  });
  await mailbox.close();
  // A mail server that is gone changes nothing but a line on standard error.
  expect(await tidemark(rotate, '', settings)).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('mail: '),
  });

  const exported = async (...options: string[]): Promise<Record<string, unknown>[]> => {
    const { stdout, code } = await tidemark(['audit', 'export', '-', ...options]);
    expect(code).toBe(0);
    return stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line));
  };
  const ofApp = await exported('--app', appId);
  expect(ofApp.map(({ action, actor }) => [action, actor])).toEqual([
    ['app.create', email],
    ['logging-token.rotate', 'command line'],
    ['logging-token.rotate', 'command line'],
  ]);
  const all = await exported();
  expect(all.filter(({ appId: app }) => app === appId)).toEqual(ofApp);
  const { userId } = (await person.get('/api/session')).data.user as { userId: string };
  expect(all.filter((entry) => entry.userId === userId).map(({ action }) => action)).toEqual([
    'sign-in.new-device',
    'second-factor.enable',
    'second-factor.remove',
  ]);
  const [first, ...others] = ofApp;
  expect(await exported('--app', appId, '--after', String(first?.entryId))).toEqual(others);
  expect(await exported('--app', appId, '--to', '2020-01-01')).toEqual([]);
  expect(await tidemark(['audit', 'export', '-', '--app', 'app_none'])).toMatchObject({
    code: 2,
    stdout: '',
  });
}, 60_000);

describe('an account that has not verified its email', () => {
  /** Registered by whoever came first, with an app to be given to it. */
  const squatted = async (name: string): Promise<{ email: string; squatter: Person; appId: string }> => {
    const email = `${name}@example.com`;
    const squatter = await newPerson(service, email);
    await service.sql`UPDATE users SET email_verified_at = NULL WHERE email = ${email}`;
    const { appId } = await service.newApp();
    return { email, squatter, appId };
  };
  const grant = (appId: string, email: string): string[] => [
    ...['app', 'grant', '--app', appId, '--email', email, '--role', 'owner'],
  ];

  test('is granted nothing and owns no new app, with an explanation', async () => {
    const { email, squatter, appId } = await squatted('boss');
    for (const command of [grant(appId, email), ['app', 'create', '--name', 'Real', '--owner', email]]) {
      const { code, stdout, stderr } = await tidemark(command);
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toContain('is not verified');
      expect(stderr).toContain(`tidemark user verify --email ${email}`);
      expect(stderr).toContain('--allow-unverified');
      expect(stderr.trim().split('\n')).toHaveLength(1);
    }
    expect((await squatter.get('/api/apps')).data.apps).toEqual([]);
    expect(await service.sql`SELECT FROM apps WHERE name = 'Real'`).toHaveLength(0);
  }, 60_000);

  test('is granted and owns what the operator says with --allow-unverified, and stays unverified', async () => {
    const { email, squatter, appId } = await squatted('colleague');
    json(await tidemark([...grant(appId, email), '--allow-unverified', '--json']));
    json(
      await tidemark(['app', 'create', '--name', 'Theirs', '--owner', email, '--allow-unverified', '--json']),
    );
    const { apps } = (await squatter.get('/api/apps')).data as { apps: { name: string; role: string }[] };
    expect(apps.map(({ name, role }) => [name, role])).toEqual([
      ['Test app', 'owner'],
      ['Theirs', 'owner'],
    ]);
    expect((await squatter.get('/api/session')).data.user).toMatchObject({ emailVerified: false });
  }, 60_000);

  test('is verified by the operator, or by the link that the operator hands over, which says so', async () => {
    const { email, squatter, appId } = await squatted('known');
    expect(json(await tidemark(['user', 'verify', '--email', email, '--json']))).toMatchObject({
      email,
      emailVerified: true,
    });
    expect((await squatter.get('/api/session')).data.user).toMatchObject({ emailVerified: true });
    json(await tidemark([...grant(appId, email), '--json']));

    const other = await squatted('other');
    const { stdout } = await tidemark(['user', 'reset-password', '--email', other.email]);
    expect(stdout).toContain('is not verified');
    const token = /\/password-reset\/([\w-]{43})/.exec(stdout)?.[1];
    await other.squatter.post(`/api/password-resets/${token}`, { password: 'a better password' });
    expect((await other.squatter.get('/api/session')).data.user).toBeNull();
    const rightful = await new Person(service).signIn(other.email, 'a better password');
    expect((await rightful.get('/api/session')).data.user).toMatchObject({ emailVerified: true });
  }, 60_000);
});

test('a password is reset by a link that is printed', async () => {
  const email = 'forgetful@example.com';
  const person = await newPerson(service, email);
  const { link } = json(await tidemark(['user', 'reset-password', '--email', email, '--json']));
  const token = /^https:\/\/events\.example\.com\/password-reset\/([\w-]{43})$/.exec(String(link))?.[1];
  expect((await person.post(`/api/password-resets/${token}`, { password: 'a better password' })).status).toBe(
    200,
  );
  expect((await person.get('/api/session')).data.user).toBeNull();
  await person.signIn(email, 'a better password');
});

test.each([
  [
    'an email that is taken',
    ['user', 'create', '--email', 'Taken@example.com', '--password-stdin'],
    'there is already an account',
  ],
  ['a common password', ['user', 'create', '--email', 'a@example.com', '--password-stdin'], 'most common'],
  ['no address', ['user', 'create', '--email', 'nobody', '--password-stdin'], 'not valid'],
  ['an unknown account', ['user', 'reset-password', '--email', 'nobody@example.com'], 'there is no account'],
  [
    'an unknown owner',
    ['app', 'create', '--name', 'x', '--owner', 'nobody@example.com'],
    'there is no account',
  ],
  [
    'an unknown app',
    ['app', 'grant', '--app', 'app_x', '--email', 'taken@example.com', '--role', 'owner'],
    'there is no app',
  ],
  [
    'an unknown role',
    ['app', 'grant', '--app', 'app_x', '--email', 'taken@example.com', '--role', 'king'],
    'role must be',
  ],
])('%s is refused in one line', async (_name, args, reason) => {
  const [{ taken } = { taken: false }] = await service.sql<{ taken: boolean }[]>`
    SELECT EXISTS (SELECT FROM users WHERE email = 'taken@example.com') AS taken`;
  if (!taken) await newPerson(service, 'taken@example.com');
  const { code, stdout, stderr } = await tidemark(
    args,
    args.includes('a@example.com') ? 'password1' : PASSWORD,
  );
  expect([code, stdout]).toEqual([reason === 'there is already an account' ? 1 : 2, '']);
  expect(stderr).toContain(reason);
  expect(stderr.trim().split('\n')).toHaveLength(1);
});

test('a browser key is made for named types and origins, listed with what it is, and revoked', async () => {
  const app = json(await tidemark(['app', 'create', '--name', 'Site', '--json']));
  const create = ['token', 'create', '--kind', 'browser', '--app', String(app.appId)];
  const types = ['--type', 'view', 'click', '--type', 'buy'];
  const made = json(await tidemark([...create, ...types, '--origin', 'https://shop.example', '--json']));
  expect(made).toEqual({
    tokenId: expect.stringMatching(/^tok_/),
    browserKey: expect.stringMatching(/^tdb_[0-9A-Za-z]{38}$/),
    ...{ name: 'https://shop.example', appId: app.appId },
    ...{ types: ['view', 'click', 'buy'], origins: ['https://shop.example'] },
  });
  const { tokens } = json(await tidemark(['token', 'list', '--json'])) as { tokens: { tokenId: string }[] };
  expect(tokens.find(({ tokenId }) => tokenId === made.tokenId)).toMatchObject({
    ...{ kind: 'browser', types: ['view', 'click', 'buy'], browserKey: made.browserKey, revokedAt: null },
  });
  expect((await tidemark(['token', 'list'])).stdout).toMatch(/^tok_\w+ +browser +https:\/\/shop\.example /m);
  const first = json(await tidemark(['token', 'revoke', String(made.tokenId), '--json']));
  expect(json(await tidemark(['token', 'revoke', String(made.tokenId), '--json']))).toEqual(first);

  for (const [args, message] of [
    [['--origin', 'https://shop.example'], /needs the types/],
    [['--type', 'view', '--origin', 'https://shop.example/cart'], /has a path/],
    [['--type', 'view', '--origin', 'https://*.example'], /wildcard/],
    [['--type', 'view', '--origin', 'http://shop.example'], /must begin with https/],
    [['--type', 'view', '--expires-in', '30d'], /does not expire/],
    [['--type', 'view', '--app', 'app_other'], /one app/],
    [['--type', ''], /must not be empty/],
  ] as const)
    expect(await tidemark([...create, ...args])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(message),
    });
  const resource = ['token', 'create', '--app', String(app.appId)];
  expect(await tidemark(resource)).toMatchObject({ code: 2, stderr: expect.stringMatching(/needs a name/) });
  const mixed = [...resource, '--name', 'a', '--origin', 'https://shop.example'];
  expect(await tidemark(mixed)).toMatchObject({ code: 2, stderr: expect.stringMatching(/--kind browser/) });
});

/** What options and arguments may be, where a test is not about them. */
const RIGHT: Readonly<Record<string, string>> = {
  ...{ '--name': 'x', '--email': 'nobody@example.com', '--role': 'viewer', '--type': 'x', '--path': 'a' },
  ...{ '--action': 'drop', '--filter': 'a:1', '--days': '3', '--url': 'https://example.com', '--group': 'g' },
  ...{
    '--rule': '{"absent":true,"type":"x","window":"5m"}',
    '--timezone': 'Europe/Berlin',
    '--subject': 's',
  },
  ...{ '--from': '2026-01-01', '--to': 'now', '--file': 'package.json', file: 'package.json', id: 'nothing' },
  ...{ day: '2026-01-01', address: 'a@example.com' },
};
/** What they cannot be in any command. */
const WRONG: Readonly<Record<string, string>> = {
  ...{
    '--grace': 'soon',
    '--create-per-minute': 'x',
    '--bytes-per-day': '-1',
    '--types': '0.5',
    '--kind': 'any',
  },
  ...{
    '--mode': 'any',
    '--action': 'any',
    '--limit': 'x',
    '--days': '0',
    '--expires-in': '30',
    '--scope': 'all',
  },
  ...{ '--format': 'any', '--formulas': 'any', '--separator': 'any', '--texts': 'any', '--after': 'x' },
  ...{
    '--filter': 'n>',
    '--path': 'a..b',
    '--by': 'a..b',
    '--rule': '{',
    '--delay': 'soon',
    '--timezone': 'Here',
  },
  ...{
    '--from': 'yesterday',
    '--to': 'tomorrow',
    '--expires': 'soon',
    '--role': 'king',
    '--url': 'nonsense',
  },
  ...{
    '--name': '',
    '--origin': 'nonsense',
    '--alertmanager': 'nonsense',
    '--email': 'nobody',
    day: '2026-02-30',
  },
};
/** Further options without which those of a command are refused. */
const FURTHER: Readonly<Record<string, readonly string[]>> = {
  'alert test': ['--app', '--rule'],
  'token create': ['--app', '--type', '--kind'],
};
/** Commands that ask a server, a file or a journal before they look at the app, or that have no value of their own. */
const OTHERS = [
  'serve',
  'copy',
  'restore',
  'backup',
  'demo',
  'journal',
  'apply',
  'man',
  'completion',
  'complete',
];

interface Typed {
  readonly path: readonly string[];
  readonly names: readonly string[];
  readonly needed: readonly string[];
}

function typedCommands(): Typed[] {
  const walk = (command: Command, path: readonly string[]): Typed[] => {
    if (OTHERS.includes(path[0] ?? '')) return [];
    if (command.commands.length > 0)
      return command.commands.flatMap((child) => walk(child, [...path, child.name()]));
    const withValue = command.options.filter(({ required }) => required);
    const operands = command.registeredArguments.map((one) => one.name());
    const mandatory = command.options.filter(({ mandatory }) => mandatory).map(({ long }) => long ?? '');
    return [
      {
        path,
        names: [...operands, ...withValue.map(({ long }) => long ?? '')],
        needed: [...operands, ...mandatory, ...(FURTHER[path.join(' ')] ?? [])],
      },
    ];
  };
  return walk(commandLine(), []);
}

test('what is typed wrong ends every command with exit code 2: an app that is not there, a value that cannot be', async () => {
  const { appId } = json(await tidemark(['app', 'create', '--name', 'Typed', '--json'])) as { appId: string };
  json(await tidemark(['type', 'create', '--app', appId, '--name', 'x', '--json']));
  const settings = { SMTP_URL: 'smtp://127.0.0.1:1', ARCHIVE_URL: 'file:///nowhere' };
  const ending = async ({ path, needed }: Typed, name: string, value: string): Promise<[string, Outcome]> => {
    const given = { ...RIGHT, '--app': appId, '--kind': 'browser', [name]: value };
    const named = [...new Set([...needed, name])];
    const args = named.flatMap((one) => {
      if (one === '--password-stdin') return [one];
      return one.startsWith('--') ? [`${one}=${given[one]}`] : [given[one] ?? ''];
    });
    return [[...path, ...args].join(' '), await tidemark([...path, ...args], '', settings)];
  };
  const ended: [string, Outcome][] = [];
  const tried = new Set<string>();
  for (const [index, command] of typedCommands().entries()) {
    // They find the app in one way: some before a merge, and all at night.
    if (command.names.includes('--app') && index % sized(5, 1) === 0)
      ended.push(await ending(command, '--app', 'app_none'));
    const wrong = command.names.filter((name) => WRONG[name] !== undefined);
    // Each option in one of the commands, and at night one of each command.
    for (const name of wrong.filter(
      (one, index) => (isLong && index === wrong.length - 1) || !tried.has(one),
    )) {
      ended.push(await ending(command, name, WRONG[name] ?? ''));
      tried.add(name);
    }
  }
  expect([...tried].sort()).toEqual(Object.keys(WRONG).sort());
  const others = ended.filter(
    ([, { code, stdout, stderr }]) => code !== 2 || stdout !== '' || !stderr.startsWith('tidemark: '),
  );
  expect(others).toEqual([]);
}, 300_000);
