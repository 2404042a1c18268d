/** Signing in: the page, which then continues to the requested one, and a dialog over a page whose session has ended. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { CodeSignIn, SignInStep, User } from '../../src/api-types/answers.ts';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { Dialog } from '../components/dialog.ts';
import { Field, Form } from '../components/field.ts';
import { IssuerProblem } from '../components/issuer-problem.ts';
import { counted } from '../format.ts';
import { html } from '../html.ts';
import { useAction } from '../resource.ts';
import { forgetUser, notify, renewal, session } from '../state.ts';
import { useTitle } from '../title.ts';
import { safeNext } from '../url.ts';

export function SignInPage(): VNode {
  useTitle('Sign in');
  const { query, route } = useAddress();
  const next = safeNext(query.next ?? null, location.origin);
  const current = session.value;
  useEffect(() => {
    if (current?.user != null) route(next, true);
  }, [current]);
  return html`<div class="narrow">
    <${IssuerProblem} />
    <${SignInSteps} head="h1" next=${next} onSignedIn=${signedIn} />
  </div>`;
}

/** Over the page whose session has ended, which goes on afterwards with what was typed. */
export function SignInAgain(): VNode | null {
  const { user = null } = session.value ?? {};
  const done = renewal.value;
  if (done === null || user === null) return null;
  const again = (renewedUser: User): void => {
    // The page has the data of another account.
    if (renewedUser.userId !== user.userId) location.assign('/');
    else done(true);
  };
  return html`<${Dialog} locked title="Your session has ended" onClose=${() => undefined}>
    <p>Sign in again to continue. The page keeps what you have typed.</p>
    <${SignInSteps} email=${user.email} onSignedIn=${again} onLeave=${forgetUser} />
  <//>`;
}

interface StepsProps {
  /** The heading's tag, where there is one. */
  readonly head?: 'h1';
  /** The page to go on with. */
  readonly next?: string;
  /** Email of the account that is expected. */
  readonly email?: string;
  readonly onSignedIn: (user: User) => void;
  /** What else one may do than sign in; without it there are the links of the page. */
  readonly onLeave?: () => void;
}

/** Email and password, and then a code where the account has a second factor. */
function SignInSteps({ head, next, email, onSignedIn, onLeave }: StepsProps): VNode {
  const [challenge, setChallenge] = useState<string | null>(null);
  const current = session.value;
  const action = useAction(async (values: Record<string, string>) => {
    const answer = await call<SignInStep>('POST', '/api/session', {
      body: { email: values.email, password: values.password },
    });
    if ('user' in answer) onSignedIn(answer.user);
    else setChallenge(answer.challenge);
  });
  if (challenge !== null)
    return html`<${CodeStep} head=${head} challenge=${challenge} onSignedIn=${onSignedIn} onBack=${() => setChallenge(null)} />`;
  const oidc = current?.oidc ?? null;
  return html`${head && html`<h1>Sign in</h1>`}
    ${
      oidc !== null &&
      html`<p class="links">
        <a class="button primary" href=${`/sign-in/oidc?next=${encodeURIComponent(next ?? location.pathname + location.search)}`} target="_self">Sign in with ${oidc.name}</a>
        ${!oidc.available && html`<span class="muted" role="status">It does not answer at the moment.</span>`}
      </p>
      ${oidc.only && html`<p class="muted">Passwords are for break-glass accounts only.</p>`}`
    }
    <${Form} action=${action} submit=${action.busy ? 'Signing in…' : 'Sign in'} cancel="Sign out" onCancel=${onLeave}>
      <${Field} label="Email" name="email" type="email" autocomplete="username" defaultValue=${email} autofocus=${email === undefined} />
      <${Field} label="Password" name="password" type="password" autocomplete="current-password" data-first />
    <//>
    ${
      onLeave === undefined &&
      html`<p class="muted links">
        ${current?.mail ? html`<a href="/password-reset">Forgot your password?</a>` : html`<span>Forgot your password? The operator of this server can reset it: <code>tidemark user reset-password</code></span>`}
        ${current?.signup === 'open' && html`<a href="/sign-up">Create an account</a>`}
      </p>`
    }`;
}

/** Signed in, or the password was right and a code is needed too. */
interface CodeStepProps extends Pick<StepsProps, 'head' | 'onSignedIn'> {
  readonly challenge: string;
  readonly onBack: () => void;
}

/** The second step: a code of the authenticator app. */
function CodeStep({ head, challenge, onSignedIn, onBack }: CodeStepProps): VNode {
  const action = useAction(async ({ code }: Record<string, string>) => {
    const answer = await call<CodeSignIn>('POST', '/api/session/code', { body: { challenge, code } });
    const said = warningsOf(answer);
    if (said !== '') notify(said);
    onSignedIn(answer.user);
  });
  return html`${head ? html`<h1>Enter your code</h1>` : html`<p>Enter your code.</p>`}
    <${Form} action=${action} submit=${action.busy ? 'Signing in…' : 'Sign in'}>
      <${Field} label="Code" name="code" autocomplete="one-time-code" spellcheck=${false} autofocus hint="From your authenticator app, or a recovery code." />
    <//>
    <p class="muted links">
      <button class="button quiet" onClick=${onBack}>Begin again</button>
      <span>Lost both? The operator of this server can help: <code>tidemark user remove-second-factor</code></span>
    </p>`;
}

function warningsOf({ recoveryCodesLeft, wrongCodes }: CodeSignIn): string {
  const tried =
    wrongCodes > 0
      ? [`${counted(wrongCodes, 'wrong code')} before this one: if it was not you, set a new password`]
      : [];
  const left =
    recoveryCodesLeft < 4
      ? [`${counted(recoveryCodesLeft, 'recovery code')} left: make new ones on the page of your account`]
      : [];
  return [...tried, ...left].join('. ');
}

/** Switches the page to a new session. */
export function signedIn(user: User): void {
  const current = session.value;
  if (current !== null) session.value = { ...current, user, setup: null };
}
