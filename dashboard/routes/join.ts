/** Pages for users without an account or without access to it: sign-up, invitation, password reset, email verification. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type {
  AppReference,
  InvitationDetails,
  NewAccount,
  VerificationDetails,
} from '../../src/api-types/answers.ts';
import { INVITED_TO } from '../../src/base/roles.ts';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { Callout } from '../components/callout.ts';
import { Field, Form } from '../components/field.ts';
import { ProblemBox } from '../components/problem.ts';
import { Skeleton, Waiting } from '../components/waiting.ts';
import { type Children, html } from '../html.ts';
import { useAction, useResource } from '../resource.ts';
import { loadSession, notify, session } from '../state.ts';
import { useTitle } from '../title.ts';
import { signedIn } from './sign-in.ts';

export interface JoinPageProps {
  /** How the address begins. */
  readonly kind: string;
  /** The one-time secret of the link. */
  readonly token?: string;
}

export function JoinPage({ kind, token }: JoinPageProps): VNode {
  if (kind === 'invitations') return html`<${Invited} token=${token} />`;
  if (kind === 'email-verifications') return html`<${EmailVerification} token=${token} />`;
  if (kind === 'password-reset')
    return token ? html`<${NewPassword} token=${token} />` : html`<${AskReset} />`;
  return html`<${SignUp} setupToken=${kind === 'setup' ? token : undefined} />`;
}

function Narrow({ title, children }: { readonly title: string; readonly children: Children }): VNode {
  useTitle(title);
  return html`<div class="narrow"><h1>${title}</h1>${children}</div>`;
}

function PasswordField({ autofocus = false }: { readonly autofocus?: boolean }): VNode {
  const [shown, setShown] = useState(false);
  return html`<${Field} label="Password" name="password" type=${shown ? 'text' : 'password'} autofocus=${autofocus} autocomplete="new-password" autocapitalize="off" spellcheck=${false} minlength="8" hint="At least 8 characters, and not a common password: a sentence is good." />
    <label class="check"><input type="checkbox" checked=${shown} onChange=${() => setShown(!shown)} />Show characters</label>`;
}

function SignUp({ setupToken }: { readonly setupToken?: string }): VNode {
  const { route } = useAddress();
  const [mailed, setMailed] = useState(false);
  const current = session.value;
  const isFirst = setupToken !== undefined || (current?.setup ?? null) !== null;
  const action = useAction(async ({ email, password }: Record<string, string>) => {
    const body = { email, password, ...(setupToken !== undefined && { setupToken }) };
    const { user } = await call<NewAccount>('POST', '/api/users', { body });
    if (user === undefined) setMailed(true);
    else {
      signedIn(user);
      route('/', true);
    }
  });
  if (current === null) return html`<${Narrow} title="Create an account"><${Skeleton} lines=${5} /><//>`;
  if (current.user !== null && !isFirst)
    return html`<${Narrow} title="You are signed in"><p><a href="/">Go to your apps</a></p><//>`;
  if (current.setup === 'link' && setupToken === undefined) {
    return html`<${Narrow} title="Almost there">
      <p>This server has no account yet. Open the one-time link that it printed when it started.</p>
    <//>`;
  }
  if (current.setup === null && current.signup !== 'open') {
    return html`<${Narrow} title="By invitation">
      <p>Accounts are created by invitation: ask an app’s owner.</p>
      <p class="links"><a href="/sign-in">Sign in</a></p>
    <//>`;
  }
  if (mailed)
    return html`<${Narrow} title="Check your mail"><p role="status">A link to finish the sign-up is on its way.</p><//>`;
  return html`<${Narrow} title=${isFirst ? 'Welcome to Tidemark' : 'Create an account'}>
    ${isFirst && html`<p>Create the first account of this server. Others can be invited later.</p>`}
    <${Form} action=${action} submit=${action.busy ? 'One moment…' : 'Create the account'}>
      <${Field} label="Email" name="email" type="email" autocomplete="username" autofocus />
      <${PasswordField} />
    <//>
    ${!isFirst && html`<p class="links"><a href="/sign-in">Sign in with an account</a></p>`}
  <//>`;
}

function Invited({ token = '' }: { readonly token?: string }): VNode {
  const { route, path } = useAddress();
  const invitation = useResource<InvitationDetails>(`/api/invitations/${encodeURIComponent(token)}`);
  const join = useAction(async ({ email, password }: Record<string, string>) => {
    const { user, appId } = await call<NewAccount>('POST', '/api/users', {
      body: { email, password, invitation: token },
    });
    if (user !== undefined) signedIn(user);
    route(appId === undefined ? '/' : `/apps/${appId}`, true);
  });
  const accept = useAction(async () => {
    const { appId } = await call<AppReference>(
      'POST',
      `/api/invitations/${encodeURIComponent(token)}/accept`,
    );
    notify('You are a member now');
    route(`/apps/${appId}`, true);
  });
  const { data } = invitation;
  if (data === undefined) {
    return html`<${Narrow} title="Invitation"><${Waiting} for=${invitation} lines=${5} /><//>`;
  }
  const { appName, email, role } = data;
  const user = session.value?.user;
  const intro = html`<p>You are invited to ${INVITED_TO[role]} <b>${appName}</b>, as <b>${email}</b>.</p>`;
  if (user != null) {
    return html`<${Narrow} title="Invitation">${intro}
      ${user.email !== email && html`<${Callout} tone="note">You are signed in as ${user.email}.<//>`}
      <button class="button primary" aria-disabled=${accept.busy} onClick=${() => accept.run()}>Accept</button>
      <${ProblemBox} problem=${accept.problem} />
    <//>`;
  }
  return html`<${Narrow} title="Invitation">${intro}
    ${
      session.value?.signup !== 'closed' &&
      html`<${Form} action=${join} submit="Create the account and join">
        <${Field} label="Email" name="email" type="email" autocomplete="username" defaultValue=${email} />
        <${PasswordField} autofocus />
      <//>`
    }
    <p class="links"><a href=${`/sign-in?next=${encodeURIComponent(path)}`}>Sign in to accept with an account</a></p>
  <//>`;
}

function AskReset(): VNode {
  const sendsMail = session.value?.mail !== false;
  const [sent, setSent] = useState(false);
  const action = useAction(async ({ email }: Record<string, string>) => {
    await call('POST', '/api/password-resets', { body: { email } });
    setSent(true);
  });
  return html`<${Narrow} title="Reset your password">
    ${
      !sendsMail
        ? html`<p>This server sends no mail. Its operator can reset your password: <code>tidemark user reset-password</code></p>`
        : sent
          ? html`<p role="status">If there is such an account, a mail with a link is on its way.</p>`
          : html`<${Form} action=${action} submit="Send the link"><${Field} label="Email" name="email" type="email" autocomplete="username" autofocus /><//>`
    }
    <p class="links"><a href="/sign-in">Back to sign-in</a></p>
  <//>`;
}

function NewPassword({ token }: { readonly token: string }): VNode {
  const { route } = useAddress();
  const action = useAction(async ({ password }: Record<string, string>) => {
    await call('POST', `/api/password-resets/${encodeURIComponent(token)}`, { body: { password } });
    notify('The password was changed');
    await loadSession();
    route('/sign-in', true);
  });
  return html`<${Narrow} title="A new password">
    <${Form} action=${action} submit="Set the password"><${PasswordField} autofocus /><//>
  <//>`;
}

function EmailVerification({ token = '' }: { readonly token?: string }): VNode {
  const { route, path } = useAddress();
  const url = `/api/email-verifications/${encodeURIComponent(token)}`;
  const verification = useResource<VerificationDetails>(url);
  const action = useAction(async ({ password }: Record<string, string>) => {
    await call('POST', url, { body: password === undefined ? {} : { password } });
    notify('The address is verified');
    await loadSession();
    route('/', true);
  });
  const { data } = verification;
  if (data === undefined)
    return html`<${Narrow} title="Your email address"><${Waiting} for=${verification} lines=${4} /><//>`;
  const canConfirm = data.needsPassword || session.value?.user != null;
  return html`<${Narrow} title="Your email address">
    <p>Verify that <b>${data.email}</b> is yours.</p>
    ${
      canConfirm
        ? html`<${Form} action=${action} submit="Verify">
            ${data.needsPassword && html`<${Field} label="The password you chose" name="password" type="password" autocomplete="current-password" />`}
          <//>`
        : html`<a class="button primary" href=${`/sign-in?next=${encodeURIComponent(path)}`}>Sign in to verify</a>`
    }
  <//>`;
}
