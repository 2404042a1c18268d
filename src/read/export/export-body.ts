/** The body of an export: the parts of a reader, in a format, compressed where that is wanted. */
import { pipeline } from 'node:stream';
import { createGzip } from 'node:zlib';
import type { EventLines } from '../../storage/storage.ts';
import { CSV_HEADER, CsvLines, type Formulas } from './csv-lines.ts';

export const FORMATS = ['ndjson', 'csv'] as const;
export type ExportFormat = (typeof FORMATS)[number];

export const CONTENT_TYPES: Readonly<Record<ExportFormat, string>> = {
  ndjson: 'application/x-ndjson',
  csv: 'text/csv; charset=utf-8',
};

/** Parts in their format. Nothing is yielded for an empty one. @param formulas what becomes of formulas in CSV */
export async function* formatted(
  parts: AsyncIterable<EventLines>,
  format: ExportFormat,
  formulas: Formulas,
): AsyncGenerator<Buffer> {
  const csv = format === 'csv' ? new CsvLines(formulas) : null;
  if (csv !== null) yield Buffer.from(CSV_HEADER);
  for await (const { lines } of parts) if (lines.length > 0) yield csv === null ? lines : csv.convert(lines);
}

/** Half the time of the default level, for a fifth more bytes. */
const GZIP_LEVEL = 3;

/** One gzip stream, off the event loop. */
export function compressed(parts: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  const gzip = createGzip({ level: GZIP_LEVEL, chunkSize: 65_536 });
  // The stream reports the failure to its reader.
  pipeline(parts, gzip, () => undefined);
  return gzip;
}
