/** Every event type, or every value of the field that the chart is by, of the range: found by name, to filter by. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Series } from '../../src/api-types/answers.ts';
import { share } from '../charts/legend.ts';
import { Dialog } from '../components/dialog.ts';
import { matches, Search } from '../components/search.ts';
import { Waiting } from '../components/waiting.ts';
import { count, counted } from '../format.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import { seriesPath, type ViewAndChange } from '../view.ts';
import type { Scan } from './scan.ts';

/** As many as the server gives at once. */
const MOST_LINES = 1_000;
/** Rows that are shown before "more". */
const ROWS = 100;

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
  const path = seriesPath(appId, { ...view, ...without(null), compare: 'none', detail: 1 }, span);
  const counts = useResource<Series>(scan.isWanted ? null : `${path}&lines=${MOST_LINES}`, {
    scope: `all ${path}`,
  });
  const all = scan.isWanted ? { ...counts, data: scan.all ?? undefined, problem: scan.problem } : counts;
  const { data } = all;
  const what = by === null ? 'event types' : `values of ${by}`;
  const found = data?.lines.filter(({ name }) => matches(wanted, name)) ?? [];
  const rest = (data?.other ?? []).reduce((sum, events) => sum + events, 0);
  const total = rest + (data?.lines ?? []).reduce((sum, line) => sum + line.total, 0);
  const pick = (key: string, isExcluded: boolean) => (): void => {
    onPick(key, isExcluded);
    onClose();
  };
  return html`<${Dialog} title=${`All ${what}`} onClose=${onClose}>
    <form class="all-lines-search" onSubmit=${(event: Event) => event.preventDefault()}><${Search} label="Find by name" onText=${setWanted} /></form>
    <${Waiting} for=${all} lines=${8} class="rows" />
    <ul class="all-lines" aria-label=${`All ${what}`}>
      ${found.slice(0, rows).map(
        ({ key, name, total: events }) => html`<li key=${key}>
          <button type="button" class="all-lines-name" aria-pressed=${picked.includes(key) ? 'true' : 'false'} onClick=${pick(key, false)}>
            <span>${name}</span><b>${count(events)}</b><span class="muted">${share(events, total)}</span>
          </button>
          <button type="button" class="button quiet" aria-label=${`Leave out ${name}`} onClick=${pick(key, true)}>Leave out</button>
        </li>`,
      )}
    </ul>
    ${found.length > rows && html`<div class="row-actions"><button type="button" class="button" onClick=${() => setRows(rows + ROWS)}>Show more of ${count(found.length)}</button></div>`}
    ${data && found.length === 0 && html`<p class="hint" role="status">No name contains this text.</p>`}
    ${rest > 0 && html`<p class="hint">${counted(rest, 'event')} ${by === null ? 'of other types' : `with other values of ${by}, or none`}.</p>`}
  <//>`;
}
