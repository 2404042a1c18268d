/** `tidemark backup`: the whole installation in one file. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { secretFile } from '../apps/secret.ts';
import { OperatorError } from '../errors.ts';
import { openCopyClient } from '../storage/database/copy-client.ts';
import { countDaysAway } from '../storage/maintenance/days-away.ts';
import { besideOutput, formatFields } from './output.ts';
import type { Command } from './session.ts';
import { BackupReader } from './transfer/backup-format.ts';
import type { Installation } from './transfer/installation.ts';
import { outputOf } from './transfer/output-file.ts';
import { grouped, megabytes, Progress } from './transfer/progress.ts';
import { type BackupCounts, writeBackup } from './transfer/write-backup.ts';

const HELP = `
The backup is one moment of the database, while the service goes on. It holds password hashes and tokens: keep
it as safe as the database. It does not hold SECRET, without which logging tokens cannot be shown again: the answer
names what else to keep. "tidemark restore" takes it on every engine. It is written beside the file and replaces it at
the end, but no file that has more events: that may be a backup of another database. Where RETENTION_DAYS removes events,
write each backup to a file of its own, or give --force.`;

/** A third larger than with the default of 6, in half the time. */
const GZIP_LEVEL = 3;
const LINE_FEED = 0x0a;

interface BackupResult {
  readonly events: number;
  /** Size of the file. */
  readonly bytes: number;
  readonly seconds: number;
  /** What a restore also needs: the file with the secret, or the setting. */
  readonly keepToo: string;
  /** Days of apps whose events are in the archive alone, and not in the backup. Absent: none. */
  readonly daysInArchive?: number;
}

export function addBackupCommand(program: Command): void {
  program
    .command('backup')
    .description('write the whole installation to one file')
    .argument(
      '<file>',
      'the file, which is replaced when the backup is complete, or a pipe or device; - writes standard output',
    )
    .option('--force', 'also replace a file that has more events, or is no backup')
    .addHelpText('after', HELP)
    .run(async (session, file: string, options: { force?: true }) => {
      const result = await runBackup(session, file, options);
      const { events, bytes, seconds, keepToo, daysInArchive = 0 } = result;
      const fields = {
        Events: grouped(events),
        Size: megabytes(bytes),
        Seconds: seconds.toFixed(1),
        'Also keep': `${keepToo}, without which logging tokens cannot be shown`,
        ...(daysInArchive > 0 && {
          'In the archive': `${grouped(daysInArchive)} days, whose events are not in the backup: keep the archive`,
        }),
      };
      return { json: result, text: formatFields(fields), output: besideOutput(file) };
    });
}

async function runBackup(
  { config, database, storage, sql }: Installation,
  file: string,
  { force }: { readonly force?: true },
): Promise<BackupResult> {
  const mayReplace = async (path: string): Promise<void> => {
    if (force !== true) await refuseLoss(path, counts.events);
  };
  const output = file === '-' ? null : await outputOf(file, mayReplace);
  const startedAt = performance.now();
  const progress = new Progress();
  const client = await openCopyClient(database, 'tidemark backup');
  const gzip = createGzip({ level: GZIP_LEVEL });
  let bytes = 0;
  let counts: BackupCounts = { events: 0, rows: 0 };
  gzip.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  gzip.pause();
  const onProgress = (sofar: BackupCounts, total: number): void =>
    progress.update(() => ({
      fraction: total === 0 ? null : Math.min(1, sofar.events / total),
      text: `${grouped(sofar.events)} of ${grouped(total)} events, ${megabytes(bytes)}`,
    }));
  async function* parts(): AsyncGenerator<Buffer> {
    counts = yield* writeBackup({ storage, client, database, now: Date.now(), onProgress });
  }
  try {
    if (output === null) await pipeline(parts, gzip, process.stdout, { end: false });
    else await output((stream) => pipeline(parts, gzip, stream));
    const seconds = Math.round(performance.now() - startedAt) / 1_000;
    const keepToo = config.SECRET === '' ? secretFile(config.DATA_DIR) : 'SECRET';
    const daysInArchive = await countDaysAway(sql);
    return {
      ...{ events: counts.events, bytes, seconds, keepToo },
      ...(daysInArchive > 0 && { daysInArchive }),
    };
  } finally {
    progress.end();
    await client.end().catch(() => undefined); // The connection may already be broken.
  }
}

/** @throws OperatorError where an existing file has more events than the new backup, or is none of ours */
async function refuseLoss(path: string, events: number): Promise<void> {
  const { size } = await stat(path);
  if (size === 0) return;
  const there = await countEvents(path);
  if (there !== null && there <= events) return;
  const what =
    there === null ? 'is no backup' : `has ${grouped(there)} events, and this database ${grouped(events)}`;
  throw new OperatorError(
    `${path} ${what}, so it was not replaced: check DATA_DIR and DATABASE_URL, name another file, or give --force`,
  );
}

/** The events of a backup, of a damaged one as far as it can be read; null where the file is none. */
async function countEvents(path: string): Promise<number | null> {
  const file = createReadStream(path);
  const gunzip = createGunzip();
  file.on('error', (error) => gunzip.destroy(error));
  // The reader of the stream receives the error; this handler covers an error before it reads.
  gunzip.on('error', () => undefined);
  const reader = new BackupReader(file.pipe(gunzip));
  let events: number | null = null;
  try {
    await reader.header();
    events = 0;
    for (let next = await reader.next(); 'section' in next; next = await reader.next()) {
      const isEvents = next.section.section === 'events';
      for await (const rows of reader.rows()) if (isEvents) events += countLines(rows);
    }
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
  } finally {
    file.destroy();
    gunzip.destroy();
  }
  return events;
}

function countLines(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1)) lines += 1;
  return lines;
}
