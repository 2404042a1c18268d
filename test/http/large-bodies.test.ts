/** Large bodies of every shape: without a token that exists nothing is made of them, with one they are read in turns. */
import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { LoggingTokens } from '../../src/apps/logging-token-lookup.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { CompressedBody } from '../../src/http/compressed-body.ts';
import { JsonScan } from '../../src/json/scan.ts';
import { answered, EVENTS, postBatch } from '../support/batch.ts';
import { bodyShapes } from '../support/body-shapes.ts';
import { sized, TRANSPORTS } from '../support/fuzz.ts';
import { HttpConnection, type HttpResponse, requestBytes } from '../support/http-client.ts';
import { CREATE_EVENT, sharedService, type TestService } from '../support/service.ts';
import { created, invalidBody, refused } from './answers.ts';

const MIB = 1_048_576;
const SHAPES = Object.entries(bodyShapes(MIB - 300));
const SOME_SHAPES = sized(
  SHAPES.filter((_, index) => index % 3 === 0),
  SHAPES,
);
/** Characters that are looked at before others have their turn. */
const SLICE = 131_072;
const step = JsonScan.prototype.step;

describe.each(TRANSPORTS)('over %s,', (transport) => {
  let service: TestService;
  beforeAll(async () => {
    service = await sharedService({ transport, config: { CREATE_LIMIT_PER_MINUTE: 0 } });
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  const post = (body: string): Promise<HttpResponse> =>
    service.request({ method: 'POST', path: CREATE_EVENT, body });
  const unauthorized = (response: HttpResponse): void => {
    refused(response, 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
  };

  /** Everything that could make something of a body, or look at each of its characters. */
  const watch = () => ({
    parse: vi.spyOn(JSON, 'parse'),
    strict: vi.spyOn(JsonScan.prototype, 'step'),
    lookup: vi.spyOn(LoggingTokens.prototype, 'appOf'),
    inflate: vi.spyOn(CompressedBody.prototype, 'write'),
  });
  /** The longest text that JSON.parse was given, except for answers that the test reads. */
  const longestParsed = (parse: { readonly mock: { readonly calls: readonly unknown[][] } }): number =>
    Math.max(0, ...parse.mock.calls.map(([text]) => String(text).length));

  const longestSlice = (strict: {
    readonly mock: { readonly calls: readonly (readonly [number])[] };
  }): number => Math.max(...strict.mock.calls.map(([characters]) => characters));

  // The transports differ in how a body arrives, not in what is made of it.
  describe.each(transport === 'uws' ? SOME_SHAPES : SHAPES.slice(0, 3))('a megabyte of %s', (_, value) => {
    test.each([
      ['first', (token: string) => `{"loggingToken":"${token}","typeName":"a","payload":{"a":${value}}}`],
      ['last', (token: string) => `{"payload":{"a":${value}},"typeName":"a","loggingToken":"${token}"}`],
    ])('costs no parsing where its token, which stands %s, does not exist', async (_, bodyOf) => {
      const { parse, strict, lookup } = watch();
      unauthorized(await post(bodyOf(createTokenText('tdl'))));
      unauthorized(await post(bodyOf('tdl_no')));
      expect(strict).not.toHaveBeenCalled();
      expect(longestParsed(parse)).toBeLessThan(1_000);
      expect(lookup.mock.calls.length).toBeLessThanOrEqual(1);
    });

    test('is read in turns where its token exists', async () => {
      const { parse, strict } = watch();
      let turn = 0;
      let isReading = true;
      const count = (): void => {
        turn += 1;
        if (isReading) setImmediate(count);
      };
      setImmediate(count);
      const stepsOfTurn = new Map<number, number>();
      strict.mockImplementation(function (this: JsonScan, characters) {
        stepsOfTurn.set(turn, (stepsOfTurn.get(turn) ?? 0) + 1);
        return step.call(this, characters);
      });
      const response = await post(
        `{"loggingToken":"${service.app.loggingToken}","typeName":"a","payload":{"a":${value}}}`,
      );
      isReading = false;
      if (response.status === 400) invalidBody(response);
      else created(response);
      expect(strict).toHaveBeenCalled();
      expect(longestSlice(strict)).toBeLessThanOrEqual(SLICE);
      // Two where both stand in one phase of the event loop, before and after the counter.
      expect(Math.max(...stepsOfTurn.values())).toBeLessThanOrEqual(2);
      expect(longestParsed(parse)).toBeLessThan(1_000);
    });
  });

  test('a body with a made-up token is not inflated', async () => {
    const { inflate } = watch();
    const bomb = gzipSync(Buffer.alloc(8 * MIB, ' '));
    for (const token of [createTokenText('tdl'), 'tdl_no'])
      unauthorized(
        await postBatch(service, bomb, { 'Content-Encoding': 'gzip', Authorization: `Bearer ${token}` }),
      );
    expect(inflate).not.toHaveBeenCalled();
  });

  test('the part of a compressed body that arrived before its token was known is inflated afterwards', async () => {
    const payload = { noise: randomBytes(200_000).toString('base64') };
    const body = gzipSync(JSON.stringify({ events: [{ typeName: 'a', payload }] }));
    const app = await service.newApp();
    const connection = await HttpConnection.open(service.port);
    const headers = { Authorization: `Bearer ${app.loggingToken}`, 'Content-Encoding': 'gzip' };
    const bytes = requestBytes({ method: 'POST', path: EVENTS, body, headers });
    // The first request with this token: it is looked up in the database while the body comes.
    await connection.writePieces([bytes.subarray(0, 100_000), bytes.subarray(100_000)]);
    expect(answered(await connection.response()).stored).toBe(1);
    connection.destroy();
  });

  test('a batch of events of every shape is read in turns', async () => {
    const { parse, strict } = watch();
    for (const [name, value] of SHAPES.filter(([name]) => !name.includes('unfinished'))) {
      const event = `{"typeName":"a","payload":{"a":${value}}}`;
      const response = await postBatch(service, `{"events":[${event}],"other":${value}}`);
      expect(answered(response).results, name).toHaveLength(1);
    }
    expect(strict.mock.calls.length).toBeGreaterThan(10 * SHAPES.length);
    expect(longestSlice(strict)).toBeLessThanOrEqual(SLICE);
    expect(longestParsed(parse)).toBeLessThan(2_000);
  });

  test('a large body of a good token is stored wherever and however that is spelled', async () => {
    const { loggingToken } = service.app;
    const payload = `{"a":"${'x'.repeat(100_000)}"}`;
    const escaped = `\\u0074${loggingToken.slice(1)}`;
    for (const members of [
      [`"loggingToken":"${loggingToken}"`, '"typeName":"a"', `"payload":${payload}`],
      [`"payload":${payload}`, '"typeName":"a"', `"loggingToken" :\n"${loggingToken}"`],
      [
        '"loggingToken":"tdl_no"',
        `"payload":${payload}`,
        '"typeName":"a"',
        `"loggingToken":"${loggingToken}"`,
      ],
      [
        '"\\u006coggingToken":"x"',
        '"typeName":"a"',
        `"payload":${payload}`,
        `"logging\\u0054oken":"${escaped}"`,
      ],
    ]) {
      const { eventId } = created(await post(`{${members.join()}}`));
      const [row] = await service.sql<{ text: string }[]>`
        SELECT payload::text AS text FROM events WHERE id = ${eventId}`;
      expect(row?.text).toBe(payload);
    }
  });

  test('a large body with a good token that is not its own is refused', async () => {
    const { loggingToken } = service.app;
    const payload = `{"loggingToken":"${loggingToken}","a":"${'x'.repeat(100_000)}"}`;
    unauthorized(await post(`{"loggingToken":"tdl_no","typeName":"a","payload":${payload}}`));
    expect(invalidBody(await post(`{"typeName":"a","payload":${payload}}`))).toContain('"loggingToken"');
    unauthorized(
      await post(
        `{"loggingToken":"${loggingToken}","payload":${payload},"typeName":"a","loggingToken":"tdl_no"}`,
      ),
    );
  });

  test('the order of errors of a small body is the contract’s, whatever its token', async () => {
    const filler = 'x'.repeat(1_500);
    expect(invalidBody(await post(`{"loggingToken":"tdl_no","a":"${filler}"`))).toMatch(
      /^The body is not valid JSON: it ends too early at line 1, column \d+\.$/,
    );
    expect(invalidBody(await post(`{"loggingToken":"tdl_no","a":"${filler}"}`))).toContain('"payload"');
    unauthorized(await post(`{"loggingToken":"tdl_no","a":"${filler}","typeName":"a","payload":{}}`));
  });
});
