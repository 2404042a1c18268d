/** Removing a member, or leaving: which tokens end with the membership, and which an owner keeps. */
import type { VNode } from 'preact';
import { useLocation } from 'preact-iso/router';
import type { App, Member, ResourceToken } from '../../answers.ts';
import { call } from '../../api.ts';
import { Dialog } from '../../components/dialog.ts';
import { Form } from '../../components/field.ts';
import { Skeleton, Waiting } from '../../components/waiting.ts';
import { ago } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction, useResource } from '../../resource.ts';
import { notify, session } from '../../state.ts';
import { isOver, type TokenList } from './resource-tokens.ts';

export interface RemoveMemberProps {
  readonly app: App;
  readonly member: Member;
  readonly onRemoved: () => void;
  readonly onClose: () => void;
}

export function RemoveMember({ app, member, onRemoved, onClose }: RemoveMemberProps): VNode {
  const { route } = useLocation();
  const path = `/api/apps/${app.appId}`;
  const leaves = member.userId === session.value?.user?.userId;
  // Asked for now: the page's own list may be older than the newest token.
  const tokens = useResource<TokenList>(`${path}/tokens`, { scope: `${path}/tokens of ${member.userId}` });
  const isKnown = tokens.data !== undefined && !tokens.loading;
  const own = (tokens.data?.tokens ?? []).filter(
    (token) => token.createdBy?.userId === member.userId && !isOver(token),
  );
  const action = useAction(async (values: Record<string, string>) => {
    const keepTokens = own.map(({ tokenId }) => tokenId).filter((tokenId) => values[tokenId] === 'on');
    await call('DELETE', `${path}/members/${member.userId}`, { body: { keepTokens } });
    if (!leaves) return onRemoved();
    notify(`You have left ${app.name}`);
    route('/', true);
  });
  const title = leaves ? 'Leave the app' : 'Remove the member';
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${leaves ? 'You' : member.email} will not see ${app.name} any more.</p>
    ${!leaves && html`<p class="hint">${member.email} has seen the logging token: rotate it where events must come from you alone.</p>`}
    ${isKnown || tokens.problem !== null ? html`<${Waiting} for=${tokens} lines=${2} />` : html`<${Skeleton} lines=${2} />`}
    ${
      isKnown &&
      html`<${Form} class="stacked" danger action=${action} submit=${title}>
        ${own.length > 0 && (leaves ? html`<${Ending} tokens=${own} />` : html`<${Choice} member=${member} tokens=${own} />`)}
      <//>`
    }
  <//>`;
}

interface TokensProps {
  readonly tokens: readonly ResourceToken[];
}

function Ending({ tokens }: TokensProps): VNode {
  return html`<div class="callout tokens-ending"><p>These resource tokens, which you made, stop reading this app:</p>
    <ul>${tokens.map((token) => html`<li key=${token.tokenId}>${token.name}, ${lastUse(token)}</li>`)}</ul>
  </div>`;
}

function Choice({ member, tokens }: TokensProps & { readonly member: Member }): VNode {
  return html`<fieldset class="callout tokens-ending">
    <legend>Resource tokens that ${member.email} made</legend>
    <p>They stop reading this app now. Keep one only where a program needs it until it has another: anyone who has its text can still read.</p>
    ${tokens.map(
      (token) => html`<label class="check" key=${token.tokenId}>
        <input type="checkbox" name=${token.tokenId} /><span>Keep ${token.name}, ${lastUse(token)}</span>
      </label>`,
    )}
  </fieldset>`;
}

function lastUse({ lastUsedAt }: ResourceToken): string {
  return lastUsedAt === null ? 'never used' : `last used ${ago(Date.parse(lastUsedAt), Date.now())}`;
}
