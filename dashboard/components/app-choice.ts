/** A multiple choice of apps with a search by name, which keeps the chosen apps that it does not list. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { html } from '../html.ts';
import { matches, Search } from './search.ts';

export interface AppChoiceProps {
  readonly apps: readonly { readonly appId: string; readonly name: string }[];
  readonly chosen: readonly string[];
  readonly onChoose: (appIds: readonly string[]) => void;
}

/** From this many on, the list has a search field. */
const SEARCH_FROM = 9;

export function AppChoice({ apps, chosen, onChoose }: AppChoiceProps): VNode {
  const [wanted, setWanted] = useState('');
  const found = apps.filter(({ name }) => matches(wanted, name));
  const toggle = (appId: string): void =>
    onChoose(chosen.includes(appId) ? chosen.filter((other) => other !== appId) : [...chosen, appId]);
  return html`<div class="app-choice">
    ${apps.length >= SEARCH_FROM && html`<${Search} label="Find an app" onText=${setWanted} />`}
    <ul class="app-choice-list">
      ${found.map(
        ({ appId, name }) => html`<li key=${appId}><label class="check">
          <input type="checkbox" checked=${chosen.includes(appId)} onChange=${() => toggle(appId)} /><span>${name}</span>
        </label></li>`,
      )}
    </ul>
    ${found.length === 0 && html`<p class="hint" role="status">No app name contains this text.</p>`}
  </div>`;
}
