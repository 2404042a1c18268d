/** The chart by producer: its events as each token counted them, which is all that is known of who sent what. */
import type { VNode } from 'preact';
import type { Series } from '../../src/api-types/answers.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { Dialog } from '../components/dialog.ts';
import { table } from '../components/table.ts';
import { Waiting } from '../components/waiting.ts';
import { count, share } from '../format.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';
import { ShownCharts } from '../routes/boards.ts';
import { bucketsOf, scopeQuery, type ViewAndChange } from '../view.ts';

export interface ByProducerProps {
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly onClose: () => void;
}

export function ByProducer({ appId, viewed: { view, span }, onClose }: ByProducerProps): VNode {
  const query = scopeQuery({ ...view, types: [], filters: [], text: null }, span);
  query.set('timezone', view.zone);
  query.set('buckets', String(bucketsOf(view)));
  const found = useResource<Series>(`/api/apps/${appId}/producer-series?${query}`);
  const { data } = found;
  const total = data?.all.reduce((sum, events) => sum + events, 0) ?? 0;
  return html`<${Dialog} sheet title="By producer" onClose=${onClose}>
    <p class="hint">By when events were received, in the last 90 days. Of all events: types and filters do not apply.</p>
    <${Waiting} for=${found} lines=${8} class="rows" />
    ${data && html`<${ShownCharts} zone=${view.zone} charts=${[{ viewId: '', name: '', search: '', series: data, part: null, partType: null, numbers: null, range: null, problem: null }]} />`}
    ${
      data &&
      table(data.lines, {
        label: 'Producers',
        id: ({ key }) => key,
        columns: [
          ['Producer', ({ name }) => name],
          ['Events', (line) => count(line.total), true],
          ['Share', (line) => share(line.total, total), true],
          ['', (line) => html`<${Sparkline} counts=${line.counts} label=${line.name} />`],
        ],
      })
    }
  <//>`;
}
