/** An app's settings: each part loads, fails and is retried by itself. */
import type { VNode } from 'preact';
import type {
  App,
  AuditPage,
  BrowserKeyList,
  Erasures,
  LoggingToken,
  MemberList,
  ProducerList,
  ResourceTokenList,
  RetentionAnswer,
  WordSearch,
} from '../../src/api-types/answers.ts';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { appPath, type TabProps } from '../app-tab.ts';
import { Copyable } from '../components/copy.ts';
import { ConfirmName, Field, Form } from '../components/field.ts';
import { ProblemBox } from '../components/problem.ts';
import { IndexedSections, Section } from '../components/section.ts';
import { Snippets } from '../components/snippet-choice.ts';
import { Skeleton } from '../components/waiting.ts';
import { counted } from '../format.ts';
import { html } from '../html.ts';
import { type Resource, useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { Activity } from './settings/activity.ts';
import { BrowserKeys } from './settings/browser-keys.ts';
import { LoggingTokenSection } from './settings/logging-token.ts';
import { Members } from './settings/members.ts';
import { Producers } from './settings/producers.ts';
import { ResourceTokens } from './settings/resource-tokens.ts';
import { Erasure, Retention } from './settings/retention-erasure.ts';

export function SettingsPage({ appId, app }: TabProps): VNode | null {
  const { data } = app;
  const path = appPath(appId);
  const mayChange = data?.may.includes('change') ?? false;
  // Viewers see neither the logging token nor browser keys. Neither is requested before the role is known.
  const unlessViewer = (part: string): string | null => (mayChange ? `${path}/${part}` : null);
  const token = useResource<LoggingToken>(unlessViewer('logging-token'));
  const keys = useResource<BrowserKeyList>(unlessViewer('browser-keys'));
  const producers = useResource<ProducerList>(unlessViewer('producers'));
  const tokens = useResource<ResourceTokenList>(`${path}/tokens`);
  const members = useResource<MemberList>(`${path}/members`);
  const retention = useResource<RetentionAnswer>(`${path}/retention`);
  const isOwner = data?.may.includes('own') ?? false;
  const search = useResource<WordSearch>(isOwner ? `${path}/search` : null);
  const erasures = useResource<Erasures>(isOwner ? `${path}/erasures` : null);
  const audit = useResource<AuditPage>(`${path}/audit`);
  // All at once, so that lists do not push each other down.
  const parts = [
    ...(mayChange ? [token, producers, keys] : []),
    ...(isOwner ? [erasures, search] : []),
    tokens,
    members,
    retention,
    audit,
  ];
  if (data === undefined || parts.some((part) => part.data === undefined && part.problem === null)) {
    return html`<${Skeleton} lines=${12} />`;
  }
  const failed = parts.filter((part) => part.data === undefined);
  // A failure of all parts is shown once.
  if (failed.length === parts.length) {
    const retry = (): void => {
      for (const part of failed) part.reload();
    };
    return html`<${ProblemBox} problem=${tokens.problem} retry=${retry} />`;
  }
  const onChanged = audit.reload;
  return html`<${IndexedSections}>
    <${General} app=${app} data=${data} onChanged=${onChanged} />
    ${mayChange && html`<${LoggingTokenSection} app=${data} resource=${token} onChanged=${onChanged} />`}
    ${mayChange && html`<${Producers} app=${data} resource=${producers} onChanged=${onChanged} />`}
    <${SendAndRead} app=${data} loggingToken=${token.data?.loggingToken ?? null} />
    <${ResourceTokens} app=${data} resource=${tokens} members=${members.data?.members} onChanged=${onChanged} />
    ${mayChange && html`<${BrowserKeys} app=${data} resource=${keys} onChanged=${onChanged} />`}
    <${Members} app=${data} resource=${members} onChanged=${onChanged} onRemoved=${tokens.reload} />
    <${Retention} app=${data} resource=${retention} onChanged=${onChanged} />
    ${isOwner && html`<${Search} path=${`${path}/search`} resource=${search} onChanged=${onChanged} />`}
    ${isOwner && html`<${Erasure} app=${data} resource=${erasures} onChanged=${onChanged} />`}
    <${Activity} app=${data} resource=${audit} onChanged=${onChanged} />
    ${isOwner && html`<${DeleteApp} app=${data} />`}
  <//>`;
}

interface GeneralProps {
  readonly app: Resource<App>;
  readonly data: App;
  readonly onChanged: () => void;
}

function General({ app, data, onChanged }: GeneralProps): VNode {
  const rename = useAction(async ({ name = '' }: Record<string, string>) => {
    await call('PATCH', appPath(data.appId), { body: { name } });
    app.replace({ ...data, name });
    onChanged();
    notify('The app was renamed');
  });
  return html`<${Section} title="General">
    ${
      data.may.includes('own')
        ? html`<${Form} layout="row" action=${rename} submit="Rename"><${Field} label="Name" name="name" maxlength="200" defaultValue=${data.name} /><//>`
        : html`<p>${data.name} <span class="badge">you are ${data.role}</span></p>`
    }
    <div class="field"><span class="label">App identifier</span><${Copyable} text=${data.appId} label="Copy the app identifier" /></div>
  <//>`;
}

interface SearchProps {
  readonly path: string;
  readonly resource: Resource<WordSearch>;
  readonly onChanged: () => void;
}

function Search({ path, resource: { data, replace }, onChanged }: SearchProps): VNode {
  const isOn = data?.isOn ?? false;
  const change = useAction(async () => {
    replace(await call('PUT', path, { body: { isOn: !isOn } }));
    onChanged();
  });
  return html`<${Section} title="Search" about="Lists of words find words and ids in all of time at once. They take disk.">
    <${Form} action=${change} submit=${isOn ? 'Turn lists off' : 'Turn lists on'}>${isOn && html`<p>${counted(data?.listedEvents ?? 0, 'event')} listed</p>`}<//>
  <//>`;
}

function SendAndRead({
  app,
  loggingToken,
}: {
  readonly app: App;
  readonly loggingToken: string | null;
}): VNode {
  const place = { base: location.origin, appId: app.appId, loggingToken, resourceToken: null };
  return html`<${Section} title="Send and read" about="Reading takes a resource token.">
    <${Snippets} masked place=${place} groups=${app.may.includes('change') ? ['send', 'read'] : ['read']} />
    ${
      app.may.includes('change') &&
      html`<h3>Send events from other programs</h3>
      <${Snippets} masked place=${place} groups=${['producers']} />`
    }
    <p class="hint"><a href="/docs">The description of the API</a> has every route, parameter and answer.</p>
  <//>`;
}

function DeleteApp({ app }: { readonly app: App }): VNode {
  const { route } = useAddress();
  const action = useAction(async ({ confirm }: Record<string, string>) => {
    await call('DELETE', appPath(app.appId), { body: { confirm } });
    notify('The app was deleted', async () => {
      await call('POST', `/api/removed-apps/${app.appId}/restore`);
      route(`/apps/${app.appId}`);
    });
    route('/', true);
  });
  return html`<${Section} danger title="Delete the app" about="For seven days it can be restored from the list of apps; then all of it is gone.">
    <${Form} danger action=${action} submit="Delete the app"><${ConfirmName} name=${app.name} /><//>
  <//>`;
}
