/** `Authorization: Bearer …` (RFC 6750, 2.1). */

/**
 * The token of a request.
 * @param authorization the Authorization header, empty where the request has none
 * @returns null where it is no Bearer token
 */
export function bearerToken(authorization: string): string | null {
  return /^Bearer +(\S+) *$/i.exec(authorization)?.[1] ?? null;
}

/** The header that every 401 about such a token carries. */
export const ASK_FOR_BEARER = { 'WWW-Authenticate': 'Bearer' } as const;
