/** What the chart shows: numbers of events, a ratio of two, or a statistic of a field. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { DeclaredField, EventType } from '../../src/api-types/answers.ts';
import { Popover } from '../components/popover.ts';
import { html } from '../html.ts';
import { pathKey, scalarPaths, useCatalog, useDeclaredFields } from '../known-fields.ts';
import { type Measure, measureLabel, SHOWN_STATS, type ShownStat } from '../measure.ts';
import type { View } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { fromRowsLabel } from './breakdown.ts';

export interface MeasurePickerProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly types: readonly EventType[];
  /** Events that are read where counts do not answer. */
  readonly rows: number;
}

/** In place of a type: the ratio is of events that meet a condition. No identifier is a sign. */
const CONDITION = ':';

export function MeasurePicker(props: MeasurePickerProps): VNode {
  const { view, change } = props.viewed;
  const pick = (measure: Measure | null): void => change({ measure });
  return html`<${Popover} label="What the chart shows" text=${measureText(view.measure)}>
    ${(close: () => void) =>
      html`<${Choices} ...${props} onPick=${(measure: Measure | null) => {
        close();
        pick(measure);
      }} />`}
  <//>`;
}

function measureText(measure: Measure | null): string {
  if (measure === null) return 'Events';
  return measure.kind === 'ratio' ? 'Ratio' : `${measureLabel(measure.stat)} of ${measure.of}`;
}

interface ChoicesProps extends MeasurePickerProps {
  readonly onPick: (measure: Measure | null) => void;
}

function Choices({ appId, viewed: { view }, types, rows, onPick }: ChoicesProps): VNode {
  return html`<div class="options">
    <button class="button" aria-pressed=${view.measure === null} onClick=${() => onPick(null)}>Number of events</button>
    <${StatForm} appId=${appId} view=${view} rows=${rows} onPick=${onPick} />
    <${RatioForm} view=${view} types=${types} onPick=${onPick} />
  </div>`;
}

interface RatioFormProps {
  readonly view: View;
  readonly types: readonly EventType[];
  readonly onPick: (measure: Measure) => void;
}

function RatioForm({ view: { measure }, types, onPick }: RatioFormProps): VNode {
  const part = measure?.kind === 'ratio' ? measure.part : null;
  const [of, setOf] = useState(part !== null && 'type' in part ? part.type : part === null ? '' : CONDITION);
  const show = (event: SubmitEvent): void => {
    event.preventDefault();
    const values = new FormData(event.currentTarget as HTMLFormElement); // The handler is on the form.
    const condition = String(values.get('condition') ?? '').trim();
    if (of === CONDITION) onPick({ kind: 'ratio', part: { filter: condition } });
    else if (of !== '') onPick({ kind: 'ratio', part: { type: of } });
  };
  return html`<form class="measure-form" onSubmit=${show}>
    <label>Ratio of
      <select required value=${of} onChange=${(event: Event) => setOf((event.currentTarget as HTMLSelectElement).value)}>
        <option value="" disabled>a type, such as errors</option>
        ${[...types].sort((a, b) => b.count - a.count).map(({ typeId, name }) => html`<option key=${typeId} value=${typeId}>${name}</option>`)}
        <option value=${CONDITION}>a condition on a counted field…</option>
      </select>
    </label>
    ${of === CONDITION && html`<input name="condition" required maxlength="900" aria-label="Condition" placeholder="status:500" autocomplete="off" spellcheck=${false} defaultValue=${part !== null && 'filter' in part ? part.filter : ''} />`}
    <p class="hint">to all events that this page shows now.</p>
    <button type="submit" class="button">Show the ratio</button>
  </form>`;
}

/** Whether a field's statistics are those of the view's types. */
const fits = ({ completeFrom, typeId }: DeclaredField, { types }: View): boolean =>
  completeFrom !== null && (typeId === null || (types.length === 1 && types[0] === typeId));

interface StatFormProps {
  readonly appId: string;
  readonly view: View;
  readonly rows: number;
  readonly onPick: (measure: Measure) => void;
}

function StatForm({ appId, view, rows, onPick }: StatFormProps): VNode {
  const chosen = view.measure?.kind === 'stat' ? view.measure : null;
  const [stat, setStat] = useState<ShownStat>(chosen?.stat ?? 'avg');
  const declared = useDeclaredFields(appId).data?.fields ?? [];
  const seen = useCatalog(appId).data?.fields ?? [];
  const kind = stat === 'distinct' ? 'distinct' : 'number';
  const counted = new Map(
    declared
      .filter((field) => field.kind === kind && fits(field, view))
      .map(({ path }) => [pathKey(path), path]),
  );
  const others = scalarPaths(seen, kind === 'number' ? 'number' : null).filter(
    (path) => !counted.has(pathKey(path)),
  );
  const show = (event: SubmitEvent): void => {
    event.preventDefault();
    const of = String(new FormData(event.currentTarget as HTMLFormElement).get('of') ?? ''); // The handler is on the form.
    if (of !== '') onPick({ kind: 'stat', of, stat });
  };
  const option = (path: string): VNode =>
    html`<option key=${path} value=${path} selected=${path === chosen?.of}>${path}</option>`;
  return html`<form class="measure-form" onSubmit=${show}>
    <label>Statistic
      <select name="stat" value=${stat} onChange=${(event: Event) => setStat((event.currentTarget as HTMLSelectElement).value as ShownStat)}>${SHOWN_STATS.map((one) => html`<option key=${one} value=${one}>${measureLabel(one)}</option>`)}</select>
    </label>
    <label>of the field
      <select key=${kind} name="of" required>
        ${[...counted.values()].map(option)}
        ${others.length > 0 && html`<optgroup label=${fromRowsLabel(rows)}>${others.map(option)}</optgroup>`}
      </select>
    </label>
    ${counted.size + others.length === 0 && html`<p class="hint">No recent event has ${kind === 'number' ? 'a number' : 'a value'} in a field.</p>`}
    <button type="submit" class="button">Show the statistic</button>
  </form>`;
}
