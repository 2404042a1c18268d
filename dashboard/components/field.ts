/** Form parts: a labelled input with its hint, and a form that does not leave the page. */
import type { VNode } from 'preact';
import { useId } from 'preact/hooks';
import { type Children, html } from '../html.ts';
import type { Action } from '../resource.ts';
import { ProblemBox } from './problem.ts';

export interface FieldProps {
  readonly label: string;
  readonly name: string;
  readonly hint?: Children;
  /** Attributes of the input. */
  readonly [attribute: string]: unknown;
}

export function Field({ label, name, hint, ...attributes }: FieldProps): VNode {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <input id=${id} name=${name} type="text" required autocomplete="off" aria-describedby=${hint ? `${id}-hint` : undefined} ...${attributes} />
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

export interface SelectProps {
  readonly label: string;
  readonly name: string;
  /** Value and text. */
  readonly options: readonly (readonly [string, string])[];
  readonly hint?: Children;
}

export function Select({ label, name, options, hint }: SelectProps): VNode {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <select id=${id} name=${name} aria-describedby=${hint ? `${id}-hint` : undefined}>${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

export interface FormProps {
  readonly action: Action<[values: Record<string, string>, form: HTMLFormElement]>;
  /** What the button says. */
  readonly submit: Children;
  readonly class?: string;
  readonly danger?: boolean;
  readonly children: Children;
}

/** Its action gets the values by the inputs' names. */
export function Form({ action, submit, class: kind = '', danger = false, children }: FormProps): VNode {
  const send = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement; // The handler is on the form.
    const values: Record<string, string> = {};
    for (const [name, value] of new FormData(form)) values[name] = String(value);
    void action.run(values, form);
  };
  return html`<form class=${`form ${kind}`} onSubmit=${send}>
    <div class="fields">
      ${children}
      <button class=${danger ? 'button primary danger' : kind === 'inline' ? 'button' : 'button primary'} aria-disabled=${action.busy}>${submit}</button>
    </div>
    <${ProblemBox} problem=${action.problem} />
  </form>`;
}

/** For irreversible operations: the user has to type the name. */
export function ConfirmName({ name }: { readonly name: string }): VNode {
  return html`<${Field}
    label=${html`Type <b>${name}</b> to confirm`}
    name="confirm"
    pattern=${name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')}
    title="The app's name, exactly"
  />`;
}
