/** What a hostile schema costs others: its checks take as long as they may, one after the other. */
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { type SchemaMode, setTypeSchema, showTypeSchema } from '../../src/apps/type-schemas.ts';
import { SchemaProver } from '../../src/schema/schema-text.ts';
import { created } from '../http/answers.ts';
import { answered, postBatch } from '../support/batch.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { attachSchema, expectViolation, ORDER, schemaChecks } from '../support/type-schemas.ts';

let service: TestService;
const prover = new SchemaProver();
beforeEach(async () => {
  service = await startTestService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
});
afterEach(() => service.stop());
afterAll(() => prover.close());

const attach = (schema: object, mode: SchemaMode): Promise<void> =>
  attachSchema(service, prover, { schema, mode });

const UNIQUE = { properties: { list: { uniqueItems: true } } };
/** 100 KB whose check takes longer than one may. */
const slowEnough = { total: 1, list: Array.from({ length: 10_000 }, (_, i) => ({ i })) };
const slow = { list: Array.from({ length: 50_000 }, (_, i) => ({ i })) };

test('a hostile schema delays nobody without a schema, is suspended, and costs no event', async () => {
  await attach(UNIQUE, 'refuse');
  const typeId = (await service.newType(service.app, 'innocent')).typeId;
  let isOver = false;
  const attack = Promise.all(Array.from({ length: 6 }, () => service.post({ payload: slow })));
  void attack.then(() => {
    isOver = true;
  });
  let stored = 0;
  while (!isOver) {
    created(await service.post({ typeId, payload: {} }));
    stored += 1;
  }
  for (const response of await attack) created(response);
  expect(stored).toBeGreaterThan(20);
  await until(
    async () =>
      (
        await showTypeSchema(service.sql, {
          appId: service.app.appId,
          typeId: service.type.typeId,
        })
      ).suspendedReason !== null,
    'the schema is suspended',
  );
  expect(service.log).toContainEqual(
    expect.objectContaining({ msg: 'schema: suspended, payloads of the type are not checked' }),
  );
  // It violates the schema, which nothing is checked against any more.
  created(await service.post({ payload: { list: [1, 1] } }));
  // Ten minutes later the same text may be set again.
  await service.sql`UPDATE type_schemas SET suspended_at = suspended_at - interval '11 minutes'`;
  await attach(UNIQUE, 'refuse');
  expectViolation(
    await service.post({ payload: { list: [1, 1] } }),
    '/list: must NOT have duplicate items (items ## 0 and 1 are identical)',
  );
});

test("a hostile schema does not take other apps' turns", async () => {
  await attach(UNIQUE, 'refuse');
  const other = await service.newApp();
  const { typeId } = await service.newType(other, 'order');
  await setTypeSchema(service.sql, prover, { appId: other.appId, typeId, schema: ORDER, mode: 'refuse' });
  const attack = Promise.all(Array.from({ length: 8 }, () => service.post({ payload: slow })));
  const fields = { loggingToken: other.loggingToken, typeId };
  let isOver = false;
  void attack.then(() => {
    isOver = true;
  });
  let during = 0;
  while (!isOver) {
    const response = await service.post({ ...fields, payload: { total: 'x' } });
    expect(response.status).toBe(400);
    during += 1;
  }
  // Each waits for one slow check at most.
  expect(during).toBeGreaterThanOrEqual(3);
  for (const response of await attack) created(response);
  expectViolation(await service.post({ ...fields, payload: { total: 'x' } }), '/total: must be number');
  created(await service.post({ ...fields, payload: { total: 1 } }));
});

test('one account with twenty hostile apps delays another account by one check', async () => {
  const hostile = await newOwner('hostile@example.com', 20, UNIQUE, 'warn');
  const innocent = await newOwner('innocent@example.com', 1, ORDER, 'refuse');
  const post = (of: { readonly loggingToken: string; readonly typeId: string }, payload: object) =>
    service.post({ loggingToken: of.loggingToken, typeId: of.typeId, payload });
  // Both are known, and so are their schemas.
  for (const type of [...hostile, ...innocent]) created(await post(type, { total: 1 }));
  const unchecked = async (): Promise<number> => (await schemaChecks(service)).unchecked ?? 0;
  const [type] = innocent;
  if (type === undefined) throw new Error('The innocent account has no type.');
  // The first one that is ended shows whose checks are slow.
  for (const one of hostile) created(await post(one, slowEnough));
  await until(async () => (await unchecked()) >= 1, 'a hostile check was ended');
  for (let round = 0; round < 2; round++) {
    for (const one of hostile) created(await post(one, slowEnough));
    const before = await unchecked();
    expectViolation(await post(type, { total: 'x' }), '/total: must be number');
    expect((await unchecked()) - before).toBeLessThanOrEqual(2);
  }
});

test('what waits for a schema that is suspended is not checked any more', async () => {
  await attach(UNIQUE, 'warn');
  const before = (await schemaChecks(service)).unchecked ?? 0;
  // One batch: 30 payloads, each of which would end the thread.
  const events = Array.from({ length: 30 }, () => ({ typeId: service.type.typeId, payload: slowEnough }));
  answered(await postBatch(service, events));
  await until(async () => ((await schemaChecks(service)).unchecked ?? 0) - before === 30, 'all are settled');
  const ended = service.log.filter(
    ({ msg }) => msg === 'schema: suspended, payloads of the type are not checked',
  );
  expect(ended).toHaveLength(1);
  const { body } = await service.request({ method: 'GET', path: '/metrics' });
  const counts = [...body.matchAll(/^tidemark_schema_threads_ended_total\{thread="\w+"\} (\d+)/gm)];
  const threadsEnded = counts.reduce((sum, [, count]) => sum + Number(count), 0);
  expect(threadsEnded).toBeGreaterThan(0);
  expect(threadsEnded).toBeLessThanOrEqual(6);
});

/** Apps of a new account, each with a type that has the schema. */
async function newOwner(email: string, count: number, schema: object, mode: SchemaMode) {
  const types: { readonly loggingToken: string; readonly typeId: string }[] = [];
  const owner = await newPerson(service, email);
  for (let n = 0; n < count; n++) {
    const { appId, loggingToken } = await newOwnApp(owner);
    const { typeId } = await service.newType({ appId, loggingToken }, 'order');
    await setTypeSchema(service.sql, prover, { appId, typeId, schema, mode });
    types.push({ loggingToken, typeId });
  }
  return types;
}
