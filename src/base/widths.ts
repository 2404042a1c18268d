/** The widths of a chart's buckets, once for the counts that are kept and the page that offers them. */

/** Minutes of each, finest first; of a month those of the shortest one. */
export const WIDTH_MINUTES = {
  ...{ '1m': 1, '5m': 5, '15m': 15, '1h': 60, '3h': 180, '6h': 360, '12h': 720 },
  ...{ '1d': 1_440, '7d': 10_080, '1mo': 40_320 },
} as const;

export type WidthName = keyof typeof WIDTH_MINUTES;

// Object.keys knows no names.
export const WIDTHS = Object.keys(WIDTH_MINUTES) as readonly WidthName[];

/** The most buckets of a chart, whatever is asked for. */
export const MOST_BUCKETS = 1_000;
