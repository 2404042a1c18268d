import { expect, test } from 'vitest';
import type { StoredType } from '../../src/apps/event-types.ts';
import { TypeCreation } from '../../src/apps/type-creation.ts';
import { Rejection } from '../../src/errors.ts';
import { withTestService } from '../support/service.ts';

function storedType(id: number, publicId: string): StoredType {
  return { id, publicId, name: '', appPublicId: '', schema: null };
}

test('apps take turns: one new name of an app waits for one transaction of another app, not for its thousands', async () => {
  const turns: string[] = [];
  const creation = new TypeCreation({
    create: async (appId, names) => {
      turns.push(`${appId}: ${names.length}`);
      return new Map(names.map((name) => [name, storedType(appId, name)]));
    },
    limitPerMinute: 0,
    now: () => 0,
  });
  const all = Array.from({ length: 250 }, (_, index) => creation.add(1, `${index}`));
  const others = [creation.add(2, 'a'), creation.add(2, 'b')];
  expect(await Promise.all([...all.slice(0, 2), ...others])).toEqual([
    storedType(1, '0'),
    storedType(1, '1'),
    storedType(2, 'a'),
    storedType(2, 'b'),
  ]);
  await Promise.all(all);
  expect(turns).toEqual(['1: 1', '1: 100', '2: 2', '1: 100', '1: 49']);
  expect(creation.waiting).toBe(0);
});

test('a failed creation reaches all that wait for it, and the next one continues', async () => {
  const creation = new TypeCreation({
    create: async (appId, names) => {
      if (appId === 1) throw new Error('gone');
      return new Map(names.map((name) => [name, storedType(1, name)]));
    },
    limitPerMinute: 0,
    now: () => 0,
  });
  const bad = creation.add(1, 'bad');
  const good = creation.add(2, 'good');
  await expect(bad).rejects.toThrow('gone');
  expect(await good).toEqual(storedType(1, 'good'));
});

test('an app creates a bounded number of types per minute, and waiting names have a ceiling', async () => {
  let now = 0;
  const never = new Promise<never>(() => undefined);
  const limited = new TypeCreation({
    create: async (_, names) => new Map(names.map((name) => [name, storedType(1, name)])),
    limitPerMinute: 2,
    now: () => now,
  });
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

  const stuck = new TypeCreation({ create: () => never, limitPerMinute: 0, now: () => 0 });
  for (let index = 0; index <= 20_000; index += 1) void stuck.add(index % 30, `${index}`);
  expect(stuck.waiting).toBe(20_000);
  expect(await stuck.add(31, 'more')).toMatchObject({ reason: 'unavailable' });
});

test('a batch of more new names than an app may create stores the others and says which were refused', async () => {
  await withTestService({ config: { NEW_TYPES_PER_MINUTE: 3 } }, async (service) => {
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
});
