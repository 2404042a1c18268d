/** The exports, and the answers to queries, that this process is sending: who reads them, and when they end before their end. */
import type { Logger } from 'pino';
import { grouped } from '../../base/grouped.ts';
import type { Waiter } from '../../base/slots.ts';
import { withTimeout } from '../../base/timeout.ts';
import type { Path } from '../../base/turns.ts';
import { Rejection } from '../../errors.ts';
import type { ReadWaiter } from '../../http/read-slots.ts';
import type { AnswerStream } from '../../http/stream.ts';

/** How an export has ended: complete, or cut: by its reader, because that read too slowly, lost its access or had to make room, or by a failure. */
const OUTCOMES = ['complete', 'disconnected', 'too_slow', 'access_ended', 'made_room', 'failed'] as const;
export type ExportOutcome = (typeof OUTCOMES)[number];

/** Responses of one kind, which are limited together. */
export interface StreamedKind {
  /** In log lines and refusals. */
  readonly name: 'export' | 'query';
  readonly plural: string;
  /** Limit of one resource token, and of the sessions of one account. */
  readonly mostOfHolder: number;
  /** Limit of the sessions and resource tokens of one account together. */
  readonly mostOfAccount: number;
  readonly mostOfProcess: number;
  readonly reason: 'tooManyExports' | 'tooManyQueries';
}

const EXPORTS: StreamedKind = {
  name: 'export',
  plural: 'exports',
  mostOfHolder: 2,
  mostOfAccount: 4,
  mostOfProcess: 16,
  reason: 'tooManyExports',
};
/** Each may take 64 MB. */
export const QUERIES: StreamedKind = {
  name: 'query',
  plural: 'queries',
  mostOfHolder: 2,
  mostOfAccount: 4,
  mostOfProcess: 8,
  reason: 'tooManyQueries',
};

/**
 * A reader that does not take so many bytes in so many milliseconds is disconnected; it can go on after the last event that
 * it has. That is the rate asked of readers of other large responses.
 */
const SLICE_BYTES = 1_048_576;
const READER_TIMEOUT_MS = 60_000;

const RETRY = { retryAfterSeconds: 10 } as const;

function refusalsOf({ plural, mostOfHolder, mostOfAccount, mostOfProcess, reason }: StreamedKind) {
  return {
    ofHolder: new Rejection(
      reason,
      `A resource token or an account may have ${mostOfHolder} ${plural} running; wait for one of them.`,
      RETRY,
    ),
    ofAccount: new Rejection(
      reason,
      `An account and its resource tokens may have ${mostOfAccount} ${plural} running; wait for one of them.`,
      RETRY,
    ),
    ofProcess: new Rejection(
      'unavailable',
      `The server is sending ${mostOfProcess} ${plural}; try again later.`,
      RETRY,
    ),
  };
}

/** An export that is counted, and whose response may be open. */
export interface Admission {
  /** Whose it is: an account, then its sessions or one of its tokens. */
  readonly holder: Path;
  /** Null before it is opened. */
  stream: AnswerStream | null;
  /** Why it was cut, where that was decided elsewhere. */
  cut: ExportOutcome | null;
}

/** An export that may begin, with what was prepared for it. */
export interface Admitted<T> {
  readonly admission: Admission;
  readonly prepared: T;
}

/** Who waits for an export: its request until the response begins, and then whoever reads the response. */
export class ExportWaiter implements ReadWaiter {
  readonly #exchange: Waiter;
  #stream: AnswerStream | null = null;
  // The parts that wait for a slow reader are in its own buffer.
  readonly hasRoomForLargeAnswer = true;

  constructor(exchange: Waiter) {
    this.#exchange = exchange;
  }

  begin(stream: AnswerStream): void {
    this.#stream = stream;
  }

  get settled(): boolean {
    return this.#stream?.isClosed ?? this.#exchange.settled;
  }

  whenSettled(listener: () => void): () => void {
    return this.#stream?.whenClosed(listener) ?? this.#exchange.whenSettled(listener);
  }
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
  readonly #kind: StreamedKind;
  readonly #refusals: ReturnType<typeof refusalsOf>;
  /** In order of admission. */
  readonly #running = new Set<Admission>();
  readonly ended: Record<ExportOutcome, number> = {
    complete: 0,
    disconnected: 0,
    too_slow: 0,
    access_ended: 0,
    made_room: 0,
    failed: 0,
  };
  /** Events read. */
  events = 0;

  /** @param timeoutMs for tests; by default {@link READER_TIMEOUT_MS} */
  constructor(log: Logger, timeoutMs = READER_TIMEOUT_MS, kind = EXPORTS) {
    this.#log = log;
    this.#timeoutMs = timeoutMs;
    this.#kind = kind;
    this.#refusals = refusalsOf(kind);
  }

  /** Exports that are being sent or prepared. */
  get running(): number {
    return this.#running.size;
  }

  /**
   * Counts one more in, and then prepares it: what is asked of the database before the response begins is limited too. The response
   * must be opened in the turn of the event loop in which this returns; one that never is gives its place back.
   * @param holder  whose exports are counted together
   * @param prepare may refuse it
   */
  async admit<T extends object | number>(
    holder: Path,
    prepare: () => Promise<T | Rejection>,
  ): Promise<Admitted<T> | Rejection> {
    const [account, inner] = holder;
    const { mostOfHolder, mostOfAccount, mostOfProcess } = this.#kind;
    const ofAccount = [...this.#running].filter((one) => one.holder[0] === account);
    if (ofAccount.filter((one) => one.holder[1] === inner).length >= mostOfHolder)
      return this.#refusals.ofHolder;
    if (ofAccount.length >= mostOfAccount) return this.#refusals.ofAccount;
    if (this.#running.size >= mostOfProcess && !this.#makeRoom(ofAccount.length))
      return this.#refusals.ofProcess;
    const admission: Admission = { holder, stream: null, cut: null };
    this.#running.add(admission);
    let prepared: T | Rejection | undefined;
    try {
      prepared = await prepare();
      if (prepared instanceof Rejection) return prepared;
      setImmediate(() => {
        if (admission.stream === null) this.#running.delete(admission);
      });
      return { admission, prepared };
    } finally {
      if (prepared === undefined || prepared instanceof Rejection) this.#running.delete(admission);
    }
  }

  /**
   * Cuts the latest export of the account with most, if that has at least two more than another account: it can go on later.
   * @param own how many the other account has
   */
  #makeRoom(own: number): boolean {
    const byAccount = grouped([...this.#running], ({ holder }) => holder[0]);
    const most = [...byAccount.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
    const latest = most.findLast(({ stream }) => stream !== null);
    if (latest === undefined || most.length < own + 2) return false;
    this.#running.delete(latest);
    latest.cut = 'made_room';
    latest.stream?.cut();
    return true;
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
    admission.stream = stream;
    try {
      for await (const bytes of body) {
        if (!(await isAllowed())) throw new Cut('access_ended');
        for (const slice of slicesOf(bytes)) await this.#send(stream, slice);
      }
      this.#end('complete', holder);
      stream.end();
    } catch (error) {
      const outcome = error instanceof Cut ? error.outcome : 'failed';
      this.#end(admission.cut ?? (stream.isClosed ? 'disconnected' : outcome), holder, error);
      stream.cut();
    } finally {
      this.#running.delete(admission);
    }
  }

  async #send(stream: AnswerStream, bytes: Buffer): Promise<void> {
    const isLate = await withTimeout(
      stream.send(bytes).then(() => false),
      this.#timeoutMs,
      true,
    );
    if (stream.isClosed) throw new Cut('disconnected');
    if (isLate) throw new Cut('too_slow');
  }

  #end(outcome: ExportOutcome, holder: Path, error?: unknown): void {
    this.ended[outcome] += 1;
    if (outcome === 'failed') this.#log.error({ err: error, holder }, `${this.#kind.name}: failed`);
    else if (outcome === 'too_slow')
      this.#log.warn({ holder }, `${this.#kind.name}: cut, its reader is too slow`);
    else this.#log.debug({ holder, outcome }, `${this.#kind.name}: ended`);
  }
}

/** Slices of about the same length: after a short one the transport would take more before it has sent it. */
function* slicesOf(bytes: Buffer): Generator<Buffer> {
  const length = Math.ceil(bytes.length / Math.ceil(bytes.length / SLICE_BYTES));
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}
