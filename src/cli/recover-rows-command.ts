/** `tidemark recover-rows`: events that were acknowledged and lie where nobody reads them. */
import type { RecoveredRows } from '../storage/maintenance/stray-rows.ts';
import { formatFields } from './output.ts';
import type { Command } from './session.ts';
import type { Installation } from './transfer/installation.ts';
import { grouped, Progress } from './transfer/progress.ts';

const HELP = `
Earlier releases wrote to a database that had been restarted without the library of TimescaleDB or Citus, or that was left
restoring. Such events were acknowledged and cannot be read; "tidemark doctor" counts them. This moves them to where they
belong, with their counts, each once. It may run while the service does, and be interrupted and run again.`;

interface RecoverRowsResult extends RecoveredRows {
  readonly found: readonly { readonly server: string; readonly rows: number }[];
}

export function addRecoverRowsCommand(program: Command): void {
  program
    .command('recover-rows')
    .description('make events readable that a database without its library has hidden')
    .option('--dry-run', 'count them alone')
    .addHelpText('after', HELP)
    .run(async (session, { dryRun = false }: { dryRun?: boolean }) => {
      const result = await recover(session, dryRun);
      return { json: result, text: report(result, dryRun) };
    });
}

async function recover({ storage, sql }: Installation, isDryRun: boolean): Promise<RecoverRowsResult> {
  const found = (await storage.strayRows(sql)).map(({ server, rows }) => ({
    server: server ?? 'database',
    rows,
  }));
  const all = found.reduce((sum, { rows }) => sum + rows, 0);
  if (isDryRun || all === 0) return { found, recovered: 0, dropped: 0 };
  const progress = new Progress();
  try {
    const rows = await storage.recoverRows(sql, ({ recovered, dropped }) =>
      progress.update(() => ({
        fraction: (recovered + dropped) / all,
        text: `${grouped(recovered)} events`,
      })),
    );
    await storage.settleCounts(sql, Date.now());
    return { found, ...rows };
  } finally {
    progress.end();
  }
}

function report({ found, recovered, dropped }: RecoverRowsResult, isDryRun: boolean): string {
  if (found.length === 0) return 'There are no hidden events.';
  return formatFields({
    Found: found.map(({ server, rows }) => `${grouped(rows)} (${server})`),
    ...(!isDryRun && { Recovered: grouped(recovered) }),
    ...(dropped > 0 && { 'Of deleted apps, or expired': grouped(dropped) }),
  });
}
