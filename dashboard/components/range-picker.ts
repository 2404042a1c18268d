/** Choosing the time: presets, any relative length, two instants in the zone's clock; one step back or on. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { isPreset, presetLabels, rangeLabel } from '../format.ts';
import { html } from '../html.ts';
import { neighbor, parseRange, type Range, rangeText, type Span, UNIT_NAMES } from '../range.ts';
import { fromWall, toWall } from '../time-zone.ts';
import { Icon } from './icon.ts';
import { Popover } from './popover.ts';

export interface RangePickerProps {
  readonly range: Range;
  /** The instants that the range means now. */
  readonly span: Span;
  readonly zone: string;
  readonly onPick: (range: Range) => void;
}

export function RangePicker({ range, span, zone, onPick }: RangePickerProps): VNode {
  const { from, to } = span;
  const step = (direction: -1 | 1) => (): void => {
    if (from !== null) onPick(neighbor({ from, to }, direction, zone));
  };
  return html`<div class="joined">
    <button type="button" class="button" aria-label="Previous period" title="Previous period" disabled=${from === null} onClick=${step(-1)}><${Icon} name="back" /></button>
    <${Popover} class="range" icon="clock" label="Time range" text=${rangeLabel(range, zone)}>
      ${(close: () => void) => {
        const pick = (picked: Range): void => {
          close();
          onPick(picked);
        };
        return html`<${Presets} range=${range} onPick=${pick} />
          <${RelativeForm} range=${range} onPick=${pick} />
          <${AbsoluteForm} span=${span} zone=${zone} onPick=${pick} />`;
      }}
    <//>
    <button type="button" class="button" aria-label="Next period" title="Next period" disabled=${from === null || to > Date.now()} onClick=${step(1)}><${Icon} name="forward" /></button>
  </div>`;
}

interface PartProps {
  readonly range: Range;
  readonly onPick: (range: Range) => void;
}

function Presets({ range, onPick }: PartProps): VNode {
  const current = rangeText(range);
  return html`<div class="presets" role="group" aria-label="Presets">
    ${presetLabels().map(
      ([text, label]) => html`<button
        type="button"
        class="button"
        aria-pressed=${text === current ? 'true' : 'false'}
        autofocus=${text === current}
        onClick=${() => onPick(parseRange(text) ?? range)}
      >${label}</button>`,
    )}
  </div>`;
}

function RelativeForm({ range, onPick }: PartProps): VNode {
  const shown = range.kind === 'last' && !isPreset(range) ? range : { amount: 3, unit: 'h' };
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement); // The handler is on the form.
    const picked = parseRange(`${form.get('amount')}${form.get('unit')}`);
    if (picked !== null) onPick(picked);
  };
  return html`<form class="inline" onSubmit=${submit}>
    <span>Last</span>
    <input name="amount" type="number" min="1" max="9999" required aria-label="How many" defaultValue=${shown.amount} />
    <select name="unit" aria-label="Of what">
      ${Object.entries(UNIT_NAMES).map(([unit, name]) => html`<option value=${unit} selected=${unit === shown.unit}>${name}s</option>`)}
    </select>
    <button class="button">Show</button>
  </form>`;
}

interface AbsoluteProps {
  readonly span: Span;
  readonly zone: string;
  readonly onPick: (range: Range) => void;
}

function AbsoluteForm({ span, zone, onPick }: AbsoluteProps): VNode {
  const [wrong, setWrong] = useState('');
  const local = (instant: number): string => new Date(toWall(instant, zone)).toISOString().slice(0, 16);
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement); // The handler is on the form.
    const instant = (name: string): number => fromWall(Date.parse(`${form.get(name)}Z`), zone);
    const [from, to] = [instant('from'), instant('to')];
    if (from < to) onPick({ kind: 'between', from, to });
    else setWrong('The end must be after the beginning.');
  };
  return html`<form class="absolute" onSubmit=${submit}>
    <label>From<input name="from" type="datetime-local" required defaultValue=${local(span.from ?? span.to - 86_400_000)} /></label>
    <label>To<input name="to" type="datetime-local" required defaultValue=${local(span.to)} /></label>
    <p class="hint" role="status">${wrong || `In ${zone}`}</p>
    <button class="button">Show</button>
  </form>`;
}
