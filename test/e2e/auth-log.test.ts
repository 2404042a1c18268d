/** The authentication log of the real process, as fail2ban reads it with the filter that the documentation has. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { request } from '../support/http-client.ts';
import { until } from '../support/service.ts';
import { ServerProcess } from './server-process.ts';

const FILTER = new URL('../../docs/fail2ban/filter.d/tidemark.conf', import.meta.url);
const GUESSER = '203.0.113.9';
const MANY = '2001:db8:1:2::9';
const WRONG = 'a wrong password';

let database: TestDatabase;
let server: ServerProcess;
beforeAll(async () => {
  database = await testDatabase();
  server = await ServerProcess.start({
    DATABASE_URL: database.url,
    SECRET: 'the secret of the tests, 32 characters',
    TRUST_PROXY: '1',
  });
});
afterAll(async () => {
  await server.end('SIGTERM');
  await database.drop();
});

/** A setting of the filter as a JavaScript expression: Python's syntax is the same here. */
function expressionOf(setting: string, replacements: Readonly<Record<string, string>>): RegExp {
  const text = new RegExp(`^${setting} = (.+)$`, 'm').exec(readFileSync(FILTER, 'utf8'))?.[1] ?? '';
  const source = Object.entries(replacements).reduce(
    (before, [from, to]) => before.replaceAll(from, to),
    text,
  );
  expect(source).not.toMatch(/%|<(?!ip>)/);
  return new RegExp(source);
}

/** The addresses that the filter finds, as fail2ban does: what the date matches is cut out first. */
function findAddresses(lines: readonly string[]): string[] {
  const twoDigits = '\\d{2}';
  const date = expressionOf('datepattern', {
    '%%Y': '\\d{4}',
    ...Object.fromEntries(['%%m', '%%d', '%%H', '%%M', '%%S'].map((part) => [part, twoDigits])),
    '%%f': '\\d{1,6}',
    '%%z': '(?:Z|[+-]\\d{4})',
  });
  const failure = expressionOf('failregex', { '<ADDR>': '(?<ip>[0-9a-fA-F:.]+)' });
  return lines.flatMap((line) => {
    if (!date.test(line)) return [];
    const ip = failure.exec(line.replace(date, ''))?.groups?.ip;
    return ip === undefined ? [] : [ip];
  });
}

const guess = (email: string, ip: string): Promise<unknown> =>
  request(server.port, {
    method: 'POST',
    path: '/api/session',
    headers: { 'X-Forwarded-For': ip },
    body: JSON.stringify({ email, password: WRONG }),
  });

test('the filter for fail2ban matches attackers, and no one whom an attacker names', async () => {
  for (let i = 0; i < 3; i++) await guess('somebody@example.com', GUESSER);
  for (const email of [
    '","event":"sign-in.failure","ip":"192.0.2.66","@example.com',
    `{"level":"warn","time":"2026-01-01T00:00:00.000Z","event":"sign-in.failure","ip":"192.0.2.66",@example.com`,
    `x\n{"level":"warn","time":"2026-01-01T00:00:00.000Z","event":"sign-in.failure","ip":"192.0.2.66",`,
    "ip=192.0.2.66'@example.com",
  ])
    await guess(email, GUESSER);
  for (let i = 0; i < 40; i++) await guess(`nobody-${i}@example.com`, MANY);
  await until(() => server.stderr.includes('slow-down.refusal'), 'the log has the refusal');
  const lines = server.stderr.split('\n');
  const found = findAddresses(lines);
  expect(new Set(found)).toEqual(new Set([GUESSER, MANY]));
  // Three and the last of the hostile ones, which is an address; others never reach the password.
  expect(found.filter((ip) => ip === GUESSER)).toHaveLength(4);
  expect(found.filter((ip) => ip === MANY).length).toBeGreaterThan(0);
  const events = lines.filter((line) => line.includes('"event":')).map((line) => JSON.parse(line));
  expect(events.find(({ event }) => event === 'link.create')).toMatchObject({ purpose: 'setup' });
  expect(server.stderr).not.toContain(WRONG);
  expect(server.stderr).not.toContain('[redacted]');
});
