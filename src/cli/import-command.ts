/** `tidemark import`: events from a file of lines. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Option } from 'commander';
import { internalAppId } from '../accounts/people/members.ts';
import { listRedactions, Redaction } from '../apps/redaction.ts';
import { openSecret } from '../apps/secret.ts';
import { grouped as byKey } from '../base/grouped.ts';
import type { Config } from '../config.ts';
import { OperatorError } from '../errors.ts';
import { boundaryOf } from '../ingest/event-time.ts';
import { FORMULAS, type Formulas } from '../read/export/csv-lines.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { Database } from '../storage/database/database.ts';
import type { Engine } from '../storage/database/engine.ts';
import { ServerWatch } from '../storage/database/server-watch.ts';
import { judgedNow } from '../storage/maintenance/time-judge.ts';
import type { TextBytes } from '../storage/write/copy-messages.ts';
import type { ImportedEvent } from '../storage/write/import-group.ts';
import { ImportWriter } from '../storage/write/import-writer.ts';
import { formatFields, unreadable } from './output.ts';
import type { Command } from './session.ts';
import {
  IMPORT_FORMATS,
  type ImportCounts,
  type ImportFormat,
  importEvents,
  type Refusal,
} from './transfer/import-events.ts';
import type { Installation } from './transfer/installation.ts';
import { grouped, Progress } from './transfer/progress.ts';

const HELP = `
FILE has one JSON object a line: {"type": "name", "createdAt": "2026-01-31T08:30:00.123Z", "payload": {}}. typeName is
another name of type.
Lines that are no such event are named and left out. What was imported before is skipped, so that an import
may be run again. A file of "tidemark export" keeps its ids: what the app still has of it is skipped. With --format csv the
first line names the columns: type, createdAt, payload and, from an export, id. Exit code 0: every line is stored; 2: some lines were refused; 1: it could not finish.`;

/** Bytes of the file that are read at once: their lines are parsed before the database's next answer is heard. */
const CHUNK_BYTES = 131_072;
/** Number of refused lines that are listed; further ones are only counted. */
const NAMED_REFUSALS = 20;
const REFUSED_EXIT_CODE = 2;
const TIMEOUT_MS = 60_000;
/** Imported events between runs that settle the counts, to spread the work over a long import. */
const SETTLE_EVERY = 200_000;

interface ImportCommandOptions {
  readonly app: string;
  /** Absent: by the name of the file. */
  readonly format?: ImportFormat;
  readonly formulas: Formulas;
}

export function addImportCommand(program: Command): void {
  program
    .command('import')
    .description('import events from a file, one per line')
    .argument('<file>', 'the file; - reads standard input')
    .requiredOption('--app <id>', 'the app, app_…')
    .addOption(
      new Option(
        '--format <format>',
        'JSON lines or CSV; by default CSV where FILE ends in .csv or .tsv',
      ).choices(IMPORT_FORMATS),
    )
    .addOption(
      new Option(
        '--formulas <treatment>',
        'in CSV: take the apostrophe of an export off a type name, or keep it',
      )
        .choices(FORMULAS)
        .default('escape'),
    )
    .addHelpText('after', HELP)
    .run(async (session, file: string, options: ImportCommandOptions) => {
      const result = await runImport(session, file, options);
      const { imported, skipped, failed, seconds } = result;
      const fields = {
        Imported: grouped(imported),
        'Imported before': grouped(skipped),
        Refused: grouped(failed),
        Seconds: seconds.toFixed(1),
      };
      if (failed > 0) process.exitCode = REFUSED_EXIT_CODE;
      return { json: result, text: formatFields(fields) };
    });
}

/** The database, each of whose connections looks whether it has been left for another one. */
function watchedDatabase({ address }: Database, engine: Engine): Database {
  // A connection that is refused fails the import, which says why.
  const nothing = (): void => undefined;
  const log = { info: nothing, warn: nothing, error: nothing };
  return new ServerWatch(address, { log, engine, onMoved: nothing, onForeign: nothing }).database;
}

interface ImportSeconds {
  /** Until all events were stored. */
  readonly seconds: number;
  /** Until their counts were settled, too. */
  readonly settledSeconds: number;
}

async function runImport(
  { config, database, storage, sql }: Installation,
  file: string,
  { app: appId, format = /\.[ct]sv$/i.test(file) ? 'csv' : 'ndjson', formulas }: ImportCommandOptions,
): Promise<ImportCounts & ImportSeconds> {
  const id = await internalAppId(sql, appId);
  const input = await openInput(file);
  const startedAt = performance.now();
  const writer = new ImportWriter<ImportedEvent>({
    database: watchedDatabase(database, storage.engine),
    engine: storage.writes,
    appId: id,
    boundary: boundaryOf(config.RETENTION_DAYS, await judgedNow(sql)),
    timeoutMs: TIMEOUT_MS,
  });
  const progress = new Progress();
  const seconds = (): number => Math.round(performance.now() - startedAt) / 1_000;

  let refusals = 0;
  const onRefused = ({ line, reason }: Refusal): void => {
    refusals += 1;
    if (refusals <= NAMED_REFUSALS) progress.note(`line ${line}: ${reason}`);
  };
  let settledAt = 0;
  let settling: Promise<void> | null = null;
  const onBatch = async ({ imported, skipped, failed }: ImportCounts): Promise<void> => {
    const lines = imported + skipped + failed;
    progress.update(() => ({
      fraction: input.fraction(),
      text: `${grouped(lines)} lines, ${grouped(lines / seconds())} a second`,
    }));
    if (imported - settledAt < SETTLE_EVERY) return;
    settledAt = imported;
    await settling;
    settling = storage.settleBesideWriters(sql, Date.now());
    settling.catch(() => undefined); // It is awaited later.
  };
  try {
    const counts = await importEvents({
      source: input.source,
      format,
      formulas,
      sql,
      writer,
      app: { id, appId },
      maxTypes: config.MAX_EVENT_TYPES_PER_APP,
      redacted: await redactionOf(sql, config, appId),
      maxLineBytes: config.MAX_BODY_BYTES,
      now: Date.now,
      onRefused,
      onBatch,
    });
    const stored = { ...counts, seconds: seconds() };
    await settling;
    progress.update(() => ({ fraction: 1, text: 'updating the counts' }));
    await storage.settleCounts(sql, Date.now());
    return { ...stored, settledSeconds: seconds() };
  } finally {
    progress.end();
    if (refusals > NAMED_REFUSALS)
      progress.note(`${grouped(refusals - NAMED_REFUSALS)} more lines were refused`);
    await writer.close();
  }
}

/** Applies the rules of the app's types that there are when the import begins. */
async function redactionOf(
  sql: Sql,
  config: Config,
  appId: string,
): Promise<(typeId: number, payload: TextBytes) => TextBytes> {
  const rules = byKey(await listRedactions(sql, appId), ({ id }) => id);
  if (rules.size === 0) return (_, payload) => payload;
  const { redactionKey } = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
  const redactions = new Map([...rules].map(([typeId, some]) => [typeId, new Redaction(appId, some)]));
  return (typeId, payload) => {
    const redaction = redactions.get(typeId);
    if (redaction === undefined) return payload;
    const bytes = Buffer.from(
      redaction.apply(payload.bytes.toString('utf8', payload.start, payload.end), redactionKey),
    );
    return { bytes, start: 0, end: bytes.length };
  };
}

interface Input {
  readonly source: AsyncIterable<Buffer>;
  /** The fraction of the input that has been read, from 0 to 1; null if its size is unknown. */
  readonly fraction: () => number | null;
}

async function openInput(file: string): Promise<Input> {
  if (file === '-') return { source: process.stdin, fraction: () => null };
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw unreadable(file, error);
  });
  if (found.isDirectory()) throw new OperatorError(`${file} is a directory: specify a file`);
  const stream = createReadStream(file, { highWaterMark: CHUNK_BYTES });
  stream.on('error', () => undefined); // Whoever reads it throws it.
  return {
    source: stream,
    fraction: () => (found.isFile() ? Math.min(1, stream.bytesRead / found.size) : null),
  };
}
