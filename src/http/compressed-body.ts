/** Decompresses a body while it arrives: gzip (RFC 1952), deflate (RFC 1950 and 1951), Brotli (RFC 7932), Zstandard (RFC 8878). */
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import { ZstdFrames } from './zstd-frames.ts';

/** The encodings that this Node decompresses: Zstandard from 22.15 on. */
export const ENCODINGS: readonly Encoding[] = [
  'gzip',
  'deflate',
  'br',
  ...('createZstdDecompress' in zlib ? (['zstd'] as const) : []),
];

export type Encoding = 'gzip' | 'deflate' | 'br' | 'zstd';

/** The encoding that a Content-Encoding names; null for any other, and for several. */
export function encodingOf(header: string): Encoding | null {
  const name = header.trim().toLowerCase();
  const known = name === 'x-gzip' ? 'gzip' : name;
  return ENCODINGS.find((encoding) => encoding === known) ?? null;
}

export interface CompressedBodyReader {
  /** Called before anything is decompressed, with the result of {@link windowBytes}. @returns whether to continue */
  readonly onWindow: (bytes: number) => boolean;
  /** Called when compressed bytes were consumed: their memory is free. */
  readonly onTaken: (bytes: number) => void;
  /** Called with decompressed bytes, in order. */
  readonly onBytes: (bytes: Buffer) => void;
  /** Called at the end with null, or with a sentence that says what is wrong with the body. */
  readonly onEnd: (problem: string | null) => void;
}

const CHUNK_BYTES = 65_536;

/** The largest window of Zstandard, as a power of two: RFC 8878 asks decoders for 8 MiB, zlib's own limit is 128 MiB. */
const ZSTD_WINDOW_LOG = 23;

/**
 * Memory that a decoder keeps for references to earlier bytes, which counts like the body: up to 16 MiB. That of gzip and
 * deflate, 32 KiB, is not counted.
 * @param first the first byte of the body
 */
export function windowBytes(encoding: Encoding, first: number): number {
  if (encoding === 'zstd') return 2 ** ZSTD_WINDOW_LOG;
  return encoding === 'br' ? 2 ** brotliWindowLog(first) : 0;
}

/** WBITS, the first bits of a Brotli stream (RFC 7932, 9.1); the largest for what is none. @param byte the first of it */
function brotliWindowLog(byte: number): number {
  if ((byte & 1) === 0) return 16;
  const middle = (byte >> 1) & 7;
  if (middle !== 0) return 17 + middle;
  const high = (byte >> 4) & 7;
  if (high === 0) return 17;
  return high === 1 ? 24 : 8 + high;
}

/**
 * Decompresses off the event loop in chunks, so a decompression bomb is never in memory as a whole. Several members of gzip
 * are concatenated. Any other data after the end is refused, while zlib would ignore it.
 */
export class CompressedBody {
  readonly #encoding: Encoding;
  readonly #reader: CompressedBodyReader;
  /** Null before the first byte, which distinguishes the two forms of deflate. */
  #decoder: DecoderStream | null = null;
  readonly #frames: ZstdFrames | null;
  #sent = 0;
  #complete = false;
  #over = false;

  constructor(encoding: Encoding, reader: CompressedBodyReader) {
    this.#encoding = encoding;
    this.#reader = reader;
    this.#frames = encoding === 'zstd' ? new ZstdFrames() : null;
  }

  /** Consumes the next bytes. Their memory is only valid during the call. */
  write(bytes: Uint8Array, last: boolean): void {
    if (this.#over) return;
    if (last) this.#complete = true;
    if (bytes.byteLength === 0 && !last) return;
    if (this.#decoder === null) {
      const first = bytes[0] ?? 0;
      if (!this.#reader.onWindow(windowBytes(this.#encoding, first))) {
        this.#over = true;
        return;
      }
      this.#decoder = this.#open(first);
    }
    if (bytes.byteLength > 0) {
      this.#sent += bytes.byteLength;
      this.#frames?.push(bytes);
      this.#decoder.write(Buffer.from(bytes), () => {
        if (!this.#over) this.#reader.onTaken(bytes.byteLength);
      });
    }
    if (last) this.#decoder.end();
  }

  #open(first: number): DecoderStream {
    const name = NAMES[this.#encoding];
    const onError = (): void => this.#end(`The body is not valid ${name}, or is cut off.`);
    const decoder = openDecoder(this.#encoding, first, onError);
    decoder.on('data', (bytes: Buffer) => {
      if (!this.#over) this.#reader.onBytes(bytes);
    });
    decoder.on('end', () => {
      // Without any data zlib reports the end of an empty stream.
      if (this.#sent === 0) return onError();
      if (!this.#complete || decoder.bytesWritten !== this.#sent)
        return this.#end(`The ${name} body has data after its end.`);
      if (this.#frames?.isAtEnd === false) return onError();
      this.#end(null);
    });
    return decoder;
  }

  /** Stops decompressing, and continues. */
  pause(): void {
    this.#decoder?.pause();
  }

  resume(): void {
    this.#decoder?.resume();
  }

  /** Stops; the reader is not called any more. */
  stop(): void {
    this.#over = true;
    this.#decoder?.destroy();
  }

  #end(problem: string | null): void {
    if (this.#over) return;
    this.stop();
    this.#reader.onEnd(problem);
  }
}

const NAMES: Readonly<Record<Encoding, string>> = {
  gzip: 'gzip',
  deflate: 'deflate',
  br: 'Brotli',
  zstd: 'Zstandard',
};

type DecoderStream = Transform & { readonly bytesWritten: number };

/** What the types of the oldest supported Node lack. */
interface Zstandard {
  readonly constants: { readonly ZSTD_d_windowLogMax: number };
  createZstdDecompress(options: object): DecoderStream;
}

/** @param first the first byte of the body */
function openDecoder(encoding: Encoding, first: number, onError: () => void): DecoderStream {
  const options = { chunkSize: CHUNK_BYTES };
  switch (encoding) {
    case 'gzip': {
      const gunzip = zlib.createGunzip(options);
      gunzip.on('error', onError);
      return gunzip;
    }
    case 'deflate': {
      // RFC 9110 means zlib's format, whose first byte has the method 8; some clients send the bare one.
      const isBare = (first & 0x0f) !== 8;
      const inflate = isBare ? zlib.createInflateRaw(options) : zlib.createInflate(options);
      inflate.on('error', onError);
      return inflate;
    }
    case 'br': {
      const brotli = zlib.createBrotliDecompress(options);
      brotli.on('error', onError);
      return brotli;
    }
    case 'zstd': {
      const { constants, createZstdDecompress } = zlib as unknown as Zstandard;
      const params = { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG };
      const zstd = createZstdDecompress({ ...options, params });
      zstd.on('error', onError);
      return zstd;
    }
  }
}
