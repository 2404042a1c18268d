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
import {
  type Compare,
  comparedSpan,
  parseRange,
  relativeOf,
  resolveRange,
  wider,
} from '../../dashboard/range.ts';
import { fromWall, isZone, toWall } from '../../dashboard/time-zone.ts';
import { parseFilter } from '../../src/read/filter/parse-filter.ts';
import { readConditions } from '../../src/read/typed/typed-conditions.ts';
import { parseTyped } from '../../src/read/typed/typed-range.ts';
import { isTimezone } from '../../src/storage/counts/timezone.ts';

const BERLIN = 'Europe/Berlin';
const at = (text: string): number => Date.parse(text);
const NOW = at('2026-11-22T08:00:00Z');

describe('a range that is typed', () => {
  const between = (from: string, to: string) => ({ kind: 'between', from: at(from), to: at(to) });
  test.each([
    ['14 Nov 09:00 to now', { kind: 'since', from: at('2026-11-14T08:00Z') }],
    ['14 Nov 2026, 09:00 – 14 Nov 2026, 10:30', between('2026-11-14T08:00Z', '2026-11-14T09:30Z')],
    ['14 Nov 09:00 to 17:00', between('2026-11-14T08:00Z', '2026-11-14T16:00Z')],
    ['2026-10-25', between('2026-10-24T22:00Z', '2026-10-25T23:00Z')],
    ['2026-11-14T09:00 to 2026-11-14T10:00', between('2026-11-14T08:00Z', '2026-11-14T09:00Z')],
    ['yesterday 9:00 pm to today 1:00', between('2026-11-21T20:00Z', '2026-11-22T00:00Z')],
    ['2026-11-14T08:30:00.123Z', { kind: 'since', from: at('2026-11-14T08:30:00.123Z') }],
    ['2026-11-14 09:00:00.5 to 09:00:01', between('2026-11-14T08:00:00.500Z', '2026-11-14T08:00:01Z')],
    ['1794645000 to 1794648600000', between('2026-11-14T08:30Z', '2026-11-14T09:30Z')],
    ['2026/11/14', between('2026-11-13T23:00Z', '2026-11-14T23:00Z')],
    ['14-16 Nov', between('2026-11-13T23:00Z', '2026-11-16T23:00Z')],
    ['14.-16. Nov', between('2026-11-13T23:00Z', '2026-11-16T23:00Z')],
    ['14th of November', between('2026-11-13T23:00Z', '2026-11-14T23:00Z')],
    ['14-Nov-2026 to 16-Nov-2026', between('2026-11-13T23:00Z', '2026-11-16T23:00Z')],
    ['day before yesterday', between('2026-11-19T23:00Z', '2026-11-20T23:00Z')],
    ['2026-W47', between('2026-11-15T23:00Z', '2026-11-22T23:00Z')],
    ['week 48', between('2025-11-23T23:00Z', '2025-11-30T23:00Z')],
    ['KW 53 2020', between('2020-12-27T23:00Z', '2021-01-03T23:00Z')],
    ['w1 to w2', between('2025-12-28T23:00Z', '2026-01-11T23:00Z')],
    ['YTD', { kind: 'calendar', period: 'year' }],
    ['28 Dec to 3 Jan 2025', between('2024-12-27T23:00Z', '2025-01-03T23:00Z')],
    // The day is a Sunday.
    ['Friday', between('2026-11-19T23:00Z', '2026-11-20T23:00Z')],
    ['last Sunday', between('2026-11-14T23:00Z', '2026-11-15T23:00Z')],
    ['mon to wed', between('2026-11-15T23:00Z', '2026-11-18T23:00Z')],
    ['since Monday', { kind: 'since', from: at('2026-11-15T23:00Z') }],
    ['2 days ago', between('2026-11-19T23:00Z', '2026-11-20T23:00Z')],
    ['90 minutes ago', { kind: 'since', from: at('2026-11-22T06:30Z') }],
    ['3 hours ago to now', { kind: 'last', amount: 3, unit: 'h' }],
    ['now-7d', { kind: 'last', amount: 7, unit: 'd' }],
    ['Q4 2025', between('2025-09-30T22:00Z', '2025-12-31T23:00Z')],
    ['24 Dec', between('2025-12-23T23:00Z', '2025-12-24T23:00Z')],
    ['last 3 hours', { kind: 'last', amount: 3, unit: 'h' }],
    ['2mo', { kind: 'last', amount: 2, unit: 'mo' }],
    ['past month', { kind: 'last', amount: 1, unit: 'mo' }],
    ['last week', { kind: 'calendar', period: 'lastweek' }],
    ['This Quarter', { kind: 'calendar', period: 'quarter' }],
    ['-3h', { kind: 'last', amount: 3, unit: 'h' }],
    ['20 Dec to 5 Jan', between('2025-12-19T23:00Z', '2026-01-05T23:00Z')],
    ['29 Feb', between('2024-02-28T23:00Z', '2024-02-29T23:00Z')],
    ['1.10. to 31.10.', between('2026-09-30T22:00Z', '2026-10-31T23:00Z')],
    ['october', between('2026-09-30T22:00Z', '2026-10-31T23:00Z')],
    ['Sep 2025 to october 2025', between('2025-08-31T22:00Z', '2025-10-31T23:00Z')],
    ['2026-10', between('2026-09-30T22:00Z', '2026-10-31T23:00Z')],
    ['2025', between('2024-12-31T23:00Z', '2025-12-31T23:00Z')],
    ['all time', { kind: 'all' }],
  ])('%s', (text, expected) => expect(parseTyped(text, NOW, BERLIN)).toEqual(expected));

  test.each([
    '',
    'to',
    'soon',
    '31 Feb',
    '15 Nov to 14 Nov',
    '14',
    '2027-01-01',
    '32.01.2026',
    'novel',
    '29 Feb 2026',
    '14 2025',
    '2026-11-14T25:00:00Z',
    '2026-02-14T08:30:00Z 09:00',
    '3 months ago',
    'Monday 14 Nov',
    'now-1d/d',
  ])('"%s" is none', (text) => expect(parseTyped(text, NOW, BERLIN)).toBeNull());
});

describe('calendar periods, on every day of a leap year and of the one after it', () => {
  // By texts of dates alone, and not by a calendar of the code.
  const pad = (n: number): string => String(n).padStart(2, '0');
  const firstOf = (year: number, month: number): string =>
    month < 1
      ? firstOf(year - 1, month + 12)
      : month > 12
        ? firstOf(year + 1, month - 12)
        : `${year}-${pad(month)}-01`;
  const isLeap = (year: number): boolean => year % 4 === 0;
  const daysOf = (year: number, month: number): number =>
    [31, isLeap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0;
  const days: [year: number, month: number, day: number][] = [2024, 2025].flatMap((year) =>
    Array.from({ length: 12 }, (_, m) =>
      Array.from({ length: daysOf(year, m + 1) }, (__, d): [number, number, number] => [year, m + 1, d + 1]),
    ).flat(),
  );
  const textOf = ([year, month, day]: readonly number[]): string =>
    `${year}-${pad(month ?? 0)}-${pad(day ?? 0)}`;

  test.each([BERLIN])('in %s', (zone) => {
    const wallOf = (instant: number): string => new Date(toWall(instant, zone)).toISOString().slice(0, 16);
    // 2024 began on a Monday.
    days.forEach((day, index) => {
      if (index < 14) return;
      const now = fromWall(at(`${textOf(day)}T12:00Z`), zone);
      const [year, month, date] = day;
      const monday = index - (index % 7);
      const quarter = month - ((month - 1) % 3);
      const spanOf = (text: string): (string | null)[] => {
        const range = parseTyped(text, now, zone);
        const { from, to } = range === null ? { from: null, to: 0 } : resolveRange(range, now, zone);
        return [from === null ? null : wallOf(from), wallOf(to)];
      };
      const midnight = (one: string): string => `${one}T00:00`;
      const present = `${textOf(day)}T12:01`;
      const dayAt = (place: number): string => midnight(textOf(days[place] ?? []));
      expect([textOf(day), spanOf('this week')]).toEqual([textOf(day), [dayAt(monday), present]]);
      expect([textOf(day), spanOf('last week')]).toEqual([textOf(day), [dayAt(monday - 7), dayAt(monday)]]);
      for (const [text, from, to] of [
        ['this month', firstOf(year, month), null],
        ['last month', firstOf(year, month - 1), firstOf(year, month)],
        ['this quarter', firstOf(year, quarter), null],
        ['last quarter', firstOf(year, quarter - 3), firstOf(year, quarter)],
        ['this year', firstOf(year, 1), null],
        ['last year', firstOf(year - 1, 1), firstOf(year, 1)],
        ['january', firstOf(year, 1), firstOf(year, 2)],
      ] as const)
        expect([textOf(day), text, spanOf(text)]).toEqual([
          ...[textOf(day), text],
          [midnight(from), to === null ? present : midnight(to)],
        ]);
      // The same day of the month before, or its last.
      const [before, last] = [
        firstOf(year, month - 1).slice(0, 8),
        daysOf(year, month === 1 ? 12 : month - 1),
      ];
      expect([textOf(day), spanOf('past month')[0]?.slice(0, 10)]).toEqual([
        textOf(day),
        `${before}${pad(Math.min(date, last))}`,
      ]);
    });
  });

  test('are compared with as much of the one before, and rolling months with as much time', () => {
    const compared = (text: string, now: string): string | null => {
      const range = parseTyped(text, at(now), 'UTC');
      const span =
        range && comparedSpan('previous', range, resolveRange(range, at(now), 'UTC'), at(now), 'UTC');
      return (
        span &&
        `${new Date(span.from ?? 0).toISOString()} ${new Date(span.to).toISOString()}`.replaceAll(
          ':00.000Z',
          '',
        )
      );
    };
    expect(compared('this month', '2026-03-28T12:00Z')).toBe(
      '2026-02-01T00:00 2026-02-28T00:00'.replace('28T00:00', '28T12:01'),
    );
    expect(compared('this month', '2026-03-31T12:00Z')).toBe('2026-02-01T00:00 2026-03-01T00:00');
    expect(compared('last month', '2026-03-28T12:00Z')).toBe('2026-01-01T00:00 2026-02-01T00:00');
    expect(compared('last quarter', '2026-03-28T12:00Z')).toBe('2025-07-01T00:00 2025-10-01T00:00');
    expect(compared('this year', '2026-03-28T12:00Z')).toBe('2025-01-01T00:00 2025-03-28T12:01');
    // 28 days, as long as from 28 February to 28 March.
    expect(compared('past month', '2026-03-28T12:00Z')).toBe('2026-01-31T12:01 2026-02-28T12:01');
    expect(compared('past month', '2026-03-30T12:00Z')).toBe('2026-01-29T12:01 2026-02-28T12:01');
  });
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
    const compared = (text: string, mode: Compare, now = '2026-10-26T12:00:30Z') => {
      const range = parseRange(text);
      if (range === null) return null;
      return comparedSpan(mode, range, resolveRange(range, at(now), BERLIN), at(now), BERLIN);
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
    expect(compared('2026-10-25T23:00:00Z~2026-11-01T23:00:00Z', 'previous', '2026-11-02T12:00Z')).toEqual({
      from: at('2026-10-18T22:00Z'),
      to: at('2026-10-25T23:00Z'),
    });
  });

  test('are compared with the month or the year before, and what has not ended with as much of it', () => {
    const compared = (from: string, to: string, mode: Compare, now: string) => {
      const range = { kind: 'between', from: at(from), to: at(to) } as const;
      const span = comparedSpan(mode, range, range, at(now), BERLIN);
      return [span?.from ?? 0, span?.to ?? 0].map((end) => new Date(end).toISOString().slice(0, 16));
    };
    const november = ['2026-10-31T23:00Z', '2026-11-30T23:00Z'] as const;
    const after = '2026-12-05T12:00Z';
    expect(compared(...november, 'previous', after)).toEqual(['2026-09-30T22:00', '2026-10-31T23:00']);
    expect(compared(...november, 'month', after)).toEqual(['2026-09-30T22:00', '2026-10-31T23:00']);
    expect(compared(...november, 'year', after)).toEqual(['2025-10-31T23:00', '2025-11-30T23:00']);
    expect(compared(...november, 'week', after)).toEqual(['2026-09-26T22:00', '2026-10-26T23:00']);
    // On the 28th, 28 days of it.
    const now = '2026-11-28T11:59Z';
    expect(compared(...november, 'previous', now)).toEqual(['2026-09-30T22:00', '2026-10-28T12:00']);
    expect(compared(...november, 'month', now)).toEqual(['2026-09-30T22:00', '2026-10-28T12:00']);
    expect(compared(...november, 'year', now)).toEqual(['2025-10-31T23:00', '2025-11-28T12:00']);
    // The day of 23 hours, with the whole day before it.
    expect(compared('2026-03-28T23:00Z', '2026-03-29T22:00Z', 'previous', after)).toEqual([
      '2026-03-27T23:00',
      '2026-03-28T23:00',
    ]);
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

test('a zone is a name that the server takes, and no offset', () => {
  for (const name of ['UTC', BERLIN, 'Etc/GMT+5', 'EST'])
    expect([name, isZone(name)]).toEqual([name, isTimezone(name)]);
  for (const name of ['+05:30', '', 'Europe/Berln', 'UTC\0'])
    expect([name, isZone(name), isTimezone(name)]).toEqual([name, false, false]);
});
