import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp, listApps } from '../../src/apps/apps.ts';
import { createEventType, eventTypeNameProblem, getOrCreateEventType } from '../../src/apps/event-types.ts';
import { rotateLoggingToken } from '../../src/apps/logging-tokens.ts';
import {
  createResourceToken,
  listResourceTokens,
  revokeResourceToken,
} from '../../src/apps/resource-tokens.ts';
import { openSealed, openSecret, type Secret } from '../../src/apps/secret.ts';
import { digestOf, isWellFormed } from '../../src/base/token-text.ts';
import { type Reason, Refused } from '../../src/errors.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';

const maxTypes = 10_000;

async function reasonOf(work: Promise<unknown>): Promise<Reason | undefined> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(Refused);
  return error instanceof Refused ? error.rejection.reason : undefined;
}

describe.each(availableEngines())('on %s', (engine) => {
  let database: TestDatabase;
  let sql: Sql;
  let secret: Secret;
  beforeAll(async () => {
    database = await testDatabase(engine);
    sql = database.sql;
    secret = await openSecret({ configured: 'a secret of more than thirty-two characters', dataDir: null });
  });
  afterAll(() => database.drop());

  const newApp = (name = 'Shop') => createApp(sql, secret, { name });
  const internalId = async (appId: string): Promise<number> => {
    const [app] = await sql<[{ id: number }]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    return app.id;
  };

  describe('an app', () => {
    test('is made with a logging token that is kept as a digest and sealed', async () => {
      const made = await newApp('Café 🛒');
      expect(made.appId).toMatch(/^app_[0-9A-Za-z]{20}$/);
      expect(isWellFormed(made.loggingToken, 'tdl')).toBe(true);
      const [row] = await sql<[{ digest: Buffer; sealed: Buffer; expires_at: Date | null }]>`
        SELECT digest, sealed, expires_at FROM logging_tokens WHERE app_id = ${await internalId(made.appId)}`;
      expect(row.digest.equals(digestOf(made.loggingToken))).toBe(true);
      expect(openSealed(secret, row.sealed, row.digest)).toBe(made.loggingToken);
      expect(row.expires_at).toBeNull();
      const found = (await listApps(sql)).find(({ appId }) => appId === made.appId);
      expect(found).toEqual({ appId: made.appId, name: 'Café 🛒', createdAt: expect.any(Date), owners: [] });
    });

    test.each(['', 'a\nb', 'x\u007f', '\ud800', 'x'.repeat(201)])(
      'is not made with the name %j',
      async (name) => {
        expect(await reasonOf(newApp(name))).toBe('invalidBody');
      },
    );
  });

  describe('a rotation', () => {
    const tokens = async (appId: string) =>
      sql<{ digest: Buffer; seconds: number | null }[]>`
        SELECT digest, extract(epoch FROM expires_at - now())::float8 AS seconds
          FROM logging_tokens WHERE app_id = ${await internalId(appId)} ORDER BY expires_at NULLS LAST`;

    test('keeps the old token for 24 hours by default', async () => {
      const { appId, loggingToken } = await newApp();
      const rotated = await rotateLoggingToken(sql, secret, { appId });
      const [old, current] = await tokens(appId);
      expect(old?.digest.equals(digestOf(loggingToken))).toBe(true);
      expect(old?.seconds).toBeCloseTo(86_400, -2);
      expect(current?.digest.equals(digestOf(rotated.loggingToken))).toBe(true);
      expect(current?.seconds).toBeNull();
      expect(rotated.previousValidUntil.getTime() - Date.now()).toBeGreaterThan(86_300_000);
    });

    test('without grace ends all earlier tokens at once, those in grace included', async () => {
      const { appId } = await newApp();
      await rotateLoggingToken(sql, secret, { appId });
      await rotateLoggingToken(sql, secret, { appId, graceHours: 0 });
      const valid = (await tokens(appId)).filter(({ seconds }) => seconds === null || seconds > 0);
      expect(valid).toHaveLength(1);
    });

    test('never lengthens the grace of an earlier one, and forgets tokens whose grace is over', async () => {
      const { appId } = await newApp();
      await rotateLoggingToken(sql, secret, { appId, graceHours: 0 });
      await rotateLoggingToken(sql, secret, { appId, graceHours: 1 });
      await rotateLoggingToken(sql, secret, { appId, graceHours: 48 });
      const left = await tokens(appId);
      expect(left.map(({ seconds }) => seconds && Math.round(seconds / 3_600))).toEqual([1, 48, null]);
    });

    test('at the same time as others leaves one current token', async () => {
      const { appId } = await newApp();
      await Promise.all(Array.from({ length: 5 }, () => rotateLoggingToken(sql, secret, { appId })));
      expect((await tokens(appId)).filter(({ seconds }) => seconds === null)).toHaveLength(1);
    });

    test('of an unknown app or with an impossible grace is refused', async () => {
      expect(await reasonOf(rotateLoggingToken(sql, secret, { appId: 'app_no' }))).toBe('appNotFound');
      const { appId } = await newApp();
      for (const graceHours of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
        expect(await reasonOf(rotateLoggingToken(sql, secret, { appId, graceHours }))).toBe('invalidBody');
      }
    });
  });

  describe('an event type', () => {
    test('of the same name is refused and the one that is there is named; case counts, the app too', async () => {
      const { appId } = await newApp();
      const { typeId } = await createEventType(sql, { appId, name: 'login', maxTypes });
      const again = createEventType(sql, { appId, name: 'login', maxTypes });
      await expect(again).rejects.toThrow(typeId);
      expect(await reasonOf(createEventType(sql, { appId, name: 'login', maxTypes }))).toBe(
        'eventTypeExists',
      );
      await createEventType(sql, { appId, name: 'Login', maxTypes });
      await createEventType(sql, { appId: (await newApp()).appId, name: 'login', maxTypes });
    });

    test('that exists is found while the lock of its app is held', async () => {
      const { appId } = await newApp();
      const id = await internalId(appId);
      const { typeId } = await createEventType(sql, { appId, name: 'there', maxTypes });
      await sql.begin(async (tx) => {
        await tx`SELECT 1 FROM apps WHERE id = ${id} FOR UPDATE`;
        expect(await getOrCreateEventType(sql, { appId: id, name: 'there', maxTypes })).toMatchObject({
          publicId: typeId,
        });
      });
    });
  });

  describe('a resource token', () => {
    test('is shown once, kept as a digest, and listed without its text', async () => {
      const [one, two] = [await newApp(), await newApp()];
      const appIds = [two.appId, one.appId, two.appId];
      const made = await createResourceToken(sql, { name: 'Reports', appIds, expiresInSeconds: 3_600 });
      expect(isWellFormed(made.resourceToken, 'tdr')).toBe(true);
      expect(made.appIds).toEqual([two.appId, one.appId]);
      expect(Math.abs((made.expiresAt?.getTime() ?? 0) - Date.now() - 3_600_000)).toBeLessThan(60_000);
      const found = (await listResourceTokens(sql)).find(({ tokenId }) => tokenId === made.tokenId);
      expect(found).toEqual({
        tokenId: made.tokenId,
        name: 'Reports',
        appIds: [one.appId, two.appId],
        createdBy: null,
        createdAt: expect.any(Date),
        expiresAt: made.expiresAt,
        revokedAt: null,
        lastUsedAt: null,
      });
      const [stored] = await sql`SELECT digest FROM resource_tokens WHERE public_id = ${made.tokenId}`;
      expect(digestOf(made.resourceToken).equals(stored?.digest)).toBe(true);
    });

    test('is revoked once: the first time stands', async () => {
      const { appId } = await newApp();
      const { tokenId } = await createResourceToken(sql, {
        name: 'R',
        appIds: [appId],
        expiresInSeconds: null,
      });
      const first = await revokeResourceToken(sql, tokenId);
      expect(await revokeResourceToken(sql, tokenId)).toEqual(first);
      const found = (await listResourceTokens(sql)).find((token) => token.tokenId === tokenId);
      expect(found?.revokedAt).toEqual(first.revokedAt);
    });

    test('is refused for an unknown app, no app, a bad name, an impossible expiry; nothing is stored', async () => {
      const { appId } = await newApp();
      const before = await listResourceTokens(sql);
      const good = { name: 'R', appIds: [appId], expiresInSeconds: null };
      expect(await reasonOf(createResourceToken(sql, { ...good, appIds: [appId, 'app_no'] }))).toBe(
        'appNotFound',
      );
      expect(await reasonOf(createResourceToken(sql, { ...good, appIds: [] }))).toBe('invalidBody');
      expect(await reasonOf(createResourceToken(sql, { ...good, name: 'a\tb' }))).toBe('invalidBody');
      for (const expiresInSeconds of [0, -1, Number.NaN, 1e12]) {
        expect(await reasonOf(createResourceToken(sql, { ...good, expiresInSeconds }))).toBe('invalidBody');
      }
      expect(await reasonOf(revokeResourceToken(sql, 'tok_no'))).toBe('tokenNotFound');
      expect(await listResourceTokens(sql)).toEqual(before);
    });
  });
});

test('event type names: 1 to 200 code points, no NUL, no lone surrogate', () => {
  for (const good of ['a', ' ', 'é\n', '🛒'.repeat(200), '"']) expect(eventTypeNameProblem(good)).toBeNull();
  expect(eventTypeNameProblem('')).toBe('must not be empty');
  expect(eventTypeNameProblem('x'.repeat(201))).toBe('must have at most 200 characters');
  expect(eventTypeNameProblem('🛒'.repeat(201))).toBe('must have at most 200 characters');
  expect(eventTypeNameProblem('a\0b')).toBe('must not contain NUL');
  expect(eventTypeNameProblem('a\udc00b')).toBe('must not contain a lone surrogate');
});
