/** Modal dialogs by the browser's own <dialog>: it keeps the focus, closes on Escape and gives the focus back. */
import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Children, html } from '../html.ts';
import { Icon } from './icon.ts';

export interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  /** A sheet at the side rather than a box in the middle. */
  readonly sheet?: boolean;
  readonly children: Children;
}

export function Dialog({ title, onClose, sheet = false, children }: DialogProps): VNode {
  const element = useRef<HTMLDialogElement>(null);
  // The close event is asynchronous and may arrive after the component was unmounted.
  const gone = useRef(false);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    // Not the button that closes it, which comes first.
    dialog?.querySelector<HTMLElement>('form input, form select, h2')?.focus();
    return () => {
      gone.current = true;
      dialog?.close();
    };
  }, []);
  // A click on the backdrop has the dialog itself as its target; one that began inside, for example selecting text, has not.
  const pressed = useRef(false);
  return html`<dialog
    ref=${element}
    class=${sheet ? 'dialog sheet' : 'dialog'}
    aria-label=${title}
    onClose=${() => {
      if (!gone.current) onClose();
    }}
    onPointerDown=${(event: Event) => {
      pressed.current = event.target === element.current;
    }}
    onClick=${(event: Event) => {
      if (pressed.current && event.target === element.current) element.current?.close();
    }}
  >
    <div class="dialog-body">
      <header>
        <h2 tabindex="-1">${title}</h2>
        <button type="button" class="icon-button" aria-label="Close" onClick=${() => element.current?.close()}><${Icon} name="close" /></button>
      </header>
      ${children}
    </div>
  </dialog>`;
}
