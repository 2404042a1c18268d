/** The usage of an app: requests and their limit, refusals, events and bytes by day, tokens. */
import type { VNode } from 'preact';
import type { Usage } from '../../src/api-types/answers.ts';
import { appPath, type TabProps } from '../app-tab.ts';
import { Bars, NEAR } from '../charts/bars.ts';
import { Ago } from '../components/ago.ts';
import { Callout } from '../components/callout.ts';
import { table } from '../components/table.ts';
import { Waiting } from '../components/waiting.ts';
import { byteSize, clock, count, counted, date } from '../format.ts';
import { html } from '../html.ts';
import { useRepeated, useResource } from '../resource.ts';
import { ownZone } from '../time-zone.ts';

/** The numbers are of the current minute. */
const REFRESH_MS = 10_000;

export function UsagePage({ appId }: TabProps): VNode {
  const usage = useResource<Usage>(`${appPath(appId)}/usage`);
  useRepeated(usage.reload, REFRESH_MS, !usage.loading);
  const { data } = usage;
  return html`<section class="usage" aria-label="Usage">
    <${Waiting} for=${usage} lines=${10} />
    ${
      data &&
      html`${data.warning && html`<${Callout} tone="note"><p><b>${data.warning.problem}</b> ${data.warning.advice} <code>tidemark app limit</code>.</p><//>`}
      <div class="usage-cards">
        <${Requests} usage=${data} />
        <${Days} usage=${data} />
        <${Refused} usage=${data} />
      </div>
      <${LastRefused} usage=${data} />
      <${Tokens} appId=${appId} usage=${data} />`
    }
  </section>`;
}

function Requests({ usage: { limits, minutes } }: { readonly usage: Usage }): VNode {
  const limit = limits.create;
  const now = minutes.at(-1)?.accepted ?? 0;
  return html`<section class="card usage-card" aria-labelledby="usage-requests">
    <h2 id="usage-requests">Requests this minute</h2>
    <p><b class="figure display">${count(now)}</b> <span class="muted">${limit === 0 ? 'without a limit' : `of ${count(limit)} in any 60 seconds`}</span></p>
    ${limit > 0 && html`<${Share} used=${now} limit=${limit} />`}
    <${Bars}
      label="Requests by minute, last hour"
      bars=${minutes.map(({ at, accepted, refused }) => ({ name: clock(Date.parse(at), ownZone()), value: accepted, second: refused }))}
      unit="request" secondUnit="refused" line=${limit === 0 ? null : limit}
    />
    <p class="usage-span hint" aria-hidden="true"><span>an hour ago</span><span>at most ${count(Math.max(...minutes.map(({ accepted, refused }) => accepted + refused)))} a minute</span><span>now</span></p>
  </section>`;
}

/** How much of a limit is used, with a line at 80 %. The numbers stand beside it as text. */
function Share({ used, limit }: { readonly used: number; readonly limit: number }): VNode {
  const share = Math.min(1, used / limit);
  return html`<svg class="usage-share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
    <rect class="usage-share-all" width="100" height="4" />
    <rect class=${share >= NEAR ? 'usage-share-near' : ''} width=${share * 100} height="4" />
    <line class="usage-share-line" x1=${NEAR * 100} x2=${NEAR * 100} y1="0" y2="4" />
  </svg>`;
}

function Days({ usage: { days, limits, types } }: { readonly usage: Usage }): VNode {
  const today = days.at(-1);
  return html`<section class="card usage-card" aria-labelledby="usage-days">
    <h2 id="usage-days">Received today (UTC)</h2>
    <p><b class="figure display">${count(today?.events ?? 0)}</b> <span class="muted">${today?.events === 1 ? 'event' : 'events'}, ${byteSize(today?.bytes ?? 0)}${limits.bytesPerDay === null ? '' : ` of ${byteSize(limits.bytesPerDay)}`} of payloads</span></p>
    ${limits.bytesPerDay !== null && html`<${Share} used=${today?.bytes ?? 0} limit=${limits.bytesPerDay} />`}
    <${Bars}
      label="Events by day, last 30 days"
      bars=${days.map(({ day, events, bytes }) => ({ name: `${date(Date.parse(day), 'UTC')}: ${byteSize(bytes)}`, value: events, second: 0 }))}
      unit="event" secondUnit="" line=${null}
    />
    <p class="usage-span hint" aria-hidden="true"><span>${days[0] && date(Date.parse(days[0].day), 'UTC')}</span><span>at most ${count(Math.max(...days.map(({ events }) => events)))} a day</span><span>today</span></p>
    <p class="hint">By time received, not by event time.</p>
    ${
      limits.types !== null &&
      html`<p><b>${count(types)}</b> <span class="muted">of ${counted(limits.types, 'event type')}</span></p>
      <${Share} used=${types} limit=${limits.types} />`
    }
  </section>`;
}

function Refused({ usage: { refused, refusedEvents, meanings } }: { readonly usage: Usage }): VNode {
  const total = refused.reduce((sum, { requests }) => sum + requests, 0);
  const events = refusedEvents.reduce((sum, one) => sum + one.events, 0);
  return html`<section class="card usage-card" aria-labelledby="usage-refused">
    <h2 id="usage-refused">Refused in the last hour</h2>
    <p><b class="figure display">${count(total)}</b> <span class="muted">${total === 1 ? 'request' : 'requests'} with this app’s logging token</span></p>
    <${Codes} meanings=${meanings} counts=${refused.map(({ code, requests }) => [code, requests] as const)} />
    ${
      events > 0 &&
      html`<p><b>${counted(events, 'event')}</b> <span class="muted">inside of requests that were accepted</span></p>
      <${Codes} meanings=${meanings} counts=${refusedEvents.map((one) => [one.code, one.events] as const)} />`
    }
    <p class="hint">Requests without a valid token belong to no app and are not here.</p>
  </section>`;
}

function LastRefused({ usage: { lastRefused } }: { readonly usage: Usage }): VNode | null {
  if (lastRefused.length === 0) return null;
  return html`<section class="usage-tokens" aria-labelledby="usage-last-refused">
    <h2 id="usage-last-refused">Last refused requests</h2>
    ${table(
      lastRefused.map((one, index) => ({ ...one, index })),
      {
        label: 'Last refused requests',
        id: ({ index }) => String(index),
        columns: [
          ['When', ({ at }) => html`<${Ago} at=${at} />`],
          ['Producer', ({ producer }) => producer ?? 'browser key'],
          ['Path', ({ route }) => html`<code>${route}</code>`],
          ['What is wrong', ({ code, details }) => html`<code>${code}</code> ${details}`],
          [
            'Body',
            ({ body, isCut }) =>
              body === null
                ? html`<span class="muted">not shown</span>`
                : html`<code class="usage-body">${body}${isCut && '…'}</code>`,
          ],
        ],
      },
    )}
    <p class="hint">At most 20, of the last 7 days. Tokens and values that rules of redaction name are masked; where there are such rules, only JSON up to 4 KB is shown.</p>
  </section>`;
}

function Codes({
  meanings,
  counts,
}: {
  readonly meanings: Usage['meanings'];
  readonly counts: readonly (readonly [code: string, count: number])[];
}): VNode | null {
  if (counts.length === 0) return null;
  return html`<ul class="usage-codes">${counts.map(
    ([code, times]) =>
      html`<li key=${code}><b>${count(times)}</b><span><code>${code}</code> <span class="muted">${meanings[code]}</span></span></li>`,
  )}</ul>`;
}

function Tokens({
  appId,
  usage: { tokens, limits },
}: {
  readonly appId: string;
  readonly usage: Usage;
}): VNode {
  return html`<section class="usage-tokens" aria-labelledby="usage-tokens">
    <h2 id="usage-tokens">Resource tokens</h2>
    ${tokens.length === 0 && html`<p class="hint">None yet. <a href=${`/apps/${appId}/settings`}>Create one in the settings</a>${' '}to read this app’s events and counts.</p>`}
    ${
      tokens.length > 0 &&
      table(tokens, {
        label: 'Use of the resource tokens',
        id: ({ tokenId }) => tokenId,
        columns: [
          ['Name', ({ name }) => name],
          ['Last used', ({ lastUsedAt }) => html`<${Ago} at=${lastUsedAt} />`],
          [
            `Reads this minute${limits.read > 0 ? `, of ${count(limits.read)}` : ''}`,
            ({ reads }) => count(reads),
            true,
          ],
          ['Refused in the last hour', ({ refused }) => count(refused), true],
        ],
      })
    }
  </section>`;
}
