/** Errors that say what is wrong, where, and what to do: of tokens, parameters and JSON. */
import { beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { DOCUMENTED, Rejection } from '../../src/errors.ts';
import { API } from '../../src/service/api-description.ts';
import { build } from '../support/command-line.ts';
import { CREATE_EVENT, sharedService, type TestService } from '../support/service.ts';

let service: TestService;
let resourceToken: string;
beforeAll(async () => {
  build();
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
  const appIds = [service.app.appId];
  const made = await createResourceToken(service.sql, { name: 'test', appIds, expiresInSeconds: null });
  resourceToken = made.resourceToken;
});

interface Told {
  readonly status: number;
  readonly error: string;
  readonly details: string;
  readonly code: string;
  readonly message: string;
  readonly param?: string;
  readonly docs?: string;
}

async function post(
  body: string,
  path = CREATE_EVENT,
  token = service.app.loggingToken,
  contentType = 'application/json',
): Promise<Told> {
  const headers = { Authorization: `Bearer ${token}`, 'Content-Type': contentType };
  const response = await service.request({ method: 'POST', path, body, headers });
  return { status: response.status, ...JSON.parse(response.body) };
}

async function read(path: string, token = resourceToken): Promise<Told> {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await service.request({ path: `/v1/apps/${service.app.appId}${path}`, headers });
  return { status: response.status, ...JSON.parse(response.body) };
}

const event = (more: object = {}): Record<string, unknown> => ({
  loggingToken: service.app.loggingToken,
  typeName: 'seen',
  payload: {},
  ...more,
});

test('a wrong token is told apart by its form alone: of the other kind, cut off, mistyped, another text, unknown', async () => {
  const { loggingToken } = service.app;
  const mistyped = loggingToken.slice(0, -1) + (loggingToken.endsWith('0') ? '1' : '0');
  const pad = 'x'.repeat(3_000);
  for (const [sent, details] of [
    [resourceToken, /^This is a resource token \(tdr_…\), which reads: send the app's logging token/],
    [loggingToken.slice(0, 9), /^The logging token is cut off: it has 9 of 42 characters\.$/],
    [`${loggingToken}0`, /^The logging token is too long/],
    [mistyped, /^The logging token is mistyped/],
    ['secret', /^This is not a logging token: those begin with tdl_ and have 42 characters\.$/],
    [createTokenText('tdl'), /^No app here has this logging token/],
  ] as const) {
    const expected = { status: 401, error: 'Invalid logging token', code: 'AUTH_INVALID_TOKEN' };
    const said = { ...expected, details: expect.stringMatching(details) };
    expect(await post(JSON.stringify(event({ loggingToken: sent })))).toMatchObject(said);
    // A large body is searched for tokens before it is parsed.
    expect(await post(JSON.stringify(event({ loggingToken: sent, pad })))).toMatchObject(said);
    expect(await post('{}', '/v1/events', sent)).toMatchObject(said);
  }
  for (const [sent, details] of [
    [loggingToken, /^This is a logging token \(tdl_…\), which writes: send a resource token/],
    [resourceToken.slice(0, 20), /^The resource token is cut off: it has 20 of 42 characters\.$/],
    [createTokenText('tdr'), /^There is no such resource token here/],
  ] as const) {
    const expected = { status: 401, error: 'Invalid resource token', code: 'AUTH_INVALID_TOKEN' };
    expect(await read('/events', sent)).toMatchObject({
      ...expected,
      details: expect.stringMatching(details),
    });
  }
});

test('no refusal of a token repeats it', async () => {
  for (const sent of [
    'tdl_secret',
    `${service.app.loggingToken}0`,
    resourceToken.slice(0, 20),
    createTokenText('tdl'),
  ]) {
    expect(JSON.stringify(await post(JSON.stringify(event({ loggingToken: sent }))))).not.toContain(sent);
    expect(JSON.stringify(await read('/events', sent))).not.toContain(sent);
  }
});

test('a parameter that a route of /v1 does not have is refused with the one that was meant', async () => {
  for (const [path, param, advice] of [
    ['/events?startDate=2099-01-01', 'startDate', 'did you mean from?'],
    ['/events?endDate=2099-01-01', 'endDate', 'did you mean to?'],
    ['/events?limti=5', 'limti', 'did you mean limit?'],
    ['/series?form=2025-01-01', 'form', 'did you mean from?'],
    ['/events/01900000-0000-7000-8000-000000000000?limit=5', 'limit', 'it has none.'],
  ] as const) {
    const details = `${param} is not a parameter of this route: ${advice}`;
    expect(await read(path)).toMatchObject({ status: 400, code: 'INVALID_REQUEST', param, details });
  }
  const atomc = { status: 400, param: 'atomc', details: expect.stringContaining('did you mean atomic?') };
  expect(await post('[]', '/v1/events?atomc=true')).toMatchObject(atomc);
  expect(await read(`/events?${'x'.repeat(500)}=1`)).toMatchObject({ param: `${'x'.repeat(64)}…` });
});

test('an empty text counts as absent, and an empty number, choice or flag is refused', () => {
  let checked = 0;
  for (const { path, operation } of API.filter((route) => route.path.startsWith('/v1/apps')))
    for (const [name, { schema }] of Object.entries(operation?.query?.parameters ?? {})) {
      const answer = operation?.query?.parse(`${name === 'path' ? '' : 'path=a&'}${name}=`);
      const isRefused = answer instanceof Rejection && answer.details.startsWith(`${name} must`);
      const hasValue = schema.enum !== undefined || ['integer', 'boolean'].includes(String(schema.type));
      expect([path, name, isRefused]).toEqual([path, name, hasValue]);
      checked += 1;
    }
  expect(checked).toBeGreaterThan(40);
});

test('a range that no interval fits is told to be too long', async () => {
  for (const interval of ['auto', '1M', '1d'])
    expect(await read(`/series?from=2026-01-01&to=9998-12-31&interval=${interval}`)).toMatchObject({
      ...{ status: 400, param: 'to', details: 'to must be at most 1,000 months after from.' },
    });
});

test('a path that nearly is one of the API is named, and no other', async () => {
  for (const [path, meant] of [
    ['/v1/event', '/v1/events'],
    ['/events', '/v1/events'],
    ['/public/create-event', '/public/create_event'],
    ['/create_event/', '/public/create_event'],
    ['/v1/get_events', '/public/get_events'],
    // The host has a slash at its end, or clients of a format were given the host alone.
    ['//v1/events', '/v1/events'],
    ['/v1/logs', '/v1/otlp/v1/logs'],
    ['/_bulk', '/v1/elasticsearch/_bulk'],
    ['/api/event', '/v1/plausible/api/event'],
    ['/ready', '/readyz'],
  ]) {
    const { status, body } = await service.request({ path: path ?? '' });
    expect([status, JSON.parse(body).details]).toEqual([
      404,
      `There is nothing at this path: did you mean ${meant}?`,
    ]);
  }
  for (const path of ['/v1/', '/v1/nothing', '/api/type', '/health', `/v1/events/${'x'.repeat(100)}`]) {
    const { body } = await service.request({ path });
    expect(body).toContain('There is nothing at this path."');
  }
});

test("the contract's routes ignore parameters and fields that they do not have", async () => {
  const headers = { Authorization: `Bearer ${resourceToken}` };
  const path = `/public/get_events?appId=${service.app.appId}&from=2099-01-01&nonsense=1`;
  expect((await service.request({ path, headers })).status).toBe(200);
  expect(await post(JSON.stringify(event({ nonsense: 1, type: 5 })))).toMatchObject({ status: 201 });
});

test('createdAt without a key is told to have no effect, and counts with one', async () => {
  const createdAt = '2025-01-31T08:30:00.000Z';
  const told = await post(JSON.stringify(event({ createdAt })));
  expect(told).toMatchObject({
    status: 201,
    message: expect.stringContaining('createdAt counts only together with key'),
  });
  expect(told).not.toMatchObject({ timestamp: createdAt });
  for (const created of [
    event(),
    event({ createdAt: null }),
    event({ createdAt: '' }),
    event({ createdAt, key: 'k' }),
  ])
    expect(await post(JSON.stringify(created))).toMatchObject({ status: 201, message: 'Event created' });
});

test('type and typeName are the same for events of a batch, in queries and for records', async () => {
  const results = async (events: readonly object[]): Promise<Record<string, unknown>[]> => {
    const told = await post(JSON.stringify(events), '/v1/events');
    return (told as unknown as { results: Record<string, unknown>[] }).results;
  };
  const [byName, byType, both, escaped] = await results([
    { typeName: 'aliased', payload: {} },
    { type: 'aliased', payload: {} },
    { type: 7, typeName: 'aliased', payload: {} },
    { type: 'ali\u0061sed', typeName: null, payload: {}, 'e\\s': '\\' },
  ]);
  expect(byName?.typeId).toMatch(/^typ_/);
  for (const one of [byType, both, escaped]) expect(one?.typeId).toBe(byName?.typeId);
  const [wrong, foreign] = await results([
    { type: 7, payload: {} },
    { typeId: 'typ_00000000000000000000', type: 'aliased', payload: {} },
  ]);
  expect(wrong).toMatchObject({ param: 'type', details: 'The field "type" must be a string.' });
  expect(foreign).toMatchObject({
    code: 'EVENT_TYPE_NOT_FOUND',
    details: expect.stringContaining('leave out typeId'),
  });

  for (const name of ['type', 'typeName']) {
    expect(await read(`/events?${name}=aliased&limit=1`)).toMatchObject({ status: 200 });
    expect(await read(`/events?${name}=nothing`)).toMatchObject({
      status: 404,
      details: expect.stringContaining(`"nothing"`),
    });
    const stored = await post('{"a":1}', `/v1/records?${name}=aliased`);
    expect(stored).toMatchObject({ status: 200, stored: 1 });
  }
});

test('a mistake in JSON has its line and column, and lines of events their content type', async () => {
  const noJson = 'The body is not valid JSON: ';
  for (const [body, details] of [
    ['{"loggingToken":"x",}', "a comma stands before '}' at line 1, column 21."],
    ['{\n  "payload": {"a": tru}\n}', "unexpected 't' at line 2, column 20."],
    ['{"payload": {', 'it ends too early at line 1, column 14.'],
    ["{'payload': {}}", "unexpected ''' at line 1, column 2."],
    ['{"a": "b\nc"}', 'a control character (U+000A) must be escaped at line 1, column 9.'],
    ['{"a": "\\x"}', "unexpected '\\' at line 1, column 8."],
    [
      '{"a":1}\n{"a":2}',
      'a second document begins at line 2, column 1. To send one event a line, use POST /v1/events with Content-Type: application/x-ndjson.',
    ],
  ] as const) {
    expect(await post(body)).toMatchObject({ status: 400, details: noJson + details });
  }
  const form =
    'The body is a form (name=value), not JSON: send {"name": "value"} with Content-Type: application/json.';
  for (const path of ['/public/create_event', '/v1/events'])
    expect(await post('loggingToken=x&typeName=y', path)).toMatchObject({ status: 400, details: form });
  const one = '{"typeName":"seen","payload":{}}';
  const hint = 'For one event a line send Content-Type: application/x-ndjson.';
  expect((await post(`${one}\n${one}`, '/v1/events')).details).toBe(
    `${noJson}a second document begins at line 2, column 1. ${hint}`,
  );
  expect((await post(`[${one},\n ${one},\n]`, '/v1/events')).details).toBe(
    `${noJson}a comma stands before ']' at line 3, column 1.`,
  );
  expect((await post(one, '/v1/events')).details).toContain('as application/x-ndjson');
  const lines = await post(
    `${one}\n{"typeName":}`,
    '/v1/events',
    service.app.loggingToken,
    'application/x-ndjson',
  );
  expect(JSON.stringify(lines)).toContain("The line is not valid JSON: unexpected '}' at column 13.");
  expect((await post('[{"a":1},{]', '/v1/records?type=t')).details).toBe(
    `${noJson}unexpected ']' at line 1, column 11.`,
  );
});

test('an error names the parameter or field at fault, and leads to the paragraph on its code', async () => {
  for (const [told, param] of [
    [await post(JSON.stringify(event({ payload: 1 }))), 'payload'],
    [await post(JSON.stringify(event({ key: 'k' }))), 'key'],
    [await post(JSON.stringify(event({ typeId: 'typ_1' }))), 'typeId'],
    [await read('/events?limit=0'), 'limit'],
    [await read('/series?of=ms'), 'stat'],
    [await post('['), undefined],
    [await read('/events?from=2026-02-01&to=2026-01-01'), 'from'],
  ] as const) {
    expect(told.param).toBe(param);
    expect(told.docs).toBe(`/docs/errors#${told.code}`);
  }
  const { status, body } = await service.request({ path: '/docs/errors' });
  expect(status).toBe(200);
  for (const code of DOCUMENTED) expect(body).toContain(`<h2 id="${code}">`);
});
