/** An import: reads lines, parses events and writes them in batches; reports each line that is refused. */
import { getOrCreateEventType, TypeCounts, tooManyTypes } from '../../apps/event-types.ts';
import { ownText } from '../../base/own-text.ts';
import { OperatorError } from '../../errors.ts';
import { beforeRetention, IN_THE_FUTURE } from '../../ingest/event-time.ts';
import { type Formulas, withoutEscape } from '../../read/export/csv-lines.ts';
import { isUnavailable, type Sql } from '../../storage/database/connect.ts';
import type { TextBytes } from '../../storage/write/copy-messages.ts';
import { type ImportedEvent, ImportGroup } from '../../storage/write/import-group.ts';
import type { ImportWriter, RefusedImport } from '../../storage/write/import-writer.ts';
import { CsvRecords } from './csv-records.ts';
import { type LineEvent, LineIds, parseImportLine, parseImportRecord } from './import-line.ts';
import { type LineBlock, readLines } from './input-lines.ts';

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
  /** How the file of CSV was written. */
  readonly formulas: Formulas;
  /** Connection for type lookups and for settling counts. */
  readonly sql: Sql;
  readonly writer: ImportWriter<ImportedEvent>;
  readonly app: { readonly id: number; readonly appId: string };
  readonly maxTypes: number;
  /** What the rules of a type leave of a payload. */
  readonly redacted: (typeId: number, payload: TextBytes) => TextBytes;
  readonly maxLineBytes: number;
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

/** Reads the whole input. While a group is being committed the next one is read. */
export async function importEvents(options: ImportOptions): Promise<ImportCounts> {
  const { source, format, app, maxLineBytes, now, onRefused, onBatch, writer } = options;
  const counts = { imported: 0, skipped: 0, failed: 0 };
  const types = new TypeIds(options);
  const ids = new LineIds(app.appId);

  const refuse = (refusal: Refusal): void => {
    counts.failed += 1;
    onRefused(refusal);
  };
  const store = async (ended: ImportGroup): Promise<void> => {
    const rows = ended.end();
    const outcome = await writer.write(ended.events, rows);
    counts.imported += outcome.imported;
    counts.skipped += outcome.skipped;
    for (const refused of outcome.refused) refuse(refusalOf(refused));
    ended.release();
    await onBatch(counts);
  };

  let group = new ImportGroup();
  let storing: Promise<void> = Promise.resolve();
  const flush = async (): Promise<void> => {
    await storing;
    storing = store(group);
    // The next await reports a failure; until then it must not be unhandled.
    storing.catch(() => undefined);
    group = new ImportGroup();
  };
  try {
    for await (const lines of readEvents(readLines(source, maxLineBytes, format !== 'csv'), options)) {
      for (const { number: line, event } of lines) {
        if (typeof event === 'string') {
          refuse({ line, reason: event });
          continue;
        }
        const { type, createdAt } = event;
        if (createdAt > now()) {
          refuse({ line, reason: `the field "createdAt" ${IN_THE_FUTURE}` });
          continue;
        }
        const typeId = types.known(type) ?? (await types.look(type));
        if (typeId === null) {
          refuse({ line, reason: types.tooMany });
          continue;
        }
        const payload = options.redacted(typeId, event.payload);
        // The id has a digest of what is stored, and of nothing that is not.
        const id = ids.of(payload === event.payload ? event : { ...event, payload });
        group.add({ appId: app.id, typeId, createdAt, line }, id, payload);
        if (group.isFull) await flush();
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
  blocks: AsyncIterable<LineBlock>,
  { format, formulas }: Pick<ImportOptions, 'format' | 'formulas'>,
): AsyncGenerator<Iterable<ReadLine>> {
  if (format === 'csv') yield* readCsv(blocks, formulas);
  else
    for await (const block of blocks) {
      if (block.number === 0 && ARRAY.test(block.characters))
        throw new OperatorError(
          "the file is a JSON array: write one object a line, such as with jq -c '.[]' FILE, and import that",
        );
      if (block.number === 0 && HEADER.test(block.characters))
        throw new OperatorError('the file is CSV: import it with --format csv');
      yield eventsOf(block);
    }
}

/** The bytes of a byte order mark, and white space, may come first. */
const ARRAY = /^(?:\u00ef\u00bb\u00bf)?\s*\[/;
/** The names of columns, as {@link readCsv} takes them, or the line before them. */
const HEADER = /^(?:\u00ef\u00bb\u00bf)?(?:sep=|[^{\n]*\bcreatedAt\b)/;

function* eventsOf(block: LineBlock): Generator<ReadLine> {
  while (block.next()) yield { number: block.number, event: block.problem || parseImportLine(block) };
}

const COLUMNS = ['type', 'createdAt', 'payload'];

/** @throws OperatorError where the first line does not name the columns */
async function* readCsv(
  blocks: AsyncIterable<LineBlock>,
  formulas: Formulas,
): AsyncGenerator<readonly ReadLine[]> {
  const textOf = formulas === 'escape' ? withoutEscape : (text: string) => text;
  const records = new CsvRecords();
  let columns: readonly string[] | null = null;
  for await (const block of blocks) {
    const read: ReadLine[] = [];
    while (block.next()) {
      const record = records.add(block);
      if (record === null) continue;
      const { number, fields, problem } = record;
      if (columns === null) columns = columnsOf(fields ?? []);
      else
        read.push({ number, event: fields === null ? problem : parseImportRecord(columns, fields, textOf) });
    }
    yield read;
  }
  const rest = records.end();
  if (rest !== null) yield [{ number: rest.number, event: rest.problem }];
}

function columnsOf(fields: readonly string[]): readonly string[] {
  const names = fields.includes('type')
    ? fields
    : fields.map((name) => (name === 'typeName' ? 'type' : name));
  if (COLUMNS.every((name) => names.includes(name))) return fields;
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
  #tooMany = '';

  constructor(options: ImportOptions) {
    this.#options = options;
  }

  /** @returns undefined for a type that has not been looked up */
  known(name: string): number | undefined {
    return this.#ids.get(name);
  }

  /** @returns null if there are too many types */
  async look(name: string): Promise<number | null> {
    const { sql, app, maxTypes } = this.#options;
    for (const deadline = performance.now() + TIMEOUT_MS; ; ) {
      try {
        const type = await getOrCreateEventType(sql, {
          appId: app.id,
          name,
          maxTypes,
          counts: this.#counts,
        });
        if (type === 'too-many') {
          this.#tooMany = await tooManyTypes(sql, app.id, maxTypes);
          return null;
        }
        // Not a part of the block that it was read from.
        this.#ids.set(ownText(name), type.id);
        return type.id;
      } catch (error) {
        if (!isUnavailable(error) || performance.now() > deadline) throw error;
      }
      await new Promise((resolve) => {
        setTimeout(resolve, RETRY_MS);
      });
    }
  }

  get tooMany(): string {
    return this.#tooMany;
  }
}
