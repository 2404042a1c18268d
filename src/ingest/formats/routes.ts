/** The routes of the formats. */
import { Rejection } from '../../errors.ts';
import type { Route } from '../../http/route.ts';
import { type CreateBatchSteps, createCreateBatch } from '../create-batch.ts';
import { BULK } from './bulk.ts';
import { CLOUD_EVENTS } from './cloud-events.ts';
import {
  BULK_ROUTES,
  CLOUD_EVENTS_HANDSHAKE,
  CREATE_CLOUD_EVENTS,
  CREATE_LOGS,
  CREATE_RECORDS,
  OTHER_SIGNALS,
  SEGMENT_ROUTES,
} from './declarations.ts';
import { elasticHandshake } from './elastic-handshake.ts';
import { OTLP_LOGS } from './otlp/logs.ts';
import { RECORDS } from './records.ts';
import { SEGMENT_BATCH, segmentCall } from './segment-tracking.ts';

const LOGS_ALONE = new Rejection(
  'notFound',
  'Tidemark stores logs of OpenTelemetry alone: POST /v1/otlp/v1/logs.',
);

/** @param limitPerMinute CREATE_LIMIT_PER_MINUTE; 0: none */
export function formatRoutes(steps: CreateBatchSteps, limitPerMinute: number): readonly Route[] {
  return [
    { ...CREATE_RECORDS, handle: createCreateBatch(steps, RECORDS) },
    { ...CREATE_CLOUD_EVENTS, handle: createCreateBatch(steps, CLOUD_EVENTS) },
    handshake(limitPerMinute),
    { ...CREATE_LOGS, handle: createCreateBatch(steps, OTLP_LOGS) },
    ...SEGMENT_ROUTES.map(({ call, ...route }) => ({
      ...route,
      handle: createCreateBatch(steps, call === 'batch' ? SEGMENT_BATCH : segmentCall(call)),
    })),
    ...BULK_ROUTES.map((route) => ({ ...route, handle: createCreateBatch(steps, BULK) })),
    ...elasticHandshake(steps.loggingTokens),
    ...OTHER_SIGNALS.map((signal) => ({ ...signal, handle: async () => LOGS_ALONE })),
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
