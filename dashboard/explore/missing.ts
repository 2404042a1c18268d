/** What is not counted but would answer the view: an owner may have it counted, at the price that is shown. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { EventType, FieldKind } from '../../src/api-types/answers.ts';
import { DeclareField } from '../components/declare-field.ts';
import { countablePath } from '../filter-text.ts';
import { html } from '../html.ts';
import { pathKey } from '../known-fields.ts';
import type { ShownStat } from '../measure.ts';
import { now } from '../state.ts';
import { chosenTypes, type View } from '../url.ts';

/** A declaration that the app does not have. */
export interface Missing {
  readonly path: string;
  readonly kind: FieldKind;
  readonly by: string | null;
}

/** The declaration that would answer a statistic; null where none would. */
export function missingOf(
  view: View,
  { of, stat }: { readonly of: string; readonly stat: ShownStat },
  isKnown: boolean,
): Missing | null {
  const by = view.by ?? onlyPath(view);
  if (!isKnown || (by !== null && pathKey(by) === pathKey(of))) return null;
  return { path: of, kind: stat === 'distinct' ? 'distinct' : 'number', by };
}

/** The path of the view's only condition; null where there are several, or none that counts answer. */
export function onlyPath({ filters, text }: View): string | null {
  const [only, ...others] = filters;
  return only === undefined || others.length > 0 || text !== null ? null : countablePath(only);
}

export interface MissingOfferProps {
  readonly appId: string;
  readonly view: View;
  readonly missing: Missing;
  readonly types: readonly EventType[];
  /** Asks again for what the page shows. */
  readonly onDone: () => void;
}

export function MissingOffer({ appId, view, missing, types, onDone }: MissingOfferProps): VNode {
  const [declaring, setDeclaring] = useState(false);
  const [only, second] = chosenTypes(view);
  const typeName = second === undefined ? (types.find((type) => type.typeId === only)?.name ?? null) : null;
  const { path, by } = missing;
  const done = (): void => {
    now.value = Date.now();
    onDone();
  };
  return html`<button class="button" onClick=${() => setDeclaring(true)}>Count ${path}${by !== null && ` by ${by}`} from now on…</button>
    ${declaring && html`<${DeclareField} appId=${appId} ...${missing} typeName=${typeName} onDone=${done} onClose=${() => setDeclaring(false)} />`}`;
}
