/** Removing a member, or leaving: which tokens, webhooks and alerts end with the membership, and which an owner keeps. */
import type { VNode } from 'preact';
import type {
  AlertList,
  App,
  Member,
  ResourceTokenList,
  WebhookList,
} from '../../../src/api-types/answers.ts';
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
  const webhooks = useResource<WebhookList>(`${path}/webhooks`);
  const alerts = useResource<AlertList>(`${path}/alerts`);
  const isOwn = ({ createdBy }: Pick<WebhookList['webhooks'][number], 'createdBy'>): boolean =>
    createdBy?.userId === member.userId;
  const hooks = (webhooks.data?.webhooks ?? []).filter(isOwn);
  const told = (alerts.data?.alerts ?? []).filter((one) => isOwn(one) && one.alertmanager !== null);
  const action = useAction(async (values: Record<string, string>) => {
    const kept = (ids: readonly string[]): string[] => ids.filter((id) => values[id] === 'on');
    const body = {
      keepTokens: kept(own.map(({ tokenId }) => tokenId)),
      keepWebhooks: kept(hooks.map(({ webhookId }) => webhookId)),
      keepAlerts: kept(told.map(({ alertId }) => alertId)),
    };
    await call('DELETE', `${path}/members/${member.userId}`, { body });
    if (!leaves) return onRemoved();
    notify(`You have left ${app.name}`);
    route('/', true);
  });
  const title = leaves ? 'Leave the app' : 'Remove the member';
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${leaves ? 'You' : member.email} will no longer see ${app.name}.${!leaves && ' Rotate the logging token too if only you may write.'}</p>
    ${[tokens, webhooks, alerts].map((one, index) => html`<${Waiting} key=${index} for=${one} lines=${1} />`)}
    ${
      tokens.data &&
      webhooks.data &&
      alerts.data &&
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
        ${
          hooks.length + told.length > 0 &&
          html`<fieldset class="callout tokens-ending">
            <legend>What ${member.email} has sent elsewhere</legend>
            <p>These webhooks are disabled, and these alerts no longer tell their Alertmanager.${!leaves && ' What you keep is yours.'}</p>
            ${hooks.map(
              ({ webhookId, url }) => html`<label class="check" key=${webhookId}>
                ${!leaves && html`<input type="checkbox" name=${webhookId} />`}
                <span>${!leaves && 'Keep '}the webhook ${url}</span>
              </label>`,
            )}
            ${told.map(
              ({ alertId, name, alertmanager }) => html`<label class="check" key=${alertId}>
                ${!leaves && html`<input type="checkbox" name=${alertId} />`}
                <span>${!leaves && 'Keep '}${alertmanager} for the alert ${name}</span>
              </label>`,
            )}
          </fieldset>`
        }
      <//>`
    }
  <//>`;
}
