/** Declares a field to be counted by values or as numbers, optionally for past events too. */
import type { VNode } from 'preact';
import type { EventTypeList, FieldKind } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { html } from '../html.ts';
import { declaredPath } from '../known-fields.ts';
import { useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { Dialog } from './dialog.ts';
import { Field, Form, Select } from './field.ts';

const KINDS: readonly (readonly [FieldKind, string])[] = [
  ['value', 'Its values'],
  ['number', 'Its numbers'],
  ['distinct', 'Its different values'],
];

export interface DeclareFieldProps {
  readonly appId: string;
  /** In the grammar of filters; empty: it is typed. */
  readonly path: string;
  /** The type that is proposed; null: all types. */
  readonly typeName: string | null;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

export function DeclareField({ appId, path, typeName, onDone, onClose }: DeclareFieldProps): VNode {
  const { data } = useResource<EventTypeList>(`/api/apps/${appId}/types`);
  const names = new Set(data?.types.map(({ name }) => name) ?? []);
  if (typeName !== null) names.add(typeName);
  // A name may be any text: it goes with a mark that "all types" does not have.
  const options = [['', 'All types'], ...[...names].map((name) => [`=${name}`, name] as const)] as const;
  const action = useAction(async ({ path: typed, kind, type = '', backfill }: Record<string, string>) => {
    const body = {
      path: typed,
      kind,
      typeName: type === '' ? null : type.slice(1),
      backfill: backfill !== undefined,
    };
    await call('POST', declaredPath(appId), { body });
    notify('The field is being counted');
    onClose();
    onDone();
  });
  return html`<${Dialog} title="Add a counted field" onClose=${onClose}>
    <${Form} action=${action} submit="Count the field" onCancel=${onClose}>
      <${Field} label="Path" name="path" maxlength="1000" defaultValue=${path} placeholder="order.country" hint="The names that lead to the value, with dots between them. An array needs no name." />
      <${Select} label="Count" name="kind" options=${KINDS} hint="Values: filters on them have exact totals, fast pages and exact charts, and charts are broken down by them. Numbers: charts show their sum, average and percentiles. Different values: a series tells how many there are." />
      <${Select} key=${names.size} label="Of" name="type" options=${options} chosen=${typeName === null ? '' : `=${typeName}`} hint="Counts of one type answer filters on that type alone." />
      <label class="check"><input type="checkbox" name="backfill" defaultChecked /><span>Count earlier events too, in the background</span></label>
    <//>
  <//>`;
}
