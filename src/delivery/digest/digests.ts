/** Who gets the weekly digest of an app, or of a board, and when. */

import { randomBytes } from 'node:crypto';
import { MAX_BOARDS } from '../../apps/boards.ts';
import { rolesThat } from '../../base/roles.ts';
import { DAY_MS, HOUR_MS } from '../../base/time-units.ts';
import { refused } from '../../errors.ts';
import { instantOf, localOf } from '../../storage/counts/timezone.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';

const HOUR = 8;
/** 1970-01-01 was a Thursday. */
const FIRST_MONDAY = 4;

export interface Digest {
  readonly timezone: string;
  readonly nextAt: Date;
}

/** What a digest is of: an app or one of its boards, and for whom. Internal ids, but for the board's. */
export interface DigestOf {
  readonly appId: number;
  /** Null: the app itself. */
  readonly boardId: string | null;
  readonly userId: number;
}

/** The first Monday at 08:00 of a zone's clock that is after an instant. */
export function nextDigest(zone: string, after: number): number {
  const day = Math.floor(localOf(zone, after) / DAY_MS);
  for (let monday = day - ((((day - FIRST_MONDAY) % 7) + 7) % 7); ; monday += 7) {
    const at = instantOf(zone, monday * DAY_MS + HOUR * HOUR_MS);
    if (at > after) return at;
  }
}

/**
 * The digest of a member; null: there is none.
 * @throws Refused boardNotFound
 */
export async function findDigest(sql: Sql, of: DigestOf): Promise<Digest | null> {
  const place = await placeOf(sql, of);
  const [digest] = await sql<Digest[]>`
    SELECT timezone, next_at AS "nextAt" FROM digests WHERE ${ofPlace(sql, place)} AND user_id = ${of.userId}`;
  return digest ?? null;
}

/**
 * Has a member get it, or get it by another clock; at once too, with the seven days before today.
 * @throws Refused boardNotFound
 */
export async function setDigest(
  sql: Sql,
  {
    timezone,
    atOnce = false,
    now,
    ...of
  }: DigestOf & { readonly timezone: string; readonly atOnce?: boolean; readonly now: number },
): Promise<Digest> {
  const nextAt = new Date(atOnce ? now : nextDigest(timezone, now));
  await sql.begin('isolation level read committed', async (tx) => {
    const { appId, boardId } = await placeOf(tx, of);
    await tx`
      INSERT INTO digests (app_id, board_id, user_id, stop_token, timezone, next_at)
      VALUES (${appId}, ${boardId}, ${of.userId}, ${randomBytes(24).toString('base64url')}, ${timezone}, ${nextAt})
          ON CONFLICT ${boardId === null ? tx`(app_id, user_id)` : tx`(board_id, user_id)`}
          DO UPDATE SET timezone = excluded.timezone, next_at = excluded.next_at`;
  });
  return { timezone, nextAt };
}

/**
 * @returns false if there was none
 * @throws Refused boardNotFound
 */
export async function removeDigest(sql: Sql, of: DigestOf): Promise<boolean> {
  const place = await placeOf(sql, of);
  const { count } = await sql`DELETE FROM digests WHERE ${ofPlace(sql, place)} AND user_id = ${of.userId}`;
  return count > 0;
}

/** Ends the digest of a link, and no other one. One that has been ended before stays so. */
export async function stopDigest(sql: Sql, token: string): Promise<void> {
  await sql`DELETE FROM digests WHERE stop_token = ${token}`;
}

/** Internal ids, of which one is null. */
interface PlaceOfDigest {
  readonly appId: number | null;
  readonly boardId: number | null;
}

/** The lock keeps a board from being removed until the end of a transaction. */
async function placeOf(sql: Sql | Transaction, { appId, boardId }: DigestOf): Promise<PlaceOfDigest> {
  if (boardId === null) return { appId, boardId };
  const [board] = await sql<{ id: number }[]>`
    SELECT id FROM boards WHERE app_id = ${appId} AND public_id = ${boardId} FOR KEY SHARE`;
  if (board === undefined) throw refused('boardNotFound', 'the app has no such board');
  return { appId: null, boardId: board.id };
}

const ofPlace = (sql: Sql, { appId, boardId }: PlaceOfDigest) =>
  sql`(app_id = ${appId} OR board_id = ${boardId})`;

export interface ListedDigest extends Digest {
  readonly email: string;
  /** Null: it is of the app. */
  readonly boardId: string | null;
  readonly boardName: string | null;
}

/** The digests of an app and of its boards. */
export async function listDigests(sql: Sql, appId: number): Promise<readonly ListedDigest[]> {
  return await sql<ListedDigest[]>`
    SELECT users.email, boards.public_id AS "boardId", boards.name AS "boardName", timezone, next_at AS "nextAt"
      FROM digests JOIN users ON users.id = digests.user_id LEFT JOIN boards ON boards.id = digests.board_id
     WHERE digests.app_id = ${appId} OR boards.app_id = ${appId}
     ORDER BY boards.name NULLS FIRST, users.email, digests.id`;
}

/** A digest that is due, with what its mail says. */
export interface DueDigest {
  readonly id: number;
  /** Internal id. */
  readonly app: number;
  readonly appId: string;
  readonly appName: string;
  /** Null: it is of the app. */
  readonly boardId: string | null;
  readonly email: string;
  readonly stopToken: string;
  readonly timezone: string;
  readonly nextAt: Date;
}

/** Digests of apps and accounts that may get mail; digests of others wait. */
const allowed = (sql: Sql) => sql`
  digests
  LEFT JOIN boards ON boards.id = digests.board_id
  JOIN apps ON apps.id = coalesce(digests.app_id, boards.app_id) AND apps.removed_at IS NULL AND apps.suspended_at IS NULL
  JOIN users ON users.id = digests.user_id AND users.suspended_at IS NULL AND users.email_verified_at IS NOT NULL
  JOIN app_members AS member ON member.app_id = apps.id AND member.user_id = users.id AND member.role = ANY(${rolesThat('read')})
       -- What it may do by a group alone, while the issuer has ended its sessions.
   AND NOT EXISTS (SELECT FROM group_grants AS suspended
                    WHERE suspended.app_id = apps.id AND suspended.user_id = users.id
                      AND suspended.suspended AND suspended.own_role IS NULL)`;

/**
 * Digests whose time has come, in turns by the account that gets them.
 * @param waiting internal ids of digests that are left out
 */
export async function dueDigests(
  sql: Sql,
  now: number,
  { most, waiting }: { readonly most: number; readonly waiting: readonly number[] },
): Promise<readonly DueDigest[]> {
  return await sql<DueDigest[]>`
    SELECT digests.id, apps.id AS app, apps.public_id AS "appId", apps.name AS "appName", boards.public_id AS "boardId",
           users.email, stop_token AS "stopToken", timezone, next_at AS "nextAt"
      FROM ${allowed(sql)}
     WHERE next_at <= ${new Date(now)} AND digests.id <> ALL(${[...waiting]}::int[])
     ORDER BY row_number() OVER (PARTITION BY users.id ORDER BY next_at, digests.id),
              next_at, apps.id, boards.id, timezone, digests.id LIMIT ${most}`;
}

const messageIdOf = ({ id, nextAt }: Pick<DueDigest, 'id' | 'nextAt'>): string =>
  `digest-${id}-${nextAt.getTime()}`;

/** Digests of an app that wait for a mailbox: its own, and that of each board. Beyond it none is added. */
const MOST_WAITING = 1 + MAX_BOARDS;

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
        SELECT ${app}, 'mail', ${email}, ${messageIdOf({ id, nextAt })}, ${DIGEST_MESSAGE}, ${body}, ${new Date(now)}, ${new Date(now)}
         WHERE (SELECT count(*) FROM delivery_messages
                 WHERE app_id = ${app} AND channel = 'mail' AND target = ${email} AND type = ${DIGEST_MESSAGE}) < ${MOST_WAITING}`;
    return true;
  });
}

/** Type of the messages of digests in the outbox. */
export const DIGEST_MESSAGE = 'digest';

/** Whether the digest of a message that waited is still wanted, and may still be sent to its member. */
export async function isDigestWanted(sql: Sql, messageId: string): Promise<boolean> {
  const id = Number(messageId.split('-')[1]);
  const found = await sql`SELECT FROM ${allowed(sql)} WHERE digests.id = ${id}`;
  return found.length > 0;
}
