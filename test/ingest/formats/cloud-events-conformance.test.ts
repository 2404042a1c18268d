/**
 * The published cases of CloudEvents that concern the HTTP binding, each sent in every mode that can express it. The tables
 * state what these files say, by their own names:
 *
 * - github.com/cloudevents/conformance: format/json/valid-events.json, invalid-events.json, valid-batches.json and
 *   invalid-batches.json; features/http-protocol-binding.feature; yaml/v1.0/v1_minimum.yaml, yaml/v1.yaml and yaml/v0.3
 * - github.com/cloudevents/spec, version 1.0.3: the rules and examples of cloudevents/bindings/http-protocol-binding.md,
 *   cloudevents/formats/json-format.md and cloudevents/http-webhook.md
 *
 * The cases for XML, Protobuf and Kafka are of formats and bindings that are not taken.
 */
import { expect, test } from 'vitest';
import { refused } from '../../http/answers.ts';
import { answered } from '../../support/batch.ts';
import { BATCH, overEachTransport, PATH, STRUCTURED } from '../../support/cloud-events.ts';
import type { HttpResponse } from '../../support/http-client.ts';

type Attributes = Readonly<Record<string, unknown>>;

const MINIMAL = {
  specversion: '1.0',
  id: 'minimal',
  type: 'io.cloudevents.test',
  source: 'https://cloudevents.io',
} as const;
/** format/README.md: the instant of all cases that are valid and have a time. */
const INSTANT = '2018-04-05T17:31:00.000Z';
const ALL_CORE = {
  ...{ datacontenttype: 'text/plain', dataschema: 'https://cloudevents.io/dataschema', subject: 'tests' },
  time: '2018-04-05T17:31:00Z',
};
const ALL_EXTENSION_TYPES = {
  ...{ extinteger: 10, extboolean: true, extstring: 'text', exturi: 'https://cloudevents.io' },
  ...{ exturiref: '//authority/path', exttimestamp: '2023-03-31T15:12:00Z', extbinary: 'TWE=' },
};

/** valid-events.json, by what each changes of the minimal event. */
const VALID: Readonly<Record<string, Attributes>> = {
  validMinimal: {},
  validMinimalWithNullForOptional: { datacontenttype: null, dataschema: null, subject: null, time: null },
  validAllCoreAttributes: ALL_CORE,
  validMinimalWithTimeUtc: { time: '2018-04-05T17:31:00Z' },
  validMinimalWithTimeToNanosecondsUtc: { time: '2018-04-05T17:31:00.000000000Z' },
  validMinimalWithTimeUsingPositiveOffset: { time: '2018-04-05T18:31:00+01:00' },
  validMinimalWithTimeUsingNegativeOffset: { time: '2018-04-05T16:31:00-01:00' },
  validRelativeSource: { source: '#fragment' },
  validSimpleTextData: { datacontenttype: 'text/plain', data: 'Simple text' },
  validAllExtensionTypes: ALL_EXTENSION_TYPES,
};

/** invalid-events.json, likewise; undefined leaves an attribute out. */
const INVALID: Readonly<Record<string, Attributes>> = {
  invalidNoSpecVersion: { specversion: undefined },
  invalidNoId: { id: undefined },
  invalidNoType: { type: undefined },
  invalidNoSource: { source: undefined },
  invalidTimeGarbage: { time: 'lunchtime' },
  invalidTimeToMinute: { time: '2018-04-05T18:31Z' },
  invalidTimeOffsetX: { time: '2018-04-05T18:31:00X' },
  invalidTimeOffsetOutOfRange: { time: '2018-04-05T18:31:00+25:00' },
  invalidTimeOffsetNonInteger: { time: '2018-04-05T18:31:00+xx:00' },
  invalidTimeOffsetHourOnly: { time: '2018-04-05T18:31:00+05' },
  invalidEmptyId: { id: '' },
  invalidEmptyType: { type: '' },
  invalidEmptySource: { source: '' },
  invalidEmptySpecVersion: { specversion: '' },
  invalidUnknownSpecVersion: { specversion: '0.9' },
  invalidNonRfc2046DataContentType: { datacontenttype: 'xyz' },
  invalidEmptyDataContentType: { datacontenttype: '' },
  invalidEmptyDataSchema: { dataschema: '' },
  invalidEmptySubject: { subject: '' },
  invalidNumericId: { id: 25 },
  invalidObjectId: { id: { xyz: 'abc' } },
  invalidCapitalizedExtension: { MyExtension: 'bad' },
  invalidPunctuatedExtension: { 'my.extension': 'bad' },
  invalidNonIntegerExtensionValue: { 'my.extension': 1.5 },
  invalidBothDataAndDataBase64: { data: 'text', data_base64: 'eyAieHl6IjogMTIzIH0=' },
};

/** What headers cannot say: types of values, the case of names, two kinds of data, a Content-Type that is empty. */
const JSON_ALONE: ReadonlySet<string> = new Set([
  ...['invalidNumericId', 'invalidObjectId', 'invalidCapitalizedExtension'],
  ...['invalidBothDataAndDataBase64', 'invalidEmptyDataContentType'],
]);

/** As the binding encodes values of headers. */
function encoded(value: string): string {
  return value.replace(/[^\x21\x23\x24\x26-\x7e]/gu, (character) => encodeURIComponent(character));
}

/** An event in binary mode. */
function binary(event: Attributes): {
  readonly headers: Record<string, string | null>;
  readonly body: string;
} {
  const { datacontenttype, data, ...attributes } = event;
  const headers: Record<string, string | null> = { 'Content-Type': null };
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) headers[`ce-${name}`] = encoded(String(value));
  if (typeof datacontenttype === 'string') headers['Content-Type'] = datacontenttype;
  return { headers, body: data === undefined ? '' : String(data) };
}

overEachTransport(({ service, post }) => {
  const postStructured = (event: unknown, type = STRUCTURED): Promise<HttpResponse> =>
    post(JSON.stringify(event), { 'Content-Type': type });
  const postBatch = (events: readonly unknown[]): Promise<HttpResponse> =>
    post(JSON.stringify(events), { 'Content-Type': BATCH });
  const postBinary = (event: Attributes): Promise<HttpResponse> => {
    const { headers, body } = binary(event);
    return post(body, headers);
  };

  interface StoredEvent {
    readonly type: string;
    readonly time: string;
    readonly payload: Attributes;
  }

  /** The stored events of a response that is all success, in their order. */
  const stored = async (response: HttpResponse): Promise<StoredEvent[]> => {
    const { results, refused: count } = answered(response);
    expect({ status: response.status, refused: count }).toEqual({ status: 200, refused: 0 });
    const rows = await service().sql<{ id: string; type: string; payload: Attributes; time: Date }[]>`
      SELECT event.id, type.name AS type, event.payload, event.created_at AS time
        FROM events AS event JOIN event_types AS type ON type.id = event.type_id
       WHERE event.id = ANY (${results.map(({ eventId }) => eventId ?? '')}::uuid[])`;
    return results.map(({ eventId }) => {
      const row = rows.find(({ id }) => id === eventId);
      if (row === undefined) throw new Error(`The event ${eventId} is not stored.`);
      return { type: row.type, time: row.time.toISOString(), payload: row.payload };
    });
  };

  const expectRefused = (response: HttpResponse): unknown =>
    refused(response, 400, 'INVALID_REQUEST', 'Invalid request body');

  test.each(Object.entries(VALID))('%s is stored in each mode', async (name, change) => {
    // Events of one id, source and time are one event, so that the modes do not share ids.
    const event = (mode: string): Attributes => ({ ...MINIMAL, ...change, id: `${name} ${mode}` });
    const [structured] = await stored(await postStructured(event('structured')));
    const [, batched] = await stored(await postBatch([MINIMAL, event('batched')]));
    const [inHeaders] = await stored(await postBinary(event('binary')));
    expect(structured?.payload).toEqual(event('structured'));
    expect(batched?.payload).toEqual(event('batched'));
    const present = Object.entries(event('binary')).filter(([, value]) => value !== null);
    expect(inHeaders?.payload).toEqual(
      Object.fromEntries(present.map(([key, value]) => [key, String(value)])),
    );
    for (const one of [structured, batched, inHeaders]) {
      expect(one?.type).toBe(MINIMAL.type);
      if (typeof change.time === 'string') expect(one?.time).toBe(INSTANT);
    }
  });

  test.each(Object.entries(INVALID))('%s is refused in each mode', async (name, change) => {
    const event = { ...MINIMAL, ...change };
    expectRefused(await postStructured(event));
    const { results } = answered(await postBatch([MINIMAL, event]));
    expect(results.map(({ code }) => code)).toEqual([undefined, 'INVALID_REQUEST']);
    if (JSON_ALONE.has(name)) return;
    const response = await postBinary(event);
    // Without its version it is no CloudEvent at all.
    if (name === 'invalidNoSpecVersion') expect(response.status).toBe(415);
    else expectRefused(response);
  });

  test.each<[string, readonly Attributes[]]>([
    ['validBatchEmpty', []],
    ['validBatchMinimal', [MINIMAL]],
    ['validBatchMinimal2', [MINIMAL, MINIMAL]],
    ['validBatchMinimalAndAllCore', [MINIMAL, { ...MINIMAL, ...ALL_CORE, id: 'allCore' }]],
    [
      'validBatchMinimalAndAllExtensionTypes',
      [MINIMAL, { ...MINIMAL, ...ALL_EXTENSION_TYPES, id: 'allExtensionTypes' }],
    ],
  ])('%s is stored whole', async (_, batch) => {
    expect((await stored(await postBatch(batch))).map(({ payload }) => payload)).toEqual(batch);
  });

  test.each<[string, readonly unknown[], readonly boolean[]]>([
    [
      'invalidBatchMixedSpecVersions',
      [
        { ...MINIMAL, id: 'minimal1' },
        { ...MINIMAL, id: 'minimal2', specversion: '0.9' },
      ],
      [true, false],
    ],
    ['invalidBatchContainingInvalidCloudEvent', [{ ...MINIMAL, id: undefined }], [false]],
    ['invalidBatchContainingNonObject', ['not an object', { ...MINIMAL, id: 'minimal1' }], [false, true]],
  ])('%s is no success, and tells which event is not valid', async (_, batch, valid) => {
    const response = await postBatch(batch);
    expect(response.status).toBe(207);
    expect(answered(response).results.map(({ code }) => code === undefined)).toEqual(valid);
  });

  /** features/http-protocol-binding.feature. */
  const hello = {
    ...{ specversion: '1.0', type: 'com.example.someevent', time: '2018-04-05T03:56:24Z' },
    source: '/mycontext/subcontext',
  };
  const data = { message: 'Hello World!' };
  test.each(['application/json', 'application/json; charset=utf-8'])(
    'binary content mode (%s)',
    async (datacontenttype) => {
      const attributes = { ...hello, id: `1234 ${datacontenttype}`, datacontenttype };
      const body = JSON.stringify(data, null, 4);
      const [event] = await stored(await postBinary({ ...attributes, data: body }));
      expect(event).toEqual({
        type: 'com.example.someevent',
        time: '2018-04-05T03:56:24.000Z',
        payload: { ...attributes, data },
      });
    },
  );

  test.each([STRUCTURED, `${STRUCTURED}; charset=utf-8`, 'Application/CloudEvents+JSON'])(
    'structured content mode (%s)',
    async (type) => {
      const sent = { ...hello, id: `1234 ${type}`, datacontenttype: 'application/json', data };
      const [event] = await stored(await postStructured(sent, type));
      expect(event).toEqual({
        type: 'com.example.someevent',
        time: '2018-04-05T03:56:24.000Z',
        payload: sent,
      });
    },
  );

  /** v1_minimum.yaml: kinds of data, by their Content-Type; the body, and the member "data" of the JSON format. */
  test.each<[string, string, string, unknown]>([
    ['conformance-0001', 'text/plain; charset=us-ascii', 'Hello, World!\n', 'Hello, World!\n'],
    ['conformance-0002', 'text/plain; charset=utf-8', 'Hello, 🌎!\n', 'Hello, 🌎!\n'],
    ['conformance-0003', 'application/json; charset=utf-8', '"Hello, 🌎!"\n', 'Hello, 🌎!'],
    ['conformance-0004', 'application/json; charset=utf-8', '{"msg":"Hello, 🌎!"}\n', { msg: 'Hello, 🌎!' }],
    ['conformance-0005', 'application/json; charset=utf-8', '["Hello","🌎!"]\n', ['Hello', '🌎!']],
    [
      'conformance-0006',
      'application/xml; charset=utf-8',
      '<msg>Hello, 🌎!</msg>\n',
      '<msg>Hello, 🌎!</msg>\n',
    ],
  ])('%s: data as %s is the same from both modes', async (id, datacontenttype, body, member) => {
    const attributes = {
      ...{ specversion: '1.0', type: 'io.cloudevents.minimum', id, datacontenttype },
      source: '//github.com/cloudevents/cloudeventsconformance/yaml/v1.yaml',
    };
    const [inHeaders] = await stored(await postBinary({ ...attributes, data: body }));
    const [structured] = await stored(await postStructured({ ...attributes, data: member }));
    expect(inHeaders?.payload).toEqual({ ...attributes, data: member });
    expect(structured?.payload).toEqual(inHeaders?.payload);
    // The same as version 0.3, in yaml/v0.3: a version that is not taken.
    expectRefused(await postBinary({ ...attributes, specversion: '0.3', data: body }));
  });

  test('v1.yaml: an event with extensions, first in binary and then in structured mode, is stored once', async () => {
    const attributes = {
      ...hello,
      ...{ id: '4321-4321-4321', comexampleextension1: 'value', comexampleextension2: '{"othervalue": 5}' },
    };
    const { headers } = binary(attributes);
    // As the tool sends it: the value has spaces and quotes as they are.
    const response = await post('{"world":"hello"}\n', {
      ...headers,
      'ce-comexampleextension2': attributes.comexampleextension2,
      'User-Agent': 'foo',
    });
    const [event] = await stored(response);
    expect(event?.payload).toEqual({ ...attributes, data: '{"world":"hello"}\n' });
    const again = await postStructured({ ...attributes, data: { world: 'hello' } });
    expect(answered(again).results).toEqual([expect.objectContaining({ repeated: true })]);
    const unknown = { ...attributes, specversion: '0.3' };
    expectRefused(await postStructured({ ...unknown, data: { world: 'hello' } }));
  });

  /** json-format.md, 3.2: an event in the JSON format, and the same in binary mode. */
  test.each<[string, Attributes, string | undefined, string | Buffer]>([
    [
      'bytes',
      { data_base64: 'gAEAAQ==' },
      'application/vnd.apache.thrift.binary',
      Buffer.from([128, 1, 0, 1]),
    ],
    ['XML', { data: '<much wow="xml"/>' }, 'application/xml', '<much wow="xml"/>'],
    [
      'an object',
      { data: { appinfoB: 123, appinfoC: true } },
      'application/json',
      '{"appinfoB":123,"appinfoC":true}',
    ],
    ['a number', { data: 1.5 }, 'application/json', '1.5'],
    ['a JSON string', { data: "I'm just a string" }, 'application/json', '"I\'m just a string"'],
  ])('the JSON format and the binary mode agree on data that is %s', async (kind, member, type, body) => {
    const attributes = {
      ...hello,
      ...{ id: `json-format ${kind}`, comexampleextension1: 'value', comexampleothervalue: 5, subject: null },
      ...(type !== undefined && { datacontenttype: type }),
    };
    const [structured] = await stored(await postStructured({ ...attributes, ...member }));
    expect(structured?.payload).toEqual({ ...attributes, ...member });
    const { headers } = binary({ ...attributes, id: `${attributes.id} again` });
    const [inHeaders] = await stored(await post(body, headers));
    const { subject: _, ...present } = attributes;
    expect(inHeaders?.payload).toEqual({
      ...present,
      ...{ id: `${attributes.id} again`, comexampleothervalue: '5', ...member },
    });
  });

  test('the JSON format needs no datacontenttype, with "data" and with "data_base64"', async () => {
    for (const member of [{ data: "I'm just a string" }, { data_base64: 'eyAieHl6IjogMTIzIH0=' }]) {
      const event = { ...hello, id: `no type ${Object.keys(member)}`, ...member };
      expect((await stored(await postStructured(event)))[0]?.payload).toEqual(event);
    }
  });

  /** http-protocol-binding.md, 3.1.3.2. */
  test.each([
    ['percent-encoded', 'Euro%20%E2%82%AC%20%F0%9F%98%80', 'Euro € 😀'],
    ['with small letters', 'Euro%20%e2%82%ac', 'Euro €'],
    ['encoded without need', '%45uro', 'Euro'],
    ['once only', '%2520', '%20'],
    ['a quoted string', '"a \\"b\\" %E2%82%AC"', 'a "b" €'],
  ])('values of headers are decoded: %s', async (name, value, text) => {
    const { headers } = binary({ ...hello, id: `header ${name}` });
    const [event] = await stored(await post('', { ...headers, 'ce-subject': value }));
    expect(event?.payload.subject).toBe(text);
  });

  test.each(['%C0%A0', 'Euro%20%E2%82', '%FF'])(
    'the value %s of a header is refused: its bytes are not UTF-8',
    async (value) => {
      const { headers } = binary({ ...hello, id: 'not UTF-8' });
      expectRefused(await post('', { ...headers, 'ce-subject': value }));
    },
  );

  test('an event in a format that is not taken is refused with 415', async () => {
    const { headers } = binary({ ...hello, id: 'format' });
    for (const type of ['+xml', '+protobuf', '+avro', '-batch+xml'])
      expect((await post('x', { ...headers, 'Content-Type': `application/cloudevents${type}` })).status).toBe(
        415,
      );
  });

  /** http-webhook.md, 4: both are returned whether or not the sender has asked for a rate. */
  test.each([{}, { 'WebHook-Request-Rate': '120' }])('the handshake allows deliveries: %j', async (rate) => {
    const { status, headers } = await service().request({
      method: 'OPTIONS',
      path: PATH,
      headers: { 'WebHook-Request-Origin': 'eventemitter.example.com', ...rate },
    });
    expect({ status, ...headers }).toMatchObject({
      ...{ status: 200, 'webhook-allowed-origin': '*', 'webhook-allowed-rate': '*' },
      allow: expect.stringContaining('POST'),
    });
  });
});
