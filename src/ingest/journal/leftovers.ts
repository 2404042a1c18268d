/** Segments that an ended process has left in a folder of the journal. */
import { join } from 'node:path';
import { OperatorError } from '../../errors.ts';
import type { JournalFiles } from './files.ts';
import { isOldFormat, readSegment } from './segment.ts';

export interface Leftover {
  readonly path: string;
  /** Bytes of its header and its complete records. */
  readonly length: number;
  /** Bytes of an incomplete last record. */
  readonly tornBytes: number;
  readonly events: number;
}

export interface Leftovers {
  /** Oldest first. */
  readonly segments: readonly Leftover[];
  /** The highest number of a file in the folder, damaged ones included. */
  readonly lastNumber: number;
}

/** The number in the name is the order of the segments. */
const SEGMENT_NAME = /^\d{10}\.journal$/;
/** A segment is renamed once its header is durable; before that nothing in it was acknowledged. */
const UNFINISHED_NAME = /^\d{10}\.new$/;

export function isSegment(name: string): boolean {
  return SEGMENT_NAME.test(name);
}

export function segmentNames(number: number): { readonly unfinished: string; readonly finished: string } {
  const digits = String(number).padStart(10, '0');
  return { unfinished: `${digits}.new`, finished: `${digits}.journal` };
}

/**
 * The segments of a folder. Reads them to count their events: about a second per GiB.
 * @throws OperatorError if one belongs to another installation or has an earlier format
 */
export async function leftoversOf(files: JournalFiles, folder: string, identity: string): Promise<Leftovers> {
  const names = (await files.list(folder)).sort();
  for (const name of names) if (UNFINISHED_NAME.test(name)) await files.remove(join(folder, name));
  const found = names.filter(isSegment);
  const segments: Leftover[] = [];
  for (const name of found)
    segments.push(await leftover(files, join(folder, name), identity, name === found.at(-1)));
  return {
    segments,
    lastNumber: Math.max(0, ...names.map((name) => Number(/^\d{10}(?=\.)/.exec(name)?.[0] ?? 0))),
  };
}

async function leftover(
  files: JournalFiles,
  path: string,
  identity: string,
  isLast: boolean,
): Promise<Leftover> {
  const bytes = await files.read(path);
  if (isOldFormat(bytes))
    throw new OperatorError(
      `JOURNAL_DIR: ${path} was written by an earlier version of Tidemark: start that version once, which stores its ` +
        'events, then this one',
    );
  const { header, events, tornBytes } = readSegment(bytes);
  if (header !== null && header.installation.identity !== identity && events > 0)
    throw new OperatorError(
      `JOURNAL_DIR: ${path} holds ${events} events of another database: start once with the DATABASE_URL or ` +
        'DATA_DIR that they belong to, or move the file away',
    );
  // Only the last segment can end in a torn write of a killed process: earlier ones were complete when the next was created.
  const torn = isLast ? tornBytes : 0;
  return { path, length: bytes.length - torn, tornBytes: torn, events };
}
