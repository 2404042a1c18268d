/** The choice of what the chart's lines are: event types, or the values of a field. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { DeclaredField, Series } from '../../src/api-types/answers.ts';
import { counted } from '../format.ts';
import { html } from '../html.ts';
import { pathKey, scalarPaths, useCatalog, useDeclaredFields } from '../known-fields.ts';
import type { Measure } from '../measure.ts';
import { isDistribution, type View } from '../url.ts';
import { hasConditions, type ViewAndChange } from '../view.ts';
import { onlyPath } from './missing.ts';
import type { Scan } from './scan.ts';

export interface BreakdownProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly series: Series;
  /** Whether the series is of an earlier view. */
  readonly isOld: boolean;
  readonly scan: Scan;
  /** The chart by producer is to be shown. */
  readonly onProducers: () => void;
}

/** How long after the chart the fields of recent events are asked for. */
const CALM_MS = 300;
/** How many events a chart is of. */
export const totalOf = ({ all }: Pick<Series, 'all'>): number => all.reduce((sum, count) => sum + count, 0);

/** What fields are called that counts do not answer. @param rows events that are read for them */
export const fromRowsLabel = (rows: number): string => `From rows: ${counted(rows, 'event')} to read`;

/** No path is spelled so. */
const PRODUCER = ':producer';

export function Breakdown({ appId, viewed, series, isOld, scan, onProducers }: BreakdownProps): VNode | null {
  const { view, change } = viewed;
  const [isNear, setNear] = useState(false);
  // After what the page is opened for: a menu that is open does not grow.
  useEffect(() => {
    const timer = setTimeout(() => setNear(true), CALM_MS);
    return () => clearTimeout(timer);
  }, []);
  const declared = useDeclaredFields(appId).data?.fields ?? [];
  const seen = useCatalog(appId, isNear).data?.fields ?? [];
  if (view.measure?.kind === 'ratio' || isDistribution(view.measure)) return null;
  const paths = countedFor(declared, view);
  const known = new Set(paths.map(pathKey));
  const single = declared.flatMap(({ path, kind, by }) => (kind === 'value' && by === null ? path : []));
  const others = [
    ...new Map([...scalarPaths(seen), ...single].map((path) => [pathKey(path), path])).values(),
  ].filter((path) => !known.has(pathKey(path)));
  // What the lines are, which may not be what was asked for.
  const shown = (isOld || view.measure !== null ? view.by : series.by) ?? '';
  const pick = (event: Event): void => {
    const select = event.currentTarget as HTMLSelectElement; // The handler is on the select.
    if (select.value === PRODUCER) onProducers();
    else change({ by: select.value || null, hidden: [] });
    select.value = shown;
  };
  const option = (path: string): VNode => html`<option key=${path} value=${path}>${path}</option>`;
  return html`<label class="breakdown"><span>By</span><select aria-label="Break down by" value=${shown} onChange=${pick}>
      <option value="">event type</option>
      ${paths.map(option)}
      <option value=${PRODUCER}>producer…</option>
      ${others.length > 0 && html`<optgroup label=${fromRowsLabel(totalOf(series))}>${others.map(option)}</optgroup>`}
    </select></label>
    ${
      view.by !== null &&
      view.measure === null &&
      (shown === '' || scan.notBy !== null) &&
      html`<p class="hint" role="status">${scan.notBy ?? `Not broken down by ${view.by} yet: it is not counted for these events, so these are read first.`}</p>
      ${scan.isStopped && !hasConditions(view) && html`<button class="button" onClick=${scan.goOn}>Read all of them</button>`}`
    }`;
}

/** The paths by whose values the view's measure is counted, each once, and the one that is asked for. */
function countedFor(declared: readonly DeclaredField[], view: View): string[] {
  const { types, by, measure } = view;
  const ofTypes = declared.filter(
    ({ typeId }) => typeId === null || (types.length === 1 && types[0] === typeId),
  );
  const answers = measure?.kind === 'stat' ? ofMeasure(ofTypes, measure) : ofEvents(ofTypes, onlyPath(view));
  const paths = new Map(answers.map((path) => [pathKey(path), path]));
  if (by !== null && !paths.has(pathKey(by))) paths.set(pathKey(by), by);
  return [...paths.values()];
}

function ofMeasure(
  declared: readonly DeclaredField[],
  { of, stat }: Extract<Measure, { kind: 'stat' }>,
): string[] {
  const kind = stat === 'distinct' ? 'distinct' : 'number';
  return declared.flatMap(({ path, by, ...field }) =>
    field.kind === kind && by !== null && pathKey(path) === pathKey(of) ? [by] : [],
  );
}

/** The fields that are counted alone, and with a filter those that are counted together with its field. */
function ofEvents(declared: readonly DeclaredField[], filtered: string | null): string[] {
  const values = declared.filter(({ kind }) => kind === 'value');
  const alone = values.flatMap(({ path, by }) => (by === null ? [path] : []));
  const pairs = values.flatMap(({ path, by }) => {
    if (by === null || filtered === null) return [];
    return pathKey(by) === pathKey(filtered) ? [path] : pathKey(path) === pathKey(filtered) ? [by] : [];
  });
  return [...pairs, ...alone];
}
