import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig, roomForBodies } from '../src/config.ts';
import { OperatorError } from '../src/errors.ts';

const PASSWORD = 'p@ss/w:rd%41';

describe('passwords from files', () => {
  let folder: string;
  let file: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tidemark-config-'));
    file = join(folder, 'password');
    await writeFile(file, `${PASSWORD}\n`);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const passwordOf = (url: string): string => decodeURIComponent(new URL(url).password);

  test('become part of addresses that have none, whatever characters they have', () => {
    const { DATABASE_URL, REDIS_URL } = readConfig({
      DATABASE_URL: 'postgres://tidemark@database/tidemark?sslmode=verify-full',
      PGPASSWORD_FILE: file,
      REDIS_URL: 'redis://one:6379,redis://two:6379',
      REDIS_PASSWORD_FILE: file,
    });
    expect(passwordOf(DATABASE_URL)).toBe(PASSWORD);
    expect(new URL(DATABASE_URL)).toMatchObject({ username: 'tidemark', search: '?sslmode=verify-full' });
    const addresses = REDIS_URL.split(',');
    expect(addresses.map(passwordOf)).toEqual([PASSWORD, PASSWORD]);
    expect(addresses.map((address) => new URL(address).host)).toEqual(['one:6379', 'two:6379']);
  });

  test('leave an address as it is that has one, or that is not set', () => {
    const given = { DATABASE_URL: 'postgres://tidemark:own@database/tidemark', REDIS_URL: '' };
    expect(readConfig({ ...given, PGPASSWORD_FILE: file, REDIS_PASSWORD_FILE: file })).toMatchObject(given);
    expect(readConfig({ PGPASSWORD_FILE: '/nowhere' }).DATABASE_URL).toBe('');
  });

  test('that cannot be read, or are empty, are refused by name and without the address', async () => {
    const settings = { DATABASE_URL: 'postgres://tidemark@database/tidemark' };
    const empty = join(folder, 'empty');
    await writeFile(empty, '\n');
    for (const [path, reason] of [
      [join(folder, 'absent'), /^PGPASSWORD_FILE: .*absent cannot be read \(ENOENT\)/],
      [folder, /cannot be read \(EISDIR\)/],
      [empty, /^PGPASSWORD_FILE: .*empty is empty/],
    ] as const) {
      const read = (): unknown => readConfig({ ...settings, PGPASSWORD_FILE: path });
      expect(read).toThrow(OperatorError);
      expect(read).toThrow(reason);
    }
  });
});

describe('the memory of request bodies', () => {
  const MIB = 1_048_576;
  test.each([
    [256 * MIB, 16 * MIB],
    [2_048 * MIB, 32 * MIB],
    [65_536 * MIB, 64 * MIB],
  ])('of %i bytes is %i', (memory, room) => {
    expect(roomForBodies(memory)).toBe(room);
  });

  test('is what the setting says, or such a share', () => {
    expect(readConfig({ MAX_BODIES_BYTES: '70000' }).MAX_BODIES_BYTES).toBe(70_000);
    const { MAX_BODIES_BYTES } = readConfig({});
    expect(MAX_BODIES_BYTES).toBeGreaterThanOrEqual(16 * MIB);
    expect(MAX_BODIES_BYTES).toBeLessThanOrEqual(64 * MIB);
    expect(() => readConfig({ MAX_BODIES_BYTES: 'much' })).toThrow('MAX_BODIES_BYTES');
  });
});

describe('an address', () => {
  const ADDRESSES = {
    DATABASE_URL: 'postgres://u:a%b@h/db',
    REDIS_URL: 'redis://us%er:p@h:6379',
    ARCHIVE_URL: 'file:///a%zz',
    SMTP_URL: 'smtps://u:%E4@mail.example.com',
    OIDC_ISSUER: 'https://login.example.com/a%',
    PUBLIC_URL: 'https://events.example.com/%',
    AWS_ENDPOINT_URL: 'https://s3.example.com/%2',
  };
  test.each(Object.entries(ADDRESSES))('of %s with a bare %% names the setting alone', (name, value) => {
    const read = (): unknown => readConfig({ PUBLIC_URL: 'https://x.example', [name]: value });
    expect(read).toThrow(OperatorError);
    expect(read).toThrow(new RegExp(`^${name}: has a % that does not begin .*: write %25`));
    expect(read).not.toThrow(value);
  });
  test('that has several hosts is read where each of them is decoded', () => {
    expect(() => readConfig({ REDIS_URL: 'redis://one,redis://:a%@two' })).toThrow('write %25');
    const url = 'postgres://u:a%25b@one:1,two/d%20b';
    expect(readConfig({ DATABASE_URL: url }).DATABASE_URL).toBe(url);
    expect(() => readConfig({ DATABASE_URL: 'postgres://u:secret@[::1/x' })).toThrow(
      /^(?!.*secret).*no valid URL/,
    );
  });
  test.each(['PUBLIC_URL', 'OIDC_ISSUER', 'AWS_ENDPOINT_URL'])(
    'of %s has no user, and a password is not printed',
    (name) => {
      for (const user of ['somebody:secret@', ':secret@', 'secret@'])
        expect(() => readConfig({ [name]: `https://${user}example.com` })).toThrow(
          /^(?!.*secret).*…@example\.com/,
        );
    },
  );
});

test.each([
  [' https://login.example.com ', 'https://login.example.com'],
  ['HTTPS://Login.Example.com/', 'https://login.example.com/'],
  ['https://login.example.com:443/realms/Staff/', 'https://login.example.com/realms/Staff/'],
])('OIDC_ISSUER %j is %s', (given, taken) => {
  expect(readConfig({ OIDC_ISSUER: given }).OIDC_ISSUER).toBe(taken);
});

test('PORT and HOST end a service alone: commands listen nowhere', () => {
  const environment = { PORT: 'tcp://10.0.0.1:8080' };
  expect(() => readConfig(environment, { listens: true })).toThrow(/^PORT: must be a whole number/);
  expect(readConfig(environment).PORT).toBe(8080);
});
