/** Counts the events of requests with several: those that were refused one by one, while their request was answered, and the others. */
import { REFUSALS, type Reason, Rejection } from '../errors.ts';
import type { Result } from './batch-answer.ts';

/** The request of the events: its route, and the internal id of its app. */
export interface Refusing {
  readonly route: string;
  /** Grows by what was stored. */
  storedEvents: number | null;
  /** The first that was refused. */
  refusedEvent: { readonly place: number; readonly refusal: Rejection } | null;
  readonly writerAppId: number | null;
}

export class RefusedEvents {
  /** By route, then by code. */
  readonly #counts = new Map<string, Map<string, number>>();
  readonly #onRefused: (appId: number, code: string) => void;

  /** @param onRefused called with each refused event's app, and the code of the refusal */
  constructor(onRefused: (appId: number, code: string) => void) {
    this.#onRefused = onRefused;
  }

  count(exchange: Refusing, results: readonly Result[]): void {
    const { route, writerAppId } = exchange;
    let stored = 0;
    for (const [place, result] of results.entries()) {
      if (!(result instanceof Rejection)) {
        stored += 1;
        continue;
      }
      this.#add(route, result.reason);
      exchange.refusedEvent ??= { place, refusal: result };
      if (writerAppId !== null) this.#onRefused(writerAppId, result.code);
    }
    exchange.storedEvents = (exchange.storedEvents ?? 0) + stored;
  }

  #add(route: string, reason: Reason): void {
    let codes = this.#counts.get(route);
    if (codes === undefined) {
      codes = new Map();
      this.#counts.set(route, codes);
    }
    const { code } = REFUSALS[reason];
    codes.set(code, (codes.get(code) ?? 0) + 1);
  }

  *counts(): Iterable<{ route: string; code: string; count: number }> {
    for (const [route, codes] of this.#counts)
      for (const [code, count] of codes) yield { route, code, count };
  }
}
