/** Producers: the programs that write an app's events, each with a logging token of its own, which is rotated and revoked alone. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import type { Producer as ShownProducer } from '../api-types/answers.ts';
import { MINUTE_MS } from '../base/time-units.ts';
import { createPublicId } from '../base/token-text.ts';
import { refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { judgedTime } from '../storage/maintenance/time-judge.ts';
import { issueLoggingToken, replaceToken } from './logging-tokens.ts';
import { checkName } from './name.ts';
import { lockMaintained, removeRevoked, restorableUntil, withoutNull } from './revocation.ts';
import { openSealed, type Secret } from './secret.ts';

export interface Producer extends ShownProducer<Date> {
  readonly kind: 'logging';
  /** Public id of its app, as the only one: as lists of resource tokens have it. */
  readonly appIds: readonly string[];
}

/** The first producer, whose token the app was created with, has the id of its app with another prefix. */
export const FIRST_NAME = 'First token';
/** Valid producers of an app, without the first one. */
const MAX_PRODUCERS = 100;
const HOUR_MINUTES = 60;

/**
 * Creates a producer with its logging token.
 * @throws Refused invalidBody, appNotFound, tooManyTokens
 */
export async function createProducer(
  sql: Sql,
  secret: Secret,
  producer: { readonly appId: string; readonly name: string; readonly by?: Actor },
): Promise<{ tokenId: string; name: string; loggingToken: string; appId: string }> {
  const { appId, name, by = COMMAND_LINE } = producer;
  checkName(name);
  const tokenId = createPublicId('tok');
  const userId = by === 'command line' ? null : by.userId;
  return await sql.begin('isolation level read committed', async (tx) => {
    // Lock: producers that are created at the same time must not exceed the limit together.
    const id = await lockMaintained(tx, appId, userId);
    await checkRoom(tx, id);
    await removeRevoked(tx, 'producers', id);
    const [made] = await tx<[{ id: number }]>`
      INSERT INTO producers (public_id, app_id, name, created_by)
      VALUES (${tokenId}, ${id}, ${name}, ${userId}) RETURNING id`;
    const loggingToken = await issueLoggingToken(tx, secret, id, made.id);
    await writeAudit(tx, { appId: id, by, action: 'producer.create', details: { tokenId, name } });
    return { tokenId, name, loggingToken, appId };
  });
}

/** @throws Refused tooManyTokens */
async function checkRoom(tx: Transaction, appId: number): Promise<void> {
  if ((await countRows(tx, tx`producers WHERE app_id = ${appId} AND revoked_at IS NULL`)) >= MAX_PRODUCERS)
    throw refused(
      'tooManyTokens',
      `an app may have ${MAX_PRODUCERS} named producers: revoke one that is not needed`,
    );
}

/**
 * The producers of an app, or of all apps: each app's first one, then the others in order of creation, revoked ones included.
 * @param appId internal id; null: all apps
 */
export async function listProducers(sql: Sql, appId: number | null, now: number): Promise<Producer[]> {
  const minute = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  const last = new Date(minute - MINUTE_MS);
  const since = new Date(minute - HOUR_MINUTES * MINUTE_MS);
  const rows = await sql<(Omit<Producer, 'kind' | 'restorableUntil'> & { restorableUntil: Date | null })[]>`
    WITH every AS (
      SELECT apps.id AS app_id, apps.public_id AS app, 0 AS id, 'tok_' || substr(apps.public_id, 5) AS "tokenId", ${FIRST_NAME} AS name,
             NULL::json AS "createdBy", apps.created_at AS "createdAt",
             (SELECT CASE WHEN bool_and(revoked_from IS NOT NULL) THEN max(expires_at) END FROM logging_tokens
               WHERE app_id = apps.id AND producer_id IS NULL) AS "revokedAt"
        FROM apps WHERE removed_at IS NULL AND (${appId}::integer IS NULL OR apps.id = ${appId})
      UNION ALL
      SELECT apps.id, apps.public_id, producers.id, producers.public_id, producers.name,
             CASE WHEN maker.id IS NOT NULL
                  THEN json_build_object('userId', maker.public_id, 'email', maker.email) END,
             producers.created_at, producers.revoked_at
        FROM producers JOIN apps ON apps.id = producers.app_id LEFT JOIN users AS maker ON maker.id = created_by
       WHERE removed_at IS NULL AND (${appId}::integer IS NULL OR apps.id = ${appId})
    )
    SELECT "tokenId", name, ARRAY[app] AS "appIds", "createdBy", "createdAt", "revokedAt",
           ${restorableUntil(sql, sql`"revokedAt"`)} AS "restorableUntil",
           first_used_at AS "firstUsedAt", last_used_at AS "lastUsedAt",
           coalesce((SELECT sum(events) FROM producer_requests AS used
                      WHERE (used.app_id, used.producer_id, minute) = (every.app_id, every.id, ${last})), 0)::float8
             AS "eventsPerMinute",
           coalesce((SELECT sum(refused) FROM producer_requests AS used
                      WHERE (used.app_id, used.producer_id) = (every.app_id, every.id) AND minute >= ${since}), 0)::float8
             AS refused,
           (SELECT max(expires_at) FROM logging_tokens AS token
             WHERE token.app_id = every.app_id AND coalesce(token.producer_id, 0) = every.id
               AND token.expires_at > ${judgedTime(sql)}) AS "previousValidUntil"
      FROM every LEFT JOIN producer_uses AS uses ON (uses.app_id, uses.producer_id) = (every.app_id, every.id)
     ORDER BY every.app_id, every.id`;
  return rows.map((row) => ({ kind: 'logging', ...withoutNull(row) }));
}

export interface ProducerEvents {
  /** The producer's public id. */
  readonly key: string;
  readonly name: string;
  readonly counts: readonly number[];
}

/**
 * The events that the producers of an app have sent, by when they were received, to the quarter-hour; those of removed producers
 * are left out.
 * @param bounds where buckets begin, ascending, and where the last one ends; in milliseconds since 1970
 */
export async function readProducerEvents(
  sql: Sql,
  appId: number,
  bounds: readonly number[],
): Promise<ProducerEvents[]> {
  const times = bounds.map((at) => new Date(at).toISOString());
  const rows = await sql<{ key: string; name: string; counts: Readonly<Record<string, number>> }[]>`
    WITH every AS (
      SELECT 0 AS id, 'tok_' || substr(public_id, 5) AS key, ${FIRST_NAME} AS name FROM apps WHERE id = ${appId}
      UNION ALL SELECT id, public_id, name FROM producers WHERE app_id = ${appId}
    ), sent AS (
      SELECT producer_id, width_bucket(minute, ${times}::timestamptz[]) AS bucket, sum(events)::float8 AS events
        FROM producer_requests
       WHERE app_id = ${appId} AND minute >= ${times[0] ?? null}::timestamptz AND minute < ${times.at(-1) ?? null}::timestamptz
       GROUP BY 1, 2
    )
    SELECT key, name, coalesce(json_object_agg(bucket, events) FILTER (WHERE bucket IS NOT NULL), '{}') AS counts
      FROM every LEFT JOIN sent ON producer_id = id GROUP BY id, key, name ORDER BY id`;
  return rows.map(({ counts, ...producer }) => ({
    ...producer,
    counts: bounds.slice(1).map((_, index) => counts[index + 1] ?? 0),
  }));
}

interface ProducerOf {
  readonly appId: number;
  readonly tokenId: string;
  readonly by?: Actor;
}

/** @returns its token, in its own text; null where there is no such producer, or no text of it can be shown */
export async function showProducerToken(
  sql: Sql,
  secret: Secret,
  { appId, tokenId }: Pick<ProducerOf, 'appId' | 'tokenId'>,
): Promise<string | null> {
  const [token] = await sql<{ digest: Buffer; sealed: Buffer }[]>`
    SELECT digest, sealed FROM logging_tokens
     WHERE app_id = ${appId} AND expires_at IS NULL
       AND CASE WHEN producer_id IS NULL
                THEN EXISTS (SELECT FROM apps WHERE id = ${appId} AND public_id = ${appIdOf(tokenId)})
                ELSE producer_id = (SELECT id FROM producers WHERE public_id = ${tokenId} AND app_id = ${appId}) END`;
  return token === undefined ? null : openSealed(secret, token.sealed, token.digest);
}

/**
 * Gives a producer a new token; the earlier ones end after the grace period.
 * @returns null if there is no such producer, or it is revoked
 */
export async function rotateProducer(
  sql: Sql,
  secret: Secret,
  { appId, tokenId, graceHours, by = COMMAND_LINE }: ProducerOf & { readonly graceHours: number },
): Promise<{ tokenId: string; loggingToken: string; previousValidUntil: Date } | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const held = await hold(tx, { appId, tokenId });
    if (held === null || held.revokedAt !== null) return null;
    const rotated = await replaceToken(tx, secret, { appId, producerId: held.producerId, graceHours });
    await writeAudit(tx, {
      ...{ appId, by, action: 'producer.rotate' },
      details: { tokenId, name: held.name, graceHours },
    });
    return { tokenId, ...rotated };
  });
}

/**
 * Ends a producer's tokens at once. Revoking it again changes nothing.
 * @returns null if there is no such producer
 */
export async function revokeProducer(
  sql: Sql,
  { appId, tokenId, by = COMMAND_LINE }: ProducerOf,
): Promise<{ tokenId: string; revokedAt: Date } | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const held = await hold(tx, { appId, tokenId });
    if (held === null) return null;
    if (held.revokedAt !== null) return { tokenId, revokedAt: held.revokedAt };
    const [{ now }] = await tx<[{ now: Date }]>`SELECT now()`;
    await tx`
      UPDATE logging_tokens SET revoked_from = coalesce(expires_at, 'infinity'), expires_at = ${now}
       WHERE app_id = ${appId} AND producer_id IS NOT DISTINCT FROM ${held.producerId}::integer
         AND (expires_at IS NULL OR expires_at > ${now})`;
    await tx`UPDATE producers SET revoked_at = ${now} WHERE id = ${held.producerId}`;
    await writeAudit(tx, { appId, by, action: 'producer.revoke', details: { tokenId, name: held.name } });
    return { tokenId, revokedAt: now };
  });
}

/**
 * Undoes a revocation: the tokens are accepted again, for as long as they would have been.
 * @returns null if there is no such producer that was revoked within a day
 * @throws Refused tooManyTokens
 */
export async function restoreProducer(
  sql: Sql,
  { appId, tokenId, by = COMMAND_LINE }: ProducerOf,
): Promise<{ tokenId: string } | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const held = await hold(tx, { appId, tokenId });
    if (held?.restorableUntil == null) return null;
    if (held.producerId !== null) await checkRoom(tx, appId);
    await tx`
      UPDATE logging_tokens SET expires_at = nullif(revoked_from, 'infinity'), revoked_from = NULL
       WHERE app_id = ${appId} AND producer_id IS NOT DISTINCT FROM ${held.producerId}::integer
         AND revoked_from IS NOT NULL`;
    await tx`UPDATE producers SET revoked_at = NULL WHERE id = ${held.producerId}`;
    await writeAudit(tx, { appId, by, action: 'producer.restore', details: { tokenId, name: held.name } });
    return { tokenId };
  });
}

/** The app whose first producer has this id. */
const appIdOf = (tokenId: string): string => tokenId.replace(/^tok_/, 'app_');

interface Held {
  /** Null: the first one. */
  readonly producerId: number | null;
  readonly name: string;
  readonly revokedAt: Date | null;
  readonly restorableUntil: Date | null;
}

/** Locks the app, so that changes of its tokens take turns. */
async function hold(tx: Transaction, { appId, tokenId }: Omit<ProducerOf, 'by'>): Promise<Held | null> {
  const [app] = await tx<{ publicId: string }[]>`
    SELECT public_id AS "publicId" FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
  if (app?.publicId === appIdOf(tokenId)) {
    const [first] = await tx<[Pick<Held, 'revokedAt' | 'restorableUntil'>]>`
      SELECT max(expires_at) AS "revokedAt", ${restorableUntil(tx, tx`max(expires_at)`)} AS "restorableUntil"
        FROM logging_tokens
       WHERE app_id = ${appId} AND producer_id IS NULL AND revoked_from IS NOT NULL
         AND NOT EXISTS (SELECT FROM logging_tokens AS current
                          WHERE current.app_id = ${appId} AND current.producer_id IS NULL AND current.expires_at IS NULL)`;
    return { producerId: null, name: FIRST_NAME, ...first };
  }
  const [held] = await tx<Held[]>`
    SELECT id AS "producerId", name, revoked_at AS "revokedAt", ${restorableUntil(tx, tx`revoked_at`)} AS "restorableUntil"
      FROM producers WHERE public_id = ${tokenId} AND app_id = ${appId} FOR UPDATE`;
  return held ?? null;
}

/** The internal id of the app of a producer; null: there is none. */
export async function appOfProducer(sql: Sql, tokenId: string): Promise<number | null> {
  const [row] = await sql<{ appId: number }[]>`
    SELECT app_id AS "appId" FROM producers WHERE public_id = ${tokenId}
    UNION ALL SELECT id FROM apps WHERE public_id = ${appIdOf(tokenId)}`;
  return row?.appId ?? null;
}
