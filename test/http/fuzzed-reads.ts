/** Every parameter of the described reads, with values made from its schema; not a test file. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import type { TestEngine } from '../support/database.ts';
import { DESCRIPTION } from '../support/described.ts';
import { runs } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { startTestService, type TestService } from '../support/service.ts';

interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly schema: Schema;
}

interface Schema {
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly items?: Schema;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly examples?: readonly string[];
}

interface Described {
  readonly parameters?: readonly Parameter[];
}

/** What exists: values with which a request gets past its first checks. */
interface Known {
  readonly appId: string;
  readonly eventId: string;
  readonly typeId: string;
  readonly typeName: string;
  readonly cursors: readonly string[];
}

/** The GET operations under /v1, but for streams, which do not end. */
const READS = Object.entries(DESCRIPTION.paths)
  .filter(([path, { get }]) => path.startsWith('/v1/') && get !== undefined)
  .map(([path, { get }]) => ({ path, get: get as unknown as Described }))
  .filter(({ path }) => !/\/(live|export)$/.test(path));

/** Texts that no parameter is made for. */
const HOSTILE = fc.constantFrom(
  ...[
    '',
    "'",
    "';--",
    '\0',
    'a\0',
    '%',
    '%00',
    '\ufffd',
    '\u{1f600}',
    '\u202e',
    '__proto__',
    'null',
    'NaN',
    '-1',
  ],
  ...['1e18', '1000000000000000000', '9'.repeat(400), '0000-01-01', '9999-12-31', '+275760-09-13'],
  ...[
    '-271821-04-20',
    '2026-02-30',
    '2026-01-31T24:00:00Z',
    '1969-12-31T23:59:59.999Z',
    ' ',
    'x'.repeat(2_000),
  ],
);
const ANYTHING = fc.oneof(
  HOSTILE,
  fc.string({ unit: 'grapheme', maxLength: 12 }),
  fc.string({ unit: 'binary' }),
);
const INSTANT = fc
  .date({ min: new Date('1969-12-01'), max: new Date('2200-01-01'), noInvalidDate: true })
  .chain((date) => {
    const text = date.toISOString();
    return fc.constantFrom(text, text.slice(0, 10), text.slice(0, 16), text.replace('Z', '+05:45'));
  });

/** A value of a schema, mostly; else what is near it, or anything. */
function textFor({ name, schema }: Parameter, known: Known): fc.Arbitrary<string> {
  const { type, enum: words, minimum = 0, examples = [] } = schema.items ?? schema;
  const good: fc.Arbitrary<string>[] = [];
  if (words !== undefined) good.push(fc.constantFrom(...words));
  if (examples.length > 0) good.push(fc.constantFrom(...examples));
  if (type === 'integer') good.push(fc.integer({ min: minimum, max: 2_000 }).map(String));
  if (type === 'boolean') good.push(fc.constantFrom('true', 'false'));
  if (name === 'from' || name === 'to')
    good.push(INSTANT, fc.constant(new Date().toISOString().slice(0, 10)));
  if (name === 'timezone') good.push(fc.constantFrom(...Intl.supportedValuesOf('timeZone')));
  if (name === 'cursor') good.push(fc.constantFrom(...known.cursors));
  const own = known[name as keyof Known];
  if (typeof own === 'string') good.push(fc.constant(own));
  const near = fc.oneof(...good, ANYTHING).map((text) => text.slice(0, -1));
  return fc.oneof(
    ...good.map((arbitrary) => ({ weight: 3, arbitrary })),
    { weight: 1, arbitrary: near },
    { weight: 1, arbitrary: ANYTHING },
    { weight: 2, arbitrary: HOSTILE },
  );
}

/** Paths and queries of any of the reads, with any of their parameters. */
function requests(known: Known): fc.Arbitrary<string> {
  return fc.constantFrom(...READS).chain(({ path, get }) => {
    const parameters = get.parameters ?? [];
    const filled = fc
      .tuple(
        ...parameters
          .filter((parameter) => parameter.in === 'path')
          .map((parameter) =>
            textFor(parameter, known).map((value): [string, string] => [parameter.name, value]),
          ),
      )
      .map((values) =>
        values.reduce(
          // An empty segment is no parameter's, and dots are taken away by clients.
          (text, [name, value]) => text.replace(`{${name}}`, () => encode(value.replaceAll('.', '') || 'x')),
          path,
        ),
      );
    const ofQuery = parameters.filter((parameter) => parameter.in === 'query');
    const pairs =
      ofQuery.length === 0
        ? fc.constant([])
        : fc.array(
            fc
              .constantFrom(...ofQuery)
              .chain((parameter) =>
                textFor(parameter, known).map((value) => [parameter.name, value] as const),
              ),
            { maxLength: 6 },
          );
    return fc
      .tuple(filled, pairs)
      .map(([target, given]) => `${target}?${given.map((pair) => pair.map(encode).join('=')).join('&')}`);
  });
}

/** As URLs have it, whatever halves of surrogate pairs there are. */
function encode(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString());
}

/** Sends requests one after the other. The client holds each answer to the description. */
export function fuzzReads(engine: TestEngine, usualRuns: number): void {
  let service: TestService;
  let authorization: string;
  let known: Known;
  beforeAll(async () => {
    const config = { READ_LIMIT_PER_MINUTE: 0, CREATE_LIMIT_PER_MINUTE: 0 };
    service = await startTestService({ engine, config });
    const { appId, loggingToken } = service.app;
    const token = await createResourceToken(service.sql, {
      name: 'fuzz',
      appIds: [appId],
      expiresInSeconds: null,
    });
    authorization = `Bearer ${token.resourceToken}`;
    const events = Array.from({ length: 60 }, (_, i) => ({
      typeName: `type ${i % 3}`,
      payload: { i },
      createdAt: new Date(Date.now() - 1 - (i % 7) * 3_600_000).toISOString(),
    }));
    const stored = await service.request({
      method: 'POST',
      path: '/v1/events',
      body: JSON.stringify({ events }),
      headers: { Authorization: `Bearer ${loggingToken}` },
    });
    const [first] = JSON.parse(stored.body).results;
    const cursors: string[] = [];
    for (const order of ['asc', 'desc']) {
      const page = await get(`/v1/apps/${appId}/events?limit=20&order=${order}`);
      cursors.push(JSON.parse(page.body).data.pagination.nextCursor);
    }
    known = { appId, eventId: first.eventId, typeId: first.typeId, typeName: 'type 0', cursors };
  });
  afterAll(() => service.stop());

  const get = (path: string): Promise<HttpResponse> =>
    service.request({ path, headers: { Authorization: authorization } });

  test('no read ends in a 500, or in an answer that the description does not have', {
    timeout: 600_000,
  }, async () => {
    const statuses = new Map<number, number>();
    await fc.assert(
      fc.asyncProperty(requests(known), async (path) => {
        const { status, body } = await get(path);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        expect(status, body).toBeLessThan(500);
        expect(body).not.toMatch(/SELECT|syntax error|postgres/i);
      }),
      runs(usualRuns),
    );
    // Most requests are good enough to be read, and some are not. The transport itself refuses the longest with 431.
    expect([...statuses.keys()].filter((status) => status !== 431).sort()).toEqual([200, 400, 404]);
    expect(statuses.get(200)).toBeGreaterThan(usualRuns / 5);
    expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
  });
}
