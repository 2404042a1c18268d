/**
 * Standard error and standard output of a service. A line never waits for its reader: a paused terminal, a log driver or a pipe
 * that nobody reads must not stop the service.
 */
import { constants, fstatSync, openSync, writeSync } from 'node:fs';
import { isatty } from 'node:tty';

/** Lines that the reader has not taken yet, in bytes. */
const MAX_WAITING_BYTES = 1_048_576;
/** Time between two attempts to write to a reader that does not read. A pipe has 64 KiB. */
const RETRY_MS = 10;
/** How long the end of the process waits for the reader. */
const EXIT_TIMEOUT_MS = 500;

const NEWLINE = Buffer.from('\n');

export interface OutputStats {
  /** Lines that were lost: the buffer was full, or the system refused the write. */
  readonly dropped: number;
  readonly waitingBytes: number;
}

/** What became of an attempt to write. */
type Attempt = 'written' | 'would block' | 'failed';

/**
 * Writes lines in order to a file descriptor that does not block. What the reader does not take waits in a buffer with a limit;
 * what does not fit there is dropped and counted. A write is a system call of this thread, so that a line is out before a crash.
 */
export class LineOutput {
  /** Called when lines flow again, with the number of lines that were dropped since the last call. */
  onResume: (dropped: number) => void = () => undefined;
  readonly #fd: number;
  readonly #maxWaitingBytes: number;
  /** The rest of the first line, and whole lines. */
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #dropped = 0;
  #reported = 0;
  /** Whether the last line was cut by a failed write. */
  #isCut = false;
  /** Whether the last attempt failed. */
  #isFailing = false;
  #timer: NodeJS.Timeout | null = null;

  /** @param fd does not block: see {@link openStandard} */
  constructor(fd: number, maxWaitingBytes = MAX_WAITING_BYTES) {
    this.#fd = fd;
    this.#maxWaitingBytes = maxWaitingBytes;
  }

  get stats(): OutputStats {
    return { dropped: this.#dropped, waitingBytes: this.#waitingBytes };
  }

  /** @param line with its line break */
  write(line: string): void {
    const bytes = Buffer.from(line);
    // While lines wait, the timer is what writes: an attempt that would block is an exception, which is expensive.
    if (this.#waiting.length > 0 && this.#waitingBytes + bytes.length > this.#maxWaitingBytes) {
      this.#dropped += 1;
      return;
    }
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#timer === null) this.#drain();
  }

  /**
   * Writes what waits, and waits for the reader with the whole thread: for the end of the process.
   * @param timeoutMs for all lines together
   */
  flush(timeoutMs: number = EXIT_TIMEOUT_MS): void {
    const until = performance.now() + timeoutMs;
    const sleeper = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    this.#drain();
    while (this.#waiting.length > 0 && performance.now() < until) {
      Atomics.wait(sleeper, 0, 0, RETRY_MS);
      this.#drain();
    }
  }

  #drain(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (let line = this.#waiting[0]; line !== undefined; line = this.#waiting[0]) {
      const attempt = this.#put(line);
      if (attempt === 'would block') {
        // Without a reference: nobody waits for a log.
        this.#timer = setTimeout(() => this.#drain(), RETRY_MS).unref();
        return;
      }
      if (attempt === 'failed') this.#drop();
    }
    const dropped = this.#dropped - this.#reported;
    // After failed writes the first line that is written reports them.
    if (dropped === 0 || this.#isFailing) return;
    this.#reported = this.#dropped;
    this.onResume(dropped);
  }

  /** Writes the first line, or the part of it that the reader takes. */
  #put(line: Buffer): Attempt {
    let rest = line;
    try {
      if (this.#isCut) {
        writeSync(this.#fd, NEWLINE);
        this.#isCut = false;
      }
      while (rest.length > 0) rest = rest.subarray(writeSync(this.#fd, rest));
    } catch (error) {
      this.#waiting[0] = rest;
      this.#waitingBytes -= line.length - rest.length;
      if (wouldBlock(error)) return 'would block';
      // A full disk, or a reader that is gone, is no reason to stop serving.
      this.#isFailing = true;
      this.#isCut ||= rest.length < line.length;
      return 'failed';
    }
    this.#isFailing = false;
    this.#waiting.shift();
    this.#waitingBytes -= line.length;
    return 'written';
  }

  /** Drops the first line. */
  #drop(): void {
    this.#waitingBytes -= this.#waiting.shift()?.length ?? 0;
    this.#dropped += 1;
  }
}

function wouldBlock(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'EAGAIN' || error.code === 'EBUSY');
}

const opened = new Map<1 | 2, LineOutput>();

/** The output of this process that is standard output (1) or standard error (2). What waits at the end of the process is flushed. */
export function standardOutput(fd: 1 | 2): LineOutput {
  const known = opened.get(fd);
  if (known !== undefined) return known;
  const output = new LineOutput(openStandard(fd));
  opened.set(fd, output);
  process.on('exit', () => output.flush());
  return output;
}

/** The stats of standard error, where the log goes; zeros before its first line. */
export function logStats(): OutputStats {
  return opened.get(2)?.stats ?? { dropped: 0, waitingBytes: 0 };
}

/**
 * A file descriptor of the same file that does not block. A pipe or a terminal is opened again where the system allows it, because
 * other processes share what we inherited: when one of them ends, Node sets it back to blocking. Node has made an inherited
 * pipe or socket non-blocking as soon as `process.stderr` is used. Files never block.
 */
function openStandard(fd: 1 | 2): number {
  const inherited = fd === 1 ? process.stdout : process.stderr;
  // Its reader may be gone.
  inherited.on('error', () => undefined);
  const isTerminal = isatty(fd);
  if (!isTerminal && !fstatSync(fd).isFIFO()) return fd;
  const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
  for (const path of [`/proc/self/fd/${fd}`, ...(isTerminal ? ['/dev/tty'] : [])]) {
    try {
      return openSync(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
    } catch {
      // No such path on this system, or the file belongs to another user. The next one, or the inherited one, is used.
    }
  }
  return fd;
}
