/** Which time zone everything is shown in. */
import type { VNode } from 'preact';
import { useMemo } from 'preact/hooks';
import { html } from '../html.ts';
import { useLatest } from '../latest.ts';
import { zoneNames } from '../time-zone.ts';

export interface ZoneProps {
  readonly zone: string;
  readonly onPick: (zone: string) => void;
}

export function ZoneSelect({ zone, onPick }: ZoneProps): VNode {
  const pick = useLatest(onPick);
  return useMemo(
    () => html`<select
      aria-label="Time zone"
      title="Time zone"
      value=${zone}
      onChange=${(event: Event) => pick.current((event.currentTarget as HTMLSelectElement).value)}
    >
      ${zoneNames(zone).map((name) => html`<option value=${name}>${name.replaceAll('_', ' ')}</option>`)}
    </select>`,
    // Rebuilt only when the zone changes: there are four hundred options.
    [zone],
  );
}
