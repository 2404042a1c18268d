/** Every event type, or every value of the field that the chart is by, of the range: a table to sort, search and filter by. */
import type { VNode } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Series } from '../../src/api-types/answers.ts';
import { changeText, share } from '../charts/legend.ts';
import { type Line, linesOf, OTHER } from '../charts/series-data.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { Dialog } from '../components/dialog.ts';
import { matches, Search } from '../components/search.ts';
import { Waiting } from '../components/waiting.ts';
import { count, counted } from '../format.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import { seriesPath, type ViewAndChange } from '../view.ts';
import { COMPARED } from './figures.ts';
import type { Scan } from './scan.ts';

/** As many as the server gives at once. */
const MOST_LINES = 1_000;
/** Rows that are shown before "more". */
const ROWS = 100;
/** About as many bars has a row. */
const BARS = 24;

export interface AllLinesProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  /** What counts do not answer: its lines are then these. */
  readonly scan: Scan;
  /** The path of the field; null: event types. */
  readonly by: string | null;
  /** Keys of the lines that the view is filtered by. */
  readonly picked: readonly string[];
  /** The view without what `picked` stands for. */
  readonly without: (key: string | null) => Partial<ViewAndChange['view']>;
  readonly onPick: (key: string, isExcluded: boolean) => void;
  readonly onClose: () => void;
}

type SortKey = 'name' | 'count' | 'share' | 'change';

const COLUMNS: readonly (readonly [key: SortKey, label: string])[] = [
  ['name', 'Name'],
  ['count', 'Events'],
  ['share', 'Share'],
  ['change', 'Change'],
];

export function AllLines({
  appId,
  viewed,
  scan,
  by,
  picked,
  without,
  onPick,
  onClose,
}: AllLinesProps): VNode {
  const { view, span } = viewed;
  const [wanted, setWanted] = useState('');
  const [rows, setRows] = useState(ROWS);
  const [order, setOrder] = useState<{ readonly key: SortKey; readonly down: boolean }>({
    key: 'count',
    down: true,
  });
  const path = seriesPath(appId, { ...view, ...without(null), by, detail: BARS }, span, MOST_LINES);
  const counts = useResource<Series>(scan.isWanted ? null : path, { scope: `all ${path}` });
  const all = scan.isWanted ? { ...counts, data: scan.all ?? undefined, problem: scan.problem } : counts;
  const { data } = all;
  const what = by === null ? 'event types' : `values of ${by}`;
  const lines = useMemo(
    () => (data === undefined ? [] : linesOf({ ...data, hidden: null }, { hidden: [] })),
    [data],
  );
  const named = lines.filter(({ key }) => key !== OTHER);
  const total = lines.reduce((sum, line) => sum + line.total, 0);
  const rest = lines.find(({ key }) => key === OTHER)?.total ?? 0;
  const found = inOrder(
    named.filter(({ name }) => matches(wanted, name)),
    order,
  );
  const isCompared = data?.compared != null;
  const pick = (key: string, isExcluded: boolean) => (): void => {
    onPick(key, isExcluded);
    onClose();
  };
  return html`<${Dialog} sheet title=${`All ${what}`} onClose=${onClose}>
    <form class="all-lines-search" onSubmit=${(event: Event) => event.preventDefault()}><${Search} label="Find by name" onText=${setWanted} /></form>
    <${Waiting} for=${all} lines=${8} class="rows" />
    ${
      found.length > 0 &&
      html`<table class="all-lines" aria-label=${`All ${what}`}>
      <thead><tr>
        ${COLUMNS.filter(([key]) => key !== 'change' || isCompared).map(
          ([
            key,
            label,
          ]) => html`<th key=${key} scope="col" aria-sort=${order.key === key ? (order.down ? 'descending' : 'ascending') : undefined} title=${key === 'change' ? `Since ${COMPARED[view.compare]}` : undefined}>
            <button type="button" class="all-lines-sort" onClick=${() => setOrder({ key, down: order.key === key ? !order.down : key !== 'name' })}>${label}<span aria-hidden="true">${order.key === key && (order.down ? ' ↓' : ' ↑')}</span></button>
          </th>`,
        )}
        <th scope="col" class="all-lines-bars">In this range</th>
        <th scope="col"><span class="sr-only">Leave out</span></th>
      </tr></thead>
      <tbody>${found.slice(0, rows).map(
        ({ key, name, total: events, compared, counts: bars }) => html`<tr key=${key}>
          <th scope="row"><button type="button" class="all-lines-name" title=${`Only ${name}`} aria-pressed=${picked.includes(key) ? 'true' : 'false'} onClick=${pick(key, false)}>${name}</button></th>
          <td>${count(events)}</td>
          <td>${share(events, total)}</td>
          ${isCompared && html`<td title=${compared === null ? undefined : `Compared: ${count(compared.total)}`}>${compared !== null && changeText(events, compared.total)}</td>`}
          <td class="all-lines-bars"><${Sparkline} counts=${bars} label=${name} /></td>
          <td><button type="button" class="button quiet" aria-label=${`Leave out ${name}`} onClick=${pick(key, true)}>Leave out</button></td>
        </tr>`,
      )}</tbody>
    </table>`
    }
    ${found.length > rows && html`<div class="row-actions"><button type="button" class="button" onClick=${() => setRows(rows + ROWS)}>Show more of ${count(found.length)}</button></div>`}
    ${data && found.length === 0 && html`<p class="hint" role="status">No name contains this text.</p>`}
    ${rest > 0 && html`<p class="hint">${counted(rest, 'event')} ${by === null ? 'of other types' : `with other values of ${by}, or none`}.</p>`}
  <//>`;
}

const names = new Intl.Collator('en', { numeric: true });

/** How many times as many events a line has as before; those that are new come first. */
const growth = ({ total, compared }: Line): number =>
  compared === null || total === compared.total ? 1 : total / compared.total;

function inOrder(
  lines: readonly Line[],
  { key, down }: { readonly key: SortKey; readonly down: boolean },
): Line[] {
  const sign = down ? -1 : 1;
  return [...lines].sort((a, b) =>
    key === 'name'
      ? sign * names.compare(a.name, b.name)
      : (key === 'change' && sign * (growth(a) - growth(b))) ||
        sign * (a.total - b.total) ||
        names.compare(a.name, b.name),
  );
}

/** How many lines there are in all, asked for once a view; null until that is known. */
export function useLineCount(appId: string, viewed: ViewAndChange, series: Series): number | null {
  const { view, span } = viewed;
  const isAsked = series.other !== null && series.isScanned !== true;
  const path = seriesPath(appId, { ...view, by: series.by, compare: 'none', detail: 1 }, span, MOST_LINES);
  // A live chart asks again each few seconds: how many values there are hardly changes.
  const asked = useMemo(() => path, [isAsked, path.replace(/(from|to)=[^&]*&/g, '')]);
  const { data } = useResource<Series>(isAsked ? asked : null, { scope: `count ${asked}` });
  if (!isAsked) return series.isScanned === true ? null : series.lines.length;
  return data === undefined ? null : data.lines.length;
}
