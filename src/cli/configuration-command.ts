/** `tidemark apply` and `tidemark show`: the configuration of the installation as a file. */
import { readFile } from 'node:fs/promises';
import { text as textOf } from 'node:stream/consumers';
import { COMMAND_LINE } from '../accounts/log/audit.ts';
import type { Applied, ConfigurationOptions } from '../configuration/apply.ts';
import type { ParsedConfig } from '../configuration/parse.ts';
import { appNotFound, OperatorError, WrongInput } from '../errors.ts';
import { ConsumerStore } from '../storage/feed/consumers.ts';
import { unreadable } from './output.ts';
import type { Command, Session } from './session.ts';

interface ApplyOptions {
  readonly json?: true;
  readonly dryRun?: true;
  readonly prune?: true;
  readonly deleteEvents?: true;
}

/** Exit code of a dry run that would change something. */
const WOULD_CHANGE = 2;

const HELP = `
The plan is printed first: + is made, ~ is changed, - is removed. What the file does not have stays as it is; with --prune
it is removed, but for event types, which have events. An app is known by its name and its owner. Applied twice, a file changes
nothing. Where a step fails, those before it stay, and the message says which they were.`;

export function addConfigurationCommands(program: Command): void {
  program
    .command('apply')
    .description('make apps, types, fields, views, members, groups and webhooks as a file says')
    .argument('<file>', 'YAML or JSON, as tidemark show prints it; - reads standard input')
    .option('--dry-run', 'print the plan and change nothing; exit code 2 if something would change')
    .option('--prune', 'also remove what the file does not have')
    .option('--delete-events', 'let --prune remove apps that have events, with these')
    .addHelpText('after', HELP)
    .run(apply);
  program
    .command('show')
    .description('print the configuration as a file that tidemark apply takes, without secrets')
    .option('--all', 'the whole installation')
    .option('--app <id>', 'one app, app_…')
    .run(show, ['--json', 'print JSON in place of YAML']);
}

async function apply(
  session: Session,
  file: string,
  options: ApplyOptions,
): Promise<{ json: object; text: string }> {
  const { applyConfig, changeText } = await import('../configuration/apply.ts');
  const parsed = await parse(file);
  const { dryRun = false, prune = false, deleteEvents = false, json = false } = options;
  if (deleteEvents && !prune) throw new WrongInput('--delete-events belongs to --prune');
  const onPlan = ({ changes, kept, warnings }: Applied): void => {
    if (json) return;
    const lines = changes.map(changeText);
    if (kept.length > 0) lines.push(`${kept.length} not in the file: --prune removes them.`);
    for (const { app, alert, warning } of warnings)
      lines.push(`! alert ${JSON.stringify(alert)} in ${JSON.stringify(app)}: ${warning}`);
    if (lines.length > 0) process.stdout.write(`${lines.join('\n')}\n`);
  };
  const { ConfigMistake } = await import('../configuration/parse.ts');
  try {
    const chosen = { dryRun, prune, deleteEvents, onPlan };
    const applied = await applyConfig(await optionsOf(session), parsed, chosen);
    const { length } = applied.changes;
    if (dryRun && length > 0) process.exitCode = WOULD_CHANGE;
    return { json: { dryRun, ...applied }, text: summary(length, dryRun) };
  } catch (error) {
    if (error instanceof ConfigMistake) throw mistakeIn(file, error);
    throw error;
  }
}

function summary(changes: number, dryRun: boolean): string {
  if (changes === 0) return 'No changes.';
  const things = changes === 1 ? '1 change' : `${changes} changes`;
  return dryRun ? `${things} would be made.` : `${things} made.`;
}

async function parse(file: string): Promise<ParsedConfig> {
  let text: string;
  try {
    text = file === '-' ? await textOf(process.stdin) : await readFile(file, 'utf8');
  } catch (error) {
    throw unreadable(file, error as NodeJS.ErrnoException);
  }
  const { ConfigMistake, parseConfig } = await import('../configuration/parse.ts');
  try {
    return await parseConfig(text);
  } catch (error) {
    if (error instanceof ConfigMistake) throw mistakeIn(file, error);
    throw error;
  }
}

function mistakeIn(
  file: string,
  { line, pointer, problem }: { line: number | null; pointer: string; problem: string },
): OperatorError {
  const name = file === '-' ? 'standard input' : file;
  const place = pointer === '' ? 'the document' : pointer;
  return new OperatorError(`${name}:${line ?? 1}: ${place} ${problem}`);
}

async function optionsOf({ sql, storage, secret, config }: Session): Promise<ConfigurationOptions> {
  const { Passwords } = await import('../accounts/sign-in/passwords.ts');
  const store = new ConsumerStore(storage.engine, sql);
  return {
    sql,
    store,
    events: storage.reader(sql),
    secret,
    config,
    passwords: new Passwords(),
    by: COMMAND_LINE,
  };
}

async function show(
  { sql, storage }: Session,
  { all, app }: { json?: true; all?: true; app?: string },
): Promise<{ json: object; text: string }> {
  if ((all === undefined) === (app === undefined))
    throw new WrongInput('show everything with --all, or one app with --app');
  const { showConfig } = await import('../configuration/apply.ts');
  const store = new ConsumerStore(storage.engine, sql);
  const document = await showConfig({ sql, store }, app ?? null);
  if (document === null) throw appNotFound(app ?? '');
  const { stringify } = await import('yaml');
  return {
    json: document,
    text: stringify(document, { aliasDuplicateObjects: false, lineWidth: 0 }).trimEnd(),
  };
}
