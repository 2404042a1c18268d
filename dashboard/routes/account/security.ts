/** What protects one's own account: the second factor, the sessions, and what has happened. Loaded with the page of the account. */
import { Fragment, type VNode } from 'preact';
import type { AuditPage, SecondFactorState, SessionList } from '../../../src/api-types/answers.ts';
import { html } from '../../html.ts';
import { useResource } from '../../resource.ts';
import { session } from '../../state.ts';
import { AccountActivity } from './activity.ts';
import { Identity } from './identity.ts';
import { SecondFactor } from './second-factor.ts';
import { Sessions } from './sessions.ts';

export function Security(): VNode {
  const factor = useResource<SecondFactorState>('/api/second-factor');
  const sessions = useResource<SessionList>('/api/sessions');
  const activity = useResource<AuditPage>('/api/activity');
  const onChanged = (): void => {
    for (const { reload } of [factor, sessions, activity]) reload();
  };
  return html`<${Fragment}>
    ${session.value?.oidc && html`<${Identity} name=${session.value.oidc.name} />`}
    <${SecondFactor} resource=${factor} onChanged=${onChanged} />
    <${Sessions} resource=${sessions} onChanged=${onChanged} />
    <${AccountActivity} resource=${activity} />
  <//>`;
}
