/** All apps that one may see: how busy each is, and a new one. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { AppRow } from '../answers.ts';
import { call } from '../api.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { Dialog } from '../components/dialog.ts';
import { Field, Form } from '../components/field.ts';
import { Icon } from '../components/icon.ts';
import { ProblemBox } from '../components/problem.ts';
import { matches, Search } from '../components/search.ts';
import { compact, count, counted } from '../format.ts';
import { html } from '../html.ts';
import { useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { ownZone } from '../time-zone.ts';
import { useTitle } from '../title.ts';

/** From so many on, finding one by eye takes longer than by name. */
const SEARCH_FROM = 9;

export const appsPath = (): string => `/api/apps?timezone=${encodeURIComponent(ownZone())}`;

export function AppsPage(): VNode {
  useTitle('Apps');
  const { data, problem, reload } = useResource<{ apps: AppRow[] }>(appsPath());
  const [creating, setCreating] = useState(false);
  const [wanted, setWanted] = useState('');
  const apps = data?.apps.filter(({ name }) => matches(wanted, name));
  const newApp = html`<button type="button" class="button primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />New app</button>`;
  return html`<div class="page">
    <div class="page-head">
      <h1>Apps</h1>
      ${data && data.apps.length >= SEARCH_FROM && html`<${Search} label="Find an app" onText=${setWanted} />`}
      ${newApp}
    </div>
    <${ProblemBox} problem=${problem} retry=${reload} />
    ${apps === undefined && problem === null && html`<${CardSkeletons} />`}
    ${data?.apps.length === 0 && html`<${NoApps} newApp=${newApp} />`}
    ${apps && apps.length > 0 && html`<ul class="cards">${apps.map((app) => html`<li key=${app.appId}><${AppCard} app=${app} /></li>`)}</ul>`}
    ${data && data.apps.length > 0 && apps?.length === 0 && html`<p class="hint" role="status">No app has this in its name.</p>`}
    ${creating && html`<${NewApp} onClose=${() => setCreating(false)} />`}
  </div>`;
}

function AppCard({ app }: { readonly app: AppRow }): VNode {
  const { appId, name, role, today, total, sparkline } = app;
  return html`<a class="card app-card" href=${`/apps/${appId}`}>
    <span class="card-head"><span class="name">${name}</span>${role !== 'owner' && html`<span class="badge">${role}</span>`}</span>
    ${
      today === undefined || total === undefined || sparkline === undefined
        ? html`<span class="muted">Its part of the database does not answer now.</span>`
        : html`<${Sparkline} counts=${sparkline} />
    <span class="figures">
      <span><b class="figure" title=${count(today)}>${today < 1e6 ? count(today) : compact(today)}</b> today</span>
      <span class="muted" title=${counted(total, 'event')}>${compact(total)} in all</span>
    </span>`
    }
  </a>`;
}

function CardSkeletons(): VNode {
  return html`<div class="cards" role="status" aria-label="Loading">
    ${[0, 1, 2].map((index) => html`<div key=${index} class="card app-card skeleton"><span></span><span class="block"></span><span></span></div>`)}
  </div>`;
}

function NoApps({ newApp }: { readonly newApp: VNode }): VNode {
  return html`<div class="empty">
    <h2>Create your first app</h2>
    <p>An app is one program or product whose events belong together. It gets a logging token to write with; its events are counted by type and shown as a time series.</p>
    ${newApp}
    <ol class="steps">
      <li><b>Create the app</b> and copy its logging token.</li>
      <li><b>Send an event</b> with curl, Node or Python: the page has the snippet ready.</li>
      <li><b>Watch it arrive</b> in the chart, and add others as maintainers.</li>
    </ol>
  </div>`;
}

function NewApp({ onClose }: { readonly onClose: () => void }): VNode {
  const { route } = useLocation();
  const action = useAction(async ({ name = '' }: Record<string, string>) => {
    const { appId } = await call<{ appId: string }>('POST', '/api/apps', { body: { name } });
    notify('The app was created');
    onClose();
    route(`/apps/${appId}`);
  });
  return html`<${Dialog} title="New app" onClose=${onClose}>
    <${Form} action=${action} submit="Create" onCancel=${onClose}>
      <${Field} label="Name" name="name" maxlength="200" hint="A display name. It can be changed later." />
    <//>
  <//>`;
}
