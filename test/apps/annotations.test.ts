/** What members share about an app's charts: saved views, and annotations, which pipelines write too. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const AT = '2026-11-20T14:27:00.000Z';

let service: TestService;
let owner: Person;
let viewer: Person;
let app: { appId: string; loggingToken: string; path: string };
let resourceToken: string;

beforeAll(async () => {
  service = await startTestService({ config: { CREATE_LIMIT_PER_MINUTE: 20 } });
  owner = await newPerson(service, 'owner@example.com');
  viewer = await newPerson(service, 'viewer@example.com');
  app = await newOwnApp(owner);
  await owner.post(`${app.path}/members`, { email: 'viewer@example.com', role: 'viewer' });
  ({ resourceToken } = await createResourceToken(service.sql, {
    name: 'test',
    appIds: [app.appId],
    expiresInSeconds: null,
  }));
});
afterAll(() => service.stop());

async function annotate(body: unknown, token = app.loggingToken) {
  const response = await service.request({
    method: 'POST',
    path: '/v1/annotations',
    headers: { Authorization: `Bearer ${token}` },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: response.status, ...JSON.parse(response.body) };
}

async function listed(query = ''): Promise<Record<string, unknown>[]> {
  const { status, body } = await service.request({
    path: `/v1/apps/${app.appId}/annotations${query}`,
    headers: { Authorization: `Bearer ${resourceToken}` },
  });
  expect(status).toBe(200);
  return JSON.parse(body).data.annotations;
}

describe('annotations', () => {
  test('are written by a pipeline, once however often it sends them, and read by tokens and members', async () => {
    const release = { kind: 'deployment', text: 'Release 2.4.1', at: AT };
    const first = await annotate(release);
    expect(first).toMatchObject({ status: 201, success: true });
    const again = await annotate(release);
    expect(again).toMatchObject({ status: 200, data: first.data });
    expect((await annotate({ ...release, text: 'Release 2.4.2' })).status).toBe(201);
    expect(await listed('?to=2026-11-21')).toEqual([
      expect.objectContaining({ text: 'Release 2.4.2' }),
      {
        ...{ annotationId: first.data.annotationId, kind: 'deployment', at: AT, until: null },
        ...{ text: 'Release 2.4.1', createdAt: expect.any(String) },
      },
    ]);
    const { annotations } = (await viewer.get(`${app.path}/annotations?to=2026-11-21`)).data as {
      annotations: object[];
    }; // As the route declares it.
    expect(annotations[1]).toMatchObject({ text: 'Release 2.4.1', createdBy: null });
  });

  test('of an interval are those that touch it', async () => {
    const outage = { kind: 'incident', text: 'Outage', at: '2026-10-01T10:00Z', until: '2026-10-01T12:00Z' };
    expect((await annotate(outage)).status).toBe(201);
    const within = async (from: string, to: string): Promise<number> =>
      (await listed(`?from=2026-10-01T${from}Z&to=2026-10-01T${to}Z`)).length;
    expect(await within('09:00', '10:00')).toBe(0);
    expect(await within('09:00', '10:00:00.001')).toBe(1);
    expect(await within('10:30', '11:00')).toBe(1);
    expect(await within('11:59:59.999', '13:00')).toBe(1);
    expect(await within('12:00:00.001', '13:00')).toBe(0);
  });

  test.each([
    ['a missing text', {}, 'text'],
    ['an empty text', { text: '' }, 'text'],
    ['a text that is too long', { text: 'x'.repeat(201) }, 'text'],
    ['a text with NUL', { text: 'a\0' }, 'text'],
    ['an unknown kind', { text: 'x', kind: 'party' }, '"kind" must be one of deployment, incident, note'],
    ['a misspelled time', { text: 'x', time: AT }, '"time" is none of the body\'s: text, kind, at, until'],
    ['a time that does not exist', { text: 'x', at: '2026-02-30' }, 'at'],
    ['an end before its beginning', { text: 'x', at: AT, until: AT }, 'until'],
    ['no JSON', '{"text":', 'JSON'],
  ])('with %s are refused', async (_name, body, named) => {
    const refused = await annotate(body);
    expect(refused).toMatchObject({ status: 400, code: 'INVALID_REQUEST' });
    expect(refused.details).toContain(named);
  });

  test('need a logging token, and count as its writes', async () => {
    expect((await annotate({ text: 'x' }, resourceToken)).code).toBe('AUTH_INVALID_TOKEN');
    expect((await annotate({ text: 'x' }, '')).code).toBe('AUTH_INVALID_TOKEN');
    const other = await newOwnApp(owner, 'Other');
    const limited = Array.from({ length: 21 }, () => annotate({ text: 'x', at: AT }, other.loggingToken));
    const statuses = (await Promise.all(limited)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 201)).toHaveLength(1);
    expect(statuses.filter((status) => status === 200)).toHaveLength(19);
    expect(statuses.filter((status) => status === 429)).toHaveLength(1);
  });

  test('that wait for their app keep no lookup of another app waiting', async () => {
    const [held, free] = [await newOwnApp(owner, 'Held'), await newOwnApp(owner, 'Free')];
    let settled = 0;
    let waiting: Promise<unknown> = Promise.resolve();
    await service.sql.begin(async (tx) => {
      await tx`SELECT FROM apps WHERE public_id = ${held.appId} FOR UPDATE`;
      const texts = Array.from({ length: 12 }, (_, n) =>
        annotate({ text: `${n}`, at: AT }, held.loggingToken),
      );
      waiting = Promise.all(texts.map((one) => one.finally(() => (settled += 1))));
      await until(async () => {
        const rows = await service.sql`
          SELECT FROM pg_stat_activity
           WHERE datname = current_database() AND application_name = 'tidemark lookups' AND wait_event_type = 'Lock'`;
        return rows.length > 0;
      }, 'an annotation waits for its app');
      const { loggingToken } = free;
      const stored = await service.post({ loggingToken, typeId: undefined, typeName: 'a' });
      expect(stored.status).toBe(201);
      expect(settled).toBeLessThan(10);
    });
    await waiting;
  });

  test('of tokens make room for new ones; those of members stay, and are limited', async () => {
    const full = await newOwnApp(owner, 'Full');
    const fill = (byToken: boolean) => service.sql`
      INSERT INTO annotations (public_id, app_id, kind, starts_at, text, by_token)
      SELECT ${`ann_${byToken ? 't' : 'm'}`} || number, apps.id, 'note', '2026-01-01Z'::timestamptz + number * interval '1 minute', ${byToken ? 't' : 'm'} || number, ${byToken}
        FROM apps, generate_series(1, 5000) AS number WHERE apps.public_id = ${full.appId}`;
    await fill(true);
    await fill(false);
    expect((await annotate({ text: 'new' }, full.loggingToken)).status).toBe(201);
    const count = async (byToken: boolean) => {
      const [row] = await service.sql<{ count: number; first: string }[]>`
        SELECT count(*)::integer AS count, min(starts_at)::text AS first FROM annotations
         WHERE by_token = ${byToken} AND app_id = (SELECT id FROM apps WHERE public_id = ${full.appId})`;
      return row;
    };
    expect(await count(true)).toMatchObject({ count: 5_000, first: expect.stringContaining('00:02') });
    expect(await count(false)).toMatchObject({ count: 5_000, first: expect.stringContaining('00:01') });
    expect((await owner.post(`${full.path}/annotations`, { text: 'one more' })).code).toBe(
      'TOO_MANY_ANNOTATIONS',
    );
  });

  test('are written and removed by members who may change the app, with their name', async () => {
    const added = await owner.post(`${app.path}/annotations`, { text: 'By hand', kind: 'note' });
    expect(added.status).toBe(201);
    expect((await viewer.post(`${app.path}/annotations`, { text: 'No' })).status).toBe(403);
    const path = `${app.path}/annotations`;
    const latest = async () =>
      ((await viewer.get(path)).data.annotations as { text: string; createdBy: string }[])[0]; // As the route declares it.
    expect(await latest()).toMatchObject({ text: 'By hand', createdBy: 'owner@example.com' });
    const other = await newOwnApp(viewer, 'Viewer’s own');
    const id = String(added.data.annotationId);
    expect((await viewer.delete(`${other.path}/annotations/${id}`)).code).toBe('ANNOTATION_NOT_FOUND');
    expect((await owner.delete(`${path}/${id}`)).status).toBe(200);
    expect((await latest())?.text).not.toBe('By hand');
    const { entries } = (await owner.get(`${app.path}/audit`)).data as { entries: { action: string }[] };
    expect(entries.slice(0, 2).map(({ action }) => action)).toEqual(['annotation.remove', 'annotation.add']);
  });
});

describe('saved views', () => {
  const names = async (person: Person): Promise<string[]> =>
    ((await person.get(`${app.path}/views`)).data.views as { name: string }[]).map(({ name }) => name); // As the route declares it.

  test('are seen by every member, replaced by their name, and removed', async () => {
    const save = (name: string, search: string) => owner.post(`${app.path}/views`, { name, search });
    const first = await save('Errors', 'range=24h&type=typ_a');
    expect(first.status).toBe(201);
    expect((await save('all', 'range=7d')).status).toBe(201);
    const again = await save('Errors', 'range=7d&type=typ_a');
    expect([again.status, again.data.viewId]).toEqual([200, first.data.viewId]);
    expect(await names(viewer)).toEqual(['all', 'Errors']);
    expect((await viewer.post(`${app.path}/views`, { name: 'Mine', search: '' })).status).toBe(403);
    expect((await save('Odd', 'javascript:alert(1)\n')).code).toBe('INVALID_REQUEST');
    const other = await newOwnApp(viewer, 'Another');
    expect((await viewer.delete(`${other.path}/views/${first.data.viewId}`)).code).toBe('VIEW_NOT_FOUND');
    expect((await owner.delete(`${app.path}/views/${first.data.viewId}`)).status).toBe(200);
    expect(await names(owner)).toEqual(['all']);
  });

  test('are a hundred at most', async () => {
    const many = await newOwnApp(owner, 'Many');
    await service.sql`
      INSERT INTO saved_views (public_id, app_id, name, search)
      SELECT 'vie_' || number, apps.id, number::text, '' FROM apps, generate_series(1, 100) AS number
       WHERE apps.public_id = ${many.appId}`;
    const save = (name: string) => owner.post(`${many.path}/views`, { name, search: 'range=1h' });
    expect((await save('new')).code).toBe('TOO_MANY_VIEWS');
    expect((await save('100')).status).toBe(200);
  });
});
