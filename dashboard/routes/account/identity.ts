/** The account's identity at the OIDC issuer: joined by its user alone. */
import type { VNode } from 'preact';
import type { IdentityState } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import { IssuerProblem } from '../../components/issuer-problem.ts';
import { ProblemBox } from '../../components/problem.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { html } from '../../html.ts';
import { useAction, useResource } from '../../resource.ts';
import { notify } from '../../state.ts';

export function Identity({ name }: { readonly name: string }): VNode {
  const resource = useResource<IdentityState>('/api/identity');
  const { data } = resource;
  const join = useAction(async () => {
    const { location: there } = await call<{ location: string }>('POST', '/api/identity');
    location.assign(there);
  });
  const leave = useAction(async () => {
    await call('DELETE', '/api/identity');
    notify(`You no longer sign in with ${name}`);
    resource.reload();
  });
  const action = data?.joined ? leave : join;
  return html`<${Section} title=${`Sign-in with ${name}`} about="The identity that signs in to this account at the issuer.">
    <${Waiting} for=${resource} lines=${1} />
    <${IssuerProblem} />
    <${ProblemBox} problem=${action.problem} />
    ${
      data &&
      html`<p>${data.joined ? `Your identity at ${data.issuer} is joined.` : `No identity at ${data.issuer} is joined.`}</p>
        <button class="button" aria-disabled=${action.busy} onClick=${() => action.run()}>${data.joined ? 'Remove it' : `Join my identity`}</button>`
    }
  <//>`;
}
