/** The live feeds of this process: limits, access checks and heartbeats. */

import type { Logger } from 'pino';
import { grouped } from '../../base/grouped.ts';
import { rolesThat } from '../../base/roles.ts';
import type { Path } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import type { AnswerStream, StreamAnswer } from '../../http/stream.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { decodeFeedCursors } from '../../storage/read/arrivals.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { Follower, type Watcher } from './follower.ts';
import * as messages from './messages.ts';

/** By whose access a client watches: its feed ends with it. Ids are internal ones. */
export type FeedHolder =
  /** With the session's digest. */
  | { readonly kind: 'session'; readonly session: Buffer; readonly userId: number }
  | { readonly kind: 'token'; readonly tokenId: number };

/** A client and the app that it watches. */
export interface FeedClient {
  readonly holder: FeedHolder;
  /** The account of the holder, which has its feeds in common with its tokens: the outermost holder of its turns. */
  readonly account: Path[number];
  readonly appId: number;
}

export interface LiveFeedsOptions {
  readonly events: EventReader;
  /** For access checks: separate from reads, so that slow reads do not delay the end of a feed whose access has ended. */
  readonly accessSql: Sql;
  /** Returns the valid ones of these sessions. Does not extend them. */
  readonly validSessions: (digests: readonly Buffer[]) => Promise<ReadonlySet<string>>;
  readonly most: FeedLimits;
  readonly log: Logger;
  readonly wall: () => number;
  readonly monotonic: () => number;
}

/** Limits of open feeds in this process. */
export interface FeedLimits {
  readonly all: number;
  readonly ofApp: number;
  /** Feeds of one account and its resource tokens. */
  readonly ofAccount: number;
}

/** Interval of access checks and of the check for due heartbeats. */
const CHECK_EVERY_MS = 800;
const HEARTBEAT_MS = 15_000;

const RETRY = { retryAfterSeconds: 10 } as const;

interface OpenFeed extends FeedClient {
  readonly stream: AnswerStream;
  /** When something was last sent, by the monotonic clock. */
  sentAt: number;
}

export class LiveFeeds {
  readonly #options: LiveFeedsOptions;
  readonly #feeds = new Set<OpenFeed>();
  readonly #followers = new Map<number, Follower>();
  #timer: NodeJS.Timeout | null = null;
  #checking: Promise<void> | null = null;

  constructor(options: LiveFeedsOptions) {
    this.#options = options;
  }

  /**
   * Opens a feed.
   * @param lastEventId id of the last message that the client received, or what it has of several answers; empty: from now on
   */
  open(client: FeedClient, lastEventId: string): StreamAnswer | Rejection {
    const refusal = this.#refusal(client);
    if (refusal !== null) return refusal;
    const from = lastEventId === '' ? 'now' : (decodeFeedCursors(lastEventId) ?? 'reset');
    return {
      status: 200,
      contentType: 'text/event-stream',
      // nginx buffers responses by default.
      headers: { 'X-Accel-Buffering': 'no' },
      filler: messages.COMMENT,
      open: (stream) => this.#start(client, from, stream),
    };
  }

  /** The refusal of one more feed; null if it may be opened. */
  #refusal({ account, appId }: FeedClient): Rejection | null {
    const { all, ofApp, ofAccount } = this.#options.most;
    if (this.#count((feed) => feed.account === account) >= ofAccount) {
      const details = `An account may have ${ofAccount} live feeds open (MAX_LIVE_FEEDS_PER_ACCOUNT), with those of its resource tokens; close one.`;
      return new Rejection('tooManyLiveFeeds', details, RETRY);
    }
    if (this.#count((feed) => feed.appId === appId) >= ofApp) {
      const details = `An app may have ${ofApp} live feeds open (MAX_LIVE_FEEDS_PER_APP); close one.`;
      return new Rejection('tooManyLiveFeeds', details, RETRY);
    }
    if (this.#feeds.size < all || this.#surplus(account) !== null) return null;
    const details = `The server has ${all} live feeds open (MAX_LIVE_FEEDS); try again later.`;
    return new Rejection('unavailable', details, RETRY);
  }

  #count(isCounted: (feed: OpenFeed) => boolean): number {
    return [...this.#feeds].filter(isCounted).length;
  }

  /** The oldest feed of the account with the most feeds, if that has more than this account would have with one more. */
  #surplus(account: Path[number]): OpenFeed | null {
    const byAccount = grouped([...this.#feeds], ({ account: own }) => own);
    const most = [...byAccount.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
    return most.length > (byAccount.get(account)?.length ?? 0) + 1 ? (most[0] ?? null) : null;
  }

  #start(client: FeedClient, from: Watcher['from'], stream: AnswerStream): void {
    const { monotonic, most } = this.#options;
    // Other feeds may have been opened since the check. The client reconnects and then receives the refusal.
    if (this.#refusal(client) !== null) {
      stream.end();
      return;
    }
    if (this.#feeds.size >= most.all) this.#surplus(client.account)?.stream.end();
    const feed: OpenFeed = { ...client, stream, sentAt: monotonic() };
    const watcher: Watcher = { from, send: (message) => this.#send(feed, message) };
    const follower = this.#followerOf(client.appId);
    this.#feeds.add(feed);
    stream.whenClosed(() => {
      this.#feeds.delete(feed);
      follower.leave(watcher);
      if (!follower.isWatched) this.#followers.delete(client.appId);
      if (this.#feeds.size === 0) this.#stopTimer();
    });
    this.#send(feed, messages.HELLO);
    // The write may have closed the stream, which has removed the feed.
    if (stream.isClosed) return;
    follower.join(watcher);
    this.#timer ??= setInterval(() => this.#check(), CHECK_EVERY_MS);
  }

  #followerOf(appId: number): Follower {
    const known = this.#followers.get(appId);
    if (known !== undefined) return known;
    const { events, log, wall, monotonic } = this.#options;
    const follower = new Follower({ events, appId, now: wall, monotonic, log });
    this.#followers.set(appId, follower);
    return follower;
  }

  #send(feed: OpenFeed, message: Buffer): void {
    feed.sentAt = this.#options.monotonic();
    feed.stream.write(message);
  }

  #check(): void {
    const now = this.#options.monotonic();
    for (const feed of this.#feeds)
      if (now - feed.sentAt >= HEARTBEAT_MS) this.#send(feed, messages.HEARTBEAT);
    this.#checking ??= this.#checkAccess().finally(() => {
      this.#checking = null;
    });
  }

  /** Ends the feeds whose access has ended, or whose app is gone. */
  async #checkAccess(): Promise<void> {
    const feeds = [...this.#feeds];
    try {
      const reasons = await Promise.all([
        this.#endedSessions(feeds.filter(isOfSession)),
        this.#endedTokens(feeds.filter(isOfToken)),
      ]);
      for (const [feed, reason] of reasons.flat()) this.#end(feed, reason);
    } catch (error) {
      // Without the database no events are sent either. The next check tries again.
      this.#options.log.debug({ err: error }, 'live: access check failed');
    }
  }

  /** The feeds whose session has ended, or whose user is not a member of the app any more. */
  async #endedSessions(feeds: readonly FeedOf<'session'>[]): Promise<[OpenFeed, messages.EndReason][]> {
    if (feeds.length === 0) return [];
    const { accessSql: sql, validSessions } = this.#options;
    const [apps, users] = [feeds.map(({ appId }) => appId), feeds.map(({ holder }) => holder.userId)];
    const [sessions, members] = await Promise.all([
      validSessions(feeds.map(({ holder }) => holder.session)),
      sql<{ index: number }[]>`
        SELECT (index - 1)::integer AS index
          FROM unnest(${apps}::integer[], ${users}::integer[]) WITH ORDINALITY AS feed (app_id, user_id, index)
          JOIN app_members USING (app_id, user_id)
         WHERE role = ANY(${rolesThat('read')})
           AND NOT EXISTS (SELECT FROM apps WHERE apps.id = app_id AND suspended_at IS NOT NULL)`,
    ]);
    const isMember = new Set(members.map(({ index }) => index));
    return feeds.flatMap((feed, index): [OpenFeed, messages.EndReason][] => {
      if (!sessions.has(feed.holder.session.toString('hex'))) return [[feed, 'session']];
      return isMember.has(index) ? [] : [[feed, 'access']];
    });
  }

  /** The feeds whose token was revoked, has expired, or may not read the app any more. */
  async #endedTokens(feeds: readonly FeedOf<'token'>[]): Promise<[OpenFeed, messages.EndReason][]> {
    if (feeds.length === 0) return [];
    const { accessSql: sql, wall } = this.#options;
    const [apps, tokens] = [feeds.map(({ appId }) => appId), feeds.map(({ holder }) => holder.tokenId)];
    const valid = await sql<{ index: number }[]>`
      SELECT (index - 1)::integer AS index
        FROM unnest(${apps}::integer[], ${tokens}::integer[]) WITH ORDINALITY AS feed (app_id, token_id, index)
        JOIN resource_token_apps USING (app_id, token_id)
        JOIN resource_tokens ON id = token_id
       WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${wall()})
         AND NOT EXISTS (SELECT FROM apps WHERE apps.id = feed.app_id AND suspended_at IS NOT NULL)
         AND NOT EXISTS (SELECT FROM users WHERE users.id = created_by AND suspended_at IS NOT NULL)
         AND NOT EXISTS (SELECT FROM group_grants AS suspended
                          WHERE suspended.app_id = feed.app_id AND suspended.user_id = created_by
                            AND suspended.suspended AND suspended.own_role IS NULL)`;
    const isValid = new Set(valid.map(({ index }) => index));
    return feeds.filter((_, index) => !isValid.has(index)).map((feed) => [feed, 'access']);
  }

  #end(feed: OpenFeed, reason: messages.EndReason): void {
    this.#send(feed, messages.end(reason));
    feed.stream.end();
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Ends every feed; the clients may reconnect to another process. */
  async close(): Promise<void> {
    const followers = [...this.#followers.values()];
    for (const { stream } of this.#feeds) stream.end();
    this.#stopTimer();
    await Promise.all(followers.map((follower) => follower.stop()));
    await this.#checking;
  }
}

type FeedOf<K extends FeedHolder['kind']> = OpenFeed & {
  readonly holder: Extract<FeedHolder, { readonly kind: K }>;
};

function isOfSession(feed: OpenFeed): feed is FeedOf<'session'> {
  return feed.holder.kind === 'session';
}

function isOfToken(feed: OpenFeed): feed is FeedOf<'token'> {
  return feed.holder.kind === 'token';
}
