/** GET /metrics: the service's metrics, for Prometheus. */
import { timingSafeEqual } from 'node:crypto';
import { digestOf } from '../base/token-text.ts';
import { Rejection } from '../errors.ts';
import { EXPOSITION_TYPE } from '../metrics/metrics.ts';
import { bearerToken } from './bearer.ts';
import { isFromThisMachine, isLoopbackName, LOCALITY_HEADERS } from './client-address.ts';
import type { Exchange } from './exchange.ts';
import type { Declaration, Route } from './route.ts';

export interface MetricsRouteOptions {
  /** All metrics in Prometheus' text format. */
  readonly stats: () => Promise<string>;
  /** METRICS_TOKEN; empty if not set. */
  readonly token: string;
  /** PUBLIC_URL; empty if not set. */
  readonly publicUrl: string;
  /** TRUST_PROXY */
  readonly trustedProxies: number;
}

/**
 * 403 and not 404: the path is no secret, and the operator who configures a scrape needs to know what is missing. A missing
 * and a wrong token get the same answer.
 */
const DENIED = new Rejection(
  'accessDenied',
  'Ask from the machine that the service runs on, or send "Authorization: Bearer <METRICS_TOKEN>".',
);

export const METRICS: Declaration = {
  method: 'GET',
  path: '/metrics',
  exemptFromLoadShedding: true,
  headers: ['authorization', ...LOCALITY_HEADERS],
  remoteAddress: true,
  operation: {
    id: 'getMetrics',
    tag: 'Service',
    summary: 'Read the metrics, in the text format of Prometheus.',
    token: 'metricsToken',
    isTokenOptional: true,
    isLimited: false,
    answers: {
      200: { description: 'All metrics.', content: { [EXPOSITION_TYPE]: { schema: { type: 'string' } } } },
    },
    refusals: ['accessDenied'],
  },
};

export function metricsRoute({ stats, token, publicUrl, trustedProxies }: MetricsRouteOptions): Route {
  const wanted = token === '' ? null : digestOf(token);
  // Behind a proxy that adds no forwarding headers, every request looks local. If PUBLIC_URL names another machine and
  // TRUST_PROXY is 0, assume such a proxy.
  const hasLocals = publicUrl === '' || isLoopbackName(new URL(publicUrl).hostname) || trustedProxies > 0;
  const isAllowed = (exchange: Exchange): boolean =>
    (hasLocals && isFromThisMachine(exchange)) || carries(exchange, wanted);
  return {
    ...METRICS,
    handle: async (exchange) =>
      isAllowed(exchange) ? { status: 200, body: await stats(), contentType: EXPOSITION_TYPE } : DENIED,
  };
}

/** Whether the request's bearer token matches this digest. */
function carries(exchange: Exchange, wanted: Buffer | null): boolean {
  const sent = bearerToken(exchange.header('authorization'));
  return wanted !== null && sent !== null && timingSafeEqual(digestOf(sent), wanted);
}
