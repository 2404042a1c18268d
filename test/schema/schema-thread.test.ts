/** The thread of schemas: what it finds, and what hostile schemas and payloads can do to it. */
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { MAX_SCHEMA_LENGTH, readSchemaText, SchemaProver } from '../../src/schema/schema-text.ts';
import { SchemaThread, type ThreadOutcome } from '../../src/schema/schema-thread.ts';
import { until } from '../support/service.ts';

const shared = new SchemaThread();
const prover = new SchemaProver();
const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});
afterAll(async () => {
  await shared.close();
  await prover.close();
});

function newThread(): SchemaThread {
  const thread = new SchemaThread();
  open.push(thread);
  return thread;
}

function textOf(schema: object): { text: string; digest: string } {
  const read = readSchemaText(schema);
  if (typeof read === 'string') throw new Error(read);
  return read;
}

async function check(
  thread: SchemaThread,
  schema: object,
  payloads: readonly unknown[],
): Promise<ThreadOutcome> {
  const { text, digest } = textOf(schema);
  const items = payloads.map((payload) => ({
    digest,
    payload: typeof payload === 'string' ? payload : JSON.stringify(payload),
  }));
  return await thread.run({ schemas: { [digest]: text }, items });
}

/** What is wrong with a payload; null where nothing is. */
async function violation(schema: object, payload: unknown): Promise<string | null> {
  const outcome = await check(shared, schema, [payload]);
  if (!('checked' in outcome)) throw new Error(outcome.problem);
  const [checked] = outcome.checked;
  if (checked?.problem != null) throw new Error(checked.problem);
  return checked?.violation ? `${checked.violation.path} ${checked.violation.message}` : null;
}

async function prove(schema: object): Promise<string | null> {
  return await prover.prove(textOf(schema), 'app');
}

describe('a payload is checked', () => {
  const schema = {
    type: 'object',
    required: ['order'],
    properties: {
      order: {
        type: 'object',
        required: ['total'],
        properties: { total: { type: 'number', minimum: 0 }, country: { pattern: '^[A-Z]{2}$' } },
        additionalProperties: false,
      },
    },
  };

  test.each([
    [{ order: { total: 1, country: 'DE' } }, null],
    [{ order: { total: '1' } }, '/order/total must be number'],
    [{ order: { total: 1, country: 'Germany' } }, '/order/country must match pattern "^[A-Z]{2}$"'],
    [{ order: { total: 1, extra: 1 } }, '/order must NOT have additional properties: "extra"'],
    [{}, " must have required property 'order'"],
  ])('%j', async (payload, expected) => {
    expect(await violation(schema, payload)).toBe(expected);
  });

  test('as JSON means it: the last of two members counts, 1e400 is a number, inherited names are not there', async () => {
    expect(await violation({ properties: { a: { const: 2 } } }, '{"a":1,"a":2}')).toBeNull();
    expect(await violation({ properties: { a: { type: 'number' } } }, '{"a":1e400}')).toBeNull();
    expect(await violation({ required: ['constructor'] }, '{}')).toContain('constructor');
    expect(await violation({ required: ['__proto__'] }, '{"__proto__":1}')).toBeNull();
  });

  test('by draft 07 where the schema says so, by 2020-12 otherwise', async () => {
    const tuple = { properties: { a: { items: [{ type: 'string' }] } } };
    const draft07 = { $schema: 'http://json-schema.org/draft-07/schema#', ...tuple };
    expect(await violation(draft07, { a: [1] })).toBe('/a/0 must be string');
    expect(await prove(tuple)).toContain('items');
    const prefix = { properties: { a: { prefixItems: [{ type: 'string' }] } } };
    expect(await violation(prefix, { a: [1] })).toBe('/a/0 must be string');
    expect(await prove({ $schema: 'http://json-schema.org/draft-04/schema#' })).toContain('$schema must be');
  });

  test('each pattern by itself, also where several are in one schema', async () => {
    const patterns = { properties: { a: { pattern: '^a+$' }, b: { pattern: '^\\u00e9\\d$' } } };
    expect(await violation(patterns, { a: 'aa', b: 'é1' })).toBeNull();
    expect(await violation(patterns, { a: 'é1', b: 'é1' })).toContain('/a must match');
    expect(await violation(patterns, { a: 'a', b: 'aa' })).toContain('/b must match');
  });
});

describe('a schema is not accepted', () => {
  test.each([
    ['lookaround', { properties: { a: { pattern: '^(?=a)b' } } }, 'RE2'],
    ['a backreference', { properties: { a: { pattern: '(a)\\1' } } }, 'RE2'],
    ['a reference elsewhere', { $ref: 'https://example.org/schema.json' }, "can't resolve reference"],
    ['an unknown local reference', { $ref: '#/$defs/none' }, "can't resolve reference"],
    ['the meta-schema', { $ref: 'https://json-schema.org/draft/2020-12/schema' }, "can't resolve reference"],
    ['asynchronous validation', { $async: true }, '$async'],
    ['an unknown type', { type: 'text' }, 'schema/type'],
  ])('%s', async (_, schema, problem) => {
    expect(await prove(schema)).toContain(problem);
  });

  test('while another one of the same owner, or twenty of others, are being compiled', async () => {
    const schema = textOf({ properties: { a: { type: 'string' } } });
    const owners = ['one', 'one', ...Array.from({ length: 20 }, (_, i) => `owner ${i}`)];
    const outcomes = await Promise.all(owners.map((owner) => prover.prove(schema, owner)));
    expect(outcomes).toEqual([null, 'busy', ...Array.from({ length: 19 }, () => null), 'busy']);
  });

  test('if it is too long or too deep', () => {
    expect(readSchemaText({ description: 'x'.repeat(MAX_SCHEMA_LENGTH) })).toContain(
      'at most 32768 characters',
    );
    let deep: object = {};
    for (let level = 0; level < 101; level += 1) deep = { not: deep };
    expect(readSchemaText(deep)).toContain('levels deep');
    expect(readSchemaText([])).toBe('must be a JSON object');
  });
});

describe('what would stop a service', () => {
  test('a pattern with catastrophic backtracking takes time in proportion to the text', async () => {
    const schema = { properties: { a: { pattern: '^(a+)+$' } } };
    expect(await violation(schema, { a: `${'a'.repeat(50_000)}!` })).toContain('/a must match');
  });

  test('a check that takes too long ends the thread, names its payload, and the next one starts anew', async () => {
    const thread = newThread();
    const slow = { properties: { a: { uniqueItems: true } } };
    const hostile = { a: Array.from({ length: 200_000 }, (_, i) => ({ i })) };
    // What it takes to compile must not end the turn.
    await check(thread, slow, [{ a: [1] }]);
    let payloads: object[] = [{ a: [1] }, hostile, { a: [2] }];
    const ofTurn = await check(thread, slow, payloads);
    // On a busy machine the turn may be over after the first one.
    if ('checked' in ofTurn) payloads = payloads.slice(ofTurn.checked.length);
    expect('checked' in ofTurn ? await check(thread, slow, payloads) : ofTurn).toMatchObject({
      failedAt: payloads.indexOf(hostile),
      problem: 'the check took too long',
    });
    expect(await check(thread, slow, [{ a: [1, 1] }])).toMatchObject({
      checked: [{ violation: { path: '/a' } }],
    });
  });

  test('a thread that is ended is replaced by one that is ready', async () => {
    const thread = new SchemaThread({ looks: 3, hasSpare: true });
    open.push(thread);
    const slow = { properties: { a: { uniqueItems: true } } };
    await check(thread, slow, [{ a: [1] }]);
    await until(() => thread.ready === 2, 'the spare is ready');
    const hostile = { a: Array.from({ length: 200_000 }, (_, i) => ({ i })) };
    const failed = check(thread, slow, [hostile]);
    expect(await failed).toMatchObject({ failedAt: 0, ms: 150 });
    // No thread has started since.
    const next = check(thread, slow, [{ a: [1, 1] }]);
    expect(thread.ready).toBe(1);
    expect(await next).toMatchObject({ checked: [{ violation: { path: '/a' } }] });
    await until(() => thread.ready === 2, 'there is a spare again');
  });

  test('references that double with each level of the payload do so too', async () => {
    const schema = {
      $ref: '#/$defs/twice',
      $defs: {
        twice: { properties: { a: { allOf: [{ $ref: '#/$defs/twice' }, { $ref: '#/$defs/twice' }] } } },
      },
    };
    const payload = `${'{"a":'.repeat(60)}1${'}'.repeat(60)}`;
    expect(await check(newThread(), schema, [payload])).toMatchObject({ failedAt: 0 });
  });

  test('references in a circle are a problem of their payload alone', async () => {
    const circle = { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } } };
    const outcome = await check(newThread(), circle, [{}]);
    expect(outcome).toMatchObject({
      checked: [{ violation: null, problem: expect.stringContaining('stack') }],
    });
  });

  test('hundreds of references to a large definition compile within the limits', async () => {
    const large = { enum: Array.from({ length: 1_000 }, (_, i) => `value ${i}`) };
    const properties = Object.fromEntries(
      Array.from({ length: 400 }, (_, i) => [`p${i}`, { $ref: '#/$defs/large' }]),
    );
    expect(await prove({ properties, $defs: { large } })).toBeNull();
  });
});
