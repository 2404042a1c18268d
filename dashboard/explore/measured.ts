/** The line of a measure, computed from the answers that it needs. */
import { useRef } from 'preact/hooks';
import type { EventType, MeasureStat, NumberStats, Series } from '../../src/api-types/answers.ts';
import { type Curve, emptyCurve, ratioCurve, statCurve } from '../charts/curve.ts';
import { average } from '../format.ts';
import { isQuantile, type Measure, measureLabel, partText } from '../measure.ts';
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
import { type Missing, missingOf } from './missing.ts';
import { secondOf } from './segment.ts';

export interface Measured {
  /** The counts that the line goes with. */
  readonly series: Series;
  /** Null: the numbers of events are shown. */
  readonly curve: Curve | null;
  /** A note about the line, or why there is none. */
  readonly note: string | null;
  /** The declaration that would answer; null: nothing is missing. */
  readonly missing: Missing | null;
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
  if (measure === null) return { series, curve: null, note: null, missing: null };
  const meaning = [meaningOf(viewed.view), JSON.stringify(measure)].join(' ');
  const made =
    measure.kind === 'ratio' ? ratioOf(options, measure, parts) : statOf(options, measure, numbers);
  if (made !== null) {
    last.current = { series, ...made, meaning };
    return last.current;
  }
  // While one of two answers is on its way, the line and the counts that belong together stay.
  if (last.current?.meaning === meaning) return last.current;
  return { series, curve: emptyCurve(series), note: null, missing: null };
}

const meaningOf = (view: View): string =>
  [
    ...[rangeText(view.range), view.zone, view.compare, view.by, JSON.stringify(view.other ?? null)],
    eventsQuery(view, { from: null, to: null }),
  ].join(' ');

/** The part of a ratio; with a second segment its part is what is compared with. */
function useParts({ appId, viewed }: MeasuredOptions): Resource<Series> {
  const { view, span } = viewed;
  const part = view.measure?.kind === 'ratio' ? view.measure.part : null;
  const options = { version: now.value, meaning: meaningOf(view) };
  const scope = `part ${appId} ${part === null ? '' : partText(part)}`;
  const first = useResource<Series>(part === null ? null : partPath(appId, view, span, part), {
    ...options,
    scope,
  });
  const isSecond = part !== null && view.compare === 'segment';
  const second = useResource<Series>(isSecond ? partPath(appId, secondOf(viewed).view, span, part) : null, {
    ...options,
    scope: `second ${scope}`,
  });
  if (!isSecond || first.data === undefined || second.data === undefined) return first;
  const { starts, all } = second.data;
  return { ...first, data: { ...first.data, compared: { starts, all, byKey: {} } } };
}

interface Numbers {
  readonly shown: Resource<NumberStats>;
  readonly earlier: Resource<NumberStats>;
  readonly isCompared: boolean;
}

/** Of lines that are compared with: those that the chart shows may not be among the busiest ones there. */
const MOST_COMPARED = 200;

function useNumbers({ appId, viewed }: MeasuredOptions): Numbers {
  const { view, span } = viewed;
  const asked = view.measure?.kind === 'stat' ? askedOf(view, view.measure) : null;
  const of = asked === null ? '' : `${asked.stat === 'distinct'} ${asked.of}`;
  const compared = comparedSpan(view.compare, view.range, span, view.zone);
  const path = asked && numbersPath(appId, view, span, asked);
  const earlierAsked = asked && { ...asked, lines: MOST_COMPARED };
  const earlier =
    earlierAsked &&
    (view.compare === 'segment'
      ? numbersPath(appId, secondOf(viewed).view, span, earlierAsked)
      : compared && numbersPath(appId, view, compared, earlierAsked));
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

/** Chosen by one type alone, a view has no lines of types. */
const askedOf = (view: View, { of, stat }: { readonly of: string; readonly stat: MeasureStat }) => ({
  of,
  stat,
  by: view.by,
  isByType: view.by === null && chosenTypes(view).length !== 1,
});

type Made = Omit<Measured, 'series'>;

/** @returns null while it loads */
function ratioOf(
  { series, viewed: { view }, types }: MeasuredOptions,
  { part }: Measure & { readonly kind: 'ratio' },
  { data, problem, isStale }: Resource<Series>,
): Made | null {
  if (problem !== null)
    return { curve: null, note: `The ratio is not shown: ${problem.details}`, missing: null };
  if (data === undefined || isStale || !hasSameBuckets(series, data)) return null;
  const hasFilter = 'filter' in part || hasConditions(view);
  if (hasFilter && data.isFiltered !== true)
    return {
      curve: null,
      note: 'The ratio is not shown: it needs exact counts, and conditions on fields that are not counted are searched for.',
      missing: null,
    };
  const nameOf = (typeId: string): string => types.find((type) => type.typeId === typeId)?.name ?? typeId;
  const [only, second] = chosenTypes(view);
  const whole =
    only === undefined ? 'all events' : second === undefined ? nameOf(only) : `${view.types.length} types`;
  const names = {
    part: 'type' in part ? nameOf(part.type) : part.filter,
    whole: hasConditions(view) ? `${whole}, filtered` : whole,
  };
  return { curve: ratioCurve(series, data, asksForHidden(view), names), note: null, missing: null };
}

/** @returns null while it loads */
function statOf(
  { series, viewed: { view } }: MeasuredOptions,
  { of, stat }: Measure & { readonly kind: 'stat' },
  { shown, earlier, isCompared }: Numbers,
): Made | null {
  if (shown.problem !== null) {
    const { details, declare } = shown.problem;
    // The details of a refusal that names the parameter are about the address.
    const why = details.startsWith('of must be')
      ? `no event of this range has a number in ${of}`
      : firstSentence(details);
    const missing = missingOf(view, { of, stat }, declare !== null);
    return { curve: null, note: `${of} is not shown: ${why.replace(/\.$/, '')}.`, missing };
  }
  const { data } = shown;
  if (data === undefined || shown.isStale || !hasSameBuckets(series, data)) return null;
  // What is compared with may be from before the field was counted: then there is nothing to compare with.
  const before = isCompared && earlier.problem === null ? earlier : null;
  if (before !== null && (before.data === undefined || before.isStale)) return null;
  const name = `${measureLabel(stat)} of ${of}`;
  return {
    curve: statCurve(series, data, before?.data ?? null, { stat, name, by: view.by, hidden: view.hidden }),
    note: statNote(view, stat, data),
    missing: data.notBy && missingOf(view, { of, stat }, data.notBy.declare !== null),
  };
}

/** Refusals go on with the command that changes it; the page has a button. */
const firstSentence = (details: string): string => details.replace(/ An owner declares it .*$/s, '');

function statNote(
  view: View,
  stat: MeasureStat,
  { leftOut, overall, lines, notBy, seconds }: NumberStats,
): string | null {
  const notes = [
    isQuantile(stat) && 'A percentile is within 1% of the exact one.',
    stat === 'distinct' &&
      [overall, ...(lines ?? []).map((line) => line.overall)].some(({ exact }) => exact === false) &&
      'Beyond 1,024 different values their number is an estimate, within about 1%.',
    seconds !== null && fromRows(seconds),
    view.by !== null &&
      lines === null &&
      notBy !== null &&
      `Not broken down by ${view.by}: ${firstSentence(notBy.details)}`,
    leftOut.several > 0 && `${leftOut.several} events with several numbers are not in it.`,
    leftOut.unrepresentable > 0 && `${leftOut.unrepresentable} numbers are too long to be in it.`,
  ];
  return notes.filter((note) => note !== false).join(' ') || null;
}

/** How what counts do not answer was read. */
export const fromRows = (seconds: number): string =>
  `From rows, in ${average(seconds)} s: counts do not answer this.`;

function hasSameBuckets(
  a: { readonly starts: readonly number[]; readonly bucket: string },
  b: { readonly starts: readonly number[]; readonly bucket: string },
): boolean {
  return a.bucket === b.bucket && a.starts.length === b.starts.length && a.starts[0] === b.starts[0];
}
