/** Segments that an ended process has left in a folder of the journal. */
import { join } from 'node:path';
import { OperatorError } from '../../errors.ts';
import { errorCode } from '../../storage/database/connect.ts';
import type { Entry, JournalFiles } from './files.ts';
import { readSegment } from './segment.ts';

export interface Leftover {
  readonly path: string;
  /** Bytes of its header and its complete records; of all that was written, where that is known. */
  readonly length: number;
  /** Bytes of an incomplete last record. */
  readonly tornBytes: number;
  /** Events that can be read. */
  readonly events: number;
  /** Events that were written; null if its process was killed before it could complete the file. */
  readonly written: number | null;
}

/** An entry that has the name of a file of the journal and is none. */
export interface Stranger {
  readonly path: string;
  readonly found: string;
}

export interface Leftovers {
  /** Oldest first. */
  readonly segments: readonly Leftover[];
  /** What was renamed to `.corrupt`, for the operator. */
  readonly strangers: readonly Stranger[];
  /** The highest number of a file in the folder, damaged ones included. */
  readonly lastNumber: number;
}

/** The number in the name is the order of the segments. */
const SEGMENT_NAME = /^\d{10}\.journal$/;
/** Far more than a segment has: its first 16 MiB, and what waited in memory then. */
const MOST_BYTES = 1_073_741_824;
/** A segment is renamed once its header is durable; before that nothing in it was acknowledged. */
const UNFINISHED_NAME = /^\d{10}\.new$/;

export function isSegment(name: string): boolean {
  return SEGMENT_NAME.test(name);
}

export function segmentNames(number: number): { readonly unfinished: string; readonly finished: string } {
  const digits = String(number).padStart(10, '0');
  return { unfinished: `${digits}.new`, finished: `${digits}.journal` };
}

/** @throws OperatorError if the name stands for something else than a folder: it would be followed, or waited for */
export async function requireFolder(files: JournalFiles, path: string): Promise<void> {
  const entry = await files.inspect(path).catch((error: unknown) => {
    // A file is in the place of a folder above it, which the creation of the folder names.
    if (errorCode(error) === 'ENOTDIR') return null;
    throw error;
  });
  if (entry === null || entry.kind === 'folder') return;
  throw new OperatorError(`JOURNAL_DIR: ${path} is ${nameOf(entry)}, not a folder: move it away`);
}

export function nameOf({ kind }: Entry): string {
  return kind === 'file' || kind === 'folder' ? `a ${kind}` : kind;
}

/**
 * The segments of a folder. Reads them to count their events: about a second per GiB. What is no file, or too large to be one of the
 * journal, is set aside: it must not end the start, nor be waited for.
 * @throws OperatorError if one belongs to another installation
 */
export async function leftoversOf(files: JournalFiles, folder: string, identity: string): Promise<Leftovers> {
  const names = (await files.list(folder)).sort();
  const strangers: Stranger[] = [];
  const found: string[] = [];
  for (const name of names.filter((one) => isSegment(one) || UNFINISHED_NAME.test(one))) {
    const path = join(folder, name);
    const entry = await files.inspect(path);
    if (entry === null) continue;
    const isFile = entry.kind === 'file';
    if (isFile && UNFINISHED_NAME.test(name)) await files.remove(path);
    else if (isFile && entry.size <= MOST_BYTES) found.push(name);
    else {
      await files.rename(path, `${path}.corrupt`).catch((error: unknown) => {
        throw unusable(path, `is ${nameOf(entry)} and cannot be renamed`, error);
      });
      strangers.push({ path, found: isFile ? `a file of ${entry.size} bytes` : nameOf(entry) });
    }
  }
  const segments: Leftover[] = [];
  for (const name of found)
    segments.push(await leftover(files, join(folder, name), identity, name === found.at(-1)));
  return {
    segments,
    strangers,
    lastNumber: Math.max(0, ...names.map((name) => Number(/^\d{10}(?=\.)/.exec(name)?.[0] ?? 0))),
  };
}

function unusable(path: string, what: string, cause: unknown): OperatorError {
  return new OperatorError(
    `JOURNAL_DIR: ${path} ${what} (${errorCode(cause)}): correct that, or move it away`,
    {
      cause,
    },
  );
}

async function leftover(
  files: JournalFiles,
  path: string,
  identity: string,
  isLast: boolean,
): Promise<Leftover> {
  const bytes = await files.read(path).catch((error: unknown) => {
    throw unusable(path, 'cannot be read', error);
  });
  const { header, end, events, tornBytes } = readSegment(bytes);
  if (header !== null && header.installation.identity !== identity && events > 0)
    throw new OperatorError(
      `JOURNAL_DIR: ${path} holds ${events} events of another database: start once with the DATABASE_URL or ` +
        'DATA_DIR that they belong to, or move the file away',
    );
  // What is missing of a complete file is damage.
  if (end !== null) return { path, length: end.length, tornBytes: 0, events, written: end.events };
  // Only the last segment can end in a torn write of a killed process: earlier ones were complete when the next was created.
  const torn = isLast ? tornBytes : 0;
  return { path, length: bytes.length - torn, tornBytes: torn, events, written: null };
}
