/** Bytes that a sender has sent faster than they are taken: in a file without a name, which ends with its process. */

import { randomUUID } from 'node:crypto';
import { closeSync, openSync, read as readFile, unlinkSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Limit of all spools of the process. */
const MAX_BYTES = 1_073_741_824;
/** Limits while the sender of a body is not known yet: of all spools, and of its own. */
const UNPROVEN_BYTES = MAX_BYTES / 8;
const UNPROVEN_BYTES_OF_ONE = 32 * 1_048_576;
const READ_BYTES = 524_288;

const readAt = promisify(readFile);

let allBytes = 0;

/** Bytes in all spools of the process now. */
export function spooledBytes(): number {
  return allBytes;
}

export class Spool {
  #file: number | null = null;
  #written = 0;
  #taken = 0;
  #isReading = false;
  #isClosed = false;

  get isEmpty(): boolean {
    return this.#taken === this.#written;
  }

  /**
   * Appends bytes. Synchronous, because uWebSockets.js reads on until the system has no more.
   * @param isProven whether the sender is known
   * @returns false if there is no room for them
   */
  append(bytes: Uint8Array, isProven: boolean): boolean {
    const { byteLength } = bytes;
    if (this.#isClosed || allBytes + byteLength > (isProven ? MAX_BYTES : UNPROVEN_BYTES)) return false;
    if (!isProven && this.#written + byteLength > UNPROVEN_BYTES_OF_ONE) return false;
    try {
      this.#file ??= openNameless();
      for (let done = 0; done < bytes.byteLength; )
        done += writeSync(this.#file, bytes, done, bytes.byteLength - done, this.#written + done);
    } catch {
      return false; // The disk is full, or the folder cannot be written to: there is no room.
    }
    this.#written += bytes.byteLength;
    allBytes += bytes.byteLength;
    return true;
  }

  /** The next bytes; empty after {@link close}. */
  async next(): Promise<Buffer> {
    const file = this.#file;
    if (file === null) return NOTHING;
    const buffer = Buffer.allocUnsafeSlow(Math.min(READ_BYTES, this.#written - this.#taken));
    this.#isReading = true;
    const { bytesRead } = await readAt(file, buffer, 0, buffer.length, this.#taken).finally(() => {
      this.#isReading = false;
      if (this.#isClosed) this.#closeFile();
    });
    if (this.#isClosed) return NOTHING;
    this.#taken += bytesRead;
    // From its start again: what was taken needs no room.
    if (this.isEmpty) this.#forget();
    return buffer.subarray(0, bytesRead);
  }

  close(): void {
    this.#isClosed = true;
    this.#forget();
    if (!this.#isReading) this.#closeFile();
  }

  #forget(): void {
    allBytes -= this.#written;
    this.#written = 0;
    this.#taken = 0;
  }

  #closeFile(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}

const NOTHING = Buffer.alloc(0);

function openNameless(): number {
  const path = join(tmpdir(), `tidemark-${randomUUID()}`);
  const file = openSync(path, 'wx+', 0o600);
  unlinkSync(path);
  return file;
}
