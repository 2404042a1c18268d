/** What the chart shows: numbers of events, a ratio of two, or a statistic of a number field. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { DeclaredField, EventType, Stat } from '../../src/api-types/answers.ts';
import { Popover } from '../components/popover.ts';
import { html } from '../html.ts';
import { useDeclaredFields } from '../known-fields.ts';
import { type Measure, STAT_NAMES, STATS } from '../measure.ts';
import type { View } from '../url.ts';
import type { ViewAndChange } from '../view.ts';

export interface MeasurePickerProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly types: readonly EventType[];
  /** Whether the reader may have fields counted. */
  readonly isOwner: boolean;
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
  return measure.kind === 'ratio' ? 'Ratio' : `${STAT_NAMES[measure.stat]} of ${measure.of}`;
}

interface ChoicesProps extends MeasurePickerProps {
  readonly onPick: (measure: Measure | null) => void;
}

function Choices({ appId, viewed: { view }, types, isOwner, onPick }: ChoicesProps): VNode {
  const fields = (useDeclaredFields(appId).data?.fields ?? []).filter((field) => fits(field, view));
  return html`<div class="options">
    <button type="button" class="button" aria-pressed=${view.measure === null ? 'true' : 'false'} onClick=${() => onPick(null)}>Number of events</button>
    <${RatioForm} view=${view} types=${types} onPick=${onPick} />
    ${
      fields.length > 0
        ? html`<${StatForm} view=${view} fields=${fields} onPick=${onPick} />`
        : html`<p class="hint">Sum, average and percentiles need a field that is counted as a number.${isOwner && html` <a href=${`/apps/${appId}/fields`}>Add a counted field</a>`}</p>`
    }
  </div>`;
}

/** Whether a field's statistics are those of the view's types. */
const fits = ({ kind, completeFrom, typeId }: DeclaredField, { types }: View): boolean =>
  kind === 'number' &&
  completeFrom !== null &&
  (typeId === null || (types.length === 1 && types[0] === typeId));

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
    <button class="button">Show the ratio</button>
  </form>`;
}

interface StatFormProps {
  readonly view: View;
  readonly fields: readonly DeclaredField[];
  readonly onPick: (measure: Measure) => void;
}

function StatForm({ view: { measure }, fields, onPick }: StatFormProps): VNode {
  const chosen = measure?.kind === 'stat' ? measure : null;
  const show = (event: SubmitEvent): void => {
    event.preventDefault();
    const values = new FormData(event.currentTarget as HTMLFormElement); // The handler is on the form.
    onPick({ kind: 'stat', of: String(values.get('of')), stat: String(values.get('stat')) as Stat }); // Of the options below.
  };
  return html`<form class="measure-form" onSubmit=${show}>
    <label>Statistic
      <select name="stat">${STATS.map((stat) => html`<option key=${stat} value=${stat} selected=${stat === chosen?.stat}>${STAT_NAMES[stat]}</option>`)}</select>
    </label>
    <label>of the field
      <select name="of">${[...new Set(fields.map(({ path }) => path))].map((path) => html`<option key=${path} value=${path} selected=${path === chosen?.of}>${path}</option>`)}</select>
    </label>
    <button class="button">Show the statistic</button>
  </form>`;
}
