/** Live or paused, and how much is new meanwhile. */
import type { VNode } from 'preact';
import { count } from '../format.ts';
import { html } from '../html.ts';
import type { ViewAndChange } from '../view.ts';
import { Icon } from './icon.ts';

export interface LiveButtonProps {
  readonly viewed: ViewAndChange;
  /** Events that are new and not shown. */
  readonly fresh: number;
  readonly isLost: boolean;
}

export function LiveButton({ viewed: { view, change }, fresh, isLost }: LiveButtonProps): VNode {
  const ends = view.range.kind === 'between';
  const on = view.live && !ends;
  const text = on
    ? isLost
      ? 'Reconnecting…'
      : 'Live'
    : fresh > 0
      ? `Paused · ${count(fresh)} new`
      : 'Paused';
  return html`<button type="button" class="button live" aria-pressed=${on ? 'true' : 'false'} disabled=${ends} data-lost=${isLost} title=${ends ? 'Only ranges that end now are live' : on ? 'Pause' : 'Go on'} onClick=${() => change({ live: !view.live }, true)}>
    <${Icon} name=${on ? 'pause' : 'play'} /><span class="text">${text}</span>
  </button><span class="sr-only" role="status">${isLost ? 'Reconnecting' : fresh > 0 && 'There are new events'}</span>`;
}
