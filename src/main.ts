/**
 * The command line. An answer goes to standard output, with `--json` as exactly one JSON object; everything else goes to
 * standard error. A failure is one line there, leaves standard output empty, and ends with exit code 1.
 */
import { Command } from 'commander';
import { addUserCommands } from './cli/account-commands.ts';
import { addBackupCommand } from './cli/backup-command.ts';
import { addAppCommands, addTokenCommands, addTypeCommands } from './cli/commands.ts';
import { addDoctorCommand } from './cli/doctor-command.ts';
import { addImportCommand } from './cli/import-command.ts';
import { addJournalCommands } from './cli/journal-command.ts';
import { addRecountCommand } from './cli/recount-command.ts';
import { addRestoreCommand } from './cli/restore-command.ts';
import { addServeCommand } from './cli/serve-command.ts';
import { runCommand } from './cli/session.ts';
import { printFailure } from './failure.ts';
import { readVersion } from './version.ts';

const NOTE = `
With --json a command prints one JSON object on standard output. A failure prints one line on standard
error and nothing on standard output, and ends with exit code 1.
The settings are environment variables: see "tidemark serve --help".`;

function commandLine(): Command {
  const program = new Command('tidemark')
    .description('Event logging and retrieval service.')
    .version(readVersion(), '--version', 'print the version')
    .helpOption('--help', 'print this help')
    .addHelpText('after', NOTE)
    .showSuggestionAfterError(false)
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'tidemark: ')) });
  addServeCommand(program);
  program
    .command('migrate')
    .description('bring the database to the schema of this release')
    .option('--json', 'print one JSON object')
    .action((options: { json?: true }) =>
      runCommand(options, async ({ applied }) => ({
        json: { applied },
        text: applied.length === 0 ? 'The schema is up to date.' : `Applied ${applied.join(', ')}.`,
      })),
    );
  addAppCommands(program);
  addTypeCommands(program);
  addTokenCommands(program);
  addImportCommand(program);
  addBackupCommand(program);
  addRestoreCommand(program);
  addJournalCommands(program);
  addRecountCommand(program);
  addUserCommands(program);
  addDoctorCommand(program);
  return program;
}

// Their readers may be gone, and disks full. A service goes on without; a command has failed to answer.
process.stderr.on('error', () => undefined);
process.stdout.on('error', () => {
  if (process.argv[2] !== 'serve') process.exitCode = 1;
});

try {
  await commandLine().parseAsync();
} catch (error) {
  printFailure(error);
  process.exitCode = 1;
}
