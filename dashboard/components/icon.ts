/** Line icons of one weight, drawn in the text's color. They are decorative: next to text or in labeled buttons. */
import type { VNode } from 'preact';
import { html } from '../html.ts';

/** What dashboard/index.html draws, as symbols: the page has them before any script. */
export type IconName =
  | 'back'
  | 'forward'
  | 'down'
  | 'pause'
  | 'play'
  | 'copy'
  | 'check'
  | 'close'
  | 'light'
  | 'dark'
  | 'system'
  | 'zoomOut'
  | 'search'
  | 'plus'
  | 'bookmark'
  | 'reload'
  | 'clock'
  | 'filter'
  | 'options'
  | 'eye'
  | 'eyeClosed'
  | 'user';

export function Icon({ name }: { readonly name: IconName }): VNode {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><use href=${`#icon-${name}`} /></svg>`;
}

/** The logo. */
export function Mark(): VNode {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
    <path d="M10 13V9M16 13V6M22 13v-3" />
    <path class="tide" d="M6 21c3.3 0 3.3-3 6.7-3s3.3 3 6.6 3 3.3-3 6.7-3" />
  </svg>`;
}
