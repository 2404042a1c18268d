/** The body of an export: the parts of a reader, in a format, compressed where that is wanted. */
import { pipeline } from 'node:stream';
import { createGzip } from 'node:zlib';
import { TimeSlice } from '../../base/time-slice.ts';
import type { Path } from '../../base/turns.ts';
import type { EventLines } from '../../storage/read/event-lines.ts';
import { type CsvForm, CsvLines, type FieldColumn } from './csv-lines.ts';

export const FORMATS = ['ndjson', 'csv'] as const;
export type ExportFormat = (typeof FORMATS)[number];

export const CONTENT_TYPES: Readonly<Record<ExportFormat, string>> = {
  ndjson: 'application/x-ndjson',
  csv: 'text/csv; charset=utf-8',
};

export interface Formatting extends CsvForm {
  readonly format: ExportFormat;
  /** Fields of payloads with columns of their own in CSV. */
  readonly column?: readonly FieldColumn[];
  /** Whose computation it is. */
  readonly holder?: Path;
}

/** Parts in their format. Nothing is yielded for an empty one. */
export async function* formatted(
  parts: AsyncIterable<EventLines>,
  { format, column, holder, ...form }: Formatting,
): AsyncGenerator<Buffer> {
  const csv = format === 'csv' ? new CsvLines(form, column) : null;
  if (csv !== null) yield Buffer.from(csv.header);
  const slice = new TimeSlice(holder);
  try {
    for await (const { lines } of parts)
      if (lines.length > 0) yield csv === null ? lines : await csv.convert(lines, slice);
  } finally {
    csv?.release();
  }
}

const MOST_OF_NAME = 80;

/**
 * The header of a file named after an app and the days of a range, in UTC or on the clock of a time zone.
 * @param until exclusive
 */
export function attachment(
  app: string,
  {
    from,
    until,
    timezone,
    format,
  }: { from: number | null; until: number; timezone: string; format: ExportFormat },
): string {
  const day = (at: number): string =>
    new Intl.DateTimeFormat('sv-SE', { timeZone: timezone, dateStyle: 'short' }).format(at);
  const days = [...new Set([...(from === null ? ['until'] : [day(from)]), day(until - 1)])].join('_');
  // No file system takes these, and marks of direction could make another ending of the name.
  const plain = [...app.replace(/[\p{C}\\/:*?"<>|]+/gu, '-')].slice(0, MOST_OF_NAME).join('');
  const ascii = app
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .replace(/\W+/g, '-')
    .replace(/^-|-$/g, '')
    .slice(0, MOST_OF_NAME);
  const ending = `_${days}.${format}`;
  const encoded = encodeURIComponent(plain + ending).replace(
    /['()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  // RFC 6266: the second is for whoever reads it, the first for all others.
  return `attachment; filename="${ascii || 'events'}${ending}"; filename*=UTF-8''${encoded}`;
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
