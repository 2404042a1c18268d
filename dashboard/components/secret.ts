/** What was just made and is secret: how often it is shown, the text, and where it goes next. */
import type { VNode } from 'preact';
import { type Children, html } from '../html.ts';
import { Callout } from './callout.ts';
import { Copyable } from './copy.ts';
import { Dialog } from './dialog.ts';

export interface SecretProps {
  readonly title: string;
  /** Null: it cannot be shown. */
  readonly text: string | null;
  /** What it is. */
  readonly of: string;
  /** Where it is shown again; absent: nowhere. */
  readonly again?: string;
  /** What is done with it. */
  readonly children: Children;
  readonly onClose: () => void;
}

export function Secret({ title, text, of, again, children, onClose }: SecretProps): VNode {
  const once = again === undefined;
  return html`<${Dialog} locked=${once} title=${title} onClose=${onClose}>
    ${once ? html`<${Callout} tone="note">It is shown only once: copy it before you close this dialog.<//>` : html`<p class="hint">${text === null ? 'It cannot be shown: it was sealed under another SECRET of the server. It still works.' : again}</p>`}
    ${text !== null && html`<${Copyable} text=${text} label=${`Copy the ${of}`} />`}
    ${children}
    <div class="form-actions"><button class="button primary" data-first onClick=${onClose}>${once ? 'I have copied it' : 'Close'}</button></div>
  <//>`;
}
