/** Declares a field to be counted, alone or by the values of another, optionally for past events too, and says what that takes. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { EventTypeList, FieldKind } from '../../src/api-types/answers.ts';
import { count } from '../format.ts';
import { html } from '../html.ts';
import { declaredPath, pathKey, useCatalog, useDeclaredFields } from '../known-fields.ts';
import { useResource } from '../resource.ts';
import { FormDialog } from './confirm.ts';
import { Field, Select } from './field.ts';

const KINDS: readonly (readonly [FieldKind, string])[] = [
  ['value', 'Its values'],
  ['number', 'Its numbers'],
  ['distinct', 'Its different values'],
];

export interface DeclareFieldProps {
  readonly appId: string;
  /** In the grammar of filters; empty: it is typed. */
  readonly path: string;
  /** The kind that is proposed; absent: what fits the values that recent events have. */
  readonly kind?: FieldKind;
  /** The second path that is proposed; null: none. */
  readonly by?: string | null;
  /** The type that is proposed; null: all types. */
  readonly typeName: string | null;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

export function DeclareField(props: DeclareFieldProps): VNode {
  const { appId, path, by = null, typeName, onDone, onClose } = props;
  const { data } = useResource<EventTypeList>(`/api/apps/${appId}/types`);
  const seen = useCatalog(appId).data?.fields ?? [];
  const declared = useDeclaredFields(appId).data;
  const [typed, setTyped] = useState(path);
  const [chosen, setChosen] = useState<FieldKind | null>(null);
  const names = new Set(data?.types.map(({ name }) => name) ?? []);
  if (typeName !== null) names.add(typeName);
  // A name may be any text: it goes with a mark that "all types" does not have.
  const options = [['', 'All types'], ...[...names].map((name) => [`=${name}`, name] as const)] as const;
  const kinds = seen
    .filter((field) => pathKey(field.path) === pathKey(typed))
    .flatMap((field) => field.kinds.map(({ kind }) => kind));
  const isOfNumbers = kinds.length > 0 && kinds.every((kind) => kind === 'number' || kind === 'null');
  const proposed = props.kind ?? (isOfNumbers ? 'number' : 'value');
  const events = data?.types.reduce((sum, type) => sum + type.count, 0) ?? 0;
  const bodyOf = ({ path: own, kind, by: second = '', type = '', ...given }: Record<string, string>) => ({
    path: own,
    kind,
    by: second.trim() || null,
    typeName: type === '' ? null : type.slice(1),
    backfill: given.backfill !== undefined,
    ...(given.unit && { unit: given.unit }),
    ...(given.decimals && { decimals: Number(given.decimals) }),
  });
  return html`<${FormDialog} title="Add a counted field" submit="Count the field" path=${declaredPath(appId)} body=${bodyOf} said="The field is being counted" onDone=${onDone} onClose=${onClose}>
      <${Field} label="Path" name="path" maxlength="1000" defaultValue=${path} placeholder="order.country" hint="Names with dots between them. An array needs none." onChange=${(event: Event) => setTyped((event.currentTarget as HTMLInputElement).value)} />
      <${Select} key=${proposed} label="Count" name="kind" options=${KINDS} chosen=${proposed} onChosen=${setChosen} hint="Values: exact filters and charts. Numbers: sums, averages, percentiles. Different values: how many, such as customers." />
      <${Field} label="By the values of (optional)" name="by" required=${false} maxlength="1000" defaultValue=${by ?? ''} placeholder="plan" />
      <${Select} key=${names.size} label="Of" name="type" options=${options} chosen=${typeName === null ? '' : `=${typeName}`} hint="Counts of one type answer filters on that type alone." />
      ${
        (chosen ?? proposed) === 'number' &&
        html`<${Field} label="Unit (optional)" name="unit" required=${false} maxlength="12" placeholder="€, ms, MB" />
      <${Field} label="Decimals (optional)" name="decimals" type="number" required=${false} min="0" max="6" />`
      }
      <label class="check"><input type="checkbox" name="backfill" defaultChecked /><span>Count earlier events too: ${count(events)} are read once, in the background</span></label>
      ${declared && html`<p class="hint">The app uses ${count(declared.fields.length)} of ${count(declared.most)} declarations.</p>`}
  <//>`;
}
