/** The exports that this process is sending: who reads them, and when they end before their end. */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import type { AnswerStream } from '../../http/stream.ts';

/** How an export has ended: complete, or cut: by its reader, because that read too slowly, lost its access, or by a failure. */
const OUTCOMES = ['complete', 'disconnected', 'too_slow', 'access_ended', 'failed'] as const;
export type ExportOutcome = (typeof OUTCOMES)[number];

const MAX_OF_HOLDER = 2;
const MAX_OF_PROCESS = 16;
/**
 * A reader that does not take so many bytes in so many milliseconds is disconnected; it can go on after the last event that
 * it has. That is the rate asked of readers of other large responses.
 */
const SLICE_BYTES = 1_048_576;
const READER_TIMEOUT_MS = 60_000;

const RETRY = { retryAfterSeconds: 10 } as const;
const OF_HOLDER = new Rejection(
  'tooManyExports',
  `A resource token or an account may have ${MAX_OF_HOLDER} exports running; wait for one of them.`,
  RETRY,
);
const OF_PROCESS = new Rejection(
  'unavailable',
  `The server is sending ${MAX_OF_PROCESS} exports; try again later.`,
  RETRY,
);

/** An export that is counted, and whose response may be open. */
export interface Admission {
  readonly holder: string;
  isOpen: boolean;
}

/** An export that may begin, with what was prepared for it. */
export interface Admitted<T> {
  readonly admission: Admission;
  readonly prepared: T;
}

/** Ends an export before its end. */
class Cut extends Error {
  readonly outcome: ExportOutcome;

  constructor(outcome: ExportOutcome) {
    super(outcome);
    this.outcome = outcome;
  }
}

export class Exports {
  readonly #log: Logger;
  readonly #timeoutMs: number;
  /** By the holder's key. */
  readonly #running = new Map<string, number>();
  #all = 0;
  readonly ended: Record<ExportOutcome, number> = {
    complete: 0,
    disconnected: 0,
    too_slow: 0,
    access_ended: 0,
    failed: 0,
  };
  /** Events read. */
  events = 0;

  /** @param timeoutMs for tests; by default {@link READER_TIMEOUT_MS} */
  constructor(log: Logger, timeoutMs = READER_TIMEOUT_MS) {
    this.#log = log;
    this.#timeoutMs = timeoutMs;
  }

  /** Exports that are being sent or prepared. */
  get running(): number {
    return this.#all;
  }

  /**
   * Counts one more in, and then prepares it: what is asked of the database before the response begins is limited too. The response
   * must be opened in the turn of the event loop in which this returns; one that never is gives its place back.
   * @param holder  whose exports are counted together
   * @param prepare may refuse it
   */
  async admit<T extends object | number>(
    holder: string,
    prepare: () => Promise<T | Rejection>,
  ): Promise<Admitted<T> | Rejection> {
    if ((this.#running.get(holder) ?? 0) >= MAX_OF_HOLDER) return OF_HOLDER;
    if (this.#all >= MAX_OF_PROCESS) return OF_PROCESS;
    const admission = { holder, isOpen: false };
    this.#count(holder, 1);
    let prepared: T | Rejection | undefined;
    try {
      prepared = await prepare();
      if (prepared instanceof Rejection) return prepared;
      setImmediate(() => {
        if (!admission.isOpen) this.#count(holder, -1);
      });
      return { admission, prepared };
    } finally {
      if (prepared === undefined || prepared instanceof Rejection) this.#count(holder, -1);
    }
  }

  /**
   * Sends a body at the pace of its reader.
   * @param isAllowed asked before each part: false ends the export
   */
  async send(
    admission: Admission,
    stream: AnswerStream,
    body: AsyncIterable<Buffer>,
    isAllowed: () => Promise<boolean>,
  ): Promise<void> {
    const { holder } = admission;
    admission.isOpen = true;
    try {
      for await (const bytes of body) {
        if (!(await isAllowed())) throw new Cut('access_ended');
        for (const slice of slicesOf(bytes)) await this.#send(stream, slice);
      }
      this.#end('complete', holder);
      stream.end();
    } catch (error) {
      const outcome = error instanceof Cut ? error.outcome : 'failed';
      this.#end(stream.isClosed ? 'disconnected' : outcome, holder, error);
      stream.cut();
    } finally {
      this.#count(holder, -1);
    }
  }

  async #send(stream: AnswerStream, bytes: Buffer): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(true), this.#timeoutMs);
    });
    const isLate = await Promise.race([stream.send(bytes).then(() => false), late]);
    clearTimeout(timer);
    if (stream.isClosed) throw new Cut('disconnected');
    if (isLate) throw new Cut('too_slow');
  }

  #end(outcome: ExportOutcome, holder: string, error?: unknown): void {
    this.ended[outcome] += 1;
    if (outcome === 'failed') this.#log.error({ err: error, holder }, 'export: failed');
    else if (outcome === 'too_slow') this.#log.warn({ holder }, 'export: cut, its reader is too slow');
    else this.#log.debug({ holder, outcome }, 'export: ended');
  }

  #count(holder: string, change: 1 | -1): void {
    this.#all += change;
    const running = (this.#running.get(holder) ?? 0) + change;
    if (running === 0) this.#running.delete(holder);
    else this.#running.set(holder, running);
  }
}

/** Of about the same length: after a short one the transport would take more before it has sent it. */
function* slicesOf(bytes: Buffer): Generator<Buffer> {
  const length = Math.ceil(bytes.length / Math.ceil(bytes.length / SLICE_BYTES));
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}
