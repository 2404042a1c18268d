/** What the link of a share shows: its charts, and its events where its maker says so. */
import type { VNode } from 'preact';
import { useRef } from 'preact/hooks';
import type { SharedData, ShareKey } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { Field, Form } from '../components/field.ts';
import { table } from '../components/table.ts';
import { Waiting } from '../components/waiting.ts';
import { exact, rangeName } from '../format.ts';
import { html } from '../html.ts';
import { isOpen, parseRange } from '../range.ts';
import { useAction, useRepeated, useResource } from '../resource.ts';
import { useTitle } from '../title.ts';
import { ShownCharts } from './boards.ts';

const REFRESH_MS = 10_000;

/** The key of a password that was typed: for the tab, so that a reload asks for none, or for the screen. A page in a frame may keep nothing. */
function storeKey(name: string, key: string, keep: boolean): void {
  try {
    (keep ? localStorage : sessionStorage).setItem(name, key);
  } catch {
    // It is asked for again.
  }
}

function storedKey(name: string): string {
  try {
    return sessionStorage.getItem(name) ?? localStorage.getItem(name) ?? '';
  } catch {
    return '';
  }
}

export function SharedPage({ token }: Readonly<Record<string, string>>): VNode {
  const path = `/api/shared/${token}`;
  const stored = `share ${token?.slice(-12)}`;
  const key = useRef('');
  key.current ||= storedKey(stored);
  const shared = useResource<SharedData>(path, {
    load: (signal) => call('GET', path, { signal, headers: { 'X-Share-Key': key.current } }),
  });
  const unlock = useAction(async (body: Record<string, string>) => {
    const keep = body.keep !== undefined;
    key.current = (await call<ShareKey>('POST', `${path}/key`, { body: { ...body, keep } })).key;
    storeKey(stored, key.current, keep);
    shared.reload();
  });
  const { problem } = shared;
  // Without an answer the last one stays; a refusal ends it.
  const data = problem?.status ? undefined : shared.data;
  const range = parseRange(data?.range ?? '');
  // Each view has its own where the share has none.
  const isMoving = data !== undefined && (range === null || isOpen(range));
  useTitle(data?.name ?? 'Shared');
  useRepeated(shared.reload, REFRESH_MS, isMoving);
  if (problem?.code === 'PASSWORD_REQUIRED')
    return html`<div class="narrow"><h1>A password is needed</h1><${Form} action=${unlock} submit="Show"><${Field} label="Password" name="password" type="password" autofocus /><label class="check"><input type="checkbox" name="keep" /><span>Do not ask again on this screen for 30 days</span></label><//></div>`;
  return html`<section class="page">
    <${Waiting} for=${shared} lines=${12} />
    ${
      data &&
      html`<h1>${data.name}</h1><p class="muted">${rangeName(data.range, data.timezone)} (${data.timezone.replaceAll('_', ' ')})</p>
      <${ShownCharts} charts=${data.charts} zone=${data.timezone} />
      ${data.problem && html`<p class="hint">${data.problem}</p>`}
      ${
        data.events.length > 0 &&
        table(data.events, {
          label: 'Events',
          id: ({ id }) => id,
          columns: [
            ['Time', ({ createdAt }) => exact(Date.parse(createdAt), data.timezone)],
            ['Type', ({ typeId }) => data.types[typeId] ?? typeId],
            data.events[0]?.payload !== undefined && [
              'Payload',
              ({ payload }) => html`<code>${payload}</code>`,
            ],
          ],
        })
      }`
    }
  </section>`;
}
