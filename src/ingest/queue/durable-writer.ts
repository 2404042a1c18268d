/** The end of the write path: a commit group goes to the database or, during an outage, to the journal. */
import type { Logger } from 'pino';
import type { Rejection } from '../../errors.ts';
import { Availability, type AvailabilityOptions } from '../../storage/database/availability.ts';
import { ByNode, type DataNode } from '../../storage/database/nodes.ts';
import type { AcceptedEvent } from '../../storage/write/accepted-event.ts';
import {
  EventWriter,
  type GroupCounts,
  newGroupCounts,
  type Outcomes,
  tablesOfWrites,
} from '../../storage/write/event-writer.ts';
import {
  JOURNALING,
  JOURNALING_PAST,
  REFUSING,
  REFUSING_PAST,
  UNAVAILABLE,
} from '../../storage/write/failures.ts';
import {
  type IdempotentOutcome,
  type IdempotentRequest,
  IdempotentWriter,
} from '../../storage/write/idempotent-writer.ts';
import { ReplayWriter } from '../../storage/write/replay-writer.ts';
import type { Journal } from '../journal/journal.ts';
import { Replay } from '../journal/replay.ts';
import type { Lane } from './idempotent-queue.ts';
import { KeyTable } from './key-table.ts';
import { PastWriter, type PastWriterOptions } from './past-writer.ts';
import type { NodeWriters } from './write-queues.ts';

export interface DurableWriterOptions
  extends Pick<PastWriterOptions, 'nodes' | 'engine' | 'connections' | 'now'> {
  /** For events of past days. */
  readonly pastConnections: number;
  /** Whether another session has the table of idempotency keys locked. */
  readonly areKeysLocked: () => Promise<boolean>;
  /** Null if events are refused while the database is unavailable. */
  readonly journal: Journal | null;
  /** Watches the connections to the database. */
  readonly watch: AvailabilityOptions['watch'];
  readonly log: Logger;
  /** Milliseconds since 1970, as events are dated. */
  readonly wall: () => number;
}

/** Milliseconds without the end of any group in flight after which the database is reported as taking no events. */
const STILL_MS = 5_000;

/** The writers, the journal, its replay, and the switch between them. */
export class DurableWriter {
  readonly availability: Availability;
  readonly #options: DurableWriterOptions;
  /** Counts of the groups of events of the current day. */
  readonly counts: GroupCounts;
  /** They write while the database is available. */
  readonly #writers: ByNode<EventWriter>;
  /** The writers of events of past days, whose partitions may be locked or missing one by one. */
  readonly past: PastWriter;
  /** The writers of requests that are stored as a whole, of each lane. */
  readonly #requests: ByNode<Readonly<Record<Lane, IdempotentWriter>>>;
  readonly #keyTable: KeyTable;
  readonly #replayWriter: ReplayWriter | null;
  readonly #replay: Replay | null;

  constructor(options: DurableWriterOptions) {
    const { journal, log, now, nodes, engine } = options;
    this.counts = newGroupCounts(now);
    this.#options = options;
    this.#writers = new ByNode(
      nodes,
      (node) =>
        new EventWriter({
          node,
          engine,
          connections: options.connections,
          timeouts: journal === null ? REFUSING : JOURNALING,
          counts: this.counts,
          onExhausted: (group, { refusal, failure }) => {
            // The other nodes of a cluster take events.
            if (node === nodes.home) this.availability.writeFailed();
            // A missing partition for the current day is an outage, not an error of the events.
            return this.#keep(group, failure === 'no-partition' ? this.availability.refusal : refusal);
          },
          log,
          now,
        }),
    );
    this.past = new PastWriter({
      nodes,
      engine,
      connections: options.pastConnections,
      timeouts: journal === null ? REFUSING_PAST : JOURNALING_PAST,
      keep: (group, refusal) => this.#keep(group, refusal),
      log,
      now,
    });
    const keyTable = new KeyTable(options.areKeysLocked, log);
    this.#keyTable = keyTable;
    const onBlocked = async (): Promise<void> => {
      if (!(await keyTable.suspect())) this.availability.writeFailed();
    };
    this.#requests = new ByNode(nodes, (node) => {
      const common = { node, engine, log, now };
      return {
        event: new IdempotentWriter({ ...common, name: 'tidemark idempotent events', onBlocked }),
        batch: new IdempotentWriter({ ...common, name: 'tidemark idempotent batches', onBlocked }),
        past: new IdempotentWriter({
          ...common,
          name: 'tidemark idempotent past',
          past: true,
          // What blocks may be a lock on one of the past days.
          onBlocked: async () => void (await keyTable.suspect()),
        }),
      };
    });
    const replayWriter =
      journal && new ReplayWriter({ nodes, engine, identity: journal.installation.identity, log, now });
    this.#replayWriter = replayWriter;
    this.#replay =
      journal &&
      replayWriter &&
      new Replay({
        journal,
        write: (group) => replayWriter.write(group),
        onUnreachable: () => this.availability.writeFailed(),
        mayRun: () => this.availability.writable,
        log,
        now,
      });
    this.availability = new Availability({
      connect: nodes.home.connect,
      tables: tablesOfWrites(engine),
      log,
      now,
      canWrite: () => this.#canWrite(),
      isDiskFull: () => this.#writers.all.some((writer) => writer.isDiskFull),
      watch: options.watch,
      onWritable: () => this.#replay?.run(),
    });
  }

  start(): void {
    const { nodes, log, now } = this.#options;
    this.availability.start();
    this.#replay?.start();
    nodes.start({ log, now, onBack: () => this.#replay?.run() });
  }

  /**
   * Stores what waits for a server. During an outage commit groups are kept in the journal; a failure of one of the past days does
   * not put its events there.
   */
  writersAt(node: DataNode): NodeWriters {
    const writer = this.#writers.at(node);
    const writePast = this.past.writeAt(node);
    const requests = this.#requests.at(node);
    return {
      now: (group) => this.#write(group, () => writer.write(group)),
      past: (group) => this.#write(group, () => writePast(group)),
      requests: (given, lane) => this.#writeRequests(given, requests[lane]),
    };
  }

  /** The journal does not take them: without the table of keys a repeated request is not recognized. */
  async #writeRequests(
    requests: readonly IdempotentRequest[],
    writer: IdempotentWriter,
  ): Promise<readonly IdempotentOutcome[]> {
    if (!this.availability.writable) return requests.map(() => UNAVAILABLE);
    const { refusal } = this.#keyTable;
    if (refusal === null) return await writer.write(requests);
    const others = requests.filter(({ identity }) => identity === null);
    const outcomes = others.length === 0 ? [] : await writer.write(others);
    const byRequest = new Map(others.map((request, index) => [request, outcomes[index]]));
    return requests.map((request) => byRequest.get(request) ?? refusal);
  }

  #write(group: readonly AcceptedEvent[], write: () => Promise<Outcomes>): Promise<Outcomes> {
    return this.availability.writable ? write() : this.#keep(group, this.availability.refusal);
  }

  /** Number of groups by the name of the node of a cluster that they were sent to. */
  get groupsByNode(): ReadonlyMap<string, number> {
    if (this.#options.nodes.names.length === 0) return new Map();
    return new Map(this.#writers.entries.map(([{ name }, { groups }]) => [name, groups]));
  }

  /** Number of tries of groups after their first one. */
  get retries(): number {
    return this.#writers.all.reduce((sum, { retries }) => sum + retries, 0);
  }

  /** Milliseconds for which groups have been in flight and none has ended. Of a node that does not answer nothing is expected. */
  get #stillMs(): number {
    const present = this.#writers.entries.filter(([node]) => !node.isUnreachable);
    return Math.max(0, ...present.map(([, { stillMs }]) => stillMs));
  }

  /** The table of idempotency keys. */
  get keyTable(): Pick<KeyTable, 'refusal' | 'suspect' | 'acceptsIdempotencyKeys'> {
    return this.#keyTable;
  }

  /** False while the database takes no events of the current day, or has not ended a commit group for seconds. */
  get takesEvents(): boolean {
    return this.availability.writable && this.#stillMs < STILL_MS;
  }

  /** Call it when no commit group is in flight. Waiting events stay in the journal for the next start. */
  async stop(): Promise<void> {
    const { journal, log, nodes } = this.#options;
    await Promise.all([this.availability.stop(), nodes.stop(), this.#keyTable.stop()]);
    const requestWriters = this.#requests.all.flatMap((lanes) => Object.values(lanes));
    const writers = [...this.#writers.all, ...requestWriters].map((writer) => writer.close());
    await Promise.all([this.#replay?.stop(), ...writers, this.past.close()]);
    await this.#replayWriter?.close();
    if (journal === null) return;
    const { waitingEvents, waitingBytes } = journal.stats;
    if (waitingEvents > 0)
      log.warn({ waitingEvents, waitingBytes }, 'journal: events wait for the next start');
  }

  /** A stored event proves more than a response of the server. Events of the journal are stored before new ones. */
  async #canWrite(): Promise<boolean> {
    if (!(await this.#someServerTakesEvents())) return false;
    return !['unreachable', 'foreign'].includes((await this.#replay?.step()) ?? 'empty');
  }

  /** One node that takes no events does not keep the others from taking some. */
  async #someServerTakesEvents(): Promise<boolean> {
    const { nodes, wall } = this.#options;
    await nodes.ready().catch(() => undefined); // The coordinator then says what is wrong with it.
    for (const [node, appId] of nodes.sampleApps())
      if (!node.isUnreachable && (await this.#writers.at(node).canWrite(wall(), appId))) return true;
    return false;
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
