/** The fields that are counted, each with its top values: ticks filter the view. A rail beside it, or a sheet where there is no room. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { Dialog } from '../components/dialog.ts';
import { Icon } from '../components/icon.ts';
import { Skeleton } from '../components/waiting.ts';
import { allowedBy, equals, valueText } from '../filter-text.ts';
import { amount, share } from '../format.ts';
import { html } from '../html.ts';
import { countedPaths, pathKey, useDeclaredFields } from '../known-fields.ts';
import type { ViewAndChange } from '../view.ts';
import { useValueCounts } from './field-values.ts';

const OPEN = 'tidemark.facets';
const WIDE = '(min-width: 64rem)';
/** Values of a field before "all". */
const ROWS = 6;

export interface FacetsProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
}

interface Facets {
  /** Opens and closes them. */
  readonly button: VNode;
  readonly rail: VNode | false;
  readonly sheet: VNode | false;
}

export function useFacets(props: FacetsProps): Facets {
  const [isOpen, setOpen] = useState(() => matchMedia(WIDE).matches && localStorage.getItem(OPEN) === 'true');
  const isWide = matchMedia(WIDE).matches;
  const turn = (next: boolean): void => {
    setOpen(next);
    if (isWide) localStorage.setItem(OPEN, String(next));
  };
  const fields = html`<${FacetList} ...${props} />`;
  return {
    // Pressed, it takes no focus, by which the row on a phone would be laid out anew under the finger.
    button: html`<button class="button" onPointerDown=${(event: Event) => event.preventDefault()} aria-expanded=${isOpen} title="Values of the counted fields" onClick=${() => turn(!isOpen)}><${Icon} name="options" />Fields</button>`,
    rail: isOpen && isWide && html`<aside class="facets" aria-label="Fields">${fields}</aside>`,
    sheet:
      isOpen &&
      !isWide &&
      html`<${Dialog} sheet title="Fields" onClose=${() => turn(false)}><div class="facets">${fields}</div><//>`,
  };
}

function FacetList({ appId, viewed }: FacetsProps): VNode {
  const { data, problem } = useDeclaredFields(appId);
  if (data === undefined)
    return problem === null
      ? html`<${Skeleton} lines=${6} />`
      : html`<p class="hint" role="status">The fields could not be read.</p>`;
  const paths = countedPaths(data.fields);
  return paths.length === 0
    ? html`<p class="hint">No field is counted yet: <a href=${`/apps/${appId}/fields`}>Fields</a> has those that events have.</p>`
    : html`${paths.map((path) => html`<${Facet} key=${path} appId=${appId} viewed=${viewed} path=${path} />`)}`;
}

function Facet({ appId, viewed, path }: FacetsProps & { readonly path: string }): VNode {
  const { view, change } = viewed;
  const { values, otherEvents, isSample, isLoading } = useValueCounts(appId, path, viewed);
  const isOwn = (filter: string): boolean => pathKey(allowedBy(filter)?.path ?? '') === pathKey(path);
  const ticked = view.filters.filter(isOwn).flatMap((filter) => allowedBy(filter)?.values ?? []);
  const total = values.reduce((sum, { count }) => sum + count, otherEvents);
  const most = Math.max(1, ...values.map(({ count }) => count));
  const tick = (value: string): void => {
    const next = ticked.includes(value) ? ticked.filter((one) => one !== value) : [...ticked, value];
    const others = view.filters.filter((filter) => !isOwn(filter));
    const own = next.length === 0 ? [] : (equals(path, ...next) ?? []);
    change({ filters: others.concat(own), hidden: [], at: null });
  };
  const gone = ticked.filter((value) => !values.some((one) => one.value === value));
  const shown = [...values.slice(0, ROWS), ...gone.map((value) => ({ value, count: 0 }))];
  return html`<fieldset class="facet">
    <legend>${path}</legend>
    ${isLoading && html`<${Skeleton} lines=${3} />`}
    ${shown.map(
      ({ value, count }) => html`<label key=${value} class="facet-value">
        <input type="checkbox" checked=${ticked.includes(value)} onChange=${() => tick(value)} />
        <span class="facet-name" title=${value}>${valueText(value)}</span>
        <span>${amount(count)}</span>
        <span class="muted">${share(count, total)}</span>
        <progress max=${most} value=${count} aria-hidden="true"></progress>
      </label>`,
    )}
    ${!isLoading && shown.length === 0 && html`<p class="hint">No values in this range.</p>`}
    ${isSample && html`<p class="hint">Of a sample of the newest events.</p>`}
    ${values.length > ROWS && html`<button class="button quiet" onClick=${() => change({ by: path, measure: null, at: null })}>Chart by ${path}</button>`}
  </fieldset>`;
}
