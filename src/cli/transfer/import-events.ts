/** An import: reads lines, parses events and writes them in batches; reports each line that is refused. */
import { getOrCreateEventType, TypeCounts } from '../../apps/event-types.ts';
import { OperatorError } from '../../errors.ts';
import { beforeRetention, IN_THE_FUTURE } from '../../ingest/event-time.ts';
import { isUnavailable, type Sql } from '../../storage/connect.ts';
import type { EventRow } from '../../storage/write/accepted-event.ts';
import type { ImportWriter, RefusedImport } from '../../storage/write/import-writer.ts';
import { CsvRecords } from './csv-records.ts';
import { digestOf, importedId, type LineEvent, parseImportLine, parseImportRecord } from './import-line.ts';
import { type InputLine, readLines } from './input-lines.ts';
import { Occurrences } from './occurrences.ts';

/** An event with the number of its line. */
export interface ImportedEvent extends EventRow {
  readonly line: number;
}

/** A line that is not stored, and why. */
export interface Refusal {
  readonly line: number;
  readonly reason: string;
}

export const IMPORT_FORMATS = ['ndjson', 'csv'] as const;
export type ImportFormat = (typeof IMPORT_FORMATS)[number];

export interface ImportOptions {
  readonly source: AsyncIterable<Buffer>;
  readonly format: ImportFormat;
  /** Connection for type lookups and for settling counts. */
  readonly sql: Sql;
  readonly writer: ImportWriter<ImportedEvent>;
  readonly app: { readonly id: number; readonly appId: string };
  readonly maxTypes: number;
  /** Longest line. */
  readonly maxLineBytes: number;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
  /** Called with the refused lines of each batch. */
  readonly onRefused: (refusal: Refusal) => void;
  /** Called after each batch. @param counts so far */
  readonly onBatch: (counts: ImportCounts) => Promise<void> | void;
}

export interface ImportCounts {
  readonly imported: number;
  /** Events that an earlier import stored. */
  readonly skipped: number;
  readonly failed: number;
}

/** Batch size: larger batches are no faster. */
const BATCH_EVENTS = 10_000;
const BATCH_UNITS = 4 * 1_048_576;

/** A line's event with its id. */
interface Waiting {
  readonly event: LineEvent;
  readonly id: string;
  readonly line: number;
}

/** Reads the whole input. While a batch is being committed the next one is read. */
export async function importEvents(options: ImportOptions): Promise<ImportCounts> {
  const { source, app, maxLineBytes, now, onRefused, onBatch } = options;
  const counts = { imported: 0, skipped: 0, failed: 0 };
  const types = new TypeIds(options);
  const occurrences = new Occurrences();

  const refuse = (refusal: Refusal): void => {
    counts.failed += 1;
    onRefused(refusal);
  };
  const identify = (event: LineEvent): string => {
    if (event.id !== null) return event.id;
    const digest = digestOf(app.appId, event);
    return importedId(event.createdAt, digest, occurrences.count(event.createdAt, digest));
  };
  const accept = ({ number, event }: ReadLine): Waiting | null => {
    if (typeof event === 'string') {
      refuse({ line: number, reason: event });
      return null;
    }
    const id = identify(event);
    if (event.createdAt <= now()) return { event, id, line: number };
    refuse({ line: number, reason: `the field "createdAt" ${IN_THE_FUTURE}` });
    return null;
  };
  const store = async (lines: readonly Waiting[]): Promise<void> => {
    const { events, refused } = await types.resolve(lines);
    const outcome = await options.writer.write(events);
    counts.imported += outcome.imported;
    counts.skipped += outcome.skipped;
    for (const refusal of [...refused, ...outcome.refused.map(refusalOf)]) refuse(refusal);
    await onBatch(counts);
  };

  let batch: Waiting[] = [];
  let units = 0;
  let storing: Promise<void> = Promise.resolve();
  const flush = async (): Promise<void> => {
    await storing;
    storing = store(batch);
    // The next await reports a failure; until then it must not be unhandled.
    storing.catch(() => undefined);
    batch = [];
    units = 0;
  };
  try {
    for await (const lines of readEvents(readLines(source, maxLineBytes), options.format)) {
      for (const line of lines) {
        const accepted = accept(line);
        if (accepted === null) continue;
        batch.push(accepted);
        units += accepted.event.payload.length;
        if (batch.length >= BATCH_EVENTS || units >= BATCH_UNITS) await flush();
      }
    }
    await flush();
    await storing;
  } finally {
    await storing.catch(() => undefined);
  }
  return counts;
}

/** A line, or a record of several, with its event or its problem. */
interface ReadLine {
  readonly number: number;
  readonly event: LineEvent | string;
}

async function* readEvents(
  blocks: AsyncIterable<readonly InputLine[]>,
  format: ImportFormat,
): AsyncGenerator<readonly ReadLine[]> {
  if (format === 'csv') {
    yield* readCsv(blocks);
    return;
  }
  for await (const lines of blocks)
    yield lines.map(({ number, text, problem }) => ({
      number,
      event: text === null ? problem : parseImportLine(text),
    }));
}

const COLUMNS = ['type', 'createdAt', 'payload'];

/** @throws OperatorError where the first line does not name the columns */
async function* readCsv(blocks: AsyncIterable<readonly InputLine[]>): AsyncGenerator<readonly ReadLine[]> {
  const records = new CsvRecords();
  let columns: readonly string[] | null = null;
  for await (const lines of blocks) {
    const read: ReadLine[] = [];
    for (const line of lines) {
      const record = records.add(line);
      if (record === null) continue;
      const { number, fields, problem } = record;
      if (columns === null) columns = columnsOf(fields ?? []);
      else read.push({ number, event: fields === null ? problem : parseImportRecord(columns, fields) });
    }
    yield read;
  }
  const rest = records.end();
  if (rest !== null) yield [{ number: rest.number, event: rest.problem }];
}

function columnsOf(fields: readonly string[]): readonly string[] {
  if (COLUMNS.every((name) => fields.includes(name))) return fields;
  throw new OperatorError(
    `the first line must name the columns, among them ${COLUMNS.join(', ')}: a file of JSON lines has --format ndjson`,
  );
}

function refusalOf({ event, reason }: RefusedImport<ImportedEvent>): Refusal {
  const text =
    'boundary' in reason
      ? `the field "createdAt" ${beforeRetention(reason.boundary)}`
      : `the database refuses it (${reason.message})`;
  return { line: event.line, reason: text };
}

const TIMEOUT_MS = 60_000;
const RETRY_MS = 250;

/** Maps type names to internal ids; missing types are created. */
class TypeIds {
  readonly #options: ImportOptions;
  readonly #ids = new Map<string, number>();
  readonly #counts = new TypeCounts();

  constructor(options: ImportOptions) {
    this.#options = options;
  }

  async resolve(lines: readonly Waiting[]): Promise<{ events: ImportedEvent[]; refused: Refusal[] }> {
    const refused: Refusal[] = [];
    const events: ImportedEvent[] = [];
    for (const { event, id, line } of lines) {
      const { type, createdAt, payload } = event;
      const typeId = this.#ids.get(type) ?? (await this.#look(type));
      if (typeId === null) refused.push({ line, reason: this.#tooMany() });
      else events.push({ id, appId: this.#options.app.id, typeId, createdAt, payload, line });
    }
    return { events, refused };
  }

  async #look(name: string): Promise<number | null> {
    const { sql, app, maxTypes } = this.#options;
    for (const deadline = performance.now() + TIMEOUT_MS; ; ) {
      try {
        const type = await getOrCreateEventType(sql, {
          appId: app.id,
          name,
          maxTypes,
          counts: this.#counts,
        });
        if (type === 'too-many') return null;
        this.#ids.set(name, type.id);
        return type.id;
      } catch (error) {
        if (!isUnavailable(error) || performance.now() > deadline) throw error;
      }
      await new Promise((resolve) => {
        setTimeout(resolve, RETRY_MS);
      });
    }
  }

  #tooMany(): string {
    return `the app has as many event types as it may have, ${this.#options.maxTypes} (MAX_EVENT_TYPES_PER_APP)`;
  }
}
