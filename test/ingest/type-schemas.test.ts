/** Schemas of event types: what is refused, and what is counted. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { type SchemaMode, setTypeSchema, showTypeSchema } from '../../src/apps/type-schemas.ts';
import { SchemaProver } from '../../src/schema/schema-text.ts';
import { created, invalidBody } from '../http/answers.ts';
import { answered, postBatch, storedIds } from '../support/batch.ts';
import { tidemark } from '../support/command-line.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import {
  CREATE_EVENT,
  hurryRounds,
  sharedService,
  startTestService,
  type TestService,
  until,
} from '../support/service.ts';
import { attachSchema, expectViolation, ORDER, schemaChecks } from '../support/type-schemas.ts';

hurryRounds();

let service: TestService;
const prover = new SchemaProver();
beforeEach(async () => {
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
});
afterAll(() => prover.close());

function here(of: Pick<TestService, 'app' | 'type'> = service): { appId: string; typeId: string } {
  return { appId: of.app.appId, typeId: of.type.typeId };
}

const attach = (schema: object, mode: SchemaMode): Promise<void> =>
  attachSchema(service, prover, { schema, mode });

describe('a schema that refuses', () => {
  test('refuses a single event with the path, and stores what meets it', async () => {
    await attach(ORDER, 'refuse');
    const before = (await storedIds(service)).length;
    expectViolation(await service.post({ payload: { total: '1' } }), '/total: must be number');
    expectViolation(await service.post({ payload: {} }), "its top: must have required property 'total'");
    const { eventId } = created(await service.post({ payload: { total: 1 } }));
    expect((await storedIds(service)).slice(before)).toEqual([eventId]);
  });

  test('refuses events of a batch one by one, and none of other types', async () => {
    await attach(ORDER, 'refuse');
    const { typeId } = service.type;
    const { results } = answered(
      await postBatch(service, [
        { typeId, payload: { total: 1 } },
        { typeId, payload: { total: null } },
        { typeName: 'another', payload: { total: null } },
        { typeId, payload: 1 },
      ]),
    );
    expect(results.map(({ code, eventId }) => code ?? typeof eventId)).toEqual([
      'string',
      'SCHEMA_VIOLATION',
      'string',
      'INVALID_REQUEST',
    ]);
    expect(results[1]?.details).toContain('/total: must be number');
  });

  test('refuses idempotent requests, but a repeat of one that was stored before gets its first response', async () => {
    const keyed = (key: string): Promise<HttpResponse> =>
      service.request({
        method: 'POST',
        path: CREATE_EVENT,
        body: service.body('{"total":"none"}'),
        headers: { 'Idempotency-Key': key },
      });
    const first = created(await keyed('before'));
    await attach(ORDER, 'refuse');
    expect(created(await keyed('before'))).toEqual(first);
    expectViolation(await keyed('after'), '/total: must be number');
    const batch = [
      { typeId: service.type.typeId, payload: {} },
      { typeName: 'x', payload: {} },
    ];
    const sent = await postBatch(service, batch, { 'Idempotency-Key': 'batch' });
    expect(answered(sent).results[0]?.code).toBe('SCHEMA_VIOLATION');
    expect((await postBatch(service, batch, { 'Idempotency-Key': 'batch' })).body).toBe(sent.body);
  });

  test('counts in another process as soon as it is set, and no longer once it is removed', async () => {
    const other = await startTestService({ database: service.database });
    const { loggingToken } = service.app;
    const { typeId } = service.type;
    const post = async (): Promise<number> =>
      (await other.post({ loggingToken, typeId, payload: {} })).status;
    try {
      expect(await post()).toBe(201);
      await setTypeSchema(service.sql, prover, { ...here(), schema: ORDER, mode: 'refuse' });
      await until(async () => (await post()) === 400, 'the other process refuses');
      await service.sql`DELETE FROM type_schemas USING event_types WHERE event_types.id = type_id AND public_id = ${typeId}`;
      await until(async () => (await post()) === 201, 'the other process stores again');
    } finally {
      await other.stop();
    }
  });
});

test('a schema that warns stores every event, and counts and shows what violates it', async () => {
  await attach(ORDER, 'warn');
  created(await service.post({ payload: { total: 'x\u0000' } }));
  const { typeId } = service.type;
  answered(
    await postBatch(service, [
      { typeId, payload: { total: [] } },
      { typeId, payload: { total: 2 } },
    ]),
  );
  const keyed = { 'Idempotency-Key': 'keyed' };
  const request = { method: 'POST', path: CREATE_EVENT, body: service.body('{"total":{}}'), headers: keyed };
  // A repeat stores nothing, and is not counted again.
  for (let sent = 0; sent < 2; sent += 1) created(await service.request(request));
  answered(await postBatch(service, [{ typeId, payload: { total: 'x' } }], { 'Idempotency-Key': 'batch' }));
  await until(async () => (await schemaChecks(service)).warned === 4, 'the violations are counted');
  await until(async () => (await showTypeSchema(service.sql, here())).violations === 4, 'they are written');
  const shown = await showTypeSchema(service.sql, here());
  expect(shown).toMatchObject({
    mode: 'warn',
    schema: ORDER,
    unchecked: 0,
    suspendedAt: null,
    lastViolation: { path: '/total', message: 'must be number', at: expect.any(Date) },
  });
});

describe('an owner', () => {
  test('sets, sees and removes it in a session, which members and strangers may not', async () => {
    const owner = await newPerson(service);
    const { appId, path } = await newOwnApp(owner);
    const { data } = await owner.post(`${path}/types`, { name: 'order' });
    const url = `${path}/types/${data.typeId}/schema`;
    expect((await owner.get(url)).code).toBe('SCHEMA_NOT_FOUND');
    expect(await owner.put(url, { schema: ORDER, mode: 'refuse' })).toMatchObject({
      status: 200,
      data: { typeId: data.typeId, typeName: 'order', mode: 'refuse', schema: ORDER, violations: 0 },
    });
    expect((await owner.put(url, { schema: ORDER })).data.mode).toBe('warn');
    const other = await newOwnApp(owner, 'Other');
    expect((await owner.get(`${path}/type-schemas`)).data.schemas).toEqual([
      {
        ...{ typeId: data.typeId, typeName: 'order', mode: 'warn', setAt: expect.any(String) },
        ...{ suspendedAt: null, suspendedReason: null, lastViolation: null },
        ...{ checked: 0, violations: 0, unchecked: 0 },
      },
    ]);
    expect((await owner.get(`${other.path}/type-schemas`)).data.schemas).toEqual([]);
    for (const [body, details] of [
      [{ schema: { pattern: '(?=a)' } }, 'RE2'],
      [{ schema: [] }, 'must be a JSON object'],
      [{ schema: ORDER, mode: 'loud' }, 'mode'],
      [{}, 'schema'],
      ['text', 'schema'],
    ] as const)
      expect(await owner.put(url, body)).toMatchObject({
        status: 400,
        code: 'INVALID_REQUEST',
        text: expect.stringContaining(details),
      });
    expect((await owner.put(`${path}/types/typ_none/schema`, { schema: {} })).code).toBe(
      'EVENT_TYPE_NOT_FOUND',
    );

    const maintainer = await newPerson(service);
    await service.sql`
      INSERT INTO app_members (app_id, user_id, role)
      SELECT apps.id, users.id, 'maintainer' FROM apps, users
       WHERE apps.public_id = ${appId} AND users.email = ${maintainer.email}`;
    expect((await maintainer.get(url)).status).toBe(200);
    expect((await maintainer.put(url, { schema: {} })).code).toBe('ACCESS_DENIED');
    expect((await maintainer.delete(url)).code).toBe('ACCESS_DENIED');
    const stranger = await newPerson(service);
    expect((await stranger.get(url)).code).toBe('APP_NOT_FOUND');

    expect((await owner.delete(url)).data).toEqual({ typeId: data.typeId });
    expect((await owner.delete(url)).code).toBe('SCHEMA_NOT_FOUND');
    const { entries } = (await owner.get(`${path}/audit`)).data as { entries: { action: string }[] };
    expect(entries.slice(0, 3).map(({ action }) => action)).toEqual([
      'type.schema-remove',
      'type.schema-set',
      'type.schema-set',
    ]);
  });

  test('sets, shows and removes it on the command line', async () => {
    const run = (...args: string[]) =>
      tidemark(['type', 'schema', ...args, '--app', service.app.appId, '--type', service.type.typeId], {
        DATABASE_URL: service.database.url,
      });
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-schema-'));
    const file = join(folder, 'order.json');
    await writeFile(file, JSON.stringify(ORDER));
    const set = await run('set', '--file', file, '--mode', 'refuse', '--json');
    await rm(folder, { recursive: true });
    expect({ ...set, stdout: JSON.parse(set.stdout) }).toMatchObject({
      code: 0,
      stdout: { mode: 'refuse', schema: ORDER },
    });
    expect((await run('show')).stdout).toMatch(/^Mode +refuse$/m);
    expect(await run('remove')).toMatchObject({ code: 0, stdout: expect.stringContaining('removed') });
    expect(await run('show')).toMatchObject({ code: 2, stderr: expect.stringContaining('has no schema') });
    const hostile = await run('set', '--file', '/dev/null');
    expect(hostile).toMatchObject({ code: 1, stderr: expect.stringContaining('is not JSON') });
  });
});

test('a payload that is no object is refused as before, whatever the schema says', async () => {
  await attach({ type: 'array' }, 'refuse');
  expect(invalidBody(await service.post({ payload: [] }))).toContain('payload');
});

test('the same text does not lift a suspension at once, another text does', async () => {
  const set = (schema: object, mode: SchemaMode) =>
    setTypeSchema(service.sql, prover, { ...here(), schema, mode });
  await set(ORDER, 'refuse');
  await service.sql`UPDATE type_schemas SET suspended_at = now(), suspended_reason = 'too slow'`;
  expect(await set(ORDER, 'warn')).toMatchObject({
    mode: 'warn',
    suspendedAt: expect.any(Date),
    suspendedReason: 'too slow',
  });
  expect(await set({ ...ORDER, title: 'Order' }, 'warn')).toMatchObject({
    suspendedAt: null,
    suspendedReason: null,
  });
  await set(ORDER, 'warn');
  await service.sql`UPDATE type_schemas SET suspended_at = now() - interval '11 minutes', suspended_reason = 'too slow'`;
  expect(await set(ORDER, 'warn')).toMatchObject({ suspendedAt: null, suspendedReason: null });
});
