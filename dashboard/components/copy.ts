/** A copy button with feedback: its icon turns into a tick, and screen readers announce the notice. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { html } from '../html.ts';
import { notify } from '../state.ts';
import { Icon } from './icon.ts';

/** Writes text to the clipboard, also on plain-http origins, where browsers do not offer the clipboard API. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'sr-only';
    // Inside an open dialog: everything outside it is inert and cannot be selected.
    const focused = document.activeElement;
    (focused?.closest('dialog') ?? document.body).append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return copied;
  }
}

export interface CopyProps {
  readonly text: string | (() => string);
  /** What is copied, for the label of a button that shows only an icon. */
  readonly label: string;
  /** Text next to the icon. */
  readonly children?: string;
}

export function CopyButton({ text, label, children }: CopyProps): VNode {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    const copied = await copyText(typeof text === 'string' ? text : text());
    notify(copied ? 'Copied' : 'The browser refused access to the clipboard');
    setDone(copied);
    setTimeout(() => setDone(false), 1_500);
  };
  return html`<button
    class=${children ? 'button' : 'icon-button'}
    title=${label}
    aria-label=${children ? undefined : label}
    onClick=${copy}
  ><${Icon} name=${done ? 'check' : 'copy'} />${children}</button>`;
}

/** An identifier or a token in full, with its copy button. */
export function Copyable({ text, label }: { readonly text: string; readonly label: string }): VNode {
  return html`<span class="copyable"><code>${text}</code><${CopyButton} text=${text} label=${label} /></span>`;
}
