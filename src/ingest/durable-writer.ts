/** The end of the write path: a commit group goes to the database or, during an outage, to the journal. */
import type { Logger } from 'pino';
import type { Rejection } from '../errors.ts';
import { Availability, type AvailabilityOptions } from '../storage/database/availability.ts';
import type { Engine, Nodes } from '../storage/storage.ts';
import type { AcceptedEvent } from '../storage/write/accepted-event.ts';
import type { Connect } from '../storage/write/copy-connection.ts';
import { type Outcomes, tablesOfWrites } from '../storage/write/event-writer.ts';
import { JOURNALING, JOURNALING_PAST, REFUSING, REFUSING_PAST } from '../storage/write/failures.ts';
import { openReplayWriter, type ReplayGroupWriter } from '../storage/write/replay-in-cluster.ts';
import { type GroupWriter, openWriter } from '../storage/write/routed-writer.ts';
import type { WriteGroup } from './commit-buffer.ts';
import type { Journal } from './journal/journal.ts';
import { Replay } from './journal/replay.ts';
import { PastWriter } from './past-writer.ts';

export interface DurableWriterOptions {
  readonly connect: Connect;
  readonly engine: Engine;
  readonly connections: number;
  /** For events of past days. */
  readonly pastConnections: number;
  /** Null if events are refused while the database is unavailable. */
  readonly journal: Journal | null;
  /** Of a cluster; null or absent for one server. */
  readonly nodes?: Nodes | null;
  /** Watches the connections to the database. */
  readonly watch: AvailabilityOptions['watch'];
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Milliseconds since 1970, as events are dated. */
  readonly wall: () => number;
}

/** Milliseconds without the end of any group in flight after which the database is reported as taking no events. */
const STILL_MS = 5_000;

/** The writers, the journal, its replay, and the switch between them. */
export class DurableWriter {
  readonly availability: Availability;
  readonly #options: DurableWriterOptions;
  /** Writes while the database is available. */
  readonly writer: GroupWriter;
  /** The same for events of past days, whose partitions may be locked or missing one by one. */
  readonly past: PastWriter;
  readonly #replayWriter: ReplayGroupWriter | null;
  readonly #replay: Replay | null;

  constructor(options: DurableWriterOptions) {
    const { journal, log, now, connect, nodes = null, engine } = options;
    this.#options = options;
    this.writer = openWriter({
      connect,
      nodes,
      engine,
      connections: options.connections,
      timeouts: journal === null ? REFUSING : JOURNALING,
      onExhausted: (group, { refusal, failure, node }) => {
        // The other nodes of a cluster take events.
        if (node === undefined) this.availability.writeFailed();
        // A missing partition for the current day is an outage, not an error of the events.
        return this.#keep(group, failure === 'no-partition' ? this.availability.refusal : refusal);
      },
      log,
      now,
    });
    this.past = new PastWriter({
      connect,
      nodes,
      engine,
      connections: options.pastConnections,
      timeouts: journal === null ? REFUSING_PAST : JOURNALING_PAST,
      keep: (group, refusal) => this.#keep(group, refusal),
      log,
      now,
    });
    const replayWriter =
      journal &&
      openReplayWriter({ connect, nodes, engine, identity: journal.installation.identity, log, now });
    this.#replayWriter = replayWriter;
    this.#replay =
      journal &&
      replayWriter &&
      new Replay({
        journal,
        write: (group) => replayWriter.write(group),
        onAway: () => this.availability.writeFailed(),
        mayRun: () => this.availability.writable,
        log,
        now,
      });
    this.availability = new Availability({
      connect,
      tables: tablesOfWrites(engine),
      log,
      now,
      canWrite: () => this.#canWrite(),
      watch: options.watch,
      onWritable: () => this.#replay?.run(),
    });
  }

  start(): void {
    const { nodes, log, now } = this.#options;
    this.availability.start();
    this.#replay?.start();
    nodes?.start({ log, now, onBack: () => this.#replay?.run() });
  }

  /** Stores a commit group, or keeps it in the journal during an outage. */
  readonly write: WriteGroup = (group) =>
    this.availability.writable ? this.writer.write(group) : this.#keep(group, this.availability.refusal);

  /** The same for events of past days. A failure of one of these days does not put its events into the journal. */
  readonly writePast: WriteGroup = (group) =>
    this.availability.writable ? this.past.write(group) : this.#keep(group, this.availability.refusal);

  /** False while the database takes no events of the current day, or has not ended a commit group for seconds. */
  get takesEvents(): boolean {
    return this.availability.writable && this.writer.stillMs < STILL_MS;
  }

  /** Call it when no commit group is in flight. Waiting events stay in the journal for the next start. */
  async stop(): Promise<void> {
    const { journal, log, nodes } = this.#options;
    await Promise.all([this.availability.stop(), nodes?.stop()]);
    await Promise.all([this.#replay?.stop(), this.writer.close(), this.past.close()]);
    await this.#replayWriter?.close();
    if (journal === null) return;
    const { waitingEvents, waitingBytes } = journal.stats;
    if (waitingEvents > 0)
      log.warn({ waitingEvents, waitingBytes }, 'journal: events wait for the next start');
  }

  /** A stored event proves more than a response of the server. Events of the journal are stored before new ones. */
  async #canWrite(): Promise<boolean> {
    if (!(await this.writer.canWrite(this.#options.wall()))) return false;
    return !['away', 'foreign'].includes((await this.#replay?.step()) ?? 'empty');
  }

  /** @param refusal the outcome of the events if there is no journal, or it does not take them */
  async #keep(group: readonly AcceptedEvent[], refusal: Rejection): Promise<Outcomes> {
    const { journal } = this.#options;
    const refused = journal === null ? refusal : await journal.append(group);
    // The database may have become available while the file was written, before there was anything to replay.
    if (this.availability.writable) this.#replay?.run();
    // The database may have stored them already: then the outcome stays unknown.
    const outcome = refused !== null && refusal.reason === 'outcomeUnknown' ? refusal : refused;
    return group.map(() => outcome);
  }
}
