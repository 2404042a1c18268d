import { describe, expect, test } from 'vitest';
import { shortNames } from '../../dashboard/charts/series-data.ts';
import { fieldsOf, valuesAt } from '../../dashboard/explore/fields.ts';
import {
  allowedBy,
  equals,
  pathText,
  typable,
  typedPath,
  withCondition,
} from '../../dashboard/filter-text.ts';
import { average, change } from '../../dashboard/format.ts';
import { comparedSpan, parseRange, relativeOf, resolveRange, wider } from '../../dashboard/range.ts';
import { parseFilter } from '../../src/read/filter/parse-filter.ts';
import { readConditions } from '../../src/read/typed/typed-conditions.ts';
import { parseTyped } from '../../src/read/typed/typed-range.ts';

const BERLIN = 'Europe/Berlin';
const at = (text: string): number => Date.parse(text);
const NOW = at('2026-11-22T08:00:00Z');

describe('a range that is typed', () => {
  const between = (from: string, to: string) => ({ kind: 'between', from: at(from), to: at(to) });
  test.each([
    ['14 Nov 09:00 to now', { kind: 'since', from: at('2026-11-14T08:00Z') }],
    ['Nov 14 9am to now', { kind: 'since', from: at('2026-11-14T08:00Z') }],
    ['14 Nov 2026, 09:00 – 14 Nov 2026, 10:30', between('2026-11-14T08:00Z', '2026-11-14T09:30Z')],
    ['14 Nov 09:00 to 17:00', between('2026-11-14T08:00Z', '2026-11-14T16:00Z')],
    ['2026-10-25', between('2026-10-24T22:00Z', '2026-10-25T23:00Z')],
    ['2026-10-24 to 2026-10-25', between('2026-10-23T22:00Z', '2026-10-25T23:00Z')],
    ['2026-11-14T09:00 to 2026-11-14T10:00', between('2026-11-14T08:00Z', '2026-11-14T09:00Z')],
    ['yesterday 9:00 pm to today 1:00', between('2026-11-21T20:00Z', '2026-11-22T00:00Z')],
    ['24 Dec', between('2025-12-23T23:00Z', '2025-12-24T23:00Z')],
    ['08:30', { kind: 'since', from: at('2026-11-22T07:30Z') }],
    ['last 3 hours', { kind: 'last', amount: 3, unit: 'h' }],
    ['45 min', { kind: 'last', amount: 45, unit: 'm' }],
    ['2mo', { kind: 'last', amount: 2, unit: 'mo' }],
    ['last month', { kind: 'last', amount: 1, unit: 'mo' }],
    ['this week', { kind: 'calendar', period: 'week' }],
    ['Yesterday', { kind: 'calendar', period: 'yesterday' }],
    ['all time', { kind: 'all' }],
  ])('%s', (text, expected) => expect(parseTyped(text, NOW, BERLIN)).toEqual(expected));

  test.each(['', 'to', 'now', 'soon', '31 Feb', '14 Nov 25:00', '15 Nov to 14 Nov', '14', 'h', '2027-01-01'])(
    '"%s" is none',
    (text) => expect(parseTyped(text, NOW, BERLIN)).toBeNull(),
  );
});

describe('days and weeks', () => {
  const resolve = (text: string, now: string) => {
    const range = parseRange(text);
    return range && resolveRange(range, at(now), BERLIN);
  };

  test('begin at midnight of the zone, also when the clocks change', () => {
    const now = '2026-10-25T12:00:30Z';
    expect(resolve('today', now)).toEqual({ from: at('2026-10-24T22:00Z'), to: at('2026-10-25T12:01Z') });
    expect(resolve('yesterday', now)).toEqual({ from: at('2026-10-23T22:00Z'), to: at('2026-10-24T22:00Z') });
    expect(resolve('week', now)).toEqual({ from: at('2026-10-18T22:00Z'), to: at('2026-10-25T12:01Z') });
    expect(resolve('week', '2026-10-26T12:00Z')?.from).toBe(at('2026-10-25T23:00Z'));
  });

  test('are compared with the day, or the week, before, at the same time of the clock', () => {
    const compared = (text: string, mode: 'previous' | 'week', now = '2026-10-26T12:00:30Z') => {
      const range = parseRange(text);
      if (range === null) return null;
      return comparedSpan(mode, range, resolveRange(range, at(now), BERLIN), BERLIN);
    };
    expect(compared('today', 'previous')).toEqual({
      from: at('2026-10-24T22:00Z'),
      to: at('2026-10-25T12:01Z'),
    });
    expect(compared('today', 'week')).toEqual({ from: at('2026-10-18T22:00Z'), to: at('2026-10-19T11:01Z') });
    expect(compared('7d', 'previous')?.from).toBe(at('2026-10-12T11:01Z'));
    expect(compared('30d', 'week')?.to).toBe(at('2026-09-21T11:01Z'));
    expect(compared('24h', 'previous')).toEqual({
      from: at('2026-10-24T12:01Z'),
      to: at('2026-10-25T12:01Z'),
    });
    expect(compared('all', 'previous')).toBeNull();
    expect(compared('2026-10-25T23:00:00Z~2026-11-01T23:00:00Z', 'previous')).toEqual({
      from: at('2026-10-18T22:00Z'),
      to: at('2026-10-25T23:00Z'),
    });
  });

  test('of a range that is over lead back to a live one of the same length, and never into the future', () => {
    expect(relativeOf({ from: 0, to: 7 * 86_400_000 })).toEqual({ kind: 'last', amount: 7, unit: 'd' });
    expect(relativeOf({ from: 0, to: 60_000 })).toEqual({ kind: 'last', amount: 15, unit: 'm' });
    const wide = wider({ from: NOW - 3_600_000, to: NOW }, NOW);
    expect(wide).toEqual({ kind: 'between', from: NOW - 7_140_000, to: NOW + 60_000 });
  });
});

describe('conditions', () => {
  test.each([
    [['user', 'id'], '42', 'user.id==42'],
    [['n.o', 'a b'], '"x"', '"n.o"."a b":x'],
    [['-a'], '"42"', '"-a":"42"'],
    [['a'], '"true"', 'a:"true"'],
    [['a'], '"x,y"', 'a:"x,y"'],
    [['a'], '""', 'a:""'],
    [['a'], '"\\ud800"', 'a:"\\ud800"'],
    [['a'], '"to be "', 'a:"to be "'],
    [['a'], '"rock or roll"', 'a:"rock or roll"'],
    [['a'], '"salt and type:pepper"', 'a:"salt and type:pepper"'],
    [['a'], '"this OR"', 'a:"this OR"'],
    [['a'], '"New York"', 'a:New York'],
    [['a'], '"*"', 'a:"*"'],
    [['a'], '"5"', 'a:"5"'],
    [['a'], '5', 'a==5'],
    [['a'], 'null', 'a==null'],
    [['a'], '9223372036854775807', 'a==9223372036854775807'],
  ])(
    'of %j and %s are %s, and are read so by the server, and where they are typed',
    (names, spelling, expected) => {
      const text = equals(pathText(names), spelling) ?? '';
      expect(text).toBe(expected);
      const condition = parseFilter(text);
      expect(condition).toMatchObject({ isNegated: false, path: names });
      const value = spelling.startsWith('"') ? JSON.parse(spelling) : spelling;
      expect(condition).toMatchObject({ test: { values: [{ text: value }] } });
      expect(allowedBy(text)).toMatchObject({ values: [expect.stringContaining(spelling.slice(0, 2))] });
      // Typed again, as when a chip is clicked, it is the same.
      expect(readConditions(text)).toEqual({ conditions: [text] });
      expect(readConditions(`-${text}`)).toEqual({ conditions: [`-${text}`] });
    },
  );

  test('of one field are alternatives, and their exclusions are not', () => {
    expect(withCondition(['a:x'], 'a', '"y"', false)).toEqual(['a:x,y']);
    expect(withCondition(['a:x'], 'a', '"x"', false)).toEqual(['a:x']);
    expect(withCondition(['a:x'], 'a', '"y"', true)).toEqual(['a:x', '-a:y']);
    expect(withCondition(['-a:x'], 'a', '"x"', false)).toEqual(['a:x']);
    expect(withCondition(['a:*'], 'a', '"x"', false)).toEqual(['a:*', 'a:x']);
    expect(withCondition(['a:x y,"z"'], '"a"', '5', false)).toEqual(['a=="x y","z",5']);
    expect(withCondition(['a==5'], 'a', '"5"', false)).toEqual(['a==5,"5"']);
    // Without quotes it has both already.
    expect(withCondition(['a:5'], 'a', '"5"', false)).toEqual(['a:5']);
    expect(withCondition(['a:5'], 'a', '7', false)).toEqual(['a==5,"5",7']);
  });

  test('that were sent unquoted are typed so that they stay one', () => {
    expect(typable('-a:rock or roll')).toBe('-a:"rock or roll"');
    expect(typable('a:5,rock or roll')).toBe('a:5,rock or roll');
    expect(typable('a>=rock or roll')).toBe('a>=rock or roll');
  });

  test('are told from texts', () => {
    expect(typedPath('user.id:4')).toEqual({ path: 'user.id', sign: ':', value: '4' });
    expect(typedPath('-status>=500')).toEqual({ path: '-status', sign: '>=', value: '500' });
    expect([typedPath('timeout'), typedPath('the error: no'), typedPath(':x')]).toEqual([null, null, null]);
  });

  test('are completed with the fields of the events at hand, the most frequent first', () => {
    const event = (payload: string) => ({ id: payload, typeId: 't', createdAt: '', payload });
    const events = [
      event('{"a":{"b":1},"list":[{"c":"x"},{"c":"y"}]}'),
      event('{"a":{"b":2}}'),
      event('{"a":{"b":2}}'),
    ];
    expect(fieldsOf([{ events, next: null, searchedUntil: null, feed: null }])).toEqual([
      { path: 'a.b', values: ['2', '1'] },
      { path: 'list.c', values: ['"x"', '"y"'] },
    ]);
    expect(valuesAt(events[0]?.payload ?? '', 'list.c')).toEqual(['"x"', '"y"']);
  });
});

test('changes and averages read as people say them', () => {
  expect([change(110, 100), change(90, 100), change(100, 100), change(999, 100)]).toEqual([
    '+10%',
    '-10%',
    '±0%',
    '+899%',
  ]);
  // A percentage of hardly anything says nothing.
  expect([change(1_000, 100), change(3_881, 2), change(1, 0)]).toEqual([null, null, null]);
  expect([average(0.00347), average(0.126)]).toEqual(['<0.01', '0.126']);
});

test('names that are cut keep what tells them apart', () => {
  expect(
    shortNames(['checkout.payment.card.declined', 'checkout.payment.card.captured', 'short'], 20),
  ).toEqual(['…yment.card.declined', '…yment.card.captured', 'short']);
  // No dot after the ellipsis.
  expect(
    shortNames(['checkout.payment.attempt.0.finished', 'checkout.payment.attempt.57.finished'], 20),
  ).toEqual(['…attempt.0.finished', '…attempt.57.finished']);
  expect(shortNames(['a name that is alone and long'], 20)).toEqual(['a name …one and long']);
});
