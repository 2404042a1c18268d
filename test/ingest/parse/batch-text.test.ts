/** Batches are cut from their text exactly as JSON.parse would see them, and what it refuses is refused. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { collect } from '../../../src/ingest/formats/collect.ts';
import { documentEvents, lineEvents } from '../../../src/ingest/formats/events.ts';
import type { EventLimits } from '../../../src/ingest/formats/format.ts';
import { documentValues, type End } from '../../../src/ingest/parse/batch-text.ts';
import { JsonScan } from '../../../src/json/scan.ts';
import { lineValues } from '../../../src/json/values.ts';
import {
  isJson,
  type JsonText,
  jsonString,
  jsonValue,
  spellingOf,
  whiteSpace,
} from '../../json/json-text.ts';
import { runs, sized } from '../../support/fuzz.ts';
import { expectLinear } from '../../support/linear.ts';

interface Piece {
  readonly kind: 'event' | 'other';
  readonly text: string;
}

function cut(text: string): { pieces: readonly Piece[]; end: End } {
  const scan = new JsonScan();
  const values = documentValues(scan, text);
  const pieces: Piece[] = [];
  for (;;) {
    const { done, value } = values.next();
    if (done === true) return { pieces, end: value };
    if (value instanceof Rejection) throw new Error(value.details);
    if (value !== undefined) pieces.push({ kind: value, text: scan.value });
  }
}

/** The texts of a document's events; null where it is not JSON; else what is wrong with it. */
function eventsOf(text: string): readonly string[] | string | null {
  const { pieces, end } = cut(text);
  expect(pieces.every((piece) => isJson(piece.text))).toBe(true);
  if ('problem' in end) return end.problem;
  const events = pieces.filter(({ kind }) => kind === 'event').map((piece) => piece.text);
  return events.slice(events.length - end.events);
}

/** What JSON.parse makes of it, in the same terms. */
function expected(text: string): readonly unknown[] | 'problem' | null {
  if (!isJson(text)) return null;
  const value: unknown = JSON.parse(text);
  if (Array.isArray(value)) return value;
  if (typeof value !== 'object' || value === null) return 'problem';
  const events = Object.getOwnPropertyDescriptor(value, 'events')?.value;
  return Array.isArray(events) ? events : 'problem';
}

function expectSame(text: string): void {
  const found = eventsOf(text);
  const wanted = expected(text);
  if (wanted === null || typeof wanted === 'string') {
    // Of what is no object nobody cares whether it would be JSON.
    if (wanted === null) expect(Array.isArray(found)).toBe(false);
    else expect(typeof found).toBe('string');
  } else {
    expect(Array.isArray(found) && found.map((event) => JSON.parse(event))).toEqual(wanted);
  }
}

const array: fc.Arbitrary<string> = fc
  .array(fc.tuple(whiteSpace, jsonValue, whiteSpace), { maxLength: 5 })
  .chain((items) =>
    whiteSpace.map(
      (inner) =>
        `[${items.length === 0 ? inner : items.map(([before, { text }, after]) => before + text + after).join(',')}]`,
    ),
  );

const document: fc.Arbitrary<string> = fc
  .array(
    fc.tuple(
      fc.oneof(
        spellingOf('events'),
        fc.constant('"events"'),
        jsonString,
        fc.constantFrom('"Events"', '"__proto__"'),
      ),
      fc.oneof(
        array,
        jsonValue.map(({ text }: JsonText) => text),
      ),
      whiteSpace,
      whiteSpace,
    ),
    { maxLength: 4 },
  )
  .map(
    (members) =>
      `{${members.map(([key, value, before, behind]) => `${before}${key}${behind}:${before}${value}${behind}`).join(',')}}`,
  );

describe('the events of a document', () => {
  test('are those that JSON.parse finds, whatever the spelling, order, nesting, white space and repetition', () => {
    fc.assert(
      fc.property(whiteSpace, document, whiteSpace, (before, text, after) =>
        expectSame(before + text + after),
      ),
      runs(sized(600, 3_000)),
    );
  });

  test('are not found in what JSON.parse refuses: characters lost, doubled, changed or added', () => {
    const change = fc.tuple(
      fc.nat(),
      fc.constantFrom('', '"', '\\', '{', '}', '[', ']', ',', ':', ' ', '\u0001', '\u00a0', '0', 'x', '\n'),
      fc.nat(2),
    );
    fc.assert(
      fc.property(document, fc.array(change, { minLength: 1, maxLength: 3 }), (text, changes) => {
        let broken = text;
        for (const [at, character, lost] of changes) {
          const index = at % (broken.length + 1);
          broken = broken.slice(0, index) + character + broken.slice(index + lost);
        }
        expectSame(broken);
      }),
      runs(sized(700, 10_000)),
    );
  });

  test.each([
    ['{"events":[]}', []],
    ['{"events":[1,2]}', ['1', '2']],
    ['{"events":[1],"events":[2]}', ['2']],
    ['{"events":[1],"\\u0065vents":[2,3]}', ['2', '3']],
    ['{"events":[1],"events":[]}', []],
    ['{"events":[1],"events":{}}', 'The field "events" must be an array.'],
    ['{"events":{},"events":[1]}', ['1']],
    ['{"events":[1],"events":[2', null],
    ['{"events":[bad],"events":[2]}', null],
    ['{"other":bad,"events":[2]}', null],
    ['{"a":{"events":[1]}}', expect.stringContaining('The field "events" is missing: send ')],
    ['{}', expect.stringContaining('The field "events" is missing: send ')],
    ['[]', []],
    [' [1, {}] ', ['1', '{}']],
    ['[1', null],
    ['[1]]', null],
    ['7', 'The body must be a JSON object, or an array of events.'],
    ['', 'The body must be a JSON object, or an array of events.'],
    ['events=[1]&a=2', expect.stringContaining('The body is a form (name=value), not JSON')],
    ['{"events":[1,]}', null],
    ['{"events":[,1]}', null],
    ['{"events":[1 2]}', null],
    ['{"events":[1]} x', null],
    ['{"events":[1],}', null],
    ['{"events" [1]}', null],
    ['{events:[1]}', null],
    ['{"events":[1}', null],
    ['{"events":[{]}', null],
    ['{"events', null],
  ])('in %s are %j', (text, events) => {
    expect(eventsOf(text)).toEqual(events);
  });

  test.each<[string, (size: number) => string]>([
    ['empty objects', (size) => `{"events":[${'{},'.repeat(size)}{}]}`],
    ['brackets that stay open', (size) => `{"events":[${'['.repeat(size)}`],
    ['escapes in a string', (size) => `{"events":["${'\\"'.repeat(size)}`],
    ['other members', (size) => `{${'"k":0,'.repeat(size)}"events":[]}`],
    ['the same member', (size) => `{${'"events":[],'.repeat(size)}"events":[]}`],
    ['blanks', (size) => `{"events":[${' '.repeat(size)}{}]}`],
  ])('are cut in linear time from %s without end', (_what, textOf) => {
    expectLinear((size) => {
      const text = textOf(size);
      return () => {
        const values = documentValues(new JsonScan(), text);
        while (values.next().done !== true);
      };
    }, 20_000);
  });

  test('are cut in linear time from line feeds without end', () => {
    expectLinear((size) => {
      const text = '\n'.repeat(size);
      return () => expect([...lineValues(new JsonScan(), text)]).toEqual([]);
    }, 100_000);
  });
});

describe('lines', () => {
  test('are the texts between line feeds, but for blank ones', () => {
    const line = fc.oneof(
      jsonValue.map(({ text }) => text.replace(/[\n\r]/g, ' ')),
      fc.string().map((text) => text.replaceAll('\n', '')),
      fc.constantFrom('', ' ', '\t', '\r'),
    );
    fc.assert(
      fc.property(fc.array(line), fc.constantFrom('\n', '\r\n'), fc.boolean(), (lines, feed, ended) => {
        const scan = new JsonScan();
        const found: string[] = [];
        for (const isWhole of lineValues(scan, lines.join(feed) + (ended ? feed : ''))) {
          expect(isWhole).toBe(isJson(scan.text));
          found.push(scan.text);
        }
        const wanted = lines
          .map((text) => text.replace(/^[ \t\r]+|[ \t\r]+$/g, ''))
          .filter((text) => text !== '');
        expect(found.map((text) => text.replace(/[ \t\r]+$/, ''))).toEqual(wanted);
      }),
    );
  });
});

const readBatch = (text: string, isLines: boolean, limits: EventLimits) =>
  collect(
    (isLines ? lineEvents : documentEvents)({ text, limits, damage: null }),
    { limits, hold: () => null },
    { holder: ['account', 1] },
  );

describe('reading a batch', () => {
  const limits = { maxEvents: 10, maxEventBytes: 200 };
  const read = async (text: string, lines = false): Promise<unknown> => {
    const batch = await readBatch(text, lines, limits);
    if (batch instanceof Rejection) return `${batch.status}: ${batch.details}`;
    return batch.map((event) => (event instanceof Rejection ? `${event.status}: ${event.details}` : event));
  };
  const good = '{"typeId":"t","payload":{"a": 1e400}}';
  const goodEvent = { type: { typeId: 't' }, createdAt: null, payload: '{"a": 1e400}', key: null };

  test.each([
    [good, goodEvent],
    [
      '{"typeName":"n","payload":{},"createdAt":"2026-01-31T08:30:00.1239+01:00"}',
      { type: { typeName: 'n' }, createdAt: Date.UTC(2026, 0, 31, 7, 30, 0, 123), payload: '{}', key: null },
    ],
    ['{"typeId":"t","payload":{},"createdAt":null}', { ...goodEvent, payload: '{}' }],
    ['{"typeId":"t","payload":{},"createdAt":""}', { ...goodEvent, payload: '{}' }],
    ['{"typeId":"t","payload":{"x":1},"p\\u0061yload":{"y":2}}', { ...goodEvent, payload: '{"y":2}' }],
    [
      '{"typeId":"t","payload":{"__proto__":{"a":1}},"__proto__":{"createdAt":"2020-01-01T00:00Z"}}',
      { ...goodEvent, payload: '{"__proto__":{"a":1}}' },
    ],
    ['{"typeId":"t"}', '400: The field "payload" is missing.'],
    ['{"typeId":"t","payload":[]}', '400: The field "payload" must be a JSON object.'],
    ['{"payload":{}}', '400: One of the fields "typeId" and "typeName" is required.'],
    ['{"typeId":1,"payload":{}}', '400: The field "typeId" must be a string.'],
    ['{"typeName":"\\u0000","payload":{}}', '400: The field "typeName" must not contain NUL.'],
    ['{"typeId":"t","payload":{},"createdAt":1}', '400: The field "createdAt" must be a string.'],
    [
      '{"typeId":"t","payload":{},"createdAt":"2026-01-31"}',
      expect.stringContaining('400: The field "createdAt" must be an ISO 8601 date with a time'),
    ],
    [
      '{"typeId":"t","payload":{},"createdAt":"2026-02-30T00:00Z"}',
      '400: The field "createdAt" is a date that does not exist.',
    ],
    [
      '{"typeId":"t","payload":{},"createdAt":"1969-12-31T23:59:59.999Z"}',
      '400: The field "createdAt" is before 1970.',
    ],
    ['null', '400: The event must be a JSON object.'],
    [`{"typeId":"t","payload":{"a":"${'x'.repeat(200)}"}}`, '413: An event may have at most 200 bytes.'],
    [`{"typeId":"t","payload":{"a":"${'é'.repeat(100)}"}}`, '413: An event may have at most 200 bytes.'],
  ])('makes of %s %j, and keeps its neighbors', async (text, event) => {
    expect(await read(`{"events":[${good},${text},${good}]}`)).toEqual([goodEvent, event, goodEvent]);
    expect(await read(`${good}\n${text}\n${good}`, true)).toEqual([goodEvent, event, goodEvent]);
  });

  test('says of an array in place of an event that it is none, and of one in place of a line how to send it', async () => {
    const problem = '400: The event must be a JSON object.';
    expect(await read(`{"events":[${good},[],${good}]}`)).toEqual([goodEvent, problem, goodEvent]);
    expect(await read(`${good}\n[]\n${good}`, true)).toEqual([
      goodEvent,
      '400: The line is an array: send an array with Content-Type: application/json.',
      goodEvent,
    ]);
  });

  test('refuses a document with one event that is no JSON, and of lines that one alone', async () => {
    expect(await read(`{"events":[${good},{bad}]}`)).toBe(
      `400: The body is not valid JSON: unexpected 'b' at line 1, column ${good.length + 14}.`,
    );
    expect(await read(`${good}\n{bad}\n\n${good}`, true)).toEqual([
      goodEvent,
      "400: The line is not valid JSON: unexpected 'b' at column 2.",
      goodEvent,
    ]);
  });

  test('refuses batches without events, and with too many', async () => {
    const many = (count: number): string => Array.from({ length: count }, () => good).join(',');
    expect(await read('{"events":[]}')).toBe('400: The batch has no events.');
    expect(await read(' \n \n', true)).toBe('400: The batch has no events.');
    expect(await read(`{"events":[${many(10)}]}`)).toHaveLength(10);
    expect(await read(`{"events":[${many(11)}]}`)).toBe('400: A batch may have at most 10 events.');
    expect(await read(many(11).replaceAll('},{', '}\n{'), true)).toBe(
      '400: A batch may have at most 10 events.',
    );
    expect(await read(`{"events":[${many(10)}],"events":[${good}]}`)).toEqual([goodEvent]);
    expect(await read(`{"x":"${'x'.repeat(200)}","events":[${good}]}`)).toContain('413');
  });

  test('makes way for others: the event loop turns while 10,000 events are read', async () => {
    const text = `{"events":[${Array.from({ length: 10_000 }, (_, n) => `{"typeId":"t","payload":{"n":${n},"x":"${'x'.repeat(180)}"}}`).join(',')}]}`;
    let turns = 0;
    let reading = true;
    const turn = (): void => {
      turns += 1;
      if (reading) setImmediate(turn);
    };
    setImmediate(turn);
    const batch = await readBatch(text, false, {
      maxEvents: 10_000,
      maxEventBytes: 1_000,
    });
    reading = false;
    expect(batch).toHaveLength(10_000);
    expect(turns).toBeGreaterThan(1);
  });
});
