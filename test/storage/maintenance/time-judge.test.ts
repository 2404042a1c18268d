/** The judge of time, on witnesses that jump one by one and together. */
import { beforeEach, describe, expect, test } from 'vitest';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/base/time-units.ts';
import { type DatabaseTimes, TimeJudge } from '../../../src/storage/maintenance/time-judge.ts';

const NOW = Date.UTC(2026, 0, 15, 12);

/** What really passes, and how far each witness is off. */
let passed: number;
let asleep: number;
let off: { wall: number; database: number };
let noted: DatabaseTimes['noted'];
let said: string[];
beforeEach(() => {
  passed = 0;
  asleep = 0;
  off = { wall: 0, database: 0 };
  noted = null;
  said = [];
});

const truth = (): number => NOW + passed;
const begin = async ({ hasClock = true } = {}): Promise<TimeJudge> => {
  const started = passed;
  const judge = new TimeJudge({
    wall: () => truth() + off.wall,
    elapsed: () => passed - started - asleep,
    uptime: () => passed - started,
    database: hasClock
      ? {
          read: async () => ({ now: truth() + off.database, noted }),
          note: async (note) => {
            if (noted === null || note.at >= noted.at) noted = note;
          },
        }
      : null,
    log: {
      info: (_, message) => said.push(message),
      warn: (_, message) => said.push(message),
    },
  });
  await judge.look();
  return judge;
};
/** Hours go by, with a look every ten minutes. */
const run = async (judge: TimeJudge, hours: number): Promise<void> => {
  for (let step = 0; step < 6 * hours; step += 1) {
    passed += 10 * MINUTE_MS;
    await judge.look();
  }
};

const JUMPS = [30 * DAY_MS, -30 * DAY_MS, 2 * HOUR_MS, -2 * HOUR_MS, HOUR_MS, -HOUR_MS];

describe.each(JUMPS)('a jump by %d ms', (jump) => {
  test.each(['wall', 'database'] as const)(
    'of the %s clock alone passes nothing, before any look too, and is told',
    async (witness) => {
      const judge = await begin();
      off[witness] = jump;
      expect(judge.now()).toBeLessThanOrEqual(truth());
      expect(Math.abs(judge.wall() - truth())).toBeLessThanOrEqual(HOUR_MS);
      await run(judge, 30);
      expect(judge.now()).toBeLessThanOrEqual(truth());
      expect(Math.abs(judge.wall() - truth())).toBeLessThanOrEqual(HOUR_MS);
      expect(judge.doubt?.databaseSeconds).toBe((witness === 'database' ? jump : -jump) / 1_000);
      off[witness] = 0;
      await judge.look();
      expect([judge.now(), judge.wall(), judge.doubt]).toEqual([truth(), truth(), null]);
      expect(said).toHaveLength(2);
    },
  );

  test.each([true, false])(
    'of both passes an hour at most, for a day (a clock of the database: %s)',
    async (hasClock) => {
      const judge = await begin({ hasClock });
      off = { wall: jump, database: jump };
      expect(judge.now()).toBeLessThanOrEqual(truth() + HOUR_MS);
      await run(judge, 23);
      expect(judge.now()).toBeLessThanOrEqual(truth() + HOUR_MS);
      // Users see the time of day that all clocks show.
      expect(judge.wall()).toBe(truth() + jump);
      expect(judge.doubt?.jumpSeconds ?? 0).toBe(Math.abs(jump) > HOUR_MS ? jump / 1_000 : 0);
      off = { wall: 0, database: 0 };
      await judge.look();
      expect([judge.now(), judge.doubt]).toEqual([truth(), null]);
    },
  );

  test('of both that stands for a day is believed, over restarts too', async () => {
    let judge = await begin();
    off = { wall: jump, database: jump };
    await run(judge, 13);
    judge = await begin();
    await run(judge, 13);
    expect([judge.now(), judge.doubt]).toEqual([truth() + jump, null]);
  });
});

test('a start passes what is due by both clocks where nothing was noted', async () => {
  expect((await begin()).now()).toBe(NOW);
  noted = null;
  off.wall = 30 * DAY_MS;
  const judge = await begin();
  expect([judge.now(), judge.wall()]).toEqual([NOW, NOW]);
});

test('a start with both clocks a month ahead of what was noted passes nothing for a day, and one after a night all', async () => {
  await run(await begin(), 1);
  off = { wall: 30 * DAY_MS, database: 30 * DAY_MS };
  const judge = await begin();
  expect(judge.now()).toBe(truth());
  await run(judge, 12);
  expect(judge.now()).toBe(truth());
  expect(judge.doubt?.jumpSeconds).toBe((30 * DAY_MS) / 1_000);
  off = { wall: 0, database: 0 };
  passed += 12 * HOUR_MS;
  const next = await begin();
  expect([next.now(), next.doubt]).toEqual([truth(), null]);
});

test('a start with one clock a month off goes by the other one, whichever was noted nearer', async () => {
  await run(await begin(), 1);
  for (const witness of ['wall', 'database'] as const)
    for (const jump of [30 * DAY_MS, -30 * DAY_MS]) {
      off = { wall: 0, database: 0, [witness]: jump };
      const judge = await begin();
      expect(judge.now()).toBeLessThanOrEqual(truth());
      expect(judge.wall()).toBe(truth());
    }
});

test('weeks off are made up for after a day of running, in pieces too', async () => {
  await run(await begin(), 1);
  passed += 30 * DAY_MS;
  for (let day = 0; day < 4; day += 1) {
    const judge = await begin();
    expect(judge.wall()).toBe(truth());
    expect(judge.now()).toBeLessThan(truth() - 20 * DAY_MS);
    await run(judge, 7);
    passed += 17 * HOUR_MS;
  }
  expect((await begin()).now()).toBe(truth());
});

test('a machine that slept has not jumped, before the next look too', async () => {
  const judge = await begin();
  passed += 9 * HOUR_MS;
  asleep += 9 * HOUR_MS;
  expect([judge.wall(), judge.now()]).toEqual([truth(), truth()]);
  await judge.look();
  expect([judge.wall(), judge.now(), judge.doubt]).toEqual([truth(), truth(), null]);
});

test('clocks that are corrected by seconds pass on, and a minute between them is none', async () => {
  const judge = await begin();
  for (let step = 0; step < 100; step += 1) {
    off = { wall: off.wall + 30_000, database: off.database + 30_000 };
    await run(judge, 1 / 6);
    expect(judge.now()).toBe(truth() + off.wall);
  }
  off.database += MINUTE_MS;
  await judge.look();
  expect([judge.doubt, said]).toEqual([null, []]);
});
