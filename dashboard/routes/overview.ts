/** What an app does, at a glance: four numbers with their change, the week by hour, what moved most, and what fell silent. */
import type { VNode } from 'preact';
import type { NumberAndBefore, Overview } from '../../src/api-types/answers.ts';
import type { TabProps } from '../app-tab.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { FirstEvent } from '../components/first-event.ts';
import { Waiting } from '../components/waiting.ts';
import { pickingOf } from '../explore/picking.ts';
import { average, changeText, count, dateTime } from '../format.ts';
import { type Children, html } from '../html.ts';
import { parseRange } from '../range.ts';
import { useResource } from '../resource.ts';
import { type View, viewSearch } from '../url.ts';
import { useView } from '../view.ts';

export function OverviewPage({ appId, app }: TabProps): VNode {
  const { view } = useView();
  const isEmpty = app.data?.firstEventAt === null;
  const path = `/api/apps/${appId}/overview?timezone=${encodeURIComponent(view.zone)}`;
  const found = useResource<Overview>(isEmpty ? null : path);
  if (isEmpty) return html`<${FirstEvent} appId=${appId} app=${app} />`;
  const { data } = found;
  return html`<section class="overview" aria-label="Overview">
    <${Waiting} for=${found} lines=${10} />
    ${data && html`<${Glance} ...${data} view=${weekOf(view)} link=${(changed: View) => `/apps/${appId}${viewSearch(changed)}`} />`}
  </section>`;
}

/** The last seven days, with nothing else chosen, compared with the time before. */
const weekOf = (view: View): View => ({
  ...view,
  range: parseRange('7d') ?? view.range,
  ...{ types: [], filters: [], text: null, by: null, measure: null, hidden: [], at: null, back: null },
  ...{ compare: 'previous', mode: 'histogram', width: null, detail: null, event: null, columns: null },
});

interface GlanceProps extends Overview {
  readonly view: View;
  readonly link: (view: View) => string;
}

function Glance({
  hour,
  day,
  week,
  byHour,
  types,
  moved,
  silent,
  annotations,
  view,
  link,
}: GlanceProps): VNode {
  return html`<div class="overview-numbers">
      ${figure('Last hour', hour, 'the hour before')}
      ${figure('Last 24 hours', day, 'the 24 hours before')}
      ${figure('Last 7 days', week, 'the week before')}
      ${number('Types that sent in 7 days', `${count(types.sent)}${types.isWhole ? '' : '+'}`, types.isWhole && `${count(types.before)} of them in the week before`)}
    </div>
    <a class="card overview-chart" href=${link(view)}>
      <h2>Last 7 days, by hour</h2>
      <${Sparkline} counts=${byHour} label="Last 7 days, by hour" />
    </a>
    <div class="overview-cards">
      ${card(
        'Moved most since last week',
        'Nothing moved more than by chance.',
        moved,
        (line) => html`<li key=${`${line.path} ${line.key}`} class="overview-mover">
        <a href=${link({ ...view, by: line.path, ...pickingOf(view, line.path).with(line.key) })}>${line.path !== null && `${line.path}: `}${line.name}</a>
        <${Sparkline} counts=${line.counts} label=${line.name} />
        <span>${count(line.total)}</span>
        <b title=${`The week before: ${count(line.before)}`}>${changeText(line.total, line.before)}</b>
      </li>`,
      )}
      ${card('Silent types', 'Every type sends as it usually does.', silent, ({ typeId, name, hours, missed }) => html`<li key=${typeId}><a href=${link({ ...view, types: [typeId] })}>${name}</a>: none for ${hours < 48 ? `${Math.floor(hours)} h` : `${Math.floor(hours / 24)} days`}, usually ${usual(missed / hours)}</li>`)}
      ${card('Latest annotations', 'None in the last 90 days.', annotations, ({ annotationId, at, text }) => html`<li key=${annotationId}><time class="muted" datetime=${at}>${dateTime(Date.parse(at), view.zone)}</time> ${text}</li>`)}
    </div>`;
}

const number = (name: string, text: string, more: Children): VNode =>
  html`<div class="card"><dl><dt>${name}</dt><dd>${text}</dd></dl><small>${more}</small></div>`;

const figure = (name: string, { total, before }: NumberAndBefore, span: string): VNode =>
  number(
    name,
    count(total),
    before !== null && html`<b>${changeText(total, before)}</b> vs ${count(before)} in ${span}`,
  );

const card = <T>(title: string, none: string, all: readonly T[], line: (one: T) => Children): VNode =>
  html`<section class="card overview-card"><h2>${title}</h2>
    ${all.length === 0 && html`<p class="hint">${none}</p>`}
    <ul>${all.map(line)}</ul>
  </section>`;

const usual = (perHour: number): string =>
  perHour >= 1 ? `${average(perHour)} an hour` : `${average(perHour * 24)} a day`;
