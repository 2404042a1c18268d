/** The rate limits of the API: shared through Redis if REDIS_URL is set, else per process. */
import type { Logger } from 'pino';
import { Window } from '../base/window.ts';
import type { Config } from '../config.ts';
import type { Sql } from '../storage/database/connect.ts';
import { installationId } from '../storage/database/installation-id.ts';
import { DayCounts, type DayCountsOptions, type DayLimiter } from './day-counts.ts';
import type { Limiter } from './limiter.ts';
import { SharedLimits, type SharedLimitsStats } from './redis-sliding-log.ts';
import { type ShareRecords, unshared } from './shared-records.ts';

export interface Limits {
  /** Create requests, by the app's internal id. */
  readonly create: Limiter;
  /** Bytes of payloads on a UTC day, by the app's internal id. */
  readonly createBytes: DayLimiter;
  /** Reads, by the resource token's internal id. */
  readonly read: Limiter;
  /** Reads of all resource tokens of an account, by its internal id. */
  readonly readOfAccount: Limiter;
  /** Tenths of a second of queries, by the resource token's internal id; of an account's sessions by its own id, negative. */
  readonly query: Limiter;
  /** Tenths of a second of queries of an account with all of its tokens, by its internal id. */
  readonly queryOfAccount: Limiter;
  /** Requests with a browser key, by its internal id. */
  readonly browserKey: Limiter;
  /** Requests by browser key and network of the client, in this process alone. */
  readonly browserNetwork: Window<string>;
  /** Records that processes have in common, such as the attempts to sign in. */
  readonly share: ShareRecords;
  readonly stats: () => SharedLimitsStats;
  readonly stop: () => void;
}

/** Limits of single apps, by internal id; null: the app has none of its own. */
export interface OwnLimits {
  of(appId: number, name: 'createPerMinute' | 'bytesPerDay'): number | null;
  /** Bytes that were counted before. @param day its number since 1970 (UTC) */
  usedBytes(appId: number, day: number): number;
}

export interface LimitsOptions {
  readonly config: Config;
  readonly sql: Sql;
  readonly log: Logger;
  readonly ofApps: OwnLimits;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly wall: () => number;
}

/** The budget of queries is taken in units of a tenth of a second. */
const QUERY_UNITS_PER_SECOND = 10;
/** An account has the budget of so many tokens. */
const QUERY_HOLDERS_PER_ACCOUNT = 2;

export async function openLimits({ config, sql, log, ofApps, now, wall }: LimitsOptions): Promise<Limits> {
  const create = config.CREATE_LIMIT_PER_MINUTE;
  const read = config.READ_LIMIT_PER_MINUTE;
  const readOfAccount = read * config.READ_LIMIT_TOKENS_PER_ACCOUNT;
  const query = config.QUERY_SECONDS_PER_MINUTE * QUERY_UNITS_PER_SECOND;
  const queryOfAccount = query * QUERY_HOLDERS_PER_ACCOUNT;
  const browserKey = notAbove(config.BROWSER_KEY_LIMIT_PER_MINUTE, create);
  const limitOf = (appId: number): number | null => ofApps.of(appId, 'createPerMinute');
  const bytes: DayCountsOptions = {
    limitOf: (appId) => ofApps.of(appId, 'bytesPerDay'),
    usedOf: (appId, day) => ofApps.usedBytes(appId, day),
    wall,
  };
  const network = notAbove(config.BROWSER_NETWORK_LIMIT_PER_MINUTE, create);
  const browserNetwork = new Window<string>({ limit: network, now });
  if (config.REDIS_URL === '') {
    return {
      create: new Window<number>({ limit: create, limitOf, now }),
      createBytes: new DayCounts(bytes),
      read: new Window<number>({ limit: read, now }),
      readOfAccount: new Window<number>({ limit: readOfAccount, now }),
      query: new Window<number>({ limit: query, now }),
      queryOfAccount: new Window<number>({ limit: queryOfAccount, now }),
      browserKey: new Window<number>({ limit: browserKey, now }),
      browserNetwork,
      share: unshared,
      stats: () => ({ shared: false, fallbacks: 0, ownDecisions: 0 }),
      stop: () => undefined,
    };
  }
  const shared = await SharedLimits.start({
    url: config.REDIS_URL,
    // Internal ids start at 1 in every database, hence the installation id. One hash tag lets a script touch all keys.
    prefix: `${config.REDIS_PREFIX}:{${await installationId(sql)}}`,
    timeoutMs: config.REDIS_TIMEOUT_MS,
    log,
    now,
  });
  return {
    create: shared.limiter({ name: 'create', limit: create, limitOf }),
    createBytes: shared.dayLimiter('bytes', bytes),
    read: shared.limiter({ name: 'read', limit: read }),
    readOfAccount: shared.limiter({ name: 'read-account', limit: readOfAccount }),
    query: shared.limiter({ name: 'query', limit: query }),
    queryOfAccount: shared.limiter({ name: 'query-account', limit: queryOfAccount }),
    browserKey: shared.limiter({ name: 'browser-key', limit: browserKey }),
    browserNetwork,
    share: shared.records().share,
    stats: () => shared.stats,
    stop: () => shared.stop(),
  };
}

/** A limit within the app's, so that a public key never takes more than the app has; 0: none. */
function notAbove(limit: number, ofApp: number): number {
  return ofApp > 0 && limit > 0 ? Math.min(limit, ofApp) : limit;
}
