/** What a hostile schema costs others: its checks take as long as they may, one after the other. */
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { setTypeSchema, showTypeSchema } from '../../src/apps/type-schemas.ts';
import { SchemaProver } from '../../src/schema/schema-text.ts';
import { created } from '../http/answers.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { attachSchema, expectViolation, ORDER } from '../support/type-schemas.ts';

let service: TestService;
const prover = new SchemaProver();
beforeEach(async () => {
  service = await startTestService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
});
afterEach(() => service.stop());
afterAll(() => prover.close());

const attach = (schema: object, mode: 'refuse'): Promise<void> =>
  attachSchema(service, prover, { schema, mode });

const UNIQUE = { properties: { list: { uniqueItems: true } } };
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
