import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { eventAsCurl, shellQuote } from '../../dashboard/components/snippets.ts';
import { readEvent, readEventPage } from '../../dashboard/event-rows.ts';
import { children, members } from '../../dashboard/raw-json.ts';
import { valueEnd } from '../../src/json/walk.ts';

const spaces = fc.stringMatching(/^[ \t\r\n]{0,3}$/);

/** JSON text with white space in every place that allows it. */
const spacedJson = fc.tuple(fc.json({ maxDepth: 5 }), spaces).map(([text, space]) => {
  let inString = false;
  return [...text]
    .map((character, index) => {
      if (character === '"' && !escaped(text, index)) inString = !inString;
      return !inString && /[{}[\],:]/.test(character) ? space + character + space : character;
    })
    .join('');
});

function escaped(text: string, index: number): boolean {
  let backslashes = 0;
  while (text[index - 1 - backslashes] === '\\') backslashes += 1;
  return backslashes % 2 === 1;
}

/** The value again, out of nothing but the places that the scanner found. */
function rebuild(text: string, at: number): unknown {
  const first = text[at];
  if (first !== '{' && first !== '[') return JSON.parse(text.slice(at, valueEnd(text, at)));
  const { items } = children(text, at);
  if (first === '[') return items.map(({ start }) => rebuild(text, start));
  const entries = items.map(({ key, start }) => [JSON.parse(key ?? ''), rebuild(text, start)]);
  return Object.fromEntries(entries);
}

describe('the scanner', () => {
  test('finds the same values as JSON.parse', () => {
    fc.assert(
      fc.property(spacedJson, (text) => {
        const start = text.search(/\S/);
        expect(rebuild(text, start)).toEqual(JSON.parse(text));
        expect(valueEnd(text, start)).toBe(text.trimEnd().length);
      }),
      { numRuns: 500 },
    );
  });

  test('pages through children without losing one', () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue()), fc.integer({ min: 1, max: 5 }), (values, limit) => {
        const text = JSON.stringify(values);
        const found: string[] = [];
        let from: number | null = null;
        do {
          const { items, next } = children(text, 0, limit, from);
          found.push(...items.map(({ start, end }) => text.slice(start, end)));
          from = next;
        } while (from !== null);
        expect(found).toEqual(values.map((value) => JSON.stringify(value)));
      }),
    );
  });

  test('keeps spellings: duplicate keys, numbers beyond doubles, escapes', () => {
    const text = '{"a":1e400, "a":12345678901234567890,"\\u0061":-0 ,"t":"\\\\\\"]}"}';
    expect(children(text, 0).items.map(({ key, start, end }) => [key, text.slice(start, end)])).toEqual([
      ['"a"', '1e400'],
      ['"a"', '12345678901234567890'],
      ['"\\u0061"', '-0'],
      ['"t"', '"\\\\\\"]}"'],
    ]);
    expect(members(text, 0).get('a')?.start).toBe(text.indexOf('-0'));
  });

  test('walks a hundred thousand levels without a stack', () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    expect(valueEnd(deep, 0)).toBe(200_000);
  });
});

describe('an answer with events', () => {
  const row = (payload: string): string =>
    `{"id":"1","typeId":"typ_1","payload":${payload},"createdAt":"2026-11-20T14:00:00.000Z"}`;

  test('gives payloads back as they were spelled', () => {
    fc.assert(
      fc.property(fc.array(spacedJson.map((text) => `{"x":${text}}`)), (payloads) => {
        const page = readEventPage(
          `{"success":true,"data":{"events":[${payloads.map(row)}],"pagination":{"nextCursor":"c","feed":"f"}}}`,
        );
        expect(page.events.map(({ payload }) => payload)).toEqual(payloads);
        expect([page.next, page.feed]).toEqual(['c', 'f']);
      }),
    );
  });

  test('may be empty or the last, and one event has the same fields', () => {
    expect(readEventPage('{"success":true,"data":{"events":[],"pagination":{"limit":50}}}')).toEqual({
      events: [],
      next: null,
      searchedUntil: null,
      feed: null,
    });
    expect(readEvent(`{"success":true,"data":${row('{"a":1e400}')}}`)).toEqual({
      id: '1',
      typeId: 'typ_1',
      payload: '{"a":1e400}',
      createdAt: '2026-11-20T14:00:00.000Z',
    });
  });
});

describe('commands to copy', () => {
  test('quote whatever is in the payload', () => {
    expect(shellQuote(`it's`)).toBe(`'it'\\''s'`);
    expect(eventAsCurl('http://h', 'typ_1', `{"a":"it's $HOME"}`)).toBe(
      `curl http://h/public/create_event -H 'Content-Type: application/json' -d '{"loggingToken":"'"$LOGGING_TOKEN"'","typeId":"typ_1","payload":{"a":"it'\\''s $HOME"}}'`,
    );
  });
});
