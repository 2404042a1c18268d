/** The statistics of number fields, once for all who offer them: reads, queries, charts, boards, alerts, mails and tools. */

interface Measure {
  /** In menus and legends. */
  readonly label: string;
  /** Exact: as a text where a double cannot hold it. Rounded: to a double. A quantile is within 1 % of the number at its rank. */
  readonly kind: 'exact' | 'rounded' | 'quantile';
  /** The rank of a quantile, between 0 and 1. */
  readonly share?: number;
}

/** In the order of answers and menus. What each is of a summary, `numberStatsOf` says. */
export const MEASURES = {
  sum: { label: 'Sum', kind: 'exact' },
  avg: { label: 'Average', kind: 'rounded' },
  min: { label: 'Minimum', kind: 'exact' },
  max: { label: 'Maximum', kind: 'exact' },
  stddev: { label: 'Standard deviation', kind: 'rounded' },
  p50: { label: 'Median', kind: 'quantile', share: 0.5 },
  p90: { label: '90th percentile', kind: 'quantile', share: 0.9 },
  p95: { label: '95th percentile', kind: 'quantile', share: 0.95 },
  p99: { label: '99th percentile', kind: 'quantile', share: 0.99 },
} as const satisfies Readonly<Record<string, Measure>>;

/** A statistic of a number field. */
export type Stat = keyof typeof MEASURES;
/** What a chart shows of a field: a statistic of its numbers, or how many different values it has. */
export type MeasureStat = Stat | 'distinct';
/** In the address of a view, in place of a statistic: how the numbers of a field are distributed. */
export const HISTOGRAM = 'histogram';
export type ShownStat = MeasureStat | typeof HISTOGRAM;

// Object.keys knows no names.
export const STATS = Object.keys(MEASURES) as readonly Stat[];
/** What a chart may show of a field, in the order of the menu. */
export const SHOWN_STATS: readonly ShownStat[] = ['distinct', ...STATS, HISTOGRAM];

/** Shares of the statistics that are quantiles, ascending. */
export const SHARES = STATS.flatMap((stat) => {
  const { share }: Measure = MEASURES[stat];
  return share ?? [];
});

/** How menus and legends call what a chart shows of a field. */
export function measureLabel(stat: ShownStat): string {
  if (stat === HISTOGRAM) return 'Distribution';
  return stat === 'distinct' ? 'Unique values' : MEASURES[stat].label;
}

/** One number of each bucket, where there is no picture: the middle stands for a distribution. */
export const singleStat = (stat: ShownStat): MeasureStat => (stat === HISTOGRAM ? 'p50' : stat);

export function isQuantile(stat: string): boolean {
  return STATS.some((one) => one === stat && MEASURES[one].kind === 'quantile');
}
