import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { type ResourceToken, ResourceTokens } from '../../src/apps/resource-token-lookup.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { Rejection } from '../../src/errors.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';

const CACHE_MS = 30_000;
const START = Date.UTC(2026, 0, 31, 12);

let database: TestDatabase;
let clock: { ms: number };
let statements: string[];
let errors: unknown[];
let tokens: ResourceTokens;
/** Made to read the app `app_a`. */
let token: string;

/** The pool, telling of each statement before it is sent. */
function observed(sql: Sql, onStatement: (text: string) => void): Sql {
  return new Proxy(sql, {
    apply: (target, self, [strings, ...values]: [TemplateStringsArray, ...unknown[]]) => {
      onStatement(strings.join('?').trim());
      return Reflect.apply(target, self, [strings, ...values]);
    },
  });
}

beforeAll(async () => {
  database = await testDatabase();
  await database.sql`INSERT INTO apps (public_id, name) VALUES ('app_a', 'A')`;
});
afterAll(() => database.drop());
beforeEach(async () => {
  const { sql } = database;
  await sql`DELETE FROM resource_tokens`;
  token = (await createResourceToken(sql, { name: 'test', appIds: ['app_a'], expiresInSeconds: null }))
    .resourceToken;
  clock = { ms: START };
  statements = [];
  errors = [];
  tokens = new ResourceTokens({
    sql: observed(sql, (text) => statements.push(text)),
    cacheMs: CACHE_MS,
    now: () => clock.ms,
    onError: (error) => errors.push(error),
  });
});
afterEach(() => tokens.idle());

const lookUps = (): number => statements.filter((text) => text.startsWith('SELECT')).length;
const lastUseWrites = (): number => statements.filter((text) => text.startsWith('UPDATE')).length;

async function accepted(authorization: string): Promise<ResourceToken> {
  const found = await tokens.authenticate(authorization);
  if (found instanceof Rejection) throw new Error(`refused: ${found.details}`);
  return found;
}

/** The details of a refusal, after checking that it is the one 401 of this route. */
async function refused(authorization: string): Promise<string> {
  const refusal = await tokens.authenticate(authorization);
  if (!(refusal instanceof Rejection)) throw new Error('accepted');
  expect(refusal.reason).toBe('invalidResourceToken');
  expect(refusal.headers).toEqual({ 'WWW-Authenticate': 'Bearer' });
  return refusal.details;
}

test('the scheme is read without regard to case', async () => {
  await accepted(`bearer ${token}`);
  await accepted(`BEARER  ${token} `);
});

test('a missing or malformed header is refused without asking the database', async () => {
  for (const header of [
    '',
    'Bearer',
    'Bearer ',
    token,
    `Basic ${token}`,
    `Bearer${token}`,
    `Bearer ${token} x`,
  ]) {
    expect(await refused(header)).toMatch(/Authorization: Bearer/);
  }
  expect(statements).toEqual([]);
});

test('junk, typing errors and logging tokens are refused without asking the database', async () => {
  const typo = token.slice(0, -1) + (token.endsWith('0') ? '1' : '0');
  for (const [text, details] of [
    ['x', /^This is not a resource token/],
    ['tdr_', /is cut off: it has 4 of 42 characters/],
    [typo, /is mistyped/],
    [token.slice(0, -1), /is cut off: it has 41 of 42 characters/],
    [createTokenText('tdl'), /^This is a logging token/],
    [`${token}\0`, /is too long/],
    [token.toLowerCase(), /is mistyped/],
  ] as const) {
    expect(await refused(`Bearer ${text}`)).toMatch(details);
  }
  expect(statements).toEqual([]);
});

test('a token expires on time, also while it is remembered', async () => {
  await database.sql`UPDATE resource_tokens SET expires_at = ${new Date(START + 1_000)}`;
  await accepted(`Bearer ${token}`);
  clock.ms = START + 999;
  await accepted(`Bearer ${token}`);
  clock.ms = START + 1_000;
  expect(await refused(`Bearer ${token}`)).toMatch(/expired/);
  expect(lookUps()).toBe(1);
});

test('the last use is written at most once a minute, with the time of the request', async () => {
  const lastUse = async (): Promise<number | undefined> => {
    await tokens.idle();
    const [row] = await database.sql<{ lastUsedAt: Date | null }[]>`
      SELECT last_used_at AS "lastUsedAt" FROM resource_tokens`;
    return row?.lastUsedAt?.getTime();
  };
  await accepted(`Bearer ${token}`);
  expect(await lastUse()).toBe(START);
  clock.ms = START + 59_999;
  await accepted(`Bearer ${token}`);
  expect(await lastUse()).toBe(START);
  expect(lastUseWrites()).toBe(1);
  clock.ms = START + 60_000;
  await accepted(`Bearer ${token}`);
  expect(await lastUse()).toBe(START + 60_000);
});

test('another process that wrote the last use within the minute is not overwritten', async () => {
  const recent = new Date(START - 30_000);
  await database.sql`UPDATE resource_tokens SET last_used_at = ${recent}`;
  await accepted(`Bearer ${token}`);
  await tokens.idle();
  expect(await database.sql`SELECT last_used_at FROM resource_tokens`).toEqual([{ last_used_at: recent }]);
});

test('a refused token leaves no last use', async () => {
  await database.sql`UPDATE resource_tokens SET revoked_at = now()`;
  await refused(`Bearer ${token}`);
  expect(lastUseWrites()).toBe(0);
});

test('a last use that cannot be written is logged, and no request is refused for it', async () => {
  await database.sql`ALTER TABLE resource_tokens ADD CONSTRAINT unused CHECK (last_used_at IS NULL)`;
  await accepted(`Bearer ${token}`);
  await tokens.idle();
  expect(errors).toEqual([expect.objectContaining({ code: '23514' })]);
  await database.sql`ALTER TABLE resource_tokens DROP CONSTRAINT unused`;
});
