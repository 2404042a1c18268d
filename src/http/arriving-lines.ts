/** The lines of a body while it arrives. Who takes them sets the pace: more is only asked for when they wait for it. */
import { Rejection } from '../errors.ts';
import { Spool } from './spool.ts';

/** The smallest buffer, and the most that one is larger than what is in it. */
const FIRST_BYTES = 65_536;
const SPARE_BYTES = 524_288;
const FEED = 0x0a;

/** Bytes in memory beyond which more are spooled. */
const HELD_BYTES = 1_048_576;
const LOST = new Rejection('internalError', 'The rest of the body was lost; send it again.');

/** A line that was dropped because of its length. */
export const TOO_LONG = Symbol('too long');

/** Whole lines, of which the last may lack its line feed; null after the last of them; or why no more come. */
export type TakenLines = string | Buffer | typeof TOO_LONG | null | Rejection;

export interface ArrivingLinesOptions {
  /** Limit of a line in bytes: a longer one is dropped while it arrives. */
  readonly maxLineBytes: number;
  /** Called with the number of bytes that are not held any more. */
  readonly onFreed: (bytes: number) => void;
  /** Called when lines are waited for, and none are there. */
  readonly onAwaited: () => void;
}

export class ArrivingLines {
  readonly #options: ArrivingLinesOptions;
  /** What must be taken before {@link #buffer}: dropped lines, and the lines before them. */
  readonly #before: (Buffer | typeof TOO_LONG)[] = [];
  /** Its first {@link #bytes} bytes are filled, of which the first {@link #wholeBytes} are whole lines. */
  #buffer: Buffer;
  #bytes: number;
  #wholeBytes: number;
  /** Bytes of {@link #before}, and of the lines that were taken last: they are in use until more are taken. */
  #bytesBefore = 0;
  #takenBytes = 0;
  /** Whether the rest of a line that is too long is arriving. */
  #isSkipping = false;
  /** What came after that, and did not fit into memory. */
  readonly #spool = new Spool();
  #isRefilling = false;
  #hasEnded = false;
  /** Why no more lines come after those that are there. */
  #closing: Rejection | null = null;
  #refusal: Rejection | null = null;
  #resolve: ((lines: TakenLines) => void) | null = null;

  /** @param first what has arrived before, whose memory is handed over */
  constructor(first: Buffer, options: ArrivingLinesOptions) {
    this.#options = options;
    this.#buffer = first;
    this.#bytes = first.length;
    this.#wholeBytes = first.lastIndexOf(FEED) + 1;
    this.#dropLongLine();
  }

  /** Whether lines are waited for. */
  get isAwaited(): boolean {
    return this.#resolve !== null;
  }

  /** Whether bytes that arrive now are to be added by {@link spool}. */
  get isSpooling(): boolean {
    return this.#isRefilling || !this.#spool.isEmpty || this.#bytesBefore + this.#bytes >= HELD_BYTES;
  }

  /**
   * Adds bytes that are not held in memory.
   * @param isProven whether their sender is known
   * @returns false if there is no room for them
   */
  spool(bytes: Uint8Array, isProven: boolean): boolean {
    if (this.#refusal !== null) return true;
    if (!this.#spool.append(bytes, isProven)) return false;
    if (this.isAwaited) void this.#refill();
    return true;
  }

  /** Adds bytes, which are copied. */
  push(bytes: Uint8Array): void {
    if (this.#refusal !== null) return;
    let rest = bytes;
    if (this.#isSkipping) {
      const feed = rest.indexOf(FEED);
      const skipped = feed < 0 ? rest.length : feed + 1;
      this.#isSkipping = feed < 0;
      this.#options.onFreed(skipped);
      rest = rest.subarray(skipped);
    }
    this.#append(rest);
    this.#dropLongLine();
    this.#wake();
  }

  /** The whole body has arrived. */
  end(): void {
    this.#hasEnded = true;
    this.#wake();
  }

  /** No more lines come after those that are there; one that is incomplete is dropped. */
  close(refusal: Rejection): void {
    this.#closing = refusal;
    this.#hasEnded = true;
    this.#wake();
  }

  /** No more lines come. Those that were not taken are dropped. */
  fail(refusal: Rejection): void {
    if (this.#refusal !== null) return;
    this.#refusal = refusal;
    this.#spool.close();
    this.#before.length = 0;
    this.#buffer = NOTHING;
    this.#free(this.#bytesBefore + this.#bytes);
    this.#bytesBefore = this.#bytes = this.#wholeBytes = 0;
    this.#wake();
  }

  /** Takes all whole lines that are there, or waits for the next one. Lets go of those that were taken before. */
  take(): Promise<TakenLines> {
    this.#free(this.#takenBytes);
    this.#takenBytes = 0;
    return new Promise((resolve) => {
      this.#resolve = resolve;
      this.#wake();
      if (!this.isAwaited) return;
      if (this.#spool.isEmpty) this.#options.onAwaited();
      else void this.#refill();
    });
  }

  #wake(): void {
    if (this.#resolve === null) return;
    const lines = this.#next();
    if (lines === undefined) return;
    const resolve = this.#resolve;
    this.#resolve = null;
    resolve(lines);
  }

  /** Undefined: nothing yet. */
  #next(): TakenLines | undefined {
    if (this.#refusal !== null) return this.#refusal;
    const before = this.#before.shift();
    if (before !== undefined) {
      this.#takenBytes = before === TOO_LONG ? 0 : before.length;
      this.#bytesBefore -= this.#takenBytes;
      return before;
    }
    const isLast = this.#hasEnded && this.#spool.isEmpty && !this.#isRefilling;
    // The last line of a body that is cut off is incomplete.
    const length = isLast && this.#closing === null ? this.#bytes : this.#wholeBytes;
    if (length > 0) return this.#cut(length);
    if (isLast) this.#spool.close();
    return isLast ? this.#closing : undefined;
  }

  /** Gets lines from the spool until there is one to take. */
  async #refill(): Promise<void> {
    if (this.#isRefilling) return;
    this.#isRefilling = true;
    while (this.isAwaited && !this.#spool.isEmpty) {
      const bytes = await this.#spool.next().catch(() => null);
      if (bytes === null) this.fail(LOST);
      else this.push(bytes);
    }
    this.#isRefilling = false;
    this.#wake();
    if (this.isAwaited) this.#options.onAwaited();
  }

  #cut(length: number): Buffer {
    const lines = this.#buffer.subarray(0, length);
    this.#buffer = length === this.#bytes ? NOTHING : Buffer.from(this.#buffer.subarray(length, this.#bytes));
    this.#takenBytes = length;
    this.#bytes -= length;
    this.#wholeBytes = 0;
    return lines;
  }

  #append(bytes: Uint8Array): void {
    const end = this.#bytes + bytes.length;
    if (end > this.#buffer.length) {
      const larger = Buffer.allocUnsafeSlow(
        Math.max(FIRST_BYTES, end, Math.min(2 * this.#buffer.length, end + SPARE_BYTES)),
      );
      this.#buffer.copy(larger, 0, 0, this.#bytes);
      this.#buffer = larger;
    }
    this.#buffer.set(bytes, this.#bytes);
    const feed = bytes.lastIndexOf(FEED);
    if (feed >= 0) this.#wholeBytes = this.#bytes + feed + 1;
    this.#bytes = end;
  }

  /** Drops the line that is arriving if it is too long already. */
  #dropLongLine(): void {
    const dropped = this.#bytes - this.#wholeBytes;
    if (dropped <= this.#options.maxLineBytes) return;
    if (this.#wholeBytes > 0) this.#before.push(this.#buffer.subarray(0, this.#wholeBytes));
    this.#before.push(TOO_LONG);
    this.#bytesBefore += this.#wholeBytes;
    this.#buffer = NOTHING;
    this.#bytes = this.#wholeBytes = 0;
    this.#isSkipping = true;
    this.#options.onFreed(dropped);
  }

  #free(bytes: number): void {
    if (bytes > 0) this.#options.onFreed(bytes);
  }
}

const NOTHING = Buffer.alloc(0);
