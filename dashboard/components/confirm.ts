/** Dialogs that make one request: a confirmation of something destructive, and a form. */
import type { VNode } from 'preact';
import { call, type Method } from '../api.ts';
import { type Children, html } from '../html.ts';
import { useAction } from '../resource.ts';
import { notify } from '../state.ts';
import { Dialog } from './dialog.ts';
import { Form } from './field.ts';
import { ProblemBox } from './problem.ts';

interface RequestProps {
  readonly title: string;
  readonly path: string;
  readonly onClose: () => void;
  readonly children?: Children;
}

export interface ConfirmProps extends RequestProps {
  /** The action: title of the dialog and label of its button. */
  readonly title: string;
  readonly method?: Method;
  /** The notice once it is done. */
  readonly said: string;
  readonly body?: object;
  /** Called once it is done, when the dialog is closed. */
  readonly onDone: () => void;
  /** The consequences of the action. */
  readonly children: Children;
}

export function Confirm(props: ConfirmProps): VNode {
  const { title, method = 'DELETE', path, body, said, onDone, onClose, children } = props;
  const action = useAction(async () => {
    await call(method, path, { body });
    notify(said);
    onClose();
    onDone();
  });
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${children}</p>
    <${ProblemBox} problem=${action.problem} />
    <div class="form-actions">
      <button class="button" data-first onClick=${onClose}>Cancel</button>
      <button class="button primary danger" aria-disabled=${action.busy} onClick=${() => action.run()}>${title}</button>
    </div>
  <//>`;
}

export interface FormDialogProps extends RequestProps {
  readonly submit: Children;
  /** The notice once it is done; absent: none. */
  readonly said?: string;
  readonly method?: Method;
  readonly danger?: boolean;
  /** The request's body, of what was typed; by default that itself. */
  readonly body?: (values: Record<string, string>) => object | Promise<object>;
  /** Called with the answer once the dialog is closed, and with what was sent: who asks knows their types. */
  readonly onDone: (answer: never, body: never) => void;
  /** What stands above the form. */
  readonly intro?: Children;
}

export function FormDialog(props: FormDialogProps): VNode {
  const { title, submit, method = 'POST', path, danger = false, said, intro, children } = props;
  const action = useAction(async (values: Record<string, string>) => {
    const body = (await props.body?.(values)) ?? values;
    const answer = await call<never>(method, path, { body });
    if (said) notify(said);
    props.onClose();
    props.onDone(answer, body as never);
  });
  return html`<${Dialog} title=${title} onClose=${props.onClose}>
    ${intro}
    <${Form} action=${action} submit=${submit} danger=${danger} onCancel=${props.onClose}>${children}<//>
  <//>`;
}
