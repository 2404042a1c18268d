/** The routes of the formats. */
import { Rejection } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { RefusalsBelow } from '../../http/server.ts';
import { type CreateBatchSteps, createCreateBatch } from '../create-batch.ts';
import { BULK, DOCUMENT, elasticError } from './bulk.ts';
import { CLOUD_EVENTS } from './cloud-events.ts';
import {
  BULK_ROUTES,
  CLOUD_EVENTS_HANDSHAKE,
  CREATE_CLOUD_EVENTS,
  CREATE_LOGS,
  CREATE_RECORDS,
  DOCUMENT_ROUTES,
  OTHER_SIGNALS,
  SEGMENT_ROUTES,
  SHORT_SEGMENT_ROUTES,
  TYPED_BULK_ROUTES,
} from './declarations.ts';
import { elasticHandshake, PREFIX } from './elastic-handshake.ts';
import { OTLP_LOGS, statusOf } from './otlp/logs.ts';
import { RECORDS } from './records.ts';
import { SEGMENT_BATCH, segmentCall } from './segment-tracking.ts';

const LOGS_ALONE = 'Tidemark stores logs of OpenTelemetry alone: POST /v1/otlp/v1/logs.';
const NO_SIGNAL = new Rejection('notFound', LOGS_ALONE);
const STORES_ALONE =
  'Tidemark stores documents, and answers no searches: POST _bulk, <index>/_bulk, <index>/_doc or <index>/_create/<id>.';

/** How a request is refused where nothing is, below the address that clients of a format are given. */
export const REFUSALS_BELOW: readonly RefusalsBelow[] = [
  {
    prefix: PREFIX,
    refuse: (refusal) => elasticError(withOffer(refusal, STORES_ALONE)),
  },
  { prefix: '/v1/otlp', refuse: (refusal, exchange) => statusOf(withOffer(refusal, LOGS_ALONE), exchange) },
];

function withOffer({ reason, details, headers }: Rejection, offer: string): Rejection {
  return new Rejection(reason, `${details} ${offer}`, { headers });
}

/** @param limitPerMinute CREATE_LIMIT_PER_MINUTE; 0: none */
export function formatRoutes(steps: CreateBatchSteps, limitPerMinute: number): readonly Route[] {
  return [
    { ...CREATE_RECORDS, handle: createCreateBatch(steps, RECORDS) },
    { ...CREATE_CLOUD_EVENTS, handle: createCreateBatch(steps, CLOUD_EVENTS) },
    handshake(limitPerMinute),
    { ...CREATE_LOGS, handle: createCreateBatch(steps, OTLP_LOGS) },
    ...[...SEGMENT_ROUTES, ...SHORT_SEGMENT_ROUTES].map(({ call, ...route }) => ({
      ...route,
      handle: createCreateBatch(steps, call === 'batch' ? SEGMENT_BATCH : segmentCall(call)),
    })),
    ...[...BULK_ROUTES, ...TYPED_BULK_ROUTES].map((route) => ({
      ...route,
      handle: createCreateBatch(steps, BULK),
    })),
    ...DOCUMENT_ROUTES.map((route) => ({ ...route, handle: createCreateBatch(steps, DOCUMENT) })),
    ...elasticHandshake(steps.loggingTokens),
    ...OTHER_SIGNALS.map((signal) => ({
      ...signal,
      handle: async (exchange: Exchange) => statusOf(NO_SIGNAL, exchange),
    })),
  ];
}

/**
 * Any sender may ask: the token decides about deliveries. So no origin is looked at, and none is called back
 * (WebHook-Request-Callback).
 */
function handshake(limitPerMinute: number): Route {
  const headers = {
    'WebHook-Allowed-Origin': '*',
    'WebHook-Allowed-Rate': limitPerMinute === 0 ? '*' : String(limitPerMinute),
    Allow: 'POST, OPTIONS',
  };
  return {
    ...CLOUD_EVENTS_HANDSHAKE,
    handle: async () => ({ status: 200, body: '{"success":true}', headers }),
  };
}
