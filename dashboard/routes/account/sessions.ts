/** The sessions of one's own account, each with a way to end it. */

import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { SessionList } from '../../../src/api-types/answers.ts';
import { useAddress } from '../../address.ts';
import { call } from '../../api.ts';
import { Confirm } from '../../components/confirm.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { ago, exact } from '../../format.ts';
import { html } from '../../html.ts';
import { type Resource, useAction } from '../../resource.ts';
import { forgetUser, notify } from '../../state.ts';
import { ownZone } from '../../time-zone.ts';

export interface SessionsProps {
  readonly resource: Resource<SessionList>;
  readonly onChanged: () => void;
}

/** What is about to end. */
type Ending = 'others' | 'everywhere' | null;

export function Sessions({ resource, onChanged }: SessionsProps): VNode {
  const { route } = useAddress();
  const [ending, setEnding] = useState<Ending>(null);
  const close = (): void => setEnding(null);
  const one = useAction(async (sessionId: string) => {
    await call('DELETE', `/api/sessions/${sessionId}`);
    notify('The session has ended');
    onChanged();
  });
  const others = useAction(async () => {
    await call('DELETE', '/api/sessions', { body: { keepCurrent: true } });
    notify('All other sessions have ended');
    close();
    onChanged();
  });
  const everywhere = useAction(async () => {
    await call('DELETE', '/api/sessions');
    route('/sign-in');
    forgetUser();
  });
  const sessions = resource.data?.sessions ?? [];
  return html`<${Section} title="Sessions" about="The browsers in which you are signed in. “Last used” is accurate to a few minutes.">
    <${Waiting} for=${resource} lines=${3} />
    ${
      sessions.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="List of sessions"><table class="list">
        <thead><tr><th scope="col">Device</th><th scope="col">Address</th><th scope="col">Signed in</th><th scope="col">Last used</th><th scope="col"><span class="sr-only">Actions</span></th></tr></thead>
        <tbody>${sessions.map(
          ({ sessionId, device, address, createdAt, lastUsedAt, isCurrent }) => html`<tr key=${sessionId}>
            <th scope="row">${device ?? 'Not stored'}${isCurrent && html` <span class="badge">this one</span>`}</th>
            <td data-label="Address">${address ?? 'not stored'}</td>
            <td data-label="Signed in"><${Time} at=${createdAt} /></td>
            <td data-label="Last used"><${Time} at=${lastUsedAt} /></td>
            <td class="number">${!isCurrent && html`<button type="button" class="button quiet" aria-label=${`Sign out ${device ?? 'the session'}, last used ${ago(Date.parse(lastUsedAt), Date.now())}`} aria-disabled=${one.busy} onClick=${() => one.run(sessionId)}>Sign out</button>`}</td>
          </tr>`,
        )}</tbody>
      </table></div>`
    }
    <div class="row-actions">
      <button type="button" class="button" onClick=${() => setEnding('others')}>Sign out everywhere else…</button>
      <button type="button" class="button" onClick=${() => setEnding('everywhere')}>Sign out everywhere…</button>
    </div>
    ${one.problem && html`<p class="problem" role="alert">${one.problem.message}. ${one.problem.details}</p>`}
    ${ending === 'others' && html`<${Confirm} title="Sign out everywhere else" action=${others} onClose=${close}>Every other browser in which you are signed in has to sign in again.<//>`}
    ${ending === 'everywhere' && html`<${Confirm} title="Sign out everywhere" action=${everywhere} onClose=${close}>Every browser in which you are signed in has to sign in again, this one too.<//>`}
  <//>`;
}

/** How long ago, with the instant as its title. */
export function Time({ at }: { readonly at: string }): VNode {
  const instant = Date.parse(at);
  return html`<time datetime=${at} title=${exact(instant, ownZone())}>${ago(instant, Date.now())}</time>`;
}
