/** CloudEvents in each mode of the HTTP binding, from the standard's own SDK and by hand. */
import { CloudEvent, HTTP } from 'cloudevents';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { refused } from '../../http/answers.ts';
import { answered } from '../../support/batch.ts';
import { runs } from '../../support/fuzz.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { startTestService, type TestService } from '../../support/service.ts';

const PATH = '/v1/cloudevents';
const STRUCTURED = 'application/cloudevents+json';
const BATCH = 'application/cloudevents-batch+json';

const services = new Map<string, TestService>();
beforeAll(async () => {
  for (const transport of ['uws', 'node'] as const)
    services.set(transport, await startTestService({ transport, config: { CREATE_LIMIT_PER_MINUTE: 0 } }));
});
afterAll(async () => {
  for (const service of services.values()) await service.stop();
});

describe.each(['uws', 'node'])('over %s,', (transport) => {
  const service = (): TestService => services.get(transport) as TestService;
  const post = (
    body: string | Buffer,
    headers: Readonly<Record<string, string | null>>,
  ): Promise<HttpResponse> =>
    service().request({
      method: 'POST',
      path: PATH,
      body,
      headers: { Authorization: `Bearer ${service().app.loggingToken}`, ...headers },
    });

  /** The stored event of an answer. */
  const stored = async (response: HttpResponse) => {
    const id = answered(response).results[0]?.eventId ?? '';
    const [row] = await service().sql<{ type: string; payload: string; time: Date }[]>`
      SELECT type.name AS type, event.payload::text AS payload, event.created_at AS time
        FROM events AS event JOIN event_types AS type ON type.id = event.type_id WHERE event.id = ${id}`;
    if (row === undefined) throw new Error('The event is not stored.');
    return row;
  };

  const sent = (): CloudEvent<unknown> =>
    new CloudEvent({
      id: 'A234-1234-1234',
      source: '/mycontext/sub?x=1',
      type: 'com.example.someevent',
      time: '2026-01-31T08:30:00.123Z',
      subject: 'Euro € 😀 "quoted" 100%',
      comexampleextension1: 'value',
      data: { much: 'wow', n: [1, 2.5, null] },
    });

  test('the SDK delivers in binary and in structured mode', async () => {
    for (const message of [HTTP.binary(sent()), HTTP.structured(sent())]) {
      const { 'content-type': contentType, ...headers } = message.headers as Record<string, string>;
      const { type, payload, time } = await stored(
        await post(String(message.body), { ...headers, 'Content-Type': contentType ?? '' }),
      );
      expect({ type, time: time.toISOString() }).toEqual({
        type: 'com.example.someevent',
        time: '2026-01-31T08:30:00.123Z',
      });
      // The SDK of the standard reads the payload as the event that it has sent.
      const [read] = [HTTP.toEvent({ headers: { 'content-type': STRUCTURED }, body: payload })].flat();
      const { datacontenttype: _, ...attributes } = JSON.parse(String(read)) as Record<string, unknown>;
      const { datacontenttype: __, ...wanted } = JSON.parse(String(sent())) as Record<string, unknown>;
      expect(attributes).toEqual(wanted);
    }
  });

  test('data in JSON modes keeps its text', async () => {
    const event =
      '{"specversion":"1.0","id":"1","source":"s","type":"kept", "data" : {"n":1e400,"n":-0,"z":"\\u0000"},"time":null}';
    expect((await stored(await post(event, { 'Content-Type': STRUCTURED }))).payload).toBe(event);
    const batch = answered(
      await post(`[${event} , ${event}]`, { 'Content-Type': `${BATCH}; charset=utf-8` }),
    );
    expect(batch.stored).toBe(2);
    expect(answered(await post(' [ ] ', { 'Content-Type': BATCH })).results).toEqual([]);
  });

  const ATTRIBUTES = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': 's', 'ce-type': 'binary' };
  test.each<[string, string, string | Buffer, object]>([
    ['JSON', 'application/json', ' {"n":1e400} ', { data: { n: Number.POSITIVE_INFINITY } }],
    ['JSON by its suffix', 'application/vnd.a+json; charset=utf-8', '[1]', { data: [1] }],
    ['text', 'text/plain', 'a "text" é', { data: 'a "text" é' }],
    ['bytes', 'application/octet-stream', Buffer.from([0, 255, 254]), { data_base64: 'AP/+' }],
    ['nothing', 'application/json', '', {}],
  ])('the body in binary mode is data: %s', async (_, type, body, wanted) => {
    const { payload } = await stored(
      await post(body, {
        'Content-Type': type,
        ...ATTRIBUTES,
        'ce-ext': '%E2%82%AC \\ %zz',
        'ce-q': '"a\\"b"',
      }),
    );
    expect(JSON.parse(payload)).toEqual({
      ...{ specversion: '1.0', id: '1', source: 's', type: 'binary', datacontenttype: type },
      ...{ ext: '%E2%82%AC \\ %zz', q: 'a"b', ...wanted },
    });
  });

  test('values of headers are percent-encoded', async () => {
    const { payload } = await stored(
      await post('', { ...ATTRIBUTES, 'ce-subject': 'Euro%20%E2%82%AC%20%F0%9F%98%80' }),
    );
    expect(JSON.parse(payload).subject).toBe('Euro € 😀');
  });

  test.each<[string, Record<string, string | null>, string, number, RegExp]>([
    ['no mode', { 'Content-Type': 'application/json' }, '{}', 415, /ce-specversion/],
    [
      'another format',
      { 'Content-Type': 'application/cloudevents+avro', ...ATTRIBUTES },
      'x',
      415,
      /cloudevents/,
    ],
    ['another version', { ...ATTRIBUTES, 'ce-specversion': '0.3' }, '{}', 400, /specversion/],
    ['no id', { ...ATTRIBUTES, 'ce-id': null }, '{}', 400, /"id" is missing/],
    [
      'an empty source',
      { 'Content-Type': STRUCTURED },
      '{"specversion":"1.0","id":"1","source":"","type":"t"}',
      400,
      /source/,
    ],
    [
      'an id that is a number',
      { 'Content-Type': STRUCTURED },
      '{"specversion":"1.0","id":1}',
      400,
      /"id" must be a string/,
    ],
    ['no time', { ...ATTRIBUTES, 'ce-time': 'soon' }, '{}', 400, /"time" must be/],
    ['data twice', { 'Content-Type': STRUCTURED }, '{"data":1,"data_base64":""}', 400, /either/],
    ['an array as structured', { 'Content-Type': STRUCTURED }, '[]', 400, /object/],
    ['an object as batch', { 'Content-Type': BATCH }, '{}', 400, /array/],
    ['JSON that is none', { 'Content-Type': 'application/json', ...ATTRIBUTES }, '{', 400, /JSON/],
    ['a batch cut off', { 'Content-Type': BATCH }, '[{}', 400, /JSON/],
  ])('%s is refused', async (_, headers, body, status, details) => {
    const response = await post(body, headers);
    expect(response.status).toBe(status);
    expect(JSON.parse(response.body).details).toMatch(details);
  });

  /**
   * The cases of the standard's conformance tests (cloudevents/conformance, format/json), by what they change of the minimal
   * event; undefined leaves an attribute out.
   */
  const minimal = {
    specversion: '1.0',
    id: 'm',
    type: 'io.cloudevents.test',
    source: 'https://cloudevents.io',
  };
  const nulls = { datacontenttype: null, dataschema: null, subject: null, time: null };
  const core = {
    datacontenttype: 'text/plain',
    dataschema: 'https://cloudevents.io/dataschema',
    subject: 'tests',
  };
  const uris = { exturi: 'https://cloudevents.io', exturiref: '//authority/path' };
  const times = { exttimestamp: '2023-03-31T15:12:00Z', extbinary: 'TWE=' };
  test.each<[string, object]>([
    ['minimal', {}],
    ['null for optional', nulls],
    ['all core attributes', { ...core, time: '2018-04-05T17:31:00Z' }],
    ['time', { time: '2018-04-05T17:31:00Z' }],
    ['time to nanoseconds', { time: '2018-04-05T17:31:00.000000000Z' }],
    ['time with a positive offset', { time: '2018-04-05T18:31:00+01:00' }],
    ['time with a negative offset', { time: '2018-04-05T16:31:00-01:00' }],
    ['relative source', { source: '#fragment' }],
    ['simple text data', { datacontenttype: 'text/plain', data: 'Simple text' }],
    [
      'all extension types',
      { extinteger: 10, extnegative: -10, extboolean: true, extstring: 'text', ...uris, ...times },
    ],
  ])('conformance: valid, alone and in a batch: %s', async (name, change) => {
    // Events of one id, source and time are one event.
    const text = JSON.stringify({ ...minimal, id: name, ...change });
    const { type, payload, time } = await stored(await post(text, { 'Content-Type': STRUCTURED }));
    expect([type, payload]).toEqual(['io.cloudevents.test', text]);
    if ('time' in change && change.time !== null) expect(time.toISOString()).toBe('2018-04-05T17:31:00.000Z');
    const batch = await post(`[${JSON.stringify(minimal)},${text}]`, { 'Content-Type': BATCH });
    expect(answered(batch)).toMatchObject({ stored: 2, refused: 0 });
  });

  const at = (time: string): object => ({ time: `2018-04-05T18:31${time}` });
  test.each<[string, object]>([
    ['no specversion', { specversion: undefined }],
    ['no id', { id: undefined }],
    ['no type', { type: undefined }],
    ['no source', { source: undefined }],
    ['time that is garbage', { time: 'lunchtime' }],
    ['time to the minute', at('Z')],
    ['time without an offset', at(':00')],
    ['time with offset X', at(':00X')],
    ['time with an offset out of range', at(':00+25:00')],
    ['time with an offset that is no number', at(':00+xx:00')],
    ['time with an offset of hours alone', at(':00+05')],
    ['empty id', { id: '' }],
    ['empty type', { type: '' }],
    ['empty source', { source: '' }],
    ['empty specversion', { specversion: '' }],
    ['unknown specversion', { specversion: '0.9' }],
    ['datacontenttype that is none', { datacontenttype: 'xyz' }],
    ['empty datacontenttype', { datacontenttype: '' }],
    ['empty dataschema', { dataschema: '' }],
    ['empty subject', { subject: '' }],
    ['numeric id', { id: 25 }],
    ['object id', { id: { xyz: 'abc' } }],
    ['capitalized extension', { MyExtension: 'bad' }],
    ['punctuated extension', { 'my.extension': 'bad' }],
    ['extension that is no integer', { myextension: 1.5 }],
    ['extension that is an object', { myextension: {} }],
    ['both data and data_base64', { data: 'text', data_base64: 'eyAieHl6IjogMTIzIH0=' }],
  ])('conformance: not valid, alone and in a batch: %s', async (_, change) => {
    const text = JSON.stringify({ ...minimal, ...change });
    refused(await post(text, { 'Content-Type': STRUCTURED }), 400, 'INVALID_REQUEST', 'Invalid request body');
    const batch = await post(`[${JSON.stringify(minimal)},${text}]`, { 'Content-Type': BATCH });
    expect(answered(batch).results.map(({ code }) => code)).toEqual([undefined, 'INVALID_REQUEST']);
  });

  test.each(['application/json', 'application/json; charset=utf-8'])(
    'conformance: binary mode with the Content-Type %s, and structured mode of the same',
    async (type) => {
      const attributes = {
        ...{ specversion: '1.0', type: 'com.example.someevent', time: '2018-04-05T03:56:24Z' },
        ...{ id: `1234 ${type}`, source: '/mycontext/subcontext' },
      };
      const data = { message: 'Hello World!' };
      const headers = Object.fromEntries(
        Object.entries(attributes).map(([name, value]) => [`ce-${name}`, value]),
      );
      const binary = await stored(
        await post(JSON.stringify(data, null, 4), { 'Content-Type': type, ...headers }),
      );
      expect(JSON.parse(binary.payload)).toEqual({ ...attributes, datacontenttype: type, data });
      const text = JSON.stringify({ ...attributes, datacontenttype: 'application/json', data });
      const structured = type.replace('application/json', STRUCTURED);
      // The same source, id and time: the event is stored already.
      expect(answered(await post(text, { 'Content-Type': structured })).results).toEqual([
        expect.objectContaining({ repeated: true }),
      ]);
    },
  );

  test('a batch is stored but for the events that are not valid', async () => {
    const good = sent().toString();
    const response = await post(`[${good},{"specversion":"1.0"},7]`, { 'Content-Type': BATCH });
    const { results } = answered(response);
    expect(results.map(({ details }) => details)).toEqual([
      undefined,
      'The attribute "id" is missing.',
      'A CloudEvent must be a JSON object.',
    ]);
  });

  test('a time to come is now', async () => {
    const before = Date.now();
    const { time } = await stored(await post('', { ...ATTRIBUTES, 'ce-time': '2999-01-01T00:00:00Z' }));
    expect(Math.abs(time.getTime() - before)).toBeLessThan(30_000);
  });

  test('a sender of web hooks may ask whether it may deliver, and needs a token to do so', async () => {
    const origin = { 'WebHook-Request-Origin': 'eventemitter.example.com' };
    const plain = await service().request({ method: 'OPTIONS', path: PATH, headers: origin });
    expect(plain.status).toBe(200);
    expect(plain.headers).toMatchObject({ 'webhook-allowed-origin': '*', allow: 'POST, OPTIONS' });
    expect(plain.headers['webhook-allowed-rate']).toBeUndefined();
    const rated = { ...origin, 'WebHook-Request-Rate': '120' };
    const { headers } = await service().request({ method: 'OPTIONS', path: PATH, headers: rated });
    expect(headers['webhook-allowed-rate']).toBe('*');
    refused(
      await post('{}', { ...ATTRIBUTES, Authorization: null }),
      401,
      'AUTH_INVALID_TOKEN',
      'Invalid logging token',
    );
  });

  test('whatever comes, the answer is one of the description', async () => {
    const text = fc.oneof(
      fc.json(),
      fc.constantFrom(sent().toString(), '[', '{"specversion":"1.0"'),
      fc.string(),
    );
    const header = fc
      .string({ unit: fc.constantFrom(...'a1.0/%4 "\\'), maxLength: 12 })
      .map((one) => one.trim());
    await fc.assert(
      fc.asyncProperty(
        text,
        fc.constantFrom(STRUCTURED, BATCH, 'application/json', 'text/plain', ''),
        fc.dictionary(
          fc.constantFrom('ce-specversion', 'ce-id', 'ce-source', 'ce-type', 'ce-time', 'ce-x'),
          header,
        ),
        async (body, type, headers) => {
          const { status } = await post(body, { 'Content-Type': type, ...ATTRIBUTES, ...headers });
          expect([200, 207, 400, 415]).toContain(status);
        },
      ),
      runs(50),
    );
  });
});
