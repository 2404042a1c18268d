/** A confirmation dialog for destructive actions. */
import type { VNode } from 'preact';
import { type Children, html } from '../html.ts';
import type { Action } from '../resource.ts';
import { Dialog } from './dialog.ts';
import { ProblemBox } from './problem.ts';

export interface ConfirmProps {
  /** The action: title of the dialog and label of its button. */
  readonly title: string;
  readonly action: Action<[]>;
  readonly onClose: () => void;
  /** The consequences of the action. */
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
