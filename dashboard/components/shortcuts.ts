/** The dialog that lists the keyboard shortcuts. */
import type { VNode } from 'preact';
import { html } from '../html.ts';
import { Dialog } from './dialog.ts';

/** What the key is called on this machine. */
export const COMMAND_KEY = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? '') ? '⌘' : 'Ctrl';

const KEYS: readonly (readonly [where: string, keys: readonly (readonly [keys: string, does: string])[]])[] =
  [
    [
      'Everywhere',
      [
        [`${COMMAND_KEY} K`, 'Go to an app, a page, a type, a field or an event'],
        ['/', 'Go to the search of the page'],
        ['?', 'Show these shortcuts'],
        ['Esc', 'Close the open dialog or panel'],
      ],
    ],
    [
      'In the chart',
      [
        ['← →', 'Go from bucket to bucket'],
        ['Shift ← →', 'Select an interval'],
        ['Space', 'List the events of the bucket'],
        ['Enter', 'Zoom into the selection'],
        ['Backspace', 'Zoom back out'],
        ['A', 'Annotate the bucket'],
      ],
    ],
    [
      'In the list',
      [
        ['J K', 'Go to the next event, or the one before'],
        ['Enter', 'Open the event'],
      ],
    ],
  ];

export function Shortcuts({ onClose }: { readonly onClose: () => void }): VNode {
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    ${KEYS.map(
      ([where, keys]) => html`<section class="shortcuts" key=${where}>
        <h3>${where}</h3>
        <dl>${keys.map(([key, does]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
      </section>`,
    )}
  <//>`;
}
