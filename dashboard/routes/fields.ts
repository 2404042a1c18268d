/** Fields of payloads: those whose values are counted, and what recent events have. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type {
  App,
  DeclaredField,
  DeclaredFields,
  FieldCatalog,
  FieldKind,
  SeenField,
} from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import type { TabProps } from '../app-tab.ts';
import { Ago } from '../components/ago.ts';
import { Confirm } from '../components/confirm.ts';
import { DeclareField } from '../components/declare-field.ts';
import { ProblemBox } from '../components/problem.ts';
import { matches, Search, useRows } from '../components/search.ts';
import { rowButton, table } from '../components/table.ts';
import { Skeleton, Waiting } from '../components/waiting.ts';
import { equals } from '../filter-text.ts';
import { count, counted, dateTime } from '../format.ts';
import { html } from '../html.ts';
import { countersOf, declaredPath, pathKey, useCatalog, useDeclaredFields } from '../known-fields.ts';
import { type Resource, useAction, useRepeated } from '../resource.ts';
import { notify } from '../state.ts';
import { viewSearch } from '../url.ts';
import { useView } from '../view.ts';

/** How soon progress is asked for again. */
const REFRESH_MS = 5_000;
/** Rows that are shown before "more". */
const ROWS = 100;
const SEARCH_FROM = 12;

/** The field proposed for counting. */
type Proposal = Pick<DeclaredField, 'path' | 'typeName'>;

export function FieldsPage({ appId, app }: TabProps): VNode {
  const declared = useDeclaredFields(appId);
  const catalogue = useCatalog(appId);
  useRepeated(declared.reload, REFRESH_MS, !declared.loading && (declared.data?.fields.length ?? 0) > 0);
  const [proposal, setProposal] = useState<Proposal | null>(null);
  const parts = [declared, catalogue];
  // All at once, so that no list pushes the other one down.
  if (app.data === undefined || parts.some(({ data, problem }) => data === undefined && problem === null))
    return html`<${Skeleton} lines=${10} class="rows" />`;
  if (parts.every(({ data }) => data === undefined)) {
    const retry = (): void => {
      for (const part of parts) part.reload();
    };
    return html`<${ProblemBox} problem=${declared.problem} retry=${retry} />`;
  }
  const onCount = app.data.may.includes('own') ? setProposal : null;
  return html`<div class="fields">
    <${Counted} appId=${appId} app=${app.data} resource=${declared} onCount=${onCount} />
    <${Seen} appId=${appId} resource=${catalogue} declared=${declared.data?.fields ?? []} onCount=${onCount} />
    ${proposal && html`<${DeclareField} appId=${appId} ...${proposal} onDone=${declared.reload} onClose=${() => setProposal(null)} />`}
  </div>`;
}

/** Whether its counts still change in what they cover. */
const isUnderWay = ({ completeFrom, backfill }: DeclaredField): boolean => completeFrom === null || backfill;

interface CountedProps {
  readonly appId: string;
  readonly app: App;
  readonly resource: Resource<DeclaredFields>;
  /** Null for those who may not. */
  readonly onCount: ((proposal: Proposal) => void) | null;
}

function Counted({ appId, app, resource, onCount }: CountedProps): VNode {
  const { data, reload } = resource;
  const [removal, setRemoval] = useState<DeclaredField | null>(null);
  const body = ({ path, kind, by, typeName }: DeclaredField) => ({ path, kind, by, typeName });
  const backfill = useAction(async (field: DeclaredField) => {
    await call('POST', declaredPath(appId), { body: { ...body(field), backfill: true } });
    notify('Earlier events are being counted');
    reload();
  });
  return html`<section class="fields-part" aria-labelledby="fields-counted">
    <div class="toolbar">
      <div><h2 id="fields-counted">Counted fields</h2>
      <p class="muted">Filters on these are exact and fast. Numbers have statistics.</p></div>
      <span class="spacer"></span>
      ${data && html`<span class="muted">${count(data.fields.length)} of ${count(data.most)}</span>`}
      ${data && onCount && html`<button class="button" disabled=${data.fields.length >= data.most} onClick=${() => onCount({ path: '', typeName: null })}>Add a counted field…</button>`}
    </div>
    <${Waiting} for=${resource} lines=${3} class="rows" />
    <${ProblemBox} problem=${backfill.problem} />
    ${data?.fields.length === 0 && html`<p class="hint">None yet. Filters on fields are searched for.${onCount === null && ' An owner of the app can have fields counted.'}</p>`}
    ${
      data &&
      data.fields.length > 0 &&
      table(data.fields, {
        label: 'Counted fields',
        id: ({ path, kind, by, typeId }) => [path, kind, by, typeId].join('\n'),
        columns: [
          [
            'Field',
            ({ path, kind, by, unit }) =>
              html`<code>${path}</code>${by !== null && html` by <code>${by}</code>`}${kind !== 'value' && html` <span class="badge">${COUNTED_AS[kind]}${unit !== null && `, ${unit}`}</span>`}`,
          ],
          ['Event type', ({ typeName }) => typeName ?? 'all types'],
          ['Counted since', (field) => html`<${Completeness} field=${field} app=${app} />`],
          ['Values', (field) => html`<${Values} field=${field} />`, true],
          onCount !== null && [
            '',
            (field) =>
              html`${
                !isUnderWay(field) &&
                !isWhole(field, app) &&
                html`<button class="button quiet" aria-label=${`Count earlier events by ${field.path}`} aria-disabled=${backfill.busy} onClick=${() => backfill.run(field)}>Count earlier events</button>`
              } ${rowButton('Remove', field.path, () => setRemoval(field))}`,
          ],
        ],
      })
    }
    ${
      removal &&
      html`<${Confirm} title="Remove the field" method="POST" path=${`${declaredPath(appId)}/remove`} body=${body(removal)} said="The field is no longer counted" onDone=${reload} onClose=${() => setRemoval(null)}>The counts of <b>${removal.path}</b> are deleted, and filters on it are searched for again. Its events stay.<//>`
    }
  </section>`;
}

/** Whether every event that there is has been counted. */
function isWhole({ completeFrom }: DeclaredField, { firstEventAt }: App): boolean {
  return (
    completeFrom !== null && (firstEventAt === null || Date.parse(completeFrom) <= Date.parse(firstEventAt))
  );
}

function Completeness({ field, app }: { readonly field: DeclaredField; readonly app: App }): VNode {
  const { view } = useView();
  const { completeFrom, backfill, eventsLeft } = field;
  if (completeFrom === null) return html`<span class="muted">counting begins…</span>`;
  if (isWhole(field, app)) return html`the first event`;
  const from = dateTime(Date.parse(completeFrom), view.zone);
  return backfill
    ? html`<span role="status">back to ${from} so far…${typeof eventsLeft === 'number' && ` ${counted(eventsLeft, 'event')} left`}</span>`
    : html`<time datetime=${completeFrom}>${from}</time>`;
}

function Values({ field }: { readonly field: DeclaredField }): VNode {
  const { view } = useView();
  const { kind, values, otherSince } = field;
  if (kind !== 'value' && field.by === null) return html`<span class="muted">–</span>`;
  return html`${count(values)}${
    otherSince !== null &&
    html` <span class="badge" title="There were too many values: new ones are counted together since then.">other since ${dateTime(Date.parse(otherSince), view.zone)}</span>`
  }`;
}

interface SeenProps {
  readonly appId: string;
  readonly resource: Resource<FieldCatalog>;
  readonly declared: readonly DeclaredField[];
  readonly onCount: ((proposal: Proposal) => void) | null;
}

function Seen({ appId, resource, declared, onCount }: SeenProps): VNode {
  const { data } = resource;
  const [wanted, setWanted] = useState('');
  const [rows, more] = useRows(ROWS);
  const found = byPath(data?.fields.filter(({ path, typeName }) => matches(wanted, path, typeName)) ?? []);
  return html`<section class="fields-part" aria-labelledby="fields-seen">
    <div class="toolbar">
      <div><h2 id="fields-seen">Fields of recent events</h2>
      ${data && data.sample.events > 0 && html`<p class="muted">Of the last ${counted(data.sample.events, 'event')}.${data.truncated && ' There are more fields than are listed.'}</p>`}</div>
      <span class="spacer"></span>
      ${data && data.fields.length >= SEARCH_FROM && html`<${Search} label="Find a field" onText=${setWanted} />`}
    </div>
    <${Waiting} for=${resource} lines=${6} class="rows" />
    ${data?.fields.length === 0 && html`<div class="empty"><h3>${data.sample.events === 0 ? 'No events yet' : 'No fields'}</h3><p>${data.sample.events === 0 ? 'Their fields will be listed here.' : 'The payloads of recent events are empty.'}</p></div>`}
    ${
      found.length > 0 &&
      html`<div class="scroll"><table class="list">
        <thead><tr><th scope="col">Field</th><th scope="col">Event types</th><th scope="col">Kinds</th><th scope="col" class="number">Share</th><th scope="col">Examples</th><th scope="col">Last seen</th><th scope="col"><span class="sr-only">Counts</span></th></tr></thead>
        <tbody>${found.slice(0, rows).map((fields) => html`<${SeenRow} key=${pathKey(fields[0].path)} appId=${appId} fields=${fields} declared=${declared} onCount=${onCount} />`)}</tbody>
      </table></div>`
    }
    ${more(found.length)}
    ${data && data.fields.length > 0 && found.length === 0 && html`<p class="hint" role="status">No field name contains this text.</p>`}
  </section>`;
}

/** Values before numbers, and these before different values. */
function kindOf(declared: readonly DeclaredField[], { path, typeId }: SeenField): FieldKind | null {
  return (
    (['value', 'number', 'distinct'] as const).find(
      (kind) => countersOf(declared, path, typeId, { kind }).length > 0,
    ) ?? null
  );
}

/** What the types of an app have at one path. */
type SeenFields = readonly [SeenField, ...SeenField[]];

/** Each path once, in the order in which they come. */
function byPath(fields: readonly SeenField[]): SeenFields[] {
  const paths = new Map<string, SeenFields>();
  for (const field of fields) {
    const key = pathKey(field.path);
    const known = paths.get(key);
    paths.set(key, known === undefined ? [field] : [...known, field]);
  }
  return [...paths.values()];
}

interface SeenRowProps {
  readonly appId: string;
  readonly fields: SeenFields;
  readonly declared: readonly DeclaredField[];
  readonly onCount: ((proposal: Proposal) => void) | null;
}

const MOST_EXAMPLES = 3;

function SeenRow({ appId, fields, declared, onCount }: SeenRowProps): VNode {
  const { view } = useView();
  const [{ path, typeId, typeName }, ...others] = fields;
  const isOne = others.length === 0;
  const explore = (filter: string, type: string | null): string =>
    `/apps/${appId}${viewSearch({ ...view, types: type === null ? [] : [type], filters: [filter], text: null, at: null, hidden: [], event: null })}`;
  const lastSeenAt = fields.reduce((last, field) => (field.lastSeenAt > last ? field.lastSeenAt : last), '');
  const shares = fields.map(({ share }) => share);
  const [least, most] = [percent(Math.min(...shares)), percent(Math.max(...shares))];
  const examples = [...new Set(fields.flatMap((field) => field.examples))].slice(0, MOST_EXAMPLES);
  const only = isOne ? typeId : null;
  return html`<tr>
    <th scope="row"><a href=${explore(`${path}:*`, only)}><code>${path}</code></a></th>
    <td data-label=${isOne ? 'Event type' : null}>${
      isOne
        ? typeName
        : html`<details class="types-of"><summary>${fields.length} event types</summary><ul>${fields.map(
            (field) => html`<li key=${field.typeId}>
              <a href=${explore(`${path}:*`, field.typeId)}>${field.typeName}</a> <span class="muted">${percent(field.share)}</span>
              <${Changed} field=${field} /> <${CountCell} fields=${[field]} declared=${declared} onCount=${onCount} />
            </li>`,
          )}</ul></details>`
    }</td>
    <td data-label="Kinds">${[...new Set(fields.flatMap(({ kinds }) => kinds.map(({ kind }) => kind)))].join(', ')}${isOne && html`<${Changed} field=${fields[0]} />`}</td>
    <td class="number" data-label="Share" title=${counted(
      fields.reduce((sum, { events }) => sum + events, 0),
      'event',
    )}>${least === most ? most : `${least} – ${most}`}</td>
    <td data-label="Examples"><span class="examples">${examples.map((example) => {
      const filter = equals(path, example);
      return filter === null
        ? null
        : html`<a href=${explore(filter, only)} title=${`Show the events with ${filter}`}><code>${example}</code></a>`;
    })}</span></td>
    <td data-label="Last seen"><${Ago} at=${lastSeenAt} zone=${view.zone} /></td>
    <td class="number"><${CountCell} fields=${fields} declared=${declared} onCount=${onCount} /></td>
  </tr>`;
}

function Changed({ field: { kindChange } }: { readonly field: SeenField }): VNode | null {
  return (
    kindChange && html`<span class="badge changed">was ${kindChange.earlier}, now ${kindChange.recent}</span>`
  );
}

/** How a path is counted, or the button that has it counted: for the one type that has it, or for all. */
function CountCell({ fields, declared, onCount }: Omit<SeenRowProps, 'appId'>): VNode | null {
  const [{ path, typeName }, ...others] = fields;
  const kinds = fields.map((field) => kindOf(declared, field));
  const first = kinds[0] ?? null;
  // Objects have no value, and what is in an array is counted by the array's own path.
  const isCountable = fields.some((field) =>
    field.kinds.some(({ kind }) => kind !== 'object' && kind !== 'array'),
  );
  if (first !== null && !kinds.includes(null)) return html`<span class="badge">${COUNTED_AS[first]}</span>`;
  if (onCount === null || !isCountable) return null;
  const proposal = { path, typeName: others.length === 0 ? typeName : null };
  return html`<button class="button quiet" aria-label=${others.length === 0 ? `Count ${path} of ${typeName}` : `Count ${path}`} onClick=${() => onCount(proposal)}>Count</button>`;
}

const COUNTED_AS: Record<FieldKind, string> = {
  value: 'counted',
  number: 'numbers',
  distinct: 'different values',
};

/** Rounds so that a rare field does not show 0% and only a field of every event shows 100%. */
function percent(share: number): string {
  if (share < 0.01) return '<1%';
  return `${share < 1 ? Math.min(99, Math.round(share * 100)) : 100}%`;
}
