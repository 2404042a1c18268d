/** The guard of every request that changes something: only a page of ours may send it from a browser. */

import { Rejection } from '../errors.ts';
import type { Exchange } from './exchange.ts';

/** The request headers that {@link refuseForeign} reads. */
export const ORIGIN_HEADERS = ['content-type', 'host', 'origin', 'sec-fetch-site'] as const;

const JSON_TYPE = /^application\/json[\t ]*(?:;|$)/i;

const NOT_JSON = new Rejection(
  'unsupportedMediaType',
  'Send the body with "Content-Type: application/json".',
);
const FOREIGN = new Rejection('crossOrigin', 'Requests that change something must come from this site.');

/**
 * Three walls, each enough by itself in the browsers of today: the JSON content type needs a preflight from other
 * origins, which is never granted; the browser names the page's origin; and it says whether that is the request's own.
 * @param publicOrigin PUBLIC_URL, empty where it is not set
 * @returns the refusal; null for a request that may go on
 */
export function refuseForeign(exchange: Exchange, publicOrigin: string): Rejection | null {
  const site = exchange.header('sec-fetch-site');
  if (site !== '' && site !== 'same-origin') return FOREIGN;
  const origin = exchange.header('origin');
  if (origin !== '' && origin !== publicOrigin && hostOf(origin) !== exchange.header('host').toLowerCase())
    return FOREIGN;
  return JSON_TYPE.test(exchange.header('content-type')) ? null : NOT_JSON;
}

/** Host and port of an origin; null for `null` and what is none. */
function hostOf(origin: string): string | null {
  return /^https?:\/\//.test(origin) && URL.canParse(origin) ? new URL(origin).host : null;
}
