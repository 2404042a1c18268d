/** The JSON Schema of an event type: what its checks have found, and setting, changing and removing it. */
import type { VNode } from 'preact';
import { useId, useRef, useState } from 'preact/hooks';
import type { SchemaMode, SchemaSummary, TypeSchema } from '../../../src/api-types/answers.ts';
import { call, Problem } from '../../api.ts';
import { Ago } from '../../components/ago.ts';
import { Callout } from '../../components/callout.ts';
import { Confirm } from '../../components/confirm.ts';
import { Dialog } from '../../components/dialog.ts';
import { Form, Select } from '../../components/field.ts';
import { Waiting } from '../../components/waiting.ts';
import { count, counted, dateTime } from '../../format.ts';
import { html } from '../../html.ts';
import { placeOfMistake } from '../../json-mistake.ts';
import { useAction, useResource } from '../../resource.ts';
import { notify } from '../../state.ts';
import { useView } from '../../view.ts';

export interface SchemaDialogProps {
  /** Path and name of the type. */
  readonly path: string;
  readonly name: string;
  /** Whether it has a schema now. */
  readonly isSet: boolean;
  readonly isOwner: boolean;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

const MODES: readonly (readonly [SchemaMode, string])[] = [
  ['warn', 'Warn: store the event and count the violation'],
  ['refuse', 'Refuse: answer 400 SCHEMA_VIOLATION'],
];
const DRAFT = `{
  "type": "object",
  "required": [],
  "properties": {}
}`;

export function SchemaDialog(props: SchemaDialogProps): VNode {
  const { path, name, isSet, isOwner, onDone, onClose } = props;
  const schema = useResource<TypeSchema>(isSet ? `${path}/schema` : null);
  const { data } = schema;
  const [removing, setRemoving] = useState(false);
  if (removing)
    return html`<${Confirm} key="remove" title="Remove the schema" path=${`${path}/schema`} said="The schema was removed" onClose=${() => setRemoving(false)} onDone=${() => {
      onClose();
      onDone();
    }}>Events of <b>${name}</b> are no longer checked, and what was found is forgotten.<//>`;
  return html`<${Dialog} key="schema" title=${`Schema of ${name}`} onClose=${onClose}>
    ${isSet && html`<${Waiting} for=${schema} lines=${8} />`}
    ${data && html`<${Findings} found=${data} />`}
    ${
      isOwner
        ? (data || !isSet) &&
          html`<${SchemaForm} ...${props} schema=${data} onRemove=${() => setRemoving(true)} />`
        : data &&
          html`<pre class="schema-text" tabindex="0" aria-label="JSON Schema">${spelled(data.schema)}</pre>`
    }
  <//>`;
}

const spelled = (schema: object): string => JSON.stringify(schema, null, 2);

/** The mode of a schema in one word, and its violations. */
export function schemaState({ mode, violations, suspendedAt }: SchemaSummary): string {
  if (suspendedAt !== null) return 'Suspended';
  const state = mode === 'refuse' ? 'Refuses' : 'Warns';
  return violations === 0 ? state : `${state}, ${counted(violations, 'violation')}`;
}

function Findings({ found }: { readonly found: SchemaSummary }): VNode {
  const { view } = useView();
  const { mode, setAt, suspendedAt, suspendedReason, checked, violations, unchecked, lastViolation } = found;
  return html`<p class="muted">${mode === 'refuse' ? 'Refuses' : 'Warns'} since ${dateTime(Date.parse(setAt), view.zone)}: ${count(checked)} checked, <b>${counted(violations, 'violation')}</b>${unchecked > 0 && `, ${count(unchecked)} could not be checked`}.</p>
    ${suspendedAt !== null && html`<${Callout} tone="note"><p><b>Payloads are not checked since ${dateTime(Date.parse(suspendedAt), view.zone)}.</b> ${suspendedReason} Set a changed schema to resume the checks, or the same one ten minutes after the suspension.</p><//>`}
    ${
      lastViolation !== null &&
      html`<${Callout} tone="note"><p>Last violation, <${Ago} at=${lastViolation.at} zone=${view.zone} />: ${lastViolation.path === '' ? 'the payload' : html`<code>${lastViolation.path}</code>`} ${lastViolation.message}</p><//>`
    }`;
}

interface FormProps extends SchemaDialogProps {
  /** Undefined: there is none yet. */
  readonly schema: TypeSchema | undefined;
  readonly onRemove: () => void;
}

function SchemaForm({ path, schema, onRemove, onDone, onClose }: FormProps): VNode {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const save = useAction(async ({ text = '', mode }: Record<string, string>) => {
    await call('PUT', `${path}/schema`, { body: { schema: parsed(text, area.current), mode } });
    notify('The schema was set');
    onClose();
    onDone();
  });
  return html`<${Form} action=${save} submit=${schema ? 'Change the schema' : 'Set the schema'} onCancel=${onClose}>
    <${Select} label="An event that violates it" name="mode" options=${MODES} chosen=${schema?.mode ?? 'warn'} />
    <div class="field">
      <label for=${id}>JSON Schema</label>
      <textarea id=${id} ref=${area} class="schema-text" name="text" rows="12" required spellcheck=${false} autocomplete="off" aria-describedby=${`${id}-hint`} aria-invalid=${save.problem === null ? undefined : 'true'} defaultValue=${schema ? spelled(schema.schema) : DRAFT} onInput=${save.clear}></textarea>
      <p class="hint" id=${`${id}-hint`}>Draft 2020-12, or draft-07 by <code>$schema</code>. Setting it counts violations from 0.</p>
    </div>
    ${schema && html`<div class="row-actions"><button class="button quiet" onClick=${onRemove}>Remove the schema…</button></div>`}
  <//>`;
}

/** The JSON of what was typed. A syntax error is selected. @throws Problem with its position */
function parsed(text: string, area: HTMLTextAreaElement | null): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const place = placeOfMistake(text, message);
    area?.focus();
    if (place === null) throw new Problem('This is not JSON', { details: `${message}.` });
    area?.setSelectionRange(place.at, place.at + 1);
    throw new Problem(`This is not JSON at line ${place.line}, column ${place.column}`, {
      details: `${message.replace(/ in JSON at position.*| at line \d+ column.*/s, '')}.`,
    });
  }
}
