/** Form parts: a labeled input with its hint, and a form that does not leave the page. */
import type { VNode } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { type Children, html } from '../html.ts';
import type { Action } from '../resource.ts';
import { ProblemBox } from './problem.ts';

export interface FieldProps {
  readonly label: string;
  readonly name: string;
  readonly hint?: Children;
  /** Attributes of the input. With `rows` it has as many lines. */
  readonly [attribute: string]: unknown;
}

export function Field({ label, name, hint, ...attributes }: FieldProps): VNode {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  // The browser reads this attribute only when it loads a document.
  useLayoutEffect(() => {
    if (attributes.autofocus === true) input.current?.focus();
  }, []);
  const given = {
    ...{ ref: input, id, name, required: true, autocomplete: 'off' },
    ...{ 'aria-describedby': hint ? `${id}-hint` : undefined, ...attributes },
  };
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${attributes.rows === undefined ? html`<input type="text" ...${given} />` : html`<textarea ...${given}></textarea>`}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

export interface SelectProps {
  readonly label: string;
  readonly name: string;
  /** Value and text. */
  readonly options: readonly (readonly [string, string])[];
  /** The value that is chosen at first; default: the first one. */
  readonly chosen?: string;
  readonly hint?: Children;
  readonly onChosen?: (value: never) => void;
}

export function Select({ label, name, options, chosen, hint, onChosen }: SelectProps): VNode {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <select id=${id} name=${name} onChange=${onChosen && ((event: Event) => onChosen((event.currentTarget as HTMLSelectElement).value as never))} aria-describedby=${hint ? `${id}-hint` : undefined}>${options.map(([value, text]) => html`<option value=${value} selected=${value === chosen}>${text}</option>`)}</select>
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

export interface FormProps {
  readonly action: Action<[values: Record<string, string>, form: HTMLFormElement]>;
  readonly submit: Children;
  /** `row`: the button is next to the fields. `stacked`: below them. */
  readonly layout?: 'row' | 'stacked';
  readonly danger?: boolean;
  /** Closes the dialog that contains the form; its button is next to the submit button. */
  readonly onCancel?: (() => void) | undefined;
  /** What that button says. */
  readonly cancel?: string;
  readonly children: Children;
}

/** Its action gets the values by the inputs' names. */
export function Form(props: FormProps): VNode {
  const { action, submit, layout = 'stacked', danger = false, onCancel, cancel = 'Cancel', children } = props;
  const send = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement; // The handler is on the form.
    const values: Record<string, string> = {};
    for (const [name, value] of new FormData(form)) values[name] = String(value);
    void action.run(values, form);
  };
  const kind = danger ? 'button primary danger' : layout === 'row' ? 'button' : 'button primary';
  const button = html`<button type="submit" class=${kind} aria-disabled=${action.busy}>${submit}</button>`;
  const problem = html`<${ProblemBox} problem=${action.problem} />`;
  if (layout === 'row') {
    return html`<form class="form inline" onSubmit=${send}><div class="form-fields">${children}${button}</div>${problem}</form>`;
  }
  return html`<form class="form stacked" onSubmit=${send}>
    <div class="form-fields">${children}</div>
    ${problem}
    <div class="form-actions">${onCancel && html`<button class="button" onClick=${onCancel}>${cancel}</button>`}${button}</div>
  </form>`;
}

/** What was typed into a field with lines, without empty ones. */
export function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
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
