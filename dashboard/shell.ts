/** The frame of every page: top bar, routes, notices, and focus handling. */
import { h, type VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { parametersOf, useAddress } from './address.ts';
import { call } from './api.ts';
import { Icon, Mark } from './components/icon.ts';
import { Palette } from './components/palette.ts';
import { ProblemBox } from './components/problem.ts';
import { COMMAND_KEY, Shortcuts } from './components/shortcuts.ts';
import { type Load, Part, Skeleton } from './components/waiting.ts';
import { html } from './html.ts';
import { PATHS, type PagePath, TABS } from './paths.ts';
import { opened, searches } from './places.ts';
import { useAction } from './resource.ts';
import { AccountPage } from './routes/account.ts';
import { AppPage } from './routes/app.ts';
import { AppsPage } from './routes/apps.ts';
import { JoinPage } from './routes/join.ts';
import { SignInAgain, SignInPage } from './routes/sign-in.ts';
import { forgetUser, loadSession, notice, session, sessionProblem, THEMES, theme, undo } from './state.ts';
import { useTitle } from './title.ts';

/** Whether a page is that of a share, which has neither a session nor ways to other pages. */
export const isShared = (path: string): boolean => path.startsWith('/shared/');

const loadShared: Load<Parameters> = async () => (await import('./routes/explore.ts')).SharedPage;

export function Shell(): VNode {
  const { path } = useAddress();
  const main = useRef<HTMLElement>(null);
  const before = useRef(path);
  const [opened, setOpened] = useState<Opened>(null);
  const close = (): void => setOpened(null);
  useShortcuts(setOpened);
  useEffect(() => {
    if (before.current === path) return;
    // Within an app the tabs stay where they are, and so does the focus on them.
    const app = /^\/apps\/[^/]+/.exec(path)?.[0];
    // A page may have given it to a field.
    const isTaken = main.current?.contains(document.activeElement) && document.activeElement !== main.current;
    if (!isTaken && (app === undefined || !before.current.startsWith(app)))
      main.current?.focus({ preventScroll: true });
    before.current = path;
  }, [path]);
  return html`<a class="skip" href="#main" onClick=${() => main.current?.focus()}>Skip to the content</a>
    ${!isShared(path) && html`<${TopBar} onSearch=${() => setOpened('palette')} />`}
    <main id="main" tabindex="-1" ref=${main}><${Pages} /></main>
    ${opened === 'palette' && html`<${Palette} tabs=${TABS} onHelp=${() => setOpened('shortcuts')} onClose=${close} />`}
    ${opened === 'shortcuts' && html`<${Shortcuts} onClose=${close} />`}
    <${SignInAgain} />
    <div class="notice" role="status" data-shown=${notice.value !== ''}>${notice.value}${
      undo.value !== null &&
      html`<button class="notice-undo" onClick=${() => {
        undo.value?.();
        undo.value = null;
      }}>Undo</button>`
    }</div>`;
}

/** The dialog that a keyboard shortcut has opened. */
type Opened = 'palette' | 'shortcuts' | null;

function useShortcuts(open: (what: Opened) => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      const { key, target } = event;
      if (session.value?.user == null || event.altKey) return;
      const isSearch = (event.ctrlKey || event.metaKey) && key.toLowerCase() === 'k';
      // In inputs these keys are text; in dialogs the dialog handles them.
      const isTaken =
        opened.dialogs > 0 ||
        (target instanceof Element && target.closest('input, select, textarea') !== null);
      if (isSearch && opened.dialogs === 0) open('palette');
      else if (isTaken || event.ctrlKey || event.metaKey) return;
      else if (key === '?') open('shortcuts');
      else if (key === '/') [...searches][0]?.current?.focus();
      else return;
      event.preventDefault();
    };
    document.addEventListener('keydown', press);
    return () => document.removeEventListener('keydown', press);
  }, []);
}

/** Pages for visitors, by how their address begins. */
const PUBLIC = /^\/(setup|invitations|email-verifications|password-reset|sign-up)(\/|$)/;

function Pages(): VNode {
  const { path, url, route } = useAddress();
  const current = session.value;
  const signedIn = current?.user != null;
  const signInPath = `/sign-in${path === '/' ? '' : `?next=${encodeURIComponent(url)}`}`;
  const first = current !== null && current.setup !== null && !PUBLIC.test(path);
  const found = findPage(path);
  // Visitors may see that a page does not exist.
  const needsSession = found !== null && !PUBLIC.test(path) && path !== '/sign-in';
  const away = current !== null && !signedIn && !first && needsSession;
  useEffect(() => {
    if (first) route('/sign-up', true);
    else if (away) route(signInPath, true);
  }, [first, away]);

  if (found !== null && isShared(path)) return found();
  if (found === null && !first) return html`<${NotFound} />`;
  if (current === null) {
    if (sessionProblem.value !== null) {
      return html`<div class="narrow"><${ProblemBox} problem=${sessionProblem.value} retry=${loadSession} /></div>`;
    }
    // An app's page does not wait for the session: a 401 to its requests leads to the sign-in page.
    if (!path.startsWith('/apps/'))
      return path === '/'
        ? html`<${AppsPage} />`
        : html`<div class="narrow"><${Skeleton} lines=${6} /></div>`;
  } else if (first || away) {
    return html`<div class="narrow"><${Skeleton} lines=${6} /></div>`;
  }
  return found === null ? html`<${NotFound} />` : found();
}

type Parameters = Readonly<Record<string, string>>;

const join = (kind: string) => (params: Parameters) =>
  html`<${JoinPage} kind=${kind} token=${params.token} />`;

const PAGES: Readonly<Record<PagePath, (params: Parameters) => VNode>> = {
  '/': () => html`<${AppsPage} />`,
  '/sign-in': () => html`<${SignInPage} />`,
  '/sign-up': join('sign-up'),
  '/setup/:token': join('setup'),
  '/invitations/:token': join('invitations'),
  '/email-verifications/:token': join('email-verifications'),
  '/password-reset/:token?': join('password-reset'),
  '/shared/:token': (params) => h(Part<Parameters>, { load: loadShared, props: params }) as VNode,
  '/account': () => html`<${AccountPage} />`,
  '/apps/:appId/:tab?': (params) => html`<${AppPage} params=${params} />`,
};

/** Returns the component for a path, or null if no route matches. */
function findPage(path: string): (() => VNode) | null {
  try {
    for (const pattern of PATHS) {
      const params = parametersOf(path, pattern);
      if (params !== null) return () => PAGES[pattern](params);
    }
  } catch {
    // An invalid escape such as %zz matches nothing.
  }
  return null;
}

function NotFound(): VNode {
  useTitle('No such page');
  return html`<div class="narrow">
    <h1>There is no such page</h1>
    <p>The address may be mistyped, or the page was removed.</p>
    <a class="button" href="/">All apps</a>
  </div>`;
}

function TopBar({ onSearch }: { readonly onSearch: () => void }): VNode {
  const user = session.value?.user;
  const { path } = useAddress();
  return html`<header class="top">
    <a class="brand" href="/"><${Mark} /><span>Tidemark</span></a>
    <nav aria-label="Main">${user && html`<a href="/" aria-current=${path === '/' ? 'page' : undefined}>Apps</a>`}</nav>
    ${user && html`<button class="button go-to" aria-keyshortcuts="Control+K Meta+K" onClick=${onSearch}><${Icon} name="search" /><span class="go-to-text">Go to…</span><kbd>${COMMAND_KEY} K</kbd></button>`}
    <${ThemeSwitch} />
    ${user && html`<a class="who" href="/account" title=${user.email} aria-label=${`Account of ${user.email}`} aria-current=${path === '/account' ? 'page' : undefined}><${Icon} name="user" /><span>${user.email}</span></a><${SignOut} />`}
  </header>`;
}

function SignOut(): VNode {
  const { route } = useAddress();
  const action = useAction(async () => {
    await call('DELETE', '/api/session');
    route('/sign-in');
    forgetUser();
  });
  return html`<button class="button quiet" onClick=${action.run}>Sign out</button>
    ${action.problem && html`<div class="floating"><${ProblemBox} problem=${action.problem} retry=${action.run} /></div>`}`;
}

function ThemeSwitch(): VNode {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? 'system';
  const names = { system: 'as the system', light: 'light', dark: 'dark' };
  const label = `Theme: ${names[theme.value]}. Change to ${names[next]}`;
  return html`<button
    class="icon-button"
    aria-label=${label}
    title=${label}
    onClick=${() => {
      theme.value = next;
    }}
  ><${Icon} name=${theme.value} /></button>`;
}
