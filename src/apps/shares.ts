/** Shares: a saved view or a board of an app for anyone with the link, in one range, for as long as its maker may share it. */

import { type Actor, writeAudit } from '../accounts/log/audit.ts';
import { holdMaintained, lockApp } from '../accounts/people/members.ts';
import { createSecretText } from '../accounts/sessions/one-time-secret.ts';
import type { BoardView, ShareEntry } from '../api-types/answers.ts';
import { rolesThat } from '../base/roles.ts';
import { createPublicId } from '../base/token-text.ts';
import type { Path } from '../base/turns.ts';
import { type BatchedCache, cacheOfKeys, type LookupQueue } from '../cache/batched-lookup.ts';
import type { CacheStats, LookupOptions } from '../cache/lookup-cache.ts';
import { appNotFound, refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { checkOrigin } from './browser-keys.ts';

/** What a share shows beside charts: nothing, the latest events without their payloads, or with them. */
export const LISTS = ['none', 'times', 'payloads'] as const;

/** What is shared, and how. */
export interface ShareTerms
  extends Pick<ShareEntry<Date>, 'range' | 'timezone' | 'filters' | 'list' | 'origins' | 'endsAt'> {}

export type ListedShare = ShareEntry<Date>;

/** Shares that an app may have, with those that have ended. */
const MAX_SHARES = 100;
export const MAX_ORIGINS = 20;

/** An app's shares, the latest first. */
export async function listShares(sql: Sql, appId: number): Promise<ListedShare[]> {
  return await sql<ListedShare[]>`
    SELECT share.public_id AS "shareId", view.public_id AS "viewId", board.public_id AS "boardId",
           coalesce(view.name, board.name) AS name, range, timezone, filters, list, origins,
           ends_at AS "endsAt", share.password_hash IS NOT NULL AS "hasPassword", users.email AS "createdBy",
           share.created_at AS "createdAt", ${isAllowed(sql)} AS "isAllowed"
      FROM shares AS share
      JOIN apps ON apps.id = share.app_id
      JOIN users ON users.id = share.created_by
      LEFT JOIN saved_views AS view ON view.id = share.view_id
      LEFT JOIN boards AS board ON board.id = share.board_id
     WHERE share.app_id = ${appId} ORDER BY share.id DESC`;
}

/** Whether the maker of a share may share the app now. */
function isAllowed(sql: Sql) {
  return sql`
    (users.suspended_at IS NULL AND apps.suspended_at IS NULL AND apps.removed_at IS NULL
     AND EXISTS (SELECT FROM app_members AS member
                  WHERE member.app_id = apps.id AND member.user_id = users.id AND member.role = ANY(${rolesThat('change')}))
     -- What it may do by a group alone, while the issuer has ended its sessions.
     AND NOT EXISTS (SELECT FROM group_grants AS suspended
                      WHERE suspended.app_id = apps.id AND suspended.user_id = users.id
                        AND suspended.suspended AND suspended.own_role IS NULL))`;
}

export interface NewShare extends ShareTerms {
  readonly appId: number;
  readonly viewId: string | null;
  readonly boardId: string | null;
  readonly passwordHash: string | null;
  readonly by: Extract<Actor, object> & { readonly userId: number };
}

/**
 * Shares a view or a board.
 * @returns its id, and the secret of its link, which is nowhere else
 * @throws Refused invalidBody, appNotFound, viewNotFound, boardNotFound, tooManyShares
 */
export async function createShare(
  sql: Sql,
  share: NewShare,
): Promise<{ readonly shareId: string; readonly secret: string }> {
  const { appId, viewId, boardId, passwordHash, by, range, timezone, filters, list, endsAt } = share;
  if ((viewId === null) === (boardId === null))
    throw refused('invalidBody', 'a share is of either a viewId or a boardId');
  if (boardId !== null && list !== 'none') throw refused('invalidBody', 'a board has no list of events');
  if (viewId !== null && filters.length > 0)
    throw refused('invalidBody', 'a view has conditions of its own: filters are for boards');
  if (share.origins.length > MAX_ORIGINS)
    throw refused('invalidBody', `a share may have at most ${MAX_ORIGINS} origins`);
  const origins = [...new Set(share.origins.map(checkOrigin))];
  const shareId = createPublicId('shr');
  const { text: secret, digest } = createSecretText();
  await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact; and who is removed or made a viewer meanwhile has made none.
    await lockApp(tx, appId);
    if (!(await holdMaintained(tx, by.userId, [appId])).has(appId)) throw appNotFound(String(appId));
    if ((await countRows(tx, tx`shares WHERE app_id = ${appId}`)) >= MAX_SHARES)
      throw refused('tooManyShares', `an app may have ${MAX_SHARES} shares: revoke one`);
    const [shown] = await (viewId === null
      ? tx<
          Shown[]
        >`SELECT id, name FROM boards WHERE app_id = ${appId} AND public_id = ${boardId} FOR KEY SHARE`
      : tx<
          Shown[]
        >`SELECT id, name FROM saved_views WHERE app_id = ${appId} AND public_id = ${viewId} FOR KEY SHARE`);
    if (shown === undefined)
      throw viewId === null
        ? refused('boardNotFound', 'the app has no such board')
        : refused('viewNotFound', 'the app has no such saved view');
    await tx`
      INSERT INTO shares (public_id, digest, app_id, view_id, board_id, created_by, range, timezone, filters, list,
                          password_hash, ends_at, origins)
      VALUES (${shareId}, ${digest}, ${appId}, ${viewId === null ? null : shown.id}, ${viewId === null ? shown.id : null},
              ${by.userId}, ${range}, ${timezone}, ${[...filters]}, ${list}, ${passwordHash}, ${endsAt}, ${origins})`;
    const details = { shareId, name: shown.name, how: termsText({ ...share, origins }) };
    await writeAudit(tx, { appId, by, action: 'share.create', details });
  });
  return { shareId, secret };
}

/** What the audit log says of a share. */
function termsText({ range, list, passwordHash, endsAt, origins }: NewShare): string {
  const shown = {
    none: 'charts',
    times: 'charts and times of events',
    payloads: 'charts and events',
  } as const;
  const parts = [`${shown[list]} of ${range}`];
  if (passwordHash !== null) parts.push('with a password');
  if (endsAt !== null) parts.push(`until ${endsAt.toISOString()}`);
  if (origins.length > 0) parts.push(`in frames of ${origins.join(' and ')}`);
  return parts.join(', ');
}

interface Shown {
  readonly id: number;
  readonly name: string;
}

/** Ends a share at once. @param appId internal id  @returns false if the app has no such share */
export async function revokeShare(
  tx: Transaction,
  { appId, shareId, by }: { readonly appId: number; readonly shareId: string; readonly by: Actor },
): Promise<boolean> {
  const [removed] = await tx<{ name: string }[]>`
    DELETE FROM shares WHERE app_id = ${appId} AND public_id = ${shareId}
    RETURNING coalesce((SELECT name FROM saved_views WHERE id = view_id), (SELECT name FROM boards WHERE id = board_id)) AS name`;
  if (removed === undefined) return false;
  await writeAudit(tx, { appId, by, action: 'share.revoke', details: { shareId, name: removed.name } });
  return true;
}

/** A share as a link finds it: its maker may share the app. */
export interface Share extends ShareTerms {
  readonly shareId: string;
  readonly app: { /** Internal id. */ readonly id: number; readonly appId: string };
  /** Name of the view or the board. */
  readonly name: string;
  /** In their order. */
  readonly views: readonly BoardView[];
  readonly passwordHash: string | null;
  /** Whose turns its reads take: those of its maker's account, then its own. */
  readonly turns: Path;
  /** Erasures of its app: how many are finished, and how many run. An answer of before one has what it has erased. */
  readonly erasures: readonly [finished: number, running: number];
}

/** Longest time that a share, or an answer of one, is used without a query: also where a notification of its end is lost. */
export const FRESH_MS = 1_000;
/** Each has the addresses of up to twelve views. */
const MAX_KNOWN = 1_000;

/** Finds the share of a link, for all requests of a second by one statement. */
export class Shares {
  readonly #now: () => number;
  /** By hexadecimal digest: the secret of a link is not kept in memory. */
  readonly #shares: BatchedCache<Share>;

  constructor({ sql, now, outage }: Omit<LookupOptions, 'cacheMs'>) {
    this.#now = now;
    this.#shares = cacheOfKeys((digests) => findShares(sql, digests), MAX_KNOWN, {
      cacheMs: FRESH_MS,
      now,
      outage: outage && { ...outage, serveStale: false },
    });
  }

  /**
   * @param digest hexadecimal
   * @returns null where the link is of no share, or of one that has ended or whose maker may not share the app now
   */
  async find(digest: string): Promise<Share | null> {
    const share = await this.#shares.get(digest);
    return share === null || (share.endsAt !== null && share.endsAt.getTime() <= this.#now()) ? null : share;
  }

  get caches(): readonly CacheStats[] {
    return [this.#shares];
  }

  get queues(): Readonly<Record<'shares', readonly LookupQueue[]>> {
    return { shares: [this.#shares.queue] };
  }

  /** Drops all that is known after a change of a share, a member, an account or an app. */
  dropAll(): void {
    this.#shares.dropAll();
  }
}

/** @param digests hexadecimal */
async function findShares(sql: Sql, digests: readonly string[]): Promise<ReadonlyMap<string, Share>> {
  const rows = await sql<(Omit<Share, 'app' | 'turns'> & Found)[]>`
    SELECT encode(share.digest, 'hex') AS digest, share.public_id AS "shareId", share.created_by AS "accountId",
           apps.id AS app, apps.public_id AS "appId", coalesce(alone.name, board.name) AS name,
           range, timezone, filters, list, origins, ends_at AS "endsAt", share.password_hash AS "passwordHash",
           CASE WHEN alone.id IS NOT NULL
                THEN json_build_array(json_build_object('viewId', alone.public_id, 'name', alone.name, 'search', alone.search))
                ELSE (SELECT coalesce(json_agg(json_build_object('viewId', view.public_id, 'name', view.name, 'search', view.search)
                                               ORDER BY shown.position, view.id), '[]')
                        FROM board_views AS shown JOIN saved_views AS view ON view.id = shown.view_id
                       WHERE shown.board_id = board.id)
           END AS views,
           (SELECT json_build_array(count(finished_at), count(*) - count(finished_at))
              FROM erasures WHERE erasures.app_id = apps.id) AS erasures
      FROM shares AS share
      JOIN apps ON apps.id = share.app_id
      JOIN users ON users.id = share.created_by
      LEFT JOIN saved_views AS alone ON alone.id = share.view_id
      LEFT JOIN boards AS board ON board.id = share.board_id
     WHERE share.digest IN (SELECT decode(hex, 'hex') FROM unnest(${[...digests]}::text[]) AS hex)
       AND ${isAllowed(sql)}`;
  return new Map(
    rows.map(({ digest, accountId, app, appId, ...share }) => [
      digest,
      { ...share, app: { id: app, appId }, turns: [accountId, share.shareId] },
    ]),
  );
}

interface Found {
  readonly digest: string;
  readonly accountId: number;
  readonly app: number;
  readonly appId: string;
}
