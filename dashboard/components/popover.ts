/** A button with a panel below it: closes on Escape, on a click elsewhere, and when the focus leaves. */
import type { RefObject, VNode } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { focusFirst } from '../focus.ts';
import { type Children, html } from '../html.ts';
import { Icon, type IconName } from './icon.ts';

export interface PopoverProps {
  readonly icon?: IconName;
  /** What the button shows. */
  readonly text: Children;
  /** What the button and its panel are for. */
  readonly label: string;
  /** Whether the panel ends where the button does, and a long text is cut. */
  readonly atEnd?: boolean;
  readonly children: (close: () => void) => Children;
}

/** Best first: what is chosen now, or what there is. */
const FIRST = ['[autofocus]', '[aria-checked=true], [aria-pressed=true]', 'button, input, a'] as const;

/** Tells that a click or the focus is elsewhere. @returns ends that */
export function onLeave(root: RefObject<Element | null>, left: () => void): () => void {
  const leave = (event: Event): void => {
    if (event.target instanceof Node && !root.current?.contains(event.target)) left();
  };
  document.addEventListener('pointerdown', leave);
  document.addEventListener('focusin', leave);
  return () => {
    document.removeEventListener('pointerdown', leave);
    document.removeEventListener('focusin', leave);
  };
}

export function Popover({ icon, text, label, atEnd = false, children }: PopoverProps): VNode {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };

  // The focus is there before the next key is handled.
  useLayoutEffect(() => {
    if (!open) return;
    focusFirst(panel.current, FIRST);
    return onLeave(root, () => setOpen(false));
  }, [open]);

  return html`<div
    class=${atEnd ? 'popover at-end' : 'popover'}
    ref=${root}
    onKeyDown=${(event: KeyboardEvent) => {
      if (event.key !== 'Escape' || !open) return;
      event.stopPropagation();
      close();
    }}
  >
    <button
      class="button"
      ref=${button}
      aria-haspopup="dialog"
      aria-expanded=${open}
      title=${label}
      onClick=${() => setOpen(!open)}
    >${icon && html`<${Icon} name=${icon} />`}<span class="sr-only">${label}: </span><span class="text">${text}</span><${Icon} name="down" /></button>
    ${open && html`<div class="panel raised" role="dialog" aria-label=${label} ref=${panel}>${children(close)}</div>`}
  </div>`;
}
