/** The filter bar: event types, conditions on payloads, and text as chips, typed with completion. */
import type { VNode } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { EventType, TypedConditions } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { Icon } from '../components/icon.ts';
import { onLeave } from '../components/popover.ts';
import { matches } from '../components/search.ts';
import type { EventPage } from '../event-rows.ts';
import { typable, typedConditionsPath, typedPath, valueText, withCondition } from '../filter-text.ts';
import { amount, counted as eventsText } from '../format.ts';
import { html } from '../html.ts';
import { useSearchField } from '../places.ts';
import { useResource } from '../resource.ts';
import { chosenTypes, type View } from '../url.ts';
import { asksForHidden, type ViewAndChange } from '../view.ts';
import { useCountedValues, useFieldValues, type ValueCount } from './field-values.ts';
import { fieldsOf, type KnownField, mergeFields, useServerFields } from './fields.ts';
import { useFoundTypes } from './type-names.ts';

export interface FilterBarProps {
  /** What it is called. */
  readonly label?: string;
  readonly appId: string;
  readonly viewed: ViewAndChange;
  readonly types: readonly EventType[];
  /** Types that are not completed. */
  readonly unwanted: ReadonlySet<string>;
  /** Events at hand: their fields are offered. */
  readonly pages: readonly EventPage[];
  /** Events that are read for a condition on a field that is not counted. */
  readonly rows: number;
}

/** One line of the completion. */
interface Offer {
  readonly kind: string;
  readonly label: string;
  readonly hint?: string;
  /** What choosing it leads to: another view, or more text to type. */
  readonly changes?: Partial<View>;
  readonly text?: string;
}

const MOST_TYPES = 8;
const MOST_FIELDS = 8;
const MOST_VALUES = 8;
/** What the server is asked about: it has a sign, or a word that compares. */
const MAYBE_CONDITIONS = /[:=<>(]|\s(in|i?like|contains|matches)\s/i;
/** Chips of types; more are one. */
const MOST_CHIPS = 4;

export function FilterBar({
  label = 'Filter',
  appId,
  viewed,
  types,
  unwanted,
  pages,
  rows,
}: FilterBarProps): VNode {
  const { view, change } = viewed;
  const [text, setText] = useState('');
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const root = useRef<HTMLDivElement>(null);
  useSearchField(input);
  const id = useId();
  const known = useServerFields(appId, open);
  const typed = typedPath(text);
  const path = open && typed?.sign === ':' ? typed.path.replace(/^-/, '') : null;
  const values = useFieldValues(appId, path, viewed);
  const all = [
    ...(path === null ? [] : [{ path, values: values.map(({ value }) => value) }]),
    ...(open ? fieldsOf(pages) : []),
    ...known,
  ];
  const isWord = open && typed === null && text.trim() !== '';
  const counted = known.flatMap((field) => (field.counted === 'counted' ? [field.path] : []));
  const ofFields = useCountedValues(appId, isWord ? counted : [], viewed);
  const offered = useFoundTypes(appId, isWord ? text.trim() : '', types).filter(
    ({ typeId, hidden }) => !unwanted.has(typeId) && (!hidden || asksForHidden(view)),
  );
  const reading = open && MAYBE_CONDITIONS.test(text) ? typedConditionsPath(text) : null;
  const { data, isStale } = useResource<TypedConditions>(reading);
  const offersAs = (read: TypedConditions | undefined): Offer[] =>
    open
      ? offersFor(text, read, view, { types: offered, fields: mergeFields(all), values, ofFields, rows })
      : [];
  const offers = offersAs(isStale ? undefined : data);
  useEffect(() => {
    if (open) return onLeave(root, () => setOpen(false));
  }, [open]);
  const choose = (offer: Offer): void => {
    setActive(-1);
    setText(offer.text ?? '');
    setOpen(offer.text !== undefined);
    if (offer.changes !== undefined) change({ hidden: [], at: null, ...offer.changes });
    input.current?.focus();
  };
  const enter = async (): Promise<void> => {
    const isChosen = active >= 0 || reading === null;
    const all = isChosen ? offers : offersAs(await call<TypedConditions>('GET', reading));
    // What is not understood is not searched for as a text: the first line says how it is written.
    const [first] = all;
    const isRefused = first !== undefined && first.changes === undefined && first.text === undefined;
    const offer =
      all[active] ?? (text.trim() === '' || isRefused ? undefined : all.find(({ changes }) => changes));
    if (offer !== undefined && (offer.changes ?? offer.text) !== undefined) choose(offer);
  };
  const keys = (event: KeyboardEvent): void => {
    const last = offers.length - 1;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      setOpen(true);
      setActive((now) =>
        event.key === 'ArrowDown' ? (now >= last ? 0 : now + 1) : now <= 0 ? last : now - 1,
      );
    } else if (event.key === 'Enter') {
      enter();
    } else if (event.key === 'Escape' && open) setOpen(false);
    else if (event.key === 'Backspace' && text === '') removeLast(viewed);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="filter-bar" ref=${root}>
    <${Icon} name="filter" />
    <${Chips} viewed=${viewed} types=${types} onEdit=${(edited: string) => {
      setText(edited);
      setOpen(true);
      input.current?.focus();
    }} />
    <input
      ref=${input}
      role="combobox"
      aria-label=${label}
      aria-expanded=${offers.length > 0}
      aria-controls=${id}
      aria-autocomplete="list"
      aria-activedescendant=${active >= 0 && offers.length > 0 ? `${id}-${active}` : undefined}
      autocomplete="off"
      spellcheck=${false}
      placeholder=${view.types.length + view.filters.length === 0 && view.text === null ? 'Filter by type, field or text' : ''}
      value=${text}
      onFocus=${() => setOpen(true)}
      onClick=${() => setOpen(true)}
      onInput=${(event: InputEvent) => {
        setText((event.currentTarget as HTMLInputElement).value);
        setActive(-1);
        setOpen(true);
      }}
      onKeyDown=${keys}
    />
    <ul class="offers raised" role="listbox" id=${id} aria-label="Filters" hidden=${offers.length === 0}>
      ${offers.map(
        (offer, index) => html`<li
          key=${offer.kind + offer.label}
          role="option"
          id=${`${id}-${index}`}
          aria-selected=${index === active}
          onPointerDown=${(event: Event) => {
            // The input keeps the focus.
            event.preventDefault();
            if ((offer.changes ?? offer.text) !== undefined) choose(offer);
          }}
        ><span class="kind">${offer.kind}</span><span class="name">${offer.label}</span><span class="value">${offer.hint}</span></li>`,
      )}
    </ul>
  </div>`;
}

interface Known {
  readonly types: readonly EventType[];
  readonly fields: readonly KnownField[];
  /** Values of the field that is typed. */
  readonly values: readonly ValueCount[];
  /** Values of the fields that are counted, where a word is typed. */
  readonly ofFields: ReturnType<typeof useCountedValues>;
  readonly rows: number;
}

const MOST_WORD_VALUES = 6;

/** What a word may be: a type, a field, a value of one, and last a text, for which every event has to be looked at. */
function offersFor(text: string, read: TypedConditions | undefined, view: View, known: Known): Offer[] {
  const typed = typedPath(text);
  const wanted = text.trim();
  const { conditions, mistake } = read ?? {};
  if (mistake) return [{ kind: 'Not understood', label: mistake }, ...textOffers(wanted)];
  if (typed !== null || conditions)
    return [...conditionOffers(conditions ?? [], typed, view, known), ...textOffers(wanted)];
  const isNot = wanted.startsWith('-');
  const name = isNot ? wanted.slice(1) : wanted;
  const ofTypes = isNot
    ? []
    : known.types
        .filter((type) => matches(name, type.name) && !view.types.includes(type.typeId))
        .sort((a, b) => nearness(name, b.name) - nearness(name, a.name) || b.count - a.count)
        .slice(0, MOST_TYPES)
        .map(
          (type): Offer => ({
            kind: 'Type',
            label: type.name,
            hint: `${amount(type.count)} in all`,
            changes: { types: [...chosenTypes(view), type.typeId] },
          }),
        );
  const ofFields = known.fields
    .filter(({ path }) => matches(name, path))
    .slice(0, MOST_FIELDS)
    .map(
      ({ path, values, counted }): Offer => ({
        kind: 'Field',
        label: path,
        hint:
          counted ??
          `reads ${eventsText(known.rows, 'event')}${values[0] === undefined ? '' : `, e.g. ${valueText(values[0])}`}`,
        text: `${isNot ? '-' : ''}${path}:`,
      }),
    );
  if (wanted === '') return [...ofTypes, ...ofFields];
  const ofValues = known.ofFields
    .flatMap(({ path, values }) => values.map((one) => ({ path, ...one })))
    .filter(({ value }) => matches(name, valueText(value)))
    .sort((a, b) => nearness(name, valueText(b.value)) - nearness(name, valueText(a.value)))
    .slice(0, MOST_WORD_VALUES)
    .map(({ path, value, events }) => valueOffer({ path, value, events, isNot }, view));
  const [, quoted] = /^"([^"]+)"$/.exec(wanted) ?? [];
  const texts = [...(quoted === undefined ? [] : textOffers(quoted)), ...textOffers(wanted)];
  return [...ofTypes, ...ofFields, ...ofValues, ...texts];
}

/** How near what is typed is to a name: 2 is the name itself, 1 its beginning, 0 a part of it. */
function nearness(wanted: string, name: string): number {
  const [part, whole] = [wanted.toLowerCase(), name.toLowerCase()];
  return whole === part ? 2 : Number(whole.startsWith(part));
}

const textOffers = (text: string): Offer[] => [
  { kind: 'Word', label: text, hint: 'anywhere in the payload', changes: { text: ['word', text] } },
  { kind: 'Text', label: text, hint: 'also inside longer words', changes: { text: ['q', text] } },
];

const valueOffer = (
  { path, value, events, isNot }: ValueCount & { readonly path: string; readonly isNot: boolean },
  view: View,
): Offer => ({
  kind: isNot ? 'Is not' : 'Is',
  label: `${path}: ${valueText(value)}`,
  hint: events,
  changes: { filters: withCondition(view.filters, path, value, isNot) },
});

function conditionOffers(
  conditions: readonly string[],
  typed: ReturnType<typeof typedPath>,
  view: View,
  { fields, values: counts }: Known,
): Offer[] {
  const withAll = (more: readonly string[]): Partial<View> => ({
    filters: [...new Set([...view.filters, ...more])],
  });
  const own: Offer[] =
    conditions.length > 0
      ? [{ kind: 'Condition', label: conditions.join(' AND '), changes: withAll(conditions) }]
      : [];
  if (typed === null || conditions.length > 1) return own;
  const { path, sign, value } = typed;
  const isNot = path.startsWith('-');
  const plain = isNot ? path.slice(1) : path;
  if (value === '' && sign === ':')
    own.push({
      kind: 'Field',
      label: plain,
      hint: isNot ? 'is missing' : 'exists',
      changes: withAll([`${path}:*`]),
    });
  if (sign !== ':') return own;
  const wanted = value.replace(/^["']/, '');
  const events = new Map(counts.map((one) => [one.value, one.events]));
  const known = fields.find((field) => field.path === plain)?.values ?? [];
  const values = known
    .filter((candidate) => matches(wanted, valueText(candidate)) && candidate !== JSON.stringify(wanted))
    .slice(0, MOST_VALUES)
    .map((candidate) =>
      valueOffer({ path: plain, value: candidate, events: events.get(candidate) ?? '', isNot }, view),
    );
  return value === '' ? [...values, ...own] : [...own, ...values];
}

interface ChipsProps {
  readonly viewed: ViewAndChange;
  readonly types: readonly EventType[];
  readonly onEdit: (text: string) => void;
}

function Chips({ viewed, types, onEdit }: ChipsProps): VNode {
  const { view, change } = viewed;
  const [name, searched] = view.text ?? [];
  const names = new Map(types.map(({ typeId, name }) => [typeId, name]));
  const without = (list: readonly string[], gone: string): string[] => list.filter((one) => one !== gone);
  const drop = (changes: Partial<View>): void => change({ hidden: [], at: null, ...changes });
  // A row of chips is read as far as it is short.
  const isLong = view.types.length > MOST_CHIPS;
  const nameOf = (type: string): string => names.get(type.replace(/^-/, '')) ?? type;
  const all = view.types.map(nameOf).join(', ');
  return html`${isLong && html`<${Chip} text=${`${view.types.length} types`} title=${all} onRemove=${() => drop({ types: [] })} />`}
  ${(isLong ? [] : view.types).map((type) => {
    const name = nameOf(type);
    return html`<${Chip} key=${type} text=${name} isNot=${type.startsWith('-')} onRemove=${() => drop({ types: without(view.types, type) })} />`;
  })}
  ${view.filters.map(
    (filter) =>
      html`<${Chip} key=${filter} text=${filter} isNot=${filter.startsWith('-')} onRemove=${() => drop({ filters: without(view.filters, filter) })} onEdit=${() => {
        drop({ filters: without(view.filters, filter) });
        onEdit(typable(filter));
      }} />`,
  )}
  ${searched !== undefined && html`<${Chip} text=${name === 'q' ? `“…${searched}…”` : `“${searched}”`} onRemove=${() => drop({ text: null })} onEdit=${() => onEdit(searched)} />`}`;
}

interface ChipProps {
  readonly text: string;
  /** What it stands for, where its text is short. */
  readonly title?: string;
  readonly isNot?: boolean;
  readonly onRemove: () => void;
  readonly onEdit?: () => void;
}

function Chip({ text, title = text, isNot = false, onRemove, onEdit }: ChipProps): VNode {
  return html`<span class=${isNot ? 'chip not' : 'chip'}>
    ${onEdit === undefined ? html`<span class="chip-name" title=${title}>${text}</span>` : html`<button class="chip-name" title="Change" onClick=${onEdit}>${text}</button>`}
    <button class="chip-remove" aria-label=${`Remove the filter ${text}`} onClick=${onRemove}><${Icon} name="close" /></button>
  </span>`;
}

function removeLast({ view, change }: ViewAndChange): void {
  if (view.text !== null) change({ text: null, at: null });
  else if (view.filters.length > 0) change({ filters: view.filters.slice(0, -1), at: null });
  else if (view.types.length > 0) change({ types: view.types.slice(0, -1), at: null });
}
