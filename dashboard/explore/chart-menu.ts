/** The chart's menu: comparison, axis, time zone, downloads, a link, the table. */
import type { RefObject, VNode } from 'preact';
import type { Series } from '../../src/api-types/answers.ts';
import type { Drawing } from '../charts/drawing.ts';
import { chartCsv } from '../charts/table.ts';
import { CopyButton } from '../components/copy.ts';
import { Popover } from '../components/popover.ts';
import { ZoneSelect } from '../components/zone-select.ts';
import { html } from '../html.ts';
import type { Compare } from '../range.ts';
import { type Scale, viewSearch } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { chartPicture, fileName, save } from './files.ts';

export interface ChartMenuProps {
  readonly name: string;
  readonly drawing: Drawing;
  readonly viewed: ViewAndChange;
  /** What the chart is drawn on. */
  readonly canvas: RefObject<HTMLCanvasElement | null>;
  /** Null for those who may not. */
  readonly onAnnotate: (() => void) | null;
  readonly onAlert: () => void;
}

const COMPARES: readonly (readonly [Compare, string])[] = [
  ['previous', 'The period before'],
  ['week', 'The same weekdays before'],
  ['month', 'The month before'],
  ['year', 'The year before'],
  ['segment', 'Other events of the same time'],
  ['none', 'Nothing'],
];
const SCALES: readonly (readonly [Scale, string])[] = [
  ['linear', 'Linear'],
  ['log', 'Logarithmic'],
  ['clipped', 'Cut off high bars'],
];

export function ChartMenu({ name, drawing, viewed, canvas, onAnnotate, onAlert }: ChartMenuProps): VNode {
  const { view, change } = viewed;
  const isMoving = view.range.kind !== 'between';
  const file = (kind: string): string => fileName(name, drawing.series, kind);
  return html`<${Popover} atEnd icon="options" label="Chart options" text="Options">
    ${(close: () => void) => html`<div class="options">
      ${!drawing.levels && html`<${Choice} label="Compare with" value=${view.compare} options=${COMPARES} onPick=${(compare: Compare) => change({ compare })} />`}
      ${drawing.hasScales && html`<${Choice} label="Vertical axis" value=${view.scale} options=${SCALES} onPick=${(scale: Scale) => change({ scale })} />`}
      <label>Time zone<${ZoneSelect} zone=${view.zone} onPick=${(zone: string) => change({ zone })} /></label>
      <div class="row-actions">
        <button class="button" aria-expanded=${view.table} onClick=${() => change({ table: !view.table })}>${view.table ? 'Hide the table' : 'Show as a table'}</button>
        <${CopyButton} text=${() => location.href} label=${isMoving ? 'Copy a link to this view; its range moves on with time' : 'Copy a link to what is shown'}>Copy link<//>
        ${isMoving && html`<${CopyButton} text=${() => datedLink(viewed, drawing.series)} label="Copy a link that shows these dates whenever it is opened">Copy link with these dates<//>`}
        ${
          onAnnotate !== null &&
          html`<button class="button" onClick=${() => {
            close();
            onAnnotate();
          }}>Annotate…</button>
          <button class="button" onClick=${() => {
            close();
            onAlert();
          }}>Alert…</button>`
        }
      </div>
      <div class="row-actions">
        <button class="button" onClick=${() => save(file('csv'), new Blob([chartCsv(drawing)], { type: 'text/csv' }))}>Counts as CSV</button>
        <button class="button" onClick=${async () => {
          const picture = await chartPicture(name, drawing, canvas.current);
          if (picture !== null) save(file('png'), picture);
        }}>Picture (PNG)</button>
        <button class="button" onClick=${() => print()}>Print</button>
      </div>
    </div>`}
  <//>`;
}

/** The address of a view with the instants that its range means now. */
function datedLink({ view, span }: ViewAndChange, { interval }: Series): string {
  const range = { kind: 'between', from: span.from ?? interval.from, to: span.to } as const;
  return `${location.origin}${location.pathname}${viewSearch({ ...view, range, back: null })}`;
}

interface ChoiceProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly (readonly [T, string])[];
  onPick(value: T): void;
}

function Choice<T extends string>({ label, value, options, onPick }: ChoiceProps<T>): VNode {
  return html`<label>${label}<select value=${value} onChange=${(event: Event) => onPick((event.currentTarget as HTMLSelectElement).value as T)}>
    ${options.map(([option, text]) => html`<option key=${option} value=${option}>${text}</option>`)}
  </select></label>`;
}
