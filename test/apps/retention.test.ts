/** Retention of apps and types as people set it: by a command or a session, and seen by every process. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newOwnApp, newPerson, Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

// Commands start processes, on a machine that may be busy.
vi.setConfig({ testTimeout: patient(120_000) });

const DAY_MS = 86_400_000;
const NOW = Date.now();
const daysAgo = (days: number): string => new Date(NOW - days * DAY_MS).toISOString();
const boundaryOf = (days: number): string => new Date(Math.floor(NOW / DAY_MS - days) * DAY_MS).toISOString();

let first: TestService;
let second: TestService;
let owner: Person;
let app: Awaited<ReturnType<typeof newOwnApp>>;
beforeAll(async () => {
  first = await startTestService();
  second = await startTestService({ database: first.database });
  owner = await newPerson(first, 'owner@example.com');
  app = await newOwnApp(owner);
  for (const type of ['visit', 'debug'])
    for (const days of [1, 3, 5, 20])
      expect((await send(first, type, days)).status, `${type} ${days}`).toBe(201);
});
afterAll(async () => {
  await second.stop();
  await first.stop();
});

const send = (service: TestService, type: string, days: number) =>
  service.post({
    loggingToken: app.loggingToken,
    typeId: '',
    typeName: type,
    key: crypto.randomUUID(),
    createdAt: daysAgo(days),
  });

/** What a session of a process shows. */
async function totalOf(service: TestService): Promise<number> {
  const person = await new Person(service).signIn('owner@example.com');
  const { pagination } = (await person.get(`${app.path}/events?limit=1&total=exact`)).data as {
    pagination: { total: number };
  };
  return pagination.total;
}

const run = (args: readonly string[], config: Record<string, string> = {}): Promise<Outcome> =>
  tidemark(['retention', ...args], { ...config, DATABASE_URL: first.database.url });

test('a command tells what would go, hides it from every process, and one of them removes it', async () => {
  expect(await totalOf(second)).toBe(8);
  const set = ['set', '--app', app.appId, '--type', 'debug', '--days', '4', '--json'];
  const plan = await run([...set, '--dry-run']);
  expect(JSON.parse(plan.stdout)).toMatchObject({ hidden: 2, changed: false, readableFrom: boundaryOf(4) });
  expect(await totalOf(second)).toBe(8);
  const done = await run(set);
  expect(JSON.parse(done.stdout)).toMatchObject({
    hidden: 2,
    days: 4,
    typeName: 'debug',
    readableFrom: boundaryOf(4),
  });
  expect([await totalOf(first), await totalOf(second)]).toEqual([6, 6]);
  // Both processes refuse events that could not be read, as soon as they have heard of it.
  for (const service of [first, second])
    await until(async () => {
      const { status, body } = await send(service, 'debug', 10);
      return status === 400 && body.includes('retention boundary');
    }, 'an event that could not be read is refused');
  expect((await send(second, 'visit', 10)).status).toBe(201);
  expect(await totalOf(first)).toBe(7);
});

test('an owner sets it in a session, with what it would hide; viewers see it', async () => {
  const path = `${app.path}/retention`;
  expect((await owner.get(`${path}/preview?days=2`)).data).toEqual({
    readableFrom: boundaryOf(2),
    hidden: 4,
  });
  const changed = await owner.put(path, { days: '2' });
  expect(changed.data).toMatchObject({
    longest: null,
    rules: [
      { typeId: null, days: 2, readableFrom: boundaryOf(2) },
      { typeName: 'debug', days: 4, readableFrom: boundaryOf(4) },
    ],
  });
  expect((await owner.get(path)).data).toEqual(changed.data);
  expect(await totalOf(second)).toBe(3);
  const { entries } = (await owner.get(`${app.path}/audit`)).data as {
    entries: { action: string; details: object }[];
  };
  expect(entries.filter(({ action }) => action === 'retention.set').map(({ details }) => details)).toEqual([
    { days: 2 },
    { days: 4, typeId: expect.any(String), name: 'debug' },
  ]);
  const listed = JSON.parse((await run(['list', '--json'])).stdout) as { rules: object[] };
  expect(listed.rules).toHaveLength(2);
});

test('what cannot be is refused with what can: exit code 2, and 400', async () => {
  const wrong: readonly [readonly string[], string, Record<string, string>][] = [
    [['--days', '0'], 'a whole number from 1 to 36500', {}],
    [['--days', '0.5'], 'a whole number from 1', {}],
    [['--days', 'always'], '"forever" or "default"', {}],
    [['--days', '31'], 'from 1 to 30', { RETENTION_DAYS: '30' }],
    [
      ['--days', 'forever'],
      'RETENTION_DAYS keeps the events of all apps for 30 days',
      { RETENTION_DAYS: '30' },
    ],
    [['--type', 'debgu', '--days', '3'], 'did you mean "debug"?', {}],
  ];
  for (const [args, message, config] of wrong) {
    const { code, stdout, stderr } = await run(['set', '--app', app.appId, ...args], config);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(message);
  }
  const refused = await owner.put(`${app.path}/retention`, { type: 'debgu', days: '3' });
  expect(refused.status).toBe(400);
  expect(refused.text).toContain('did you mean');
  expect((await owner.put(`${app.path}/retention`, { days: '0' })).status).toBe(400);
});
