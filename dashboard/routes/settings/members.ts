/** Who works with the app: added by e-mail, removed, and leaving by themselves. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Invitation, Member } from '../../answers.ts';
import { call } from '../../api.ts';
import { Callout } from '../../components/callout.ts';
import { Confirm } from '../../components/confirm.ts';
import { Copyable } from '../../components/copy.ts';
import { Field, Form } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { date } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { notify, session } from '../../state.ts';
import { ownZone } from '../../time-zone.ts';
import type { SectionProps } from '../settings.ts';
import { RemoveMember } from './remove-member.ts';

export interface MemberList {
  readonly members: readonly Member[];
  readonly invitations: readonly Invitation[];
}

type Added =
  | { readonly added: true }
  | { readonly invited: true; readonly link: string; readonly mailed: boolean };

/** What is about to be taken away, once it is confirmed. */
type Removal = Member | Invitation;

export interface MembersProps extends SectionProps<MemberList> {
  /** Called after a removal, which may have ended tokens too. */
  readonly onRemoved: () => void;
}

export function Members({ app, resource, onChanged, onRemoved }: MembersProps): VNode {
  const path = `/api/apps/${app.appId}/members`;
  const { data } = resource;
  const reload = (): void => {
    resource.reload();
    onChanged();
  };
  const [removal, setRemoval] = useState<Removal | null>(null);
  const me = session.value?.user?.userId;
  const isOwner = app.role === 'owner';
  const close = (): void => setRemoval(null);
  const removed = (): void => {
    close();
    notify('Removed');
    reload();
    onRemoved();
  };
  const withdraw = useAction(async () => {
    if (removal === null || 'userId' in removal) return;
    await call('DELETE', `/api/apps/${app.appId}/invitations/${removal.invitationId}`);
    removed();
  });
  const about =
    'Maintainers see everything and create event types and resource tokens. The owner also renames, deletes, and decides who is here.';
  return html`<${Section} title="Members" about=${about}>
    <${Waiting} for=${resource} lines=${3} />
    ${
      data &&
      html`<ul class="people">
        ${data.members.map(
          (member) => html`<li key=${member.userId}>
            <span class="name">${member.email}</span> <span class="badge">${member.role}</span>
            ${!member.emailProved && html` <span class="badge">e-mail not confirmed</span>`}
            <span class="spacer"></span>
            ${
              member.role !== 'owner' &&
              (isOwner || member.userId === me) &&
              html`<button type="button" class="button quiet" aria-label=${member.userId === me ? undefined : `Remove ${member.email}`} onClick=${() => setRemoval(member)}>${member.userId === me ? 'Leave' : 'Remove'}</button>`
            }
          </li>`,
        )}
        ${data.invitations.map(
          (invitation) => html`<li key=${invitation.invitationId}>
            <span class="name">${invitation.email}</span> <span class="badge">invited until ${date(Date.parse(invitation.expiresAt), ownZone())}</span>
            <span class="spacer"></span>
            ${
              isOwner &&
              html`<button type="button" class="button quiet" aria-label=${`Withdraw the invitation of ${invitation.email}`} onClick=${() => setRemoval(invitation)}>Withdraw</button>`
            }
          </li>`,
        )}
      </ul>`
    }
    ${isOwner && data && html`<${AddMember} path=${path} onAdded=${reload} />`}
    ${
      removal &&
      ('userId' in removal
        ? html`<${RemoveMember} app=${app} member=${removal} onRemoved=${removed} onClose=${close} />`
        : html`<${Confirm} title="Withdraw the invitation" action=${withdraw} onClose=${close}>The link that ${removal.email} was given stops working.<//>`)
    }
  <//>`;
}

function AddMember({ path, onAdded }: { readonly path: string; readonly onAdded: () => void }): VNode {
  const [result, setResult] = useState<{ email: string; added: Added } | null>(null);
  const action = useAction(async ({ email = '' }: Record<string, string>, form: HTMLFormElement) => {
    const added = await call<Added>('POST', path, { body: { email } });
    form.reset();
    setResult({ email, added });
    onAdded();
  });
  return html`<${Form} layout="row" action=${action} submit="Add"><${Field} label="Add a maintainer by e-mail" name="email" type="email" placeholder="name@example.com" /><//>
    ${
      result &&
      html`<${Callout} status tone="good">
        ${
          'link' in result.added
            ? html`<p>${result.email} has an invitation${result.added.mailed ? ', which was mailed.' : '. Pass on this link; it is shown only now:'} The first account that opens it joins, under any address.</p><${Copyable} text=${result.added.link} label="Copy the invitation link" />`
            : html`<p>${result.email} is a maintainer now.</p>`
        }
      <//>`
    }`;
}
