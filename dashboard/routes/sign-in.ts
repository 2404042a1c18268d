/** The sign-in page, which then continues to the requested page. */
import type { VNode } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { User } from '../answers.ts';
import { call } from '../api.ts';
import { Callout } from '../components/callout.ts';
import { Field, Form } from '../components/field.ts';
import { focusFirst } from '../focus.ts';
import { counted } from '../format.ts';
import { html } from '../html.ts';
import { useAction } from '../resource.ts';
import { notify, session, sessionEnded } from '../state.ts';
import { useTitle } from '../title.ts';
import { safeNext } from '../url.ts';

export function SignInPage(): VNode {
  useTitle('Sign in');
  const { query, route } = useLocation();
  const next = safeNext(query.next ?? null, location.origin);
  const current = session.value;
  useEffect(() => {
    if (current?.user != null) route(next, true);
  }, [current]);
  const [challenge, setChallenge] = useState<string | null>(null);
  const action = useAction(async ({ email, password }: Record<string, string>) => {
    const answer = await call<FirstStep>('POST', '/api/session', { body: { email, password } });
    if ('user' in answer) signedIn(answer.user);
    else setChallenge(answer.challenge);
  });
  if (challenge !== null)
    return html`<${CodeStep} challenge=${challenge} onBack=${() => setChallenge(null)} />`;
  return html`<div class="narrow">
    <h1>Sign in</h1>
    ${sessionEnded.value && html`<${Callout} status tone="note">Your session has ended. Sign in again to continue.<//>`}
    <${Form} action=${action} submit=${action.busy ? 'Signing in…' : 'Sign in'}>
      <${Field} label="Email" name="email" type="email" autocomplete="username" autofocus />
      <${Field} label="Password" name="password" type="password" autocomplete="current-password" />
    <//>
    <p class="muted links">
      ${current?.mail ? html`<a href="/password-reset">Forgot your password?</a>` : html`<span>Forgot your password? The operator of this server can reset it: <code>tidemark user reset-password</code></span>`}
      ${current?.signup === 'open' && html`<a href="/sign-up">Create an account</a>`}
    </p>
  </div>`;
}

/** Signed in, or the password was right and a code is needed too. */
type FirstStep = { readonly user: User } | { readonly challenge: string };

interface CodeStepProps {
  readonly challenge: string;
  readonly onBack: () => void;
}

/** The second step: a code of the authenticator app. */
function CodeStep({ challenge, onBack }: CodeStepProps): VNode {
  const form = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => focusFirst(form.current, ['input']), []);
  const action = useAction(async ({ code }: Record<string, string>) => {
    const answer = await call<SecondStep>('POST', '/api/session/code', { body: { challenge, code } });
    const said = warningsOf(answer);
    if (said !== '') notify(said);
    signedIn(answer.user);
  });
  return html`<div class="narrow" ref=${form}>
    <h1>Enter your code</h1>
    <${Form} action=${action} submit=${action.busy ? 'Signing in…' : 'Sign in'}>
      <${Field} label="Code" name="code" autocomplete="one-time-code" spellcheck=${false} hint="Of your authenticator app, or a recovery code." />
    <//>
    <p class="muted links">
      <button type="button" class="button quiet" onClick=${onBack}>Begin again</button>
      <span>Lost both? The operator of this server can help: <code>tidemark user remove-second-factor</code></span>
    </p>
  </div>`;
}

interface SecondStep {
  readonly user: User;
  readonly recoveryCodesLeft: number;
  /** Entered since the last right code: those of another person show that the password is known. */
  readonly wrongCodes: number;
}

function warningsOf({ recoveryCodesLeft, wrongCodes }: SecondStep): string {
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
  sessionEnded.value = false;
  const current = session.value;
  if (current !== null) session.value = { ...current, user, setup: null };
}
