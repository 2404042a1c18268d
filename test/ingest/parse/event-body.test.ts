import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { type EventBody, parseEventBody } from '../../../src/ingest/parse/event-body.ts';
import {
  DAMAGE,
  damaged,
  jsonObject,
  jsonString,
  jsonValue,
  spellingOf,
  whiteSpace,
} from '../../json/json-text.ts';
import { runs, sized } from '../../support/fuzz.ts';
import { bodyByJsonParse } from './by-json-parse.ts';

/** Why a body is refused. */
function details(text: string): string {
  const outcome = parseEventBody(text);
  if (!(outcome instanceof Rejection)) throw new Error(`It was not refused: ${JSON.stringify(outcome)}`);
  expect(outcome.reason).toBe('invalidBody');
  return outcome.details;
}

function parsedAtOnce(text: string): EventBody | Rejection {
  const outcome = parseEventBody(text);
  if (outcome instanceof Promise) throw new Error('The body is long.');
  return outcome;
}

function body(fields: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ loggingToken: 't', typeId: 'i', payload: {}, ...fields });
}

describe('a body', () => {
  test('becomes token, type and the text of the payload', () => {
    expect(parseEventBody('{"loggingToken":"t","typeId":"i","payload":{ "a" : 1.0 }}')).toEqual({
      loggingToken: 't',
      type: { typeId: 'i' },
      payload: '{ "a" : 1.0 }',
      keyed: null,
      ignoresTime: false,
    });
  });

  test('gives back the very text of any payload, wherever and however it stands', () => {
    const fields = fc.record({
      payload: jsonObject,
      key: spellingOf('payload'),
      other: jsonValue,
      spaces: fc.array(whiteSpace, { minLength: 6, maxLength: 6 }),
      place: fc.nat(3),
    });
    fc.assert(
      fc.property(fields, ({ payload, key, other, spaces, place }) => {
        const members = ['"loggingToken":"t"', '"typeName":"n"', `"other":${other.text}`];
        members.splice(place, 0, `${key}${spaces[0]}:${spaces[1]}${payload.text}`);
        const text = `${spaces[2]}{${spaces[3]}${members.join(`${spaces[4]},${spaces[5]}`)}}`;
        expect(parseEventBody(text)).toEqual({
          loggingToken: 't',
          type: { typeName: 'n' },
          payload: payload.text,
          keyed: null,
          ignoresTime: false,
        });
      }),
      runs(sized(250, 1_000)),
    );
  });

  test('is read as JSON.parse reads it, whatever its members, and damaged too', () => {
    const plain = fc.string().map((text) => JSON.stringify(text));
    const name = fc.oneof(
      fc.constantFrom('"loggingToken"', '"typeId"', '"typeName"', '"createdAt"', '"key"', '"payload"', '"x"'),
      spellingOf('loggingToken'),
    );
    const member = fc.tuple(
      name,
      fc.oneof(
        plain,
        jsonString,
        fc.constantFrom('null', '"2026-01-31T08:30:00.123Z"'),
        jsonValue.map(({ text }) => text),
      ),
    );
    const usual = fc.tuple(plain, plain, jsonObject).map(([token, type, payload]): [string, string][] => [
      ['"loggingToken"', token],
      ['"typeName"', type],
      ['"payload"', payload.text],
    ]);
    const text = fc
      .tuple(usual, fc.array(member, { maxLength: 1 }), fc.nat(3), whiteSpace, whiteSpace)
      .map(([some, others, place, before, behind]) => {
        const members: [string, string][] = [...some];
        members.splice(place, 0, ...others);
        const texts = members.map(([key, value]) => `${before}${key}${behind}:${before}${value}${behind}`);
        return `${before}{${texts.join(',')}}${behind}`;
      });
    let valid = 0;
    const expectSame = (body: string): void => {
      const read = parsedAtOnce(body);
      if (!(read instanceof Rejection)) valid += 1;
      const meant =
        read instanceof Rejection
          ? read.details.replace(/^(The body is not valid JSON):.*/, '$1.')
          : { ...read, payload: JSON.parse(read.payload) };
      expect(meant, body).toEqual(bodyByJsonParse(body));
    };
    fc.assert(fc.property(text, expectSame), runs(sized(500, 2_000)));
    expect(valid).toBeGreaterThan(300);
    fc.assert(
      fc.property(text, DAMAGE, (whole, changes) => expectSame(damaged(whole, changes))),
      runs(sized(1_000, 4_000)),
    );
  });

  test('never makes the parser throw, whatever the text', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'binary' }),
          jsonValue.map(({ text }) => text),
        ),
        (text) => {
          expect(parseEventBody(text)).toBeInstanceOf(Rejection);
        },
      ),
    );
  });

  test('is refused for what JSON.parse refuses, with the place and no more of it than a character', () => {
    expect(details('{"loggingToken":"tdl_secret",}')).toBe(
      "The body is not valid JSON: a comma stands before '}' at line 1, column 30.",
    );
  });

  test.each(['loggingToken', 'payload'])('is refused with the name of the missing %s', (field) => {
    expect(details(body({ [field]: undefined }))).toContain(`"${field}"`);
  });

  test.each([
    ['loggingToken', null],
    ['loggingToken', 1],
    ['payload', null],
    ['payload', []],
    ['payload', '{}'],
    ['typeId', 1],
    ['typeId', {}],
  ])('is refused with the name of %s where that is %j', (field, value) => {
    expect(details(body({ [field]: value }))).toContain(`"${field}"`);
  });

  test('takes an inherited name for no field', () => {
    expect(details('{"__proto__":{"loggingToken":"t","payload":{}},"typeId":"i"}')).toContain(
      '"loggingToken"',
    );
  });

  test.each([
    [{ typeId: 'i', typeName: 'n' }, { typeId: 'i' }],
    [{ typeId: 'i', typeName: 5 }, { typeId: 'i' }],
    [{ typeId: '', typeName: 'n' }, { typeName: 'n' }],
    [{ typeId: null, typeName: 'n' }, { typeName: 'n' }],
    [{ typeId: undefined, typeName: ' n ' }, { typeName: ' n ' }],
    [{ typeId: ' ', typeName: 'n' }, { typeId: ' ' }],
  ])('with %j means the type %j', (fields, type) => {
    expect(parseEventBody(body(fields))).toMatchObject({ type });
  });

  test.each([
    ['', { typeName: undefined }],
    ['null', { typeName: null }],
    ['empty', { typeName: '' }],
  ])('without typeId is refused with both names where typeName is absent: %s', (_, fields) => {
    expect(details(body({ typeId: null, ...fields }))).toMatch(/"typeId".*"typeName"/);
  });

  test('of any length is read as a short one, in turns that others have too', async () => {
    const item = ' {"a" : [1, "\\u00e9\\\\", {} ] } ,';
    const long = (payload: string): string => `{"payload":${payload},"loggingToken":"t", "typeName":"n"}`;
    const good = `{"a":[${item.repeat(40_000)}0]}`;
    let turns = 0;
    let isReading = true;
    const turn = (): void => {
      turns += 1;
      if (isReading) setImmediate(turn);
    };
    setImmediate(turn);
    expect(await parseEventBody(long(good))).toEqual({
      loggingToken: 't',
      type: { typeName: 'n' },
      payload: good,
      keyed: null,
      ignoresTime: false,
    });
    isReading = false;
    expect(turns).toBeGreaterThan(Math.floor(good.length / 150_000));
    expect(await parseEventBody(long(`${good}x`))).toMatchObject({
      details: expect.stringMatching(/^The body is not valid JSON: .* at line 1, column \d+[.]$/),
    });
    expect(await parseEventBody(`${long(good)}x`)).toMatchObject({
      details: expect.stringMatching(/^The body is not valid JSON: .* at line 1, column \d+[.]$/),
    });
    expect(await parseEventBody(long(`[${good}]`))).toMatchObject({
      details: 'The field "payload" must be a JSON object.',
    });
  });

  test('may have a payload of 1,000 levels, not of 1,001', () => {
    const nested = (levels: number): string =>
      `{"loggingToken":"t","typeId":"i","payload":${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels)}`;
    expect(parseEventBody(nested(1_000))).not.toBeInstanceOf(Rejection);
    expect(details(nested(1_001))).toContain('1000');
  });
});
