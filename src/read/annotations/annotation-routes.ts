/** Annotations for members: maintainers and owners write and remove them, everyone reads them (annotations-read). */

import type { Api } from '../../accounts/routes/api.ts';
import { NO_FIELDS } from '../../accounts/routes/body.ts';
import type { Annotation } from '../../api-types/answers.ts';
import { addAnnotation, removeAnnotation } from '../../apps/annotations.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { parseAnnotation } from './annotation-body.ts';

export interface AnnotationRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly now: () => number;
}

const NO_ANNOTATION = new Rejection('annotationNotFound', 'The app has no such annotation.');

export function annotationRoutes({ api, sql, now }: AnnotationRoutesOptions): readonly Route[] {
  const parse = (text: string) => parseAnnotation(text, now());
  return [
    api.change('POST', '/api/apps/:appId/annotations', 'change', parse, async ({ app, by }, annotation) => {
      const { annotationId, isNew } = await addAnnotation(sql, app.id, annotation, by);
      return done<Pick<Annotation, 'annotationId'>>({ annotationId }, { status: isNew ? 201 : 200 });
    }),
    api.change(
      'DELETE',
      '/api/apps/:appId/annotations/:annotationId',
      'change',
      NO_FIELDS,
      async ({ app, by, parameters }) => {
        const annotationId = parameters[1] ?? '';
        const isRemoved = await removeAnnotation(sql, { appId: app.id, annotationId, by });
        return isRemoved ? done<Nothing>({}) : NO_ANNOTATION;
      },
    ),
  ];
}
