/** A choice of example programs, with a copy button. */
import type { VNode } from 'preact';
import { useId, useState } from 'preact/hooks';
import { html } from '../html.ts';
import { CopyButton } from './copy.ts';
import { producers, reading, type Snippet, type SnippetPlace, sending } from './snippets.ts';

export type SnippetGroup = 'send' | 'read' | 'producers';

const GROUPS: Readonly<Record<SnippetGroup, (place: SnippetPlace) => Snippet[]>> = {
  send: sending,
  read: reading,
  producers,
};

export interface SnippetsProps {
  readonly place: SnippetPlace;
  readonly groups: readonly SnippetGroup[];
  /** The logging token is copied, and not shown. */
  readonly masked?: boolean;
}

/** A choice of programs, and the one that is chosen. */
export function Snippets({ place, groups, masked = false }: SnippetsProps): VNode {
  const name = useId();
  const [shown, setShown] = useState(0);
  const all = groups.flatMap((group) => GROUPS[group](place));
  const snippet = all[shown];
  const text = snippet?.text ?? '';
  const { loggingToken } = place;
  const shownText = masked && loggingToken !== null ? text.replace(loggingToken, 'tdl_••••••••') : text;
  return html`<div class="snippets">
    <div class="row-actions">
      <fieldset class="segmented">
        <legend class="sr-only">Program</legend>
        ${all.map((one, index) => html`<label key=${one.name}><input type="radio" name=${name} checked=${index === shown} onChange=${() => setShown(index)} /><span>${one.name}</span></label>`)}
      </fieldset>
      <span class="spacer"></span>
      <${CopyButton} text=${text} label="Copy the snippet">Copy<//>
    </div>
    <pre class="code-block" tabindex="0" aria-label=${snippet?.name}><code>${shownText}</code></pre>
  </div>`;
}
