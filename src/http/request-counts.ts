/** Counts requests by route, status and duration when they end. */

import { REFUSALS, Rejection } from '../errors.ts';
import { Histogram, SECONDS_BOUNDS } from '../metrics/histogram.ts';
import { Sampling } from '../metrics/sampling.ts';
import type { Exchange, Outcome } from './exchange.ts';

/** HTTP statuses are below this number. */
const STATUSES = 600;

class RouteCounts {
  /** Responses by status. */
  readonly answers = new Float64Array(STATUSES);
  /** Durations of sampled requests. */
  readonly seconds = new Histogram(SECONDS_BOUNDS);
  readonly sampling = new Sampling();
}

export class RequestCounts {
  /** By {@link Exchange.route}; a route is added with its first response. */
  readonly #routes = new Map<string, RouteCounts>();
  readonly #refusals = new Map<string, number>(Object.values(REFUSALS).map(({ code }) => [code, 0]));
  readonly #now: () => number;
  #aborted = 0;

  /** @param now milliseconds of the monotonic clock of {@link Exchange.startedAt} */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Counts a request that has ended. @param outcome null if the client disconnected before the response */
  settled(exchange: Exchange, outcome: Outcome | null): void {
    if (outcome === null) {
      this.#aborted += 1;
      return;
    }
    const { answers, seconds, sampling } = this.#routes.get(exchange.route) ?? this.#add(exchange.route);
    answers[outcome.status] = (answers[outcome.status] ?? 0) + 1;
    if (outcome instanceof Rejection)
      this.#refusals.set(outcome.code, (this.#refusals.get(outcome.code) ?? 0) + 1);
    if (sampling.isDue()) seconds.observe((this.#now() - exchange.startedAt) / 1_000);
  }

  #add(route: string): RouteCounts {
    const counts = new RouteCounts();
    this.#routes.set(route, counts);
    return counts;
  }

  /** Responses by route and status, without zeros. */
  *answers(): Iterable<{ readonly route: string; readonly status: number; readonly count: number }> {
    for (const [route, { answers }] of this.#routes)
      for (const [status, count] of answers.entries()) if (count > 0) yield { route, status, count };
  }

  /** Seconds from a request's head to its response, by route. */
  *seconds(): Iterable<{ readonly route: string; readonly histogram: Histogram }> {
    for (const [route, { seconds }] of this.#routes) yield { route, histogram: seconds };
  }

  /** Error responses by code, with zeros. */
  get refusals(): ReadonlyMap<string, number> {
    return this.#refusals;
  }

  /** Requests whose client disconnected before the response. */
  get aborted(): number {
    return this.#aborted;
  }
}
