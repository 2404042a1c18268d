/** `tidemark backup`: the whole installation in one file. */
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Command } from 'commander';
import { secretFile } from '../apps/secret.ts';
import { openCopyClient } from '../storage/copy-client.ts';
import { formatFields } from './output.ts';
import { type Installation, withInstallation } from './transfer/installation.ts';
import { outputOf } from './transfer/output-file.ts';
import { grouped, megabytes, Progress } from './transfer/progress.ts';
import { type BackupCounts, writeBackup } from './transfer/write-backup.ts';

const HELP = `
The backup is one moment of the database, while the service goes on. It holds password hashes and tokens: keep
it as safe as the database. It does not hold SECRET, without which logging tokens cannot be shown again: the answer
names what else to keep. "tidemark restore" takes it on every engine.`;

/** A third larger than with the default of 6, in half the time. */
const GZIP_LEVEL = 3;

interface BackupResult {
  readonly events: number;
  /** Size of the file. */
  readonly bytes: number;
  readonly seconds: number;
  /** What a restore also needs: the file with the secret, or the setting. */
  readonly keepToo: string;
}

export function addBackupCommand(program: Command): void {
  program
    .command('backup')
    .description('write the whole installation to one file')
    .argument(
      '<file>',
      'the file, which is replaced when the backup is complete, or a pipe or device; - writes standard output',
    )
    .option('--json', 'print one JSON object')
    .addHelpText('after', HELP)
    .action(async (file: string, options: { json?: true }) => {
      const result = await withInstallation((installation) => runBackup(installation, file));
      const { events, bytes, seconds, keepToo } = result;
      const fields = {
        Events: grouped(events),
        Size: megabytes(bytes),
        Seconds: seconds.toFixed(1),
        'Also keep': `${keepToo}, without which logging tokens cannot be shown`,
      };
      const answer = options.json === true ? JSON.stringify(result) : formatFields(fields);
      // Standard output may be the backup itself.
      (file === '-' ? process.stderr : process.stdout).write(`${answer}\n`);
    });
}

async function runBackup({ config, address, storage }: Installation, file: string): Promise<BackupResult> {
  const output = file === '-' ? null : await outputOf(file);
  const startedAt = performance.now();
  const progress = new Progress(process.stderr, () => performance.now());
  const client = await openCopyClient(address, 'tidemark backup');
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
    counts = yield* writeBackup({ storage, client, address, now: Date.now(), onProgress });
  }
  try {
    if (output === null) await pipeline(parts, gzip, process.stdout, { end: false });
    else await output((stream) => pipeline(parts, gzip, stream));
    const seconds = Math.round(performance.now() - startedAt) / 1_000;
    const keepToo = config.SECRET === '' ? secretFile(config.DATA_DIR) : 'SECRET';
    return { events: counts.events, bytes, seconds, keepToo };
  } finally {
    progress.end();
    await client.end().catch(() => undefined); // The connection may already be broken.
  }
}
