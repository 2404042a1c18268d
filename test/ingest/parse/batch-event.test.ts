/** What is read of an event is what JSON.parse makes of the same text. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { type BatchEvent, batchEvent, TypeReferences } from '../../../src/ingest/parse/batch-event.ts';
import { EVENT_FIELDS } from '../../../src/ingest/parse/event-body.ts';
import { JsonScan } from '../../../src/json/scan.ts';
import { scanWhole } from '../../../src/json/values.ts';
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
import { eventByJsonParse } from './by-json-parse.ts';

/** The event of a text, or what is wrong with it; null for what is not JSON. */
function parse(text: string, types = new TypeReferences()): BatchEvent | string | null {
  const scan = new JsonScan(EVENT_FIELDS);
  const scanning = scanWhole(scan, text);
  let step = scanning.next();
  while (step.done !== true) step = scanning.next();
  if (!step.value) return null;
  const event = batchEvent(scan, types);
  return event instanceof Rejection ? event.details : event;
}

/** How many of the texts were events: a property that holds of none would say nothing. */
let valid = 0;

function expectSame(text: string): void {
  const event = parse(text);
  const isEvent = event !== null && typeof event !== 'string';
  if (isEvent) valid += 1;
  const meant = isEvent ? { ...event, payload: JSON.parse(event.payload) } : event;
  expect(meant, text).toEqual(eventByJsonParse(text));
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
    valid = 0;
    fc.assert(fc.property(eventText, expectSame), runs(sized(666, 4_000)));
    expect(valid).toBeGreaterThan(150);
  });

  test('is what JSON.parse makes of it, of damaged texts too', () => {
    valid = 0;
    fc.assert(
      fc.property(eventText, DAMAGE, (text, some) => expectSame(damaged(text, some))),
      runs(sized(1_000, 8_000)),
    );
    expect(valid).toBeGreaterThan(30);
  });

  test('ends, whatever the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'{}[]",:\\ e0x-.\n') }), (text) => {
        expectSame(text);
        expectSame(`{"typeId":"t","payload":${text}}`);
        expectSame(`{"typeId":"t","payload":{"a":${text}}}`);
      }),
      runs(sized(833, 5_000)),
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
    const typeOf = (body: string): unknown => (parse(body) as BatchEvent).type;
    const small = Array.from({ length: 200 }, (_, n) => typeOf(text(n, 100_000)));
    const large = Array.from({ length: 10 }, (_, n) => typeOf(text(n, 4_000_000)));
    expect(memory() - before).toBeLessThan(20_000_000);
    expect(small[199]).toEqual({ typeName: 'a name of some length 199' });
    expect(large[9]).toEqual({ typeName: 'a name of some length 9' });
  });

  test('names each type once', () => {
    const types = new TypeReferences();
    const [first, second] = [
      '{"typeName":"é of some length","payload":{}}',
      '{"payload":{},"type":"é of some length"}',
    ].map((text) => (parse(text, types) as BatchEvent).type);
    expect(first).toEqual({ typeName: 'é of some length' });
    expect(second).toBe(first);
  });
});
