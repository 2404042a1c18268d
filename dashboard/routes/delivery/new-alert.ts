/** A new alert, with what it would have done in the last 30 days. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { AlertTrial, EventType, NewWebhookAnswer, WebhookList } from '../../../src/api-types/answers.ts';
import { measured } from '../../charts/curve.ts';
import type { Drawing } from '../../charts/drawing.ts';
import { FormDialog } from '../../components/confirm.ts';
import { Field, linesOf, Select } from '../../components/field.ts';
import { Waiting } from '../../components/waiting.ts';
import { counted, dateTime } from '../../format.ts';
import { html } from '../../html.ts';
import { measureLabel, STATS, singleStat } from '../../measure.ts';
import { useResource } from '../../resource.ts';
import { ownZone } from '../../time-zone.ts';
import { chosenTypes, type View } from '../../url.ts';
import { type Making, WebhookDialog } from './new-webhook.ts';

/** What a form says of a rule, by the names of its fields; absent: nothing yet. */
export type Draft = Readonly<Record<string, string>>;

/** The rule as the server reads it. */
export function ruleText({ kind = 'above', of = 'count', ...draft }: Draft): string {
  const {
    field,
    type,
    filter,
    by,
    window,
    held,
    delay,
    to,
    threshold = '',
  } = Object.fromEntries(Object.entries(draft).filter(([, text]) => text !== ''));
  const measured = { of, field, type, filter };
  const time = { by, window, for: held, delay };
  return JSON.stringify(
    kind === 'absent'
      ? { absent: true, type, filter, ...time }
      : kind === 'unusual'
        ? { unusual: true, ...measured, for: held, delay }
        : {
            ...(of === 'ratio' ? { ratio: { type, filter }, to: { type: to } } : measured),
            ...time,
            // What is no number is refused by the server, which says what it expects.
            [kind]: Number.isNaN(Number(threshold)) ? threshold : Number(threshold),
          },
  );
}

export interface ChartAlertProps {
  readonly appId: string;
  readonly view: View;
  readonly types: readonly EventType[];
  readonly drawing: Drawing;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** A new alert about what a chart shows, with its buckets as windows: it fires above the highest one. */
export function ChartAlert(props: ChartAlertProps): VNode {
  const { appId, view, types, drawing, ...handlers } = props;
  const { measure, by } = view;
  const { bucket } = drawing.series;
  const part = measure?.kind === 'ratio' ? measure.part : { filter: view.filters[0] ?? '' };
  const nameOf = (id = ''): string => types.find(({ typeId }) => typeId === id)?.name ?? '';
  const chosen = nameOf(chosenTypes(view)[0]);
  const draft = {
    of: measure === null ? 'count' : measure.kind === 'ratio' ? 'ratio' : singleStat(measure.stat),
    field: measure?.kind === 'stat' ? measure.of : '',
    type: 'type' in part ? nameOf(part.type) : chosen,
    to: chosen,
    filter: 'filter' in part ? part.filter : '',
    by: view.filters.length === 0 ? (by ?? '') : '',
    window: /^[1-7]?\d?[mhd]$/.test(bucket) ? bucket : '1d',
    threshold: String(Number(drawing.highest.toPrecision(3))),
  };
  return html`<${NewAlert} path=${`/api/apps/${appId}`} draft=${draft} ...${handlers} />`;
}

export interface NewAlertProps {
  /** Path of the app. */
  readonly path: string;
  readonly draft: Draft;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

export function NewAlert({ path, draft, onDone, onClose }: NewAlertProps): VNode {
  const [values, setValues] = useState<Draft>({ window: '5m', threshold: '100', ...draft });
  const { of = 'count', kind = 'above' } = values;
  const webhooks = useResource<WebhookList>(`${path}/webhooks`);
  const known = webhooks.data?.webhooks ?? [];
  const [making, setMaking] = useState<Making>(false);
  const [made, setMade] = useState('');
  const bodyOf = ({ name, webhook, emails = '', alertmanager, ...given }: Draft) => ({
    ...{ name, rule: ruleText(given), timezone: ownZone(), emails: linesOf(emails) },
    ...{ webhooks: webhook ? [webhook] : [], alertmanager: alertmanager || null },
  });
  const field = (label: string, name: string, more: object = {}): VNode =>
    html`<${Field} label=${label} name=${name} required=${false} defaultValue=${values[name]} ...${more} />`;
  const isLimit = kind === 'above' || kind === 'below';
  return html`<${FormDialog} title="New alert" submit="Add" path=${`${path}/alerts`} body=${bodyOf} said="The alert was added" onDone=${onDone} onClose=${onClose}>
    <div class="alert-form" onChange=${(event: Event) => {
      const { form } = event.target as HTMLInputElement; // What changes is a field.
      if (form) setValues(Object.fromEntries(new FormData(form)) as Record<string, string>); // It has no files.
    }}>
        <${Field} label="Name" name="name" maxlength="100" />
        <${Select} label="Tell me when" name="of" chosen=${of} options=${[
          ['count', 'the count'],
          ['ratio', 'the ratio'],
          ...STATS.map((stat) => [stat, measureLabel(stat)] as const),
        ]} />
        ${of !== 'count' && of !== 'ratio' && field('of the field', 'field', { placeholder: 'order.total' })}
        ${field('of events of the type', 'type', { placeholder: 'all types' })}
        ${field('with', 'filter', { placeholder: 'status:500' })}
        ${of === 'ratio' && field('to events of the type', 'to', { placeholder: 'all types' })}
        <${Select} label="is" name="kind" chosen=${kind} options=${[
          ['above', 'above'],
          ['below', 'below'],
          ['absent', 'nothing: they have stopped'],
          ['unusual', 'unusual for this time of the week'],
        ]} />
        ${isLimit && field('the threshold', 'threshold', { inputmode: 'decimal' })}
        ${kind !== 'unusual' && field('within', 'window', { hint: 'Such as 5m, 2h or 1d.' })}
        ${field('for', 'held', { placeholder: 'at once' })}
        ${field('judged later by', 'delay', { placeholder: 'nothing', hint: 'Such as 10m, where events arrive late.' })}
        ${kind !== 'unusual' && field('of each value of the field', 'by', { placeholder: 'all together' })}
      <${Trial} path=${path} rule=${ruleText(values)} zone=${ownZone()} />
      <${Select} key=${`${made} ${known.length}`} label="Webhook that is told" name="webhook" chosen=${made || values.webhook} options=${[['', 'none'], ...known.map(({ webhookId, url }) => [webhookId, url] as const)]} />
      <button class="button" disabled=${known.length >= (webhooks.data?.most ?? 0)} onClick=${() => setMaking(true)}>New webhook…</button>
      ${field('Members who are mailed', 'emails', { rows: 2, hint: 'One address a line.' })}
      ${field('Alertmanager', 'alertmanager', { placeholder: 'http://alertmanager:9093' })}
    </div>
  <//>
  <${WebhookDialog} path=${path} making=${making} onStep=${setMaking} onMade=${({
    webhookId,
  }: NewWebhookAnswer) => {
    setMade(webhookId);
    webhooks.reload();
  }} />`;
}

export interface TrialProps {
  readonly path: string;
  readonly rule: string;
  readonly zone: string;
}

/** Size of the curve: a point of it is one wide. */
const [WIDTH, HEIGHT] = [240, 60];

/** What a rule would have done: its value, the line where it fires, and when it would have. */
export function Trial({ path, rule, zone }: TrialProps): VNode {
  const tried = useResource<AlertTrial>(
    `${path}/alerts/trial?${new URLSearchParams({ rule, timezone: zone })}`,
  );
  const { data, problem } = tried;
  if (data === undefined || problem !== null)
    return html`<div class="trial"><${Waiting} for=${tried} lines=${3} /></div>`;
  const { to, firings, total, fires, curve } = data;
  const { values, low, high } = curve;
  const seen = [...values, ...low, ...high].map(Number);
  const [least, most] = [Math.min(0, ...seen), Math.max(1e-9, ...seen)];
  const line = (points: AlertTrial['curve']['low']): string => {
    let path = '';
    points.forEach((value, x) => {
      if (value === null) return;
      const y = 2 + (HEIGHT - 4) * (1 - (value - least) / (most - least));
      path += `${path === '' || points[x - 1] === null ? 'M' : 'L'}${x} ${y.toFixed(1)}h1`;
    });
    return path;
  };
  const times = `${counted(total, 'time')} in the last 30 days`;
  return html`<div class="trial" aria-busy=${tried.loading}>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`Values of the last 30 days, up to ${measured(most)}`}>
      ${fires.map((isFiring, x) => isFiring && html`<rect key=${x} x=${x} width="1" height=${HEIGHT} />`)}
      <path d=${line(values)} /><path class="limit" d=${line(high)} /><path class="limit" d=${line(low)} />
    </svg>
    <p class="hint" role="status">${total === 0 ? 'It would not have fired in the last 30 days.' : `It would have fired ${times}, last on ${dateTime(firings.at(-1)?.from ?? to, ownZone())}.`}</p>
  </div>`;
}
