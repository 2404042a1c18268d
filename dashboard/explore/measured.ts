/** What is drawn of a measure, computed from the answers that it needs. */
import { useRef } from 'preact/hooks';
import type { EventType, NumberStats, Series } from '../../src/api-types/answers.ts';
import { Problem } from '../api.ts';
import { curveDrawing, emptyCurve, ratioCurve, statCurve } from '../charts/curve.ts';
import type { Drawing } from '../charts/drawing.ts';
import type * as Heatmap from '../charts/heatmap.ts';
import { average, counted, localTimes } from '../format.ts';
import {
  HISTOGRAM,
  isQuantile,
  type Measure,
  measureLabel,
  partText,
  type ShownStat,
  singleStat,
} from '../measure.ts';
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
  /** Null: the numbers of events are asked for. */
  readonly drawing: Drawing | null;
  /** `unread`: its numbers cannot be had, and the note says why. */
  readonly state: 'shown' | 'loading' | 'unread';
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
  if (measure === null) return { series, drawing: null, state: 'shown', note: null, missing: null };
  const meaning = [meaningOf(viewed.view), JSON.stringify(measure)].join(' ');
  const made =
    measure.kind === 'ratio' ? ratioOf(options, measure, parts) : statOf(options, measure, numbers);
  if (made !== null) {
    last.current = { series, ...made, meaning };
    return last.current;
  }
  // While one of two answers is on its way, the line and the counts that belong together stay.
  if (last.current?.meaning === meaning) return last.current;
  return { series, drawing: emptyDrawing(options, measure), state: 'loading', note: null, missing: null };
}

/** A measure whose numbers are on their way, or cannot be read. */
const emptyDrawing = (options: MeasuredOptions, measure: Measure): Drawing =>
  curveDrawing(options.series, emptyCurve(options.series, nameOf(options, measure), options.viewed.view.by));

/** What a measure is called, with its parts. */
function nameOf(options: MeasuredOptions, measure: Measure): string {
  if (measure.kind === 'stat') return `${measureLabel(measure.stat)} of ${measure.of}`;
  const { part, whole } = namesOf(options, measure);
  return `${part} ÷ ${whole}`;
}

function namesOf(
  { viewed: { view }, types }: MeasuredOptions,
  { part }: Measure & { readonly kind: 'ratio' },
): { readonly part: string; readonly whole: string } {
  const nameOfType = (typeId: string): string => types.find((type) => type.typeId === typeId)?.name ?? typeId;
  const [only, second] = chosenTypes(view);
  const whole =
    only === undefined
      ? 'all events'
      : second === undefined
        ? nameOfType(only)
        : `${view.types.length} types`;
  return {
    part: 'type' in part ? nameOfType(part.type) : part.filter,
    whole: hasConditions(view) ? `${whole}, filtered` : whole,
  };
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
  return { ...first, data: { ...first.data, compared: { interval: null, starts, all, byKey: {} } } };
}

/** What draws distributions: few charts are, so it is loaded with the first one. */
export const useHeatmap = (isAsked: boolean): Resource<typeof Heatmap> =>
  useResource(isAsked ? 'heatmap' : null, {
    load: () =>
      import('../charts/heatmap.ts').catch(() => {
        throw new Problem('This chart could not be loaded', {
          details: 'the server cannot be reached, or was updated: reload the page.',
        });
      }),
  });

interface Numbers {
  readonly shown: Resource<NumberStats>;
  readonly earlier: Resource<NumberStats>;
  readonly isCompared: boolean;
  readonly heatmap: Resource<typeof Heatmap>;
}

/** Lines that are compared with: those that the chart shows may not be among the busiest ones there. */
const MOST_COMPARED = 200;

function useNumbers({ appId, viewed }: MeasuredOptions): Numbers {
  const { view, span } = viewed;
  const asked = view.measure?.kind === 'stat' ? askedOf(view, view.measure) : null;
  const of = asked && [asked.stat === 'distinct', asked.stat === HISTOGRAM, asked.of].join(' ');
  const compared = comparedSpan(view.compare, view.range, span, now.value, view.zone);
  const before = asked?.stat === 'sum' && view.mode === 'running';
  const path = asked && numbersPath(appId, view, span, { ...asked, before });
  // A distribution is compared with nothing.
  const earlierAsked = asked?.stat === HISTOGRAM ? null : asked && { ...asked, lines: MOST_COMPARED };
  const earlier =
    earlierAsked &&
    (view.compare === 'segment'
      ? numbersPath(appId, secondOf(viewed).view, span, earlierAsked)
      : compared && numbersPath(appId, view, compared, earlierAsked));
  const meaning = meaningOf(view);
  const options = { version: now.value, meaning };
  return {
    shown: useResource<NumberStats>(path ?? null, {
      ...options,
      meaning: `${meaning} ${before}`,
      scope: `numbers ${appId} ${of}`,
    }),
    earlier: useResource<NumberStats>(earlier ?? null, {
      ...options,
      scope: `earlier numbers ${appId} ${of}`,
    }),
    isCompared: earlier != null,
    heatmap: useHeatmap(asked?.stat === HISTOGRAM),
  };
}

/** Chosen by one type alone, a view has no lines of types. */
const askedOf = (view: View, { of, stat }: { readonly of: string; readonly stat: ShownStat }) => ({
  of,
  stat,
  by: stat === HISTOGRAM ? null : view.by,
  isByType: stat !== HISTOGRAM && view.by === null && chosenTypes(view).length !== 1,
});

type Made = Omit<Measured, 'series'>;

/** @returns null while it loads */
function ratioOf(
  options: MeasuredOptions,
  measure: Measure & { readonly kind: 'ratio' },
  { data, problem, isStale }: Resource<Series>,
): Made | null {
  const { series, viewed } = options;
  const { view } = viewed;
  const unread = (why: string): Made => ({
    ...{ drawing: emptyDrawing(options, measure), state: 'unread', missing: null },
    note: `The ratio is not shown: ${why}`,
  });
  if (problem !== null) return unread(problem.details);
  if (data === undefined || isStale || !hasSameBuckets(series, data)) return null;
  const hasFilter = 'filter' in measure.part || hasConditions(view);
  if (hasFilter && data.isFiltered !== true)
    return unread('it needs exact counts, and conditions on fields that are not counted are searched for.');
  const curve = ratioCurve(series, data, asksForHidden(view), namesOf(options, measure));
  return { drawing: curveDrawing(series, curve), state: 'shown', note: null, missing: null };
}

/** @returns null while it loads */
function statOf(
  options: MeasuredOptions,
  measure: Measure & { readonly kind: 'stat' },
  { shown, earlier, isCompared, heatmap }: Numbers,
): Made | null {
  const { series, viewed } = options;
  const { view } = viewed;
  const { of, stat } = measure;
  const problem = shown.problem ?? heatmap.problem;
  if (problem !== null) {
    const { details, declare } = problem;
    // The details of a refusal that names the parameter are about the address.
    const why = details.startsWith('of must be')
      ? `no event of this range has a number in ${of}`
      : firstSentence(details);
    const missing = missingOf(view, { of, stat }, declare !== null);
    const note = `${of} is not shown: ${localTimes(why.replace(/\.$/, ''), view.zone)}.`;
    return { drawing: emptyDrawing(options, measure), state: 'unread', note, missing };
  }
  const { data } = shown;
  if (data === undefined || shown.isStale || !hasSameBuckets(series, data)) return null;
  // What is compared with may be from before the field was counted: then there is nothing to compare with.
  const before = isCompared && earlier.problem === null ? earlier : null;
  if (before !== null && (before.data === undefined || before.isStale)) return null;
  const name = nameOf(options, measure);
  const drawing =
    stat === HISTOGRAM
      ? heatmap.data?.heatDrawing(series, data, name)
      : curveDrawing(
          series,
          statCurve(series, data, before?.data ?? null, {
            ...{ stat, name, mode: view.mode },
            ...{ by: view.by, hidden: view.hidden },
          }),
        );
  if (drawing === undefined) return null;
  return {
    ...{ state: 'shown', drawing },
    note: statNote(
      view,
      stat,
      data,
      isCompared && (before?.data?.overall[singleStat(stat)] ?? null) === null,
    ),
    missing: data.notBy && missingOf(view, { of, stat }, data.notBy.declare !== null),
  };
}

/** Refusals go on with the command that changes it; the page has a button. */
const firstSentence = (details: string): string => details.replace(/ An owner declares it .*$/s, '');

function statNote(
  view: View,
  stat: ShownStat,
  { of, leftOut, overall, lines, notBy, seconds, looked, before }: NumberStats,
  isAlone: boolean,
): string | null {
  const notes = [
    isAlone && 'Not compared: no number of then is known.',
    stat === 'sum' &&
      view.mode === 'running' &&
      before === null &&
      'What was before this range is not counted: the sum begins with 0.',
    stat === HISTOGRAM && overall.count === 0 && `No event of this range has a number in ${of}.`,
    (isQuantile(stat) || stat === HISTOGRAM) && 'A percentile is within 1% of the exact one.',
    stat === 'distinct' &&
      [overall, ...(lines ?? []).map((line) => line.overall)].some(({ exact }) => exact === false) &&
      'Beyond 1,024 different values their number is an estimate, within about 1%.',
    seconds !== null && fromRows(looked ?? 0, seconds),
    view.by !== null &&
      stat !== HISTOGRAM &&
      lines === null &&
      notBy !== null &&
      `Not broken down by ${view.by}: ${localTimes(firstSentence(notBy.details), view.zone)}`,
    leftOut.several > 0 && `Left out: ${counted(leftOut.several, 'event')} with several numbers.`,
    leftOut.unrepresentable > 0 &&
      `Left out: ${counted(leftOut.unrepresentable, 'number')} too long to count.`,
  ];
  return notes.filter((note) => note !== false).join(' ') || null;
}

/** How what counts do not answer was read. */
export const fromRows = (events: number, seconds: number): string =>
  `Read from ${counted(events, 'event')} in ${average(seconds)} s.`;

function hasSameBuckets(
  a: { readonly starts: readonly number[]; readonly bucket: string },
  b: { readonly starts: readonly number[]; readonly bucket: string },
): boolean {
  return a.bucket === b.bucket && a.starts.length === b.starts.length && a.starts[0] === b.starts[0];
}
