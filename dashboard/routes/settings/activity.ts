/** Who changed what: the app's audit rows, newest first, as sentences. */
import type { VNode } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { AuditEntry, AuditPage } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import { ProblemBox } from '../../components/problem.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { pathText } from '../../filter-text.ts';
import { ago, count, counted, exact } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { ownZone } from '../../time-zone.ts';
import type { SectionProps } from '../settings.ts';

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
  return html`<${Section} title="Activity" about="Changes of members, tokens, types and the app itself.">
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
          <span><b>${entry.actor}</b> ${sentence(entry)}</span>
          <time class="muted" datetime=${entry.at} title=${exact(Date.parse(entry.at), ownZone())}>${ago(Date.parse(entry.at), Date.now())}</time>
        </li>`,
      )}
    </ol>
    <${ProblemBox} problem=${more.problem} />
    ${(older ?? data)?.hasMore && html`<div class="row-actions"><button type="button" class="button" aria-disabled=${more.busy} onClick=${() => more.run()}>Show older</button></div>`}
  <//>`;
}

type Details = AuditEntry['details'];

/** Sentences by action; the name of its target is a detail. */
const SENTENCES: Readonly<Record<string, (details: Details) => string>> = {
  'app.create': () => 'created the app',
  'app.rename': ({ from, to }) => `renamed the app from “${from}” to “${to}”`,
  'app.suspend': () => 'suspended the app',
  'app.resume': () => 'resumed the app',
  'type.create': ({ name }) => `created the event type “${name}”`,
  'type.rename': ({ from, to }) => `renamed the event type “${from}” to “${to}”`,
  'app.limit': ({ createPerMinute, bytesPerDay, types }) =>
    limitsText({ createPerMinute, bytesPerDay, types }),
  'type.hide': ({ name }) => `hid the event type “${name}” in charts`,
  'type.show': ({ name }) => `showed the event type “${name}” in charts again`,
  'type.schema-set': ({ mode }) => `set the schema of an event type: ${mode}`,
  'type.schema-remove': () => 'removed the schema of an event type',
  'view.save': ({ name }) => `saved the view “${name}”`,
  'view.remove': ({ name }) => `removed the saved view “${name}”`,
  'annotation.add': ({ kind, text }) => `added the annotation “${text}” (${kind})`,
  'annotation.remove': ({ kind, text }) => `removed the annotation “${text}” (${kind})`,
  'field.add': ({ path }) => `declared the field “${fieldOf(path)}”`,
  'field.backfill': ({ path }) => `had the field “${fieldOf(path)}” counted in the past too`,
  'field.remove': ({ path }) => `removed the field “${fieldOf(path)}”`,
  'redaction.add': ({ path, name, what }) => `has “${fieldOf(path)}” of “${name}” redacted: ${what}`,
  'redaction.remove': ({ path, name }) => `stopped to redact “${fieldOf(path)}” of “${name}”`,
  'retention.set': ({ name, days }) => `set the retention of ${name ? `“${name}”` : 'the app'}: ${days}`,
  'logging-token.rotate': ({ graceHours }) => `rotated the logging token${graceOf(graceHours)}`,
  'producer.rotate': ({ name, graceHours }) => `rotated the logging token of “${name}”${graceOf(graceHours)}`,
  'resource-token.keep': ({ name }) => `kept the resource token “${name}” of a former member`,
  'member.add': ({ email, role }) => `added ${email} as ${role}`,
  'member.role': ({ email, role }) => `made ${email} ${role}`,
  'member.remove': ({ email }) => `removed ${email}`,
  'member.leave': () => 'left the app',
  'member.group': ({ role, group }) => `became ${role} by the group “${group}”`,
  'member.group-end': ({ email, group }) => `${email} lost the access by the group “${group}”`,
  'invitation.create': ({ email, role }) => `invited ${email} as ${role}`,
  'invitation.withdraw': ({ email }) => `withdrew the invitation of ${email}`,
  'invitation.accept': ({ role, invited }) =>
    `joined as ${role}${typeof invited === 'string' ? `, by the invitation of ${invited}` : ''}`,
};

/** A path as filters spell it: the audit log has its names as JSON. */
function fieldOf(path: unknown): string {
  const names: unknown = typeof path === 'string' && path.startsWith('[') ? JSON.parse(path) : null;
  return Array.isArray(names) ? pathText(names.map(String)) : String(path);
}

function limitsText(limits: Readonly<Record<string, unknown>>): string {
  const names = {
    createPerMinute: 'requests per minute',
    bytesPerDay: 'bytes per day',
    types: 'event types',
  };
  const set = Object.entries(names).flatMap(([name, what]) => {
    const limit = limits[name];
    return typeof limit === 'number' ? [`${count(limit)} ${what}`] : [];
  });
  return set.length === 0 ? 'set the limits back to the defaults' : `limited the app to ${set.join(', ')}`;
}

function graceOf(hours: unknown): string {
  if (typeof hours !== 'number') return '';
  return hours === 0
    ? '; the old one stopped at once'
    : `; the old one stayed valid for ${counted(hours, 'hour')}`;
}

/** Verbs whose past tense is not regular. */
const DONE: Readonly<Record<string, string>> = { seek: 'moved', skip: 'skipped an event of' };

/** Of most actions it says what was done, and what to. */
function sentence({ action, details }: AuditEntry): string {
  const [noun, verb = ''] = action.replaceAll('-', ' ').split('.');
  const { name, url, webhookId } = details;
  return (
    SENTENCES[action]?.(details) ??
    `${DONE[verb] ?? verb.replace(/e?$/, 'ed')} the ${noun} “${name ?? url ?? webhookId ?? JSON.stringify(details)}”`
  );
}
