/** The sign-in page, which then continues to the requested page. */
import type { VNode } from 'preact';
import { useEffect } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { User } from '../answers.ts';
import { call } from '../api.ts';
import { Callout } from '../components/callout.ts';
import { Field, Form } from '../components/field.ts';
import { html } from '../html.ts';
import { useAction } from '../resource.ts';
import { session, sessionEnded } from '../state.ts';
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
  const action = useAction(async ({ email, password }: Record<string, string>) => {
    const { user } = await call<{ user: User }>('POST', '/api/session', { body: { email, password } });
    signedIn(user);
  });
  return html`<div class="narrow">
    <h1>Sign in</h1>
    ${sessionEnded.value && html`<${Callout} status tone="note">Your session has ended. Sign in again to continue.<//>`}
    <${Form} action=${action} submit=${action.busy ? 'Signing in…' : 'Sign in'}>
      <${Field} label="E-mail" name="email" type="email" autocomplete="username" autofocus />
      <${Field} label="Password" name="password" type="password" autocomplete="current-password" />
    <//>
    <p class="muted links">
      ${current?.mail ? html`<a href="/password-reset">Forgot your password?</a>` : html`<span>Forgot your password? The operator of this server can reset it: <code>tidemark user reset-password</code></span>`}
      ${current?.signup === 'open' && html`<a href="/sign-up">Create an account</a>`}
    </p>
  </div>`;
}

/** Switches the page to a new session. */
export function signedIn(user: User): void {
  sessionEnded.value = false;
  const current = session.value;
  if (current !== null) session.value = { ...current, user, setup: null };
}
