/** `tidemark copy`: the whole installation into another database, while the services go on. */

import { Option } from 'commander';
import { utcDay } from '../base/time-units.ts';
import { databaseUrl, readConfig } from '../config.ts';
import { WrongInput } from '../errors.ts';
import { type CopyProgress, type CopyResult, copyDatabase, reopenSource } from '../storage/copy/copy.ts';
import { openDatabase } from '../storage/database/open.ts';
import { commandLog, formatFields } from './output.ts';
import type { Command } from './session.ts';
import { grouped, Progress } from './transfer/progress.ts';

const HELP = `
Copies everything into the database of --to, of any engine, which is empty or was begun by this command: it may be
interrupted and run again. It ends when the copy is a moment behind and its rows have been compared. With --switch the
original then refuses reads and writes, what came in meanwhile is copied and compared, and the copy takes its place.
Start the services again with DATABASE_URL set to it; their journals (JOURNAL_DIR) hold what producers send until
then. If the switch fails, the original is used as before; after a command that was killed, --reopen lets it be used.`;

interface CopyCommandOptions {
  readonly from?: string;
  readonly to: string;
  readonly switch?: true;
  readonly reopen?: true;
}

export function addCopyCommand(program: Command): void {
  program
    .command('copy')
    .description('copy the whole installation to another database, and switch to it')
    .option('--from <url>', 'the database to copy; by default that of the settings', urlOf('--from'))
    .requiredOption('--to <url>', 'the database to copy to', urlOf('--to'))
    .addOption(new Option('--switch', 'make the copy the database of the services').conflicts('reopen'))
    .option('--reopen', 'after a switch that was not completed: use the original again')
    .addHelpText('after', HELP)
    .answer((options: CopyCommandOptions) =>
      withDatabases(options, async (from, to) => {
        if (options.reopen === true) {
          await reopenSource({ from, to });
          return { json: { reopened: true }, text: 'The original takes events again.' };
        }
        const result = await runCopy({ from, to }, options.switch === true);
        return { json: result, text: describe(result) };
      }),
    );
}

/** Refuses what is no address of a database, without printing it: it may have a password. */
function urlOf(option: string): (value: string) => string {
  return (value) => {
    try {
      return databaseUrl(value);
    } catch (error) {
      throw new WrongInput(`${option} ${error instanceof Error ? error.message : String(error)}`);
    }
  };
}

type Address = Parameters<typeof copyDatabase>[0]['from'];

async function withDatabases<T>(
  { from, to }: CopyCommandOptions,
  work: (from: Address, to: Address) => Promise<T>,
): Promise<T> {
  const config = readConfig(process.env);
  const log = commandLog(config.LOG_LEVEL);
  const open = (url: string) =>
    openDatabase({ DATA_DIR: config.DATA_DIR, DATABASE_URL: url }, log, {
      supervise: false,
      mayMake: false,
    });
  const target = await open(to);
  const source = await open(from ?? config.DATABASE_URL);
  try {
    return await work(source.address, target.address);
  } finally {
    await source.close();
    await target.close();
  }
}

async function runCopy(
  addresses: { readonly from: Address; readonly to: Address },
  isSwitch: boolean,
): Promise<CopyResult & { readonly seconds: number }> {
  const progress = new Progress();
  const startedAt = performance.now();
  const onProgress = ({ step, unit, done, total }: CopyProgress): void =>
    progress.update(() => ({
      fraction: total === 0 ? null : Math.min(1, done / total),
      text: `${step}, ${grouped(done)} of ${grouped(total)} ${unit}`,
    }));
  try {
    const result = await copyDatabase({ ...addresses, onProgress }, isSwitch);
    for (const { app, day, source, target } of result.repaired)
      progress.note(`${app} on ${utcDay(day)}: the copy had ${target} of ${source} events; copied again`);
    return { ...result, seconds: Math.round(performance.now() - startedAt) / 1_000 };
  } finally {
    progress.end();
  }
}

function describe(result: CopyResult & { seconds: number }): string {
  const { copied, days, repaired, switched, seconds } = result;
  return formatFields({
    'Copied events': grouped(copied),
    'Compared days': grouped(days),
    'Repaired days': grouped(repaired.length),
    Seconds: seconds.toFixed(1),
    Next: switched
      ? 'set DATABASE_URL to the copy and start the services again'
      : 'run the same with --switch to make the copy the database of the services',
  });
}
