/** The loop of maintenance: a step that fails keeps no other from running, and is logged when it begins and when it ends. */
import { afterEach, expect, test, vi } from 'vitest';
import { MaintenanceLoop, type MaintenanceTasks, runSteps } from '../../../src/storage/maintenance/loop.ts';

interface Line {
  readonly message: string;
  readonly step?: string;
}

const MINUTE_MS = 60_000;

afterEach(() => {
  vi.useRealTimers();
});

/** A loop whose rounds the test runs, on a clock that it moves. */
async function setUp(tasks: Pick<MaintenanceTasks, 'everySecond' | 'everyTenMinutes'>) {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const lines: Line[] = [];
  const write = (fields: { step?: string }, message: string): void => {
    lines.push({ message, ...(fields.step !== undefined && { step: fields.step }) });
  };
  let now = 0;
  const loop = new MaintenanceLoop({
    tasks: {
      ...tasks,
      prepare: async () => undefined,
      fields: { waitingSeconds: 0, uncountedMinutes: 0, others: 0 },
      consumers: { states: { ok: 0, lagging: 0, lost: 0 }, lagSeconds: 0, takeNotices: () => [] },
    },
    // The loop uses no more of them.
    snapshots: { look: async () => undefined, seconds: 0 } as never,
    leader: { take: async () => true, isOurs: true, start: () => undefined, stop: () => undefined },
    log: { warn: write, info: write } as never,
    now: () => now,
  });
  const round = async (ms = 1_000): Promise<void> => {
    now += ms;
    await vi.advanceTimersByTimeAsync(1_000);
  };
  loop.start();
  await vi.advanceTimersByTimeAsync(0);
  return { loop, lines, round };
}

test('a step that fails keeps those after it from nothing, and is logged once until it works again', async () => {
  const done = { second: 0, last: 0 };
  let isBroken = true;
  const { loop, lines, round } = await setUp({
    everySecond: () =>
      runSteps({
        keys: async () => {
          done.second += 1;
          if (isBroken) throw new Error('permission denied');
        },
        profiles: async () => {
          done.last += 1;
        },
      }),
    everyTenMinutes: async () => [],
  });
  for (let i = 0; i < 2; i += 1) await round();
  expect(done).toEqual({ second: 3, last: 3 });
  expect(loop.failures).toBe(3);
  expect(lines).toEqual([{ message: 'maintenance: failed, retrying', step: 'every second: keys' }]);
  isBroken = false;
  await round();
  expect(lines[1]).toEqual({ message: 'maintenance: works again', step: 'every second: keys' });
  await loop.stop();
});

test('work of ten minutes that fails is retried after a minute, not every second, and the other work goes on', async () => {
  const runs = { seconds: 0, tenMinutes: 0 };
  const { loop, round } = await setUp({
    everySecond: async () => {
      runs.seconds += 1;
    },
    everyTenMinutes: async () => {
      runs.tenMinutes += 1;
      throw new Error('removal failed');
    },
  });
  for (let i = 0; i < 29; i += 1) await round();
  expect(runs).toEqual({ seconds: 30, tenMinutes: 1 });
  await round(MINUTE_MS);
  expect(runs).toEqual({ seconds: 31, tenMinutes: 2 });
  await loop.stop();
});

test('work of ten minutes is due at the beginning of each UTC day, and is retried as ever where it fails then', async () => {
  let [runs, isBroken] = [0, false];
  const { loop, round } = await setUp({
    everySecond: async () => undefined,
    everyTenMinutes: async () => {
      runs += 1;
      if (isBroken) throw new Error('removal failed');
      return [];
    },
  });
  await round(24 * 60 * MINUTE_MS - 30_000);
  expect(runs).toBe(2);
  isBroken = true;
  await round(29_000);
  expect(runs).toBe(2);
  for (let second = 0; second < 5; second += 1) await round();
  expect(runs).toBe(3);
  await loop.stop();
});
