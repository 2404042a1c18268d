/** GET /v1/apps/{appId}/fields and its twin for sessions: a bounded sample, shared by those who ask at the same time. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField } from '../../src/apps/fields.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { answered, postBatch } from '../support/batch.ts';
import { availableEngines } from '../support/database.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { sharedService, startTestService, TestClock, type TestService } from '../support/service.ts';

interface FieldsAnswer {
  readonly fields: readonly {
    readonly typeName: string;
    readonly path: string;
    readonly events: number;
    readonly kindChange: unknown;
    readonly declaredAs: readonly string[];
    readonly examples: readonly unknown[];
  }[];
  readonly truncated: boolean;
  readonly sample: { readonly events: number; readonly from: string | null; readonly to: string | null };
}

describe.each(availableEngines())('on %s', (engine) => {
  let service: TestService;
  const clock = new TestClock();
  let token: string;

  beforeAll(async () => {
    service = await startTestService({ engine, clock, config: { READ_LIMIT_PER_MINUTE: 1_000 } });
    const made = await createResourceToken(service.sql, {
      name: 'reader',
      appIds: [service.app.appId],
      expiresInSeconds: null,
    });
    token = made.resourceToken;
  });
  afterAll(() => service.stop());

  const get = (query = ''): Promise<HttpResponse> =>
    service.request({
      method: 'GET',
      path: `/v1/apps/${service.app.appId}/fields${query}`,
      headers: { Authorization: `Bearer ${token}` },
    });
  const fields = async (query = ''): Promise<FieldsAnswer> => {
    const { status, body } = await get(query);
    expect({ status, body }).toMatchObject({ status: 200 });
    return JSON.parse(body).data;
  };

  test('an app without events has no fields', async () => {
    expect(await fields()).toEqual({
      fields: [],
      truncated: false,
      sample: { events: 0, from: null, to: null },
    });
  });

  test('lists the fields of recent events by type, also late and back-dated ones, for a scope', async () => {
    clock.advance(11_000);
    const at = (day: number): string => new Date(clock.wall() - day * 86_400_000).toISOString();
    const events = [
      ...Array.from({ length: 5 }, (_, i) => ({
        typeName: 'order',
        payload: { total: i, country: 'DE' },
        createdAt: at(1),
      })),
      ...Array.from({ length: 5 }, (_, i) => ({
        typeName: 'order',
        payload: { total: `${i}`, items: [{ sku: 'a' }] },
        createdAt: at(2),
      })),
      { typeName: 'visit', payload: { url: '/', 'with space': 1 }, createdAt: at(400) },
    ];
    answered(await postBatch(service, events));
    const found = await fields();
    expect(found.sample).toEqual({ events: 11, from: at(400), to: at(1) });
    expect(found.fields.map(({ typeName, path, events: n }) => `${typeName} ${path} ${n}`)).toEqual([
      'order total 10',
      'order country 5',
      'order items 5',
      'order items.sku 5',
      'visit url 1',
      'visit "with space" 1',
    ]);
    expect(found.fields[0]).toMatchObject({ kindChange: { earlier: 'string', recent: 'number' } });
    const visits = await fields('?typeName=visit');
    expect(visits.fields.map(({ path }) => path)).toEqual(['url', '"with space"']);
    expect((await fields(`?from=${at(1.5)}`)).sample.events).toBe(5);
    expect(JSON.parse((await get('?typeName=none')).body).code).toBe('EVENT_TYPE_NOT_FOUND');
  });

  test('marks what is declared, for the type or for all', async () => {
    clock.advance(11_000);
    const [app] = await service.sql<{ id: number }[]>`
      SELECT id FROM apps WHERE public_id = ${service.app.appId}`;
    const declare = (path: string[], kind: 'value' | 'number', typeName: string | null) =>
      declareField(service.sql, { appId: app?.id ?? 0, path, kind, typeName, backfill: false });
    await declare(['total'], 'number', 'order');
    await declare(['total'], 'value', null);
    await declare(['with space'], 'value', null);
    await declare(['items', 'sku'], 'value', 'visit');
    const declared = (await fields()).fields.filter(({ declaredAs }) => declaredAs.length > 0);
    expect(
      declared.map(({ typeName, path, declaredAs }) => [typeName, path, [...declaredAs].sort()]),
    ).toEqual([
      ['order', 'total', ['number', 'value']],
      ['visit', '"with space"', ['value']],
    ]);
  });

  test('is given again for ten seconds, and made once for those who ask together', async () => {
    clock.advance(11_000);
    const before = await fields();
    answered(await postBatch(service, [{ typeName: 'order', payload: { added: true } }]));
    expect(await fields()).toEqual(before);
    clock.advance(10_001);
    const [first, second] = await Promise.all([fields(), fields()]);
    expect(first?.fields.map(({ path }) => path)).toContain('added');
    expect(second).toEqual(first);
  });

  test('numbers are shown as they were sent', async () => {
    const { type, app } = service;
    const body = `{"events":[{"typeId":"${type.typeId}","payload":{"big":12345678901234567890,"huge":1e400}}]}`;
    answered(await postBatch(service, body));
    const { body: text } = await get(`?typeId=${type.typeId}`);
    expect(text).toContain('"examples":[12345678901234567890]');
    expect(text).toContain('"examples":[1e400]');
    expect(app.appId).not.toBe('');
  });
});

test('members see the same in a session; another app, a missing token and a stranger get nothing', async () => {
  const service = await sharedService();
  try {
    const owner = await newPerson(service, 'owner@example.com');
    const { appId, loggingToken, path } = await newOwnApp(owner);
    await service.post({ loggingToken, typeId: undefined, typeName: 'order', payload: { total: 1 } });
    expect((await owner.get(`${path}/fields`)).data).toMatchObject({
      fields: [{ typeName: 'order', path: 'total', examples: [1] }],
    });
    const stranger = await newPerson(service, 'stranger@example.com');
    expect((await stranger.get(`${path}/fields`)).code).toBe('APP_NOT_FOUND');
    const { resourceToken } = await createResourceToken(service.sql, {
      name: 'other',
      appIds: [service.app.appId],
      expiresInSeconds: null,
    });
    const asked = async (headers: Record<string, string>): Promise<number> =>
      (await service.request({ method: 'GET', path: `/v1/apps/${appId}/fields`, headers })).status;
    expect(await asked({ Authorization: `Bearer ${resourceToken}` })).toBe(403);
    expect(await asked({})).toBe(401);
  } finally {
    await service.stop();
  }
});
