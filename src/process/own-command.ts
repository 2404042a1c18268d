/** Runs commands of this program in processes of their own, below requests: work that computes for long would hold the event loop. */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import type { Config } from '../config.ts';

export type CommandSettings = Pick<
  Config,
  | 'DATABASE_URL'
  | 'DATA_DIR'
  | 'LOG_LEVEL'
  | 'ARCHIVE_URL'
  | 'ARCHIVE_AFTER_DAYS'
  | 'ARCHIVE_KEEP_ROWS'
  | 'AWS_ACCESS_KEY_ID'
  | 'AWS_SECRET_ACCESS_KEY'
  | 'AWS_SESSION_TOKEN'
  | 'AWS_REGION'
  | 'AWS_ENDPOINT_URL'
> &
  Partial<Pick<Config, 'SECRET' | 'JOURNAL_DIR'>>;

const COMMAND_SETTINGS = [
  ...[
    'DATABASE_URL',
    'DATA_DIR',
    'LOG_LEVEL',
    'SECRET',
    'JOURNAL_DIR',
    'ARCHIVE_URL',
    'ARCHIVE_AFTER_DAYS',
    'ARCHIVE_KEEP_ROWS',
  ],
  ...['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_REGION', 'AWS_ENDPOINT_URL'],
] as const;

export interface CommandOutcome {
  /** Null after a signal. */
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Characters of standard error that are kept. */
const MOST_OF_ERR = 2_000;

/** Program and first arguments of this process. */
export function ownCommandLine(): readonly string[] {
  return [process.execPath, ...process.execArgv, process.argv[1] ?? ''];
}

/** One command at a time. */
export class OwnCommand {
  readonly #commandLine: readonly string[];
  readonly #settings: CommandSettings;
  #child: ChildProcess | null = null;

  /** @param commandLine program and first arguments of the command line */
  constructor(commandLine: readonly string[], settings: CommandSettings) {
    this.#commandLine = commandLine;
    this.#settings = settings;
  }

  async run(args: readonly string[]): Promise<CommandOutcome> {
    const [program = process.execPath, ...first] = this.#commandLine;
    const child = spawn(program, [...first, ...args], {
      env: { ...process.env, ...environmentOf(this.#settings) },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    const closed = new Promise<number | null>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', resolve);
    });
    const texts = { out: '', err: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      texts.out += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      texts.err = (texts.err + text).slice(-MOST_OF_ERR);
    });
    try {
      if (child.pid !== undefined) lowerPriority(child.pid);
      return { code: await closed, ...texts };
    } finally {
      this.#child = null;
    }
  }

  /** Asks the command that runs to end. */
  stop(): void {
    this.#child?.kill('SIGTERM');
  }
}

function environmentOf(settings: CommandSettings): Record<string, string> {
  return Object.fromEntries(
    COMMAND_SETTINGS.flatMap((name) => {
      const value = settings[name];
      return value === undefined ? [] : [[name, String(value)]];
    }),
  );
}

/** Below requests: of the process' own rights where there are such. */
function lowerPriority(pid: number): void {
  try {
    setPriority(pid, constants.priority.PRIORITY_LOW);
  } catch {
    // It has ended already, or the system has no priorities.
  }
}
