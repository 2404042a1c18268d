/** An app's settings: each part loads, fails and is retried by itself. */
import type { VNode } from 'preact';
import { useLocation } from 'preact-iso/router';
import type { App, LoggingToken } from '../answers.ts';
import { call } from '../api.ts';
import { Copyable } from '../components/copy.ts';
import { ConfirmName, Field, Form } from '../components/field.ts';
import { Section } from '../components/section.ts';
import { Skeleton } from '../components/waiting.ts';
import { html } from '../html.ts';
import { type Resource, useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { appPath, type TabProps } from './app.ts';
import { Activity, type AuditPage } from './settings/activity.ts';
import { LoggingTokenSection } from './settings/logging-token.ts';
import { type MemberList, Members } from './settings/members.ts';
import { ResourceTokens, type TokenList } from './settings/resource-tokens.ts';

export interface SectionProps<T> {
  readonly app: App;
  readonly resource: Resource<T>;
}

export function SettingsPage({ appId, app }: TabProps): VNode | null {
  const { data } = app;
  const path = appPath(appId);
  const token = useResource<LoggingToken>(`${path}/logging-token`);
  const tokens = useResource<TokenList>(`${path}/tokens`);
  const members = useResource<MemberList>(`${path}/members`);
  const audit = useResource<AuditPage>(`${path}/audit`);
  // Without the app's details its page shows their failure, and a way to try again.
  if (data === undefined && app.problem !== null) return null;
  // All at once: lists that came one by one would push each other down.
  const parts = [token, tokens, members, audit];
  if (data === undefined || parts.some((part) => part.data === undefined && part.problem === null)) {
    return html`<${Skeleton} lines=${12} />`;
  }
  return html`<div class="sections">
    <${General} app=${app} data=${data} />
    <${LoggingTokenSection} app=${data} resource=${token} />
    <${ResourceTokens} app=${data} resource=${tokens} members=${members.data?.members} />
    <${Members} app=${data} resource=${members} onRemoved=${() => {
      tokens.reload();
      audit.reload();
    }} />
    <${Activity} app=${data} resource=${audit} />
    ${data.role === 'owner' && html`<${DeleteApp} app=${data} />`}
  </div>`;
}

interface GeneralProps {
  readonly app: Resource<App>;
  readonly data: App;
}

function General({ app, data }: GeneralProps): VNode {
  const rename = useAction(async ({ name = '' }: Record<string, string>) => {
    await call('PATCH', appPath(data.appId), { body: { name } });
    app.replace({ ...data, name });
    notify('The app was renamed');
  });
  return html`<${Section} title="General">
    ${
      data.role === 'owner'
        ? html`<${Form} class="inline" action=${rename} submit="Rename"><${Field} label="Name" name="name" maxlength="200" defaultValue=${data.name} /><//>`
        : html`<p>${data.name} <span class="badge">you are ${data.role}</span></p>`
    }
    <div class="field"><span class="label">App identifier</span><${Copyable} text=${data.appId} label="Copy the app identifier" /></div>
  <//>`;
}

function DeleteApp({ app }: { readonly app: App }): VNode {
  const { route } = useLocation();
  const action = useAction(async ({ confirm }: Record<string, string>) => {
    await call('DELETE', appPath(app.appId), { body: { confirm } });
    notify('The app was deleted');
    route('/', true);
  });
  return html`<${Section} danger title="Delete the app" about="Its events, types, counts and tokens go with it. There is no way back.">
    <${Form} danger action=${action} submit="Delete the app"><${ConfirmName} name=${app.name} /><//>
  <//>`;
}
