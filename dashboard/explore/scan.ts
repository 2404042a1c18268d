/**
 * The chart of what counts do not answer: several conditions, a text, a field that is not counted. The server reads the rows from
 * the newest on, part by part, and the sum of the parts is the chart. Few events are read to their end without being asked.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ScanPart, Series } from '../../src/api-types/answers.ts';
import { type SearchedBy, searchedByBoth } from '../../src/base/searched-by.ts';
import { sum } from '../../src/base/sum.ts';
import { asProblem, call, type Problem } from '../api.ts';
import { allOf, countedPart } from '../charts/series-data.ts';
import { comparedSpan, rangeText, type Span } from '../range.ts';
import { type Resource, useAgain } from '../resource.ts';
import { now } from '../state.ts';
import { chosenTypes, type View } from '../url.ts';
import {
  asksForHidden,
  hasConditions,
  picks,
  scanPath,
  scopeQuery,
  TOP_LINES,
  type ViewAndChange,
} from '../view.ts';
import { type EventPages, searchedUntil } from './event-pages.ts';

/** A scan that is not asked for goes on until it has read so many events and has taken so long. */
const MOST_EVENTS = 1_000_000;
const MOST_MS = 5_000;
/** What is compared with is read beside no more events, and no longer. */
const MOST_COMPARED = 100_000;
const MOST_COMPARED_MS = 4_000;
/** Lines without events that had some in what is compared with, beside those that have. */
const MOST_SILENT = 5;
/** Values beyond which a field names single events: nothing can be broken down by it. */
const MOST_VALUES = 2_000;
/** While events arrive, a scan rests so many times as long as it took. */
const REST = 10;

/** What a scan has found so far. */
export interface Found {
  readonly counts: readonly number[];
  readonly total: number;
  /** Everything newer has been looked at, in milliseconds since the Unix epoch. */
  readonly until: number;
}

export interface Scan {
  /** Whether the view needs one. */
  readonly isWanted: boolean;
  /** The chart, once everything has been read; null until then. */
  readonly series: Series | null;
  /** The chart with every line of its own. */
  readonly all: Series | null;
  /** Until then, of a view with conditions. */
  readonly found: Found | null;
  readonly isRunning: boolean;
  /** Whether it waits to be asked to go on. */
  readonly isStopped: boolean;
  readonly problem: Problem | null;
  /** Why the chart is not broken down by the field that is asked for; null where it is, or may yet be. */
  readonly notBy: string | null;
  readonly goOn: () => void;
  readonly stop: () => void;
}

interface SumLine {
  readonly name: string;
  readonly number: number | null;
  readonly counts: number[];
}

/** The parts of a scan, added up. */
interface Sums {
  readonly frame: ScanPart;
  readonly lines: ReadonlyMap<string, SumLine>;
  readonly rest: readonly number[];
  readonly hidden: readonly number[];
  readonly looked: number;
  readonly searchedBy: SearchedBy | null;
  readonly hasTooMany: boolean;
}

interface State {
  readonly meaning: string;
  readonly sums: Sums | null;
  readonly series: Series | null;
  readonly isRunning: boolean;
  readonly isStopped: boolean;
  readonly problem: Problem | null;
}

const NOTHING: State = {
  meaning: '',
  sums: null,
  series: null,
  isRunning: false,
  isStopped: false,
  problem: null,
};

/** @param list the events of the same view, which is searched too; null: there is none, or it is of a part */
export function useScan(
  appId: string,
  { view, span }: ViewAndChange,
  base: Resource<Series>,
  list: EventPages | null,
): Scan {
  const counted = base.isStale ? undefined : base.data;
  const isWanted =
    counted !== undefined &&
    ((hasConditions(view) && counted.isFiltered !== true) ||
      (view.by !== null && counted.by === null && view.measure?.kind !== 'stat'));
  const meaning = meaningOf(view);
  const [state, setState] = useState(NOTHING);
  const aborter = useRef<AbortController | null>(null);
  /** What the reader wants to have to its end, and what not at all. */
  const asked = useRef('');
  const refused = useRef('');
  /** The view and the time that were last asked for, and when they may be asked for again. */
  const scanned = useRef('');
  const rest = useRef({ meaning: '', until: 0 });
  const version = `${meaning} ${now.value} ${picks.value}`;
  const stop = (): void => {
    aborter.current?.abort();
    refused.current = meaning;
    setState((known) => ({ ...known, meaning, isRunning: false, isStopped: true }));
  };
  const goOn = (): void => {
    asked.current = meaning;
    refused.current = '';
    if (isWanted) start(state.meaning === meaning ? state.sums : null);
  };
  const start = (from: Sums | null): void => {
    aborter.current?.abort();
    const own = new AbortController();
    const { signal } = own;
    aborter.current = own;
    const tell = (changes: Partial<State>): void => {
      if (signal.aborted) return;
      setState((known) => ({ ...(known.meaning === meaning ? known : NOTHING), meaning, ...changes }));
    };
    scanned.current = version;
    const begun = performance.now();
    const mayGoOn = ({ looked }: Sums): boolean =>
      asked.current === meaning || looked < MOST_EVENTS || performance.now() - begun < MOST_MS;
    tell({ isRunning: true, isStopped: false, problem: null });
    void (async () => {
      const ask = (scope: Span, sums: Sums | null, width = sums?.frame.bucket): Promise<ScanPart> =>
        call('GET', scanPath(appId, view, { scope, width, cursor: sums?.frame.next ?? null }), { signal });
      let sums = from;
      do {
        const scope: Span = sums === null ? span : spanOf(sums.frame);
        sums = added(sums, await ask(scope, sums));
        const isOver = sums.frame.next === null;
        if (!isOver) tell({ sums, ...(!mayGoOn(sums) && { isRunning: false, isStopped: true }) });
        if (!isOver && !mayGoOn(sums)) return;
      } while (sums.frame.next !== null);
      rest.current = { meaning, until: performance.now() + REST * (performance.now() - begun) };
      const seconds = (performance.now() - begun) / 1_000;
      const { looked, searchedBy } = sums;
      const series = { ...seriesOf(sums, view), seconds, looked, searchedBy };
      tell({ sums, series, isRunning: false });
      const before = comparedSpan(view.compare, view.range, span, now.value, view.zone);
      if (before === null || counted?.compared == null || sums.looked > MOST_COMPARED) return;
      let earlier: Sums | null = null;
      do earlier = added(earlier, await ask(before, earlier, sums.frame.bucket));
      while (earlier.frame.next !== null && performance.now() - begun < MOST_COMPARED_MS);
      if (earlier.frame.next === null) tell({ series: compared(series, view, sums, earlier) });
    })().catch((error: unknown) => {
      tell({ problem: asProblem(error, 'The search failed'), isRunning: false, isStopped: true });
    });
  };
  useEffect(() => {
    if (!isWanted) return;
    return () => {
      aborter.current?.abort();
      setState(NOTHING);
    };
  }, [isWanted && meaning]);
  useEffect(() => {
    if (!isWanted || refused.current === meaning) return;
    // One that waits for the reader does not begin again by itself, nor one that is under way.
    const isSame = state.meaning === meaning;
    if (isSame && (state.isStopped || state.isRunning || scanned.current === version)) return;
    const isRested = !isSame || rest.current.meaning !== meaning;
    const timer = setTimeout(() => start(null), isRested ? 0 : rest.current.until - performance.now());
    return () => clearTimeout(timer);
  }, [isWanted && meaning, version, state.isRunning]);
  const own = isWanted && state.meaning === meaning ? state : NOTHING;
  useAgain(own.problem, () => goOn());
  // What the list has found to its end is not asked for again whether it shall be found.
  const isListed = isWanted && hasConditions(view) && list?.complete === true;
  useEffect(() => {
    if (isListed && own.isStopped && own.problem === null && refused.current !== meaning) goOn();
  }, [isListed, own.isStopped]);
  const { sums, problem } = own;
  const notBy = notBrokenDown(sums, view);
  // A chart by a field that no event has shows no more than one of all events.
  const series = notBy === null || hasConditions(view) ? own.series : null;
  return {
    isWanted,
    series,
    all: series === null || sums === null ? null : seriesOf(sums, view, Infinity),
    found:
      isWanted && own.series === null && hasConditions(view)
        ? isListed
          ? foundInList(list, counted)
          : foundIn(sums, counted, view)
        : null,
    isRunning: isWanted && (own.isRunning || own === NOTHING) && refused.current !== meaning,
    isStopped: own.isStopped || refused.current === meaning,
    problem,
    notBy,
    goOn,
    stop,
  };
}

/** The events of a list that has all of them. */
function foundInList({ pages }: EventPages, { starts, interval }: Series): Found {
  const counts = starts.map(() => 0);
  const events = pages.flatMap((page) => page.events);
  for (const { createdAt } of events) {
    const at = Date.parse(createdAt);
    const next = starts.findIndex((start) => start > at);
    const index = next < 0 ? starts.length - 1 : next - 1;
    counts[index] = (counts[index] ?? 0) + 1;
  }
  return { counts, total: events.length, until: interval.from };
}

const meaningOf = (view: View): string =>
  [
    rangeText(view.range),
    view.zone,
    scopeQuery(view, { from: null, to: null }),
    view.by,
    view.detail,
    view.width,
    view.compare,
  ].join(' ');

const spanOf = ({ interval }: ScanPart): Span => ({ from: interval.from, to: interval.until });

function added(sums: Sums | null, part: ScanPart): Sums {
  const none = part.starts.map(() => 0);
  const lines = new Map(sums?.lines);
  for (const { key, name, number, ...column } of part.lines) {
    const known = lines.get(key);
    lines.set(key, { name, number, counts: withColumn(known?.counts ?? none, column) });
  }
  return {
    frame: part,
    lines,
    rest: withColumn(sums?.rest ?? none, part.rest),
    hidden: withColumn(sums?.hidden ?? none, part.hidden ?? { at: [], counts: [] }),
    looked: (sums?.looked ?? 0) + part.looked,
    searchedBy: searchedByAll(sums?.searchedBy ?? null, part.searchedBy),
    hasTooMany: sums?.hasTooMany === true || part.hasTooMany || lines.size > MOST_VALUES,
  };
}

const searchedByAll = (before: SearchedBy | null, next: SearchedBy | null): SearchedBy | null =>
  next === null ? before : searchedByBoth(before, next);

function withColumn(counts: readonly number[], { at, counts: more }: ScanPart['rest']): number[] {
  const sums = [...counts];
  at.forEach((index, place) => {
    sums[index] = (sums[index] ?? 0) + (more[place] ?? 0);
  });
  return sums;
}

/** Columns as one. */
const compact = (columns: readonly (readonly number[])[], like: readonly number[]): number[] =>
  like.map((_, index) => sum(columns.map((column) => column[index] ?? 0)));

/** The sums in the form in which the server answers what it counts. */
function seriesOf(
  { frame, lines, rest, hidden, hasTooMany }: Sums,
  view: View,
  lineCount = TOP_LINES,
): Series {
  const { bucket, timezone, starts, end, interval, countsOnlyBefore } = frame;
  const isByValue = view.by !== null;
  const sorted = [...lines]
    .map(([key, line]) => ({ key, ...line, total: sum(line.counts) }))
    .sort((a, b) => b.total - a.total);
  // Types that are chosen are all shown, as they are of counts.
  const most =
    isByValue && hasTooMany ? 0 : !isByValue && chosenTypes(view).length > 0 ? sorted.length : lineCount;
  const others = [rest, ...sorted.slice(most).map(({ counts }) => counts)];
  const other = compact(others, starts);
  return {
    ...{ bucket, timezone, starts, end, interval, countsOnlyBefore },
    by: view.by,
    lines: sorted.slice(0, most).map((line, place) => ({ ...line, number: line.number ?? place })),
    all: compact([...others, ...sorted.slice(0, most).map(({ counts }) => counts)], starts),
    other: other.some((count) => count > 0) ? other : null,
    before: { all: 0, byKey: {} },
    compared: null,
    hidden: frame.hidden && { typeIds: frame.hidden.typeIds, counts: hidden, before: 0, compared: null },
    isFiltered: hasConditions(view),
    isScanned: true,
  };
}

function compared(series: Series, view: View, { frame, lines: now }: Sums, before: Sums): Series {
  const { frame: earlier, lines, rest, hidden } = before;
  const none = series.starts.map(() => 0);
  const shown = [
    ...series.lines,
    // What had events then, and has none now.
    ...seriesOf({ ...before, lines: new Map([...lines].filter(([key]) => !now.has(key))) }, view)
      .lines.slice(0, Math.max(MOST_SILENT, TOP_LINES - series.lines.length))
      .map((line) => ({ ...line, counts: none, total: 0 })),
  ];
  return {
    ...series,
    lines: shown,
    compared: {
      interval: earlier.interval,
      starts: earlier.starts,
      all: compact([rest, ...[...lines.values()].map(({ counts }) => counts)], earlier.starts),
      byKey: Object.fromEntries(
        shown.map(({ key }) => [key, lines.get(key)?.counts ?? earlier.starts.map(() => 0)]),
      ),
    },
    hidden: series.hidden == null || frame.hidden === null ? null : { ...series.hidden, compared: hidden },
  };
}

function foundIn(sums: Sums | null, counted: Series, view: View): Found {
  if (sums === null) return { counts: counted.starts.map(() => 0), total: 0, until: counted.interval.until };
  const columns = [sums.rest, ...[...sums.lines.values()].map((line) => line.counts)];
  const counts = compact(asksForHidden(view) ? [...columns, sums.hidden] : columns, sums.frame.starts);
  return { counts, total: sum(counts), until: sums.frame.searchedUntil };
}

function notBrokenDown(sums: Sums | null, { by }: View): string | null {
  if (by === null || sums === null) return null;
  if (sums.hasTooMany)
    return `Not broken down by ${by}: it has more than ${MOST_VALUES.toLocaleString('en-US')} values.`;
  if (sums.frame.next !== null || sums.lines.size > 0) return null;
  return `Not broken down by ${by}: no event ${sums.rest.some((count) => count > 0) ? 'of this range has this field, or has one value in it' : 'is in this range'}.`;
}

/** How many events a search has to look at, and how many it has: about, by the counts of the chart. `until` is null while it has looked at none. */
export function searchedOf(
  series: Series,
  list: EventPages,
  { found, withHidden }: { readonly found: Found | null; readonly withHidden: boolean },
): { readonly looked: number; readonly all: number; readonly until: number | null } {
  const { from, until } = series.interval;
  const [first, last] = [Math.max(list.scope.from ?? from, from), Math.min(list.scope.to ?? until, until)];
  const searched = found?.until ?? searchedUntil(list);
  const between = (start: number): number =>
    allOf(series, withHidden).all.reduce((total, count, index) => {
      const part = countedPart(series, index);
      const shared = Math.min(part.to, last) - Math.max(part.from, start);
      // A bucket that lies partly in between has the same part of its events there.
      return shared <= 0 ? total : total + (count * shared) / (part.to - part.from);
    }, 0);
  const hasBegun = searched !== null && searched < last;
  return { looked: between(searched ?? last), all: between(first), until: hasBegun ? searched : null };
}
