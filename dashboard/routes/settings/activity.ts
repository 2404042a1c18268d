/** Who changed what: the app's audit rows, newest first. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { AuditEntry } from '../../answers.ts';
import { call } from '../../api.ts';
import { ProblemBox } from '../../components/problem.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { ago, exact } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { ownZone } from '../../time-zone.ts';
import type { SectionProps } from '../settings.ts';

export interface AuditPage {
  readonly entries: readonly AuditEntry[];
  readonly hasMore: boolean;
}

export function Activity({ app, resource }: SectionProps<AuditPage>): VNode {
  const path = `/api/apps/${app.appId}/audit`;
  const { data } = resource;
  const [older, setOlder] = useState<AuditPage | null>(null);
  const entries = [...(data?.entries ?? []), ...(older?.entries ?? [])];
  const more = useAction(async () => {
    const next = await call<AuditPage>('GET', `${path}?before=${entries.at(-1)?.entryId}`);
    setOlder({ entries: [...(older?.entries ?? []), ...next.entries], hasMore: next.hasMore });
  });
  return html`<${Section} title="Activity" about="Changes of members, tokens and the app itself.">
    <${Waiting} for=${resource} lines=${4} />
    ${data && entries.length === 0 && html`<p class="hint">Nothing yet.</p>`}
    <ol class="activity">
      ${entries.map(
        ({ entryId, at, actor, action, details }) => html`<li key=${entryId}>
          <span><b>${sentence(action)}</b> ${detailText(details)}</span>
          <span class="muted">${actor} · <time datetime=${at} title=${exact(Date.parse(at), ownZone())}>${ago(Date.parse(at), Date.now())}</time></span>
        </li>`,
      )}
    </ol>
    <${ProblemBox} problem=${more.problem} />
    ${(older ?? data)?.hasMore && html`<div class="row-actions"><button type="button" class="button" aria-disabled=${more.busy} onClick=${() => more.run()}>Show older</button></div>`}
  <//>`;
}

/** `logging-token.rotate` → `Logging token: rotate` */
function sentence(action: string): string {
  const words = action.replace('.', ': ').replaceAll('-', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function detailText(details: AuditEntry['details']): string {
  return Object.entries(details)
    .map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
}
