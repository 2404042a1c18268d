/**
 * POST /v1/annotations: a deployment or an incident for the charts of an app, from a pipeline. A logging token writes it: it
 * is the one token that writes, it belongs to one app, and its holder can already write events that members see. It can
 * neither read nor remove annotations, as it cannot with events. A resource token never writes.
 */
import type { Annotation } from '../api-types/answers.ts';
import { addAnnotation } from '../apps/annotations.ts';
import type { AppAccounts } from '../apps/app-accounts.ts';
import type { LoggingTokens } from '../apps/logging-token-lookup.ts';
import { Slots } from '../base/slots.ts';
import { Refused, Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { dataOf, json, objectOf, WRITES } from '../http/operation.ts';
import { refusalOf } from '../http/read-slots.ts';
import type { Declaration, Route } from '../http/route.ts';
import type { Limiter } from '../limits/limiter.ts';
import { NEW_ANNOTATION, parseAnnotation } from '../read/annotations/annotation-body.ts';
import type { Sql } from '../storage/database/connect.ts';
import { admit } from './admit.ts';
import { BEARER } from './formats/events.ts';

export const CREATE_ANNOTATION: Declaration = {
  method: 'POST',
  path: '/v1/annotations',
  headers: ['authorization'],
  operation: {
    id: 'createAnnotation',
    ...WRITES,
    summary: 'Annotate the charts of an app with a deployment or an incident.',
    body: {
      description: 'What happened, and when.',
      content: { 'application/json': { schema: NEW_ANNOTATION } },
    },
    answers: Object.fromEntries(
      (
        [
          [200, 'The same annotation was there.'],
          [201, 'The annotation is stored.'],
        ] as const
      ).map(([status, description]) => [
        status,
        json(description, dataOf(objectOf({ annotationId: { type: 'string' } }))),
      ]),
    ),
    refusals: [],
  },
};

export interface CreateAnnotationSteps {
  readonly loggingTokens: LoggingTokens;
  readonly limiter: Limiter;
  readonly accounts: AppAccounts;
  readonly sql: Sql;
  readonly now: () => number;
}

const MAX_BYTES = 16_384;
/** Annotations that wait for their turn. */
const MAX_WAITING = 1_000;
const NO_APP = new Rejection('invalidLoggingToken', 'The app of the logging token has been deleted.', {
  headers: BEARER.challenge,
});

export function createAnnotationRoute(steps: CreateAnnotationSteps): Route {
  // One at a time: the other connection is left to the lookups of writers.
  const places = new Slots(1, MAX_WAITING);
  return { ...CREATE_ANNOTATION, handle: (exchange) => createAnnotation(steps, places, exchange) };
}

async function createAnnotation(
  steps: CreateAnnotationSteps,
  places: Slots,
  exchange: Exchange,
): Promise<Outcome> {
  const text = await exchange.text({ maxBytes: MAX_BYTES });
  if (text instanceof Rejection) return text;
  const appId = await admit(steps, BEARER, exchange);
  if (appId instanceof Rejection) return appId;
  const annotation = parseAnnotation(text, steps.now());
  if (annotation instanceof Rejection) return annotation;
  try {
    const added = refusalOf(
      await places.run(steps.accounts.holderOf(appId), exchange, () =>
        addAnnotation(steps.sql, appId, annotation, 'logging token'),
      ),
    );
    if (added instanceof Rejection) return added;
    const { annotationId, isNew } = added;
    return done<Pick<Annotation, 'annotationId'>>({ annotationId }, { status: isNew ? 201 : 200 });
  } catch (error) {
    if (error instanceof Refused && error.rejection.reason === 'appNotFound') return NO_APP;
    throw error;
  }
}
