/** What happened to one's own account, newest first. */
import type { VNode } from 'preact';
import type { AuditEntry, AuditPage } from '../../../src/api-types/answers.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { html } from '../../html.ts';
import type { Resource } from '../../resource.ts';
import { Time } from './sessions.ts';

/** As many as are worth a look; the operator's export has all. */
const SHOWN = 20;

export function AccountActivity({ resource }: { readonly resource: Resource<AuditPage> }): VNode {
  const entries = resource.data?.entries.slice(0, SHOWN) ?? [];
  return html`<${Section} title="Activity" about="The latest changes of your account, and sign-ins from devices that were new.">
    <${Waiting} for=${resource} lines=${3} />
    ${resource.data && entries.length === 0 && html`<p class="hint">Nothing yet.</p>`}
    <ol class="activity">
      ${entries.map((entry) => html`<li key=${entry.entryId}><span>${sentence(entry)}</span> <span class="muted"><${Time} at=${entry.at} /></span></li>`)}
    </ol>
  <//>`;
}

const SENTENCES: Readonly<Record<string, string>> = {
  'sign-in.new-device': 'Signed in from a new device',
  'identity.join': 'An identity of the issuer was joined to the account',
  'account.suspend': 'The operator suspended the account',
  'account.resume': 'The operator ended the suspension of the account',
  'identity.leave': 'An identity of the issuer was removed from the account',
  'sign-out.one': 'A session was ended',
  'sign-out.others': 'All other sessions were ended',
  'sign-out.everywhere': 'All sessions were ended',
  'password.change': 'The password was changed',
  'password.reset': 'The password was set by a link',
  'second-factor.enable': 'The second factor was turned on',
  'second-factor.disable': 'The second factor was turned off',
  'second-factor.remove': 'The operator of the server removed the second factor',
  'second-factor.guessing': 'Ten wrong codes in a row were entered',
  'second-factor.lock': 'A hundred wrong codes in a row were entered: a recovery code is needed',
  'recovery-codes.create': 'The recovery codes were replaced',
  'recovery-code.use': 'A recovery code was used',
};

/** An action that this page does not know yet is named as it is. */
function sentence({ action, details }: AuditEntry): string {
  const { device, address } = details;
  const where = [device, address].filter((part) => typeof part === 'string').join(', ');
  return `${SENTENCES[action] ?? action}${where === '' ? '' : `: ${where}`}`;
}
