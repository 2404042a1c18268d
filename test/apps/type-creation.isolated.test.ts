import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { CreatedTypes, StoredType } from '../../src/apps/event-types.ts';
import { TypeCreation } from '../../src/apps/type-creation.ts';
import { createPublicId, createTokenText, digestOf } from '../../src/base/token-text.ts';
import { LookupBusy } from '../../src/cache/lookup-cache.ts';
import { Rejection } from '../../src/errors.ts';
import { Opened, PATIENT } from '../support/proxied-service.ts';
import type { FaultyProxy } from '../support/proxy.ts';
import { sharedService, type TestService, until } from '../support/service.ts';

const opened = new Opened();
afterEach(() => vi.useRealTimers());

function storedType(id: number, publicId: string): StoredType {
  return { id, publicId, name: '', appPublicId: '', schema: null, redaction: null };
}

/** Creates types at once. @param accounts of apps; an app without one is an account of its own */
function creating(
  options: Partial<ConstructorParameters<typeof TypeCreation>[0]> = {},
  accounts: Readonly<Record<number, string>> = {},
): TypeCreation {
  return new TypeCreation({
    create: async (names) =>
      new Map(
        [...names].map(([appId, some]) => [
          appId,
          new Map(some.map((name) => [name, storedType(appId, name)])),
        ]),
      ),
    limitPerMinute: 0,
    holderOf: (appId) => [accounts[appId] ?? `app ${appId}`, appId],
    now: () => 0,
    ...options,
  });
}

test('new names of all apps share transactions, in turns of accounts and then of their apps', async () => {
  const groups: string[][] = [];
  const creation = creating(
    {
      create: async (names) => {
        groups.push([...names].map(([appId, some]) => `${appId}: ${some.length}`));
        return new Map(
          [...names].map(([appId, some]) => [
            appId,
            new Map(some.map((name) => [name, storedType(appId, name)])),
          ]),
        );
      },
    },
    { 1: 'ada', 2: 'ada' },
  );
  const ofAda = Array.from({ length: 1_000 }, (_, index) => creation.add(1 + (index % 2), `${index}`));
  const others = [creation.add(3, 'a'), creation.add(3, 'b'), creation.add(4, 'c')];
  expect(await Promise.all([...ofAda.slice(0, 2), ...others])).toEqual([
    storedType(1, '0'),
    storedType(2, '1'),
    storedType(3, 'a'),
    storedType(3, 'b'),
    storedType(4, 'c'),
  ]);
  expect(groups.slice(0, 2)).toEqual([['1: 1'], ['2: 249', '3: 2', '4: 1', '1: 248']]);
  await Promise.all(ofAda);
  expect(groups).toHaveLength(4);
  expect(creation.queue).toMatchObject({ waiting: 0, refused: 0 });
});

test('a failed creation reaches the app that it is about, and the next one continues', async () => {
  const outcomes: (ReadonlyMap<number, CreatedTypes | Error> | Error)[] = [
    new Error('gone'),
    new Map<number, CreatedTypes | Error>([
      [2, new Error('not valid')],
      [3, new Map([['good', storedType(3, 'good')]])],
    ]),
  ];
  const creation = creating({
    create: async () => {
      const outcome = outcomes.shift();
      if (outcome === undefined || outcome instanceof Error) throw outcome;
      return outcome;
    },
  });
  const bad = creation.add(1, 'bad');
  const [worse, good] = [creation.add(2, 'worse'), creation.add(3, 'good')];
  await expect(bad).rejects.toThrow('gone');
  await expect(worse).rejects.toThrow('not valid');
  expect(await good).toEqual(storedType(3, 'good'));
});

test('an app creates a bounded number of types per minute', async () => {
  let now = 0;
  const limited = creating({ limitPerMinute: 2, now: () => now });
  const add = async (appId: number) => {
    const outcome = await limited.add(appId, 'name');
    return outcome instanceof Rejection ? outcome.headers['Retry-After'] : 'created';
  };
  expect([await add(1), await add(1), await add(1), await add(2)]).toEqual([
    'created',
    'created',
    '60',
    'created',
  ]);
  now += 60_000;
  expect(await add(1)).toBe('created');
});

test('a name waits for its transaction for ten seconds, then it is refused and not created', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const created: string[] = [];
  let answer = (): void => undefined;
  const creation = creating({
    create: (names) =>
      new Promise((resolve) => {
        created.push(...[...names.values()].flat());
        answer = () => resolve(new Map([[1, new Map([['first', storedType(1, 'first')]])]]));
      }),
  });
  const first = creation.add(1, 'first').catch((error: unknown) => error);
  const second = creation.add(2, 'second').catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(await first).toBeInstanceOf(LookupBusy);
  expect(await second).toBeInstanceOf(LookupBusy);
  answer();
  await new Promise(setImmediate);
  expect(created).toEqual(['first']);
});

/** Apps without types. */
async function seedApps({ sql }: TestService, count: number): Promise<string[]> {
  const tokens = Array.from({ length: count }, () => createTokenText('tdl'));
  await sql`
    WITH new AS (INSERT INTO apps (public_id, name)
                 SELECT public_id, 'herd' FROM unnest(${tokens.map(() => createPublicId('app'))}::text[]) AS id (public_id)
                 RETURNING id)
    INSERT INTO logging_tokens (digest, app_id, sealed)
    SELECT decode(digest, 'hex'), id, ''
      FROM (SELECT id, row_number() OVER () AS number FROM new) AS app
      JOIN unnest(${tokens.map((token) => digestOf(token).toString('hex'))}::text[]) WITH ORDINALITY
             AS token (digest, number) USING (number)`;
  return tokens;
}

/** Counts the transactions that create types: of the lookups of writers, because others come by the clock. */
function countTransactions(proxy: FaultyProxy): () => number {
  let count = 0;
  proxy.onSent = (sent, name) => {
    if (name === 'tidemark lookups')
      count += sent.toString('latin1').split('begin isolation level read committed').length - 1;
  };
  return () => count;
}

describe('on a database', () => {
  let service: TestService;
  let proxy: FaultyProxy;
  beforeAll(async () => {
    ({ service, proxy } = await opened.proxied({ config: PATIENT }));
  });
  afterAll(opened.stopAll);

  test('hundreds of apps with a new type at once are a few transactions, and none is refused by a slow database', async () => {
    const tokens = await seedApps(service, 400);
    const transactions = countTransactions(proxy);
    proxy.delayMs = 30;
    const answers = await Promise.all(
      tokens.map((loggingToken) => service.post({ loggingToken, typeId: undefined, typeName: 'signed up' })),
    );
    proxy.delayMs = 0;
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(transactions()).toBeGreaterThan(0);
    expect(transactions()).toBeLessThanOrEqual(20);
    const [row] =
      await service.sql`SELECT count(*)::integer AS types FROM event_types WHERE name = 'signed up'`;
    expect(row?.types).toBe(400);
  });

  test('a batch of a thousand new types is stored, by a few transactions of a slow database', async () => {
    const transactions = countTransactions(proxy);
    proxy.delayMs = 30;
    const events = Array.from({ length: 1_000 }, (_, index) => ({ typeName: `type ${index}`, payload: {} }));
    const answer = await service.request({
      method: 'POST',
      path: '/v1/events',
      headers: { Authorization: `Bearer ${service.app.loggingToken}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ events }),
    });
    proxy.delayMs = 0;
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body)).toMatchObject({ stored: 1_000, refused: 0 });
    expect(transactions()).toBeGreaterThan(0);
    expect(transactions()).toBeLessThanOrEqual(20);
  });

  test('an app whose row is locked keeps no other app waiting, and gets its type when the lock is released', async () => {
    const [locked = '', ...others] = await seedApps(service, 20);
    const transactions = countTransactions(proxy);
    const post = (loggingToken: string) =>
      service.post({ loggingToken, typeId: undefined, typeName: 'signed up' });
    const waiting = await service.sql.begin(async (tx) => {
      await tx`SELECT FROM apps JOIN logging_tokens ON app_id = apps.id WHERE digest = ${digestOf(locked)} FOR UPDATE OF apps`;
      const first = post(locked);
      await until(() => transactions() >= 2, 'the locked app was tried twice');
      const answers = await Promise.all(others.map(post));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
      return { first };
    });
    expect((await waiting.first).status).toBe(201);
  });
});

test('a batch of more new names than an app may create stores the others and says which were refused', async () => {
  const service = await sharedService({ config: { NEW_TYPES_PER_MINUTE: 3 } });
  const events = ['a', 'b', 'c', 'd', 'a'].map((typeName) => ({ typeName, payload: {} }));
  const answer = await service.request({
    method: 'POST',
    path: '/v1/events',
    headers: { Authorization: `Bearer ${service.app.loggingToken}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ events }),
  });
  expect(answer.status).toBe(207);
  const { results } = JSON.parse(answer.body);
  expect(results.map(({ code }: { code?: string }) => code ?? 'stored')).toEqual([
    'stored',
    'stored',
    'stored',
    'RATE_LIMIT_EXCEEDED',
    'stored',
  ]);
  const refused = await service.post({ typeId: undefined, typeName: 'e' });
  expect([refused.status, JSON.parse(refused.body).code]).toEqual([429, 'RATE_LIMIT_EXCEEDED']);
  expect(refused.headers['retry-after']).toMatch(/^\d+$/);
  expect((await service.post({ typeId: undefined, typeName: 'b' })).status).toBe(201);
});
