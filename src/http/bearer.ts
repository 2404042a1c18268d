/** Tokens in the header Authorization: `Bearer …` (RFC 6750, 2.1) and `Basic …` (RFC 7617). */

/**
 * The token of a request.
 * @param authorization the Authorization header, empty if the request has none
 * @returns null if it is not a Bearer token
 */
export function bearerToken(authorization: string): string | null {
  return /^Bearer +(\S+) *$/i.exec(authorization)?.[1] ?? null;
}

/** The header of every 401 about such a token. */
export const ASK_FOR_BEARER = { 'WWW-Authenticate': 'Bearer' } as const;

/** User name and password of `Authorization: Basic …`; null for anything else. */
export function basicCredentials(
  authorization: string,
): { readonly user: string; readonly password: string } | null {
  const encoded = /^Basic +([A-Za-z0-9+/_-]{1,1000}={0,2}) *$/i.exec(authorization)?.[1];
  if (encoded === undefined) return null;
  const text = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  return colon < 0
    ? { user: text, password: '' }
    : { user: text.slice(0, colon), password: text.slice(colon + 1) };
}

export const BASIC_CHALLENGE = 'Basic realm="Tidemark"';
export const ASK_FOR_BASIC = { 'WWW-Authenticate': BASIC_CHALLENGE } as const;
