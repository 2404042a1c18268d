/** The annotations of an app in an interval. */
import type { Annotation, AnnotationPage } from '../../api-types/answers.ts';
import { ANNOTATION_KINDS, listAnnotations } from '../../apps/annotations.ts';
import { dataOf, json, objectOf } from '../../http/operation.ts';
import { Query } from '../../http/query.ts';
import { nullable, TIMESTAMP } from '../answer-shapes.ts';
import { type AppRead, answered, appRead } from '../app-read.ts';
import { checkScope, SCOPE } from '../scope-query.ts';

const ANNOTATION = objectOf<Annotation>(
  {
    annotationId: { type: 'string', examples: ['ann_8hG2kXw0RzQ4vT6bN1sY'] },
    kind: { type: 'string', enum: [...ANNOTATION_KINDS] },
    at: { ...TIMESTAMP, description: 'When it happened, or began.' },
    until: { ...nullable(TIMESTAMP), description: 'When it ended; null: it happened at one instant.' },
    text: { type: 'string' },
    createdAt: TIMESTAMP,
    createdBy: {
      type: ['string', 'null'],
      description: 'For members in the dashboard: who wrote it; null if a logging token did.',
    },
  },
  { title: 'Annotation', optional: ['createdBy'] },
);

export const ANNOTATIONS = {
  path: '/annotations',
  query: new Query({ from: SCOPE.from, to: SCOPE.to }, checkScope),
  operation: {
    id: 'listAnnotations',
    summary: 'Read the annotations of an app, such as deployments and incidents.',
    answers: {
      200: json(
        'Those that touch the interval, newest first.',
        dataOf(
          objectOf<AnnotationPage>({
            annotations: { type: 'array', items: ANNOTATION },
            hasMore: { type: 'boolean', description: 'Whether there are more than these 1,000.' },
          }),
        ),
      ),
    },
    refusals: [],
  },
} as const;

export function annotationsRead(): AppRead {
  return appRead(ANNOTATIONS, async ({ app, holder, sql }, { from, to }) => {
    const { annotations, hasMore } = await listAnnotations(sql, app.id, { from, until: to });
    // Addresses of members are for members.
    const shown = annotations.map(({ createdBy, ...annotation }) =>
      holder.kind === 'session' ? { ...annotation, createdBy } : annotation,
    );
    return answered<AnnotationPage>({ annotations: shown, hasMore });
  });
}
