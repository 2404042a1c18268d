/** What an earlier process has left in a folder of the journal. */
import { join } from 'node:path';
import { OperatorError } from '../../errors.ts';
import type { JournalFiles } from './files.ts';
import { readSegment } from './segment.ts';

export interface Leftover {
  readonly path: string;
  readonly sequence: number;
  readonly length: number;
  readonly events: number;
}

/** A segment's name holds its place in the order. */
export const SEGMENT_NAME = /^(\d{10})\.journal$/;

export function segmentName(sequence: number): string {
  return `${String(sequence).padStart(10, '0')}.journal`;
}

/**
 * The segments of a folder, oldest first. They are read to be counted: a GiB takes about a second.
 * @throws OperatorError where one belongs to another database
 */
export async function leftoversOf(
  files: JournalFiles,
  folder: string,
  database: string,
): Promise<Leftover[]> {
  const leftovers: Leftover[] = [];
  for (const name of (await files.list(folder)).sort()) {
    const sequence = SEGMENT_NAME.exec(name)?.[1];
    if (sequence === undefined) continue;
    const path = join(folder, name);
    const bytes = await files.read(path);
    const { header, events } = readSegment(bytes);
    if (header !== null && header.database !== database && events > 0)
      throw new OperatorError(
        `JOURNAL_DIR: ${path} holds ${events} events of another database: start once with the DATABASE_URL or ` +
          'DATA_DIR that they belong to, or move the file away',
      );
    leftovers.push({ path, sequence: Number(sequence), length: bytes.length, events });
  }
  return leftovers;
}
