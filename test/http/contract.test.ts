/** POST /public/create_event as its contract says, row by row, over both transports. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { sized } from '../support/fuzz.ts';
import { type HttpResponse, request } from '../support/http-client.ts';
import {
  CREATE_EVENT,
  startTestService,
  type TestService,
  until,
  withTestService,
} from '../support/service.ts';
import { created, expectCommonHeaders, invalidBody, refused } from './answers.ts';

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({ transport, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  });
  afterAll(() => service.stop());

  const postRaw = (
    body: string | Buffer,
    headers: Record<string, string | null> = {},
  ): Promise<HttpResponse> => request(service.port, { method: 'POST', path: CREATE_EVENT, body, headers });

  const storedPayload = async (eventId: string): Promise<string | undefined> => {
    const [row] = await service.sql<{ text: string }[]>`
      SELECT payload::text AS text FROM events WHERE id = ${eventId}`;
    return row?.text;
  };

  describe('a stored event', () => {
    test('is answered with 201 and exactly the fields of the contract and typeId', async () => {
      const response = await service.post({ payload: { a: 1 } });
      expect(response.status).toBe(201);
      expect(JSON.parse(response.body)).toEqual({
        success: true,
        eventId: expect.stringMatching(
          /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
        ),
        typeId: service.type.typeId,
        timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        message: expect.stringMatching(/./),
      });
    });

    test('is answered with the headers of every answer and its own length', async () => {
      const response = await service.post();
      expectCommonHeaders(response);
      expect(response.headers['content-length']).toBe(String(Buffer.byteLength(response.body)));
    });

    test('is in the table when 201 arrives, under its app, type and timestamp', async () => {
      const { eventId, timestamp } = created(await service.post({ payload: { kept: true } }));
      const rows = await service.sql`
        SELECT apps.public_id AS app, event_types.public_id AS type, events.created_at AS time, payload::text AS payload
          FROM events JOIN apps ON apps.id = events.app_id JOIN event_types ON event_types.id = type_id
         WHERE events.id = ${eventId}`;
      expect([...rows]).toEqual([
        {
          app: service.app.appId,
          type: service.type.typeId,
          time: new Date(timestamp),
          payload: '{"kept":true}',
        },
      ]);
    });

    test('has a request id of its own', async () => {
      const ids = await Promise.all(Array.from({ length: 20 }, () => service.post()));
      expect(new Set(ids.map(({ headers }) => headers['x-request-id'])).size).toBe(20);
    });

    test.each([
      ['none', null],
      ['of text', 'text/plain'],
      ['of a form', 'application/x-www-form-urlencoded'],
      ['with a charset', 'application/json; charset=iso-8859-1'],
    ])('needs no right Content-Type: %s', async (_, type) => {
      created(await postRaw(service.body('{}'), { 'Content-Type': type }));
    });

    test('may say Content-Encoding: identity, in any case', async () => {
      created(await postRaw(service.body('{}'), { 'Content-Encoding': 'Identity' }));
    });

    test('may come with a query, which is not read', async () => {
      const path = `${CREATE_EVENT}?typeId=other&payload=1`;
      created(await service.request({ method: 'POST', path, body: service.body('{}') }));
    });
  });

  describe('the body', () => {
    test.each([
      ['empty', ''],
      ['white space', ' \n'],
      ['no JSON', 'loggingToken=x'],
      ['cut off', '{"loggingToken":"x","payload":{'],
      ['followed by more', '{} {}'],
      ['with a comment', '{/**/}'],
      ['with a trailing comma', '{"payload":{},}'],
      ['in single quotes', "{'payload':{}}"],
      ['with NaN', '{"payload":{"a":NaN}}'],
      ['with a raw line feed in a string', '{"payload":{"a":"\n"}}'],
      ['with a bad escape', '{"payload":{"a":"\\x"}}'],
      ['with a raw NUL', '{"payload":{}}\0'],
    ])('is refused with 400 where it is %s', async (_, body) => {
      expect(invalidBody(await postRaw(body))).toMatch(/JSON/);
    });

    test.each(['[]', '"text"', '1', 'true', 'null'])(
      'is refused with 400 where it is %s and no object',
      async (body) => {
        expect(invalidBody(await postRaw(body))).toMatch(/object/);
      },
    );

    test.each([
      ['loggingToken', { loggingToken: undefined }],
      ['payload', { payload: undefined }],
    ])('is refused with 400 that names the missing field %s', async (field, fields) => {
      expect(invalidBody(await service.post(fields))).toMatch(new RegExp(`"${field}".*missing`));
    });

    test.each([{}, [], 1, null, true])(
      'security 16: is refused with 400 that names loggingToken where that is %j',
      async (loggingToken) => {
        expect(invalidBody(await service.post({ loggingToken }))).toContain('"loggingToken"');
      },
    );

    test.each(['text', 1, null, true, [], [{}]])(
      'is refused with 400 that names payload where that is %j',
      async (payload) => {
        expect(invalidBody(await service.post({ payload }))).toContain('"payload"');
      },
    );

    test.each([1, {}, [], true])('is refused with 400 that names typeId where that is %j', async (typeId) => {
      expect(invalidBody(await service.post({ typeId }))).toContain('"typeId"');
    });

    test.each([1, {}, [], true])(
      'is refused with 400 that names typeName where that is %j',
      async (typeName) => {
        expect(invalidBody(await service.post({ typeId: undefined, typeName }))).toContain('"typeName"');
      },
    );

    test.each([
      [undefined, undefined],
      [null, undefined],
      [undefined, null],
      [null, null],
      ['', ''],
      ['', null],
    ])(
      'is refused with 400 that names both where typeId is %j and typeName is %j',
      async (typeId, typeName) => {
        expect(invalidBody(await service.post({ typeId, typeName }))).toMatch(/"typeId".*"typeName"/);
      },
    );

    test.each([
      ['a lone continuation byte', [0x80]],
      ['an overlong slash', [0xc0, 0xaf]],
      ['a surrogate', [0xed, 0xa0, 0x80]],
      ['a cut sequence', [0xe2, 0x82]],
      ['beyond U+10FFFF', [0xf4, 0x90, 0x80, 0x80]],
      ['0xFF', [0xff]],
    ])('security 16: is refused with 400 where it is not UTF-8: %s', async (_, bytes) => {
      const [before, after] = service.body('{"a":"|"}').split('|');
      const body = Buffer.concat([Buffer.from(before ?? ''), Buffer.from(bytes), Buffer.from(after ?? '')]);
      expect(invalidBody(await postRaw(body))).toContain('UTF-8');
    });

    test('security 16: is refused with 400 where it starts with a byte order mark', async () => {
      expect(invalidBody(await postRaw(`\ufeff${service.body('{}')}`))).toContain('byte order mark');
    });

    test('security 12: may have unknown fields, which change nothing', async () => {
      const others = {
        role: 'owner',
        createdAt: '2001-01-01T00:00:00Z',
        appId: 'x',
        eventId: 'y',
        __proto__x: 1,
      };
      const { timestamp } = created(await service.post(others));
      expect(Date.parse(timestamp)).toBeGreaterThan(Date.parse('2020-01-01T00:00:00Z'));
    });

    test('may repeat a key: the last one counts', async () => {
      const body = service.body('{"first":1}').replace(/}$/, ',"payload":{"last":2}}');
      const { eventId } = created(await postRaw(body));
      expect(await storedPayload(eventId)).toBe('{"last":2}');
    });

    test('whose last payload is no object is refused, whatever the first was', async () => {
      expect(invalidBody(await postRaw(service.body('{}').replace(/}$/, ',"payload":7}')))).toContain(
        '"payload"',
      );
    });

    test('may spell a key with escapes', async () => {
      const body = service
        .body('{"a":1}')
        .replace('"payload"', '"pay\\u006coad"')
        .replace('"typeId"', '"\\u0074ypeId"');
      const { eventId } = created(await postRaw(body));
      expect(await storedPayload(eventId)).toBe('{"a":1}');
    });

    test('may spell a repeated key differently: the last one counts', async () => {
      const body = service.body('{"first":1}').replace(/}$/, ',"p\\u0061yload":{"last":2}}');
      const { eventId } = created(await postRaw(body));
      expect(await storedPayload(eventId)).toBe('{"last":2}');
    });

    test('may have the payload before the other fields and white space everywhere', async () => {
      const { loggingToken } = service.app;
      const body = `\r\n\t { "payload" :\n{ "a" : [ ] }\t, "typeId":"${service.type.typeId}" , "loggingToken": "${loggingToken}" } \n`;
      const { eventId } = created(await postRaw(body));
      expect(await storedPayload(eventId)).toBe('{ "a" : [ ] }');
    });

    test('security 17: may have a hundred thousand keys', async () => {
      const config = { MAX_BODY_BYTES: 32 * 1_048_576 };
      await withTestService({ transport, database: 'shared', config }, async (other) => {
        const keys = Array.from({ length: sized(100_000, 1_000_000) }, (_, index) => `"k${index}":0`).join(
          ',',
        );
        created(
          await other.request({
            method: 'POST',
            path: CREATE_EVENT,
            body: other.body('{}').replace(/}$/, `,${keys}}`),
          }),
        );
      });
    });

    test('security 15: with keys named __proto__ and constructor changes no object here', async () => {
      const payload = '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}';
      const body = service.body(payload).replace(/}$/, ',"__proto__":{"polluted":1}}');
      const { eventId } = created(await postRaw(body));
      expect(await storedPayload(eventId)).toBe(payload);
      expect('polluted' in {}).toBe(false);
    });

    test('security 15: with such keys comes back from every read as it was sent', async () => {
      const payload = '{ "constructor":{"prototype":{"b":1}},"__proto__" : {"a":1},"__proto__":[2] }';
      const { eventId } = created(await postRaw(service.body(payload)));
      const { appId } = service.app;
      const token = { name: 'reads', appIds: [appId], expiresInSeconds: null };
      const { resourceToken } = await createResourceToken(service.sql, token);
      for (const path of [
        `/public/get_events?appId=${appId}&order=desc&limit=1`,
        `/v1/apps/${appId}/events?order=desc&limit=1`,
        `/v1/apps/${appId}/events/${eventId}`,
        `/v1/apps/${appId}/export`,
      ]) {
        const headers = { Authorization: `Bearer ${resourceToken}` };
        const response = await fetch(`${service.url}${path}`, { headers });
        expect(response.status, path).toBe(200);
        expect(await response.text(), path).toContain(payload);
      }
      expect('a' in {} || 'b' in {}).toBe(false);
    });
  });

  describe('nesting', () => {
    const nested = (levels: number): string => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;
    const arrays = (levels: number): string => `{"a":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;

    test.each([
      ['objects', nested],
      ['arrays', arrays],
    ])('of 1,000 levels of %s is stored', async (_, make) => {
      const payload = make(1_000);
      const { eventId } = created(await postRaw(service.body(payload)));
      expect(await storedPayload(eventId)).toBe(payload);
    });

    test.each([
      ['1,001', nested(1_001)],
      ['1,001, of arrays,', arrays(1_001)],
      ['100,000', nested(100_000)],
      ['100,000, of arrays,', arrays(100_000)],
    ])('security 17: of %s levels is refused with 400 that names the limit', async (_, payload) => {
      expect(invalidBody(await postRaw(service.body(payload)))).toMatch(/payload.*1000/);
    });

    test('of an ignored field has no limit', async () => {
      created(
        await postRaw(
          service.body('{}').replace(/}$/, `,"other":${'['.repeat(50_000)}${']'.repeat(50_000)}}`),
        ),
      );
    });
  });

  describe('the logging token', () => {
    const invalidToken = (response: HttpResponse): void => {
      refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
    };

    test.each([
      ['empty', ''],
      ['junk', 'junk'],
      ['well-formed and unknown', createTokenText('tdl')],
      ['a resource token', createTokenText('tdr')],
      ['with NUL', '\0'],
      ['with a lone surrogate', '\ud800'],
      ['very long', 'x'.repeat(100_000)],
    ])('is refused with 401 where it is %s', async (_, loggingToken) => {
      invalidToken(await service.post({ loggingToken }));
    });

    test('is refused with 401 where its last character is mistyped', async () => {
      const { loggingToken } = service.app;
      const other = loggingToken.endsWith('a') ? 'b' : 'a';
      invalidToken(await service.post({ loggingToken: loggingToken.slice(0, -1) + other }));
    });

    test('is refused with 401 where it has white space around it', async () => {
      invalidToken(await service.post({ loggingToken: ` ${service.app.loggingToken}` }));
    });

    test('is not read from the query or from the Authorization header', async () => {
      const response = await service.request({
        method: 'POST',
        path: `${CREATE_EVENT}?loggingToken=${service.app.loggingToken}`,
        headers: { Authorization: `Bearer ${service.app.loggingToken}` },
        body: JSON.stringify({ typeId: service.type.typeId, payload: {} }),
      });
      expect(invalidBody(response)).toContain('"loggingToken"');
    });

    test('is valid as soon as its app exists, also after a request with it was refused', async () => {
      invalidToken(await service.post({ loggingToken: createTokenText('tdl') }));
      const app = await service.newApp();
      created(await service.post({ loggingToken: app.loggingToken, typeId: undefined, typeName: 'new' }));
    });
  });

  describe('the event type', () => {
    const notFound = (response: HttpResponse): void => {
      refused(response, 404, 'EVENT_TYPE_NOT_FOUND', 'Event type not found');
    };

    test.each([
      ['unknown', 'typ_00000000000000000000'],
      ['junk', 'x'],
      ['with NUL', 'a\0b'],
      ['with a lone surrogate', '\udc00'],
      ['very long', 'x'.repeat(100_000)],
    ])('is refused with 404 where typeId is %s', async (_, typeId) => {
      notFound(await service.post({ typeId }));
    });

    test('is refused with 404 where typeId is of another app, and nothing is stored', async () => {
      const app = await service.newApp();
      const type = await service.newType(app, 'secret');
      const other = await service.post({ typeId: type.typeId, payload: { intruder: 1 } });
      const unknown = await service.post({ typeId: 'typ_00000000000000000000' });
      notFound(other);
      expect(other.body).toBe(unknown.body);
      const rows = await service.sql`
        SELECT 1 FROM events JOIN event_types ON event_types.id = type_id WHERE event_types.public_id = ${type.typeId}`;
      expect(rows.length).toBe(0);
    });

    test('is found as soon as it exists, also after a request with it was refused', async () => {
      const app = await service.newApp();
      const post = (typeId: string): Promise<HttpResponse> =>
        service.post({ loggingToken: app.loggingToken, typeId });
      notFound(await post('typ_00000000000000000000'));
      created(await post((await service.newType(app, 'late')).typeId));
    });

    test('is what typeId says where typeName is given too, and no type is made', async () => {
      for (const typeName of ['stale label', 5, null, '', 'x'.repeat(201)]) {
        expect(created(await service.post({ typeName })).typeId).toBe(service.type.typeId);
      }
      expect((await service.sql`SELECT 1 FROM event_types WHERE name = 'stale label'`).length).toBe(0);
    });

    test('is refused with 404 where typeId is unknown, although typeName is good', async () => {
      notFound(await service.post({ typeId: 'typ_00000000000000000000', typeName: 'test type' }));
    });

    test.each([null, ''])('is what typeName says where typeId is %j', async (typeId) => {
      expect(created(await service.post({ typeId, typeName: 'test type' })).typeId).toBe(service.type.typeId);
    });

    test('is the existing one where its name is known, and a new one where not', async () => {
      const first = created(await service.post({ typeId: undefined, typeName: 'fresh' }));
      const second = created(await service.post({ typeId: undefined, typeName: 'fresh' }));
      expect(first.typeId).not.toBe(service.type.typeId);
      expect(second.typeId).toBe(first.typeId);
      created(await service.post({ typeId: first.typeId }));
    });

    test('is kept exactly as named, case-sensitive, white space and all', async () => {
      const names = [
        'a',
        'A',
        ' a',
        'a ',
        'a\n',
        '\u00e4',
        'a\u0308',
        '\u{1f30a}',
        "a'; --",
        'a\\',
        '\u202e',
      ];
      const app = await service.newApp();
      for (const typeName of names) {
        created(await service.post({ loggingToken: app.loggingToken, typeId: undefined, typeName }));
      }
      const rows = await service.sql<{ name: string }[]>`
        SELECT event_types.name FROM event_types JOIN apps ON apps.id = app_id
         WHERE apps.public_id = ${app.appId} ORDER BY event_types.id`;
      expect(rows.map(({ name }) => name)).toEqual(names);
    });

    test.each([
      ['200 characters', 'x'.repeat(200)],
      ['200 characters outside of the BMP', '\u{1f30a}'.repeat(200)],
    ])('may have a name of %s', async (_, typeName) => {
      created(await service.post({ typeId: undefined, typeName }));
    });

    test.each([
      ['201 characters', 'x'.repeat(201)],
      ['201 characters outside of the BMP', '\u{1f30a}'.repeat(201)],
      ['NUL', 'a\0b'],
      ['a lone high surrogate', 'a\ud83c'],
      ['a lone low surrogate', '\udf0aa'],
    ])('is refused with 400 that names typeName where the name has %s', async (_, typeName) => {
      expect(invalidBody(await service.post({ typeId: undefined, typeName }))).toContain('"typeName"');
    });

    test('is made once by 100 posts of a new name at once, whose events it all has', async () => {
      const posts = Array.from({ length: 100 }, () =>
        service.post({ typeId: undefined, typeName: 'stampede' }),
      );
      const types = new Set((await Promise.all(posts)).map((response) => created(response).typeId));
      const rows = await service.sql`
        SELECT event_types.public_id AS type, count(events.id)::int AS events
          FROM event_types LEFT JOIN events ON type_id = event_types.id
         WHERE name = 'stampede' GROUP BY 1`;
      expect([...rows]).toEqual([{ type: [...types].join(), events: 100 }]);
    });

    // What the database does is the same to both transports.
    if (transport === 'node') return;

    test('is made once by two services at once', async () => {
      await withTestService({ transport, database: service.database }, async (other) => {
        const { loggingToken } = service.app;
        const posts = Array.from({ length: 60 }, (_, index) =>
          (index % 2 === 0 ? service : other).post({ loggingToken, typeId: undefined, typeName: 'twice' }),
        );
        const types = new Set((await Promise.all(posts)).map((response) => created(response).typeId));
        expect(types.size).toBe(1);
      });
    });

    test('is refused with 400 TOO_MANY_EVENT_TYPES beyond the limit, exactly, under concurrency', async () => {
      const config = { MAX_EVENT_TYPES_PER_APP: 10 };
      await withTestService({ transport, database: service.database, config }, async (other) => {
        const answers = await Promise.all(
          Array.from({ length: 40 }, (_, index) =>
            other.post({ typeId: undefined, typeName: `type ${index}` }),
          ),
        );
        const full = answers.filter(({ status }) => status === 400);
        expect(answers.filter(({ status }) => status === 201).length).toBe(9);
        expect(full.length).toBe(31);
        for (const answer of full) {
          expect(refused(answer, 400, 'TOO_MANY_EVENT_TYPES', 'Too many event types').details).toContain(
            '10',
          );
        }
        const { appId } = other.app;
        const types =
          await other.sql`SELECT FROM event_types JOIN apps ON apps.id = app_id WHERE apps.public_id = ${appId}`;
        expect(types.length).toBe(10);
        created(await other.post({ typeId: undefined, typeName: 'test type' }));
      });
    });

    /** Another process is making a type; meanwhile a post names one. Resolves with the post's answer. */
    const whileMaking = async (other: TestService, made: string, posted: string): Promise<HttpResponse> => {
      let answer: HttpResponse | undefined;
      let posting: Promise<void> | undefined;
      await other.sql.begin(async (tx) => {
        const [app] = await tx`SELECT id FROM apps WHERE public_id = ${other.app.appId} FOR NO KEY UPDATE`;
        await tx`INSERT INTO event_types (public_id, app_id, name) VALUES (${`typ_${made}`}, ${app?.id}, ${made})`;
        const [begun] = await other.sql`SELECT clock_timestamp() AS at`;
        posting = other.post({ typeId: undefined, typeName: posted }).then((response) => {
          answer = response;
        });
        await until(async () => {
          // The app is tried again and again, each time in a transaction that passes it over.
          const tried = await other.sql`
            SELECT FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'tidemark lookups'
               AND query = 'commit' AND state_change > ${begun?.at}`;
          return answer !== undefined || tried.length > 0;
        }, 'the post has tried to create the type');
        expect(answer).toBeUndefined();
      });
      await posting;
      if (answer === undefined) throw new Error('The post was not answered.');
      return answer;
    };

    test('that another process is making is the one that a post of its name means, and counts towards the limit', async () => {
      await withTestService({ transport, config: { MAX_EVENT_TYPES_PER_APP: 3 } }, async (other) => {
        expect(created(await whileMaking(other, 'theirs', 'theirs')).typeId).toBe('typ_theirs');
        const answer = await whileMaking(other, 'more', 'ours');
        refused(answer, 400, 'TOO_MANY_EVENT_TYPES', 'Too many event types');
      });
    });
  });

  describe('the first failure in this order answers:', () => {
    const bad = { loggingToken: createTokenText('tdl') };

    test('size before JSON', async () => {
      const response = await postRaw('{'.repeat(1_048_577));
      refused(response, 413, 'PAYLOAD_TOO_LARGE', 'Payload too large');
    });

    test('schema before token', async () => {
      expect(invalidBody(await service.post({ ...bad, payload: undefined }))).toContain('"payload"');
    });

    test('type name before token, as the schema has it', async () => {
      expect(invalidBody(await service.post({ ...bad, typeId: undefined }))).toContain('"typeName"');
    });

    test('token before type', async () => {
      const response = await service.post({ ...bad, typeId: 'typ_00000000000000000000' });
      refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
    });
  });

  describe('security 16: a payload comes to the table as the very text that was sent:', () => {
    test.each([
      ['an empty object', '{}'],
      ['key order', '{"b":1,"a":2,"10":3,"9":4}'],
      ['duplicate keys', '{"a":1,"a":2,"\\u0061":3}'],
      ['a number beyond double range', '{"n":1e400,"m":-1E-400}'],
      ['minus zero', '{"n":-0,"m":-0.0e-0}'],
      ['20-digit integers', '{"n":12345678901234567890,"m":0.10000000000000000000000001}'],
      ['number spellings', '{"a":1.0,"b":1e2,"c":1E+2,"d":100.00}'],
      ['the NUL escape', '{"a":"\\u0000","\\u0000":1}'],
      ['lone surrogate escapes', '{"a":"\\ud800","b":"\\udc00\\ud800"}'],
      ['surrogate pairs as escapes', '{"a":"\\ud83c\\udf0a"}'],
      ['escapes of every kind', '{"a":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9"}'],
      ['white space', '{ \t\r\n"a" :\r\n[ 1 ,\t2 ] \n}'],
      ['raw Unicode', '{"ключ":"значение \u{1f30a} \u2028\u2029 \u0085\u007f\ufeff\ufffe\uffff\u{10ffff}"}'],
      ['what COPY would read', '{"a":"\\\\N","b":"\\\\.","c":"\\\\\\\\t"}'],
      ['the end marker of COPY on a line of its own', '{\n"a"\n:\n1\n}'],
      ['what looks like a payload inside', '{"payload":{"payload":"}\\"{"},"x":"\\"payload\\":{"}'],
      ['a long text', `{"a":"${'\u00e9\\u00e9'.repeat(20_000)}"}`],
    ])('%s', async (_, payload) => {
      const { eventId } = created(await postRaw(service.body(payload)));
      expect(await storedPayload(eventId)).toBe(payload);
    });
  });

  describe('Content-Encoding', () => {
    test.each(['gzip', 'br', 'deflate', 'gzip, identity'])('%s is refused with 415', async (encoding) => {
      const response = await postRaw(service.body('{}'), { 'Content-Encoding': encoding });
      refused(response, 415, 'UNSUPPORTED_ENCODING', 'Unsupported content encoding');
    });

    test('is refused before the body is read as JSON', async () => {
      const response = await postRaw(Buffer.from([0x1f, 0x8b, 8, 0]), { 'Content-Encoding': 'gzip' });
      refused(response, 415, 'UNSUPPORTED_ENCODING', 'Unsupported content encoding');
    });
  });
});
