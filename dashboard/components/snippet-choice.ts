/** Choosing one of the programs that send and read, and copying it. */
import type { VNode } from 'preact';
import { useId, useState } from 'preact/hooks';
import { html } from '../html.ts';
import { CopyButton } from './copy.ts';
import { reading, type SnippetPlace, sending } from './snippets.ts';

export type SnippetGroup = 'send' | 'read';

export interface SnippetsProps {
  readonly place: SnippetPlace;
  readonly groups: readonly SnippetGroup[];
}

/** A choice of programs, and the one that is chosen. */
export function Snippets({ place, groups }: SnippetsProps): VNode {
  const name = useId();
  const [shown, setShown] = useState(0);
  const all = groups.flatMap((group) => (group === 'send' ? sending(place) : reading(place)));
  const snippet = all[shown];
  return html`<div class="snippets">
    <div class="row-actions">
      <fieldset class="segmented">
        <legend class="sr-only">Program</legend>
        ${all.map((one, index) => html`<label key=${one.name}><input type="radio" name=${name} checked=${index === shown} onChange=${() => setShown(index)} /><span>${one.name}</span></label>`)}
      </fieldset>
      <span class="spacer"></span>
      <${CopyButton} text=${snippet?.text ?? ''} label="Copy the snippet">Copy<//>
    </div>
    <pre class="code-block" tabindex="0" aria-label=${snippet?.name}><code>${snippet?.text}</code></pre>
  </div>`;
}
