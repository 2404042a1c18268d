/** Browser keys, with which pages write events. A key may be public: it writes named types from named origins, and reads nothing. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import type { BrowserKey as ShownKey } from '../api-types/answers.ts';
import { createPublicId, createTokenText, digestOf } from '../base/token-text.ts';
import { refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { eventTypeNameProblem } from './event-types.ts';
import { checkName } from './name.ts';
import { lockMaintained, removeRevoked, restorableUntil, withoutNull } from './revocation.ts';
import { openSealed, type Secret, sealToken } from './secret.ts';

export interface BrowserKey extends ShownKey<Date> {
  readonly kind: 'browser';
  /** Public id of its app, as the only one: as lists of resource tokens have it. */
  readonly appIds: readonly string[];
}

/** Valid keys of an app. Each is one integration, so there are few. */
const MAX_KEYS = 100;
const MAX_TYPES = 100;
const MAX_ORIGINS = 100;
export const LONGEST_ORIGIN = 300;

export interface NewBrowserKey {
  readonly appId: string;
  readonly name: string;
  readonly types: readonly string[];
  readonly origins: readonly string[];
  readonly by?: Actor;
}

/**
 * Creates a browser key.
 * @param key.types   at least one; duplicates count once. A type that does not exist is created by its first event.
 * @param key.origins as {@link checkKeyOrigin} takes them; none: no page may use the key
 * @throws Refused invalidBody, appNotFound, tooManyTokens
 */
export async function createBrowserKey(
  sql: Sql,
  secret: Secret,
  key: NewBrowserKey,
): Promise<{
  tokenId: string;
  name: string;
  browserKey: string;
  appId: string;
  types: string[];
  origins: string[];
}> {
  const { appId, name, by = COMMAND_LINE } = key;
  checkName(name);
  const types = [...new Set(key.types)];
  const origins = [...new Set(key.origins.map(checkKeyOrigin))];
  if (types.length === 0)
    throw refused('invalidBody', 'a browser key needs at least one event type to write');
  if (types.length > MAX_TYPES)
    throw refused('invalidBody', `a browser key may have at most ${MAX_TYPES} types`);
  if (origins.length > MAX_ORIGINS)
    throw refused('invalidBody', `a browser key may have at most ${MAX_ORIGINS} origins`);
  for (const type of types) {
    const problem = eventTypeNameProblem(type);
    if (problem !== null) throw refused('invalidBody', `the name of an event type ${problem}`);
  }
  const tokenId = createPublicId('tok');
  const browserKey = createTokenText('tdb');
  const userId = by === 'command line' ? null : by.userId;
  await sql.begin('isolation level read committed', async (tx) => {
    // Lock: keys that are created at the same time must not exceed the limit together.
    const id = await lockMaintained(tx, appId, userId);
    await checkRoom(tx, id);
    await removeRevoked(tx, 'browser_keys', id);
    await tx`
      INSERT INTO browser_keys (public_id, digest, sealed, app_id, name, types, origins, created_by)
      VALUES (${tokenId}, ${digestOf(browserKey)}, ${sealToken(secret, browserKey)}, ${id}, ${name},
              ${types}, ${origins}, ${userId})`;
    await writeAudit(tx, { appId: id, by, action: 'browser-key.create', details: { tokenId, name } });
  });
  return { tokenId, name, browserKey, appId, types, origins };
}

/** @throws Refused tooManyTokens */
async function checkRoom(tx: Transaction, appId: number): Promise<void> {
  if ((await countRows(tx, tx`browser_keys WHERE app_id = ${appId} AND revoked_at IS NULL`)) >= MAX_KEYS)
    throw refused('tooManyTokens', `an app may have ${MAX_KEYS} browser keys: revoke one that is not needed`);
}

type KeyRow = Omit<BrowserKey, 'kind' | 'browserKey' | 'restorableUntil'> & {
  readonly digest: Buffer;
  readonly sealed: Buffer;
  readonly restorableUntil: Date | null;
};

/**
 * All browser keys, revoked ones included, in order of creation.
 * @param appId internal id of an app; null: those of all apps
 */
export async function listBrowserKeys(
  sql: Sql,
  secret: Secret,
  appId: number | null = null,
): Promise<BrowserKey[]> {
  const rows = await sql<KeyRow[]>`
    SELECT key.public_id AS "tokenId", key.name, ARRAY[app.public_id] AS "appIds", key.types, key.origins,
           CASE WHEN maker.id IS NOT NULL
                THEN json_build_object('userId', maker.public_id, 'email', maker.email) END AS "createdBy",
           key.created_at AS "createdAt", key.revoked_at AS "revokedAt",
           ${restorableUntil(sql, sql`key.revoked_at`)} AS "restorableUntil", key.digest, key.sealed
      FROM browser_keys AS key JOIN apps AS app ON app.id = key.app_id LEFT JOIN users AS maker ON maker.id = key.created_by
     WHERE ${appId}::integer IS NULL OR key.app_id = ${appId}
     ORDER BY key.id`;
  return rows.map(({ digest, sealed, ...row }) => ({
    kind: 'browser',
    ...withoutNull(row),
    browserKey: openSealed(secret, sealed, digest),
  }));
}

/**
 * Revokes a browser key. Revoking it again changes nothing: the first time is kept.
 * @param revocation.appId internal id of the app that the key must be of; null: any
 * @returns null if there is no such key
 */
export async function revokeBrowserKey(
  sql: Sql,
  tokenId: string,
  revocation: { appId?: number | null; by?: Actor } = {},
): Promise<{ tokenId: string; revokedAt: Date } | null> {
  const { appId = null, by = COMMAND_LINE } = revocation;
  return await sql.begin('isolation level read committed', async (tx) => {
    const [key] = await tx<{ id: number; appId: number; name: string; revokedAt: Date | null }[]>`
      SELECT id, app_id AS "appId", name, revoked_at AS "revokedAt"
        FROM browser_keys WHERE public_id = ${tokenId} FOR UPDATE`;
    if (key === undefined || (appId !== null && key.appId !== appId)) return null;
    if (key.revokedAt !== null) return { tokenId, revokedAt: key.revokedAt };
    const [revoked] = await tx<[{ revokedAt: Date }]>`
      UPDATE browser_keys SET revoked_at = now() WHERE id = ${key.id} RETURNING revoked_at AS "revokedAt"`;
    const details = { tokenId, name: key.name };
    await writeAudit(tx, { appId: key.appId, by, action: 'browser-key.revoke', details });
    return { tokenId, revokedAt: revoked.revokedAt };
  });
}

/**
 * Undoes a revocation: pages can use the key again.
 * @param restoration.appId internal id of the app that the key must be of; null: any
 * @returns null if there is no such key that was revoked within a day
 * @throws Refused tooManyTokens
 */
export async function restoreBrowserKey(
  sql: Sql,
  tokenId: string,
  restoration: { appId?: number | null; by?: Actor } = {},
): Promise<{ tokenId: string } | null> {
  const { appId = null, by = COMMAND_LINE } = restoration;
  return await sql.begin('isolation level read committed', async (tx) => {
    // Lock: see createBrowserKey.
    const [app] = await tx<{ id: number }[]>`
      SELECT id FROM apps
       WHERE id = (SELECT app_id FROM browser_keys WHERE public_id = ${tokenId}
                     AND (${appId}::integer IS NULL OR app_id = ${appId})) FOR NO KEY UPDATE`;
    if (app === undefined) return null;
    const [key] = await tx<{ id: number; name: string; restorableUntil: Date | null }[]>`
      SELECT id, name, ${restorableUntil(tx, tx`revoked_at`)} AS "restorableUntil"
        FROM browser_keys WHERE public_id = ${tokenId} FOR UPDATE`;
    if (key?.restorableUntil == null) return null;
    await checkRoom(tx, app.id);
    await tx`UPDATE browser_keys SET revoked_at = NULL WHERE id = ${key.id}`;
    const details = { tokenId, name: key.name };
    await writeAudit(tx, { appId: app.id, by, action: 'browser-key.restore', details });
    return { tokenId };
  });
}

/** Origins of apps that are made of web pages, and of extensions of browsers: nobody else's page has them. */
const NATIVE =
  /^(?:capacitor|ionic|tauri|chrome-extension|moz-extension|safari-web-extension):\/\/[a-z0-9][a-z0-9.-]{0,252}$/i;

/** An origin of {@link checkOrigin}, or of an app or an extension. @throws Refused invalidBody */
function checkKeyOrigin(text: string): string {
  if (NATIVE.test(text)) return text.toLowerCase();
  const isOther = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) && !/^https?:/i.test(text);
  if (isOther)
    throw refused(
      'invalidBody',
      `the origin ${JSON.stringify(text)} must begin with https://, or be that of an app or an extension: capacitor, ionic, tauri, chrome-extension, moz-extension or safari-web-extension, "://" and a name`,
    );
  return checkOrigin(text);
}

/**
 * An origin as browsers send it: scheme, host, and port where it is not the usual one.
 * @throws Refused invalidBody with what is wrong with any other text
 */
export function checkOrigin(text: string): string {
  const problem = originProblem(text);
  if (problem !== null) throw refused('invalidBody', `the origin ${JSON.stringify(text)} ${problem}`);
  return new URL(text).origin;
}

/** Names of the developer's own machine. */
const LOCAL: ReadonlySet<string> = new Set(['localhost', '127.0.0.1', '[::1]']);
const EXAMPLE = 'https://shop.example';

function originProblem(text: string): string | null {
  if (text.length > LONGEST_ORIGIN) return `must have at most ${LONGEST_ORIGIN} characters`;
  if (text.includes('*')) return 'has a wildcard: name each origin by itself';
  if (text === 'null') return `is that of pages without one: name an origin such as ${EXAMPLE}`;
  if (!/^https?:\/\//i.test(text)) return `must begin with https://, as in ${EXAMPLE}`;
  if (!URL.canParse(text)) return `is not an address: write it as in ${EXAMPLE}`;
  const { protocol, hostname, origin, username, password } = new URL(text);
  if (username !== '' || password !== '') return 'has a user name: leave that out';
  // What follows host and port, as it was written: the parser adds a slash by itself.
  const rest = text.slice(text.indexOf('//') + 2);
  if (/[/?#\\]/.test(rest))
    return `has a path or a query: an origin ends after host and port, as in ${origin}`;
  if (/\s/.test(text)) return 'has white space in it';
  // Others separate the directives of a policy, where a share names its sites.
  if (!/^[a-z0-9.:_[\]-]+$/.test(new URL(text).host)) return 'has a character that is in no name of a host';
  if (protocol === 'http:' && !LOCAL.has(hostname) && !hostname.endsWith('.localhost'))
    return 'must begin with https://: pages on http:// can be changed on their way (http is taken for localhost alone)';
  return null;
}
