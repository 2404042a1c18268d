import { describe, expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { type EventsQuery, parseEventsQuery } from '../../src/read/events/events-query.ts';

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

test.each(['', 'appId', 'appId=', 'typeId=x', 'APPID=x', 'appid=x'])('%j lacks appId', (query) => {
  expect(refused(query)).toMatch(/appId/);
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

  test.each(['', '0', '000', '-1', '%2B1', '1.5', '1e2', '0x10', 'ten', '%201', '1%00', '١'])(
    '%j is refused',
    (text) => {
      expect(refused(`appId=a&limit=${text}`)).toMatch(/^limit /);
    },
  );
});

describe('offset', () => {
  test.each(['', '-1', '-0', '1.5', '1e3', 'x', '9007199254740992', '1000000000000000000', '9'.repeat(400)])(
    '%j is refused',
    (text) => {
      expect(refused(`appId=a&offset=${text}`)).toMatch(/^offset /);
    },
  );
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
