/** The end of the write path: a batch goes to the database or, while that is away, to the journal. */
import type { Logger } from 'pino';
import { Rejection } from '../errors.ts';
import { Availability } from '../storage/availability.ts';
import type { DatabaseAddress } from '../storage/connect.ts';
import type { ServerWatch } from '../storage/connections/server-watch.ts';
import type { Engine } from '../storage/storage.ts';
import type { AcceptedEvent } from '../storage/write/accepted-event.ts';
import { EventWriter, type Outcomes, tablesOfWrites } from '../storage/write/event-writer.ts';
import { JOURNALING, REFUSING } from '../storage/write/failures.ts';
import { ReplayWriter } from '../storage/write/replay-writer.ts';
import type { WriteBatch } from './commit-buffer.ts';
import type { Journal } from './journal/journal.ts';
import { Replay } from './journal/replay.ts';

export interface DurableWriterOptions {
  readonly address: DatabaseAddress;
  readonly engine: Engine;
  readonly connections: number;
  /** Null where events are refused while the database is away. */
  readonly journal: Journal | null;
  /** Looks after the connections to the database. */
  readonly watch: ServerWatch;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

const AWAY = new Rejection('unavailable', 'The database cannot be reached; try again shortly.');

/** Writers, journal, replay and the switch between them. */
export class DurableWriter {
  readonly availability: Availability;
  readonly #options: DurableWriterOptions;
  /** What writes while the database is there. */
  readonly writer: EventWriter;
  readonly #replayWriter: ReplayWriter | null;
  readonly #replay: Replay | null;

  constructor(options: DurableWriterOptions) {
    const { journal, log, now, address, engine } = options;
    this.#options = options;
    this.writer = new EventWriter({
      address,
      engine,
      connections: options.connections,
      timeouts: journal === null ? REFUSING : JOURNALING,
      giveUp: (batch, refusal) => {
        this.availability.writeFailed();
        return this.#keep(batch, refusal);
      },
      log,
      now,
    });
    const replayWriter =
      journal && new ReplayWriter({ address, engine, identity: journal.installation.identity, log, now });
    this.#replayWriter = replayWriter;
    this.#replay =
      journal &&
      replayWriter &&
      new Replay({
        journal,
        write: (batch) => replayWriter.write(batch),
        onAway: () => this.availability.writeFailed(),
        log,
        now,
      });
    this.availability = new Availability({
      address,
      tables: tablesOfWrites(engine),
      log,
      now,
      // What waits goes first: a question proves less than a batch that is stored.
      proveWritable: async () => !['away', 'foreign'].includes((await this.#replay?.step()) ?? 'empty'),
      watch: options.watch,
      onWritable: () => this.#replay?.run(),
    });
  }

  start(): void {
    this.availability.start();
    this.#replay?.start();
  }

  /** Stores a batch, or keeps it in the journal while the database is away. */
  readonly write: WriteBatch = (batch) =>
    this.availability.writable ? this.writer.write(batch) : this.#keep(batch, AWAY);

  /** To be called when no batch is under way. What waits in the journal stays there for the next start. */
  async stop(): Promise<void> {
    const { journal, log } = this.#options;
    await this.availability.stop();
    await Promise.all([this.#replay?.stop(), this.writer.close()]);
    await this.#replayWriter?.close();
    if (journal === null) return;
    const { waitingEvents, waitingBytes } = journal.stats;
    if (waitingEvents > 0)
      log.warn({ waitingEvents, waitingBytes }, 'Events wait in the journal: the next start stores them');
  }

  /** @param refusal what the events are told where there is no journal, or it does not take them */
  async #keep(batch: readonly AcceptedEvent[], refusal: Rejection): Promise<Outcomes> {
    const { journal } = this.#options;
    const refused = journal === null ? refusal : await journal.append(batch);
    // The database may have come back while the disk was busy, and have found nothing to replay yet.
    if (this.availability.writable) this.#replay?.run();
    // Where the database may have them already, that stays what can be said.
    const outcome = refused !== null && refusal.reason === 'outcomeUnknown' ? refusal : refused;
    return batch.map(() => outcome);
  }
}
