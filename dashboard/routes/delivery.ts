/** Who is told of an app's events and counts: its alerts and its webhooks. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type {
  AlertList,
  ListedAlert,
  ListedWebhook,
  NewWebhookAnswer,
  WebhookList,
} from '../../src/api-types/answers.ts';
import { FORMAT_NAMES } from '../../src/base/webhook-formats.ts';
import { call } from '../api.ts';
import { appPath, type TabProps } from '../app-tab.ts';
import { measured } from '../charts/curve.ts';
import { Confirm } from '../components/confirm.ts';
import { Dialog } from '../components/dialog.ts';
import { WeeklyMail } from '../components/digest.ts';
import { ProblemBox } from '../components/problem.ts';
import { Section } from '../components/section.ts';
import { rowButton, table } from '../components/table.ts';
import { Skeleton, Waiting } from '../components/waiting.ts';
import { count, dateTime } from '../format.ts';
import { html } from '../html.ts';
import { type Action, type Resource, useAction, useRepeated, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { ownZone } from '../time-zone.ts';
import { NewAlert, Trial } from './delivery/new-alert.ts';
import { type Making, WebhookDialog } from './delivery/new-webhook.ts';

/** How soon states are asked for again. */
const REFRESH_MS = 10_000;

export function DeliveryPage({ appId, app }: TabProps): VNode {
  const path = appPath(appId);
  const alerts = useResource<AlertList>(`${path}/alerts`);
  const webhooks = useResource<WebhookList>(`${path}/webhooks`);
  useRepeated(() => {
    alerts.reload();
    webhooks.reload();
  }, REFRESH_MS);
  // All at once, so that neither a list nor buttons push the others away.
  if ([app, alerts, webhooks].some(({ data, problem }) => data === undefined && problem === null))
    return html`<${Skeleton} lines=${8} />`;
  const mayChange = app.data?.may.includes('change') ?? false;
  return html`<div class="sections">
    <${Alerts} path=${path} resource=${alerts} webhooks=${webhooks.data?.webhooks ?? []} mayChange=${mayChange} />
    <${Webhooks} path=${path} resource=${webhooks} mayChange=${mayChange} />
    <${WeeklyMail} of=${appId} />
  </div>`;
}

interface ListProps<T> {
  readonly path: string;
  readonly resource: Resource<T>;
  readonly mayChange: boolean;
}

const when = (at: string): string => dateTime(Date.parse(at), ownZone());

const badge = (state: string): VNode =>
  html`<span class=${/^(ok|active|paused)$/.test(state) ? 'badge' : 'badge failing'}>${state}</span>`;

/** A change of one alert or webhook, and a notice of what came of it. */
function useChange(reload: () => void): Action<[path: string, said: string]> {
  return useAction(async (path: string, said: string) => {
    await call('POST', path);
    notify(said);
    reload();
  });
}

interface AlertsProps extends ListProps<AlertList> {
  readonly webhooks: readonly ListedWebhook[];
}

/** The dialog that is open, and of which row. */
type Opened<R> = readonly [what: string, row: R] | null;

function Alerts({ path, resource, webhooks, mayChange }: AlertsProps): VNode {
  const { data, reload } = resource;
  const [opened, open] = useState<Opened<ListedAlert>>(null);
  const [adding, setAdding] = useState(false);
  const change = useChange(reload);
  const [what, row] = opened ?? [];
  const close = (): void => open(null);
  return html`<${Section} title="Alerts" about="Rules about counts, judged each minute. Firings are marked on the chart.">
    <${Waiting} for=${resource} lines=${3} />
    <${ProblemBox} problem=${change.problem} />
    ${
      data &&
      table(data.alerts, {
        label: 'Alerts',
        id: ({ alertId }) => alertId,
        columns: [
          ['Alert', ({ name, text }) => html`${name}<p class="hint">${text}</p>`],
          [
            'State',
            ({ state, problem, warning, firing }) =>
              html`${badge(state)} ${problem ?? warning ?? (firing > 1 && `${count(firing)} series`)}`,
          ],
          [
            'Tells',
            (one) =>
              [
                ...one.webhooks.map((id) => webhooks.find(({ webhookId }) => webhookId === id)?.url ?? id),
                ...one.emails,
                one.alertmanager,
              ]
                .filter(Boolean)
                .join(', ') || 'the chart alone',
          ],
          [
            '',
            (one) => {
              const { name, alertId, state } = one;
              const to = `${path}/alerts/${alertId}/`;
              return html`${rowButton('History', name, () => open(['history', one]))}
              ${rowButton('Last 30 days', name, () => open(['trial', one]))}
              ${
                mayChange &&
                html`${
                  state === 'paused'
                    ? rowButton('Resume', name, () => change.run(`${to}resume`, `${name} is judged again`))
                    : rowButton('Pause', name, () => change.run(`${to}pause`, `${name} is paused`))
                }
                ${rowButton('Remove', name, () => open(['remove', one]))}`
              }`;
            },
          ],
        ],
      })
    }
    ${mayChange && data && html`<div class="row-actions"><button class="button" disabled=${data.alerts.length >= data.most} onClick=${() => setAdding(true)}>New alert…</button></div>`}
    ${adding && html`<${NewAlert} path=${path} draft=${{}} onDone=${reload} onClose=${() => setAdding(false)} />`}
    ${
      row &&
      (what === 'remove'
        ? html`<${Confirm} title="Remove the alert" path=${`${path}/alerts/${row.alertId}`} said="" onClose=${close} onDone=${reload}><b>${row.name}</b> tells nobody any more, and what it has said is deleted.<//>`
        : html`<${Dialog} title=${row.name} onClose=${close}>
          <p>${row.text}</p>
          ${what === 'trial' ? html`<${Trial} path=${path} rule=${JSON.stringify(row.rule)} zone=${row.timezone} />` : html`<${History} of=${row} />`}
        <//>`)
    }
  <//>`;
}

function History({ of: { transitions } }: { readonly of: ListedAlert }): VNode {
  if (transitions.length === 0) return html`<p class="hint">It has not fired yet.</p>`;
  return table(transitions, {
    label: 'History',
    id: ({ to, series, kind }) => `${to} ${series} ${kind}`,
    columns: [
      ['Time', ({ to }) => when(to)],
      [
        'Change',
        ({ kind, isCorrected, series }) =>
          `${kind}${kind === 'firing' && isCorrected ? ', corrected' : ''} ${series}`,
      ],
      [
        'Value',
        ({ value, expected }) =>
          `${value === null ? '–' : measured(value)}${expected === null ? '' : `, expected ${measured(expected)}`}`,
      ],
      ['Threshold', ({ threshold }) => (threshold === null ? '–' : measured(threshold))],
    ],
  });
}

function Webhooks({ path, resource, mayChange }: ListProps<WebhookList>): VNode {
  const { data, reload } = resource;
  const [opened, open] = useState<Opened<ListedWebhook>>(null);
  const [making, setMaking] = useState<Making>(false);
  const change = useChange(reload);
  const [what, row] = opened ?? [];
  const close = (): void => open(null);
  const test = useAction(async (to: string) => {
    const { status, problem, answer, ms } = await call<
      ListedWebhook['history'][number] & { readonly answer: string }
    >('POST', to);
    const told = problem === null && answer !== '' ? `: ${answer}` : '';
    notify(`The endpoint ${answerText(status, problem)}${told}, in ${count(ms)} ms`);
    reload();
  });
  const rotate = useAction(async (to: string) => {
    setMaking(await call<NewWebhookAnswer>('POST', to));
  });
  return html`<${Section} title="Webhooks" about="Addresses that get the app's events in order, each with a signature.">
    <${Waiting} for=${resource} lines=${3} />
    <${ProblemBox} problem=${change.problem ?? test.problem ?? rotate.problem} />
    ${
      data &&
      table(data.webhooks, {
        label: 'Webhooks',
        id: ({ webhookId }) => webhookId,
        columns: [
          [
            'Address',
            ({ url, webhookId, format }) =>
              html`${url}<p class="hint">${format !== 'standard' && `${FORMAT_NAMES[format]}, `}${webhookId}</p>`,
          ],
          [
            'State',
            ({ state, reason, failingSince, nextTryAt }) =>
              html`${badge(state)} ${reason}${failingSince !== null && ` failing since ${when(failingSince)}`}${nextTryAt !== null && state === 'active' && `, next try ${when(nextTryAt)}`}`,
          ],
          [
            'Events',
            ({ delivered, failed, skipped }) =>
              `${count(delivered)} delivered, ${count(failed)} failed tries, ${count(skipped)} skipped`,
          ],
          [
            '',
            (one) => {
              const { url, webhookId, state } = one;
              const to = `${path}/webhooks/${webhookId}/`;
              return html`${rowButton('Deliveries', url, () => open(['history', one]))}
              ${
                mayChange &&
                html`${rowButton('Test', url, () => test.run(`${to}test`))}
                ${
                  state === 'active'
                    ? rowButton('Pause', url, () => change.run(`${to}pause`, 'The webhook is paused'))
                    : rowButton('Resume', url, () => change.run(`${to}resume`, 'The webhook goes on'))
                }
                ${one.blockedBy !== null && rowButton('Skip the event', url, () => change.run(`${to}skip`, 'The event was skipped'))}
                ${rowButton('Rotate', url, () => rotate.run(`${to}rotate`))}
                ${rowButton('Remove', url, () => open(['remove', one]))}`
              }`;
            },
          ],
        ],
      })
    }
    ${mayChange && data && html`<div class="row-actions"><button class="button" disabled=${data.webhooks.length >= data.most} onClick=${() => setMaking(true)}>New webhook…</button></div>`}
    <${WebhookDialog} path=${path} making=${making} onStep=${setMaking} onMade=${reload} />
    ${
      row &&
      (what === 'remove'
        ? html`<${Confirm} title="Remove the webhook" path=${`${path}/webhooks/${row.webhookId}`} said="" onClose=${close} onDone=${reload}><b>${row.url}</b> gets no more events, and its position is forgotten.<//>`
        : html`<${Dialog} title="Last deliveries" onClose=${close}>
          ${table(row.history, {
            label: 'Last deliveries',
            id: ({ at, messageId }) => `${at} ${messageId}`,
            columns: [
              ['Time', ({ at }) => when(at)],
              ['Answer', ({ status, problem }) => answerText(status, problem)],
              ['Took', ({ ms }) => `${count(ms)} ms`],
              ['Message', ({ type, messageId }) => `${type} ${messageId}`],
            ],
          })}
        <//>`)
    }
  <//>`;
}

const answerText = (status: number | null, problem: string | null): string =>
  status === null ? `gave no answer: ${problem}` : (problem ?? `answered ${status}`);
