/** The retention boundary for new events: one dated before it could not be read and is refused. */

import { answerInTime, LookupCache, type LookupOutage } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { type Retention, readRules } from '../storage/retention.ts';
import { boundaryOf } from './event-time.ts';

export interface RetentionBoundaryOptions {
  readonly sql: Sql;
  readonly retentionDays: number;
  /** How long what was read is cached, in milliseconds. Boundaries move once a day, by whole days, or when a rule is set. */
  readonly cacheMs: number;
  /** How lookups behave during an outage of the database. */
  readonly outage?: LookupOutage;
  readonly now: () => number;
  /** Milliseconds since 1970, by which retention ends. */
  readonly judged: () => number;
  /** Whether the clocks have gone back to before what was ended by them. */
  readonly isBehind?: (() => boolean) | undefined;
}

const BEHIND = new Rejection(
  'unavailable',
  'The clock of the service shows a time before the end of retention: an event that is stored now would be gone. Its operator must correct the clock.',
);

/** Apps whose retention is kept in memory: those that send events with times of their own. */
const MAX_APPS = 10_000;

export class RetentionBoundary {
  readonly #options: RetentionBoundaryOptions;
  readonly #retentions: LookupCache<Retention>;

  constructor(options: RetentionBoundaryOptions) {
    this.#options = options;
    this.#retentions = new LookupCache({
      load: (appId) => answerInTime(readRules(options.sql, Number(appId)), options.outage),
      max: MAX_APPS,
      maxNegatives: 1,
      ttlMs: options.cacheMs,
      now: options.now,
      outage: options.outage,
    });
  }

  /**
   * The boundary of each type of an app, in milliseconds since 1970, at least 0: the latest one of the database's and that of RETENTION_DAYS.
   */
  async of(appId: number): Promise<(typeId: number) => number> {
    const { retentionDays, judged } = this.#options;
    const ofAll = boundaryOf(retentionDays, judged());
    const retention = await this.#retentions.get(String(appId));
    return (typeId) => Math.max(retention?.boundaryOf(typeId) ?? 0, ofAll);
  }

  /** Refuses what is dated now by clocks that have gone back to before the boundary: it would be gone. Null at once while they have not. */
  refusalOfNow(appId: number, typeIds: readonly number[], now: number): null | Promise<Rejection | null> {
    if (this.#options.isBehind?.() !== true) return null;
    return this.of(appId).then((boundaryOf) => (typeIds.some((id) => boundaryOf(id) > now) ? BEHIND : null));
  }

  /** Forgets what is cached: a rule has changed. */
  dropAll(): void {
    this.#retentions.dropAll();
  }

  /** Forgets it but for an outage. */
  invalidate(): void {
    this.#retentions.invalidateAll();
  }
}
