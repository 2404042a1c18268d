/** The command palette: pages of the current app, all apps, and global commands. */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { AppList, EventTypeList, SavedViewList } from '../../src/api-types/answers.ts';
import { useAddress } from '../address.ts';
import { callText } from '../api.ts';
import { html } from '../html.ts';
import { pathKey, useCatalog, useDeclaredFields } from '../known-fields.ts';
import { useResource } from '../resource.ts';
import { appsPath } from '../routes/apps.ts';
import { notify, theme } from '../state.ts';
import { viewsPath } from '../view.ts';
import { Dialog } from './dialog.ts';
import { matches } from './search.ts';

export interface PaletteProps {
  /** The pages of an app: the end of the path, and the name. */
  readonly tabs: readonly (readonly [tab: string, name: string])[];
  readonly onHelp: () => void;
  readonly onClose: () => void;
}

interface Command {
  readonly name: string;
  /** The kind of entry. */
  readonly kind: string;
  readonly run: () => void;
}

/** Entries that are shown at once; typing finds the others. */
const MOST_SHOWN = 12;

export function Palette(props: PaletteProps): VNode {
  const { onClose } = props;
  const [wanted, setWanted] = useState('');
  const [at, setAt] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const all = useCommands(props, wanted.trim());
  const commands = all.filter(({ name, kind }) => matches(wanted.trim(), `${name} ${kind}`));
  const shown = commands.slice(0, MOST_SHOWN);
  useEffect(
    () => list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' }),
    [at],
  );
  const run = (command: Command | undefined): void => {
    if (command === undefined) return;
    onClose();
    command.run();
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setAt((at + step + shown.length) % Math.max(1, shown.length));
    else if (event.key === 'Enter') run(shown[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Go to" onClose=${onClose}>
    <div class="palette">
      <input
        data-first
        role="combobox"
        aria-label="Where to, or what to do"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant=${shown.length > 0 ? `palette-${at}` : undefined}
        autocomplete="off"
        placeholder="An app, page, type, field or event id"
        onKeyDown=${press}
        onInput=${(event: InputEvent) => {
          setWanted((event.currentTarget as HTMLInputElement).value);
          setAt(0);
        }}
      />
      <ul id="palette-list" class="palette-list" role="listbox" aria-label="Places" ref=${list}>
        ${shown.map(
          (command, index) => html`<li
            key=${index}
            id=${`palette-${index}`}
            role="option"
            aria-selected=${index === at}
            onPointerMove=${() => setAt(index)}
            onClick=${() => run(command)}
          ><span class="palette-name">${command.name}</span><span class="muted">${command.kind}</span></li>`,
        )}
      </ul>
      <p class="hint" role="status">${shown.length === 0 ? 'No name contains this text.' : commands.length > shown.length ? `And ${commands.length - shown.length} more: type a part of the name.` : ''}</p>
    </div>
  <//>`;
}

const EVENT_ID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i;

type Content = readonly [name: string, kind: string, query: string];

/** What is in an app: its types and its fields. */
function useContents(appId: string | undefined, wanted: string): readonly Content[] {
  const isAsked = appId !== undefined && wanted !== '' && !EVENT_ID.test(wanted);
  const { data } = useResource<EventTypeList>(
    isAsked
      ? `/api/apps/${appId}/types?search=${encodeURIComponent(wanted)}&sort=events&limit=${MOST_SHOWN}`
      : null,
  );
  const seen = useCatalog(appId ?? '', isAsked).data?.fields ?? [];
  const declared = useDeclaredFields(appId ?? '', isAsked).data?.fields ?? [];
  const paths = new Map([...seen, ...declared].map(({ path }) => [pathKey(path), path]));
  const types = (data?.types ?? []).map(({ typeId, name }): Content => [name, 'type', `type=${typeId}`]);
  const fields = [...paths.values()].map(
    (path): Content => [path, 'field', `filter=${encodeURIComponent(path)}:*`],
  );
  return isAsked ? [...types, ...fields] : [];
}

function useCommands({ tabs, onHelp }: PaletteProps, wanted: string): Command[] {
  const { path, route } = useAddress();
  const { data } = useResource<AppList>(appsPath());
  const appId = /^\/apps\/([^/]+)/.exec(path)?.[1];
  const own = data?.apps.find((app) => app.appId === appId);
  const go = (name: string, kind: string, to: string): Command => ({ name, kind, run: () => route(to) });
  const pages =
    appId === undefined
      ? []
      : tabs.map(([tab, name]) => go(name, own?.name ?? 'this app', `/apps/${appId}${tab && `/${tab}`}`));
  const views = useResource<SavedViewList>(appId === undefined ? null : viewsPath(appId)).data?.views;
  const saved = (views ?? []).map(({ name, search }) => go(name, 'saved view', `/apps/${appId}?${search}`));
  const apps = (data?.apps ?? [])
    .filter((app) => app !== own)
    .map((app) => go(app.name, 'app', `/apps/${app.appId}`));
  const contents = useContents(appId, wanted);
  /** Looks for it in this app, and in the others. */
  const openEvent = async (): Promise<void> => {
    const ids = [...(appId === undefined ? [] : [appId]), ...(data?.apps ?? []).map((app) => app.appId)];
    for (const id of new Set(ids)) {
      const found = await callText('GET', `/api/apps/${id}/events/${wanted}`).catch(() => null);
      if (found !== null) return route(`/apps/${id}?event=${wanted}`);
    }
    notify('No event has this id');
  };
  return [
    ...(EVENT_ID.test(wanted) ? [{ name: wanted, kind: 'event', run: () => void openEvent() }] : []),
    ...pages,
    ...contents.map(([name, kind, query]) => go(name, kind, `/apps/${appId}?${query}`)),
    ...saved,
    ...apps,
    go('All apps', 'page', '/'),
    go('Account', 'page', '/account'),
    { name: 'Keyboard shortcuts', kind: 'help', run: onHelp },
    ...(['light', 'dark', 'system'] as const).map((one) => ({
      name: `Theme: ${one === 'system' ? 'as the system' : one}`,
      kind: 'command',
      run: () => {
        theme.value = one;
      },
    })),
  ];
}
