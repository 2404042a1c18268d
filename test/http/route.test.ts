/** Which route a path means, and what the identifiers in it may be. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { type Route, Router } from '../../src/http/route.ts';
import { dashboardRoutes } from '../support/dashboard-routes.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';

const route = (path: string, parameters?: Route['parameters']): Route => ({
  method: 'GET',
  path,
  headers: [],
  handle: async () => ({ status: 200, body: '' }),
  ...(parameters !== undefined && { parameters }),
});

const NO_NUMBER = new Rejection('invalidParameters', 'It must be a number.');
const NUMBER = { form: /^\d+$/, refusal: NO_NUMBER };

describe('a router', () => {
  const router = new Router([
    route('/fixed'),
    route('/things/:id', { id: NUMBER }),
    route('/things/:id/parts/:part', { id: NUMBER, part: { form: /^[a-z]+$/, refusal: NO_NUMBER } }),
    { ...route('/things/:id', { id: NUMBER }), method: 'DELETE' },
  ]);
  const parametersOf = (path: string, method = 'GET'): readonly string[] | Rejection => {
    const match = router.match(method, path);
    return match instanceof Rejection ? match : match.parameters;
  };

  test('cannot be created with an undefined parameter', () => {
    expect(() => new Router([route('/things/:id')])).toThrow(
      'GET /things/:id does not define :id in its parameters',
    );
    expect(() => new Router([route('/things/:id', { part: NUMBER })])).toThrow(':id');
  });

  test('gives decoded parameters in their order', () => {
    expect(parametersOf('/fixed')).toEqual([]);
    expect(parametersOf('/things/12')).toEqual(['12']);
    expect(parametersOf('/things/%31%32')).toEqual(['12']);
    expect(parametersOf('/things/1/parts/ab')).toEqual(['1', 'ab']);
    expect(parametersOf('/things/1', 'DELETE')).toEqual(['1']);
    expect(parametersOf('/things/1', 'HEAD')).toEqual(['1']);
  });

  test.each(['%00', '1%00', 'x', '%zz', '%', '1%2F2', '%ff', ' 1', '1%0a', '..', '%2e%2e', '１'])(
    'refuses the parameter "%s"',
    (value) => {
      expect(parametersOf(`/things/${value}`)).toBe(NO_NUMBER);
      expect(parametersOf(`/things/${value}/parts/ab`)).toBe(NO_NUMBER);
    },
  );

  test.each([
    '/things',
    '/things/',
    '/things//',
    '/things/1/',
    '/things/1/parts',
    '/things/1/parts/',
    '/fixed/',
  ])('knows nothing at %s', (path) => {
    expect(parametersOf(path)).toMatchObject({ reason: 'notFound' });
  });
});

const MALFORMED = [
  '%00',
  'app_%00aaaaaaaaaaaaaaaaaaa',
  'tok_aaaaaaaaaaaaaaaaaaa%00',
  '%0d%0aX:1',
  '%ff%fe',
  '%zz',
  '%ed%a0%80',
  'x',
  '0',
  '-1',
  "'",
  '%27%20OR%201=1',
  '..%2f..',
  '9'.repeat(1_000),
  '%F0%9F%98%80',
  'app_aaaaaaaaaaaaaaaaaaaa',
  'tok_aaaaaaaaaaaaaaaaaaaa',
  'usr_aaaaaaaaaaaaaaaaaaaa',
  'inv_aaaaaaaaaaaaaaaaaaaa',
  '00000000-0000-0000-0000-000000000000',
  'a'.repeat(43),
];

describe('security 20: whatever a path or a query has in it', () => {
  let service: TestService;
  let owner: Person;
  let appId: string;
  beforeAll(async () => {
    service = await startTestService();
    owner = await newPerson(service, 'owner@example.com');
    ({ appId } = await newOwnApp(owner));
  });
  afterAll(() => service.stop());

  /** What such a request is answered with that should not be. */
  async function problemOf(method: string, target: string): Promise<string[]> {
    const { status } = await owner.ask(method, target, method === 'GET' ? undefined : '{}');
    // Its body may be refused first.
    const isGood = method === 'GET' || method === 'DELETE' ? status === 404 : status >= 400 && status < 500;
    return isGood ? [] : [`${method} ${target} ${status}`];
  }

  test('no identifier in any path makes a request fail: what is malformed or unknown is 404', async () => {
    // A route for resource tokens refuses the session first; test/http/token-reads-fuzz.test.ts spoils its path.
    const routes = (await dashboardRoutes(service)).filter(({ path }) => /^\/api\/.*:/.test(path));
    expect(routes.length).toBeGreaterThan(60);
    const found: string[] = [];
    for (const { method, path } of routes) {
      // Of several parameters the last is spoiled too: an app of one's own does not stop the request before.
      const spoiled = new Set([path, path.replace(':appId', appId)].filter((one) => one.includes(':')));
      const targets = [...spoiled].flatMap((one) => MALFORMED.map((value) => one.replaceAll(/:\w+/g, value)));
      const problems = await Promise.all(targets.map((target) => problemOf(method, target)));
      found.push(...problems.flat());
    }
    expect(found).toEqual([]);
    expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('the other transport hands the router the same paths', async () => {
    const other = await startTestService({ transport: 'node', database: service.database });
    try {
      for (const value of MALFORMED) {
        const statuses = [service, other].map(
          async ({ request }) =>
            (await request({ path: `/api/apps/${value}`, headers: { cookie: owner.cookie } })).status,
        );
        expect([value, ...(await Promise.all(statuses))]).toEqual([value, 404, 404]);
      }
    } finally {
      await other.stop();
    }
  });
});
