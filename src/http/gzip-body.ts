/** Inflates a gzip body (RFC 1952) while it arrives. */
import { createGunzip, type Gunzip } from 'node:zlib';

export interface GzipBodyReader {
  /** Called when compressed bytes were consumed: their memory is free. */
  readonly onTaken: (bytes: number) => void;
  /** Called with inflated bytes, in order. */
  readonly onBytes: (bytes: Buffer) => void;
  /** Called at the end with null, or with a sentence that says what is wrong with the body. */
  readonly onEnd: (problem: string | null) => void;
}

const CHUNK_BYTES = 65_536;

const CORRUPT = 'The body is not valid gzip, or is cut off.';
const TRAILING = 'The gzip body has data after its end.';

/**
 * Inflates off the event loop in chunks, so a decompression bomb is never in memory as a whole. Several members are
 * concatenated. Any other data after the end is refused, while zlib would ignore padding.
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

  /** Consumes the next bytes. Their memory is only valid during the call. */
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

  /** Stops; the reader is not called any more. */
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
