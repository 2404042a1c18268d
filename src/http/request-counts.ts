/** Requests by route, outcome and time, counted where each of them ends. */

import { REFUSALS, Rejection } from '../errors.ts';
import { Histogram, SECONDS_BOUNDS } from '../metrics/histogram.ts';
import { Sampling } from '../metrics/sampling.ts';
import type { Exchange, Outcome } from './exchange.ts';

/** One more than the largest status of HTTP. */
const STATUSES = 600;

class RouteCounts {
  /** By status. */
  readonly answers = new Float64Array(STATUSES);
  /** Of those that were measured. */
  readonly seconds = new Histogram(SECONDS_BOUNDS);
  readonly sampling = new Sampling();
}

export class RequestCounts {
  /** By {@link Exchange.route}, from a route's first answer on. */
  readonly #routes = new Map<string, RouteCounts>();
  readonly #refusals = new Map<string, number>(Object.values(REFUSALS).map(({ code }) => [code, 0]));
  readonly #now: () => number;
  #aborted = 0;

  /** @param now milliseconds of the monotonic clock that exchanges are dated with */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Counts a request that has ended. @param outcome null where the client left before its answer */
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

  /** Answers by route and status, of those that there were. */
  *answers(): Iterable<{ readonly route: string; readonly status: number; readonly count: number }> {
    for (const [route, { answers }] of this.#routes)
      for (const [status, count] of answers.entries()) if (count > 0) yield { route, status, count };
  }

  /** Seconds from a request's head to its answer, by route. */
  *seconds(): Iterable<{ readonly route: string; readonly histogram: Histogram }> {
    for (const [route, { seconds }] of this.#routes) yield { route, histogram: seconds };
  }

  /** Every code that there is → answers that had it. */
  get refusals(): ReadonlyMap<string, number> {
    return this.#refusals;
  }

  /** Requests whose client left before the answer. */
  get aborted(): number {
    return this.#aborted;
  }
}
