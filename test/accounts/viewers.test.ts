/** Viewers see an app and change nothing: every route of an app, and every way to become one. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { suspendApp } from '../../src/apps/apps.ts';
import type { Declaration } from '../../src/http/route.ts';
import { dashboardRoutes } from '../support/dashboard-routes.ts';
import { joinApp, newOwnApp, newPerson, type Person, type Reply } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

/** What a viewer may do besides reading: leave. */
const ALLOWED = new Set(['DELETE /api/apps/:appId/members/:userId']);
/** Reads of what lets one write, and of who did what from the beginning on. */
const SECRET = new Set([
  'GET /api/apps/:appId/logging-token',
  'GET /api/apps/:appId/browser-keys',
  'GET /api/apps/:appId/erasures',
  'GET /api/apps/:appId/limits',
  'GET /api/apps/:appId/retention/preview',
  'GET /api/apps/:appId/producers',
  'GET /api/apps/:appId/producers/:tokenId/token',
  'GET /api/apps/:appId/audit/export',
]);
const CHANGED = [
  'apps',
  'app_members',
  'invitations',
  'event_types',
  'logging_tokens',
  'resource_tokens',
  'audit_entries',
  'saved_views',
  'boards',
  'board_views',
  'annotations',
  'shares',
];

let service: TestService;
let owner: Person;
let viewer: Person;
let stranger: Person;
let app: { appId: string; loggingToken: string; path: string };
let values: Record<string, string>;
let declared: readonly Declaration[];

beforeAll(async () => {
  service = await startTestService();
  owner = await newPerson(service, 'owner@example.com');
  viewer = await newPerson(service, 'viewer@example.com');
  stranger = await newPerson(service, 'stranger@example.com');
  app = await newOwnApp(owner);
  await joinApp(owner, app.path, viewer, { email: 'viewer@example.com', role: 'viewer' });
  const invited = await owner.post(`${app.path}/members`, { email: 'invited@example.com' });
  expect(invited.status).toBe(201);
  const type = await owner.post(`${app.path}/types`, { name: 'visit' });
  const token = await owner.post(`${app.path}/tokens`, { name: 'Analytics' });
  const event = await service.post({ loggingToken: app.loggingToken, typeId: type.data.typeId });
  const members = (await owner.get(`${app.path}/members`)).data as {
    members: { userId: string; role: string }[];
    invitations: { invitationId: string }[];
  };
  const view = await owner.post(`${app.path}/views`, { name: 'Errors', search: 'range=24h' });
  const other = await owner.post(`${app.path}/views`, { name: 'Visits', search: 'range=7d' });
  const viewIds = [view.data.viewId, other.data.viewId];
  const board = await owner.post(`${app.path}/boards`, { name: 'Morning', viewIds });
  const share = await owner.post(`${app.path}/shares`, {
    viewId: view.data.viewId,
    ...{ range: '7d', timezone: 'UTC' },
  });
  const annotation = await owner.post(`${app.path}/annotations`, { text: 'Release 1' });
  values = {
    ':viewId': String(view.data.viewId),
    ':boardId': String(board.data.boardId),
    ':shareId': String(share.data.shareId),
    ':annotationId': String(annotation.data.annotationId),
    ':appId': app.appId,
    ':typeId': String(type.data.typeId),
    ':tokenId': String(token.data.tokenId),
    ':eventId': String(JSON.parse(event.body).eventId),
    ':userId': members.members.find(({ role }) => role === 'owner')?.userId ?? '',
    ':webhookId': 'whk_aaaaaaaaaaaaaaaaaaaa',
    ':alertId': 'alr_aaaaaaaaaaaaaaaaaaaa',
    ':action': 'pause',
    ':invitationId': members.invitations[0]?.invitationId ?? '',
  };
  expect((await put(owner, `${app.path}/types/${type.data.typeId}/schema`)).status).toBe(200);
  await owner.post(`${app.path}/declared-fields`, { path: 'total', kind: 'number', backfill: true });
  await until(
    async () => (await owner.get(`${app.path}/numbers?of=total`)).status === 200,
    'the field is counted',
  );
  const routes = await dashboardRoutes(service);
  declared = routes.filter(({ path }) => /^\/api\/apps\/:appId(\/|$)/.test(path));
});
afterAll(() => service.stop());

/** Parameters that a route cannot do without. */
const QUERIES: Readonly<Record<string, string>> = {
  '/api/apps/:appId/alerts/trial': `?rule=${encodeURIComponent('{"of":"count","window":"5m","above":10}')}`,
  '/api/apps/:appId/explanation': '?partFrom=2026-01-01&partTo=2026-01-02',
  '/api/apps/:appId/numbers': '?of=total',
  '/api/apps/:appId/fields/values': '?path=total',
};

const nameOf = ({ method, path }: Declaration): string => `${method} ${path}`;
const pathOf = ({ path }: Declaration): string =>
  path.replace(/:\w+/g, (name) => {
    const value = values[name];
    if (value === undefined) throw new Error(`The test has no value for ${name}.`);
    return value;
  }) + (QUERIES[path] ?? '');
const isQuestion = ({ path }: Declaration): boolean => path.endsWith('/query');
const isRead = (route: Declaration): boolean => route.method === 'GET' || isQuestion(route);

function ask(person: Person, route: Declaration): Promise<Reply> {
  const path = pathOf(route);
  if (route.method === 'GET') return person.get(path);
  if (isQuestion(route)) return person.post(path, {});
  if (route.method === 'POST')
    return person.post(path, { name: 'x', email: 'x@example.com', role: 'maintainer', confirm: 'Shop' });
  if (route.method === 'PATCH') return person.patch(path, { name: 'x', role: 'maintainer' });
  if (route.method === 'DELETE') return person.delete(path, { confirm: 'Shop' });
  return put(person, path);
}

async function put(person: Person, path: string): Promise<Reply> {
  const { status, headers, body } = await service.request({
    method: 'PUT',
    path,
    headers: { Cookie: person.cookie },
    body: '{"schema":{"type":"object"}}',
  });
  const { code = '', data = {} } = JSON.parse(body);
  return { status, headers, code, data, text: body };
}

async function content(): Promise<string> {
  let text = '';
  for (const table of CHANGED) {
    const rows = await service.sql<
      { row: string }[]
    >`SELECT t::text AS row FROM ${service.sql(table)} AS t ORDER BY 1`;
    text += `${table}\n${rows.map(({ row }) => row).join('\n')}\n`;
  }
  return text.replaceAll(/"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*\+00"/g, 'T');
}

describe('every route of an app', () => {
  test('that changes something refuses viewers, but for leaving, and changes nothing', async () => {
    const before = await content();
    const changes = declared.filter((route) => !isRead(route));
    expect(changes.length).toBeGreaterThan(8);
    for (const route of changes) {
      const reply = await ask(viewer, route);
      expect([reply.status, reply.code], nameOf(route)).toEqual([403, 'ACCESS_DENIED']);
    }
    expect(await content()).toBe(before);
    expect(changes.map(nameOf)).toEqual(expect.arrayContaining([...ALLOWED]));
  });

  test('that reads serves viewers, but for the logging token and the export of the audit log', async () => {
    for (const route of declared.filter(isRead)) {
      // Streams: one has no end, and the end of the others is not that of its connection. That they begin is enough.
      if (/\/(?:live|export|query)$/.test(route.path)) {
        const aborter = new AbortController();
        const { status } = await fetch(service.url + pathOf(route), {
          method: route.method,
          headers: { Cookie: viewer.cookie, 'Content-Type': 'application/json' },
          signal: aborter.signal,
          ...(isQuestion(route) && { body: '{}' }),
        });
        aborter.abort();
        expect(status, nameOf(route)).toBe(SECRET.has(nameOf(route)) ? 403 : 200);
        continue;
      }
      const reply = await ask(viewer, route);
      expect([reply.status, reply.code], nameOf(route)).toEqual(
        SECRET.has(nameOf(route)) ? [403, 'ACCESS_DENIED'] : [200, ''],
      );
      expect(reply.text, nameOf(route)).not.toContain(app.loggingToken);
    }
  });

  test('refuses a member whose role may nothing, and changes nothing', async () => {
    const nobody = await newPerson(service, 'nobody@example.com');
    await joinApp(owner, app.path, nobody, { email: 'nobody@example.com', role: 'viewer' });
    await service.sql`ALTER TABLE app_members DROP CONSTRAINT app_members_role_check`;
    await service.sql`
      UPDATE app_members SET role = 'nobody' FROM users WHERE users.id = user_id AND email = 'nobody@example.com'`;
    const before = await content();
    for (const route of declared) {
      const reply = await ask(nobody, route);
      expect([reply.status, reply.code], nameOf(route)).toEqual([403, 'ACCESS_DENIED']);
    }
    const { apps } = (await nobody.get('/api/apps')).data as { apps: readonly object[] };
    expect(apps).toEqual([expect.not.objectContaining({ total: expect.anything() })]);
    expect(await content()).toBe(before);
    await service.sql`DELETE FROM app_members WHERE role = 'nobody'`;
  });

  test('is not there for others, and asks visitors to sign in', async () => {
    for (const route of declared) {
      expect((await ask(stranger, route)).code, nameOf(route)).toBe('APP_NOT_FOUND');
      const { status } = await service.request({
        method: route.method,
        path: pathOf(route),
        ...(route.method !== 'GET' && { headers: { 'Content-Type': 'application/json' }, body: '{}' }),
      });
      expect(status, nameOf(route)).toBe(401);
    }
  });

  test('is closed to its owner, too, while the operator has suspended the app', async () => {
    await suspendApp(service.sql, { appId: app.appId, isSuspended: true });
    const before = await content();
    for (const route of declared) {
      const reply = await ask(owner, route);
      expect([reply.status, reply.code], nameOf(route)).toEqual([403, 'ACCESS_DENIED']);
      expect(reply.text, nameOf(route)).toContain('suspended the app');
    }
    expect(await content()).toBe(before);
    await suspendApp(service.sql, { appId: app.appId, isSuspended: false });
  });
});

describe('a viewer', () => {
  const idOf = async (person: Person): Promise<string> =>
    String(((await person.get('/api/session')).data.user as { userId: string }).userId); // As the route declares it.

  test('makes no token of another app that reads this one', async () => {
    const own = await newOwnApp(viewer, 'Own');
    const refused = await viewer.post(`${own.path}/tokens`, { name: 'Both', appIds: [app.appId] });
    expect(refused).toMatchObject({ status: 404, code: 'APP_NOT_FOUND' });
    expect((await viewer.post(`${own.path}/tokens`, { name: 'Own' })).status).toBe(201);
  });

  test('comes by a link that was made for one, and the last invitation counts', async () => {
    await owner.post(`${app.path}/members`, { email: 'late@example.com' });
    const { data } = await owner.post(`${app.path}/members`, { email: 'late@example.com', role: 'viewer' });
    const link = `/api/invitations/${String(data.link).split('/').at(-1)}`;
    const late = await newPerson(service, 'other@example.com');
    expect((await late.get(link)).data.role).toBe('viewer');
    await late.post(`${link}/accept`);
    expect((await late.get(app.path)).data.role).toBe('viewer');
    expect((await late.post(`${app.path}/types`, { name: 'no' })).status).toBe(403);
  });

  test('is made a maintainer and a viewer again by the owner alone, at once', async () => {
    const path = `${app.path}/members/${await idOf(viewer)}`;
    expect((await viewer.patch(path, { role: 'maintainer' })).status).toBe(403);
    expect((await owner.patch(path, { role: 'owner' })).code).toBe('INVALID_REQUEST');
    expect((await owner.patch(path, { role: 'maintainer' })).status).toBe(200);
    expect((await viewer.get(`${app.path}/logging-token`)).status).toBe(200);
    expect((await owner.patch(path, { role: 'viewer' })).status).toBe(200);
    expect((await viewer.get(`${app.path}/logging-token`)).status).toBe(403);
    const own = `${app.path}/members/${await idOf(owner)}`;
    expect(await owner.patch(own, { role: 'viewer' })).toMatchObject({ status: 409, code: 'LAST_OWNER' });
    const { entries } = (await owner.get(`${app.path}/audit`)).data as {
      entries: { action: string; details: object }[];
    };
    expect(entries.slice(0, 2).map(({ action, details }) => ({ action, details }))).toEqual([
      { action: 'member.role', details: { email: 'viewer@example.com', role: 'viewer' } },
      { action: 'member.role', details: { email: 'viewer@example.com', role: 'maintainer' } },
    ]);
  });

  test('leaves by themselves', async () => {
    expect((await viewer.delete(`${app.path}/members/${await idOf(viewer)}`)).status).toBe(200);
    expect((await viewer.get(app.path)).status).toBe(404);
  });
});
