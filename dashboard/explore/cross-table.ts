/** A measure by one or two paths of payloads, declared or not: counts answer it where they can, otherwise the events are read, with progress. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { QueryLine } from '../../src/api-types/answers.ts';
import { asProblem, callLines, type Problem } from '../api.ts';
import { measuredIn } from '../charts/curve.ts';
import { Dialog } from '../components/dialog.ts';
import { ProblemBox } from '../components/problem.ts';
import { count, counted, dateTime } from '../format.ts';
import { html } from '../html.ts';
import { pathKey, scalarPaths, useCatalog, useDeclaredFields } from '../known-fields.ts';
import { type Measure, measureLabel, singleStat } from '../measure.ts';
import type { View } from '../url.ts';
import { eventsQuery, type ViewAndChange } from '../view.ts';

/** Groups that are asked for, and columns of the second path. */
const MOST_GROUPS = 1_000;
const MOST_COLUMNS = 8;

interface Asked {
  readonly line: QueryLine | null;
  readonly problem: Problem | null;
  readonly seconds: number;
}

export interface CrossTableProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  /** What would have it counted from now on; null: nothing, or the reader may not. */
  readonly offer: VNode | null;
  readonly onClose: () => void;
}

export function CrossTable({ appId, viewed, offer, onClose }: CrossTableProps): VNode {
  const { view } = viewed;
  const [paths, setPaths] = useState<readonly [first: string, second: string]>([view.by ?? '', '']);
  const [first, second] = paths;
  const declared = useDeclaredFields(appId).data?.fields ?? [];
  const seen = useCatalog(appId).data?.fields ?? [];
  const known = new Map(
    [...declared.map(({ path }) => path), ...scalarPaths(seen)].map((path) => [pathKey(path), path]),
  );
  const by = [first, second].filter((path) => path !== '');
  const { line, problem, seconds } = useQuery(appId, viewed, by);
  const stat = singleOf(view.measure);
  const what = stat === null ? 'Events' : `${measureLabel(stat.stat)} of ${stat.of}`;
  const format = declared.find(
    ({ kind, path, unit, decimals }) =>
      stat !== null &&
      kind === (stat.stat === 'distinct' ? '' : 'number') &&
      pathKey(path) === pathKey(stat.of) &&
      (unit ?? decimals) !== null,
  );
  const choice = (label: string, place: 0 | 1): VNode =>
    html`<label>${label} <select aria-label=${place === 0 ? 'First field' : 'Second field'} value=${paths[place]} onChange=${(
      event: Event,
    ) => {
      const { value } = event.currentTarget as HTMLSelectElement; // The handler is on the select.
      setPaths(place === 0 ? [value, second] : [first, value]);
    }}><option value="">nothing</option>${[...known.values()].map((path) => html`<option key=${path} value=${path}>${path}</option>`)}</select></label>`;
  return html`<${Dialog} sheet title=${`${what} by fields`} onClose=${onClose}>
    <div class="toolbar">${choice('By', 0)}${choice('and', 1)}</div>
    <${ProblemBox} problem=${problem} />
    ${problem === null && html`<p class="hint" role="status">${progressOf(line, view, seconds)}</p>`}
    ${line !== null && html`<${Groups} line=${line} by=${by} stat=${stat} what=${what} text=${stat === null ? count : measuredIn(format ?? null)} />`}
    ${line !== null && !line.counted && offer}
  <//>`;
}

/** The statistic of each group; null: how many events it has. */
const singleOf = (measure: Measure | null) =>
  measure?.kind === 'stat' ? { ...measure, stat: singleStat(measure.stat) } : null;

function progressOf(line: QueryLine | null, { zone }: View, seconds: number): string {
  if (line === null) return 'Asking…';
  if (line.counted) return `${counted(line.events, 'event')}, from counts.`;
  const took = `${seconds.toFixed(1)} s`;
  if (line.complete) return `Read from ${counted(line.looked ?? line.events, 'event')} in ${took}.`;
  const until =
    line.scannedFrom === undefined ? '' : ` back to ${dateTime(Date.parse(line.scannedFrom), zone)}`;
  return `${counted(line.events, 'event')} found so far${until}, ${took}${line.stopped === undefined ? '…' : ': the budget for reading is used up. Choose a shorter range, or try again in a minute.'}`;
}

function useQuery(appId: string, { view, span }: ViewAndChange, by: readonly string[]): Asked {
  const [asked, setAsked] = useState<Asked & { readonly key: string }>({
    key: '',
    line: null,
    problem: null,
    seconds: 0,
  });
  const scope = eventsQuery(view, span);
  const stat = singleOf(view.measure);
  const body = {
    by,
    stats: ['count', ...(stat === null ? [] : [{ of: stat.of, stat: stat.stat }])],
    filter: view.filters,
    ...(view.text !== null && { [view.text[0]]: view.text[1] }),
    ...Object.fromEntries(
      ['from', 'to', 'hidden'].flatMap((name) => (scope.has(name) ? [[name, scope.get(name)]] : [])),
    ),
    ...Object.fromEntries(
      ['typeId', 'exceptTypeId'].flatMap((name) => (scope.has(name) ? [[name, scope.getAll(name)]] : [])),
    ),
    limit: MOST_GROUPS,
  };
  // A range that moves is asked for again when something else changes.
  const key = JSON.stringify({ ...body, from: null, to: null });
  useEffect(() => {
    const aborter = new AbortController();
    const begun = performance.now();
    const tell = (changes: Partial<Asked>): void =>
      setAsked((old) => ({
        ...(old.key === key ? old : { line: null, problem: null }),
        ...{ key, seconds: (performance.now() - begun) / 1_000, ...changes },
      }));
    callLines<QueryLine>(`/api/apps/${appId}/query`, body, aborter.signal, (line) => tell({ line })).catch(
      (error: unknown) => {
        if (aborter.signal.aborted) return;
        tell({ problem: asProblem(error, 'The events could not be read') });
      },
    );
    return () => aborter.abort();
  }, [key]);
  return asked.key === key ? asked : { line: null, problem: null, seconds: 0 };
}

interface GroupsProps {
  readonly line: QueryLine;
  readonly by: readonly string[];
  readonly stat: Extract<View['measure'], { kind: 'stat' }> | null;
  readonly what: string;
  /** A number as it is shown. */
  readonly text: (value: number) => string;
}

/** In place of a value: no JSON begins like them. */
const NONE = '(none)';
const OTHER = 'other';
/** Texts that a number, true, false, null or a quoted text would look like, and the empty one. */
const LIKE_JSON = /^(?:|-?\d[\d.eE+-]*|true|false|null|".*)$/s;

export function Groups({ line, by: [first, second], stat, what, text }: GroupsProps): VNode {
  const cells = new Map<string, string>();
  const [rows, columns] = [new Map<string, number>(), new Map<string, number>()];
  for (const group of line.groups) {
    const { other, count: events, of } = group;
    const keyOf = (path?: string): string =>
      other ? OTHER : path === undefined ? 'all events' : keyAt(group, path);
    const [row, column] = [keyOf(first), second === undefined ? what : keyOf(second)];
    const found = stat === null ? events : (Object.values(of ?? {})[0]?.[stat.stat] ?? null);
    const own = found === null ? null : Number(found);
    // Others without any number say nothing.
    if (other && own === null) continue;
    // A single column is in the order of what it shows.
    rows.set(row, second === undefined ? (own ?? -Infinity) : (rows.get(row) ?? 0) + events);
    columns.set(column, (columns.get(column) ?? 0) + events);
    cells.set(`${row}\n${column}`, own === null ? '–' : text(own));
  }
  const highest = (keys: ReadonlyMap<string, number>): string[] =>
    [...keys]
      .sort(([a, x], [b, y]) => Number(a === OTHER) - Number(b === OTHER) || (x === y ? 0 : y - x))
      .map(([key]) => key);
  const nameOfColumn = (key: string): string => (second === undefined ? key : nameOf(key));
  const heads = highest(columns);
  const shown = heads.slice(0, MOST_COLUMNS);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${[what, first && `by ${first}`, second && `and ${second}`].filter(Boolean).join(' ')}><table class="list">
    <thead><tr><th scope="col">${first ?? ''}</th>${shown.map((head) => html`<th key=${head} scope="col" class="number">${nameOfColumn(head)}</th>`)}</tr></thead>
    <tbody>${highest(rows).map(
      (row) =>
        html`<tr key=${row}><th scope="row">${nameOf(row)}</th>${shown.map((head) => html`<td key=${head} class="number" data-label=${nameOfColumn(head)}>${cells.get(`${row}\n${head}`) ?? '–'}</td>`)}</tr>`,
    )}</tbody>
  </table></div>
  ${heads.length > shown.length && html`<p class="hint">The ${MOST_COLUMNS} values of ${second} with the most events, of ${count(heads.length)}.</p>`}`;
}

/** Key of a value, as JSON, which neither of the two others is. A path is absent where events have no single value there. */
function keyAt({ by = {}, numbersIn = [] }: QueryLine['groups'][number], path: string): string {
  const [name = '', value] = Object.entries(by).find(([own]) => pathKey(own) === pathKey(path)) ?? [];
  return value === undefined ? NONE : numbersIn.includes(name) ? String(value) : JSON.stringify(value);
}

/** A text stands as it is, in quotes where it would look like something else. */
function nameOf(key: string): string {
  if (!key.startsWith('"')) return key;
  const text = JSON.parse(key) as string; // The JSON of a text begins so.
  return text === OTHER || text === NONE || LIKE_JSON.test(text) ? key : text;
}
