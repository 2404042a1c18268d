/** Receives the body of a request: limits, buffers, decompresses and decodes it. */
import { isAscii } from 'node:buffer';
import { decode, unnamedEncoding } from '../base/utf8.ts';
import { Rejection } from '../errors.ts';
import { ArrivingLines } from './arriving-lines.ts';
import type { BodyAccount, BodyRoom } from './body-room.ts';
import { CompressedBody, ENCODINGS, type Encoding, encodingOf } from './compressed-body.ts';

/** Options of a route that differ from the server's settings. */
export interface BodyOptions {
  /** Limit in bytes; of a compressed body, after decompression. */
  readonly maxBytes?: number;
  /** Whether the body may be compressed: with one of {@link ENCODINGS}. */
  readonly compressed?: boolean;
  /** Whether the body is no text: it is given as bytes, whatever is in them. */
  readonly binary?: boolean;
  /** Whether a text is refused that begins with a byte order mark, and a small one that is not UTF-8 at once: it is given as bytes else. */
  readonly isStrict?: boolean;
  /** Whether small bodies may use the memory that is reserved for producers. */
  readonly usesReserve?: boolean;
  /** Given if the body is lines: one of more than `maxBytes` is then given line by line, while it arrives. */
  readonly lines?: {
    /** Limit of all of them in bytes, after decompression. */
    readonly maxBytes: number;
    /** Limit of one, beyond which it is dropped. */
    readonly maxLineBytes: number;
  };
}

/** The request, as its body needs it. */
export interface BodyOwner {
  /** A request header by its lower-case name, empty if absent. */
  header(name: string): string;
  /** The key under which the client is counted. */
  address(): string;
  /** Starts to receive the body. A chunk's memory is only valid during the call. */
  readBody(onChunk: (chunk: Buffer, last: boolean) => void): void;
  /** Stops reading from the connection, and continues. A few more chunks may come in between. */
  pauseBody(): void;
  resumeBody(): void;
  /** Closes the connection after the response. */
  closeAfterAnswer(): void;
  /** Responds at once. */
  refuse(refusal: Rejection): void;
}

/**
 * A body of up to this many bytes is small and is decoded at once. A larger one stays bytes unless it is ASCII, which is
 * cheap to decode: decoding other text may take as long as receiving it, and its sender is not authenticated yet.
 */
const SMALL_BODY_BYTES = 2_048;

/** Compressed bytes of a body of lines that are held before they are decompressed. */
const HELD_COMPRESSED_BYTES = 1_048_576;

/** How much of a refused body is read and discarded so that its sender can still read the response. */
const DRAIN_BYTES = 16 * 1_048_576;

/**
 * A body that is larger than this is refused after a pause where there is no room for it, in which nothing more of it is read: a
 * client that sends it again at once would keep the service busy with reading alone.
 */
const PAUSED_FROM_BYTES = 262_144;
const PAUSE_MS = 500;

/** A body that takes longer than this must arrive at least at this rate: the same as uWebSockets.js requires. */
export const PACE_AFTER_MS = 5_000;
const PACE_BYTES_PER_SECOND = 16_384;

const NO_ROOM = new Rejection('unavailable', 'Too many request bodies are being held; try again shortly.');
const TOO_LARGE_WINDOW = new Rejection(
  'payloadTooLarge',
  'The compression window exceeds the memory limit of bodies; use a smaller window or gzip.',
);
const CUT_FOR_ROOM = new Rejection(
  'unavailable',
  'Too many request bodies are being held, and this one arrived slowly for its size; try again shortly.',
);
const TOO_SLOW = new Rejection(
  'invalidBody',
  `The body did not arrive in time: one that takes more than ${PACE_AFTER_MS / 1_000} seconds must arrive at ` +
    `${PACE_BYTES_PER_SECOND / 1_024} KiB a second.`,
);
const LATE = new Rejection('invalidBody', 'The body did not arrive in time.');
const ABORTED = new Rejection('unavailable', 'The client closed the connection.');

/** A received body: text if it is small or ASCII, else bytes for `decode` (base/utf8.ts). */
export type ReceivedBody = string | Buffer;

/** Whether a body is so small that it may be parsed before its sender is authenticated. */
export function isSmallBody(body: ReceivedBody): body is string {
  return typeof body === 'string' && body.length <= SMALL_BODY_BYTES;
}

/** The beginning of a body, for whoever has to correct it. */
export interface BodyBeginning {
  readonly text: string;
  readonly isWhole: boolean;
}

/** Characters, or bytes, of a beginning. */
const BEGINNING = 4_096;

/** @param body text, or text in UTF-8 */
export function beginningOf(body: ReceivedBody): BodyBeginning {
  const isWhole = body.length <= BEGINNING;
  // Copied: a substring keeps the whole text in memory.
  const copied = typeof body === 'string' && !isWhole ? Buffer.from(body.slice(0, BEGINNING)) : body;
  return { text: typeof copied === 'string' ? copied : copied.toString('utf8', 0, BEGINNING), isWhole };
}

export class RequestBody {
  readonly #owner: BodyOwner;
  readonly #room: BodyRoom;
  readonly #maxBytes: number;
  readonly #usesReserve: boolean;
  /** Bytes held without an account. */
  #countedBytes = 0;
  #account: BodyAccount | null = null;
  /** Buffer of a body in several chunks; its first {@link #bytes} bytes are filled. */
  #buffer: Buffer | null = null;
  #bytes = 0;
  readonly #isBinary: boolean;
  readonly #isStrict: boolean;
  /** Null for a body that is not compressed. */
  readonly #encoding: Encoding | null;
  #compressed: CompressedBody | null = null;
  /** What is held for the decoder. */
  #windowBytes = 0;
  #compressedBytes = 0;
  /** True once the last chunk has arrived. */
  #hasEnded = false;
  readonly #lineLimits: BodyOptions['lines'];
  /** Null unless the body is given line by line. */
  #lines: ArrivingLines | null = null;
  #bytesOfLines = 0;
  /** Counted of the lines; what was spooled is not counted. */
  #heldOfLines = 0;
  #isPaused = false;
  /** True once there is a result: chunks that still arrive are ignored. */
  #isOver = false;
  #refusal: Rejection | null = null;
  /** The beginning of a body that was refused while it arrived; empty: none was. */
  #head = NOTHING;
  #drainedBytes = 0;
  #refusalPause: 'none' | 'paused' | 'over' = 'none';
  /** Start of the current measurement of the pace, and the bytes received before it. */
  #paceSince: number;
  #paceBytes = 0;
  #receivedBytes = 0;
  #isReleased = false;
  #result: ReceivedBody | ArrivingLines | Rejection | null = null;
  #resolve: ((body: ReceivedBody | ArrivingLines | Rejection) => void) | null = null;

  /**
   * Starts to receive.
   * @param maxBytes  limit in bytes, after decompression
   * @param startedAt when the request arrived, in milliseconds of the clock of {@link checkPace}
   */
  constructor(owner: BodyOwner, room: BodyRoom, maxBytes: number, options: BodyOptions, startedAt: number) {
    this.#owner = owner;
    this.#room = room;
    this.#maxBytes = Math.min(maxBytes, room.largestBody);
    this.#usesReserve = options.usesReserve ?? false;
    this.#paceSince = startedAt;
    this.#isBinary = options.binary === true;
    this.#isStrict = options.isStrict === true;
    this.#lineLimits = options.lines;
    const encoding = owner.header('content-encoding');
    this.#encoding = options.compressed === true && encoding !== '' ? encodingOf(encoding) : null;
    if (this.#encoding === null && encoding !== '' && encoding.toLowerCase() !== 'identity') {
      const others = options.compressed === true ? `, or with one of ${ENCODINGS.join(', ')}` : '';
      this.#refusal = new Rejection(
        'unsupportedEncoding',
        `Send the body without Content-Encoding${others}.`,
      );
    }
    owner.readBody((chunk, last) => this.#onChunk(chunk, last));
  }

  /**
   * The whole body, or its lines while they arrive. A compressed one is only decompressed after this call. May be called once.
   */
  read(): Promise<ReceivedBody | ArrivingLines | Rejection> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
      if (this.#result !== null) resolve(this.#result);
      else if (this.#encoding !== null && this.#refusal === null) this.#decompress(this.#encoding);
    });
  }

  /** Counts memory beside the body, until {@link release}. @returns the refusal if there is none */
  holdMore(bytes: number): Rejection | null {
    // Nothing would release it.
    if (this.#isReleased) return ABORTED;
    if ((this.#account?.bytes ?? 0) + bytes > this.#room.largestBody)
      return new Rejection(
        'payloadTooLarge',
        'The events take too much memory together: send fewer at once.',
      );
    return this.#hold(bytes, false) ? null : NO_ROOM;
  }

  /** True until the whole body has arrived. */
  get isArriving(): boolean {
    return !this.#hasEnded && !this.#isOver;
  }

  /** The refusal if the deadline passes before the whole body has arrived. */
  get late(): Rejection {
    return this.#refusal ?? LATE;
  }

  /** Whether the body is given line by line. */
  get isStream(): boolean {
    return this.#lines !== null;
  }

  /** Ends a body that is given line by line, where it still arrives. */
  stopLines(refusal: Rejection): void {
    if (this.#lines !== null && this.isArriving) this.#fail(this.#lines, refusal);
  }

  /** Refuses a body that arrives too slowly. @param now milliseconds of the server's monotonic clock @returns true if it did */
  checkPace(now: number): boolean {
    const elapsed = now - this.#paceSince;
    if (!this.isArriving || (elapsed < PACE_AFTER_MS && !this.#isPaused)) return false;
    const needed = this.#isPaused ? 0 : (PACE_BYTES_PER_SECOND * elapsed) / 1_000;
    const isTooSlow = this.#receivedBytes - this.#paceBytes < needed;
    this.#paceSince = now;
    this.#paceBytes = this.#receivedBytes;
    if (isTooSlow && this.#lines !== null) {
      this.#owner.closeAfterAnswer();
      this.#close(this.#lines, TOO_SLOW);
    } else if (isTooSlow) {
      this.#refuseAtOnce(this.#refusal ?? TOO_SLOW);
    }
    return isTooSlow;
  }

  /** The beginning of a text that has arrived; null: there is none, or it is not held as a whole. */
  beginning(): BodyBeginning | null {
    const body = this.#result;
    if (this.#isBinary || !(typeof body === 'string' || Buffer.isBuffer(body))) return null;
    return beginningOf(body);
  }

  /** The beginning of a body that was refused while it arrived, which has the token where it is the first field. */
  get head(): string {
    return this.#head.toString('latin1');
  }

  /** Releases all memory: the request has its response, or its client disconnected. */
  release(): void {
    this.#isReleased = true;
    this.#lines?.fail(ABORTED);
    this.#letGo();
    this.#resume();
    // A body that was not read yet is dropped too: an event that was refused must not be stored later.
    if (this.#isOver) this.#result = ABORTED;
    else this.#settle(ABORTED);
  }

  #onChunk(chunk: Buffer, last: boolean): void {
    if (this.#isOver) return;
    this.#hasEnded = last;
    this.#receivedBytes += chunk.byteLength;
    if (this.#encoding !== null) this.#onCompressed(chunk, last);
    else this.#onPlain(chunk, last);
  }

  #onPlain(chunk: Buffer, last: boolean): void {
    const lines = this.#linesWith(chunk.byteLength);
    const isWhole = last && this.#bytes === 0;
    if (lines === null) this.#refusal ??= this.#admit(chunk.byteLength, isWhole);
    if (lines !== null) {
      this.#addLines(lines, chunk, last);
    } else if (this.#refusal !== null) {
      const held = this.#buffer?.subarray(0, this.#bytes) ?? NOTHING;
      if (this.#head === NOTHING)
        this.#head = Buffer.from((held.length > 0 ? held : chunk).subarray(0, BEGINNING));
      this.#drain(chunk.byteLength, last, this.#refusal);
    } else if (isWhole) {
      this.#settle(this.#isBinary ? Buffer.from(chunk) : this.#received(chunk, true));
    } else {
      this.#keep(chunk);
      if (last) this.#end();
    }
  }

  #onCompressed(chunk: Buffer, last: boolean): void {
    this.#refusal ??= this.#admitCompressed(chunk.byteLength);
    if (this.#refusal !== null) {
      this.#drain(chunk.byteLength, last, this.#refusal);
    } else if (this.#compressed !== null) {
      this.#compressed.write(chunk, last);
    } else {
      this.#bytes += chunk.byteLength;
      this.#keep(chunk);
      if (this.#lineLimits !== undefined && this.#bytes >= HELD_COMPRESSED_BYTES) this.#pause();
    }
  }

  /** The lines of a body that is larger with these bytes than one which is held as a whole, and may be. */
  #linesWith(bytes: number): ArrivingLines | null {
    const limits = this.#lineLimits;
    if (this.#lines !== null || limits === undefined || this.#refusal !== null) return this.#lines;
    const announced = this.#encoding === null ? this.#announcedBytes : 0;
    if (announced > limits.maxBytes) this.#refusal = this.#tooLarge();
    if (this.#refusal !== null || (this.#bytes + bytes <= this.#maxBytes && !(announced > this.#maxBytes)))
      return null;
    const held = this.#buffer?.subarray(0, this.#bytes) ?? NOTHING;
    // Not given back: the lines are in it.
    this.#buffer = null;
    this.#bytesOfLines = this.#heldOfLines = this.#bytes;
    this.#bytes = 0;
    this.#lines = new ArrivingLines(held, {
      maxLineBytes: limits.maxLineBytes,
      onFreed: (freed) => this.#giveBackLines(freed),
      onAwaited: () => this.#resume(),
    });
    if (this.#resolve === null) this.#result = this.#lines;
    else this.#resolve(this.#lines);
    return this.#lines;
  }

  #addLines(lines: ArrivingLines, bytes: Buffer, last: boolean): void {
    this.#bytesOfLines += bytes.byteLength;
    if (this.#bytesOfLines > this.#mostBytes) {
      this.#close(lines, this.#tooLarge());
    } else if (!this.#keepLines(lines, bytes)) {
      this.#close(lines, NO_ROOM);
    } else {
      if (last) this.#end();
      else if (!lines.isAwaited) this.#pause();
    }
  }

  /** uWebSockets.js delivers many MiB after a pause: all that the system has, and what comes meanwhile. */
  #keepLines(lines: ArrivingLines, bytes: Buffer): boolean {
    if (this.#isPaused && lines.isSpooling) return lines.spool(bytes, this.#resolve !== null);
    if (!this.#hold(bytes.byteLength, false)) return false;
    this.#heldOfLines += bytes.byteLength;
    lines.push(bytes);
    return true;
  }

  #giveBackLines(bytes: number): void {
    const held = Math.min(bytes, this.#heldOfLines);
    this.#heldOfLines -= held;
    this.#giveBack(held);
  }

  /** Refuses the lines after those that have arrived. */
  #close(lines: ArrivingLines, refusal: Rejection): void {
    lines.close(refusal);
    this.#settle(refusal);
  }

  /** Drops what has arrived and was not taken, too. */
  #fail(lines: ArrivingLines, refusal: Rejection): void {
    lines.fail(refusal);
    this.#letGo();
    this.#settle(refusal);
    if (this.#resolve === null) this.#result = refusal;
  }

  #pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#compressed?.pause();
    this.#owner.pauseBody();
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#compressed?.resume();
    this.#owner.resumeBody();
  }

  /** Decompresses what has arrived, and what arrives from now on. */
  #decompress(encoding: Encoding): void {
    const compressed = this.#buffer?.subarray(0, this.#bytes) ?? NOTHING;
    // Not given back: it is read until it is decompressed.
    this.#buffer = null;
    this.#bytes = 0;
    this.#compressed = new CompressedBody(encoding, {
      onWindow: (bytes) => this.#holdWindow(bytes),
      onTaken: (bytes) => this.#giveBack(bytes),
      onBytes: (bytes) => {
        const lines = this.#linesWith(bytes.byteLength);
        if (lines !== null) return this.#addLines(lines, bytes, false);
        this.#refusal ??= this.#admit(bytes.byteLength, false);
        if (this.#refusal === null) this.#keep(bytes);
        else this.#drain(0, this.#hasEnded, this.#refusal);
      },
      onEnd: (problem) => {
        if (problem === null) return this.#end();
        this.#refusal = new Rejection('invalidBody', problem);
        if (this.#lines !== null) return this.#fail(this.#lines, this.#refusal);
        this.#drain(0, this.#hasEnded, this.#refusal);
      },
    });
    this.#compressed.write(compressed, this.#hasEnded);
    this.#resume();
  }

  /** Counts the window of the decoder. @returns false if there is no room for it: the body is refused */
  #holdWindow(bytes: number): boolean {
    if (bytes === 0 || this.#hold(bytes, false)) {
      this.#windowBytes = bytes;
      return true;
    }
    // What can never be held is refused for its size.
    this.#refusal = bytes > this.#room.largestBody ? TOO_LARGE_WINDOW : NO_ROOM;
    this.#drain(0, this.#hasEnded, this.#refusal);
    return false;
  }

  /** Counts bytes of the body. @returns the refusal if they cannot be held */
  #admit(bytes: number, isWhole: boolean): Rejection | null {
    const isFirst = this.#bytes === 0 && this.#encoding === null;
    if (this.#bytes + bytes > this.#maxBytes || (isFirst && this.#announcedBytes > this.#maxBytes))
      return this.#tooLarge();
    if (!this.#hold(bytes, isWhole)) return NO_ROOM;
    if (!isWhole) this.#bytes += bytes;
    return null;
  }

  /** Counts compressed bytes of the body, of which there may be slightly more: incompressible data grows. */
  #admitCompressed(bytes: number): Rejection | null {
    this.#compressedBytes += bytes;
    const most = this.#mostBytes + Math.floor(this.#mostBytes / 64) + 1_024;
    if (this.#compressedBytes > most || this.#announcedBytes > most) return this.#tooLarge();
    return this.#hold(bytes, false) ? null : NO_ROOM;
  }

  #tooLarge(): Rejection {
    return new Rejection('payloadTooLarge', `The body may have at most ${this.#mostBytes} bytes.`);
  }

  get #mostBytes(): number {
    return this.#lineLimits?.maxBytes ?? this.#maxBytes;
  }

  /** Content-Length; NaN or 0 if it is missing or invalid. */
  get #announcedBytes(): number {
    return Number(this.#owner.header('content-length'));
  }

  #hold(bytes: number, isWhole: boolean): boolean {
    if (isWhole && this.#room.isSmall(bytes)) {
      if (!this.#room.take(bytes, this.#usesReserve)) return false;
      this.#countedBytes += bytes;
      return true;
    }
    this.#account ??= this.#room.open(this.#owner.address(), this.#usesReserve, () =>
      this.#refuseAtOnce(CUT_FOR_ROOM),
    );
    if (this.#hasEnded) this.#room.arrived(this.#account);
    return this.#room.grow(this.#account, bytes);
  }

  #giveBack(bytes: number): void {
    if (this.#account !== null) this.#room.shrink(this.#account, bytes);
  }

  /** Appends counted bytes. The buffer grows with what has arrived, not with what was announced. */
  #keep(bytes: Uint8Array): void {
    const start = this.#bytes - bytes.byteLength;
    if (this.#buffer === null || this.#buffer.length < this.#bytes) {
      const larger = this.#room.buffers.take(this.#bufferBytes());
      this.#buffer?.copy(larger, 0, 0, start);
      this.#giveBufferBack();
      this.#buffer = larger;
    }
    this.#buffer.set(bytes, start);
  }

  #bufferBytes(): number {
    const doubled = 2 * this.#bytes;
    // Content-Length is only an upper bound: the body may be compressed or chunked.
    const announced = this.#encoding !== null ? 0 : this.#announcedBytes;
    const most = announced >= this.#bytes ? announced : this.#maxBytes;
    return Math.max(this.#bytes, Math.min(doubled, most));
  }

  #end(): void {
    this.#lines?.end();
    const bytes = this.#buffer?.subarray(0, this.#bytes);
    const body = this.#isBinary
      ? (bytes ?? NOTHING)
      : bytes === undefined
        ? ''
        : this.#received(bytes, false);
    // The handler may use these bytes even after the response, so their buffer is not reused.
    if (Buffer.isBuffer(body)) this.#buffer = null;
    this.#settle(body);
  }

  /** @param isLent whether the memory is only valid during this call */
  #received(bytes: Buffer, isLent: boolean): ReceivedBody | Rejection {
    if (isAscii(bytes)) return bytes.toString('latin1');
    const packed = this.#isStrict ? unnamedEncoding(bytes) : null;
    if (packed !== null) return packed;
    const text = bytes.length <= SMALL_BODY_BYTES ? decode(bytes, 'refused') : null;
    if (typeof text === 'string' || (text !== null && this.#isStrict)) return text;
    return isLent ? Buffer.from(bytes) : bytes;
  }

  #giveBufferBack(): void {
    if (this.#buffer !== null) this.#room.buffers.giveBack(this.#buffer);
    this.#buffer = null;
  }

  /**
   * Keeps reading a refused body up to a limit: a client that sends into a closed socket would lose the response. If
   * Content-Length is below the limit, the response is sent at once, else at the end of the body or at the limit.
   */
  #drain(bytes: number, last: boolean, refusal: Rejection): void {
    this.#letGo();
    this.#drainedBytes += bytes;
    const announced = this.#announcedBytes || Number.POSITIVE_INFINITY;
    if (this.#isRefusedLater(refusal, last, announced)) return;
    if (last || announced <= DRAIN_BYTES) {
      this.#settle(refusal);
    } else if (this.#drainedBytes > DRAIN_BYTES) {
      this.#owner.closeAfterAnswer();
      this.#settle(refusal);
    }
  }

  /** Whether the refusal has to wait for the end of the pause, which begins with the first chunk that finds no room. */
  #isRefusedLater(refusal: Rejection, last: boolean, announced: number): boolean {
    if (refusal !== NO_ROOM || last || announced <= PAUSED_FROM_BYTES || this.#encoding !== null)
      return false;
    if (this.#refusalPause === 'none') {
      this.#refusalPause = 'paused';
      this.#owner.pauseBody();
      setTimeout(() => {
        this.#refusalPause = 'over';
        if (this.#isOver) return;
        this.#owner.resumeBody();
        this.#drain(0, this.#hasEnded, refusal);
      }, PAUSE_MS);
    }
    return this.#refusalPause === 'paused';
  }

  /** Responds without waiting for the rest of the body, and closes the connection. */
  #refuseAtOnce(refusal: Rejection): void {
    this.#owner.closeAfterAnswer();
    if (this.#lines === null) this.#owner.refuse(refusal);
    else this.#fail(this.#lines, refusal);
  }

  #settle(body: ReceivedBody | Rejection): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#account !== null) this.#room.arrived(this.#account);
    this.#giveBufferBack();
    this.#compressed?.stop();
    this.#compressed = null;
    this.#giveBack(this.#windowBytes);
    this.#windowBytes = 0;
    // Who takes the lines learns of their end from them.
    if (this.#lines !== null) return;
    this.#result = body;
    this.#resolve?.(body);
  }

  #letGo(): void {
    // Stop first: the decoder must not report more bytes.
    this.#compressed?.stop();
    this.#room.giveBack(this.#countedBytes);
    this.#countedBytes = 0;
    if (this.#account !== null) this.#room.close(this.#account);
    this.#account = null;
    this.#windowBytes = 0;
    this.#bytes = 0;
    this.#giveBufferBack();
    this.#result = null;
  }
}

const NOTHING = Buffer.alloc(0);
