/**
 * The figures of all workers in the answer that any of them gives: a scrape reaches one of those that share the port,
 * and never knows which. The worker asks the primary process, that asks them all, each sample says whose it is.
 */
import type { Worker } from 'node:cluster';

/** What goes between workers and the primary. */
type Message =
  /** From a worker: the figures of all are wanted. From the primary: its own are. */
  | { readonly statsWanted: number }
  /** From a worker: its own, in Prometheus' text format. */
  | { readonly stats: string; readonly of: number }
  /** From the primary: those of every worker that answered in time. */
  | { readonly statsOfAll: readonly string[]; readonly of: number };

/** How long workers are waited for: one that is busy for longer is missing from that scrape. */
const TIMEOUT_MS = 1_000;

interface Round {
  readonly askedBy: Worker;
  /** The asker's own number for it. */
  readonly number: number;
  readonly awaited: Set<Worker>;
  readonly stats: string[];
  readonly timer: NodeJS.Timeout;
}

/** The primary's part. */
export class StatsRelay {
  readonly #workers: () => readonly Worker[];
  readonly #rounds = new Map<number, Round>();
  #count = 0;

  /** @param workers those that serve now */
  constructor(workers: () => readonly Worker[]) {
    this.#workers = workers;
  }

  /** To be called for every message of a worker; other messages are let pass. */
  take(worker: Worker, message: object): void {
    if ('statsWanted' in message) this.#begin(worker, (message as { statsWanted: number }).statsWanted);
    else if ('stats' in message) this.#add(worker, message as { stats: string; of: number });
  }

  #begin(askedBy: Worker, number: number): void {
    const id = ++this.#count;
    const awaited = new Set(this.#workers().filter((worker) => worker.isConnected()));
    const timer = setTimeout(() => this.#end(id), TIMEOUT_MS);
    this.#rounds.set(id, { askedBy, number, awaited, stats: [], timer });
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
    clearTimeout(round.timer);
    const { askedBy, number, stats } = round;
    if (askedBy.isConnected()) askedBy.send({ statsOfAll: stats, of: number } satisfies Message);
  }
}

/**
 * A worker's part.
 * @param own this worker's figures, each sample with a label that no other worker's has
 * @returns asks for those of all; gives this worker's alone where the primary does not answer
 */
export function statsOfAllWorkers(own: () => Promise<string>): () => Promise<string> {
  const waiting = new Map<number, (stats: readonly string[]) => void>();
  let count = 0;
  const tell = (message: Message): void => {
    if (process.connected) process.send?.(message);
  };
  process.on('message', (message: Message | string) => {
    if (typeof message === 'string') return;
    if ('statsWanted' in message) {
      void own().then((stats) => tell({ stats, of: message.statsWanted }));
    } else if ('statsOfAll' in message) {
      waiting.get(message.of)?.(message.statsOfAll);
      waiting.delete(message.of);
    }
  });
  return async () => {
    const number = ++count;
    const answer = new Promise<readonly string[]>((resolve) => waiting.set(number, resolve));
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<readonly string[]>((resolve) => {
      timer = setTimeout(resolve, 2 * TIMEOUT_MS, []);
    });
    tell({ statsWanted: number });
    const stats = await Promise.race([answer, timeout]);
    clearTimeout(timer);
    waiting.delete(number);
    return stats.length === 0 ? await own() : mergeStats(stats);
  };
}

/** Texts of the format as one: all samples of a metric stand together below its one head. */
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
