/** `tidemark audit export`: the audit log in a file of lines. */
import { pipeline } from 'node:stream/promises';
import { InvalidArgumentError } from 'commander';
import { auditHorizon, auditLines } from '../accounts/log/audit-export.ts';
import { internalAppId } from '../accounts/people/members.ts';
import { OperatorError } from '../errors.ts';
import { checkRange, parseInstant } from './duration.ts';
import { besideOutput, formatFields } from './output.ts';
import type { Command } from './session.ts';
import type { Installation } from './transfer/installation.ts';
import { outputOf } from './transfer/output-file.ts';
import { grouped } from './transfer/progress.ts';

const HELP = `
One entry a line, in the order of "entryId", with the app or the account that was changed, who changed it and how. Without
--app the entries of all apps and accounts are exported. The order is stable, and no entry appears before an exported one
later: --after with the last entryId of an earlier export continues it. Entries that are written meanwhile belong to the next
export.`;

interface AuditExportOptions {
  readonly app?: string;
  readonly from?: number;
  readonly to?: number;
  readonly after?: number;
}

interface AuditExportResult {
  readonly entries: number;
  /** Null where no entry was written. */
  readonly lastEntryId: number | null;
}

export function addAuditCommands(program: Command): void {
  const audit = program.command('audit').description('the audit log');
  audit
    .command('export')
    .description('write the audit log to a file, one entry per line')
    .argument(
      '<file>',
      'the file, which is replaced when the export is complete, or a pipe or device; - writes standard output',
    )
    .option('--app <id>', 'only entries of this app, app_…')
    .option('--from <time>', 'from this instant on, ISO 8601; without an offset it is UTC', parseInstant)
    .option('--to <time>', 'up to this instant, exclusive', parseInstant)
    .option('--after <entryId>', 'continue after this entry', entryId)
    .addHelpText('after', HELP)
    .run(async (session, file: string, options: AuditExportOptions) => {
      const result = await runExport(session, file, options);
      const fields = { Entries: grouped(result.entries), 'Last entry': String(result.lastEntryId ?? '-') };
      return { json: result, text: formatFields(fields), output: besideOutput(file) };
    });
}

async function runExport(
  { sql }: Installation,
  file: string,
  options: AuditExportOptions,
): Promise<AuditExportResult> {
  const { app, from = null, to: until = null, after = 0 } = options;
  checkRange(from, until);
  const output = file === '-' ? null : await outputOf(file);
  const appId: number | null = app === undefined ? null : await internalAppId(sql, app);
  const horizon = await auditHorizon(sql);
  if (horizon === null)
    throw new OperatorError('a change that writes to the audit log takes long: try again');
  const written: { entries: number; lastEntryId: number | null } = { entries: 0, lastEntryId: null };
  async function* body(): AsyncGenerator<Buffer> {
    for await (const part of auditLines(sql, { appId, from, until, after }, horizon ?? 0)) {
      yield part.lines;
      written.entries += part.entries;
      written.lastEntryId = part.lastEntryId;
    }
  }
  if (output === null) await pipeline(body, process.stdout, { end: false });
  else await output((stream) => pipeline(body, stream));
  return written;
}

function entryId(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('It must be the entryId of an entry.');
  return Number(text);
}
