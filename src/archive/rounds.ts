/**
 * Archives what is due once an hour, while this process does the maintenance. The work is a process of its own, `tidemark archive run`:
 * it compresses for seconds, and no request may wait for that.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants, setPriority } from 'node:os';
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import type { Config } from '../config.ts';
import type { DayOutcome } from './archiving.ts';
import type { ArchiveSettings } from './store.ts';

export interface ArchiveRoundsOptions {
  readonly config: ArchiveSettings &
    Pick<Config, 'ARCHIVE_AFTER_DAYS' | 'DATABASE_URL' | 'DATA_DIR' | 'LOG_LEVEL'>;
  readonly log: Logger;
  /** Whether this process does the maintenance. */
  readonly isLeader: () => boolean;
  /** Program and first arguments of the command line; this process' own by default. */
  readonly commandLine?: readonly string[];
  readonly everyMs?: number;
}

export interface ArchiveStats {
  /** Days that were archived, the same day again included. */
  days: number;
  events: number;
  bytes: number;
  /** Days that could not be archived, and runs that failed; both are tried again. */
  failures: number;
}

const EVERY_MS = 3_600_000;
/** A start is busy enough. */
const FIRST_MS = 60_000;
/** Lines of the log for one run. */
const MOST_PROBLEMS = 5;

export class ArchiveRounds {
  readonly #options: ArchiveRoundsOptions;
  readonly #rounds: Rounds;
  readonly stats: ArchiveStats = { days: 0, events: 0, bytes: 0, failures: 0 };
  #child: ChildProcess | null = null;

  constructor(options: ArchiveRoundsOptions) {
    const { log, everyMs = EVERY_MS } = options;
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#run(),
      pauseMs: () => everyMs,
      onFailure: (error) => {
        this.stats.failures += 1;
        log.error({ err: error }, 'archive: nothing could be archived, retrying in an hour');
      },
    });
  }

  start(): void {
    const { config, everyMs = FIRST_MS } = this.#options;
    if (config.ARCHIVE_URL !== '') this.#rounds.start(everyMs);
  }

  /** Ends a run after the day that it is at. */
  async stop(): Promise<void> {
    const stopped = this.#rounds.stop();
    this.#child?.kill('SIGTERM');
    await stopped;
  }

  async #run(): Promise<void> {
    const { config, isLeader, commandLine = ownCommandLine() } = this.#options;
    if (!isLeader()) return;
    const [program = process.execPath, ...first] = commandLine;
    const child = spawn(program, [...first, 'archive', 'run', '--json'], {
      env: { ...process.env, ...settingsOf(config) },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    const closed = new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', resolve);
    });
    const texts = { out: '', err: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      texts.out += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      texts.err = (texts.err + text).slice(-2_000);
    });
    try {
      if (child.pid !== undefined) lowerPriority(child.pid);
      await closed;
      if (texts.out !== '') this.#report(JSON.parse(texts.out));
      else if (!this.#rounds.isStopped) throw new Error(texts.err.trim());
    } finally {
      this.#child = null;
    }
  }

  #report({ days }: Answer): void {
    const { log } = this.#options;
    const done = days.filter(({ problem }) => problem === null);
    const failed = days.filter(({ problem }) => problem !== null);
    const events = done.reduce((sum, day) => sum + day.events, 0);
    const bytes = done.reduce((sum, day) => sum + day.bytes, 0);
    this.stats.days += done.length;
    this.stats.events += events;
    this.stats.bytes += bytes;
    this.stats.failures += failed.length;
    if (done.length > 0) log.info({ days: done.length, events, bytes }, 'archive: days were archived');
    for (const { appId, day, problem } of failed.slice(0, MOST_PROBLEMS))
      log.warn({ appId, day, problem }, 'archive: a day could not be archived, retrying in an hour');
  }
}

/** What the command prints. */
interface Answer {
  readonly days: readonly DayOutcome[];
}

/** Below requests: of the process' own rights where there are such. */
function lowerPriority(pid: number): void {
  try {
    setPriority(pid, constants.priority.PRIORITY_LOW);
  } catch {
    // It has ended already, or the system has no priorities.
  }
}

/** The settings that the command reads, as its environment. */
function settingsOf(config: ArchiveRoundsOptions['config']): Record<string, string> {
  const { ARCHIVE_URL, ARCHIVE_AFTER_DAYS, DATABASE_URL, DATA_DIR, LOG_LEVEL } = config;
  const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL } =
    config;
  return {
    ...{ ARCHIVE_URL, ARCHIVE_AFTER_DAYS: String(ARCHIVE_AFTER_DAYS), DATABASE_URL, DATA_DIR, LOG_LEVEL },
    ...{ AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL },
  };
}

function ownCommandLine(): readonly string[] {
  return [process.execPath, ...process.execArgv, process.argv[1] ?? ''];
}
