/** The user's apps with their activity, and a form for a new one. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { AppList, AppRow, CreatedApp, RemovedAppList } from '../../src/api-types/answers.ts';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { Ago } from '../components/ago.ts';
import { FormDialog } from '../components/confirm.ts';
import { Field } from '../components/field.ts';
import { Icon } from '../components/icon.ts';
import { ProblemBox } from '../components/problem.ts';
import { matches, Search } from '../components/search.ts';
import { amount, count, counted, date } from '../format.ts';
import { html } from '../html.ts';
import { useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { ownZone } from '../time-zone.ts';
import { useTitle } from '../title.ts';

/** From this many on, the list has a search field. */
const SEARCH_FROM = 9;

export const appsPath = (): string => `/api/apps?timezone=${encodeURIComponent(ownZone())}`;

export function AppsPage(): VNode {
  useTitle('Apps');
  const { data, problem, reload } = useResource<AppList>(appsPath());
  const [creating, setCreating] = useState(false);
  const [wanted, setWanted] = useState('');
  const [order, setOrder] = useState<Order>('created');
  const [isCommon, setCommon] = useState(false);
  const apps = data && inOrder(data.apps, order).filter(({ name }) => matches(wanted, name));
  const most = isCommon
    ? Math.max(1, ...(data?.apps ?? []).flatMap(({ sparkline = [] }) => sparkline))
    : undefined;
  const newApp = html`<button class="button primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />New app</button>`;
  return html`<div class="page">
    <div class="page-head">
      <h1>Apps</h1>
      ${data && data.apps.length >= SEARCH_FROM && html`<${Search} label="Find an app" onText=${setWanted} />`}
      ${newApp}
    </div>
    ${problem === null && (data === undefined || data.apps.length > 1) && html`<${Arrangement} order=${order} onOrder=${setOrder} isCommon=${isCommon} onCommon=${setCommon} />`}
    <${ProblemBox} problem=${problem} retry=${reload} />
    ${apps === undefined && problem === null && html`<${CardSkeletons} />`}
    ${data?.apps.length === 0 && html`<${NoApps} newApp=${newApp} />`}
    ${apps && apps.length > 0 && html`<ul class="cards">${apps.map((app) => html`<li key=${app.appId}><${AppCard} app=${app} most=${most} /></li>`)}</ul>`}
    ${data && data.apps.length > 0 && apps?.length === 0 && html`<p class="hint" role="status">No app name contains this text.</p>`}
    ${data && html`<${Bin} onRestored=${reload} />`}
    ${creating && html`<${NewApp} onClose=${() => setCreating(false)} />`}
  </div>`;
}

/** The apps that were deleted within a week. */
function Bin({ onRestored }: { readonly onRestored: () => void }): VNode | null {
  const { data, reload } = useResource<RemovedAppList>('/api/removed-apps');
  const restore = useAction(async (appId: string) => {
    await call('POST', `/api/removed-apps/${appId}/restore`);
    notify('The app was restored');
    reload();
    onRestored();
  });
  if (data === undefined || data.apps.length === 0) return null;
  return html`<section aria-labelledby="bin"><h2 id="bin">Deleted apps</h2>
    <${ProblemBox} problem=${restore.problem} />
    <ul class="bin">${data.apps.map(
      ({ appId, name, erasedAt }) =>
        html`<li key=${appId}><b>${name}</b> <span class="muted">gone for good on ${date(Date.parse(erasedAt), ownZone())}</span> <button class="button quiet" aria-label=${`Restore ${name}`} onClick=${() => restore.run(appId)}>Restore</button></li>`,
    )}</ul></section>`;
}

type Order = 'created' | 'name' | 'today' | 'last';

const ORDERS: readonly (readonly [Order, string])[] = [
  ['created', 'Order of creation'],
  ['name', 'Name'],
  ['today', 'Events today'],
  ['last', 'Last event'],
];

/** The server's order is that of creation. */
function inOrder(apps: readonly AppRow[], order: Order): readonly AppRow[] {
  if (order === 'created') return apps;
  const names = new Intl.Collator('en', { numeric: true });
  const last = ({ lastEventAt }: AppRow): number => (lastEventAt == null ? 0 : Date.parse(lastEventAt));
  const compare = (a: AppRow, b: AppRow): number => {
    if (order === 'today') return (b.today ?? 0) - (a.today ?? 0);
    return order === 'last' ? last(b) - last(a) : 0;
  };
  return [...apps].sort((a, b) => compare(a, b) || names.compare(a.name, b.name));
}

interface ArrangementProps {
  readonly order: Order;
  readonly onOrder: (order: Order) => void;
  readonly isCommon: boolean;
  readonly onCommon: (isCommon: boolean) => void;
}

function Arrangement({ order, onOrder, isCommon, onCommon }: ArrangementProps): VNode {
  return html`<div class="toolbar arrangement">
    <label>Sort by <select value=${order} onChange=${(event: Event) => onOrder((event.currentTarget as HTMLSelectElement).value as Order)}>
      ${ORDERS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
    </select></label>
    <label class="check"><input type="checkbox" checked=${isCommon} onChange=${(event: Event) => onCommon((event.currentTarget as HTMLInputElement).checked)} /><span>Same scale for all</span></label>
  </div>`;
}

interface AppCardProps {
  readonly app: AppRow;
  /** The count of a full bar; absent: each app has its own scale. */
  readonly most: number | undefined;
}

function AppCard({ app, most }: AppCardProps): VNode {
  const { appId, name, role, today, total, sparkline, lastEventAt, suspendedAt } = app;
  return html`<a class="card app-card" href=${`/apps/${appId}`}>
    <span class="card-head"><span class="name">${name}</span>${role !== 'owner' && html`<span class="badge">${role}</span>`}</span>
    ${
      today === undefined || total === undefined || sparkline === undefined
        ? html`<span class="muted">${suspendedAt === null ? 'Its database node does not answer.' : 'The operator has suspended it.'}</span>`
        : html`<${Sparkline} counts=${sparkline} ...${most !== undefined && { most }} />
    <span class="figures">
      <span><b class="figure" title=${count(today)}>${amount(today)}</b> today</span>
      <span class="muted" title=${counted(total, 'event')}>${amount(total)} in all</span>
    </span>
    <span class="muted last">${lastEventAt == null ? 'No events yet' : html`Last event <${Ago} at=${lastEventAt} />`}</span>`
    }
  </a>`;
}

function CardSkeletons(): VNode {
  return html`<div class="cards" role="status" aria-label="Loading">
    ${[0, 1, 2].map((index) => html`<div key=${index} class="card app-card skeleton"><span></span><span class="block"></span><span></span><span></span></div>`)}
  </div>`;
}

function NoApps({ newApp }: { readonly newApp: VNode }): VNode {
  return html`<div class="empty">
    <h2>Create your first app</h2>
    <p>An app is one program or product. It gets a logging token to write with; its events are counted by type.</p>
    ${newApp}
    <ol class="steps">
      <li><b>Create the app</b> and copy its logging token.</li>
      <li><b>Send an event</b> with curl, Node or Python: the page has the snippet ready.</li>
      <li><b>Watch it arrive</b> in the chart, and add others as maintainers.</li>
    </ol>
  </div>`;
}

function NewApp({ onClose }: { readonly onClose: () => void }): VNode {
  const { route } = useAddress();
  return html`<${FormDialog} title="New app" submit="Create" path="/api/apps" said="The app was created" onClose=${onClose} onDone=${({ appId }: CreatedApp) => route(`/apps/${appId}`)}>
    <${Field} label="Name" name="name" maxlength="200" hint="A display name. It can be changed later." />
  <//>`;
}
