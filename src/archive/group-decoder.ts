/** The thread that decodes row groups, seen from outside. What takes too long in it ends the thread; the next group starts another one. */
import { Worker } from 'node:worker_threads';
import { deadline } from '../base/timeout.ts';
import type { ArchivedGroup } from '../storage/database/archive-source.ts';
import { ArchiveError } from './store.ts';

export interface GroupRequest {
  readonly number: number;
  readonly group: ArchivedGroup;
  /** Bytes of the group; they are moved to the thread. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** What follows the last group of the file. */
  readonly footer: Uint8Array;
  /** Public id of a type → internal id. */
  readonly typeIds: ReadonlyMap<string, number>;
}

export interface DecodedGroup {
  /** Rows as COPY sends them. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

interface Answer {
  readonly number: number;
  readonly bytes?: Uint8Array<ArrayBuffer>;
  /** What is wrong with the group: a clause that follows its name. */
  readonly problem?: string;
}

interface Waiting {
  readonly resolve: (bytes: Buffer) => void;
  readonly reject: (error: Error) => void;
}

/** What a group of large payloads takes several times over. */
const RESOURCES = { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 64 };
/** A thread that has answered nothing for so long is ended. */
const TIMEOUT_MS = 20_000;

export class GroupDecoder {
  #worker: Worker | null = null;
  #endWait: (() => void) | null = null;
  #number = 0;
  readonly #waiting = new Map<number, Waiting>();

  /** @throws ArchiveError where the group is not what was written */
  decode(request: Omit<GroupRequest, 'number'>): Promise<Buffer> {
    this.#number += 1;
    const number = this.#number;
    this.#worker ??= this.#start();
    const worker = this.#worker;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#watch();
      worker.postMessage({ ...request, number } satisfies GroupRequest, [request.bytes.buffer]);
    });
  }

  async close(): Promise<void> {
    await this.#end(new ArchiveError('the thread was ended'));
  }

  #start(): Worker {
    const file = new URL('./group-thread.js', import.meta.url);
    const worker = new Worker(file, { resourceLimits: RESOURCES, env: {}, execArgv: [] });
    worker.unref();
    worker.on('message', (answer: Answer) => {
      const waiting = this.#waiting.get(answer.number);
      this.#waiting.delete(answer.number);
      this.#watch();
      const { bytes, problem } = answer;
      if (bytes === undefined) waiting?.reject(new ArchiveError(problem ?? 'it was not decoded'));
      else waiting?.resolve(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    });
    const ended = (reason: string) => (): void => {
      if (worker === this.#worker) void this.#end(new ArchiveError(reason));
    };
    worker.on('error', (error) => ended(`its decoding has failed (${error.message})`)());
    worker.on('exit', ended('its decoding has ended'));
    return worker;
  }

  /** Begins to wait for the next answer. */
  #watch(): void {
    this.#endWait?.();
    this.#endWait =
      this.#waiting.size === 0
        ? null
        : deadline(TIMEOUT_MS, () => void this.#end(new ArchiveError('its decoding took too long')));
  }

  async #end(error: ArchiveError): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    this.#watch();
    for (const { reject } of waiting) reject(error);
    await worker?.terminate();
  }
}
