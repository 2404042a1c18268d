/**
 * Archives what is due once an hour, while this process does the maintenance. The work is a process of its own, `tidemark archive run`:
 * it compresses for seconds, and no request may wait for that. Days that writers need back are not waited for that long.
 */
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import { type CommandSettings, OwnCommand, ownCommandLine } from '../process/own-command.ts';
import type { DayOutcome } from './archiving.ts';

export interface ArchiveRoundsOptions {
  readonly config: CommandSettings;
  readonly log: Logger;
  /** Whether this process does the maintenance. */
  readonly isLeader: () => boolean;
  /** Whether somebody needs a day whose rows have left: it is brought back soon. */
  readonly areDaysWanted?: () => Promise<boolean>;
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
/** Between two looks for days that are needed, and after a run. */
const LOOK_MS = 30_000;
/** A start is busy enough. */
const FIRST_MS = 60_000;
/** Lines of the log for one run. */
const MOST_PROBLEMS = 5;

export class ArchiveRounds {
  readonly #options: ArchiveRoundsOptions;
  readonly #rounds: Rounds;
  readonly stats: ArchiveStats = { days: 0, events: 0, bytes: 0, failures: 0 };
  readonly #command: OwnCommand;
  #ranAt = Number.NEGATIVE_INFINITY;

  constructor(options: ArchiveRoundsOptions) {
    const { log, everyMs = EVERY_MS } = options;
    this.#options = options;
    this.#command = new OwnCommand(options.commandLine ?? ownCommandLine(), options.config);
    this.#rounds = new Rounds({
      work: () => this.#run(),
      pauseMs: () => Math.min(LOOK_MS, everyMs),
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
    this.#command.stop();
    await stopped;
  }

  async #run(): Promise<void> {
    const { isLeader, everyMs = EVERY_MS, areDaysWanted } = this.#options;
    if (!isLeader()) return;
    if (performance.now() - this.#ranAt < everyMs && (await areDaysWanted?.()) !== true) return;
    this.#ranAt = performance.now();
    const { out, err } = await this.#command.run(['archive', 'run', '--json']);
    if (out !== '') this.#report(JSON.parse(out));
    else if (!this.#rounds.isStopped) throw new Error(err.trim());
  }

  #report({ days }: { days: readonly DayOutcome[] }): void {
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
