/** What goes wrong, when, and for how long: the seed decides. */
import { dayOf } from '../../src/storage/write/accepted-event.ts';
import type { Disk } from './disk.ts';
import { START } from './process.ts';
import { NO_CHANCES, PACE, type Server } from './server.ts';
import type { World } from './world.ts';

/** What faults act on, beside the server and the disk. */
export interface Targets {
  readonly world: World;
  readonly server: Server;
  readonly disk: Disk;
  readonly hasJournal: boolean;
  /** Kills a process, which starts again later. */
  killOne(): void;
  /** Stops a process in order, which starts again later. */
  stopOne(): void;
  /** All machines lose their power; the processes start again later. */
  cutPower(): void;
  deleteApp(appId: number): void;
  /** Days for which no partition could be made at some time. */
  readonly impossibleDays: Set<number>;
}

/** Begins a fault. @returns ends it; null: it is over at once */
type Fault = (targets: Targets) => (() => void) | null;

const FAULTS: Readonly<Record<string, Fault>> = {
  'the server is gone': ({ server }) => {
    server.kill();
    server.state = 'gone';
    return () => server.goOn();
  },
  'the server restarts': ({ server }) => {
    server.kill();
    return null;
  },
  'the server is silent': ({ server }) => {
    server.state = 'silent';
    return () => server.goOn();
  },
  'connections are cut': ({ server }) => {
    server.breakAll();
    return null;
  },
  'the network is bad': ({ world: { random }, server }) => {
    server.chances = {
      cutRequest: random.between(0, 0.2),
      cutAnswer: random.between(0, 0.3),
      late: random.between(0, 0.3),
      refused: random.between(0, 0.2),
    };
    return () => {
      server.chances = NO_CHANCES;
    };
  },
  'statements are slow': ({ world: { random }, server }) => {
    server.pace = [1, random.between(200, 14_000)];
    if (random.chance(0.5)) server.probePace = server.pace;
    return () => {
      server.pace = PACE;
      server.probePace = PACE;
    };
  },
  'the server is read-only': ({ server: { database } }) => {
    database.isReadOnly = true;
    return () => {
      database.isReadOnly = false;
    };
  },
  'writes fail': ({ world: { random }, server: { database } }) => {
    database.refusal = random.pick(['53100', '42501', '58030', '40P01', '57014', 'XX000']);
    return () => {
      database.refusal = null;
    };
  },
  'the table is locked': ({ server: { database } }) => {
    database.isLocked = true;
    return () => {
      database.isLocked = false;
    };
  },
  'the table of keys is locked': ({ server: { database } }) => {
    database.areKeysLocked = true;
    return () => {
      database.areKeysLocked = false;
    };
  },
  'days are locked': ({ world: { random }, server: { database } }) => {
    const days = Array.from({ length: random.int(1, 3) }, () => dayOf(START) - random.int(0, 5));
    for (const day of days) database.lockedDays.add(day);
    return () => {
      for (const day of days) database.lockedDays.delete(day);
    };
  },
  'a day has no partition': ({ world: { random }, server: { database }, impossibleDays }) => {
    const day = dayOf(START) - random.int(0, 6);
    for (const days of [database.impossibleDays, impossibleDays]) days.add(day);
    if (![...database.rows.values()].some(({ createdAt }) => dayOf(createdAt) === day))
      database.days.delete(day);
    return () => void database.impossibleDays.delete(day);
  },
  'the disk is slow': ({ disk }) => {
    disk.state = 'slow';
    return () => {
      disk.state = 'well';
    };
  },
  'the disk is full': ({ disk }) => {
    disk.state = 'full';
    return () => {
      disk.state = 'well';
    };
  },
  'the disk fails': ({ disk }) => {
    disk.state = 'failing';
    return () => {
      disk.state = 'well';
    };
  },
  'a process is killed': (targets) => {
    targets.killOne();
    return null;
  },
  'a process is stopped': (targets) => {
    targets.stopOne();
    return null;
  },
  'the power is cut': (targets) => {
    targets.cutPower();
    return null;
  },
  'an app is deleted': (targets) => {
    targets.deleteApp(targets.world.random.int(1, 4));
    return null;
  },
};

const OF_DISKS = /disk/;
const LONGEST_MS = [300, 1_500, 6_000, 16_000] as const;

/** Plans faults. @param until when the last of them has begun @returns when all are over */
export function planFaults(targets: Targets, count: number, until: number): number {
  const { world, hasJournal } = targets;
  const names = Object.keys(FAULTS).filter((name) => hasJournal || !OF_DISKS.test(name));
  const active = new Set<string>();
  let overAt = 0;
  for (let more = count; more > 0; more -= 1) {
    const name = world.random.pick(names);
    const ms = world.random.between(20, world.random.pick(LONGEST_MS));
    const strike = (): void => {
      // The end of one would end the other.
      if (active.has(name)) return;
      world.note(() => `fault: ${name} for ${Math.round(ms)} ms`);
      const end = FAULTS[name]?.(targets) ?? null;
      if (end === null) return;
      active.add(name);
      const over = (): void => {
        world.note(() => `over: ${name}`);
        active.delete(name);
        end();
      };
      world.after(ms, over, null);
    };
    const at = world.random.between(0, until);
    overAt = Math.max(overAt, at + ms);
    world.after(at, strike, null);
  }
  return overAt;
}

export const FAULT_NAMES: readonly string[] = Object.keys(FAULTS);
