/** Who changed what: the app's audit rows, newest first. */
import type { VNode } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { AuditEntry, AuditPage } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import type { SectionProps } from '../../app-tab.ts';
import { Ago } from '../../components/ago.ts';
import { ProblemBox } from '../../components/problem.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';

/** Filters of the list, by the prefix of the action. */
const KINDS: readonly (readonly [kind: string, label: string, begins: RegExp])[] = [
  ['', 'Everything', /^/],
  ['members', 'Members', /^(member|invitation)\./],
  ['tokens', 'Tokens', /^(logging-token|producer|resource-token|browser-key)\./],
  ['types', 'Types and fields', /^(type|field|redaction)\./],
  ['views', 'Views and annotations', /^(view|annotation)\./],
  ['app', 'The app', /^app\./],
];

export function Activity({ app, resource }: SectionProps<AuditPage>): VNode {
  const { data } = resource;
  const [older, setOlder] = useState<AuditPage | null>(null);
  const [kind, setKind] = useState('');
  // A first page that is reloaded begins later than the one before: what it lacks was shown already.
  const known = useRef(new Map<AuditEntry['entryId'], AuditEntry>());
  for (const entry of [...(data?.entries ?? []), ...(older?.entries ?? [])])
    known.current.set(entry.entryId, entry);
  const all = [...known.current.values()].sort((a, b) => Number(b.entryId) - Number(a.entryId));
  const more = useAction(async () => {
    setOlder(await call<AuditPage>('GET', `/api/apps/${app.appId}/audit?before=${all.at(-1)?.entryId}`));
  });
  const begins = KINDS.find(([value]) => value === kind)?.[2] ?? /^/;
  const entries = all.filter(({ action }) => begins.test(action));
  return html`<${Section} title="Activity">
    <${Waiting} for=${resource} lines=${4} />
    ${
      data &&
      html`<select class="activity-kind" aria-label="Show" value=${kind} onChange=${(event: Event) => setKind((event.currentTarget as HTMLSelectElement).value)}>
        ${KINDS.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
      </select>`
    }
    ${data && entries.length === 0 && html`<p class="hint">${(older ?? data).hasMore ? 'No change of this kind among the latest ones.' : 'Nothing yet.'}</p>`}
    <ol class="activity">
      ${entries.map(
        (entry) => html`<li key=${entry.entryId}>
          <span><b>${entry.actor}</b> ${entry.text}</span>
          <span class="muted"><${Ago} at=${entry.at} /></span>
        </li>`,
      )}
    </ol>
    <${ProblemBox} problem=${more.problem} />
    ${(older ?? data)?.hasMore && html`<div class="row-actions"><button class="button" aria-disabled=${more.busy} onClick=${() => more.run()}>Show older</button></div>`}
  <//>`;
}
