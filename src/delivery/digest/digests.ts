/** Who gets the weekly digest of an app, and when. */
import { randomBytes } from 'node:crypto';
import { DAY_MS, HOUR_MS } from '../../base/time-units.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { instantOf, localOf } from '../../storage/storage.ts';

const HOUR = 8;
/** 1970-01-01 was a Thursday. */
const FIRST_MONDAY = 4;

export interface Digest {
  readonly timezone: string;
  readonly nextAt: Date;
}

/** The first Monday at 08:00 of a zone's clock that is after an instant. */
export function nextDigest(zone: string, after: number): number {
  const day = Math.floor(localOf(zone, after) / DAY_MS);
  for (let monday = day - ((((day - FIRST_MONDAY) % 7) + 7) % 7); ; monday += 7) {
    const at = instantOf(zone, monday * DAY_MS + HOUR * HOUR_MS);
    if (at > after) return at;
  }
}

/** The digest of a member; null: there is none. @param appId internal id, as userId */
export async function findDigest(sql: Sql, appId: number, userId: number): Promise<Digest | null> {
  const [digest] = await sql<Digest[]>`
    SELECT timezone, next_at AS "nextAt" FROM digests WHERE app_id = ${appId} AND user_id = ${userId}`;
  return digest ?? null;
}

/** Has a member get it, or get it by another clock. */
export async function setDigest(
  sql: Sql,
  { appId, userId, timezone, now }: { appId: number; userId: number; timezone: string; now: number },
): Promise<Digest> {
  const nextAt = new Date(nextDigest(timezone, now));
  await sql`
    INSERT INTO digests (app_id, user_id, stop_token, timezone, next_at)
    VALUES (${appId}, ${userId}, ${randomBytes(24).toString('base64url')}, ${timezone}, ${nextAt})
        ON CONFLICT (app_id, user_id) DO UPDATE SET timezone = excluded.timezone, next_at = excluded.next_at`;
  return { timezone, nextAt };
}

export async function removeDigest(sql: Sql, appId: number, userId: number): Promise<void> {
  await sql`DELETE FROM digests WHERE app_id = ${appId} AND user_id = ${userId}`;
}

/** Ends the digest of a link. One that has been ended before stays so. */
export async function stopDigest(sql: Sql, token: string): Promise<void> {
  await sql`DELETE FROM digests WHERE stop_token = ${token}`;
}

/** A digest that is due, with what its mail says. */
export interface DueDigest {
  readonly id: number;
  /** Internal id. */
  readonly app: number;
  readonly appId: string;
  readonly appName: string;
  readonly email: string;
  readonly stopToken: string;
  readonly timezone: string;
  readonly nextAt: Date;
}

/** Digests whose time has come, of apps and accounts that may get mail. Those of others wait. */
export async function dueDigests(sql: Sql, now: number, most: number): Promise<readonly DueDigest[]> {
  return await sql<DueDigest[]>`
    SELECT digests.id, apps.id AS app, apps.public_id AS "appId", apps.name AS "appName", users.email,
           stop_token AS "stopToken", timezone, next_at AS "nextAt"
      FROM digests
      JOIN apps ON apps.id = digests.app_id AND apps.removed_at IS NULL AND apps.suspended_at IS NULL
      JOIN users ON users.id = digests.user_id AND users.suspended_at IS NULL AND users.email_verified_at IS NOT NULL
      JOIN app_members ON app_members.app_id = digests.app_id AND app_members.user_id = digests.user_id
     WHERE next_at <= ${new Date(now)} ORDER BY next_at, digests.id LIMIT ${most}`;
}

/**
 * Moves a digest to its next time, and stores the mail of this one.
 * @param body null: it is too late for this one
 * @returns whether it was still due: another process may have been faster
 */
export async function passDigest(
  sql: Sql,
  { id, app, email, timezone, nextAt }: DueDigest,
  { body, now }: { readonly body: string | null; readonly now: number },
): Promise<boolean> {
  return await sql.begin('isolation level read committed', async (tx: Transaction) => {
    const { count } = await tx`
      UPDATE digests SET next_at = ${new Date(nextDigest(timezone, now))} WHERE id = ${id} AND next_at = ${nextAt}`;
    if (count === 0) return false;
    if (body !== null)
      await tx`
        INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
        VALUES (${app}, 'mail', ${email}, ${`digest-${id}-${nextAt.getTime()}`}, 'digest', ${body}, ${new Date(now)}, ${new Date(now)})`;
    return true;
  });
}
