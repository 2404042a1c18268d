/** Controls that the chart and the list of events share: which types, and which time zone. */
import type { VNode } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import type { EventType } from '../answers.ts';
import { compact } from '../format.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import { zoneNames } from '../time-zone.ts';
import { Popover } from './popover.ts';
import { matches, Search } from './search.ts';
import { Waiting } from './waiting.ts';

export interface ZoneProps {
  readonly zone: string;
  readonly onPick: (zone: string) => void;
}

export function ZoneSelect({ zone, onPick }: ZoneProps): VNode {
  const pick = useRef(onPick);
  pick.current = onPick;
  return useMemo(
    () => html`<select
      class="zone"
      aria-label="Time zone"
      title="Time zone"
      value=${zone}
      onChange=${(event: Event) => pick.current((event.currentTarget as HTMLSelectElement).value)}
    >
      ${zoneNames(zone).map((name) => html`<option value=${name}>${name.replaceAll('_', ' ')}</option>`)}
    </select>`,
    // Four hundred options are made again only for another zone.
    [zone],
  );
}

export interface TypeFilterProps {
  readonly appId: string;
  readonly types: readonly string[];
  readonly onPick: (types: readonly string[]) => void;
}

/** Types that the list shows at once; a search finds the others. */
const MOST_SHOWN = 100;

export function TypeFilter({ appId, types, onPick }: TypeFilterProps): VNode {
  const text = types.length === 0 ? 'All types' : types.length === 1 ? '1 type' : `${types.length} types`;
  return html`<${Popover} icon="filter" label="Event types" text=${text}>
    ${() => html`<${TypeList} appId=${appId} types=${types} onPick=${onPick} />`}
  <//>`;
}

function TypeList({ appId, types, onPick }: TypeFilterProps): VNode {
  const all = useResource<{ types: EventType[] }>(`/api/apps/${appId}/types`);
  const [wanted, setWanted] = useState('');
  if (all.data === undefined) return html`<${Waiting} for=${all} lines=${5} />`;
  const found = all.data.types.filter(({ name }) => matches(wanted, name)).sort((a, b) => b.count - a.count);
  const toggle = (typeId: string): void =>
    onPick(types.includes(typeId) ? types.filter((type) => type !== typeId) : [...types, typeId]);
  return html`<div class="type-list">
    <${Search} label="Find a type" onText=${setWanted} />
    <ul>
      ${found.slice(0, MOST_SHOWN).map(
        ({ typeId, name, count }) => html`<li key=${typeId}><label>
          <input type="checkbox" checked=${types.includes(typeId)} onChange=${() => toggle(typeId)} />
          <span class="name">${name}</span><span class="value">${compact(count)}</span>
        </label></li>`,
      )}
    </ul>
    ${found.length === 0 && html`<p class="hint">No type has this in its name.</p>`}
    ${found.length > MOST_SHOWN && html`<p class="hint">And ${found.length - MOST_SHOWN} more: type a part of the name.</p>`}
    <button type="button" class="button" disabled=${types.length === 0} onClick=${() => onPick([])}>All types</button>
  </div>`;
}
