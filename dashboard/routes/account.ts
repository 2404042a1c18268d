/** The user's account: email, password, and what protects it. */
import { h, type VNode } from 'preact';
import { call } from '../api.ts';
import { Field, Form } from '../components/field.ts';
import { ProblemBox } from '../components/problem.ts';
import { Section } from '../components/section.ts';
import { type Load, Part } from '../components/waiting.ts';
import { html } from '../html.ts';
import { useAction } from '../resource.ts';
import { notify, session } from '../state.ts';
import { useTitle } from '../title.ts';

/** The larger part of the page is loaded with it: few visits are to this page. */
const loadSecurity: Load<object> = async () => (await import('./account/security.ts')).Security;

export function AccountPage(): VNode {
  useTitle('Account');
  const current = session.value;
  const user = current?.user;
  const change = useAction(
    async ({ currentPassword, newPassword }: Record<string, string>, form: HTMLFormElement) => {
      await call('POST', '/api/password', { body: { currentPassword, newPassword } });
      form.reset();
      notify('The password was changed; all other sessions have ended');
    },
  );
  const confirm = useAction(async () => {
    await call('POST', '/api/email-verifications');
    notify('A mail with a link is on its way');
  });
  return html`<div class="page">
    <div class="page-head"><h1>Account</h1></div>
    <div class="sections">
      <${Section} title="Email">
        <p>${user?.email} ${user?.emailVerified === false && html`<span class="badge">not verified</span>`}</p>
        ${
          user?.emailVerified === false &&
          current?.mail &&
          html`<button class="button" aria-disabled=${confirm.busy} onClick=${confirm.run}>Mail me a link to verify it</button>
          <${ProblemBox} problem=${confirm.problem} />`
        }
        ${
          user?.emailVerified === false &&
          current?.mail === false &&
          html`<p class="hint">The operator of this server can verify it: <code>tidemark user verify</code></p>`
        }
      <//>
      <${Section} title="Password" about="Changing it signs you out everywhere else.">
        <${Form} action=${change} submit="Change the password">
          <input class="sr-only" type="email" name="email" autocomplete="username" value=${user?.email} readonly tabindex="-1" aria-hidden="true" />
          <${Field} label="Current password" name="currentPassword" type="password" autocomplete="current-password" />
          <${Field} label="New password" name="newPassword" type="password" autocomplete="new-password" minlength="8" />
        <//>
      <//>
      ${h(Part<object>, { load: loadSecurity, props: {} })}
    </div>
    <p class="muted version">Tidemark ${current?.version}</p>
  </div>`;
}
