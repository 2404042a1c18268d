/** What is different in a part of a range: for each counted field, the values whose share differs most from the rest of the range. */
import type { VNode } from 'preact';
import type { FieldValues, Series } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { Dialog } from '../components/dialog.ts';
import { Waiting } from '../components/waiting.ts';
import { count, spanText } from '../format.ts';
import { html } from '../html.ts';
import { countedPaths, useDeclaredFields } from '../known-fields.ts';
import type { Span } from '../range.ts';
import { useResource } from '../resource.ts';
import { eventsQuery, hasConditions, seriesPath, type ViewAndChange } from '../view.ts';
import { spelling } from './field-values.ts';
import { pickingOf } from './picking.ts';

/** Fields that are looked through, and differences that are shown. */
const MOST_FIELDS = 12;
const MOST_DIFFERENCES = 12;
/** Standard deviations up to which a difference may be chance. */
const CHANCE = 3;
/** Values of a field that are told apart. */
const MOST_VALUES = 100;

export interface ExplainProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  /** What is explained, and the range that it is compared with the rest of. */
  readonly part: Span;
  readonly whole: Span;
  readonly onClose: () => void;
}

interface Difference {
  /** Null: the event type. */
  readonly path: string | null;
  /** Of a type its id, of a value its JSON. */
  readonly key: string;
  readonly name: string;
  /** Events in the part and in the rest, and which share of these they are. */
  readonly inPart: number;
  readonly inRest: number;
  readonly partShare: number;
  readonly restShare: number;
}

interface Explained {
  readonly differences: readonly Difference[];
  readonly isSample: boolean;
}

/** Events by key, of an interval. */
interface Counted {
  readonly names: ReadonlyMap<string, string>;
  readonly events: ReadonlyMap<string, number>;
  readonly total: number;
  readonly exact: boolean;
}

export function Explain({ appId, viewed, part, whole, onClose }: ExplainProps): VNode {
  const { view, change } = viewed;
  const fields = useDeclaredFields(appId).data?.fields;
  const paths = fields === undefined ? null : countedPaths(fields).slice(0, MOST_FIELDS);
  const key = `explain ${appId} ${eventsQuery(view, part)} ${eventsQuery(view, whole)} ${paths?.join()}`;
  const found = useResource<Explained>(paths === null ? null : key, {
    scope: key,
    load: (signal) => explain({ appId, view, part, whole, paths: paths ?? [] }, signal),
  });
  const { data } = found;
  const pick = ({ path, key: picked }: Difference): void => {
    onClose();
    change(pickingOf(view, path).with(picked));
  };
  return html`<${Dialog} sheet title="What changed?" onClose=${onClose}>
    <p class="hint">${part.from !== null && spanText(part.from, part.to, view.zone)}, compared with the rest of the range. Shares of all events of each.</p>
    <${Waiting} for=${found} lines=${8} class="rows" />
    ${data?.isSample && html`<p class="hint">Fields beside a filter are compared by samples of the newest events.</p>`}
    ${data?.differences.length === 0 && html`<div class="empty"><h2>Nothing differs</h2><p>${paths?.length === 0 ? html`No field is counted: <a href=${`/apps/${appId}/fields`}>count the fields</a> that may explain a change.` : 'Every type and every counted value has about the same share as in the rest of the range.'}</p></div>`}
    <ul class="explain">${data?.differences.map(
      (one) => html`<li key=${`${one.path} ${one.key}`}>
        <button type="button" class="explain-name" title="Show only these events" onClick=${() => pick(one)}>${one.path === null ? 'type' : one.path}: <b>${one.name}</b></button>
        <span class="explain-change">${changed(one)}</span>
        <${Bar} label="Here" share=${one.partShare} events=${one.inPart} />
        <${Bar} label="Rest" share=${one.restShare} events=${one.inRest} />
      </li>`,
    )}</ul>
  <//>`;
}

function Bar({
  label,
  share,
  events,
}: {
  readonly label: string;
  readonly share: number;
  readonly events: number;
}): VNode {
  const percent = `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}%`;
  return html`<div class="explain-bar"><span class="muted">${label}</span><progress max="1" value=${share} aria-label=${`${label}: ${percent}`}></progress><span>${percent}</span><span class="muted">${count(events)}</span></div>`;
}

/** How the share has changed, in percent of itself. */
function changed({ partShare, restShare }: Difference): string {
  if (restShare === 0) return 'only here';
  if (partShare === 0) return 'not here';
  const percent = Math.round((partShare / restShare - 1) * 100);
  return `${percent > 0 ? '+' : '−'}${count(Math.abs(percent))}%`;
}

interface Asked extends Pick<ExplainProps, 'appId' | 'part' | 'whole'> {
  readonly view: ViewAndChange['view'];
  readonly paths: readonly string[];
}

async function explain(asked: Asked, signal: AbortSignal): Promise<Explained> {
  const { part, whole, paths, view } = asked;
  const isByType = view.types.length !== 1;
  const sets = await Promise.all(
    [...(isByType ? [null] : []), ...paths].map(async (path) => {
      const [inPart, inWhole] = await Promise.all(
        [part, whole].map((span) =>
          path === null ? typesOf(asked, span, signal) : valuesOf(asked, span, path, signal),
        ),
      );
      return inPart == null || inWhole == null ? null : { path, inPart, inWhole };
    }),
  );
  const known = sets.flatMap((set) => set ?? []);
  return {
    differences: known
      .flatMap(differencesOf)
      .filter((one) => deviations(one) > CHANCE)
      .sort((a, b) => Math.abs(b.partShare - b.restShare) - Math.abs(a.partShare - a.restShare))
      .slice(0, MOST_DIFFERENCES),
    isSample: known.some(({ inPart, inWhole }) => !inPart.exact || !inWhole.exact),
  };
}

/** The types' counts; null where these do not answer the view's conditions. */
async function typesOf({ appId, view }: Asked, span: Span, signal: AbortSignal): Promise<Counted | null> {
  const path = seriesPath(appId, { ...view, by: null, compare: 'none', detail: 1 }, span, MOST_VALUES);
  const { lines, all, isFiltered } = await call<Series>('GET', path, { signal });
  if (hasConditions(view) && isFiltered !== true) return null;
  return {
    names: new Map(lines.map(({ key, name }) => [key, name])),
    events: new Map(lines.map(({ key, total }) => [key, total])),
    total: all.reduce((sum, events) => sum + events, 0),
    exact: true,
  };
}

async function valuesOf(
  { appId, view }: Asked,
  span: Span,
  path: string,
  signal: AbortSignal,
): Promise<Counted> {
  const query = eventsQuery(view, span);
  query.set('path', path);
  query.set('limit', String(MOST_VALUES));
  const found = await call<FieldValues>('GET', `/api/apps/${appId}/fields/values?${query}`, { signal });
  const values = found.values.map(({ value, events }) => ({ key: JSON.stringify(value), value, events }));
  return {
    names: new Map(values.map(({ key, value }) => [key, spelling(value)])),
    events: new Map(values.map(({ key, events }) => [key, events])),
    total: values.reduce((sum, { events }) => sum + events, found.otherEvents),
    exact: found.exact,
  };
}

function differencesOf({
  path,
  inPart,
  inWhole,
}: {
  readonly path: string | null;
  readonly inPart: Counted;
  readonly inWhole: Counted;
}): Difference[] {
  // The rest is known where both are: a sample of the whole stands for it.
  const isExact = inPart.exact && inWhole.exact;
  const rest = isExact ? inWhole.total - inPart.total : inWhole.total;
  if (inPart.total === 0 || rest <= 0) return [];
  const names = new Map([...inWhole.names, ...inPart.names]);
  return [...names].map(([key, name]) => {
    const own = inPart.events.get(key) ?? 0;
    const inRest = Math.max(0, (inWhole.events.get(key) ?? 0) - (isExact ? own : 0));
    const [partShare, restShare] = [own / inPart.total, inRest / rest];
    return { path, key, name, inPart: own, inRest, partShare, restShare };
  });
}

/** By how many standard deviations two shares of one population would differ so much. */
function deviations({ partShare, restShare, inPart, inRest }: Difference): number {
  const [part, rest] = [partShare && inPart / partShare, restShare && inRest / restShare];
  if (part + rest === 0) return 0;
  const share = (inPart + inRest) / (part + rest);
  const [ofPart, ofRest] = [part || rest, rest || part];
  return Math.abs(partShare - restShare) / Math.sqrt(share * (1 - share) * (1 / ofPart + 1 / ofRest) || 1);
}
