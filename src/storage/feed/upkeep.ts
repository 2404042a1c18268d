/** Keeps watch over consumers: how far behind each is, which one is about to lose its place, and which ticks can go. */
import type { Sql, Transaction } from '../database/connect.ts';
import { pruneTicks, type TickTable } from './ticks.ts';

/** How far a consumer is. */
export type ConsumerState = 'ok' | 'lagging' | 'lost';

/** What the process that does maintenance knows of all consumers. */
export interface ConsumerStats {
  /** Consumers by state. */
  readonly states: Readonly<Record<ConsumerState, number>>;
  /** Age of the oldest events that a consumer which is not lost has not acknowledged. */
  readonly lagSeconds: number;
  /** What has changed since the last call, for the log. */
  takeNotices(): readonly ConsumerNotice[];
}

export interface ConsumerNotice {
  /** Internal id of the app. */
  readonly app: number;
  readonly name: string;
  readonly state: ConsumerState;
  readonly lagSeconds: number;
}

/** A consumer is lagging from this share of the reach on. */
export const LAGGING_SHARE = 0.5;

/** Between two looks, and between two removals of ticks. */
const LOOK_MS = 5_000;
const PRUNE_MS = 60_000;

type Prune = (tx: Transaction, nameOf?: (table: TickTable) => string) => Promise<void>;

interface Lag {
  readonly app: number;
  readonly name: string;
  readonly isLost: boolean;
  readonly oldest: Date | null;
}

export class ConsumerUpkeep implements ConsumerStats {
  readonly #sql: Sql;
  readonly #reachMs: number;
  readonly #now: () => number;
  /** By which a consumer is lost. */
  readonly #judged: () => number;
  readonly #everywhere: (prune: Prune) => Promise<void>;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #prunedAt = Number.NEGATIVE_INFINITY;
  readonly #known = new Map<string, ConsumerState>();
  #notices: ConsumerNotice[] = [];
  #lagSeconds = 0;

  /**
   * @param reachMs    how far back a consumer may lag
   * @param everywhere runs a transaction on each part of the tables
   */
  constructor(
    sql: Sql,
    reachMs: number,
    now: () => number,
    judged: () => number,
    everywhere: (prune: Prune) => Promise<void>,
  ) {
    this.#sql = sql;
    this.#reachMs = reachMs;
    this.#now = now;
    this.#judged = judged;
    this.#everywhere = everywhere;
  }

  get states(): Readonly<Record<ConsumerState, number>> {
    const states = { ok: 0, lagging: 0, lost: 0 };
    for (const state of this.#known.values()) states[state] += 1;
    return states;
  }

  get lagSeconds(): number {
    return this.#lagSeconds;
  }

  takeNotices(): readonly ConsumerNotice[] {
    const notices = this.#notices;
    this.#notices = [];
    return notices;
  }

  /** Looks at all consumers, if it is time. */
  async look(): Promise<void> {
    const now = this.#now();
    if (Math.abs(now - this.#lookedAt) < LOOK_MS) return;
    this.#lookedAt = now;
    if (Math.abs(now - this.#prunedAt) >= PRUNE_MS) {
      this.#prunedAt = now;
      await this.#everywhere((tx, nameOf) =>
        pruneTicks(tx, { reachMs: this.#reachMs, now: this.#judged() }, nameOf),
      );
    }
    await this.#measure(now);
  }

  async #measure(now: number): Promise<void> {
    const rows = await this.#sql<Lag[]>`
      SELECT app_id AS app, name, lost_at IS NOT NULL AS "isLost",
             (SELECT min(at) FROM feed_ticks AS next
               WHERE next.app_id = consumers.app_id AND next.tick > consumers.tick AND next.minutes <> '{}') AS oldest
        FROM consumers`;
    const found = new Set<string>();
    this.#lagSeconds = 0;
    for (const { app, name, isLost, oldest } of rows) {
      const key = `${app} ${name}`;
      found.add(key);
      const lagSeconds = oldest === null ? 0 : Math.max(0, (now - oldest.getTime()) / 1_000);
      const state = stateOf(isLost, lagSeconds, this.#reachMs);
      if (!isLost) this.#lagSeconds = Math.max(this.#lagSeconds, lagSeconds);
      const before = this.#known.get(key) ?? 'ok';
      if (state !== before) this.#notices.push({ app, name, state, lagSeconds });
      this.#known.set(key, state);
    }
    for (const key of this.#known.keys()) if (!found.has(key)) this.#known.delete(key);
  }
}

/** The state of a consumer by the age of the oldest tick that it has not acknowledged. */
export function stateOf(isLost: boolean, lagSeconds: number, reachMs: number): ConsumerState {
  if (isLost) return 'lost';
  return lagSeconds * 1_000 >= reachMs * LAGGING_SHARE ? 'lagging' : 'ok';
}
