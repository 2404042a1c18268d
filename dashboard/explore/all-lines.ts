/** Every event type, or every value of the field that the chart is by, of the range: a table to sort, search and filter by. */
import type { VNode } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { NumberStats, Series } from '../../src/api-types/answers.ts';
import { measuredIn } from '../charts/curve.ts';
import { linesOf, OTHER } from '../charts/series-data.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { Dialog } from '../components/dialog.ts';
import { matches, Search, useRows } from '../components/search.ts';
import { rowButton } from '../components/table.ts';
import { Waiting } from '../components/waiting.ts';
import { change, changeText, count, counted, difference, share as shareText } from '../format.ts';
import { html } from '../html.ts';
import { measureLabel, singleStat } from '../measure.ts';
import { comparedSpan } from '../range.ts';
import { type Resource, useResource } from '../resource.ts';
import { now } from '../state.ts';
import { numbersPath, seriesPath, type ViewAndChange } from '../view.ts';
import { comparedText } from './figures.ts';
import type { Scan } from './scan.ts';
import { secondOf } from './segment.ts';

/** As many as the server gives at once. */
const MOST_LINES = 1_000;
/** Rows that are shown before "more". */
const ROWS = 100;
/** About as many bars has a row. */
const FEW_BARS = { width: null, detail: 24 };

export interface AllLinesProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  /** What counts do not answer: its lines are then these. */
  readonly scan: Scan;
  /** What counts do not answer for the second of two segments. */
  readonly second: Scan;
  /** The path of the field; null: event types. */
  readonly by: string | null;
  /** Keys of the lines that the view is filtered by. */
  readonly picked: readonly string[];
  /** The view without what `picked` stands for. */
  readonly without: (key: string | null) => Partial<ViewAndChange['view']>;
  readonly onPick: (key: string, isExcluded: boolean) => void;
  readonly onClose: () => void;
}

/** A line as the table has it. */
interface Entry {
  readonly key: string;
  readonly name: string;
  /** What is measured; null: it has none. */
  readonly value: number | null;
  readonly events: number;
  readonly share: number;
  /** The value of what is compared with; null: not known. */
  readonly before: number | null;
  readonly bars: readonly number[];
}

interface Entries {
  /** Name of the measure. */
  readonly label: string;
  readonly entries: readonly Entry[];
  /** Events of lines that have no entry. */
  readonly rest: number;
  readonly isCompared: boolean;
  /** What with. */
  readonly comparedTo: string;
  readonly text: (value: number) => string;
}

type SortKey = 'name' | 'value' | 'events' | 'share' | 'difference' | 'change';

export function AllLines(props: AllLinesProps): VNode {
  const { by, viewed } = props;
  const { measure } = viewed.view;
  const isCounts = measure?.kind !== 'stat';
  const counts = useCounts(props, isCounts);
  const stats = useStats(props, !isCounts);
  const { resource, found } = isCounts ? counts : stats;
  const what = by === null ? 'event types' : `values of ${by}`;
  return html`<${Dialog} sheet title=${`All ${what}`} onClose=${props.onClose}>
    <${EntryTable} ...${props} what=${what} isCounts=${isCounts} found=${found} waiting=${html`<${Waiting} for=${resource} lines=${8} class="rows" />`} />
  <//>`;
}

interface Asked {
  readonly resource: Pick<Resource<unknown>, 'data' | 'problem' | 'loading' | 'isStale' | 'reload'>;
  /** Null until it is known. */
  readonly found: Entries | null;
}

function useCounts(
  { appId, viewed, scan, second: scanned, by, without }: AllLinesProps,
  isAsked: boolean,
): Asked {
  const { view, span } = viewed;
  const asked = { ...view, ...without(null), by, ...FEW_BARS };
  const path = seriesPath(appId, asked, span, MOST_LINES);
  const counts = useResource<Series>(scan.isWanted || !isAsked ? null : path, { scope: `all ${path}` });
  const second = secondOf({ ...viewed, view: asked });
  const secondPath = seriesPath(appId, second.view, span, MOST_LINES);
  const isSecond = isAsked && view.compare === 'segment';
  const counted = useResource<Series>(isSecond && !scanned.isWanted ? secondPath : null, {
    scope: `all ${secondPath}`,
  });
  const other = scanned.isWanted ? (scanned.all ?? undefined) : counted.data;
  const resource = scan.isWanted ? { ...counts, data: scan.all ?? undefined, problem: scan.problem } : counts;
  const { data } = resource;
  const found = useMemo((): Entries | null => {
    if (data === undefined) return null;
    const lines = linesOf({ ...data, hidden: null }, { hidden: [] });
    const total = lines.reduce((sum, line) => sum + line.total, 0);
    const others = new Map(other?.lines.map((line) => [line.key, line.total]));
    return {
      label: 'Events',
      entries: lines
        .filter(({ key }) => key !== OTHER)
        .map((line) => ({
          ...{ key: line.key, name: line.name, value: line.total, events: line.total, bars: line.counts },
          share: total === 0 ? 0 : line.total / total,
          before: isSecond
            ? other === undefined
              ? null
              : (others.get(line.key) ?? 0)
            : (line.compared?.total ?? null),
        })),
      rest: lines.find(({ key }) => key === OTHER)?.total ?? 0,
      isCompared: isSecond || data.compared != null,
      comparedTo: comparedText(view.compare, data),
      text: count,
    };
  }, [data, other, isSecond]);
  return { resource, found };
}

function useStats({ appId, viewed, by, without }: AllLinesProps, isAsked: boolean): Asked {
  const { view, span } = viewed;
  const { measure } = view;
  const asked = { ...view, ...without(null), ...FEW_BARS };
  const { of, stat: shown } = measure?.kind === 'stat' ? measure : ({ of: '', stat: 'sum' } as const);
  const stat = singleStat(shown);
  const numbers = { of, stat, by, isByType: by === null, lines: MOST_LINES };
  const path = numbersPath(appId, asked, span, numbers);
  const compared = comparedSpan(view.compare, view.range, span, now.value, view.zone);
  const earlierPath =
    view.compare === 'segment'
      ? numbersPath(appId, secondOf({ ...viewed, view: asked }).view, span, numbers)
      : compared && numbersPath(appId, asked, compared, numbers);
  const resource = useResource<NumberStats>(isAsked ? path : null, { scope: `all ${path}` });
  const earlier = useResource<NumberStats>(isAsked ? earlierPath : null, { scope: `all ${earlierPath}` });
  const { data } = resource;
  const found = useMemo((): Entries | null => {
    if (data === undefined) return null;
    const before = new Map(earlier.data?.lines?.map(({ key, overall }) => [key, overall[stat] ?? null]));
    const [all, isSum] = stat === 'sum' ? [data.overall.sum ?? 0, true] : [data.overall.count, false];
    return {
      label: measureLabel(stat),
      entries: (data.lines ?? []).map(({ key, name, stats, overall }) => {
        const own = isSum ? (overall.sum ?? 0) : overall.count;
        return {
          ...{ key, name, value: overall[stat] ?? null, events: overall.count },
          share: all === 0 ? 0 : own / all,
          before: before.get(key) ?? null,
          bars: (stats[stat] ?? []).map((value) => Math.max(0, value ?? 0)),
        };
      }),
      rest: data.rest?.overall.count ?? 0,
      isCompared: earlier.data !== undefined,
      comparedTo: comparedText(view.compare, {
        timezone: data.timezone,
        compared: earlier.data ?? null,
      }),
      text: measuredIn(stat === 'distinct' ? null : data.format),
    };
  }, [data, earlier.data, stat]);
  return { resource, found };
}

interface EntryTableProps extends AllLinesProps {
  readonly what: string;
  /** Whether the measure is the number of events. */
  readonly isCounts: boolean;
  readonly found: Entries | null;
  readonly waiting: VNode;
}

function EntryTable({ by, picked, onPick, onClose, what, isCounts, found, waiting }: EntryTableProps): VNode {
  const [wanted, setWanted] = useState('');
  const [rows, more] = useRows(ROWS);
  const [order, setOrder] = useState<{ readonly key: SortKey; readonly down: boolean }>({
    key: 'value',
    down: true,
  });
  const entries = inOrder(
    (found?.entries ?? []).filter(({ name }) => matches(wanted, name)),
    order,
  );
  const pick = (key: string, isExcluded: boolean) => (): void => {
    onPick(key, isExcluded);
    onClose();
  };
  const text = found?.text ?? count;
  const isCompared = found?.isCompared === true;
  const since = `Since ${found?.comparedTo}`;
  const columns: readonly (readonly [key: SortKey, label: string, isShown: boolean, title?: string])[] = [
    ['name', 'Name', true],
    ['value', found?.label ?? '', true],
    ['events', 'Events', !isCounts],
    ['share', 'Share', true],
    ['difference', 'Difference', isCompared, since],
    ['change', 'Change', isCompared, since],
  ];
  const sort = (key: SortKey) => (): void =>
    setOrder({ key, down: order.key === key ? !order.down : key !== 'name' });
  return html`<form class="all-lines-search" onSubmit=${(event: Event) => event.preventDefault()}><${Search} label="Find by name" onText=${setWanted} /></form>
    ${waiting}
    ${
      entries.length > 0 &&
      html`<table class="all-lines" aria-label=${`All ${what}`}>
      <thead><tr>
        ${columns
          .filter(([, , isShown]) => isShown)
          .map(
            ([
              key,
              label,
              ,
              title,
            ]) => html`<th key=${key} scope="col" aria-sort=${order.key === key ? (order.down ? 'descending' : 'ascending') : undefined} title=${title}>
            <button class="all-lines-sort" onClick=${sort(key)}>${label}<span aria-hidden="true">${order.key === key && (order.down ? ' ↓' : ' ↑')}</span></button>
          </th>`,
          )}
        <th scope="col" class="all-lines-bars">In this range</th>
        <th scope="col"><span class="sr-only">Leave out</span></th>
      </tr></thead>
      <tbody>${entries.slice(0, rows).map(
        ({ key, name, value, events, share, before, bars }) => html`<tr key=${key}>
          <th scope="row"><button class="all-lines-name" title=${`Only ${name}`} aria-pressed=${picked.includes(key)} onClick=${pick(key, false)}>${name}</button></th>
          <td>${value === null ? '–' : text(value)}</td>
          ${!isCounts && html`<td>${count(events)}</td>`}
          <td>${shareText(share, 1)}</td>
          ${
            isCompared &&
            html`<td title=${before === null ? undefined : `Compared: ${text(before)}`}>${before !== null && value !== null && difference(value - before, text)}</td>
            <td>${before !== null && value !== null && (isCounts ? changeText(value, before) : change(value, before))}</td>`
          }
          <td class="all-lines-bars"><${Sparkline} counts=${bars} label=${name} /></td>
          <td>${rowButton('Leave out', name, pick(key, true))}</td>
        </tr>`,
      )}</tbody>
    </table>`
    }
    ${more(entries.length)}
    ${found && entries.length === 0 && html`<p class="hint" role="status">${found.rest > 0 ? `None of the ${count(found.entries.length)} ${what} with the most events` : 'No name'} contains this text.</p>`}
    ${found !== null && found.rest > 0 && html`<p class="hint">${counted(found.rest, 'event')} ${by === null ? 'of other types' : `with other values of ${by}, or none`}.</p>`}`;
}

const names = new Intl.Collator('en', { numeric: true });

/** How many times as much a line has as before; those that are new come first. */
const growth = ({ value, before }: Entry): number =>
  before === null || value === null || value === before ? 1 : value / before;

const SORTED: Record<Exclude<SortKey, 'name'>, (entry: Entry) => number> = {
  value: ({ value }) => value ?? -Infinity,
  events: ({ events }) => events,
  share: ({ share }) => share,
  difference: ({ value, before }) => (before === null || value === null ? 0 : value - before),
  change: growth,
};

function inOrder(
  entries: readonly Entry[],
  { key, down }: { readonly key: SortKey; readonly down: boolean },
): Entry[] {
  const sign = down ? -1 : 1;
  // Infinity less itself is no number.
  const compare = (a: number, b: number): number => (a === b ? 0 : a - b);
  return [...entries].sort((a, b) =>
    key === 'name'
      ? sign * names.compare(a.name, b.name)
      : sign * compare(SORTED[key](a), SORTED[key](b)) ||
        sign * compare(a.events, b.events) ||
        names.compare(a.name, b.name),
  );
}

/** How many lines there are in all, such as `1,000+`, asked for once a view; null until that is known. */
export function useLineCount(appId: string, viewed: ViewAndChange, series: Series): string | null {
  const { view, span } = viewed;
  const isAsked = series.other !== null && series.isScanned !== true;
  const path = seriesPath(appId, { ...view, by: series.by, width: null, detail: 1 }, span, MOST_LINES);
  // A live chart asks again each few seconds: how many values there are hardly changes.
  const asked = useMemo(() => path, [isAsked, path.replace(/(from|to)=[^&]*&/g, '')]);
  const { data } = useResource<Series>(isAsked ? asked : null, { scope: `count ${asked}` });
  if (!isAsked) return series.isScanned === true ? null : count(series.lines.length);
  if (data === undefined) return null;
  // Events without a value are others too.
  return `${count(data.lines.length)}${data.lines.length >= MOST_LINES && data.other !== null ? '+' : ''}`;
}
