/** A choice of example programs, with a copy button. */
import type { VNode } from 'preact';
import { useId, useState } from 'preact/hooks';
import { callText } from '../api.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import { CopyButton } from './copy.ts';
import { fillIn, parseSnippets, type Snippet, type SnippetPlace } from './snippets.ts';
import { Waiting } from './waiting.ts';

/** A file of its own, for scripts are what every visit waits for. */
const FILE = new URL('../snippets.txt', import.meta.url).href;

export type SnippetGroup = 'send' | 'read' | 'producers';

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
  const file = useResource<readonly Snippet[]>(FILE, {
    load: async (signal) => parseSnippets(await callText('GET', FILE, { signal })),
  });
  const all = file.data?.filter(({ group }) => groups.includes(group as SnippetGroup)) ?? []; // As the file has them.
  const snippet = all[shown];
  const textAt = (at: SnippetPlace): string => fillIn(snippet?.template ?? '', at);
  const isMasked = masked && place.loggingToken !== null;
  return html`<div class="snippets">
    <div class="row-actions">
      <fieldset class="segmented">
        <legend class="sr-only">Program</legend>
        ${all.map((one, index) => html`<label key=${one.name}><input type="radio" name=${name} checked=${index === shown} onChange=${() => setShown(index)} /><span>${one.name}</span></label>`)}
      </fieldset>
      <span class="spacer"></span>
      <${CopyButton} text=${textAt(place)} label="Copy the snippet">Copy<//>
    </div>
    <${Waiting} for=${file} class="code-block" lines=${9} />
    ${snippet && html`<pre class="code-block" tabindex="0" aria-label=${snippet.name}><code>${textAt(isMasked ? { ...place, loggingToken: 'tdl_••••••••' } : place)}</code></pre>`}
  </div>`;
}
