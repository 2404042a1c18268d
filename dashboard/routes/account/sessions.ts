/** The sessions of one's own account, each with a way to end it. */

import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { SessionList } from '../../../src/api-types/answers.ts';
import { useAddress } from '../../address.ts';
import { call } from '../../api.ts';
import { Ago } from '../../components/ago.ts';
import { Confirm } from '../../components/confirm.ts';
import { ProblemBox } from '../../components/problem.ts';
import { Section } from '../../components/section.ts';
import { rowButton, table } from '../../components/table.ts';
import { Waiting } from '../../components/waiting.ts';
import { ago } from '../../format.ts';
import { html } from '../../html.ts';
import { type Resource, useAction } from '../../resource.ts';
import { forgetUser, notify } from '../../state.ts';

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
  const sessions = resource.data?.sessions ?? [];
  return html`<${Section} title="Sessions" about="The browsers in which you are signed in.">
    <${Waiting} for=${resource} lines=${3} />
    ${
      resource.data &&
      table(sessions, {
        label: 'Sessions',
        id: ({ sessionId }) => sessionId,
        columns: [
          [
            'Device',
            ({ device, isCurrent }) =>
              html`${device ?? 'Not stored'}${isCurrent && html` <span class="badge">this one</span>`}`,
          ],
          ['Address', ({ address }) => address ?? 'not stored'],
          ['Signed in', ({ createdAt }) => html`<${Ago} at=${createdAt} />`],
          ['Last used', ({ lastUsedAt }) => html`<${Ago} at=${lastUsedAt} />`],
          [
            '',
            ({ sessionId, device, lastUsedAt, isCurrent }) =>
              !isCurrent &&
              rowButton(
                'Sign out',
                `${device ?? 'the session'}, last used ${ago(Date.parse(lastUsedAt), Date.now())}`,
                () => one.run(sessionId),
              ),
          ],
        ],
      })
    }
    <div class="row-actions">
      <button class="button" onClick=${() => setEnding('others')}>Sign out everywhere else…</button>
      <button class="button" onClick=${() => setEnding('everywhere')}>Sign out everywhere…</button>
    </div>
    <${ProblemBox} problem=${one.problem} />
    ${ending === 'others' && html`<${Confirm} title="Sign out everywhere else" path="/api/sessions" body=${{ keepCurrent: true }} said="All other sessions have ended" onDone=${onChanged} onClose=${close}>Every other browser in which you are signed in has to sign in again.<//>`}
    ${
      ending === 'everywhere' &&
      html`<${Confirm} title="Sign out everywhere" path="/api/sessions" said="" onClose=${close} onDone=${() => {
        route('/sign-in');
        forgetUser();
      }}>Every browser in which you are signed in has to sign in again, this one too.<//>`
    }
  <//>`;
}
