/** Modal dialogs on the browser's <dialog>, which traps the focus, closes on Escape and restores the focus. */
import type { VNode } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { focusFirst } from '../focus.ts';
import { type Children, html } from '../html.ts';
import { useOpened } from '../places.ts';
import { Icon } from './icon.ts';

export interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  /** A sheet at the side rather than a box in the middle. */
  readonly sheet?: boolean;
  /** Only its own buttons close it, because its content is shown only once. */
  readonly locked?: boolean;
  readonly children: Children;
}

/** Focus targets, best first. The close button comes first in the document but is not a target. */
const FIRST = [
  '[data-first]',
  'form :is(input:not([type=hidden], [tabindex="-1"]), select, textarea)',
  'h2',
] as const;

export function Dialog({ title, onClose, sheet = false, locked = false, children }: DialogProps): VNode {
  const element = useRef<HTMLDialogElement>(null);
  const [held, setHeld] = useState(false);
  // The close event is asynchronous and may arrive after the component was unmounted.
  const gone = useRef(false);
  useOpened('dialogs', true);
  // Before the next key is handled: typing begins right after the click or the shortcut.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    focusFirst(dialog, FIRST);
    return () => {
      gone.current = true;
      dialog?.close();
    };
  }, []);
  // A click on the backdrop has the dialog itself as its target; one that began inside, for example selecting text, has not.
  const pressed = useRef(false);
  return html`<dialog
    ref=${element}
    class=${sheet ? 'dialog raised sheet' : 'dialog raised'}
    aria-label=${title}
    onKeyDown=${(event: KeyboardEvent) => {
      if (!locked || event.key !== 'Escape') return;
      event.preventDefault();
      setHeld(true);
    }}
    onClose=${() => {
      if (gone.current) return;
      // Browsers close a dialog at the second Escape even if the first was canceled.
      if (locked) element.current?.showModal();
      else onClose();
    }}
    onPointerDown=${(event: Event) => {
      pressed.current = event.target === element.current;
    }}
    onClick=${(event: Event) => {
      if (!locked && pressed.current && event.target === element.current) element.current?.close();
    }}
  >
    <div class="dialog-body">
      <header class="dialog-head">
        <h2 tabindex="-1">${title}</h2>
        ${!locked && html`<button class="icon-button" aria-label="Close" onClick=${() => element.current?.close()}><${Icon} name="close" /></button>`}
      </header>
      ${held && html`<p class="hint" role="status">Only its own buttons close this dialog.</p>`}
      ${children}
    </div>
  </dialog>`;
}
