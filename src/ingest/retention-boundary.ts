/** The retention boundary for new events: one dated before it could not be read and is refused. */

import { answerInTime, LookupCache, type LookupOutage } from '../cache/lookup-cache.ts';
import type { Sql } from '../storage/database/connect.ts';
import { readBoundary } from '../storage/storage.ts';
import { boundaryOf } from './event-time.ts';

export interface RetentionBoundaryOptions {
  readonly sql: Sql;
  /** RETENTION_DAYS */
  readonly retentionDays: number;
  /** How long the boundary is cached, in milliseconds. It moves once a day, by whole days. */
  readonly cacheMs: number;
  /** How lookups behave during an outage of the database. */
  readonly outage?: LookupOutage;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export class RetentionBoundary {
  readonly #options: RetentionBoundaryOptions;
  readonly #boundary: LookupCache<number>;

  constructor(options: RetentionBoundaryOptions) {
    this.#options = options;
    this.#boundary = new LookupCache({
      load: () => answerInTime(readBoundary(options.sql), options.outage),
      max: 1,
      maxNegatives: 1,
      ttlMs: options.cacheMs,
      now: options.now,
      outage: options.outage,
    });
  }

  /** Milliseconds since 1970, at least 0: the later one of the database's boundary and that of RETENTION_DAYS. */
  async boundary(): Promise<number> {
    const { retentionDays, now } = this.#options;
    return Math.max((await this.#boundary.get('')) ?? 0, boundaryOf(retentionDays, now()));
  }
}
