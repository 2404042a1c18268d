/** Removing a member, or leaving: which tokens end with the membership, and which an owner keeps. */
import type { VNode } from 'preact';
import type { App, Member, ResourceTokenList } from '../../../src/api-types/answers.ts';
import { useAddress } from '../../address.ts';
import { call } from '../../api.ts';
import { Ago } from '../../components/ago.ts';
import { Dialog } from '../../components/dialog.ts';
import { Form } from '../../components/field.ts';
import { Waiting } from '../../components/waiting.ts';
import { html } from '../../html.ts';
import { useAction, useResource } from '../../resource.ts';
import { notify, session } from '../../state.ts';
import { isOver } from './resource-tokens.ts';

export interface RemoveMemberProps {
  readonly app: App;
  readonly member: Member;
  readonly onRemoved: () => void;
  readonly onClose: () => void;
}

export function RemoveMember({ app, member, onRemoved, onClose }: RemoveMemberProps): VNode {
  const { route } = useAddress();
  const path = `/api/apps/${app.appId}`;
  const leaves = member.userId === session.value?.user?.userId;
  const tokens = useResource<ResourceTokenList>(`${path}/tokens?of=${member.userId}`);
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
    <p>${leaves ? 'You' : member.email} will no longer see ${app.name}.${!leaves && ' Rotate the logging token too if only you may write.'}</p>
    <${Waiting} for=${tokens} lines=${2} />
    ${
      tokens.data &&
      html`<${Form} danger action=${action} submit=${title} onCancel=${onClose}>
        ${
          own.length > 0 &&
          html`<fieldset class="callout tokens-ending">
            <legend>Resource tokens of ${member.email}</legend>
            <p>They lose access to this app immediately.${!leaves && ' Anyone who has the text of a token that you keep can still read.'}</p>
            ${own.map(
              ({ tokenId, name, lastUsedAt }) => html`<label class="check" key=${tokenId}>
                ${!leaves && html`<input type="checkbox" name=${tokenId} />`}
                <span>${!leaves && 'Keep '}${name}, ${lastUsedAt === null ? 'never used' : html`last used <${Ago} at=${lastUsedAt} />`}</span>
              </label>`,
            )}
          </fieldset>`
        }
      <//>`
    }
  <//>`;
}
