/**
 * The format of a backup: one gzip stream of lines.
 *
 * A header, a line of JSON. Then sections: a line of JSON that says what follows, rows in COPY's text format, and a line
 * of `\.`, which no row can be. At last a trailer, a line of JSON with the number of rows and the SHA-256 of all before it.
 */
import { createHash, type Hash } from 'node:crypto';
import { OperatorError } from '../../errors.ts';
import type { RowSection, SequenceValue } from '../../storage/backup/catalog.ts';

export const FORMAT_VERSION = 1;

export interface BackupHeader {
  readonly tidemark: 'backup';
  readonly format: number;
  /** Number of the last applied migration. */
  readonly schema: number;
  readonly engine: string;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly sequences: readonly SequenceValue[];
}

export type BackupSection = RowSection;

export interface BackupTrailer {
  readonly section: 'end';
  /** Total of all sections. */
  readonly rows: number;
  readonly sha256: string;
}

/** Marks the end of a section's rows. */
export const END_OF_ROWS = '\\.\n';

const NEWLINE = 0x0a;
const END_MARK = Buffer.from(`\n${END_OF_ROWS}`);
/** Longest accepted line of JSON. */
const LONGEST_LINE = 1_048_576;

export function damaged(what: string): OperatorError {
  return new OperatorError(`the backup is cut off or damaged (${what}): nothing was restored`);
}

/** Reads a backup from its uncompressed bytes, section by section. */
export class BackupReader {
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #hash: Hash = createHash('sha256');
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** @throws OperatorError where this is no backup, or one of a newer format */
  async header(): Promise<BackupHeader> {
    const header = parse(await this.#line('its header'));
    if (header.tidemark !== 'backup')
      throw new OperatorError('the file is not a backup made by "tidemark backup"');
    if (header.format !== FORMAT_VERSION)
      throw new OperatorError(
        `the backup has the format ${String(header.format)}, which this release of Tidemark does not know: use a newer one`,
      );
    const { schema, sequences } = header;
    if (typeof schema !== 'number' || !Array.isArray(sequences)) throw damaged('its header is incomplete');
    // The backup is written by this software, and the checksum detects damage before the commit.
    return header as unknown as BackupHeader;
  }

  /** The next section; read its rows to the end before the next call. Null after the last one. */
  async next(): Promise<{ section: BackupSection } | { trailer: BackupTrailer }> {
    const before = this.#hash.copy();
    const section = parse(await this.#line('the head of a section'));
    if (section.section !== 'end') return { section: section as unknown as BackupSection };
    const trailer = section as unknown as BackupTrailer;
    if (before.digest('hex') !== trailer.sha256) throw damaged('its checksum does not match');
    if (this.#rest.length > 0 || (await this.#more())) throw damaged('it has data after its end');
    return { trailer };
  }

  /** The rows of a section. */
  async *rows(): AsyncGenerator<Buffer> {
    // Prepend a newline, so that the end mark is also found before the first row.
    let held: Buffer = Buffer.from([NEWLINE]);
    let isFirst = true;
    for (;;) {
      const block = Buffer.concat([held, this.#rest]);
      const end = block.indexOf(END_MARK);
      // The mark may be split at the end of the block.
      const until = end === -1 ? Math.max(0, block.length - END_MARK.length + 1) : end + 1;
      const from = isFirst ? Math.min(1, until) : 0;
      if (until > from) yield this.#hashed(block.subarray(from, until));
      if (until > 0) isFirst = false;
      if (end !== -1) {
        this.#hash.update(END_OF_ROWS);
        this.#rest = block.subarray(end + END_MARK.length);
        return;
      }
      held = block.subarray(until);
      if (!(await this.#more())) throw damaged('it ends among rows');
    }
  }

  async #line(what: string): Promise<string> {
    let block = this.#rest;
    for (;;) {
      const end = block.indexOf(NEWLINE);
      if (end !== -1) {
        this.#rest = block.subarray(end + 1);
        return this.#hashed(block.subarray(0, end + 1)).toString('utf8', 0, end);
      }
      if (block.length > LONGEST_LINE) throw damaged(`${what} has no end`);
      if (!(await this.#more())) throw damaged(`it ends before ${what}`);
      block = Buffer.concat([block, this.#rest]);
    }
  }

  /** Reads the next block into the rest. @returns false at the end */
  async #more(): Promise<boolean> {
    try {
      const next = await this.#chunks.next();
      if (next.done === true) return false;
      this.#rest = next.value;
      return true;
    } catch (error) {
      if (isOfGzip(error)) throw damaged(error.message);
      throw error;
    }
  }

  #hashed(bytes: Buffer): Buffer {
    this.#hash.update(bytes);
    return bytes;
  }
}

function parse(line: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === 'object' && value !== null) return { ...value };
  } catch {
    // Reported below.
  }
  throw damaged('a header line is not valid JSON');
}

/** zlib's errors: Z_DATA_ERROR, Z_BUF_ERROR ("unexpected end of file"). */
function isOfGzip(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && String(error.code).startsWith('Z_');
}
