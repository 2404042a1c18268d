/**
 * Merges the metrics of all workers: a scrape reaches an arbitrary one of the workers that share the port. That worker asks
 * the primary process, which asks all workers. A label of each sample names its worker.
 */

import type { Worker } from 'node:cluster';
import { deadline, withTimeout } from '../base/timeout.ts';

/** Messages between workers and the primary. */
type Message =
  /** From a worker: request for the metrics of all. From the primary: request for the worker's own. */
  | { readonly statsWanted: number }
  /** From a worker: its own metrics, in Prometheus' text format. */
  | { readonly stats: string; readonly of: number }
  /** From the primary: the metrics of every worker that answered in time. */
  | { readonly statsOfAll: readonly string[]; readonly of: number };

/** Timeout for workers: a worker that is busy for longer is missing from that scrape. */
const TIMEOUT_MS = 1_000;

interface Round {
  readonly askedBy: Worker;
  /** The asking worker's own request number. */
  readonly number: number;
  readonly awaited: Set<Worker>;
  readonly stats: string[];
  readonly endWait: () => void;
}

/** The primary's side. */
export class StatsRelay {
  readonly #workers: () => readonly Worker[];
  readonly #rounds = new Map<number, Round>();
  #count = 0;

  /** @param workers returns those that are running */
  constructor(workers: () => readonly Worker[]) {
    this.#workers = workers;
  }

  /** Handles a message of a worker; ignores messages of other kinds. */
  take(worker: Worker, message: object): void {
    if ('statsWanted' in message) this.#begin(worker, (message as { statsWanted: number }).statsWanted);
    else if ('stats' in message) this.#add(worker, message as { stats: string; of: number });
  }

  #begin(askedBy: Worker, number: number): void {
    const id = ++this.#count;
    const awaited = new Set(this.#workers().filter((worker) => worker.isConnected()));
    const endWait = deadline(TIMEOUT_MS, () => this.#end(id));
    this.#rounds.set(id, { askedBy, number, awaited, stats: [], endWait });
    for (const worker of awaited) worker.send({ statsWanted: id } satisfies Message);
  }

  #add(worker: Worker, { stats, of }: { stats: string; of: number }): void {
    const round = this.#rounds.get(of);
    if (round?.awaited.delete(worker) !== true) return;
    round.stats.push(stats);
    if (round.awaited.size === 0) this.#end(of);
  }

  #end(id: number): void {
    const round = this.#rounds.get(id);
    if (round === undefined) return;
    this.#rounds.delete(id);
    round.endWait();
    const { askedBy, number, stats } = round;
    if (askedBy.isConnected()) askedBy.send({ statsOfAll: stats, of: number } satisfies Message);
  }
}

/**
 * A worker's side.
 * @param own returns this worker's metrics, each sample with a label that is unique to the worker
 * @returns a function that collects the metrics of all workers, or only this worker's if the primary does not answer
 */
export function statsOfAllWorkers(own: () => string): () => Promise<string> {
  const waiting = new Map<number, (stats: readonly string[]) => void>();
  let count = 0;
  const send = (message: Message): void => {
    if (process.connected) process.send?.(message);
  };
  process.on('message', (message: Message | string) => {
    if (typeof message === 'string') return;
    if ('statsWanted' in message) {
      send({ stats: own(), of: message.statsWanted });
    } else if ('statsOfAll' in message) {
      waiting.get(message.of)?.(message.statsOfAll);
      waiting.delete(message.of);
    }
  });
  return async () => {
    const number = ++count;
    const answer = new Promise<readonly string[]>((resolve) => waiting.set(number, resolve));
    send({ statsWanted: number });
    const stats = await withTimeout(answer, 2 * TIMEOUT_MS, []);
    waiting.delete(number);
    return stats.length === 0 ? own() : mergeStats(stats);
  };
}

/** Merges texts in Prometheus' format: all samples of a metric follow its one head. */
export function mergeStats(texts: readonly string[]): string {
  const families = new Map<string, { readonly head: string[]; readonly samples: string[] }>();
  for (const text of texts) {
    let family: { readonly head: string[]; readonly samples: string[] } | undefined;
    let isKnown = false;
    for (const line of text.split('\n')) {
      const name = /^# HELP (\S+)/.exec(line)?.[1];
      if (name !== undefined) {
        isKnown = families.has(name);
        family = families.get(name) ?? { head: [], samples: [] };
        families.set(name, family);
      }
      if (line === '') continue;
      if (!line.startsWith('#')) family?.samples.push(line);
      else if (!isKnown) family?.head.push(line);
    }
  }
  return [...families.values()]
    .map(({ head, samples }) => `${[...head, ...samples].join('\n')}\n`)
    .join('\n');
}
