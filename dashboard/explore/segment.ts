/** The second of two segments: other events of the same range, which the chart is compared with. */
import type { Series } from '../../src/api-types/answers.ts';
import { type Resource, useResource } from '../resource.ts';
import { now } from '../state.ts';
import { NO_SEGMENT, type View } from '../url.ts';
import { hasConditions, seriesPath, type ViewAndChange } from '../view.ts';

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
}

/** @param first of the first segment */
export function useSecond(appId: string, viewed: ViewAndChange, first: Series): Second {
  const { view } = secondOf(viewed);
  const isAsked = viewed.view.compare === 'segment';
  const path = seriesPath(appId, { ...view, by: first.by }, viewed.span);
  const second = useResource<Series>(isAsked ? path : null, {
    scope: `second ${appId}`,
    version: now.value,
    meaning: path.replace(/\b(from|to)=[^&]*&?/g, ''),
  });
  if (!isAsked) return { series: first, note: null };
  const note = second.problem?.details ?? noteOf(view, first, second);
  if (second.data === undefined || second.isStale || note !== null) return { series: first, note };
  const { starts, all, lines } = second.data;
  // While one of two answers is on its way, the two are of different times.
  if (starts.length !== first.starts.length || starts[0] !== first.starts[0]) return { series: first, note };
  const byKey = Object.fromEntries(lines.map(({ key, counts }) => [key, counts]));
  return { series: { ...first, compared: { starts, all, byKey } }, note };
}

function noteOf(view: View, first: Series, { data }: Resource<Series>): string | null {
  if (data === undefined) return null;
  if (first.isScanned === true || (hasConditions(view) && data.isFiltered !== true))
    return 'Not compared with the second filter: that takes exact counts, of types or of one condition on a counted field.';
  return first.by === data.by
    ? null
    : `Not compared with the second filter: it is not counted by ${first.by}.`;
}
