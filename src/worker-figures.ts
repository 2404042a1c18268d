/**
 * The figures of all workers in the answer that any of them gives: a scrape reaches one of those that share the port,
 * and never knows which. The worker asks the primary process, that asks them all, each sample says whose it is.
 */
import type { Worker } from 'node:cluster';

/** What goes between workers and the primary. */
type Message =
  /** From a worker: the figures of all are wanted. From the primary: its own are. */
  | { readonly figuresWanted: number }
  /** From a worker: its own, in Prometheus' text format. */
  | { readonly figures: string; readonly of: number }
  /** From the primary: those of every worker that answered in time. */
  | { readonly figuresOfAll: readonly string[]; readonly of: number };

/** How long workers are waited for: one that is busy for longer is missing from that scrape. */
const PATIENCE_MS = 1_000;

interface Round {
  readonly askedBy: Worker;
  /** The asker's own number for it. */
  readonly number: number;
  readonly awaited: Set<Worker>;
  readonly figures: string[];
  readonly timer: NodeJS.Timeout;
}

/** The primary's part. */
export class FiguresRelay {
  readonly #workers: () => readonly Worker[];
  readonly #rounds = new Map<number, Round>();
  #count = 0;

  /** @param workers those that serve now */
  constructor(workers: () => readonly Worker[]) {
    this.#workers = workers;
  }

  /** To be called for every message of a worker; other messages are let pass. */
  take(worker: Worker, message: object): void {
    if ('figuresWanted' in message) this.#begin(worker, (message as { figuresWanted: number }).figuresWanted);
    else if ('figures' in message) this.#add(worker, message as { figures: string; of: number });
  }

  #begin(askedBy: Worker, number: number): void {
    const id = ++this.#count;
    const awaited = new Set(this.#workers().filter((worker) => worker.isConnected()));
    const timer = setTimeout(() => this.#end(id), PATIENCE_MS);
    this.#rounds.set(id, { askedBy, number, awaited, figures: [], timer });
    for (const worker of awaited) worker.send({ figuresWanted: id } satisfies Message);
  }

  #add(worker: Worker, { figures, of }: { figures: string; of: number }): void {
    const round = this.#rounds.get(of);
    if (round?.awaited.delete(worker) !== true) return;
    round.figures.push(figures);
    if (round.awaited.size === 0) this.#end(of);
  }

  #end(id: number): void {
    const round = this.#rounds.get(id);
    if (round === undefined) return;
    this.#rounds.delete(id);
    clearTimeout(round.timer);
    const { askedBy, number, figures } = round;
    if (askedBy.isConnected()) askedBy.send({ figuresOfAll: figures, of: number } satisfies Message);
  }
}

/**
 * A worker's part.
 * @param own this worker's figures, each sample with a label that no other worker's has
 * @returns asks for those of all; gives this worker's alone where the primary does not answer
 */
export function figuresOfAllWorkers(own: () => Promise<string>): () => Promise<string> {
  const waiting = new Map<number, (figures: readonly string[]) => void>();
  let count = 0;
  const tell = (message: Message): void => {
    if (process.connected) process.send?.(message);
  };
  process.on('message', (message: Message | string) => {
    if (typeof message === 'string') return;
    if ('figuresWanted' in message) {
      void own().then((figures) => tell({ figures, of: message.figuresWanted }));
    } else if ('figuresOfAll' in message) {
      waiting.get(message.of)?.(message.figuresOfAll);
      waiting.delete(message.of);
    }
  });
  return async () => {
    const number = ++count;
    const answer = new Promise<readonly string[]>((resolve) => waiting.set(number, resolve));
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<readonly string[]>((resolve) => {
      timer = setTimeout(resolve, 2 * PATIENCE_MS, []);
    });
    tell({ figuresWanted: number });
    const figures = await Promise.race([answer, timeout]);
    clearTimeout(timer);
    waiting.delete(number);
    return figures.length === 0 ? await own() : mergeFigures(figures);
  };
}

/** Texts of the format as one: all samples of a metric stand together below its one head. */
export function mergeFigures(texts: readonly string[]): string {
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
