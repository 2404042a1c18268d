/** Views of the page that members have saved under a name. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { BoardList, SavedView, SavedViewList } from '../../src/api-types/answers.ts';
import { Confirm, FormDialog } from '../components/confirm.ts';
import { Field, Select } from '../components/field.ts';
import { Icon } from '../components/icon.ts';
import { Popover } from '../components/popover.ts';
import { ProblemBox } from '../components/problem.ts';
import { ShareDialog } from '../components/share.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import { EditBoard } from '../routes/boards.ts';
import { parseView, type View, viewSearch } from '../url.ts';
import { viewsPath } from '../view.ts';

export interface SavedViewsProps {
  readonly appId: string;
  readonly view: View;
  /** Whether the reader may save and remove views. */
  readonly mayChange: boolean;
}

export function SavedViews({ appId, view, mayChange }: SavedViewsProps): VNode {
  const views = useResource<SavedViewList>(viewsPath(appId));
  const [saving, setSaving] = useState(false);
  const [removal, setRemoval] = useState<SavedView | null>(null);
  const [sharing, setSharing] = useState<SavedView | null>(null);
  /** The view that a new board begins with. */
  const [first, setFirst] = useState('');
  const all = views.data?.views ?? [];
  const search = savedSearch(view);
  return html`<${Popover} icon="bookmark" atEnd label="Saved views" text=${all.find((one) => one.search === search)?.name ?? 'Views'}>
    ${(close: () => void) => html`<div class="options">
      <${ProblemBox} problem=${views.problem} retry=${views.reload} />
      ${all.length === 0 && views.problem === null && html`<p class="hint">${views.data === undefined ? 'Loading…' : `A saved view keeps range, filter and chart under a name, for all members of the app, in the time zone of each.${mayChange ? '' : ' None is saved yet.'}`}</p>`}
      ${
        all.length > 0 &&
        html`<ul class="saved-views">${all.map(
          (saved) => html`<li key=${saved.viewId}>
            <a href=${`/apps/${appId}?${saved.search}`} aria-current=${saved.search === search ? 'true' : undefined} title=${saved.savedBy === null ? saved.name : `${saved.name}, saved by ${saved.savedBy}`} onClick=${close}>${saved.name}</a>
            ${
              mayChange &&
              html`<button class="button quiet" aria-label=${`Share the view ${saved.name}`} onClick=${() => {
                close();
                setSharing(saved);
              }}>Share</button><button class="icon-button" aria-label=${`Remove the view ${saved.name}`} onClick=${() => {
                close();
                setRemoval(saved);
              }}><${Icon} name="close" /></button>`
            }
          </li>`,
        )}</ul>`
      }
      ${
        mayChange &&
        html`<button class="button" onClick=${() => {
          close();
          setSaving(true);
        }}>Save this view…</button>`
      }
    </div>`}
  <//>
  ${saving && html`<${SaveView} appId=${appId} search=${search} known=${all} onDone=${views.reload} onBoard=${setFirst} onClose=${() => setSaving(false)} />`}
  ${first && html`<${EditBoard} appId=${appId} board=${null} first=${[first]} onDone=${views.reload} onClose=${() => setFirst('')} />`}
  ${removal && html`<${Confirm} title="Remove the view" path=${`${viewsPath(appId)}/${removal.viewId}`} said="The view was removed" onDone=${views.reload} onClose=${() => setRemoval(null)}><b>${removal.name}</b> is removed for all members of the app.<//>`}
  ${sharing && html`<${ShareDialog} appId=${appId} of=${['viewId', sharing.viewId]} name=${sharing.name} range=${parseView(sharing.search, view.zone).range} zone=${view.zone} onClose=${() => setSharing(null)} />`}`;
}

/** The part of a view that is saved: without the open event, the way back and the time zone, which belong to the reader. */
function savedSearch(view: View): string {
  const query = new URLSearchParams(viewSearch({ ...view, event: null, at: null, back: null }));
  query.delete('tz');
  return query.toString();
}

interface SaveViewProps {
  readonly appId: string;
  readonly search: string;
  readonly known: readonly SavedView[];
  readonly onDone: () => void;
  /** The saved view is to begin a new board. */
  readonly onBoard: (viewId: string) => void;
  readonly onClose: () => void;
}

/** In place of a board: a new one. No identifier is a sign. */
const NEW = '+';

function SaveView({ appId, search, known, onDone, onBoard, onClose }: SaveViewProps): VNode {
  const [typed, setTyped] = useState('');
  const [chosen, setChosen] = useState('');
  const boards = useResource<BoardList>(`/api/apps/${appId}/boards`).data?.boards ?? [];
  const replaces = known.some(({ name }) => name === typed);
  return html`<${FormDialog} title="Save this view" submit=${replaces ? 'Replace the view' : 'Save'} path=${viewsPath(appId)} body=${({ name, board }: Record<string, string>) => ({ name, search, ...(board && board !== NEW && { boardId: board }) })} said="The view was saved" onDone=${({
    viewId,
  }: Pick<SavedView, 'viewId'>) => {
    onDone();
    if (chosen === NEW) onBoard(viewId);
  }} onClose=${onClose}>
    <${Field} label="Name" name="name" maxlength="200" placeholder="Errors of the last day" hint=${replaces && 'A view with this name exists and will be replaced.'} onInput=${(event: InputEvent) => setTyped((event.currentTarget as HTMLInputElement).value)} />
    ${
      // A board has two views at least.
      known.some(({ name }) => name !== typed) &&
      html`<${Select} label="Put it on a board" name="board" onChosen=${setChosen} options=${[['', 'none'], ...boards.map(({ boardId, name }) => [boardId, name] as const), [NEW, 'a new board…']]} />`
    }
  <//>`;
}
