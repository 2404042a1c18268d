/** What holds in every format: what is wrong with one event stays with it, and many small events are stored. */
import { isUtf8 } from 'node:buffer';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { createBrowserKey } from '../../../src/apps/browser-keys.ts';
import { atOnce } from '../../../src/base/time-slice.ts';
import { decode, decoded } from '../../../src/base/utf8.ts';
import { ENCODINGS } from '../../../src/http/compressed-body.ts';
import { runs, sized } from '../../support/fuzz.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { expectLinear } from '../../support/linear.ts';
import { sharedService, type TestService, testSecret } from '../../support/service.ts';

const ORIGIN = 'https://shop.example';
const MARK = Buffer.from([0xef, 0xbb, 0xbf]);

let service: TestService;
let key: string;
beforeAll(async () => {
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  ({ browserKey: key } = await createBrowserKey(service.sql, await testSecret(), {
    ...{ appId: service.app.appId, name: 'shop', origins: [ORIGIN], types: ['a', 'pageview'] },
  }));
});

interface Case {
  readonly path: string;
  readonly type: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The body of three events with these texts in them. */
  readonly body: (...texts: readonly string[]) => string;
}

const NDJSON = 'application/x-ndjson';
const JSON_TYPE = 'application/json';
const record = (text: string): string => `{"eventName":"a","body":{"stringValue":"${text}"}}`;
const ce = (text: string): string =>
  `{"specversion":"1.0","id":"1","source":"s","type":"a","data":"${text}"}`;

const CASES: Readonly<Record<string, Case>> = {
  'events, lines': {
    path: '/v1/events',
    type: NDJSON,
    body: (...texts) => texts.map((text) => `{"typeName":"a","payload":{"t":"${text}"}}\n`).join(''),
  },
  'events, a document': {
    path: '/v1/events',
    type: JSON_TYPE,
    body: (...texts) =>
      `{"events":[\n${texts.map((text) => `{"typeName":"a","payload":{"t":"${text}"}}`).join(',\n')}]}`,
  },
  'records, lines': {
    path: '/v1/records?type=a',
    type: NDJSON,
    body: (...texts) => texts.map((text) => `{"t":"${text}"}`).join('\n\n'),
  },
  'records, an array': {
    path: '/v1/records?type=a',
    type: JSON_TYPE,
    body: (...texts) => `[${texts.map((text) => `{"t":"${text}"}`).join()}]`,
  },
  'records, joined': {
    path: '/v1/records?type=a',
    type: JSON_TYPE,
    body: (...texts) => texts.map((text) => `{"t":"${text}"}`).join(' '),
  },
  bulk: {
    path: '/v1/elasticsearch/_bulk',
    type: NDJSON,
    body: (...texts) => texts.map((text) => `{"index":{"_index":"a"}}\n{"t":"${text}"}\n`).join(''),
  },
  'OTLP/JSON': {
    path: '/v1/otlp/v1/logs',
    type: JSON_TYPE,
    body: (...texts) =>
      `{"resourceLogs":[{"scopeLogs":[{"logRecords":[\n${texts.map(record).join(',\n')}]}]}]}`,
  },
  Segment: {
    path: '/v1/batch',
    type: JSON_TYPE,
    body: (...texts) =>
      `{"batch":[${texts.map((text) => `{"type":"track","event":"a","t":"${text}"}`).join(',\n')}]}`,
  },
  CloudEvents: {
    path: '/v1/cloudevents',
    type: 'application/cloudevents-batch+json',
    body: (...texts) => `[${texts.map(ce).join(',\n')}]`,
  },
  collect: {
    path: '/v1/collect',
    type: 'text/plain',
    headers: { Origin: ORIGIN },
    body: (...texts) =>
      `{"key":"${key}",\n"events":[${texts.map((text) => `{"type":"a","payload":{"t":"${text}"}}`).join()}]}`,
  },
};

function post(
  { path, type, headers = {} }: Omit<Case, 'body'>,
  body: Buffer | string,
  at: Pick<TestService, 'app' | 'request'> = service,
): Promise<HttpResponse> {
  const { loggingToken } = at.app;
  const basic = `Basic ${Buffer.from(`${loggingToken}:`).toString('base64')}`;
  const Authorization = path.startsWith('/v1/batch') ? basic : `Bearer ${loggingToken}`;
  return at.request({
    ...{ method: 'POST', path, body, timeoutMs: 90_000 },
    headers: { ...(headers.Origin === undefined && { Authorization }), 'Content-Type': type, ...headers },
  });
}

async function payloads(): Promise<string[]> {
  const rows = await service.sql<{ payload: string }[]>`
    SELECT event.payload::text AS payload FROM events AS event JOIN apps ON apps.id = event.app_id
     WHERE apps.public_id = ${service.app.appId} ORDER BY event.created_at, event.id`;
  return rows.map(({ payload }) => payload);
}

/** The body with these bytes in place of the text `BROKEN`, and where they are. */
function withBytes(
  body: string,
  bytes: readonly number[],
  mark = Buffer.alloc(0),
): { body: Buffer; place: string } {
  const [before = '', after = ''] = body.split('BROKEN');
  const lines = before.split('\n');
  const start = Buffer.concat([mark, Buffer.from(before)]);
  const byte = Buffer.byteLength(lines.at(-1) ?? '') + (lines.length === 1 ? mark.length : 0) + 1;
  return {
    body: Buffer.concat([start, Buffer.from(bytes), Buffer.from(after)]),
    place: `at line ${lines.length}, byte ${byte}`,
  };
}

describe.each(Object.entries(CASES))('%s:', (name, one) => {
  test.each([
    ['E9', [0xe9]],
    ['C0', [0xc0, 0xaf]],
    ['ED', [0xed, 0xa0, 0x80]],
  ])('the event with the byte %s is refused alone, with its place', async (value, bytes) => {
    for (const size of [1, 3_000]) {
      const mark = `${name} ${value} ${size} é${'x'.repeat(size)}`;
      const before = (await payloads()).length;
      const broken = withBytes(one.body(mark, 'BROKEN', mark), bytes);
      const { status, body } = await post(one, broken.body);
      expect([200, 207], body).toContain(status);
      expect(body).toContain(`not valid UTF-8: 0x${value} ${broken.place}`);
      const stored = await payloads();
      expect(stored.length - before, body).toBe(2);
      expect(stored.filter((payload) => payload.includes(mark))).toHaveLength(2);
    }
  });

  test('a byte order mark at the start is skipped, and counts as bytes', async () => {
    const before = (await payloads()).length;
    const whole = Buffer.concat([MARK, Buffer.from(one.body('1', 'é', '3'))]);
    expect((await post(one, whole)).status).toBe(200);
    expect((await payloads()).length - before).toBe(3);
    if (one.path === '/v1/collect') return;
    const packed = { ...one.headers, 'Content-Encoding': 'gzip' };
    expect((await post({ ...one, headers: packed }, gzipSync(whole))).status).toBe(200);
    const broken = withBytes(one.body('1', 'BROKEN', '3'), [0xff], MARK);
    expect((await post(one, broken.body)).body).toContain(`0xFF ${broken.place}`);
  });
});

test.each([
  [
    'an action of bulk',
    CASES.bulk,
    '{"index":{"_index":"a","_id":"BROKEN"}}\n{}\n{"index":{"_index":"a"}}\n{}\n',
  ],
  [
    'the name of a type',
    CASES['events, lines'],
    '{"typeName":"BROKEN","payload":{}}\n{"typeName":"a","payload":{}}',
  ],
  [
    'a field that is not read',
    CASES['events, lines'],
    '{"typeName":"a","payload":{},"x":"BROKEN"}\n{"typeName":"a","payload":{}}',
  ],
  ['no string', CASES['events, lines'], '{"typeName":"a","payload":{BROKEN}}\n{"typeName":"a","payload":{}}'],
  [
    'a resource of OTLP',
    CASES['OTLP/JSON'],
    `{"resourceLogs":[{"scopeLogs":[{"logRecords":[${record('1')}]}],"resource":{"a":"BROKEN"}},{"scopeLogs":[{"logRecords":[${record('2')}]}]}]}`,
  ],
] as const)('a broken byte in %s refuses what it belongs to', async (_, one, text) => {
  const before = (await payloads()).length;
  const broken = withBytes(text, [0xe9]);
  const { body } = await post(one as Case, broken.body);
  expect(body).toContain(`0xE9 ${broken.place}`);
  expect((await payloads()).length - before).toBe(1);
});

test.each([
  ['/v1/track', JSON_TYPE, '{"event":"a","x":"BROKEN"}'],
  ['/v1/cloudevents', 'application/cloudevents+json', ce('BROKEN')],
  ['/v1/umami/KEY/api/send', JSON_TYPE, '{"type":"event","payload":{"url":"BROKEN"}}'],
  ['/v1/plausible/KEY/api/event', 'text/plain', '{"n":"pageview","u":"BROKEN"}'],
  ['/v1/annotations', JSON_TYPE, '{"text":"BROKEN"}'],
])('a body that is one event is refused with its place, and has a mark: %s', async (path, type, text) => {
  const one = {
    path: path.replace('KEY', key),
    type,
    ...(path.includes('KEY') && { headers: { Origin: ORIGIN } }),
  };
  const broken = withBytes(text, [0xe9]);
  const { status, body } = await post(one, broken.body);
  expect([status, body]).toEqual([
    400,
    expect.stringContaining(`The body is not valid UTF-8: 0xE9 ${broken.place}`),
  ]);
  const marked = await post(one, Buffer.concat([MARK, Buffer.from(text)]));
  expect(Math.floor(marked.status / 100), marked.body).toBe(2);
});

test('lines that are more than a batch name theirs, over all parts', async () => {
  const one = CASES['events, lines'] as Case;
  const texts = Array.from({ length: 12_000 }, (_, n) => (n === 11_000 ? 'BROKEN' : `${n}`));
  const broken = withBytes(`\n${one.body(...texts)}`, [0xe9]);
  const { status, body } = await post(one, broken.body);
  expect([status, JSON.parse(body)]).toMatchObject([
    207,
    { stored: 11_999, errors: [{ index: 11_000, details: expect.stringContaining(`0xE9 ${broken.place}`) }] },
  ]);
});

test.each(Object.entries(CASES).filter(([name]) => name !== 'CloudEvents' && name !== 'collect'))(
  'compressed bytes without Content-Encoding are told to be these: %s',
  async (_, one) => {
    for (const [encoding, body] of [
      ['gzip', gzipSync(one.body('1'))],
      ['zstd', Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x02, 0x11, 0x00, 0x00, 0x7b, 0x7d])],
    ] as const) {
      const { status, body: told } = await post(one, body);
      expect([status, told]).toEqual([
        400,
        expect.stringContaining(
          // This Node may not know Zstandard.
          `looks like ${encoding}: ${ENCODINGS.includes(encoding) ? `send Content-Encoding: ${encoding}` : 'send it without compression'}`,
        ),
      ]);
    }
    for (const body of [
      Buffer.from(`\uFEFF${one.body('1')}`, 'utf16le'),
      Buffer.from(`\uFEFF${one.body('1')}`, 'utf16le').swap16(),
    ]) {
      const { status, body: told } = await post(one, body);
      expect([status, told]).toEqual([400, expect.stringContaining('looks like UTF-16: send it as UTF-8')]);
    }
  },
);

test.each(['/public/create_event', '/v1/collect'])(
  'compressed bytes are told to be these where none are taken: %s',
  async (path) => {
    const headers = { 'Content-Type': 'application/json' };
    const body = gzipSync(JSON.stringify({ text: 'é'.repeat(100) }));
    const refused = await service.request({ method: 'POST', path, headers, body });
    expect([refused.status, refused.body]).toEqual([
      400,
      expect.stringContaining('looks like gzip: send it without compression'),
    ]);
  },
);

test.each(['events, lines', 'records, lines'])(
  'an array in place of a line is told to be one: %s',
  async (name) => {
    const one = CASES[name] as Case;
    const lines = one.body('1').trim().split('\n').join(',');
    expect((await post(one, Buffer.from(`[${lines}]\n[1]`))).body.match(/is an array/g)).toHaveLength(2);
  },
);

test('joined files may each have a byte order mark', async () => {
  const file = Buffer.concat([MARK, Buffer.from('{"typeName":"a","payload":{}}\n')]);
  const { body } = await post(CASES['events, lines'] as Case, Buffer.concat([file, file]));
  expect(JSON.parse(body)).toMatchObject({ stored: 2, refused: 0 });
  // One of them may be empty, or end with a mark alone.
  const empty = Buffer.concat([MARK, file, MARK, Buffer.from('\r\n'), file, MARK]);
  const again = await post(CASES['events, lines'] as Case, empty);
  expect(JSON.parse(again.body)).toMatchObject({ stored: 2, refused: 0 });
});

test('the places of broken bytes in one long line are found in linear time', () => {
  expectLinear((size) => {
    const element = Buffer.from([0x22, 0xe9, 0x22, 0x2c]);
    const bytes = Buffer.concat(Array.from({ length: size }, () => element));
    return () => {
      const { text, damage } = atOnce(decoded(bytes));
      let last = '';
      for (let at = 0; at < text.length; at += 4) last = damage?.in(at, at + 4, 'It')?.details ?? '';
      expect(last).toContain(`line 1, byte ${4 * size - 2}.`);
    };
  }, 5_000);
});

test('bytes become text as the platform has it, and broken ones the same number of characters', () => {
  const bytes = fc.oneof(
    fc.constantFrom(0x41, 0x0a, 0x80, 0xbf, 0xc2, 0xe0, 0xe2, 0xed, 0xef, 0xf0, 0xf4, 0xff, 0xa0, 0x9f, 0x90),
    fc.nat(255),
  );
  fc.assert(
    fc.property(fc.array(bytes, { maxLength: 40 }), fc.nat(5_000), (some, filler) => {
      const buffer = Buffer.concat([Buffer.from('aé'), Buffer.alloc(filler, 'é'), Buffer.from(some)]);
      const { text, damage } = atOnce(decoded(buffer));
      expect(damage === null).toBe(isUtf8(buffer));
      // Each character alone stands for one byte.
      const back = [...text].map((one) =>
        /\p{Surrogate}/u.test(one) ? Buffer.from([one.charCodeAt(0) - 0xdc00]) : Buffer.from(one),
      );
      expect(Buffer.concat(back).equals(buffer)).toBe(true);
      if (damage === null) expect(decode(buffer)).toBe(text);
    }),
    runs(300),
  );
});

describe('more events than a batch', () => {
  const MANY = 12_000;
  const { 'events, lines': _, 'events, a document': batch, collect: __, ...others } = CASES;
  const texts = (count: number): string[] => Array.from({ length: count }, (___, n) => `n${n}`);

  const SOME = sized(
    Object.entries(others).filter((_entry, index) => index % 3 === 0),
    Object.entries(others),
  );

  test.each(SOME)('are stored in parts, and counted as two batches: %s', async (name, one) => {
    const limited = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 3 } });
    const app = await limited.newApp();
    const send = (count: number): Promise<HttpResponse> =>
      post(one, one.body(...texts(count)), { ...limited, app });
    const stored = async (): Promise<number> => {
      const [row] = await limited.sql<{ count: number }[]>`
        SELECT count(DISTINCT payload::text)::integer AS count FROM events AS event JOIN apps ON apps.id = event.app_id
         WHERE apps.public_id = ${app.appId}`;
      return row?.count ?? 0;
    };
    const { status, body, headers } = await send(MANY);
    expect([name, status, headers['ratelimit-remaining'], body.slice(0, 200)]).toEqual([
      ...[name, 200, '1'],
      expect.not.stringMatching(/rejected|"errors":true|"refused":[1-9]/),
    ]);
    expect(await stored()).toBe(MANY);
    // Before anything is stored.
    expect((await send(MANY + 1)).status).toBe(429);
    expect(await stored()).toBe(MANY);
  });

  test('are refused beyond ten batches, and in a document of the API', async () => {
    const one = CASES['records, an array'] as Case;
    const before = (await payloads()).length;
    const far = await post(one, `[${'{},'.repeat(100_000)}{}]`);
    expect([400, 413], far.body).toContain(far.status);
    const { status, body } = await post(batch as Case, (batch as Case).body(...texts(10_001)));
    expect([status, body]).toEqual([400, expect.stringContaining('at most 10000 events')]);
    expect((await payloads()).length).toBe(before);
  });
});
