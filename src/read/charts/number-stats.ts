/** Statistics of the numbers of a declared field, as queries ask for them and answers show them. */
import type { StatColumns } from '../../api-types/answers.ts';
import { type Stat as FieldStat, MEASURES, type MeasureStat, STATS } from '../../base/measures.ts';
import { objectOf } from '../../http/operation.ts';
import { type Parameter, wholeNumber } from '../../http/query.ts';
import { compareDecimals, parseDecimal } from '../../json/decimal.ts';
import type { Stats } from '../../storage/counts/summary-series.ts';
import { Bins, type Histogram, histogramOf } from '../../storage/fields/sketch.ts';
import { COUNT } from '../answer-shapes.ts';
import { VALUE, VALUE_IS_NUMBER } from '../fields/shown-value.ts';

/** `count` is in every row. */
export type NumberStat = 'count' | FieldStat;
/** `distinct` is of a declaration of its own. */
export type Stat = NumberStat | 'distinct';

const NUMBER_WORDS = ['count', ...STATS] as const;
const WORDS = [...NUMBER_WORDS, 'distinct'] as const;

const statOf = <S extends string>(words: readonly S[], further = ''): Parameter<readonly S[]> => ({
  description:
    'With `of`: which statistics each row has, beside `count`. May be given several times. `sum`, `min` and `max` are exact, `avg` and `stddev` are rounded to a double, and the quantiles `p50` to `p99` are within 1 % of the number at their rank. `distinct` is how many different values there are, of a field of the kind `distinct`: exact up to 1,024, beyond it an estimate with a standard error of 0.81 %.' +
    further,
  schema: {
    type: 'array',
    items: { type: 'string', enum: words },
    maxItems: words.length,
  },
  rule: `must be one of ${words.slice(0, -1).join(', ')} or ${words.at(-1)}, or several of them`,
  skipsEmpty: true,
  // The schema lets no other through.
  convert: (value) => (value as readonly S[] | undefined) ?? [],
});

export const STAT = statOf(WORDS);
/** The statistics of a series: also how many numbers are in each bin. */
export const SERIES_STAT = statOf(
  [...WORDS, 'histogram'],
  ' `histogram` is how many numbers there are by size: exact counts of the `bins` of the answer.',
);

const [DEFAULT_BINS, MAX_BINS] = [40, 200];
/** As there may be bins of numbers below and above 1, each with both signs, and one of 0. */
export const LEAST_BINS = 5;

export const BINS: Parameter<number | null> = {
  ...wholeNumber(
    `With \`stat=histogram\`: the most bins. A larger number is reduced to ${MAX_BINS}. The narrowest bins are 2 % wide, and all of an answer are the same power of two of these.`,
    { minimum: LEAST_BINS, absent: DEFAULT_BINS },
  ),
  convert: (value) => (value === undefined ? null : Math.min(value as number, MAX_BINS)), // A number, by its schema.
};

const TYPES = {
  exact: ['number', 'string', 'null'],
  rounded: ['number', 'null'],
  quantile: ['number', 'null'],
} as const;

const EXACT = 'Exact: as a text where a double cannot hold it.';
const NULL = 'Null where there are no numbers.';
const DESCRIPTIONS: Readonly<Record<FieldStat, string>> = {
  sum: `${EXACT} 0 where there are no numbers.`,
  avg: `The sum divided by the count. ${NULL}`,
  min: `${EXACT} ${NULL}`,
  max: `${EXACT} ${NULL}`,
  stddev:
    "Of a sample, as SQL's `stddev_samp`: from exact sums. Null where there are fewer than two numbers, and where some were counted by a release without it.",
  p50: 'Of n numbers in order the one at ⌈0.5 n⌉, within 1 %.',
  p90: 'The same with 0.9.',
  p95: 'The same with 0.95.',
  p99: 'The same with 0.99.',
};

export const STAT_FIELDS = Object.fromEntries(
  STATS.map((name) => [name, { type: TYPES[MEASURES[name].kind], description: DESCRIPTIONS[name] }]),
);

/** Members of a row for a field of the kind `distinct`. */
export const DISTINCT_FIELDS = {
  distinct: { ...COUNT, description: 'How many different values the events have.' },
  exact: { type: 'boolean', description: 'Whether `distinct` is exact, and not an estimate.' },
} as const;

export const HISTOGRAM_FIELD = {
  type: 'array',
  items: COUNT,
  description: 'How many numbers are in each of `bins`. Their sum is `count`.',
};

export const SHOWN_BINS = {
  type: 'array',
  items: objectOf({ from: { type: 'number' }, to: { type: 'number' } }, { title: 'HistogramBin' }),
  description:
    'With `stat=histogram`: the bins of all rows, ascending, from the least to the greatest number of the interval. A bin has the numbers between `from` and `to`, with the end that is farther from 0 and without the other one; the bin of 0 alone has 0 as both. Numbers are compared as doubles.',
};

const OVERALL_ROW = objectOf(
  {
    value: { ...VALUE, description: 'With `by`: the value as JSON.' },
    valueIsNumber: VALUE_IS_NUMBER,
    other: { const: true, description: 'With `by`: the row of all other events.' },
    count: COUNT,
    ...STAT_FIELDS,
    ...DISTINCT_FIELDS,
    histogram: HISTOGRAM_FIELD,
  },
  { optional: ['value', 'valueIsNumber', 'other', ...STATS, 'distinct', 'exact', 'histogram'] },
);

export const OVERALL = {
  oneOf: [
    OVERALL_ROW,
    {
      type: 'array',
      items: OVERALL_ROW,
      description: 'With `by`: one for each value, and one for all others.',
    },
  ],
  description:
    'With `of`: the statistics of the whole interval. Quantiles are not averages of those of buckets, nor are different values their sum.',
} as const;

export const LEFT_OUT = {
  ...objectOf({
    several: { ...COUNT, description: 'Events with several numbers: an array leads to the field.' },
    unrepresentable: {
      ...COUNT,
      description: 'Events whose number has more than 30 digits before the decimal point, or 60 after it.',
    },
  }),
  description: 'With `of`: events of the interval that are in none of its statistics.',
};

/** The statistics that are asked for, with the count. */
export function shownStats(
  stats: Stats,
  wanted: readonly string[],
): Readonly<Record<string, number | string | boolean | null>> {
  if (!('sum' in stats)) return { ...stats };
  const { count } = stats;
  const shown = STATS.filter((name) => wanted.includes(name)).map(
    (name) => [name, exact(stats[name])] as const,
  );
  return { count, ...Object.fromEntries(shown) };
}

/** The bins that the numbers of some lines have in common. @param most how many bins; null: as many as an answer has by itself */
export function histogramOfAll(lines: readonly Stats[], most: number | null): Histogram {
  const all = new Bins();
  for (const line of lines) all.addBins(binsOf(line));
  return histogramOf(all, most ?? DEFAULT_BINS);
}

/** The bins of statistics that were read with these. */
export const binsOf = (stats: Stats): Bins => ('sum' in stats && stats.bins) || new Bins();

/** Statistics of buckets and of their whole as columns of doubles, for charts. */
export function statColumns(rows: readonly Stats[], whole: Stats): StatColumns {
  const names: readonly MeasureStat[] = 'distinct' in whole ? ['distinct'] : 'sum' in whole ? STATS : [];
  return {
    stats: {
      ...Object.fromEntries(names.map((name) => [name, rows.map((row) => doubleOf(row, name))])),
      count: rows.map(({ count }) => count),
    },
    overall: {
      ...Object.fromEntries(names.map((name) => [name, doubleOf(whole, name)])),
      count: whole.count,
      ...('exact' in whole && { exact: whole.exact }),
    },
  };
}

/** Quantiles and the others are null where there are no numbers. */
function doubleOf(stats: Stats, name: MeasureStat): number | null {
  if ('distinct' in stats) return name === 'distinct' ? stats.distinct : null;
  if (!('sum' in stats) || name === 'distinct') return null;
  return stats[name] === null ? null : Number(stats[name]);
}

/** A number where a double is the same. */
function exact(value: string | number | null): string | number | null {
  if (typeof value !== 'string') return value;
  const double = Number(value);
  const [sent, held] = [parseDecimal(value), parseDecimal(String(double))];
  return sent !== null && held !== null && compareDecimals(sent, held) === 0 ? double : value;
}
