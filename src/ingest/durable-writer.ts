/** The end of the write path: a batch goes to the database or, while that is away, to the journal. */
import type { Logger } from 'pino';
import { Rejection } from '../errors.ts';
import { Availability } from '../storage/availability.ts';
import type { DatabaseAddress } from '../storage/connect.ts';
import type { ServerWatch } from '../storage/connections/server-watch.ts';
import type { DeclaredFields, Engine } from '../storage/storage.ts';
import type { AcceptedEvent } from '../storage/write/accepted-event.ts';
import { EventWriter, type Outcomes, tablesOfWrites } from '../storage/write/event-writer.ts';
import { JOURNALING, JOURNALING_PAST, REFUSING, REFUSING_PAST } from '../storage/write/failures.ts';
import { ReplayWriter } from '../storage/write/replay-writer.ts';
import type { WriteBatch } from './commit-buffer.ts';
import type { Journal } from './journal/journal.ts';
import { Replay } from './journal/replay.ts';
import { PastWriter } from './past-writer.ts';

export interface DurableWriterOptions {
  readonly address: DatabaseAddress;
  readonly engine: Engine;
  readonly connections: number;
  /** For events of past days. */
  readonly pastConnections: number;
  /** Null where events are refused while the database is away. */
  readonly journal: Journal | null;
  /** Whose values are counted with the rows. */
  readonly fields?: DeclaredFields | undefined;
  /** Looks after the connections to the database. */
  readonly watch: ServerWatch;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Milliseconds since 1970, as events are dated. */
  readonly wall: () => number;
}

/** Milliseconds without the end of any group, while groups are under way, after which the database takes no events. */
const STILL_MS = 5_000;

const AWAY = new Rejection('unavailable', 'The database cannot be reached; try again shortly.');

/** Writers, journal, replay and the switch between them. */
export class DurableWriter {
  readonly availability: Availability;
  readonly #options: DurableWriterOptions;
  /** What writes while the database is there. */
  readonly writer: EventWriter;
  /** The same for events of past days, whose partitions may be locked or missing one by one. */
  readonly past: PastWriter;
  readonly #replayWriter: ReplayWriter | null;
  readonly #replay: Replay | null;

  constructor(options: DurableWriterOptions) {
    const { journal, log, now, address, engine, fields } = options;
    this.#options = options;
    this.writer = new EventWriter({
      address,
      engine,
      connections: options.connections,
      timeouts: journal === null ? REFUSING : JOURNALING,
      fields,
      giveUp: (batch, { refusal, failure }) => {
        this.availability.writeFailed();
        // That there is no partition for events of now is an outage, and no fault of theirs.
        return this.#keep(batch, failure === 'no-partition' ? AWAY : refusal);
      },
      log,
      now,
    });
    this.past = new PastWriter({
      address,
      engine,
      connections: options.pastConnections,
      timeouts: journal === null ? REFUSING_PAST : JOURNALING_PAST,
      fields,
      keep: (batch, refusal) => this.#keep(batch, refusal),
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
        mayRun: () => this.availability.writable,
        log,
        now,
      });
    this.availability = new Availability({
      address,
      tables: tablesOfWrites(engine),
      log,
      now,
      proveWritable: () => this.#provesWritable(),
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

  /** The same for a batch of past days. What is wrong with one of them is no reason for the journal. */
  readonly writePast: WriteBatch = (batch) =>
    this.availability.writable ? this.past.write(batch) : this.#keep(batch, AWAY);

  /** False while the database takes no events of now, or has stood still for seconds with some of them. */
  get takesEvents(): boolean {
    return this.availability.writable && this.writer.stillMs < STILL_MS;
  }

  /** To be called when no batch is under way. What waits in the journal stays there for the next start. */
  async stop(): Promise<void> {
    const { journal, log } = this.#options;
    await this.availability.stop();
    await Promise.all([this.#replay?.stop(), this.writer.close(), this.past.close()]);
    await this.#replayWriter?.close();
    if (journal === null) return;
    const { waitingEvents, waitingBytes } = journal.stats;
    if (waitingEvents > 0)
      log.warn({ waitingEvents, waitingBytes }, 'Events wait in the journal: the next start stores them');
  }

  /** That an event of now could be stored says more than an answer; what waits goes before new ones. */
  async #provesWritable(): Promise<boolean> {
    if (!(await this.writer.proves(this.#options.wall()))) return false;
    return !['away', 'foreign'].includes((await this.#replay?.step()) ?? 'empty');
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
