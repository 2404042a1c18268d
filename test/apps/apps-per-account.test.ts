/** MAX_APPS_PER_ACCOUNT: under open sign-up a stranger has so many apps, each of which has limits of its own. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { joinApp, newOwnApp, newPerson, type Person, type Reply } from '../support/person.ts';
import {
  startTestService,
  TestClock,
  type TestService,
  testSecret,
  withTestService,
} from '../support/service.ts';

let counter = 0;
const anEmail = (): string => `owner-${++counter}@example.com`;
const create = (person: Person): Promise<Reply> => person.post('/api/apps', { name: 'Shop' });
const statuses = (replies: readonly Reply[]): number[] => replies.map(({ status }) => status).sort();

describe('with open sign-up', () => {
  let service: TestService;
  let clock: TestClock;
  beforeAll(async () => {
    clock = new TestClock();
    service = await startTestService({ clock, config: { ALLOW_SIGNUP: 'open', MAX_APPS_PER_ACCOUNT: 3 } });
    // The first account owns the app that nobody owned, which counts.
    await newPerson(service, anEmail());
  });
  afterAll(() => service.stop());

  test('an account makes so many apps and no more, also where it makes many at once', async () => {
    const person = await newPerson(service, anEmail());
    const replies = await Promise.all(Array.from({ length: 12 }, () => create(person)));
    expect(statuses(replies)).toEqual([...Array(3).fill(201), ...Array(9).fill(400)]);
    expect(replies.find(({ status }) => status === 400)).toMatchObject({
      code: 'TOO_MANY_APPS',
      data: {
        error: 'Too many apps',
        details:
          'An account may own 3 apps here (MAX_APPS_PER_ACCOUNT): delete one that is not needed, or ask the operator.',
      },
    });
    expect((await create(await newPerson(service, anEmail()))).status).toBe(201);
  });

  test('one that is deleted makes room; to delete and make them in a loop is slowed down', async () => {
    const person = await newPerson(service, anEmail());
    for (let i = 0; i < 6; i++) {
      const app = await newOwnApp(person);
      expect((await person.delete(app.path, { confirm: 'Shop' })).status).toBe(200);
    }
    const refused = await create(person);
    expect(refused).toMatchObject({ status: 429, code: 'TOO_MANY_ATTEMPTS' });
    clock.advance(Number(refused.headers['retry-after']) * 1_000);
    expect((await create(person)).status).toBe(201);
  });

  test('apps of others, of which it is a maintainer, and those that the command line makes do not count', async () => {
    const [owner, email] = [await newPerson(service, anEmail()), anEmail()];
    const member = await newPerson(service, email);
    for (let i = 0; i < 3; i++) {
      const app = await newOwnApp(owner);
      await joinApp(owner, app.path, member, { email });
    }
    const [row] = await service.sql<{ id: number }[]>`SELECT id FROM users WHERE email = ${email}`;
    for (let i = 0; i < 3; i++) expect((await create(member)).status).toBe(201);
    expect((await create(member)).code).toBe('TOO_MANY_APPS');
    const made = await createApp(service.sql, await testSecret(), { name: 'Shop', ownerId: row?.id ?? 0 });
    expect(made.appId).toMatch(/^app_/);
  });
});

test.each([
  ['where accounts are made by invitation', { MAX_APPS_PER_ACCOUNT: 1 }],
  ['where the limit is 0', { ALLOW_SIGNUP: 'open', MAX_APPS_PER_ACCOUNT: 0 }],
])('%s there is no such limit', (_name, config) =>
  withTestService({ config }, async (service) => {
    const person = await newPerson(service, anEmail());
    for (let i = 0; i < 5; i++) expect((await create(person)).status).toBe(201);
  }),
);
