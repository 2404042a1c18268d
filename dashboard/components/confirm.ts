/** Asks before something is taken away. */
import type { VNode } from 'preact';
import { type Children, html } from '../html.ts';
import type { Action } from '../resource.ts';
import { Dialog } from './dialog.ts';
import { ProblemBox } from './problem.ts';

export interface ConfirmProps {
  /** What will be done; the button says it too. */
  readonly title: string;
  readonly action: Action<[]>;
  readonly onClose: () => void;
  /** What follows from it. */
  readonly children: Children;
}

export function Confirm({ title, action, onClose, children }: ConfirmProps): VNode {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${children}</p>
    <${ProblemBox} problem=${action.problem} />
    <div class="form-actions">
      <button type="button" class="button" data-first onClick=${onClose}>Cancel</button>
      <button type="button" class="button primary danger" aria-disabled=${action.busy} onClick=${() => action.run()}>${title}</button>
    </div>
  <//>`;
}
