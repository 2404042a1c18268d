/** What a hostile schema costs others: its checks take as long as they may, one after the other. */
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { type SchemaMode, showTypeSchema } from '../../src/apps/type-schemas.ts';
import { SchemaProver } from '../../src/schema/schema-text.ts';
import { created } from '../http/answers.ts';
import { answered, postBatch } from '../support/batch.ts';
import { startTestService, type TestService, until } from '../support/service.ts';
import { attachSchema, expectViolation, schemaChecks } from '../support/type-schemas.ts';

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
