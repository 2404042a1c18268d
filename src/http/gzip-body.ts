/** A body that comes as gzip (RFC 1952), inflated while it arrives and no further than its reader wants. */
import { createGunzip, type Gunzip } from 'node:zlib';

export interface GzipBodyReader {
  /** Compressed bytes that need no room any more. */
  readonly onTaken: (bytes: number) => void;
  /** Inflated bytes, in their order. */
  readonly onBytes: (bytes: Buffer) => void;
  /** The end: null, or what is wrong with the body, as a sentence. */
  readonly onEnd: (problem: string | null) => void;
}

const CHUNK_BYTES = 65_536;

const CORRUPT = 'The body is not valid gzip, or is cut off.';
const TRAILING = 'The gzip body has something behind its end.';

/**
 * Inflates off the event loop, a chunk at a time: what a bomb would become is never there as a whole. A body of several
 * members is their concatenation; anything else behind the end is refused, where zlib would pass over padding.
 */
export class GzipBody {
  readonly #gunzip: Gunzip = createGunzip({ chunkSize: CHUNK_BYTES });
  readonly #reader: GzipBodyReader;
  #sent = 0;
  #complete = false;
  #over = false;

  constructor(reader: GzipBodyReader) {
    this.#reader = reader;
    this.#gunzip.on('data', (bytes: Buffer) => {
      if (!this.#over) reader.onBytes(bytes);
    });
    this.#gunzip.on('error', () => this.#end(CORRUPT));
    this.#gunzip.on('end', () => {
      const isWhole = this.#complete && this.#gunzip.bytesWritten === this.#sent;
      this.#end(isWhole ? null : TRAILING);
    });
  }

  /** Takes the next bytes, whose memory is only valid during the call. */
  write(bytes: Uint8Array, last: boolean): void {
    if (this.#over) return;
    if (last) this.#complete = true;
    if (bytes.byteLength > 0) {
      this.#sent += bytes.byteLength;
      this.#gunzip.write(Buffer.from(bytes), () => {
        if (!this.#over) this.#reader.onTaken(bytes.byteLength);
      });
    }
    if (last) this.#gunzip.end();
  }

  /** Stops; the reader hears of nothing more. */
  stop(): void {
    this.#over = true;
    this.#gunzip.destroy();
  }

  #end(problem: string | null): void {
    if (this.#over) return;
    this.stop();
    this.#reader.onEnd(problem);
  }
}
