/** Every parameter of the described operations under /v1, with values made from its schema; not a test file. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import type { TestEngine } from '../support/database.ts';
import { checkAnswer, DESCRIPTION } from '../support/described.ts';
import { anyText, runs } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { LiveClient } from '../support/live-client.ts';
import { patient } from '../support/patience.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

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
  readonly security: readonly Readonly<Record<string, unknown>>[];
}

/** What exists: values with which a request gets past its first checks. */
interface Known {
  readonly appId: string;
  readonly eventId: string;
  readonly typeId: string;
  readonly typeName: string;
  readonly cursors: readonly string[];
}

interface FuzzedOperation {
  readonly path: string;
  readonly operation: Described;
}

/** The operations of a method under /v1. */
function operationsOf(method: 'get' | 'post'): FuzzedOperation[] {
  return Object.entries(DESCRIPTION.paths)
    .filter(([path, methods]) => path.startsWith('/v1/') && methods[method] !== undefined)
    .map(([path, methods]) => ({ path, operation: methods[method] as unknown as Described }));
}

/** All but the live feed, which does not end, and the configuration, which no resource token reads. */
const READS = operationsOf('get').filter(({ path }) => !path.endsWith('/live') && path !== '/v1/config');
const WRITES = operationsOf('post').filter(({ operation }) => (operation.parameters ?? []).length > 0);

/** Good bodies, by the end of the path; `{}` for others. */
const BODIES: Readonly<Record<string, string>> = {
  '/events': '{"events":[{"typeName":"a","payload":{}}]}',
  '/records': '[{"a":1}]',
  '/logs': '{"resourceLogs":[]}',
  '/_bulk': '{"index":{}}\n{"a":1}\n',
};

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
const ANYTHING = fc.oneof(HOSTILE, anyText());
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

/** Any of these operations, with paths and queries of any of their parameters. */
function requests(
  operations: readonly FuzzedOperation[],
  known: Known,
): fc.Arbitrary<{ readonly of: FuzzedOperation; readonly path: string }> {
  return fc.constantFrom(...operations).chain((of) => {
    const { path, operation } = of;
    const parameters = operation.parameters ?? [];
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
    return fc.tuple(filled, pairs).map(([target, given]) => ({
      of,
      path: `${target}?${given.map((pair) => pair.map(encode).join('=')).join('&')}`,
    }));
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
    path.includes('/export?')
      ? exported(path)
      : service.request({ path, headers: { Authorization: authorization } });

  /** An answer without a length, held to the description too. */
  const exported = async (path: string): Promise<HttpResponse> => {
    const response = await fetch(`${service.url}${path}`, {
      headers: { Authorization: authorization, 'Accept-Encoding': 'identity' },
    });
    const answer = {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: await response.text(),
    };
    checkAnswer({ path }, answer);
    return answer;
  };

  /** Sends a good body with the headers of the operation that are not the token's. */
  const post = async (
    { path: template, operation }: FuzzedOperation,
    path: string,
    header: string,
  ): Promise<HttpResponse> => {
    const [security] = operation.security;
    const { loggingToken } = service.app;
    const isBasic = security !== undefined && 'writeKey' in security;
    const credentials = isBasic
      ? `Basic ${Buffer.from(`${loggingToken}:`).toString('base64')}`
      : `Bearer ${loggingToken}`;
    const names = (operation.parameters ?? []).filter((one) => one.in === 'header').map(({ name }) => name);
    const [, body = '{}'] = Object.entries(BODIES).find(([end]) => template.endsWith(end)) ?? [];
    return await service.request({
      method: 'POST',
      path,
      body,
      headers: { Authorization: credentials, ...Object.fromEntries(names.map((name) => [name, header])) },
    });
  };

  /** Texts that a header can have. */
  const HEADER = ANYTHING.map((text) => text.replaceAll(/[^\x21-\x7e]/g, '').slice(0, 300));

  test('no read ends in a 500, or in an answer that the description does not have', {
    timeout: patient(600_000),
  }, async () => {
    const statuses = new Map<number, number>();
    await fc.assert(
      fc.asyncProperty(requests(READS, known), async ({ path }) => {
        const { status, body } = await get(path);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        expect(status, body).toBeLessThan(500);
        expect(body).not.toMatch(/SELECT|syntax error|postgres/i);
      }),
      runs(usualRuns),
    );
    // Most requests are good enough to be read, and some are not. The transport itself refuses the longest with 431.
    expect([...statuses.keys()].filter((status) => status !== 431).sort()).toEqual([200, 400, 404]);
    expect(statuses.get(200)).toBeGreaterThan(usualRuns / 10);
    expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('nor does a write, whatever its parameters', { timeout: patient(600_000) }, async () => {
    const statuses = new Set<number>();
    await fc.assert(
      fc.asyncProperty(requests(WRITES, known), HEADER, async ({ of, path }, header) => {
        const { status, body } = await post(of, path, header);
        statuses.add(status);
        expect(status, body).toBeLessThan(500);
      }),
      runs(usualRuns / 2),
    );
    expect(statuses).toContain(200);
    expect(statuses).toContain(400);
    expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('the live feed begins, whatever it is to go on from', { timeout: patient(600_000) }, async () => {
    const { appId } = service.app;
    const token = authorization.slice('Bearer '.length);
    const first = await LiveClient.follow(service.port, appId, { token });
    first.close();
    const cursor = fc.constantFrom(first.lastEventId, first.lastEventId.slice(1), `${first.lastEventId}0`);
    await fc.assert(
      fc.asyncProperty(fc.oneof(cursor, ANYTHING), fc.oneof(cursor, HEADER), async (after, lastEventId) => {
        const query = `?after=${encode(after)}`;
        const client = await LiveClient.open(service.port, appId, { token, lastEventId, query });
        try {
          expect(client.response.statusCode).toBe(200);
          await until(() => client.messages.length > 0, 'the feed says where it stands');
          // A cursor may be of another total of the app.
          expect(['ready', 'reset', 'recount']).toContain(client.messages[0]?.event);
        } finally {
          client.close();
        }
      }),
      runs(Math.ceil(usualRuns / 25)),
    );
  });
}
