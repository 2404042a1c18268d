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

function parsedAtOnce(text: string): EventBody | Rejection {
  const outcome = parseEventBody(text);
  if (outcome instanceof Promise) throw new Error('The body is long.');
  return outcome;
}

describe('a body', () => {
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
});
