/**
 * A deterministic simulation of the write path, in the manner of FoundationDB and TigerBeetle: the service's own commit
 * buffer, writers, journal, replay and idempotency, on a simulated database, disk, network and clock. A seed decides what
 * clients send, what goes wrong, and how long everything takes.
 */
import { dayOf } from '../../src/storage/write/accepted-event.ts';
import { APPS, Clients, type Habits, MIXED_EVENTS, TYPES } from './clients.ts';
import { Database } from './database.ts';
import { Disk } from './disk.ts';
import { planFaults } from './faults.ts';
import { compare } from './ledger.ts';
import { type Machine, type ProcessSettings, SimulatedProcess, START } from './process.ts';
import type { Random } from './random.ts';
import { probeRoom } from './room.ts';
import { Server } from './server.ts';
import { type Owner, World } from './world.ts';

export interface Run {
  readonly seed: number;
  /** What was wrong; null: nothing. */
  readonly failure: Error | null;
  readonly steps: number;
  /** Simulated. */
  readonly seconds: number;
  readonly events: number;
  readonly acknowledged: number;
  readonly stored: number;
  /** The last of what happened, for people. */
  readonly trace: readonly string[];
}

/** How long everything may take to come to rest once nothing is wrong any more. */
const REST_MS = 120_000;
const STOP_MS = 60_000;
/** Between looks at whether everything has come to rest. */
const LOOK_MS = 500;

interface Plan {
  readonly settings: ProcessSettings;
  readonly engine: 'postgres' | 'timescale';
  readonly processes: number;
  readonly trafficMs: number;
  readonly requests: number;
  readonly faults: number;
  readonly habits: Habits;
  /** Nothing goes wrong, but commits may be slow. */
  readonly isCalm: boolean;
}

function planOf(random: Random): Plan {
  const isCalm = random.chance(0.12);
  const mixedDays = random.pick([0, 0, 0, 0, 0, 0.1, 0.4]);
  const events = mixedDays > 0 ? random.int(2 * MIXED_EVENTS, 3 * MIXED_EVENTS) : random.int(10, 80);
  const isCrowded = random.chance(0.3);
  const isLarge = random.chance(0.01);
  return {
    settings: {
      COMMIT_CONNECTIONS: random.int(1, 3),
      COMMIT_BUFFER_EVENTS: isLarge ? 6_000 : events,
      COMMIT_BUFFER_BYTES: (isLarge ? 6_000 : events) * random.int(100, 400),
      JOURNAL_MAX_BYTES: random.chance(0.6) ? random.pick([4_000, 20_000, 200_000]) : 0,
    },
    engine: random.chance(0.8) ? 'postgres' : 'timescale',
    processes: random.chance(0.3) ? 2 : 1,
    trafficMs: random.pick([300, 3_000, 12_000]),
    requests: isLarge ? 12 : random.int(10, isCrowded ? 150 : 60),
    faults: isCalm ? 0 : random.int(1, 6),
    habits: {
      kinds: random.pick([
        ['single', 'batch', 'keyed', 'idempotent'],
        ['single', 'single', 'single', 'batch'],
        ['batch'],
        ['keyed', 'idempotent'],
      ] as const),
      mostEvents: isLarge ? 3_000 : random.pick([3, 20, 60]),
      past: random.pick([0, 0.1, 0.6]),
      keyed: random.pick([0, 0.3, 0.9]),
      // Each try of the others takes as long as a commit.
      poison: !isCalm && random.chance(0.3) ? 0.05 : 0,
      fillers: random.pick([[0], [0, 20, 100], [0, 0, 0, 2_000]] as const),
      mixedDays: isLarge ? 0 : mixedDays,
    },
    isCalm,
  };
}

/** The run of a seed. @param isTraced whether to keep what has happened */
export async function simulate(seed: number, isTraced = false): Promise<Run> {
  const world = new World(seed, isTraced);
  const simulation = new Simulation(world);
  const uninstall = world.install();
  const onRejection = (error: unknown): void => world.fail(error);
  process.on('unhandledRejection', onRejection);
  let failure: Error | null = null;
  try {
    await simulation.run();
  } catch (error) {
    failure = error instanceof Error ? error : new Error(String(error));
  } finally {
    uninstall();
    process.off('unhandledRejection', onRejection);
  }
  return {
    seed,
    failure,
    steps: world.steps,
    seconds: world.now / 1_000,
    trace: world.trace ?? [],
    ...simulation.sums,
  };
}

/** A process, or the one that will take its place. */
interface Place {
  readonly name: string;
  /** Changes with each start. */
  owner: Owner;
  running: SimulatedProcess | null;
  lives: number;
}

class Simulation {
  readonly #world: World;
  readonly #plan: Plan;
  readonly #machine: Machine;
  readonly #places: readonly Place[];
  readonly #clients: Clients;
  readonly #deletedApps = new Set<number>();
  readonly #impossibleDays = new Set<number>();
  /** Processes that stop. */
  readonly #stopping = new Set<Owner>();

  constructor(world: World) {
    this.#world = world;
    this.#plan = planOf(world.random);
    const { engine, processes, settings, habits, isCalm } = this.#plan;
    const database = new Database(engine);
    for (let app = 1; app <= APPS; app += 1) {
      database.apps.set(`app_${app}`, app);
      for (let type = 1; type <= TYPES; type += 1)
        database.types.set(`${app} type ${10 * app + type}`, 10 * app + type);
    }
    for (const day of [0, -1, -2]) database.days.add(dayOf(START) + day);
    const server = new Server(world, database);
    // The probe is answered in time, so that a slow commit is no sign of an outage.
    if (isCalm)
      server.pace = [0.5, world.random.pick(settings.JOURNAL_MAX_BYTES === 0 ? [3, 4_000] : [3, 400])];
    this.#machine = { world, server, disk: new Disk(world), settings };
    this.#places = Array.from({ length: processes }, (_, index) => ({
      name: `process ${index + 1}`,
      owner: {},
      running: null,
      lives: 0,
    }));
    this.#clients = new Clients(world, habits, () => world.random.pick(this.#places).running);
    world.note(() => `seed plan: ${JSON.stringify(this.#plan)}`);
  }

  get sums(): { events: number; acknowledged: number; stored: number } {
    const { wishes } = this.#clients;
    return {
      events: wishes.length,
      acknowledged: wishes.filter(({ acknowledged }) => acknowledged).length,
      stored: this.#machine.server.database.rows.size,
    };
  }

  async run(): Promise<void> {
    const world = this.#world;
    const { trafficMs, requests, faults } = this.#plan;
    for (const place of this.#places) this.#start(place, 0);
    for (let more = requests; more > 0; more -= 1)
      world.after(world.random.between(5, trafficMs), () => this.#clients.send(), null);
    const overAt = planFaults(this.#targets(), faults, trafficMs);
    await this.#go(() => false, Math.max(overAt, trafficMs));
    let isAtRest = false;
    const look = (): void => {
      isAtRest = this.#isAtRest();
      world.after(LOOK_MS, look, null);
    };
    look();
    if (!(await this.#go(() => isAtRest, world.now + REST_MS)))
      throw new Error(`It does not come to rest: ${this.#describe()}`);
    this.#clients.goAway();
    await this.#probeRoom();
    await this.#stopAll();
    this.#compare();
    this.#checkCalm();
  }

  #go(isOver: () => boolean, until: number): Promise<boolean> {
    return this.#world.run(isOver, until, () => {
      for (const { running } of this.#places) if (running !== null) this.#check(running);
    });
  }

  #check({ held, journal }: SimulatedProcess): void {
    held.now.check();
    held.past.check();
    if (journal === null || this.#places.length > 1) return;
    // Of another process it takes over what that has left, whatever its own limit.
    const { waitingBytes, waitingEvents } = journal.stats;
    if (waitingBytes > this.#plan.settings.JOURNAL_MAX_BYTES)
      throw new Error(`The journal has ${waitingBytes} bytes (${waitingEvents} events), beyond its limit.`);
  }

  #start(place: Place, ms: number): void {
    const world = this.#world;
    place.owner = {};
    place.lives += 1;
    const { owner } = place;
    const name = `${place.name}.${place.lives}`;
    const start = (): void => {
      SimulatedProcess.start(this.#machine, owner, name).then(
        (started) => {
          world.note(() => `${name} has started`);
          place.running = started;
        },
        (error: unknown) => {
          // The disk fails: the operator tries again.
          world.note(() => `${name} cannot start: ${String(error)}`);
          this.#machine.disk.release(owner);
          world.end(owner);
          this.#start(place, 500);
        },
      );
    };
    world.after(ms, start, owner);
  }

  /** Also one that is starting, or stopping. */
  #kill(place: Place): void {
    this.#world.note(() => `${place.name} is killed`);
    this.#stopping.delete(place.owner);
    place.running = null;
    this.#world.end(place.owner);
    this.#machine.disk.release(place.owner);
    this.#start(place, this.#world.random.between(10, 3_000));
  }

  #stop(place: Place): void {
    const { running } = place;
    if (running === null) return;
    this.#world.note(() => `${place.name} stops`);
    const { owner } = place;
    place.running = null;
    this.#stopping.add(owner);
    const end = (): void => {
      // It was killed meanwhile.
      if (place.owner !== owner) return;
      if (this.#clients.unanswered(running) > 0)
        throw new Error('A process has stopped and left requests without an answer.');
      this.#stopping.delete(owner);
      this.#world.note(() => `${place.name} has stopped`);
      this.#machine.disk.release(owner);
      this.#world.end(owner);
      this.#start(place, this.#world.random.between(10, 500));
    };
    this.#world.as(owner, () => {
      running.stop().then(
        () => void this.#world.after(1, end, null),
        (error: unknown) => this.#world.fail(error),
      );
    });
  }

  #targets() {
    const { world, server, disk, settings } = this.#machine;
    return {
      world,
      server,
      disk,
      hasJournal: settings.JOURNAL_MAX_BYTES > 0,
      impossibleDays: this.#impossibleDays,
      killOne: () => this.#kill(world.random.pick(this.#places)),
      stopOne: () => this.#stop(world.random.pick(this.#places)),
      cutPower: () => {
        for (const place of this.#places) this.#kill(place);
        server.kill();
        disk.cutPower();
      },
      deleteApp: (appId: number) => this.#deleteApp(appId),
    };
  }

  #deleteApp(appId: number): void {
    const { database } = this.#machine.server;
    this.#deletedApps.add(appId);
    database.apps.delete(`app_${appId}`);
    for (const [key, row] of database.rows) if (row.appId === appId) database.rows.delete(key);
    for (const key of database.counted.keys()) if (key.startsWith(`${appId} `)) database.counted.delete(key);
  }

  #isAtRest(): boolean {
    return (
      this.#stopping.size === 0 &&
      this.#places.every(
        ({ running }) =>
          running?.isIdle === true &&
          running.store.availability.writable &&
          this.#clients.unanswered(running) === 0,
      )
    );
  }

  #describe(): string {
    return this.#places
      .map(({ name, running }) => {
        if (running === null) return `${name} is not there`;
        const unanswered = this.#clients.unanswered(running);
        return `${name}: ${unanswered} requests unanswered, ${JSON.stringify(running.journal?.stats ?? null)}`;
      })
      .join('; ');
  }

  /** All room is given back: as much as fits into an unused buffer is taken, and stored. */
  async #probeRoom(): Promise<void> {
    for (const { running } of this.#places) {
      if (running === null) continue;
      let isOver = false;
      this.#world.as(running.owner, () => {
        probeRoom(running, this.#plan.settings).then(
          () => {
            isOver = true;
          },
          (error: unknown) => this.#world.fail(error),
        );
      });
      if (!(await this.#go(() => isOver, this.#world.now + REST_MS)))
        throw new Error('The last events are not answered.');
    }
  }

  async #stopAll(): Promise<void> {
    let left = this.#places.length;
    for (const { running, owner } of this.#places)
      this.#world.as(owner, () => {
        running?.stop().then(
          () => {
            left -= 1;
          },
          (error: unknown) => this.#world.fail(error),
        );
      });
    if (!(await this.#go(() => left === 0, this.#world.now + STOP_MS)))
      throw new Error('A process does not stop.');
  }

  #compare(): void {
    const { server, disk } = this.#machine;
    const allowances = { deletedApps: this.#deletedApps, impossibleDays: this.#impossibleDays };
    compare(this.#clients.wishes, server.database, disk, allowances);
  }

  /** Where nothing goes wrong, nothing is refused but for want of room or for its data. */
  #checkCalm(): void {
    if (!this.#plan.isCalm) return;
    const expected = /^unavailable: Too many events wait|^invalidBody: The database refuses this event/;
    for (const { number, refusals } of this.#clients.wishes)
      for (const refusal of refusals)
        if (!expected.test(refusal))
          throw new Error(`Nothing was wrong, and event ${number} was refused: ${refusal}`);
  }
}
