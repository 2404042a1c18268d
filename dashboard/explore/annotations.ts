/** The annotations of a chart: a list below it, and a form that adds one. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type {
  Annotation,
  AnnotationKind,
  AnnotationPage,
  EventMark,
  Series,
  TypedRange,
} from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { Confirm, FormDialog } from '../components/confirm.ts';
import { Field, Select } from '../components/field.ts';
import { Icon } from '../components/icon.ts';
import { typedRangePath } from '../components/range-picker.ts';
import { dateTime, exact, spanText } from '../format.ts';
import { html } from '../html.ts';
import { isoText, MINUTE } from '../range.ts';
import { type Resource, useResource } from '../resource.ts';
import { type Bucket, viewSearch } from '../url.ts';
import { useView } from '../view.ts';

const pathOf = (appId: string): string => `/api/apps/${appId}/annotations`;

export type Annotations = Resource<AnnotationPage>;

/** The annotations of a chart: asked for again with each minute that the chart begins later. */
export function useAnnotations(appId: string, { interval }: Series): Annotations {
  const from = Math.floor(interval.from / MINUTE) * MINUTE;
  return useResource(`${pathOf(appId)}?from=${encodeURIComponent(isoText(from))}`);
}

/** An annotation, or an event of a type that is shown as one. */
export type Mark = Annotation & Partial<Pick<EventMark, 'eventId'>>;

/** All marks of a chart that begin before its end, newest first. */
export function marksOf(
  annotations: readonly Annotation[],
  marks: Series['marks'] = [],
  end: number,
): readonly Mark[] {
  const events = marks.map(
    (mark): Mark => ({ ...mark, annotationId: mark.eventId, kind: 'note', until: null, createdAt: mark.at }),
  );
  return [...annotations, ...events]
    .filter(({ at }) => Date.parse(at) < end)
    .sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
}

const KIND_NAMES: Record<AnnotationKind, string> = {
  deployment: 'Deployment',
  incident: 'Incident',
  note: 'Note',
};

/** Shown before "more". */
const ROWS = 4;

export interface AnnotationListProps {
  readonly appId: string;
  readonly annotations: readonly Mark[];
  readonly zone: string;
  readonly mayChange: boolean;
  readonly onDone: () => void;
}

export function AnnotationList(props: AnnotationListProps): VNode | null {
  const { appId, annotations, zone, mayChange, onDone } = props;
  const { view } = useView();
  const [isWhole, setWhole] = useState(false);
  const [removal, setRemoval] = useState<Annotation | null>(null);
  if (annotations.length === 0) return null;
  const groups = isWhole ? annotations.map((one) => [one] as const) : grouped(annotations);
  const shown = isWhole ? groups : groups.slice(0, ROWS);
  return html`<ul class="annotations" aria-label="Annotations">
    ${shown.map(
      ([annotation, ...earlier]) => html`<li key=${annotation.annotationId}>
        <i class=${annotation.kind === 'incident' ? 'annotation-mark incident' : 'annotation-mark'} aria-hidden="true"></i>
        <span class="sr-only">${KIND_NAMES[annotation.kind]}: </span>${annotation.eventId === undefined ? html`<span class="name" title=${annotation.createdBy === null ? 'Written with the logging token' : `Written by ${annotation.createdBy}`}>${annotation.text}</span>` : html`<a class="name" href=${`/apps/${appId}${viewSearch({ ...view, event: annotation.eventId })}`}>${annotation.text}</a>`}${earlier.length > 0 && html` <span class="badge">${earlier.length + 1} times</span>`}
        <time class="muted" datetime=${annotation.at} title=${exact(Date.parse(annotation.at), zone)}>${timeText(annotation, zone)}</time>
        ${mayChange && annotation.eventId === undefined && html`<button class="icon-button" aria-label=${`Remove the annotation ${annotation.text}`} onClick=${() => setRemoval(annotation)}><${Icon} name="close" /></button>`}
      </li>`,
    )}
    ${(groups.length > shown.length || annotations.length > groups.length) && html`<li><button class="button quiet" onClick=${() => setWhole(true)}>Show all ${annotations.length} annotations</button></li>`}
  </ul>
  ${removal && html`<${Confirm} title="Remove the annotation" path=${`${pathOf(appId)}/${removal.annotationId}`} said="The annotation was removed" onDone=${onDone} onClose=${() => setRemoval(null)}><b>${removal.text}</b> is removed from the charts of all members.<//>`}`;
}

/** Firings of one alert are one line: the newest of them first. */
function grouped(annotations: readonly Mark[]): readonly (readonly [Mark, ...Mark[]])[] {
  const groups = new Map<string, [Mark, ...Mark[]]>();
  for (const one of annotations) {
    const key = one.text.startsWith('Alert: ') ? one.text : one.annotationId;
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [one]);
    else known.push(one);
  }
  return [...groups.values()];
}

/** `20 Nov 2026, 14:00`, or from when to when. */
function timeText({ at, until }: Annotation, zone: string): string {
  return until === null ? dateTime(Date.parse(at), zone) : spanText(Date.parse(at), Date.parse(until), zone);
}

const KINDS: readonly (readonly [AnnotationKind, string])[] = [
  ['deployment', KIND_NAMES.deployment],
  ['incident', KIND_NAMES.incident],
  ['note', KIND_NAMES.note],
];

export interface NewAnnotationProps {
  readonly appId: string;
  /** The picked bucket, which the form starts with. */
  readonly picked: Bucket | null;
  readonly zone: string;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

export function NewAnnotation({ appId, picked, zone, onDone, onClose }: NewAnnotationProps): VNode {
  const [when, setWhen] = useState(dateTime(picked?.from ?? Date.now(), zone));
  const { data, isStale } = useResource<TypedRange>(typedRangePath(when, zone));
  const from = Date.parse(data?.at ?? '');
  const isUnread = !isStale && data?.at === null;
  const bodyOf = async ({ kind, text, when: typed = '' }: Record<string, string>) => {
    const { at, until } = await call<TypedRange>('GET', typedRangePath(typed, zone));
    return { kind, text, at: at ?? typed, until };
  };
  const intro = html`<p class="muted">All members see it. A pipeline does the same with the logging token: <code>POST /v1/annotations</code>.</p>`;
  return html`<${FormDialog} title="Annotate the chart" submit="Add the annotation" path=${pathOf(appId)} body=${bodyOf} said="The annotation was added" intro=${intro} onDone=${onDone} onClose=${onClose}>
      <${Field} label="What happened" name="text" maxlength="200" placeholder="Release 2.4.1" />
      <${Select} label="Kind" name="kind" options=${KINDS} />
      <${Field} label="When" name="when" value=${when} pattern=${isUnread ? '(?!)' : undefined} title="Such as 20 Nov 14:00, or 20 Nov 14:00 to 15:30" hint=${Number.isNaN(from) ? 'Such as “20 Nov 14:00”, or “20 Nov 14:00 to 15:30” for an interval.' : `${data?.until ? spanText(from, Date.parse(data.until), zone) : exact(from, zone)}, in ${zone.replaceAll('_', ' ')}`} onInput=${(event: InputEvent) => setWhen((event.currentTarget as HTMLInputElement).value)} />
  <//>`;
}
