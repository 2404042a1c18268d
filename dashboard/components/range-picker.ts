/** The range picker: presets, typed ranges, calendar days, and steps back and forward. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { TypedRange } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { dateTime, presetLabels, rangeLabel } from '../format.ts';
import { html } from '../html.ts';
import { isOpen, neighbor, parseRange, type Range, rangeText, type Span } from '../range.ts';
import { useResource } from '../resource.ts';
import type { View } from '../url.ts';
import type { ViewAndChange } from '../view.ts';
import { Calendar } from './calendar.ts';
import { Icon } from './icon.ts';
import { Popover } from './popover.ts';

/** @prop label what it says in place of the range */
export function RangePicker({
  view,
  span,
  change,
  label,
}: ViewAndChange & { readonly label?: string | undefined }): VNode {
  const { range, zone } = view;
  const { from, to } = span;
  const step = (direction: -1 | 1) => (): void => {
    if (from !== null) change(stepped(view, { from, to }, direction));
  };
  return html`<div class="joined">
    <button class="button" aria-label="Previous period" title="Previous period" disabled=${from === null} onClick=${step(-1)}><${Icon} name="back" /></button>
    <${Popover} icon="clock" label="Time range" text=${label ?? rangeLabel(range, zone)}>
      ${(close: () => void) => {
        const pick = (picked: Range): void => {
          close();
          change({ range: picked, back: null });
        };
        return html`<${Presets} range=${range} current=${label === undefined ? rangeText(range) : ''} onPick=${pick} />
          <${TypedForm} range=${range} span=${span} zone=${zone} onPick=${pick} />
          <${Calendar} span=${span} zone=${zone} onPick=${pick} />`;
      }}
    <//>
    <button class="button" aria-label="Next period" title="Next period" disabled=${from === null || isOpen(range) || to > Date.now()} onClick=${step(1)}><${Icon} name="forward" /></button>
  </div>`;
}

/** A step away from now remembers where it came from, and the step that comes back to now is live again. */
function stepped(
  { range, back, zone }: View,
  span: Span & { readonly from: number },
  direction: -1 | 1,
): Pick<View, 'range' | 'back'> {
  const next = neighbor(range, span, direction, zone);
  const home = isOpen(range) ? range : back;
  const isHome = next.to > Date.now() - (next.to - next.from) / 2;
  return direction > 0 && isHome && home !== null && isOpen(home)
    ? { range: home, back: null }
    : { range: next, back: home };
}

interface PartProps {
  readonly range: Range;
  readonly onPick: (range: Range) => void;
}

function Presets({ range, current, onPick }: PartProps & { readonly current: string }): VNode {
  return html`<div class="presets" role="group" aria-label="Presets">
    ${presetLabels().map(
      ([text, label]) => html`<button
        class="button"
        aria-pressed=${text === current}
        autofocus=${text === current}
        onClick=${() => onPick(parseRange(text) ?? range)}
      >${label}</button>`,
    )}
  </div>`;
}

/** Where the server says what a range or an instant is that was typed. */
export const typedRangePath = (text: string, zone: string): string =>
  `/api/typed-range?${new URLSearchParams({ text, timezone: zone })}`;

interface TypedProps extends PartProps {
  readonly span: Span;
  readonly zone: string;
}

function TypedForm({ range, span, zone, onPick }: TypedProps): VNode {
  const initial =
    span.from === null
      ? ''
      : `${dateTime(span.from, zone)} to ${isOpen(range) ? 'now' : dateTime(span.to, zone)}`;
  const [text, setText] = useState(initial);
  const path = typedRangePath(text, zone);
  const { data } = useResource<TypedRange>(path);
  const read = parseRange(data?.range ?? '');
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    // What stands below may be of the text before the last key.
    const typed = parseRange((await call<TypedRange>('GET', path)).range ?? '');
    if (typed !== null) onPick(typed);
  };
  return html`<form class="typed" onSubmit=${submit}>
    <input
      aria-label="Time range in words"
      aria-describedby="typed-range"
      autocomplete="off"
      placeholder="14 Nov 09:00 to now"
      value=${text}
      onInput=${(event: InputEvent) => setText((event.currentTarget as HTMLInputElement).value)}
    />
    <button type="submit" class="button" disabled=${read === null}>Show</button>
    <p class="hint" id="typed-range" role="status">${read === null ? 'Such as “14 Nov 09:00 to now”, “3 hours” or “2026-11-14”' : `${rangeLabel(read, zone)}, in ${zone.replaceAll('_', ' ')}`}</p>
  </form>`;
}
