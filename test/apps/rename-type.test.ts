import { expect, test } from 'vitest';
import { newOwnApp, newPerson } from '../support/person.ts';
import { sharedService } from '../support/service.ts';

test('a renamed event type keeps its id and its events, and its old name is free', async () => {
  const service = await sharedService();
  const owner = await newPerson(service);
  const { path, loggingToken } = await newOwnApp(owner);
  const other = await newOwnApp(owner, 'Other');
  const send = async (typeName: string): Promise<string> => {
    const { status, body } = await service.post({ loggingToken, typeId: undefined, typeName });
    expect(status).toBe(201);
    return JSON.parse(body).typeId;
  };
  const typeId = await send('signup');
  await owner.post(`${path}/types`, { name: 'taken' });

  expect(await owner.patch(`${path}/types/${typeId}`, { name: 'taken' })).toMatchObject({
    status: 409,
    code: 'EVENT_TYPE_EXISTS',
  });
  expect(await owner.patch(`${path}/types/${typeId}`, { name: '' })).toMatchObject({
    status: 400,
    code: 'INVALID_REQUEST',
  });
  const none = `${path}/types/typ_${'x'.repeat(20)}`;
  expect(await owner.patch(none, { name: 'a' })).toMatchObject({
    status: 404,
    code: 'EVENT_TYPE_NOT_FOUND',
  });
  expect(await owner.patch(`${other.path}/types/${typeId}`, { name: 'a' })).toMatchObject({
    code: 'EVENT_TYPE_NOT_FOUND',
  });
  expect((await owner.patch(`${path}/types/${typeId}`, { name: 'signed up' })).status).toBe(200);

  // What the process remembers of the name is forgotten before the answer.
  expect(await send('signed up')).toBe(typeId);
  expect(await send('signup')).not.toBe(typeId);
  const { types } = (await owner.get(`${path}/types`)).data as { types: { name: string; count: number }[] };
  expect(types.map(({ name, count }) => [name, count])).toEqual([
    ['signed up', 2],
    ['taken', 0],
    ['signup', 1],
  ]);
  const { entries } = (await owner.get(`${path}/audit`)).data as {
    entries: { action: string; details: object }[];
  };
  expect(entries[0]).toMatchObject({
    action: 'type.rename',
    details: { typeId, from: 'signup', to: 'signed up' },
  });
});
