import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HISTOGRAM, SHOWN_STATS } from '../../dashboard/measure.ts';
import { PERIODS, type Range, type Unit } from '../../dashboard/range.ts';
import { DETAILS, MODES, misread, parseView, safeNext, type View, viewSearch } from '../../dashboard/url.ts';
import { SCALES } from '../../src/base/view.ts';
import { WIDTHS } from '../../src/base/widths.ts';
import { anyText } from '../support/fuzz.ts';

const unit = fc.constantFrom<Unit>('m', 'h', 'd', 'w', 'mo', 'y');
const range: fc.Arbitrary<Range> = fc.oneof(
  fc.constant<Range>({ kind: 'all' }),
  fc.record({ kind: fc.constant('last' as const), amount: fc.integer({ min: 1, max: 200 }), unit }),
  fc
    .record({ from: fc.integer({ min: 0, max: 4e12 }), length: fc.integer({ min: 1, max: 1e12 }) })
    .map(({ from, length }): Range => ({ kind: 'between', from, to: from + length })),
  fc.record({ kind: fc.constant('calendar' as const), period: fc.constantFrom(...PERIODS) }),
  fc.record({ kind: fc.constant('since' as const), from: fc.integer({ min: 0, max: 4e12 }) }),
);
const text = anyText({ minLength: 1 });
const bucket = fc
  .record({ from: fc.integer({ min: 0, max: 4e12 }), length: fc.integer({ min: 1, max: 1e9 }) })
  .map(({ from, length }) => ({ from, to: from + length }));
const single: fc.Arbitrary<View> = fc.record({
  range,
  back: fc.option(range),
  types: fc.uniqueArray(text),
  filters: fc.uniqueArray(text),
  text: fc.option(fc.tuple(fc.constantFrom('word', 'q'), text)),
  at: fc.option(bucket),
  values: fc.constant(null),
  by: fc.option(text),
  measure: fc.option(
    fc.oneof(
      fc.record({
        kind: fc.constant('ratio' as const),
        part: fc.oneof(fc.record({ type: text }), fc.record({ filter: text })),
      }),
      fc.record({ kind: fc.constant('stat' as const), of: text, stat: fc.constantFrom(...SHOWN_STATS) }),
    ),
  ),
  mode: fc.constantFrom(...MODES),
  scale: fc.constantFrom(...SCALES),
  compare: fc.constantFrom('previous' as const, 'week' as const, 'none' as const),
  hidden: fc.uniqueArray(text),
  zone: fc.constantFrom('UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kathmandu'),
  live: fc.boolean(),
  width: fc.option(fc.constantFrom(...WIDTHS)),
  detail: fc.option(fc.constantFrom(...DETAILS)),
  table: fc.boolean(),
  columns: fc.option(fc.uniqueArray(text)),
  event: fc.option(text),
  mark: fc.option(text),
});
const segment = fc.record({
  types: fc.uniqueArray(text),
  filters: fc.uniqueArray(text),
  text: fc.option(fc.tuple(fc.constantFrom('word', 'q'), text)),
});
const box = fc
  .tuple(
    fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e300, max: 1e300 }),
    fc.option(fc.constant(1e-3)),
  )
  .map(([from, more]) => {
    const start = from + 0;
    return more === null ? ([start, null] as const) : ([start, start + Math.abs(start) + more] as const);
  });
const view: fc.Arbitrary<View> = fc.oneof(
  single,
  fc.tuple(single, segment).map(([given, other]): View => ({ ...given, compare: 'segment', other })),
  fc.tuple(single, bucket, text, box).map(
    ([given, at, of, values]): View => ({
      ...given,
      ...{ at, values, measure: { kind: 'stat', of, stat: HISTOGRAM } },
    }),
  ),
);

const BOX = 'of=latency&stat=histogram&at=2026-11-20T00:00:00Z~2026-11-21T00:00:00Z';

describe('the address', () => {
  test.each([
    ['range=banana&tz=UTC', ['range=banana']],
    ['from=yesterday&to=2026-11-10', ['from=yesterday', 'to=2026-11-10']],
    [
      'range=24h&tz=Europe/Atlantis&mode=pie&width=2h&buckets=7',
      ['tz=Europe/Atlantis', 'mode=pie', 'width=2h', 'buckets=7'],
    ],
    ['of=latency&stat=p42', ['stat=p42']],
    [`${BOX}&values=900~1e3`, []],
    [`${BOX}&values=~-5`, []],
    [`${BOX}&values=5~5`, ['values=5~5']],
    [`${BOX}&values=~`, ['values=~']],
    [`${BOX}&values=1~2~3`, ['values=1~2~3']],
    [`${BOX}&values=a~`, ['values=a~']],
    // A box is one of a distribution, and of some time.
    ['of=latency&stat=histogram&values=1~2', ['values=1~2']],
    [`${BOX.replace('histogram', 'p95')}&values=1~2`, ['values=1~2']],
    ['range=24h&tz=UTC&mode=running&of=latency&stat=p95&compare=week', []],
    ['', []],
  ])('%s has in it what is not understood', (search, ignored) => {
    expect(misread(search)).toEqual(ignored);
  });

  test('that the page writes is understood', () => {
    fc.assert(
      fc.property(view, (given) => {
        expect(misread(viewSearch(given))).toEqual([]);
      }),
    );
  });

  test('holds every view completely', () => {
    fc.assert(
      fc.property(view, (given) => {
        expect(parseView(viewSearch(given), 'UTC')).toEqual(given);
      }),
    );
  });

  test('is never refused, whatever it has', () => {
    fc.assert(
      fc.property(fc.string(), (search) => {
        const parsed = parseView(search, 'UTC');
        expect(parseView(viewSearch(parsed), 'UTC')).toEqual(parsed);
      }),
    );
  });

  test('falls back to the last day, in the reader’s own zone', () => {
    const given = parseView('?range=7x&tz=Mars/Olympus&buckets=7&mode=pie&from=tomorrow', 'Europe/Berlin');
    expect(given).toMatchObject({
      range: { kind: 'last', amount: 24, unit: 'h' },
      zone: 'Europe/Berlin',
      detail: null,
      mode: 'histogram',
    });
  });

  test('is readable', () => {
    const search = viewSearch(
      parseView('?from=2026-10-24T22:00:00Z&to=2026-10-31T23:00:00Z&tz=Europe/Berlin&back=7d', 'UTC'),
    );
    expect(search).toBe('?from=2026-10-24T22:00:00Z&to=2026-10-31T23:00:00Z&tz=Europe/Berlin&back=7d');
  });
});

describe('security 8: after signing in', () => {
  const here = 'https://tidemark.example';
  test.each(['/apps/app_1?range=7d&tz=UTC', '/', '/account'])('one goes on to %s', (next) =>
    expect(safeNext(next, here)).toBe(next),
  );
  test.each([
    '//evil.example',
    '/\\evil.example',
    '\\/evil.example',
    'https://evil.example/',
    'javascript:alert(1)',
    '/\t/evil.example',
    '/..//evil.example',
    '/../\\evil.example',
    '/.//evil.example/path?a=b',
    '/a/..//evil.example',
    '/a/%2e%2e//evil.example',
    '/%2E/\\evil.example',
    '/\t..//evil.example',
    '/sign-in',
    '/sign-in/?next=/',
    'apps',
    '',
    null,
  ])('%s leads to the list of apps', (next) => expect(safeNext(next, here)).toBe('/'));

  test('nothing leads to another origin, or to where the browser refuses to go', () => {
    const part = fc.constantFrom('/', '//', '\\', '.', '..', '%2e', '\t', '@', 'evil.example');
    const path = fc.array(part, { maxLength: 6 }).map((parts) => `/${parts.join('')}`);
    fc.assert(
      fc.property(fc.oneof(path, fc.string()), (next) => {
        const safe = safeNext(next, here);
        expect(new URL(safe, here).origin).toBe(here);
        expect(safe).toMatch(/^\/(?![/\\])/);
      }),
      { numRuns: 2_000 },
    );
  });
});
