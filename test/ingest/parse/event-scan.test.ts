/** What the scanner reads is what the slow way makes of the same text; what it leaves is what it says that it leaves. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type BatchEvent, parseBatchEvent, TypeReferences } from '../../../src/ingest/parse/batch-event.ts';
import { EventScanner } from '../../../src/ingest/parse/event-scan.ts';
import { runs } from '../../support/fuzz.ts';
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

/** What is read of a text that is one event and nothing else. */
function scanned(text: string): BatchEvent | null {
  const scanner = new EventScanner(new TypeReferences(), 10_000_000);
  const event = scanner.read(text, 0);
  return event !== null && scanner.end === text.length ? event : null;
}

/** By JSON.parse, a schema and a second look for the payload; null where that refuses. */
function parsed(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  return parseBatchEvent(text, value, new TypeReferences());
}

/** How many of the texts the scanner has read: a property that holds of none would say nothing. */
let read = 0;

function expectSame(text: string): void {
  const event = scanned(text);
  if (event === null) return;
  read += 1;
  expect(event).toEqual(parsed(text));
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
] as const;
const anyMember = fc.tuple(
  fc.oneof(
    spellingOf('payload'),
    spellingOf('typeId'),
    jsonString,
    fc.constantFrom('"__proto__"', '"typeName"', '"createdAt"', '"Payload"', '""'),
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
  test('is what the slow way reads, whatever the names, values, white space and repetition', () => {
    read = 0;
    fc.assert(fc.property(eventText, expectSame), runs(4_000));
    expect(read).toBeGreaterThan(300);
  });

  test('is what the slow way reads, of damaged texts too', () => {
    read = 0;
    fc.assert(
      fc.property(eventText, DAMAGE, (text, some) => expectSame(damaged(text, some))),
      runs(8_000),
    );
    expect(read).toBeGreaterThan(80);
  });

  test('is what the slow way reads where a payload is damaged at any place', () => {
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
      runs(5_000),
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
    const types = Array.from({ length: 20 }, (_, n) => {
      const text = `{"typeName":"a name of some length ${n}","payload":{"x":"${'x'.repeat(4_000_000)}"}}`;
      return new EventScanner(new TypeReferences(), 10_000_000).read(Buffer.from(text).toString('latin1'), 0)
        ?.type;
    });
    expect(memory() - before).toBeLessThan(40_000_000);
    expect(types[19]).toEqual({ typeName: 'a name of some length 19' });
  });

  test('names each type once', () => {
    const types = new TypeReferences();
    const scanner = new EventScanner(types, 10_000_000);
    const first = scanner.read('{"typeName":"é of some length","payload":{}}', 0);
    expect(first?.type).toEqual({ typeName: 'é of some length' });
    expect(scanner.read('{"payload":{},"typeName":"é of some length"}', 0)?.type).toBe(first?.type);
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
    `{"typeId":"t","payload":${deep(100)}}`,
  ])('is %s', (text) => {
    expect(scanned(text)).toEqual(parsed(text));
    expect(scanned(text)).not.toBeNull();
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
    `{"typeId":"t","payload":${deep(101)}}`,
    '{"typeId":"t","payload":{"a":01}}',
    '{}',
    '[]',
    '',
  ])('is not %s', (text) => {
    expect(scanned(text)).toBeNull();
  });
});

test('no more of a text is looked at than an event may have', () => {
  const event = '{"typeId":"t","payload":{"a":"bcd","e":[1,{"f":null}]}}';
  const read = (maxLength: number, text = event): BatchEvent | null =>
    new EventScanner(new TypeReferences(), maxLength).read(text, 0);
  expect(read(event.length)).not.toBeNull();
  for (let length = 0; length < event.length; length += 1) expect(read(length), String(length)).toBeNull();
  // Read to its end it would take a second.
  const began = performance.now();
  for (const item of ['\\u0000', 'x', 'null,', '{"":[']) {
    for (const opening of ['{"payload":{"a":"', '{"payload":{"a":[', '{"payload":{"'])
      expect(read(100, opening + item.repeat(2_000_000))).toBeNull();
  }
  expect(performance.now() - began).toBeLessThan(1_000);
});
