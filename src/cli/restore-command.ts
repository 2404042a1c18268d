/** `tidemark restore`: a backup into an empty database. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createGunzip } from 'node:zlib';
import { compareSecret, openSecret } from '../apps/secret.ts';
import { applyLedger } from '../erasure/erase.ts';
import { openCopyClient } from '../storage/database/copy-client.ts';
import { commandLog, formatFields, unreadable } from './output.ts';
import type { Command } from './session.ts';
import { BackupReader } from './transfer/backup-format.ts';
import { type Installation, withInstallation } from './transfer/installation.ts';
import { grouped, megabytes, Progress } from './transfer/progress.ts';
import { type RestoreCounts, restoreBackup } from './transfer/restore-backup.ts';

const HELP = `
The database must be empty, or just migrated; all of the backup comes into it, or nothing. Give the service the
SECRET of the installation that the backup was made of. What was erased since the backup is erased again, as far as
DATA_DIR tells of it.`;

const CHUNK_BYTES = 1_048_576;

interface RestoreResult extends RestoreCounts {
  readonly seconds: number;
  /** Erasures since the backup that were applied again. */
  readonly erasures: number;
  /** How the secret here compares with that of the backup. */
  readonly secret: Awaited<ReturnType<typeof compareSecret>>;
}

const SECRETS: Readonly<Record<RestoreResult['secret'], string>> = {
  same: 'matches the backup',
  unknown: 'the backup has none: any secret will do',
  missing: 'missing: restore it before the first start, or logging tokens cannot be shown',
  different: 'differs from the backup: restore that one, or logging tokens cannot be shown',
};

export function addRestoreCommand(program: Command): void {
  program
    .command('restore')
    .description('restore a backup into an empty database')
    .argument('<file>', 'the file; - reads standard input')
    .addHelpText('after', HELP)
    .answer(async (file: string) => {
      const { apps, events, seconds, erasures, secret } = await withInstallation(
        (installation) => runRestore(installation, file),
        { anySchema: true },
      );
      const fields = {
        Apps: grouped(apps),
        Events: grouped(events),
        Seconds: seconds.toFixed(1),
        ...(erasures > 0 && { 'Erased again': `${grouped(erasures)} erasures since the backup` }),
        Secret: SECRETS[secret],
      };
      return { json: { apps, events, seconds, erasures, secret }, text: formatFields(fields) };
    });
}

async function runRestore(
  { config, database, storage, sql }: Installation,
  file: string,
): Promise<RestoreResult> {
  const startedAt = performance.now();
  const size = file === '-' ? null : await sizeOf(file);
  const input = file === '-' ? process.stdin : createReadStream(file, { highWaterMark: CHUNK_BYTES });
  const gunzip = createGunzip({ chunkSize: CHUNK_BYTES });
  let bytes = 0;
  input.on('data', (chunk: Buffer | string) => {
    bytes += chunk.length;
  });
  input.on('error', (error: Error) => gunzip.destroy(error));
  // The reader of the stream receives the error; this handler covers an error before it reads.
  gunzip.on('error', () => undefined);
  input.pipe(gunzip);
  const progress = new Progress();
  const client = await openCopyClient(database, 'tidemark restore');
  try {
    const counts = await restoreBackup({
      reader: new BackupReader(gunzip),
      storage,
      client,
      sql,
      onProgress: () =>
        progress.update(() => ({
          fraction: size === null ? null : Math.min(1, bytes / size),
          text: `${megabytes(bytes)} of ${size === null ? 'standard input' : megabytes(size)}`,
        })),
    });
    progress.update(() => ({ fraction: 1, text: 'updating the counts' }));
    await storage.settleCounts(sql, Date.now());
    const secret = await compareSecret(sql, { configured: config.SECRET, dataDir: config.DATA_DIR });
    // Without its secret here the first start does it.
    const erasures = secret === 'missing' ? 0 : await eraseAgain({ config, database, storage, sql });
    return { ...counts, erasures, seconds: Math.round(performance.now() - startedAt) / 1_000, secret };
  } finally {
    progress.end();
    // Rolls back what is not committed.
    await client.end().catch(() => undefined); // The connection may already be broken.
    input.destroy();
    gunzip.destroy();
  }
}

/** Erases again what was erased since the backup. @returns how many erasures were applied */
async function eraseAgain({ config, storage, sql }: Installation): Promise<number> {
  const log = commandLog(config.LOG_LEVEL);
  const secret = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
  return await applyLedger({ sql, storage, secret, config, now: () => Date.now(), log });
}

async function sizeOf(file: string): Promise<number | null> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw unreadable(file, error);
  });
  return found.isFile() ? found.size : null;
}
