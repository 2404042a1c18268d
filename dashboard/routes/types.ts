/** Event types: their identifiers for programs, and new ones. */
import type { VNode } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import type {
  EventType,
  EventTypeList,
  SchemaList,
  SchemaSummary,
  TypeActivity,
} from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import type { TabProps } from '../app-tab.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { Ago } from '../components/ago.ts';
import { FormDialog } from '../components/confirm.ts';
import { Copyable } from '../components/copy.ts';
import { Field } from '../components/field.ts';
import { Icon } from '../components/icon.ts';
import { ProblemBox } from '../components/problem.ts';
import { matches, Search, useRows } from '../components/search.ts';
import { rowButton } from '../components/table.ts';
import { Skeleton, Waiting } from '../components/waiting.ts';
import { count, date } from '../format.ts';
import { html } from '../html.ts';
import { useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { viewSearch } from '../url.ts';
import { useView } from '../view.ts';
import { SchemaDialog, schemaState } from './types/schema-dialog.ts';

/** Rows that are shown before "more": an app may have thousands of types. */
const ROWS = 200;
const SEARCH_FROM = 12;

/** What charts do with a type. */
type Display = 'hidden' | 'annotation';

/** What a button does, and what was done: of a type that is not displayed so, and of one that is. */
const ACTIONS = { hidden: ['Hide', 'Show'], annotation: ['Mark', 'Unmark'] } as const;
const SAID = {
  hidden: ['is shown again', 'is hidden'],
  annotation: ['is marked no more', 'is marked on charts'],
} as const;

export function TypesPage({ appId, app }: TabProps): VNode {
  const path = `/api/apps/${appId}/types`;
  const types = useResource<EventTypeList>(path);
  const schemas = useResource<SchemaList>(`/api/apps/${appId}/type-schemas`);
  // Drawn when loaded; the column keeps its width until then.
  const activity = useResource<TypeActivity>(`/api/apps/${appId}/type-activity`).data?.activity;
  const { reload } = types;
  // All at once, so that no column shifts the others; what may be done here is known with the app.
  const data = (schemas.data ?? schemas.problem) && (app.data ?? app.problem) ? types.data : undefined;
  const [wanted, setWanted] = useState('');
  const [rows, more] = useRows(ROWS);
  const { view } = useView();
  const display = useAction(async (what: Display, { typeId, name }: Named, isOn: boolean) => {
    await call('PATCH', `${path}/${encodeURIComponent(typeId)}`, { body: { [what]: isOn } });
    notify(`${name} ${SAID[what][isOn ? 1 : 0]}`, () => void display.run(what, { typeId, name }, !isOn));
    reload();
  });
  const toggle = (what: Display, type: Named, isOn: boolean): VNode => {
    const text = ACTIONS[what][isOn ? 1 : 0];
    return html`<button class="button quiet" aria-label=${`${text} ${type.name}`} title=${what === 'annotation' ? 'Whether charts mark each of its events' : undefined} aria-disabled=${display.busy} onClick=${() => display.run(what, type, !isOn)}>${text}</button>`;
  };
  const [order, setOrder] = useState<Order>({ key: 'count', down: true });
  const [creating, setCreating] = useState(false);
  const [renaming, setRenaming] = useState<Named | null>(null);
  const [ofSchema, setOfSchema] = useState<Named | null>(null);
  const mayChange = app.data?.may.includes('change') ?? false;
  const isOwner = app.data?.may.includes('own') ?? false;
  const byType = new Map(schemas.data?.schemas.map((schema) => [schema.typeId, schema]));
  const found = data?.types.filter(({ name, typeId }) => matches(wanted, name, typeId));
  const last = useHiddenAtFirst(data?.types, order);
  const sorted = useMemo(() => inOrder(found ?? [], order, last), [data, wanted, order]);
  return html`<section class="types" aria-label="Event types">
    <div class="toolbar">
      ${data && data.types.length >= SEARCH_FROM && html`<${Search} label="Find a type" onText=${setWanted} />`}
      <span class="spacer"></span>
      ${mayChange && html`<button class="button" onClick=${() => setCreating(true)}><${Icon} name="plus" />New type</button>`}
    </div>
    ${types.data !== undefined && data === undefined ? html`<${Skeleton} lines=${8} class="rows" />` : html`<${Waiting} for=${types} lines=${8} class="rows" />`}
    <${ProblemBox} problem=${display.problem} />
    ${types.data !== undefined && html`<${ProblemBox} problem=${schemas.problem} retry=${schemas.reload} />`}
    ${
      data?.types.length === 0 &&
      html`<div class="empty"><h2>No event types yet</h2><p>A type is a kind of event: <em>order placed</em>, <em>user signed up</em>. Types are created automatically when an event has a new name as its <code>typeName</code>. Or create one here and send its identifier as <code>typeId</code>.</p></div>`
    }
    ${
      found &&
      found.length > 0 &&
      html`<div class="scroll"><table class="list">
        <thead><tr>${COLUMNS.map(
          ([
            key,
            label,
            kind,
          ]) => html`<th key=${key} scope="col" class=${kind === 'number' ? 'number' : key === 'createdAt' ? 'created' : ''} aria-sort=${order.key === key ? (order.down ? 'descending' : 'ascending') : undefined}>
            <button class="sort" onClick=${() => setOrder({ key, down: order.key === key ? !order.down : key !== 'name' })}>${label}<span class="sort-mark" aria-hidden="true">${order.key === key && (order.down ? '↓' : '↑')}</span></button>
          </th>`,
        )}${schemas.data && html`<th scope="col">Schema</th>`}<th scope="col">Last 24 hours</th><th scope="col" class="identifier">Identifier</th>${mayChange && html`<th scope="col"><span class="sr-only">Actions</span></th>`}</tr></thead>
        <tbody>${sorted.slice(0, rows).map(
          ({
            typeId,
            name,
            createdAt,
            lastEventAt,
            count: events,
            hidden,
            annotation,
          }) => html`<tr key=${typeId}>
            <th scope="row"><a href=${`/apps/${appId}${viewSearch({ ...view, types: [typeId], hidden: [], event: null })}`}>${name}</a>${hidden && html` <span class="badge" title="Chart, list and completion leave it out until they are asked for it">hidden</span>`}${annotation && html` <span class="badge" title="Charts mark each of its events">annotation</span>`}</th>
            <td class="number" data-label="Events">${count(events)}</td>
            <td data-label="Last event"><${Ago} at=${lastEventAt} zone=${view.zone} /></td>
            <td class="created" data-label="Created">${date(Date.parse(createdAt), view.zone)}</td>
            ${schemas.data && html`<td class="schema" data-label=${isOwner && !byType.has(typeId) ? null : 'Schema'}><${SchemaCell} name=${name} schema=${byType.get(typeId)} isOwner=${isOwner} onOpen=${() => setOfSchema({ typeId, name })} /></td>`}
            <td class="spark">${activity?.[typeId] && html`<${Sparkline} counts=${activity[typeId]} />`}</td>
            <td class="identifier"><${Copyable} text=${typeId} label=${`Copy the identifier of ${name}`} /></td>
            ${mayChange && html`<td class="number acts">${rowButton('Rename', name, () => setRenaming({ typeId, name }))}${toggle('annotation', { typeId, name }, annotation)}${toggle('hidden', { typeId, name }, hidden)}</td>`}
          </tr>`,
        )}</tbody>
      </table></div>`
    }
    ${more(found?.length ?? 0)}
    ${data && data.types.length > 0 && found?.length === 0 && html`<p class="hint" role="status">No type name contains this text.</p>`}
    ${
      creating &&
      html`<${FormDialog} title="New event type" submit="Create" path=${path} said="The event type was created" onDone=${reload} onClose=${() => setCreating(false)}>
        <${Field} label="Name" name="name" maxlength="200" placeholder="e.g. order placed" />
      <//>`
    }
    ${
      renaming &&
      html`<${FormDialog} title="Rename the event type" submit="Rename" method="PATCH" path=${`${path}/${renaming.typeId}`} said="The event type was renamed" onDone=${reload} onClose=${() => setRenaming(null)}>
        <${Field} label="Name" name="name" maxlength="200" defaultValue=${renaming.name} hint="Its events stay. A program that still sends the old name makes a new type: change that first." />
      <//>`
    }
    ${ofSchema && html`<${SchemaDialog} path=${`${path}/${encodeURIComponent(ofSchema.typeId)}`} name=${ofSchema.name} isSet=${byType.has(ofSchema.typeId)} isOwner=${isOwner} onDone=${schemas.reload} onClose=${() => setOfSchema(null)} />`}
  </section>`;
}

interface SchemaCellProps {
  readonly name: string;
  readonly schema: SchemaSummary | undefined;
  readonly isOwner: boolean;
  readonly onOpen: () => void;
}

function SchemaCell({ name, schema, isOwner, onOpen }: SchemaCellProps): VNode {
  if (schema === undefined && !isOwner) return html`<span class="muted">none</span>`;
  const state = schema === undefined ? 'Add schema' : schemaState(schema);
  const label = schema === undefined ? `Add schema to ${name}` : `Schema of ${name}: ${state}`;
  return html`<button class=${schema === undefined ? 'button quiet' : 'button'} aria-label=${label} onClick=${onOpen}>${state}</button>`;
}

type SortKey = 'name' | 'count' | 'lastEventAt' | 'createdAt';

interface Order {
  readonly key: SortKey;
  readonly down: boolean;
}

const COLUMNS: readonly (readonly [key: SortKey, label: string, kind: string])[] = [
  ['name', 'Name', ''],
  ['count', 'Events', 'number'],
  ['lastEventAt', 'Last event', ''],
  ['createdAt', 'Created', ''],
];

const names = new Intl.Collator('en', { numeric: true });

/** The types that were hidden when the page came or was sorted: one that is hidden now stays in its place, and the next is in reach. */
function useHiddenAtFirst(types: readonly EventType[] | undefined, order: Order): ReadonlySet<string> {
  const known = useRef<{ readonly order: Order; readonly hidden: ReadonlySet<string> } | null>(null);
  if (types !== undefined && known.current?.order !== order)
    known.current = { order, hidden: new Set(types.flatMap(({ typeId, hidden }) => (hidden ? typeId : []))) };
  return known.current?.hidden ?? NONE;
}

const NONE: ReadonlySet<string> = new Set();

/** The types of a set come last; ties are sorted by name in either order. */
function inOrder(types: readonly EventType[], { key, down }: Order, last: ReadonlySet<string>): EventType[] {
  const compare = (a: EventType, b: EventType): number => {
    if (key === 'name') return names.compare(a.name, b.name);
    const [first, second] = [a[key] ?? '', b[key] ?? ''];
    return first < second ? -1 : first > second ? 1 : 0;
  };
  return [...types].sort(
    (a, b) =>
      Number(last.has(a.typeId)) - Number(last.has(b.typeId)) ||
      (down ? compare(b, a) : compare(a, b)) ||
      names.compare(a.name, b.name),
  );
}

interface Named {
  readonly typeId: string;
  readonly name: string;
}
