import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { type EventsQuery, parseEventsQuery } from '../../src/read/events-query.ts';
import { runs } from '../support/fuzz.ts';

function accepted(query: string): EventsQuery {
  const parsed = parseEventsQuery(query);
  if (parsed instanceof Rejection) throw new Error(`refused: ${parsed.details}`);
  return parsed;
}

function refused(query: string): string {
  const parsed = parseEventsQuery(query);
  if (!(parsed instanceof Rejection)) throw new Error(`accepted: ${JSON.stringify(parsed)}`);
  expect(parsed.reason).toBe('invalidParameters');
  return parsed.details;
}

test('appId alone reads the first hundred events of all types and times, oldest first', () => {
  expect(accepted('appId=app_1')).toEqual({
    appId: 'app_1',
    typeId: null,
    from: null,
    until: null,
    limit: 100,
    offset: 0,
    order: 'asc',
  });
});

test('every parameter has its effect', () => {
  const query =
    'appId=app_1&typeId=typ_1&limit=7&offset=21&order=desc&startDate=2026-01-01&endDate=2026-01-31';
  expect(accepted(query)).toEqual({
    appId: 'app_1',
    typeId: 'typ_1',
    from: Date.UTC(2026, 0, 1),
    until: Date.UTC(2026, 1, 1),
    limit: 7,
    offset: 21,
    order: 'desc',
  });
});

test.each(['', 'appId', 'appId=', 'typeId=x', 'APPID=x', 'appid=x'])('%j lacks appId', (query) => {
  expect(refused(query)).toMatch(/appId/);
});

test('empty typeId, startDate and endDate are absent', () => {
  expect(accepted('appId=a&typeId=&startDate=&endDate=')).toEqual(accepted('appId=a'));
});

test('unknown parameters are ignored, also twice; a token in the query is one of them', () => {
  expect(accepted('appId=a&x=1&x=2&token=tdr_abc&access_token=y&&=&%zz')).toEqual(accepted('appId=a'));
});

test.each(['appId', 'typeId', 'limit', 'offset', 'startDate', 'endDate', 'order'])(
  '%s given twice is refused',
  (name) => {
    const value =
      { limit: '1', offset: '1', order: 'asc', startDate: '2026-01-01', endDate: '2026-01-01' }[name] ?? 'a';
    const other = name === 'appId' ? '' : 'appId=a&';
    expect(refused(`${other}${name}=${value}&${name}=${value}`)).toMatch(new RegExp(`^${name} `));
    expect(refused(`${other}${name}=${value}&${encodeURIComponent(name).replace('a', '%61')}=`)).toMatch(
      name,
    );
  },
);

describe('limit', () => {
  test.each([
    ['1', 1],
    ['1000', 1_000],
    ['1001', 1_000],
    ['007', 7],
    ['99999999999999999999', 1_000],
    ['9'.repeat(400), 1_000],
  ])('%s applies %i', (text, limit) => {
    expect(accepted(`appId=a&limit=${text}`).limit).toBe(limit);
  });

  test.each([
    '',
    '0',
    '000',
    '-1',
    '%2B1',
    '+1',
    '1.0',
    '1.5',
    '1e2',
    '0x10',
    'ten',
    '%201',
    '1%00',
    'NaN',
    'Infinity',
    '١',
  ])('%j is refused', (text) => {
    expect(refused(`appId=a&limit=${text}`)).toMatch(/^limit /);
  });
});

describe('offset', () => {
  test.each([
    ['0', 0],
    ['5000000', 5_000_000],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
  ])('%s is applied', (text, offset) => {
    expect(accepted(`appId=a&offset=${text}`).offset).toBe(offset);
  });

  test.each(['', '-1', '-0', '1.5', '1e3', 'x', '9007199254740992', '1000000000000000000', '9'.repeat(400)])(
    '%j is refused',
    (text) => {
      expect(refused(`appId=a&offset=${text}`)).toMatch(/^offset /);
    },
  );
});

test.each(['', 'ASC', 'up', 'asc,desc'])('order %j is refused', (order) => {
  expect(refused(`appId=a&order=${order}`)).toMatch(/^order /);
});

describe('range', () => {
  const millisecond = Date.UTC(2026, 0, 31, 8, 30, 15, 123);

  test('both bounds are inclusive, to the millisecond', () => {
    const { from, until } = accepted(
      'appId=a&startDate=2026-01-31T08:30:15.123Z&endDate=2026-01-31T08:30:15.123Z',
    );
    expect([from, until]).toEqual([millisecond, millisecond + 1]);
  });

  test('a plus sign that was not encoded is understood', () => {
    const { from, until } = accepted(
      'appId=a&startDate=2026-01-31T10:30:15.123+02:00&endDate=2026-01-31+08:30:15.123',
    );
    expect([from, until]).toEqual([millisecond, millisecond + 1]);
    expect(accepted('appId=a&startDate=2026-01-31T10:30:15.123%2B02:00').from).toBe(millisecond);
  });

  test('one bound may be given without the other', () => {
    expect(accepted('appId=a&startDate=2026-01-31')).toMatchObject({
      from: Date.UTC(2026, 0, 31),
      until: null,
    });
    expect(accepted('appId=a&endDate=2026-01-31')).toMatchObject({ from: null, until: Date.UTC(2026, 1, 1) });
  });

  test('a start after the end is refused and names both', () => {
    expect(refused('appId=a&startDate=2026-02-01&endDate=2026-01-31')).toMatch(/startDate.*endDate/);
    expect(refused('appId=a&startDate=2026-01-31T00:00:00.001Z&endDate=2026-01-31T00:00Z')).toMatch(
      /startDate/,
    );
  });

  test.each(['startDate', 'endDate'])('%s that is not a date is refused by its name', (name) => {
    for (const value of ['2026-02-30', 'now', '%00', '%zz', '%ff', '2026-01-31%00', '%2B275760-09-13']) {
      expect(refused(`appId=a&${name}=${value}`)).toMatch(new RegExp(`^${name} `));
    }
  });
});

test('malformed escapes stay as they are', () => {
  expect(accepted('appId=%zz').appId).toBe('%zz');
  expect(accepted('appId=%00').appId).toBe('\0');
  expect(accepted('appId=%ff').appId).toBe('\ufffd');
  expect(accepted('appId=a+b').appId).toBe('a b');
});

test('no query makes it throw', () => {
  const part = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.constantFrom(
      'appId=a',
      'limit=',
      'offset=',
      'startDate=',
      'endDate=2026-',
      'order=',
      '%',
      '%00',
      '%zz',
      '+',
      '=',
      ';',
    ),
  );
  fc.assert(
    fc.property(fc.array(part), (parts) => {
      const parsed = parseEventsQuery(parts.join('&'));
      if (!(parsed instanceof Rejection)) expect(parsed.limit).toBeGreaterThanOrEqual(1);
    }),
    runs(1_000),
  );
});
