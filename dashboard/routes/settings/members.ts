/** Who works with the app: added by email, removed, and leaving by themselves. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Invitation, Member, MemberList, NewMember } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import type { SectionProps } from '../../app-tab.ts';
import { Confirm } from '../../components/confirm.ts';
import { Copyable } from '../../components/copy.ts';
import { Dialog } from '../../components/dialog.ts';
import { Field, Form, Select } from '../../components/field.ts';
import { ProblemBox } from '../../components/problem.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { ownDate } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { notify, session } from '../../state.ts';
import { RemoveMember } from './remove-member.ts';

interface Invited {
  readonly email: string;
  readonly link: string;
  readonly mailed: boolean;
}

/** Roles that an owner gives, and their names. */
const ROLES = [
  ['viewer', 'viewer'],
  ['maintainer', 'maintainer'],
] as const;

/** The removal that waits for confirmation. */
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
  const isOwner = app.may.includes('own');
  const owners = data?.members.filter(({ role }) => role === 'owner').length ?? 0;
  const close = (): void => setRemoval(null);
  const removed = (): void => {
    close();
    notify('Removed');
    reload();
    onRemoved();
  };
  const changeRole = useAction(async (member: Member, role: string) => {
    await call('PATCH', `${path}/${member.userId}`, { body: { role } });
    notify(`${member.email} is a ${role} now`);
    reload();
  });
  const about =
    'Viewers see all but tokens. Maintainers also create types and tokens. Owners manage members and the app.';
  return html`<${Section} title="Members" about=${about}>
    <${Waiting} for=${resource} lines=${3} />
    ${
      data &&
      html`<ul class="people">
        ${data.members.map(
          (member) => html`<li key=${member.userId}>
            <span class="people-who"><span>${member.email}</span> ${!isOwner || member.role === 'owner' ? html`<span class="badge">${member.role}</span>` : null} ${member.byGroup !== null && html`<span class="badge" title=${`By the group ${member.byGroup} of the issuer`}>by group</span>`}
            ${!member.emailVerified && html` <span class="badge">email not verified</span>`}</span>
            ${
              isOwner &&
              member.role !== 'owner' &&
              html`<select aria-label=${`Role of ${member.email}`} value=${member.role} onChange=${(event: Event) => changeRole.run(member, (event.currentTarget as HTMLSelectElement).value)}>${ROLES.map(([role, label]) => html`<option value=${role}>${label}</option>`)}</select>`
            }
            ${
              (member.role !== 'owner' || owners > 1) &&
              (isOwner || member.userId === me) &&
              html`<button class="button quiet" aria-label=${member.userId === me ? undefined : `Remove ${member.email}`} onClick=${() => setRemoval(member)}>${member.userId === me ? 'Leave' : 'Remove'}</button>`
            }
          </li>`,
        )}
        ${data.invitations.map(
          (invitation) => html`<li key=${invitation.invitationId}>
            <span class="people-who"><span>${invitation.email}</span> <span class="badge">invited as ${invitation.role} until ${ownDate(invitation.expiresAt)}</span></span>
            ${
              isOwner &&
              html`<button class="button quiet" aria-label=${`Withdraw the invitation of ${invitation.email}`} onClick=${() => setRemoval(invitation)}>Withdraw</button>`
            }
          </li>`,
        )}
      </ul>`
    }
    <${ProblemBox} problem=${changeRole.problem} />
    ${isOwner && data && html`<${AddMember} path=${path} onAdded=${reload} />`}
    ${
      removal &&
      ('userId' in removal
        ? html`<${RemoveMember} app=${app} member=${removal} onRemoved=${removed} onClose=${close} />`
        : html`<${Confirm} title="Withdraw the invitation" path=${`/api/apps/${app.appId}/invitations/${removal.invitationId}`} said="Removed" onDone=${removed} onClose=${close}>The link that ${removal.email} was given stops working.<//>`)
    }
  <//>`;
}

function AddMember({ path, onAdded }: { readonly path: string; readonly onAdded: () => void }): VNode {
  const [invited, setInvited] = useState<Invited | null>(null);
  const close = (): void => setInvited(null);
  const action = useAction(
    async ({ email = '', role = '' }: Record<string, string>, form: HTMLFormElement) => {
      const added = await call<NewMember>('POST', path, { body: { email, role } });
      form.reset();
      setInvited({ email, ...added });
      onAdded();
    },
  );
  return html`<${Form} layout="row" action=${action} submit="Add"><${Field} label="Add a member by email" name="email" type="email" placeholder="name@example.com" /><${Select} label="As" name="role" options=${ROLES} /><//>
    ${
      invited &&
      html`<${Dialog} locked=${!invited.mailed} title="The invitation" onClose=${close}>
        <p>${invited.mailed ? `A mail with this link is on its way to ${invited.email}.` : `Send this link to ${invited.email}. It is shown only once: copy it before you close this dialog.`} An account that has verified the address has the app already. Otherwise the first account that opens the link joins.</p>
        <${Copyable} text=${invited.link} label="Copy the invitation link" />
        <div class="form-actions"><button class="button primary" onClick=${close}>${invited.mailed ? 'Close' : 'I have copied it'}</button></div>
      <//>`
    }`;
}
