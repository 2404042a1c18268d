/** docker-compose.yml and the Dockerfile as text: what they pass, what they forbid, and what they name by hash. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig, SETTINGS, type SettingName } from '../../src/config.ts';
import { connectionsOf } from '../../src/service.ts';
import { ROOT, readPage } from '../docs/pages.ts';

interface ComposeService {
  readonly image?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly cap_drop?: readonly string[];
  readonly cap_add?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly read_only?: boolean;
  readonly mem_limit?: string;
  readonly pids_limit?: number;
  readonly logging?: { readonly options: Readonly<Record<string, string>> };
  readonly networks?: readonly string[];
  readonly network_mode?: string;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly tmpfs?: readonly string[];
  readonly command?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly stop_grace_period?: string;
}

interface Compose {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly networks: Readonly<Record<string, { readonly internal?: boolean } | null>>;
}

const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
const compose: Compose = parse(readFileSync(join(ROOT, 'docker-compose.yml'), 'utf8'), { merge: true });
const { services } = compose;

function service(name: string): ComposeService {
  const found = services[name];
  if (found === undefined) throw new Error(`docker-compose.yml has no service ${name}`);
  return found;
}

const environment = service('server').environment ?? {};

/** What the stack itself decides. */
const FIXED = ['HOST', 'DATA_DIR', 'PGPASSWORD_FILE', 'REDIS_PASSWORD_FILE'];
/** Settings whose default is another one in the stack. */
const OWN_DEFAULT: Readonly<Record<string, string>> = {
  PORT: '8080',
  DATABASE_URL: 'postgres://tidemark@database/tidemark',
  REDIS_URL: 'redis://redis:6379',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: Compose's own syntax
  PUBLIC_URL: '${DOMAIN:+https://$DOMAIN}',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: Compose's own syntax
  TRUST_PROXY: '${DOMAIN:+1}',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: Compose's own syntax
  HTTP_TRANSPORT: '${DOMAIN:+uws}',
};

describe('settings', () => {
  test('are all passed to the service, and nothing else is', () => {
    const { TMPDIR, ...settings } = environment;
    expect(Object.keys(settings).sort()).toEqual(Object.keys(SETTINGS).sort());
    // Of Node itself: /tmp is memory.
    expect(TMPDIR).toBe(environment.DATA_DIR);
  });

  test.each(Object.keys(SETTINGS).filter((name) => !FIXED.includes(name)))('%s comes from .env', (name) => {
    // An empty value counts as absent. JOURNAL_DIR alone can be emptied, which switches the journal off.
    const expected =
      name === 'JOURNAL_DIR' ? `\${${name}-/data/journal}` : `\${${name}:-${OWN_DEFAULT[name] ?? ''}}`;
    expect(environment[name]).toBe(expected);
  });

  test('as they are without .env can be read', () => {
    const values = Object.entries(environment).filter(([name]) => !name.endsWith('_FILE'));
    const plain = values.map(([name, value]) => [name, /^\$\{\w+:?-([^$]*)\}$/.exec(value)?.[1] ?? value]);
    const without = Object.fromEntries(plain.filter(([, value]) => !value?.startsWith('$')));
    expect(readConfig(without)).toMatchObject({ HOST: '0.0.0.0', PORT: 8080, JOURNAL_DIR: '/data/journal' });
  });

  test('the port inside is the published one, on this machine alone', () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: Compose's own syntax
    expect(service('server').ports).toEqual(['127.0.0.1:${PORT:-8080}:${PORT:-8080}']);
  });

  test('the service has longer to stop than it takes', () => {
    const name: SettingName = 'SHUTDOWN_TIMEOUT_SECONDS';
    expect(Number.parseInt(service('server').stop_grace_period ?? '', 10)).toBeGreaterThan(
      Number(SETTINGS[name].default),
    );
  });
});

describe('privileges', () => {
  const ADDED: Readonly<Record<string, readonly string[]>> = {
    secrets: ['CHOWN'],
    database: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'SETGID', 'SETUID'],
    proxy: ['NET_BIND_SERVICE'],
  };

  test.each(Object.keys(services))('%s has none that it does not need', (name) => {
    const found = service(name);
    expect(found).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      logging: { options: { 'max-size': expect.any(String), 'max-file': expect.any(String) } },
      mem_limit: expect.any(String),
      pids_limit: expect.any(Number),
    });
    expect([...(found.cap_add ?? [])].sort()).toEqual(ADDED[name] ?? []);
  });

  test('database and Redis are on a network that has no way out, and publish nothing', () => {
    expect(compose.networks.backend).toEqual({ internal: true });
    for (const name of ['database', 'redis'])
      expect([service(name).networks, service(name).ports]).toEqual([['backend'], undefined]);
    expect(service('secrets').network_mode).toBe('none');
    expect(service('proxy').networks).toEqual(['default']);
  });

  test('Redis has a password that is in no command line, and keeps nothing', () => {
    const script = service('redis').command?.at(-1) ?? '';
    expect(script).toContain('cat /secrets/redis-password');
    expect(script).not.toMatch(/--requirepass|\$\(/);
    expect(service('redis').tmpfs).toContain('/data');
    expect(service('redis').volumes).toEqual(['secrets:/secrets:ro']);
  });

  test('the role of the service is made by a script that may run', () => {
    const script = 'deploy/compose/create-role.sh';
    expect(service('database').volumes).toContain(
      `./${script}:/docker-entrypoint-initdb.d/100_create_role.sh:ro`,
    );
    expect(statSync(join(ROOT, script)).mode & 0o555).toBe(0o555);
    expect(readFileSync(join(ROOT, script), 'utf8')).not.toMatch(/SUPERUSER|CREATEDB|CREATEROLE/);
  });
});

test('docs/deployment.md says how many connections a process uses, and the database has them for two', () => {
  const [, uses] = /uses up to (\d+) with its default settings/.exec(readPage('docs/deployment.md')) ?? [];
  expect(Number(uses)).toBe(connectionsOf(readConfig({})));
  expect(2 * Number(uses)).toBeLessThan(100 - 3);
});

describe('the image', () => {
  const IMAGE = /^[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/;

  test('is made from images that cannot be moved, as are the others of the stack', () => {
    const bases = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, image = '']) => image);
    const images = [...bases, ...Object.values(services).flatMap(({ image }) => image ?? [])];
    expect(images.length).toBe(6);
    for (const image of images) expect(image).toMatch(IMAGE);
    // The passwords are made by the Node that the service is built with.
    expect(service('secrets').image).toBe(bases[0]);
  });
});
