/** What happened to one's own account, newest first. */
import type { VNode } from 'preact';
import type { AuditPage } from '../../../src/api-types/answers.ts';
import { Ago } from '../../components/ago.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { html } from '../../html.ts';
import type { Resource } from '../../resource.ts';

/** As many as are worth a look; the operator's export has all. */
const SHOWN = 20;

export function AccountActivity({ resource }: { readonly resource: Resource<AuditPage> }): VNode {
  const entries = resource.data?.entries.slice(0, SHOWN) ?? [];
  return html`<${Section} title="Activity" about="The latest changes, and sign-ins from new devices.">
    <${Waiting} for=${resource} lines=${3} />
    ${resource.data && entries.length === 0 && html`<p class="hint">Nothing yet.</p>`}
    <ol class="activity">
      ${entries.map((entry) => html`<li key=${entry.entryId}><span>${entry.text}</span> <span class="muted"><${Ago} at=${entry.at} /></span></li>`)}
    </ol>
  <//>`;
}
