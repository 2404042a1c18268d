/** Large bodies are parsed for a token that exists, and for hardly any other reason. */
import { describe, expect, test } from 'vitest';
import { type LoggingTokens, UNKNOWN_TOKEN } from '../../src/apps/logging-token-lookup.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { Rejection } from '../../src/errors.ts';
import { TokenScreen } from '../../src/ingest/token-screen.ts';
import { bodyShapes } from '../support/body-shapes.ts';

const GOOD = createTokenText('tdl');
const ROTATED = createTokenText('tdl');
const OVER = new Rejection('invalidLoggingToken', 'Its grace is over.');

function setUp() {
  const asked: string[] = [];
  let now = 0;
  const loggingTokens = {
    appOf: async (token: string) => {
      asked.push(token);
      return token === GOOD ? 1 : token === ROTATED ? OVER : UNKNOWN_TOKEN;
    },
  };
  // Of the tokens only what is asked here.
  const screen = new TokenScreen(loggingTokens as unknown as LoggingTokens, () => now);
  /** The text that is to be parsed, or the status and details of the refusal. */
  const admit = async (body: string | Buffer): Promise<string> => {
    const outcome = await screen.admit(body);
    return outcome instanceof Rejection ? `${outcome.status}: ${outcome.details}` : outcome;
  };
  return {
    asked,
    admit,
    advance: (ms: number) => {
      now += ms;
    },
  };
}

const UNKNOWN = `401: ${UNKNOWN_TOKEN.details}`;

describe('a body is parsed', () => {
  test.each([
    ['first', `{"loggingToken":"${GOOD}","payload":{}}`],
    ['last', `{"payload":{},"loggingToken" : "${GOOD}"}`],
    ['behind one that is not', `{"loggingToken":"${createTokenText('tdl')}","loggingToken":"${GOOD}"}`],
    ['in a payload', `{"payload":{"loggingToken":"${GOOD}"}}`],
  ])('where a token that exists is %s', async (_, body) => {
    expect(await setUp().admit(body)).toBe(body);
  });

  test('of UTF-8 too, which is decoded then, and not before', async () => {
    const body = `{"loggingToken":"${GOOD}","payload":{"é":"\u{1f30a}"}}`;
    expect(await setUp().admit(Buffer.from(body))).toBe(body);
    const broken = Buffer.concat([Buffer.from(body), Buffer.of(0xff)]);
    expect(await setUp().admit(broken)).toContain('400: The body is not valid UTF-8');
    const strange = Buffer.concat([Buffer.from(body.replace(GOOD, createTokenText('tdl'))), Buffer.of(0xff)]);
    expect(await setUp().admit(strange)).toBe(UNKNOWN);
  });
});

describe('a body is refused', () => {
  test.each([
    ['{"payload":{}}', '400: The field "loggingToken" is missing.'],
    ['{"loggingToken":null,"payload":{}}', '400: The field "loggingToken" must be a string.'],
    [
      '{"loggingToken":"tdl_junk","payload":{}}',
      '401: The logging token is cut off: it has 8 of 42 characters.',
    ],
    [`{"loggingToken":"${createTokenText('tdl')}","payload":[[[[`, UNKNOWN],
    [
      `{"loggingToken":"${createTokenText('tdr')}","payload":{}}`,
      "401: This is a resource token (tdr_…), which reads: send the app's logging token (tdl_…).",
    ],
    [`{"loggingToken":"${ROTATED}","payload":{}}`, '401: Its grace is over.'],
  ])('where no token in it exists: %s', async (body, refusal) => {
    expect(await setUp().admit(body)).toBe(refusal);
  });

  test('with at most two questions, whatever it holds', async () => {
    const { asked, admit } = setUp();
    const tokens = Array.from({ length: 50 }, () => `{"loggingToken":"${createTokenText('tdl')}"}`);
    await admit(`[${tokens.join()}]`);
    expect(asked).toHaveLength(2);
  });
});

test('what may hide a token is parsed, but only so much of it a second', async () => {
  const { admit, advance } = setUp();
  const token = `\\u0074${GOOD.slice(1)}`;
  const body = `{"loggingToken":"${token}","payload":"${'x'.repeat(500_000)}"}`;
  const admitted = async (times: number): Promise<number> => {
    let count = 0;
    for (let time = 0; time < times; time += 1) {
      const outcome = await admit(body);
      if (outcome === body) count += 1;
      else expect(outcome).toMatch(/^503: /);
    }
    return count;
  };
  expect(await admitted(20)).toBe(5);
  advance(1_000);
  expect(await admitted(20)).toBe(4);
  advance(3_600_000);
  expect(await admitted(20)).toBe(5);
  // Others are not affected.
  expect(await admit(`{"loggingToken":"${GOOD}"}`)).toBe(`{"loggingToken":"${GOOD}"}`);
  expect(await admit('{"loggingToken":"x"}')).toContain('401: This is not a logging token');
});

test.each(Object.entries(bodyShapes(100_000)))('%s hide no token', async (_, payload) => {
  const { admit } = setUp();
  const made = createTokenText('tdl');
  for (let round = 0; round < 60; round += 1)
    expect(await admit(Buffer.from(`{"payload":${payload},"loggingToken":"${made}"}`))).toBe(UNKNOWN);
});
