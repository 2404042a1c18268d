/**
 * Rounds of the alerts of an installation: once a minute the process that does the maintenance judges all rules, app by app: those
 * that took least the last time first, so that no app waits for a costly one.
 */
import type { Logger } from 'pino';
import { grouped } from '../../base/grouped.ts';
import { Rounds } from '../../base/rounds.ts';
import { MINUTE_MS } from '../../base/time-units.ts';
import { errorCode } from '../../storage/database/connect.ts';
import { areDeliveriesStopped } from '../restored.ts';
import { activeAlerts, isAhead, noteProblems } from './alert-rules.ts';
import { correctFirings } from './correcting.ts';
import { judgeApp } from './judging.ts';
import type { Said } from './messages.ts';
import { refreshAlertmanagers, tellResumed } from './refreshing.ts';
import type { AlertPlace } from './telling.ts';

export interface AlertRoundsOptions extends AlertPlace {
  /** Whether this process judges. */
  readonly isLeader: () => boolean;
  readonly log: Logger;
}

/** For metrics. */
export interface AlertStats {
  /** Rules that were judged, each time. */
  evaluations: number;
  /** Rounds that failed. */
  failures: number;
  /** Milliseconds of the last round. */
  roundMs: number;
  readonly transitions: { firing: number; resolved: number; corrected: number };
}

const LOOK_MS = 1_000;
/** A minute is judged so long after its end: most events are committed by then. */
export const SETTLE_MS = 5_000;
const CORRECT_EVERY_MINUTES = 5;
/** Alertmanager is told of what still fires. */
const REFRESH_EVERY_MINUTES = 2;

export class AlertRounds extends Rounds {
  readonly #options: AlertRoundsOptions;
  readonly stats: AlertStats = {
    evaluations: 0,
    failures: 0,
    roundMs: 0,
    transitions: { firing: 0, resolved: 0, corrected: 0 },
  };
  #lastMinute = 0;
  #correctedUpTo = 0;
  /** App → milliseconds that its rules took the last time. */
  #took = new Map<number, number>();

  constructor(options: AlertRoundsOptions) {
    super({
      work: () => this.#look(),
      pauseMs: () => LOOK_MS,
      onFailure: (error, isFirst) => {
        this.stats.failures += 1;
        const code = errorCode(error);
        if (isFirst) options.log.warn({ code, err: error }, 'alert: rules could not be judged, retrying');
      },
    });
    this.#options = options;
  }

  async #look(): Promise<void> {
    const { isLeader, now } = this.#options;
    const minute = Math.floor((now() - SETTLE_MS) / MINUTE_MS) * MINUTE_MS;
    if (!isLeader()) return;
    try {
      if (minute === this.#lastMinute) return;
      const startedAt = performance.now();
      const isDone = await this.round(minute);
      this.stats.roundMs = performance.now() - startedAt;
      if (isDone) this.#lastMinute = minute;
    } finally {
      await tellResumed(this.#options);
    }
  }

  /**
   * Judges all rules up to a minute.
   * @returns false if some rules have further minutes to go
   */
  async round(minute: number): Promise<boolean> {
    const { sql } = this.#options;
    const { alerts: all, wrong } = await activeAlerts(sql);
    await noteProblems(sql, wrong);
    const due = all.filter(
      ({ evaluatedAt, parsed }) =>
        evaluatedAt === null ||
        evaluatedAt.getTime() < minute - parsed.delayMs ||
        isAhead(evaluatedAt, minute),
    );
    if (due.length === 0 || (await areDeliveriesStopped(sql))) return true;
    const apps = grouped(due, ({ appId }) => appId);
    const took = new Map<number, number>();
    let isDone = true;
    let failure: unknown = null;
    for (const [appId, alerts] of [...apps].sort(([a], [b]) => this.#tookOf(a) - this.#tookOf(b))) {
      const startedAt = performance.now();
      try {
        isDone = (await judgeApp(this.#options, alerts, minute, this.#count)) && isDone;
        this.stats.evaluations += alerts.length;
      } catch (error) {
        failure ??= error;
      }
      took.set(appId, performance.now() - startedAt);
    }
    this.#took = took;
    if (failure !== null) throw failure;
    if (!isDone) return false;
    const minutes = minute / MINUTE_MS;
    if (minutes % CORRECT_EVERY_MINUTES === 0)
      this.#correctedUpTo = await correctFirings(this.#options, minute, this.#correctedUpTo, this.#count);
    if (minutes % REFRESH_EVERY_MINUTES === 0) await refreshAlertmanagers(this.#options, minute);
    return true;
  }

  #tookOf(appId: number): number {
    return this.#took.get(appId) ?? 0;
  }

  #count = (said: readonly Said[]): void => {
    for (const { kind } of said) this.stats.transitions[kind] += 1;
  };
}
