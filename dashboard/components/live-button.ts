/** The live button: follows, pauses with a count of new events, or returns to the present. */
import type { VNode } from 'preact';
import { count } from '../format.ts';
import { html } from '../html.ts';
import { isOpen, relativeOf } from '../range.ts';
import type { ViewAndChange } from '../view.ts';
import { Icon } from './icon.ts';

export interface LiveButtonProps {
  readonly viewed: ViewAndChange;
  /** Events that are new and not shown. */
  readonly fresh: number;
  readonly isLost: boolean;
}

export function LiveButton({ viewed: { view, span, change }, fresh, isLost }: LiveButtonProps): VNode {
  const { range, back, live } = view;
  if (!isOpen(range)) {
    const home = back !== null && isOpen(back) ? back : relativeOf(span);
    return html`<button class="button live" title="Show the time up to now" onClick=${() => change({ range: home, back: null, live: true })}>
      <${Icon} name="play" /><span class="text">Go live</span>
    </button>`;
  }
  const text = live
    ? isLost
      ? 'Reconnecting…'
      : 'Live'
    : fresh > 0
      ? `Paused · ${count(fresh)} new`
      : 'Paused';
  return html`<button class="button live" aria-pressed=${live} data-lost=${isLost} title=${live ? 'Pause' : 'Go on'} onClick=${() => change({ live: !live }, true)}>
    <${Icon} name=${live ? 'pause' : 'play'} /><span class="text">${text}</span>
  </button><span class="sr-only" role="status">${isLost ? 'Reconnecting' : fresh > 0 && 'There are new events'}</span>`;
}
