/** One app: its name, its tabs, and the page of the tab. */
import { type FunctionComponent, h, type VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { App, AppRow } from '../../src/api-types/answers.ts';
import { useAddress } from '../address.ts';
import { appPath, type TabProps } from '../app-tab.ts';
import { ProblemBox } from '../components/problem.ts';
import { type Load, Part, prepare } from '../components/waiting.ts';
import { ago, amount, counted, exact } from '../format.ts';
import { html } from '../html.ts';
import { MOVED_TABS, TABS } from '../paths.ts';
import { lastAnswer, useResource } from '../resource.ts';
import { now } from '../state.ts';
import { useTitle } from '../title.ts';
import { viewSearch } from '../url.ts';
import { useView } from '../view.ts';
import { appsPath } from './apps.ts';
import { FieldsPage } from './fields.ts';
import { SettingsPage } from './settings.ts';
import { TypesPage } from './types.ts';
import { UsagePage } from './usage.ts';

/** Loaded on demand. */
const loadExplore: Load<TabProps> = async () => (await import('./explore.ts')).ExplorePage;

/** The overview draws with the parts of the explore page, so it is in its file. */
const loadOverview: Load<TabProps> = async () => (await import('./explore.ts')).OverviewPage;

const loadBoards: Load<TabProps> = async () => (await import('./explore.ts')).BoardsPage;

const loadDelivery: Load<TabProps> = async () => (await import('./explore.ts')).DeliveryPage;

function tabPage(tab: string, props: TabProps): VNode {
  if (tab === '') return h(Part<TabProps>, { load: loadExplore, props }) as VNode;
  if (MOVED_TABS.includes(tab)) return html`<${Moved} appId=${props.appId} />`;
  if (tab === 'overview') return h(Part<TabProps>, { load: loadOverview, props }) as VNode;
  if (tab === 'boards') return h(Part<TabProps>, { load: loadBoards, props }) as VNode;
  if (tab === 'types') return html`<${TypesPage} ...${props} />`;
  if (tab === 'fields') return html`<${FieldsPage} ...${props} />`;
  if (tab === 'delivery') return h(Part<TabProps>, { load: loadDelivery, props }) as VNode;
  if (tab === 'usage') return html`<${UsagePage} ...${props} />`;
  return html`<${SettingsPage} ...${props} />`;
}

/** Redirects from the addresses of two earlier pages: the chart, and the list of events. */
function Moved({ appId }: { readonly appId: string }): null {
  const { url, route } = useAddress();
  useEffect(() => {
    const query = url.split('?')[1];
    route(`/apps/${appId}${query === undefined ? '' : `?${query}`}`, true);
  }, [url]);
  return null;
}

/** Starts loading what the page of the chart and the events needs. */
export const prepareExplore = (): void => prepare(loadExplore);

export function AppPage({ params }: { readonly params: Readonly<Record<string, string>> }): VNode {
  const { appId = '', tab = '' } = params;
  const app = useResource<App>(appPath(appId));
  const { view } = useView();
  const nav = useRef<HTMLElement>(null);
  // Where the tabs have no room for all, the one that is open is in sight.
  useEffect(() => {
    const open = nav.current?.querySelector<HTMLElement>('[aria-current]');
    if (nav.current !== null && open != null)
      nav.current.scrollLeft =
        open.offsetLeft + open.offsetWidth - nav.current.offsetLeft - nav.current.clientWidth;
  }, [tab]);
  const name = TABS.find(([key]) => key === tab)?.[1];
  const { data } = app;
  // The list of apps knows the name where this answer fails.
  const known =
    data?.name ?? lastAnswer<{ apps: AppRow[] }>(appsPath())?.apps.find((one) => one.appId === appId)?.name;
  useTitle(known && name && `${name} · ${known}`);
  if (app.problem?.status === 404) return html`<${Gone} />`;
  // Tabs keep the view in their address.
  const search = viewSearch({ ...view, event: null });
  return html`<div class="page">
    <div class="page-head app-head">
      <h1 title=${known}>${known ?? (app.problem === null ? html`<span class="sr-only">App</span><span class="skeleton"><span></span></span>` : 'App')}</h1>
      <p class="muted">${data && html`<${Figures} app=${data} zone=${view.zone} />`}</p>
      <nav class="tabs" aria-label="App" ref=${nav}>
        ${TABS.map(
          ([key, label]) => html`<a
            key=${key}
            href=${`/apps/${appId}${key && `/${key}`}${key === '' ? search : ''}`}
            aria-current=${key === tab ? 'page' : undefined}
            onPointerEnter=${key === '' && prepareExplore}
          >${label}${key === 'usage' && data?.refusedLately && html`<span class="tab-mark" role="img" aria-label="Requests were refused in the last hour" title="Requests were refused in the last hour"></span>`}</a>`,
        )}
      </nav>
    </div>
    ${
      // The page would fail the same way: the error is shown once. That of the chart says it within its controls.
      data === undefined && app.problem !== null && tab !== ''
        ? html`<${ProblemBox} problem=${app.problem} retry=${app.reload} />`
        : html`<div key=${appId + tab}>${tabPage(tab, { appId, app })}</div>`
    }
  </div>`;
}

function Figures({ app, zone }: { readonly app: App; readonly zone: string }): VNode {
  const { total, lastEventAt } = app;
  const last = lastEventAt === null ? null : Date.parse(lastEventAt);
  return html`<span title=${counted(total, 'event')}>${amount(total)} ${total === 1 ? 'event' : 'events'}</span>
    ${last !== null && html`<span class="dot"> · </span>last event <time datetime=${lastEventAt} title=${exact(last, zone)}>${ago(last, Math.max(now.value, Date.now()))}</time>`}`;
}

const Gone: FunctionComponent = () => html`<div class="empty">
  <h1>There is no such app</h1>
  <p>It was deleted, or you are not one of its members: an owner can add you.</p>
  <a class="button" href="/">All apps</a>
</div>`;
