/** `Authorization: Bearer …` (RFC 6750, 2.1). */

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
