/** CSRF protection of every request that changes something: in a browser, only this site's pages may send it. */

import { Rejection } from '../errors.ts';
import { isLoopbackName } from './client-address.ts';
import type { Exchange } from './exchange.ts';

/** The request headers that {@link refuseForeign} reads. */
export const ORIGIN_HEADERS = ['content-type', 'host', 'origin', 'sec-fetch-site'] as const;

const JSON_TYPE = /^application\/json[\t ]*(?:;|$)/i;

const NOT_JSON = new Rejection(
  'unsupportedMediaType',
  'Send the body with "Content-Type: application/json".',
);
const CROSS_ORIGIN = new Rejection('crossOrigin', 'Requests that change something must come from this site.');

/**
 * Three checks, each sufficient in current browsers: a JSON content type requires a preflight from other origins, which is
 * never granted; `Origin` names the page's origin; `Sec-Fetch-Site` says whether it is the request's own.
 * @param publicOrigin PUBLIC_URL, empty if not set
 * @returns the refusal; null if the request is allowed
 */
export function refuseForeign(exchange: Exchange, publicOrigin: string): Rejection | null {
  const site = exchange.header('sec-fetch-site');
  if (site !== '' && site !== 'same-origin') return CROSS_ORIGIN;
  const origin = exchange.header('origin');
  if (origin !== '' && origin !== publicOrigin && hostOf(origin) !== exchange.header('host').toLowerCase())
    return CROSS_ORIGIN;
  if (isBeside(origin, publicOrigin))
    return new Rejection(
      'crossOrigin',
      `A browser keeps no session of this page, which is open without https: open it at ${publicOrigin}`,
    );
  return JSON_TYPE.test(exchange.header('content-type')) ? null : NOT_JSON;
}

/** Whether a page is open without https beside a PUBLIC_URL with it: its browser drops the cookie. It keeps those of its own machine. */
function isBeside(origin: string, publicOrigin: string): boolean {
  return (
    publicOrigin.startsWith('https:') &&
    origin.startsWith('http:') &&
    !isLoopbackName(new URL(origin).hostname)
  );
}

/** Host and port of an origin; null for `null` and for anything else that is not an http origin. */
export function hostOf(origin: string): string | null {
  return /^https?:\/\//.test(origin) && URL.canParse(origin) ? new URL(origin).host : null;
}
