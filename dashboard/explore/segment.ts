/** The second of two segments: other events of the same range, which the chart is compared with. */
import type { Series } from '../../src/api-types/answers.ts';
import { useResource } from '../resource.ts';
import { now } from '../state.ts';
import { NO_SEGMENT } from '../url.ts';
import { seriesPath, type ViewAndChange } from '../view.ts';
import { type Scan, useScan } from './scan.ts';

/** The view of the second segment, which changes the first one's view. */
export function secondOf({ view, span, change }: ViewAndChange): ViewAndChange {
  return {
    view: { ...view, ...(view.other ?? NO_SEGMENT), compare: 'none' },
    span,
    change: ({ types, filters, text }, replace) => {
      const { other = NO_SEGMENT } = view;
      change(
        {
          other: {
            types: types ?? other.types,
            filters: filters ?? other.filters,
            text: text === undefined ? other.text : text,
          },
        },
        replace,
      );
    },
  };
}

export interface Second {
  /** The counts of the first segment, with those of the second one as what they are compared with. */
  readonly series: Series;
  /** Why there is no comparison; null where there is. */
  readonly note: string | null;
  /** What counts do not answer of the second one. */
  readonly scan: Scan;
}

/** @param first of the first segment */
export function useSecond(appId: string, viewed: ViewAndChange, first: Series): Second {
  const isAsked = viewed.view.compare === 'segment';
  const own = secondOf(viewed);
  const view = { ...own.view, by: first.by };
  const path = seriesPath(appId, view, viewed.span);
  const second = useResource<Series>(isAsked ? path : null, {
    scope: `second ${appId}`,
    version: now.value,
    meaning: path.replace(/\b(from|to)=[^&]*&?/g, ''),
  });
  const counted = isAsked ? second.data : undefined;
  const scan = useScan(appId, { ...own, view }, { ...second, data: counted }, null);
  const found = scan.isWanted ? scan.series : counted;
  const problem = second.problem ?? scan.problem;
  const none = { series: first, scan };
  if (!isAsked || second.isStale) return { ...none, note: null };
  if (problem !== null || found == null)
    return { ...none, note: problem?.details ?? scan.notBy ?? (scan.isWanted ? READING : null) };
  const { starts, all, lines } = found;
  // While one of two answers is on its way, the two are of different times.
  if (starts.length !== first.starts.length || starts[0] !== first.starts[0]) return { ...none, note: null };
  const byKey = Object.fromEntries(lines.map(({ key, counts }) => [key, counts]));
  return { series: { ...first, compared: { interval: null, starts, all, byKey } }, note: null, scan };
}

const READING = 'Not compared with the second filter yet: its events are read first.';
