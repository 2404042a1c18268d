/** The line of a measure, computed from the answers that it needs. */
import { useRef } from 'preact/hooks';
import type { EventType, NumberStats, Series, Stat } from '../../src/api-types/answers.ts';
import { type Curve, emptyCurve, ratioCurve, statCurve } from '../charts/curve.ts';
import { type Measure, partText, STAT_NAMES } from '../measure.ts';
import { comparedSpan, rangeText } from '../range.ts';
import { type Resource, useResource } from '../resource.ts';
import { now } from '../state.ts';
import { chosenTypes, type View } from '../url.ts';
import {
  asksForHidden,
  eventsQuery,
  hasConditions,
  numbersPath,
  partPath,
  type ViewAndChange,
} from '../view.ts';

export interface Measured {
  /** The counts that the line goes with. */
  readonly series: Series;
  /** Null: the numbers of events are shown. */
  readonly curve: Curve | null;
  /** A note about the line, or why there is none. */
  readonly note: string | null;
}

export interface MeasuredOptions {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly series: Series;
  readonly types: readonly EventType[];
}

export function useMeasured(options: MeasuredOptions): Measured {
  const { series, viewed } = options;
  const { measure } = viewed.view;
  const parts = useParts(options);
  const numbers = useNumbers(options);
  const last = useRef<(Measured & { readonly meaning: string }) | null>(null);
  if (measure === null) return { series, curve: null, note: null };
  const meaning = [meaningOf(viewed.view), JSON.stringify(measure)].join(' ');
  const made =
    measure.kind === 'ratio' ? ratioOf(options, measure, parts) : statOf(options, measure, numbers);
  if (made !== null) {
    last.current = { series, ...made, meaning };
    return last.current;
  }
  // While one of two answers is on its way, the line and the counts that belong together stay.
  if (last.current?.meaning === meaning) return last.current;
  return { series, curve: emptyCurve(series), note: null };
}

const meaningOf = (view: View): string =>
  [rangeText(view.range), view.zone, view.compare, eventsQuery(view, { from: null, to: null })].join(' ');

function useParts({ appId, viewed: { view, span } }: MeasuredOptions): Resource<Series> {
  const part = view.measure?.kind === 'ratio' ? view.measure.part : null;
  return useResource<Series>(part === null ? null : partPath(appId, view, span, part), {
    scope: `part ${appId} ${part === null ? '' : partText(part)}`,
    version: now.value,
    meaning: meaningOf(view),
  });
}

interface Numbers {
  readonly shown: Resource<NumberStats>;
  readonly earlier: Resource<NumberStats>;
  readonly isCompared: boolean;
}

function useNumbers({ appId, viewed: { view, span } }: MeasuredOptions): Numbers {
  const of = view.measure?.kind === 'stat' ? view.measure.of : null;
  const compared = comparedSpan(view.compare, view.range, span, view.zone);
  const [path, earlier] = [span, compared].map((one) =>
    of === null || one === null ? null : numbersPath(appId, view, one, of),
  );
  const options = { version: now.value, meaning: meaningOf(view) };
  return {
    shown: useResource<NumberStats>(path ?? null, { ...options, scope: `numbers ${appId} ${of}` }),
    earlier: useResource<NumberStats>(earlier ?? null, {
      ...options,
      scope: `earlier numbers ${appId} ${of}`,
    }),
    isCompared: earlier != null,
  };
}

type Made = Omit<Measured, 'series'>;

/** @returns null while it loads */
function ratioOf(
  { series, viewed: { view }, types }: MeasuredOptions,
  { part }: Measure & { readonly kind: 'ratio' },
  { data, problem, isStale }: Resource<Series>,
): Made | null {
  if (problem !== null) return { curve: null, note: `The ratio is not shown: ${problem.details}` };
  if (data === undefined || isStale || !hasSameBuckets(series, data)) return null;
  const hasFilter = 'filter' in part || hasConditions(view);
  if (hasFilter && data.isFiltered !== true)
    return {
      curve: null,
      note: 'The ratio is not shown: it needs exact counts, and conditions on fields that are not counted are searched for.',
    };
  const nameOf = (typeId: string): string => types.find((type) => type.typeId === typeId)?.name ?? typeId;
  const [only, second] = chosenTypes(view);
  const whole =
    only === undefined ? 'all events' : second === undefined ? nameOf(only) : `${view.types.length} types`;
  const names = {
    part: 'type' in part ? nameOf(part.type) : part.filter,
    whole: hasConditions(view) ? `${whole}, filtered` : whole,
  };
  return { curve: ratioCurve(series, data, asksForHidden(view), names), note: null };
}

/** @returns null while it loads */
function statOf(
  { series, viewed: { view } }: MeasuredOptions,
  { of, stat }: Measure & { readonly kind: 'stat' },
  { shown, earlier, isCompared }: Numbers,
): Made | null {
  if (shown.problem !== null) {
    const { details } = shown.problem;
    // The details of a refusal that names the parameter are about the address.
    const why = details.startsWith('of must be') ? `no event of this range has a number in ${of}` : details;
    return { curve: null, note: `${of} is not shown: ${why.replace(/\.$/, '')}.` };
  }
  const { data } = shown;
  if (data === undefined || shown.isStale || !hasSameBuckets(series, data)) return null;
  // What is compared with may be from before the field was counted: then there is nothing to compare with.
  const before = isCompared && earlier.problem === null ? earlier : null;
  if (before !== null && (before.data === undefined || before.isStale)) return null;
  const name = `${STAT_NAMES[stat]} of ${of}`;
  return {
    curve: statCurve(series, data, before?.data ?? null, { stat, name }),
    note: statNote(view, stat, data),
  };
}

function statNote(view: View, stat: Stat, { leftOut }: NumberStats): string | null {
  const notes = [
    stat.startsWith('p') && 'A percentile is within 1% of the exact one.',
    view.by !== null && `Not broken down by ${view.by}: a statistic is one line.`,
    leftOut.several > 0 && `${leftOut.several} events with several numbers are not in it.`,
    leftOut.unrepresentable > 0 && `${leftOut.unrepresentable} numbers are too long to be in it.`,
  ];
  return notes.filter((note) => note !== false).join(' ') || null;
}

function hasSameBuckets(
  a: { readonly starts: readonly number[]; readonly bucket: string },
  b: { readonly starts: readonly number[]; readonly bucket: string },
): boolean {
  return a.bucket === b.bucket && a.starts.length === b.starts.length && a.starts[0] === b.starts[0];
}
