/** All commands, their options and their help. */
import addCompletion from '@bomb.sh/tab/commander';
import { WRONG_INPUT } from '../errors.ts';
import { readRelease } from '../process/version.ts';
import { addUserCommands } from './account-commands.ts';
import { addAlertCommands } from './alert-command.ts';
import { addArchiveCommands } from './archive-command.ts';
import { addAuditCommands } from './audit-command.ts';
import { addBackupCommand } from './backup-command.ts';
import { addMailCommands } from './command-notice.ts';
import { addAppCommands, addTypeCommands } from './commands.ts';
import { addConfigurationCommands } from './configuration-command.ts';
import { addConsumerCommands } from './consumer-command.ts';
import { addCopyCommand } from './copy-command.ts';
import { addDemoCommand } from './demo-command.ts';
import { addDigestCommands } from './digest-command.ts';
import { addDoctorCommand } from './doctor-command.ts';
import { addErasureCommands } from './erasure-command.ts';
import { addEventsCommand } from './events-command.ts';
import { addExportCommand } from './export-command.ts';
import { addFieldCommands } from './field-command.ts';
import { addGroupCommands } from './group-commands.ts';
import { addImportCommand } from './import-command.ts';
import { addJournalCommands } from './journal-command.ts';
import { manPage } from './man-page.ts';
import { addRecountCommand } from './recount-command.ts';
import { addRecoverRowsCommand } from './recover-rows-command.ts';
import { addRedactCommands } from './redact-command.ts';
import { addRestoreCommand } from './restore-command.ts';
import { addRetentionCommands } from './retention-command.ts';
import { addServeCommand } from './serve-command.ts';
import { Command } from './session.ts';
import { addTokenCommands } from './token-commands.ts';
import { withInstallation } from './transfer/installation.ts';
import { addWebhookCommands } from './webhook-command.ts';

const NOTE = `
Examples:
  tidemark serve                        start the service; without DATABASE_URL its PostgreSQL lies in ./.tidemark
  tidemark app create --name "My app"   create an app and print its logging token
  tidemark doctor                       check the settings, the machine and the database

With --json a command prints one JSON object on standard output. A failure prints one line on standard
error and nothing on standard output, and ends with exit code 1, or 2 where what was typed is wrong.
The settings are environment variables: see "tidemark serve --help". Every command also takes them from --env-file FILE
and, but for secrets, as options: --port 19500 is PORT=19500.`;

/** The program with all its commands; parsing runs the one that the arguments name. */
export function commandLine(): Command {
  const program = new Command('tidemark')
    .description('Event logging and retrieval service.')
    .version(versionLine(), '--version', 'print the version and the commit that it was built from')
    .helpOption('--help', 'print this help')
    .option('--env-file <file>', 'read settings from a file of NAME=value lines, such as /etc/tidemark.env')
    .addHelpText('after', NOTE)
    .showSuggestionAfterError(false)
    .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : WRONG_INPUT))
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'tidemark: ')) });
  program.action(() => program.outputHelp());
  addServeCommand(program);
  program
    .command('migrate')
    .description('bring the database to the schema of this release')
    .answer(async () => {
      const { applied } = await withInstallation(({ storage, sql }) => storage.migrate(sql), {
        anySchema: true,
      });
      const text = applied.length === 0 ? 'The schema is up to date.' : `Applied ${applied.join(', ')}.`;
      return { json: { applied }, text };
    });
  addAppCommands(program);
  addTypeCommands(program);
  addFieldCommands(program);
  addRedactCommands(program);
  addErasureCommands(program);
  addRetentionCommands(program);
  addTokenCommands(program);
  addConsumerCommands(program);
  addWebhookCommands(program);
  addAlertCommands(program);
  addDigestCommands(program);
  addMailCommands(program);
  addImportCommand(program);
  addBackupCommand(program);
  addEventsCommand(program);
  addExportCommand(program);
  addRestoreCommand(program);
  addCopyCommand(program);
  addArchiveCommands(program);
  addJournalCommands(program);
  addRecountCommand(program);
  addRecoverRowsCommand(program);
  addUserCommands(program);
  addGroupCommands(program);
  addConfigurationCommands(program);
  addAuditCommands(program);
  addDoctorCommand(program);
  addDemoCommand(program);
  program
    .command('man')
    .description('print the manual page, for man -l')
    .action(() => {
      process.stdout.write(manPage(program));
    });
  // After all others: it completes what is there now.
  addCompletion(program, { completionCommandName: 'completion' });
  program.commands
    .find((command) => command.name() === 'completion')
    ?.description('print a script that lets bash, zsh, fish or powershell complete commands');
  return program;
}

function versionLine(): string {
  const { version, commit } = readRelease();
  return commit === null ? version : `${version} (${commit})`;
}
