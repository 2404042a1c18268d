/** Starts the page: sends all requests that the address needs at once, before the first render. */
import { render } from 'preact';
import { followLinks } from './address.ts';
import { callText } from './api.ts';
import { html } from './html.ts';
import { resolveRange } from './range.ts';
import { preload } from './resource.ts';
import { prepareExplore } from './routes/app.ts';
import { appsPath } from './routes/apps.ts';
import { isShared, Shell } from './shell.ts';
import { loadSession, now } from './state.ts';
import { ownZone } from './time-zone.ts';
import { parseView } from './url.ts';
import { listed, listPath, listScope, seriesPath, typesPath } from './view.ts';

followLinks();
if (!isShared(location.pathname)) void loadSession();
const [, appId, tab] = /^\/apps\/([^/]+)(?:\/([^/]+))?\/?$/.exec(location.pathname) ?? [];
if (appId !== undefined) {
  if (tab === undefined) {
    const view = parseView(location.search, ownZone());
    const span = resolveRange(view.range, now.value, view.zone);
    prepareExplore();
    preload(seriesPath(appId, view, span));
    preload(listPath(appId, listed(view), listScope(view, span, view.at)), callText);
    preload(typesPath(appId));
  }
  preload(`/api/apps/${appId}`);
} else if (location.pathname === '/') {
  preload(appsPath());
}

const place = document.getElementById('app');
if (place !== null) render(html`<${Shell} />`, place);
