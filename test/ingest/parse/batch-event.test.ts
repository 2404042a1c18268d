/** What is read of an event, fast or strictly, is what JSON.parse makes of the same text. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { type BatchEvent, BatchEventParser, TypeReferences } from '../../../src/ingest/parse/batch-event.ts';
import { runs, sized } from '../../support/fuzz.ts';
import { eventByJsonParse } from './by-json-parse.ts';
import {
  CHANGES,
  DAMAGE,
  damaged,
  jsonObject,
  jsonString,
  jsonValue,
  spellingOf,
  whiteSpace,
} from './json-text.ts';

/** What is read fast of a text that is one event and nothing else. */
function parseFast(text: string): BatchEvent | null {
  const parser = new BatchEventParser(new TypeReferences(), 10_000_000);
  const event = parser.parseFast(text, 0);
  return event !== null && parser.end === text.length ? event : null;
}

/** The same, strictly: the event, or what is wrong with it; null for what is not JSON. */
function parseStrict(text: string): BatchEvent | string | null {
  const parser = new BatchEventParser(new TypeReferences(), 10_000_000);
  const reading = parser.parseStrict(text, 0);
  let step = reading.next();
  while (step.done !== true) step = reading.next();
  const event = step.value;
  if (event === null || !/^[ \t\n\r]*$/.test(text.slice(parser.end))) return null;
  return event instanceof Rejection ? event.details : event;
}

/** How many of the texts were read fast: a property that holds of none would say nothing. */
let read = 0;

function expectSame(text: string): void {
  const strict = parseStrict(text);
  const meant =
    strict === null || typeof strict === 'string'
      ? strict
      : { ...strict, payload: JSON.parse(strict.payload) };
  expect(meant, text).toEqual(eventByJsonParse(text));
  const fast = parseFast(text);
  if (fast === null) return;
  read += 1;
  expect(fast).toEqual(strict);
}

const plainString = fc.string().map((text) => JSON.stringify(text));
const time = fc
  .oneof(
    fc
      .date({ min: new Date('0000-01-01'), max: new Date('9999-12-31'), noInvalidDate: true })
      .map((date) => date.toISOString()),
    fc.constantFrom(
      '2026-01-31T08:30Z',
      '2026-01-31 08:30:00.1234+01:00',
      '2026-02-30T00:00:00.000Z',
      '2026-01-31T24:00:00.000Z',
      '+02026-01-31T08:30:00.0Z',
      '2026-01-31',
      '2026-01-31T08:30:00.123z',
      'Sat Jan 31 2026 08:30:00',
      '',
    ),
  )
  .map((text) => JSON.stringify(text));

const usualMembers = [
  fc.tuple(
    fc.constant('"payload"'),
    jsonObject.map(({ text }) => text),
  ),
  fc.tuple(fc.constantFrom('"typeId"', '"typeName"'), fc.oneof(plainString, fc.constant('null'))),
  fc.tuple(fc.constant('"createdAt"'), fc.oneof(time, fc.constant('null'))),
  fc.tuple(fc.constant('"key"'), fc.oneof({ arbitrary: fc.constant('null'), weight: 12 }, plainString)),
] as const;
const anyMember = fc.tuple(
  fc.oneof(
    spellingOf('payload'),
    spellingOf('typeId'),
    jsonString,
    fc.constantFrom('"__proto__"', '"typeName"', '"createdAt"', '"key"', '"Payload"', '""'),
  ),
  fc.oneof(
    jsonString,
    jsonValue.map(({ text }) => text),
  ),
);

/** The usual members but perhaps one, perhaps some others, in any order. */
const eventText: fc.Arbitrary<string> = fc
  .tuple(
    fc.tuple(...usualMembers),
    fc.nat(9),
    fc.array(anyMember, { maxLength: 1 }),
    fc.boolean(),
    whiteSpace,
    whiteSpace,
  )
  .map(([usual, left, others, isFirst, before, behind]) => {
    const members = [...usual.filter((_, index) => index !== left), ...others];
    if (isFirst) members.reverse();
    const texts = members.map(([key, value]) => `${before}${key}${behind}:${before}${value}${behind}`);
    return `{${texts.join(',')}}`;
  });

describe('what is read of an event', () => {
  test('is what JSON.parse makes of it, whatever the names, values, white space and repetition', () => {
    read = 0;
    fc.assert(fc.property(eventText, expectSame), runs(sized(2_000, 4_000)));
    expect(read).toBeGreaterThan(150);
  });

  test('is what JSON.parse makes of it, of damaged texts too', () => {
    read = 0;
    fc.assert(
      fc.property(eventText, DAMAGE, (text, some) => expectSame(damaged(text, some))),
      runs(sized(3_000, 8_000)),
    );
    expect(read).toBeGreaterThan(30);
  });

  test('is what JSON.parse makes of it where a payload is damaged at any place', () => {
    const payload = String.raw`{"a":[1,-0.5e+10,{},[],true,false,null],"b\"\\\u00e9":"\ud800\n é"}`;
    for (let at = 0; at <= payload.length; at += 1)
      for (const character of CHANGES)
        for (const lost of [0, 1])
          expectSame(
            `{"typeId":"t","payload":${payload.slice(0, at)}${character}${payload.slice(at + lost)}}`,
          );
  });

  test('ends, whatever the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'{}[]",:\\ e0x-.\n') }), (text) => {
        expectSame(text);
        expectSame(`{"typeId":"t","payload":${text}}`);
        expectSame(`{"typeId":"t","payload":{"a":${text}}}`);
      }),
      runs(sized(2_500, 5_000)),
    );
  });

  test('keeps no body in memory under the name of a type', () => {
    setFlagsFromString('--expose-gc');
    const collect: () => void = runInNewContext('gc');
    const memory = (): number => {
      collect();
      const { heapUsed, external } = process.memoryUsage();
      return heapUsed + external;
    };
    const before = memory();
    const text = (n: number, length: number): string =>
      Buffer.from(
        `{"typeName":"a name of some length ${n}","payload":{"x":"${'x'.repeat(length)}"}}`,
      ).toString('latin1');
    const fast = Array.from({ length: 500 }, (_, n) => parseFast(text(n, 100_000))?.type);
    const strict = Array.from({ length: 20 }, (_, n) => {
      const event = parseStrict(text(n, 4_000_000));
      return typeof event === 'object' ? event?.type : undefined;
    });
    expect(memory() - before).toBeLessThan(40_000_000);
    expect(fast[499]).toEqual({ typeName: 'a name of some length 499' });
    expect(strict[19]).toEqual({ typeName: 'a name of some length 19' });
  });

  test('names each type once', () => {
    const types = new TypeReferences();
    const parser = new BatchEventParser(types, 10_000_000);
    const first = parser.parseFast('{"typeName":"é of some length","payload":{}}', 0);
    expect(first?.type).toEqual({ typeName: 'é of some length' });
    expect(parser.parseFast('{"payload":{},"typeName":"é of some length"}', 0)?.type).toBe(first?.type);
  });
});

describe('usual', () => {
  const deep = (levels: number): string => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;

  test.each([
    '{"typeId":"t","payload":{}}',
    '{ "payload" : { } , "typeName" : "n" }',
    '{"typeId":"t","typeName":"n","payload":{"a":"\\u00e9\\"\\\\"},"more":[1]}',
    '{"typeId":null,"typeName":"n","payload":{},"createdAt":null}',
    '{"typeId":"","typeName":"n","payload":{},"createdAt":""}',
    '{"typeId":"t","payload":{},"createdAt":"2026-01-31T08:30:00.123Z"}',
    '{"typeId":"t","payload":{},"createdAt":"2026-01-31 08:30+01"}',
    '{"key":"k","typeId":"t","payload":{},"createdAt":"2026-01-31T08:30:00.123Z"}',
    '{"key":"","typeId":"t","payload":{}}',
    `{"typeId":"t","payload":${deep(100)}}`,
  ])('is %s', (text) => {
    expect(parseFast(text)).toEqual(parseStrict(text));
    expect(parseFast(text)).not.toBeNull();
  });

  test.each([
    '{"typeId":"\\u0074","payload":{}}',
    '{"type\\u0049d":"t","payload":{}}',
    '{"typeId":"t","payload":{},"payload":{}}',
    '{"typeId":"t","typeId":"t","payload":{}}',
    '{"typeId":"t","payload":[]}',
    '{"typeId":1,"payload":{}}',
    '{"typeId":"t"}',
    '{"payload":{}}',
    '{"typeId":"t","payload":{},"createdAt":1}',
    '{"typeId":"t","payload":{},"createdAt":"today"}',
    '{"typeId":"t","payload":{},"key":"k"}',
    '{"typeId":"t","payload":{},"key":1,"createdAt":"2026-01-31T08:30:00.123Z"}',
    `{"typeId":"t","payload":${deep(101)}}`,
    '{"typeId":"t","payload":{"a":01}}',
    '{}',
    '[]',
    '',
  ])('is not %s', (text) => {
    expect(parseFast(text)).toBeNull();
  });
});

test('no more of a text is looked at than an event may have', () => {
  const event = '{"typeId":"t","payload":{"a":"bcd","e":[1,{"f":null}]}}';
  const read = (maxLength: number, text = event): BatchEvent | null =>
    new BatchEventParser(new TypeReferences(), maxLength).parseFast(text, 0);
  expect(read(event.length)).not.toBeNull();
  for (let length = 0; length < event.length; length += 1) expect(read(length), String(length)).toBeNull();
  for (const item of ['\\u0000', 'x', 'null,', '{"":[']) {
    for (const opening of ['{"payload":{"a":"', '{"payload":{"a":[', '{"payload":{"'])
      expect(read(100, opening + item.repeat(1_000))).toBeNull();
  }
});

test('a long event is read in steps', () => {
  const text = `{"typeName":"n","payload":{"a":${'['.repeat(999)}${'],['.repeat(200_000)}${']'.repeat(999)}}}`;
  const steps = Array.from(new BatchEventParser(new TypeReferences(), 10_000_000).parseStrict(text, 0));
  expect(steps.length).toBeGreaterThanOrEqual(4);
});
