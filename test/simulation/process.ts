/** One process of the service: its write path from the queues on, put together by the service's own code. */
import type { Logger } from 'pino';
import { AppAccounts } from '../../src/apps/app-accounts.ts';
import { Journal } from '../../src/ingest/journal/journal.ts';
import { DurableWriter } from '../../src/ingest/queue/durable-writer.ts';
import type { WriteQueues } from '../../src/ingest/queue/write-queues.ts';
import { openQueues, PAST_CONNECTIONS } from '../../src/ingest/write-path.ts';
import type { Connect } from '../../src/storage/database/copy-connection.ts';
import { oneServer } from '../../src/storage/database/nodes.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import { IDENTITY } from './database.ts';
import type { Disk } from './disk.ts';
import { HeldEvents } from './held-events.ts';
import { type Server, SimulatedConnection } from './server.ts';
import type { Owner, World } from './world.ts';

/** 2026-01-15, after noon. */
export const START = Date.UTC(2026, 0, 15, 12, 0, 7);

export interface ProcessSettings {
  readonly COMMIT_CONNECTIONS: number;
  readonly COMMIT_BUFFER_EVENTS: number;
  readonly COMMIT_BUFFER_BYTES: number;
  /** 0: without a journal. */
  readonly JOURNAL_MAX_BYTES: number;
}

export interface Machine {
  readonly world: World;
  readonly server: Server;
  readonly disk: Disk;
  readonly settings: ProcessSettings;
}

export class SimulatedProcess {
  readonly owner: Owner;
  readonly journal: Journal | null;
  readonly store: DurableWriter;
  readonly queues: WriteQueues;
  /** What each buffer holds. */
  readonly held: { readonly now: HeldEvents; readonly past: HeldEvents };
  /** How often each event was acknowledged. */
  readonly stored = new Map<AcceptedEvent, number>();

  /** Starts in its owner's name. */
  static async start(machine: Machine, owner: Owner, name: string): Promise<SimulatedProcess> {
    const { world, disk, settings } = machine;
    const log = logOf(world, name);
    const journal =
      settings.JOURNAL_MAX_BYTES === 0
        ? null
        : await Journal.open({
            folder: '/journal',
            installation: { identity: IDENTITY, generation: '0123456789abcdef' },
            maxBytes: settings.JOURNAL_MAX_BYTES,
            log,
            files: disk.filesOf(owner),
          });
    const started = new SimulatedProcess(machine, owner, name, journal);
    started.store.start();
    return started;
  }

  private constructor(
    { world, server, settings }: Machine,
    owner: Owner,
    name: string,
    journal: Journal | null,
  ) {
    this.owner = owner;
    this.journal = journal;
    const engine = ENGINES[server.database.engine].writes;
    const log = logOf(world, name);
    const monotonic = (): number => world.now;
    const connections: SimulatedConnection[] = [];
    const connect: Connect = (purpose, timeouts) => {
      const connection = new SimulatedConnection(server, owner, `${name} ${purpose}`, timeouts);
      connections.push(connection);
      return connection;
    };
    const breakConnections = (evenIfWaiting: boolean): void => {
      for (const connection of connections) connection.break(evenIfWaiting);
    };
    const nodes = oneServer(connect);
    this.store = new DurableWriter({
      nodes,
      engine,
      connections: settings.COMMIT_CONNECTIONS,
      pastConnections: PAST_CONNECTIONS,
      areKeysLocked: async () => {
        await world.delay(1);
        return server.state === 'up' && server.database.areKeysLocked;
      },
      journal,
      watch: {
        problem: null,
        breakAll: () => breakConnections(true),
        breakSilent: () => breakConnections(false),
        followsWal: false,
        noteWal: () => undefined,
      },
      log,
      now: monotonic,
      wall: () => Math.floor(START + world.now),
    });
    const onStored = (event: AcceptedEvent): void => {
      this.stored.set(event, (this.stored.get(event) ?? 0) + 1);
    };
    const options = { accounts: new AppAccounts(), config: settings, nodes, journal, monotonic, onStored };
    this.held = { now: new HeldEvents(world, settings), past: new HeldEvents(world, settings) };
    const { store } = this;
    this.queues = openQueues(options, {
      writersAt: (node) => {
        const { now, past, requests } = store.writersAt(node);
        return { now: this.held.now.observed(now), past: this.held.past.observed(past), requests };
      },
      past: store.past,
      counts: store.counts,
      availability: store.availability,
      get takesEvents() {
        return store.takesEvents;
      },
    });
    // There is one server.
    const { now, past } = this.queues.of(1);
    this.held.now.follow(now);
    this.held.past.follow(past);
  }

  /** True where nothing waits, neither in memory nor in the journal. */
  get isIdle(): boolean {
    return this.queues.depth === 0 && (this.journal?.isEmpty ?? true);
  }

  /** Stops in order, as the service does. */
  async stop(): Promise<void> {
    await this.queues.drain();
    await this.store.stop();
    await this.journal?.close();
  }
}

/** A log that is kept for people. */
function logOf(world: World, name: string): Logger {
  const line =
    (level: string) =>
    (fields: object, message?: string): void =>
      world.note(() => {
        const { err, ...others } = fields as { readonly err?: Error };
        const rest = typeof fields === 'string' ? '' : JSON.stringify(others);
        return `${name} ${level} ${message ?? String(fields)} ${rest} ${err?.message ?? ''}`;
      });
  const log = { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') };
  return log as unknown as Logger; // No other method is used here.
}
