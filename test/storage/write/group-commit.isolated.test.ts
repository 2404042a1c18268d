/** What a commit group does after each failure, with a database that answers as the test says. */
import pg from 'pg';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ConnectionLost, type WriteConnection } from '../../../src/storage/database/copy-connection.ts';
import { writes } from '../../../src/storage/engines/postgres/writes.ts';
import type { EngineWrites } from '../../../src/storage/write/engine-writes.ts';
import {
  DISK_FULL,
  FAULT,
  NO_PARTITION,
  OUTCOME_UNKNOWN,
  REFUSING,
  UNAVAILABLE,
} from '../../../src/storage/write/failures.ts';
import {
  type Attempt,
  type FinalFailure,
  GroupCommit,
  type GroupCommitOptions,
  type GroupKind,
} from '../../../src/storage/write/group-commit.ts';

const DAY_MS = 86_400_000;

// Only the waits between tries: nothing else here takes time.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout'] });
});
afterEach(() => vi.useRealTimers());

function sqlError(code: string): pg.DatabaseError {
  return Object.assign(new pg.DatabaseError(code, 0, 'error'), { code });
}

const [LOCKED, POISON, NO_ROOM, DEADLOCK, BROKEN] = [
  sqlError('55P03'),
  sqlError('22P05'),
  sqlError('23514'),
  sqlError('40P01'),
  sqlError('XX000'),
];

/** A unit is an event of a day, by its number since 1970; from a thousand on events of two days, such as 1 and 2 for 1002. */
type Unit = number;

const daysOf = (unit: Unit): number[] =>
  unit >= 1_000 && unit < 10_000 ? [Math.floor(unit / 1_000), unit % 1_000] : [unit];

const dateOf = (day: number): string => new Date(day * DAY_MS).toISOString().slice(0, 10);

function setUp(options: Partial<GroupCommitOptions> = {}) {
  const clock = { ms: 0 };
  /** What each try of units, and each other statement, fails with. */
  const faults: {
    store: (units: readonly Unit[], attempt: Attempt) => Error | null;
    query: (text: string, values: readonly unknown[]) => Error | null;
  } = { store: () => null, query: () => null };
  const database: { lockedDays: readonly string[]; hasLeft: boolean } = { lockedDays: [], hasLeft: false };
  const tries: (readonly Unit[])[] = [];
  const queries: { text: string; values: readonly unknown[] }[] = [];
  const given: (FinalFailure & { readonly units: readonly Unit[] })[] = [];
  const warnings: string[] = [];
  const connection: WriteConnection = {
    get hasLeft() {
      return database.hasLeft;
    },
    copy: async () => undefined,
    query: async (text: string, values: readonly unknown[] = []) => {
      queries.push({ text, values });
      const fault = faults.query(text, values);
      if (fault !== null) throw fault;
      const rows = text === writes.lockedDays ? database.lockedDays.map((day) => ({ day })) : [];
      // The rows of a query are of the type that its caller names.
      return { rows: rows as never[], rowCount: rows.length, command: '', oid: 0, fields: [] };
    },
    close: async () => undefined,
  };
  const kind: GroupKind<Unit, string> = {
    name: 'events',
    store: async (_, units, attempt) => {
      tries.push(units);
      const fault = faults.store(units, attempt);
      if (fault !== null) throw fault;
      return units.map((unit) => `stored ${unit}`);
    },
    eventsOf: (units) =>
      units.flatMap(daysOf).map((day) => ({ id: '', appId: 1, createdAt: day * DAY_MS, payload: '' })),
    refuse: (_, unit) => `refused ${unit}`,
    onExhausted: (units, end) => {
      given.push({ ...end, units });
      return units.map((unit) => `given up ${unit}`);
    },
  };
  const commit = new GroupCommit({
    engine: writes,
    timeouts: { ...REFUSING, unreachableMs: 100, blockedMs: 100, retryMs: 100 },
    log: { warn: (_, message) => warnings.push(message), error: (_, message) => warnings.push(message) },
    now: () => clock.ms,
    ...options,
  });
  const run = async (units: readonly Unit[], uncertain = false): Promise<readonly string[]> => {
    const running = commit.run(kind, connection, units, commit.begin(uncertain));
    await vi.runAllTimersAsync();
    return await running;
  };
  return { commit, run, clock, faults, database, tries, queries, given, warnings };
}

test.each(['isUnreachable', 'hasLeft'])(
  'what is known to fail again is not tried again (%s)',
  async (why) => {
    const { run, faults, database, tries, given } = setUp({ isUnreachable: () => why === 'isUnreachable' });
    database.hasLeft = why === 'hasLeft';
    faults.store = () => new ConnectionLost('refused', false);
    expect(await run([1, 2])).toEqual(['given up 1', 'given up 2']);
    expect(tries).toHaveLength(1);
    expect(given).toMatchObject([{ failure: 'unreachable', refusal: UNAVAILABLE, units: [1, 2] }]);
  },
);

test('a connection that has left for another server is not asked for locks: nothing is tried day by day', async () => {
  const { run, clock, faults, database, queries, tries } = setUp();
  database.hasLeft = true;
  clock.ms = 1_000;
  faults.store = () => LOCKED;
  expect(await run([1, 2])).toEqual(['given up 1', 'given up 2']);
  expect(queries).toEqual([]);
  expect(tries).toHaveLength(1);
});

test.each([new ConnectionLost('reset', true), sqlError('23505')])(
  'after %s the next try knows that rows may be stored, and a group that is given up says so',
  async (fault) => {
    const { run, clock, faults, given } = setUp();
    const seen: boolean[] = [];
    faults.store = (_, { uncertain }) => {
      seen.push(uncertain);
      if (seen.length === 3) clock.ms = 100;
      return seen.length === 1 ? fault : DEADLOCK;
    };
    expect(await run([1])).toEqual(['given up 1']);
    expect(seen).toEqual([false, true, true]);
    expect(given).toMatchObject([{ refusal: OUTCOME_UNKNOWN }]);
  },
);

test('a fault is not tried again, and is told from one after which rows may be stored', async () => {
  for (const [uncertain, refusal] of [
    [false, FAULT],
    [true, OUTCOME_UNKNOWN],
  ] as const) {
    const { run, faults, tries, given, warnings } = setUp();
    faults.store = () => BROKEN;
    expect(await run([1, 2], uncertain)).toEqual(['given up 1', 'given up 2']);
    expect(tries).toHaveLength(1);
    expect(given).toMatchObject([{ failure: 'fault', refusal }]);
    expect(warnings).toEqual(['write: failed']);
  }
});

test('what the database refuses is found by halves, and the outcomes keep their order', async () => {
  const { run, faults, tries } = setUp();
  const isPoison = (unit: Unit): boolean => [3, 8].includes(unit);
  faults.store = (units) => (units.some(isPoison) ? POISON : null);
  const units = Array.from({ length: 9 }, (_, n) => n);
  expect(await run(units)).toEqual(
    units.map((unit) => (isPoison(unit) ? `refused ${unit}` : `stored ${unit}`)),
  );
  expect(tries).toHaveLength(13);
});

test('missing partitions are made, thirty-two days at a time, and the group is tried once more', async () => {
  for (const [count, sizes] of [
    [64, [32, 32]],
    [65, [32, 32, 1]],
  ] as const) {
    const { commit, run, faults, queries, tries } = setUp();
    faults.store = () => (tries.length === 1 ? NO_ROOM : null);
    const days = Array.from({ length: count }, (_, day) => day);
    expect(await run(days)).toHaveLength(count);
    expect(new Set(queries.map(({ text }) => text))).toEqual(new Set([writes.createPartitions]));
    const made = queries.map(({ values }) => values[0] as string[]);
    expect(made.map(({ length }) => length)).toEqual(sizes);
    expect(made.flat()).toEqual(days.map(dateOf));
    expect(tries).toHaveLength(2);
    expect(commit.retries).toBe(1);
  }
});

test.each([
  ['that the role may not make', sqlError('42P17'), 'no-partition', NO_PARTITION],
  ['whose table is locked', LOCKED, 'blocked', UNAVAILABLE],
  ['that a deadlock prevents', DEADLOCK, 'transient', UNAVAILABLE],
  ['for which the disk is full', sqlError('53100'), 'unreachable', DISK_FULL],
  // Nothing of the group was sent, so nothing of it can be stored.
  ['during which the connection breaks', new ConnectionLost('reset', true), 'unreachable', UNAVAILABLE],
] as const)(
  'a partition %s is another failure, with its own cause',
  async (_, obstacle, failure, refusal) => {
    const { run, clock, faults, given } = setUp();
    faults.store = () => NO_ROOM;
    faults.query = () => {
      clock.ms = 100;
      return obstacle;
    };
    expect(await run([1])).toEqual(['given up 1']);
    expect(given).toMatchObject([{ failure, refusal, error: obstacle }]);
  },
);

test('of a group with locked days those are given up, and all others are stored together', async () => {
  const { run, clock, faults, database, queries, tries, given } = setUp();
  database.lockedDays = [dateOf(2), dateOf(4)];
  faults.store = (units) => {
    clock.ms = 100;
    return units.some((unit) => [2, 4].includes(unit)) ? LOCKED : null;
  };
  expect(await run([1, 2, 3, 4, 2, 1])).toEqual([
    'stored 1',
    'given up 2',
    'stored 3',
    'given up 4',
    'given up 2',
    'stored 1',
  ]);
  expect(tries).toEqual([
    [1, 2, 3, 4, 2, 1],
    [1, 1, 3],
  ]);
  expect(queries).toEqual([{ text: writes.lockedDays, values: [[1, 2, 3, 4].map(dateOf)] }]);
  expect(given.map(({ units }) => units)).toEqual([[2, 2], [4]]);
  for (const { refusal, failure } of given)
    expect({ refusal, failure }).toEqual({ refusal: UNAVAILABLE, failure: 'blocked' });
});

test('a unit of several days is given up with any of them, and what is left may need a partition first', async () => {
  const { run, clock, faults, database, queries } = setUp();
  database.lockedDays = [dateOf(2)];
  let made = 0;
  faults.query = (text) => {
    if (text === writes.createPartitions) made += 1;
    return null;
  };
  faults.store = (units) => {
    clock.ms = 100;
    if (units.some((unit) => daysOf(unit).includes(2))) return LOCKED;
    return made === 0 ? NO_ROOM : null;
  };
  expect(await run([1, 1_002, 3_004])).toEqual(['stored 1', 'given up 1002', 'stored 3004']);
  expect(queries.at(-1)).toEqual({ text: writes.createPartitions, values: [[1, 3, 4].map(dateOf)] });
});

test('where the locked days are not known each day is tried alone, and not after three that are locked', async () => {
  const { run, clock, faults, tries, given, warnings } = setUp();
  faults.query = () => sqlError('57014');
  faults.store = (units) => {
    clock.ms = 100;
    return units.some((unit) => unit !== 2) ? LOCKED : null;
  };
  const outcomes = await run([1, 2, 3, 4, 5, 6, 7]);
  expect(outcomes).toEqual([1, 2, 3, 4, 5, 6, 7].map((day) => `${day === 2 ? 'stored' : 'given up'} ${day}`));
  expect(tries.slice(1)).toEqual([[1], [2], [3], [4], [5]]);
  expect(given.at(-1)).toMatchObject({ units: [7], refusal: UNAVAILABLE, failure: 'transient' });
  expect(warnings).toContain('write: locks could not be read');
});

test('days that can have no partition, however many, cost the days beside them nothing', async () => {
  const { run, faults, queries, given } = setUp();
  const made = new Set<unknown>();
  faults.query = (_, [dates]) => {
    const wanted = dates as string[];
    if (wanted.some((date) => [2, 3, 4, 5].map(dateOf).includes(date))) return sqlError('42P17');
    for (const date of wanted) made.add(date);
    return null;
  };
  faults.store = (units) => (units.every((unit) => made.has(dateOf(unit))) ? null : NO_ROOM);
  const days = [1, 2, 3, 4, 5, 6];
  expect(await run(days)).toEqual(
    days.map((day) => `${day === 1 || day === 6 ? 'stored' : 'given up'} ${day}`),
  );
  expect(given).toMatchObject([2, 3, 4, 5].map((day) => ({ units: [day], refusal: NO_PARTITION })));
  expect(queries.some(({ text }) => text === writes.lockedDays)).toBe(false);
});

test('room for past days is made before their rows where rows without it do not fail, and once a day', async () => {
  const engine: EngineWrites = { ...writes, createsPartitionsAhead: true };
  const { run, queries } = setUp({ engine, past: true });
  await run([1, 2]);
  await run([2, 3]);
  await run([1, 3]);
  expect(queries.map(({ values }) => values)).toEqual([[[dateOf(1), dateOf(2)]], [[dateOf(3)]]]);
  const now = setUp({ engine });
  await now.run([1]);
  expect(now.queries).toEqual([]);
});

test('room that cannot be made ahead is left to the rows, and room that may come is waited for', async () => {
  const engine: EngineWrites = { ...writes, createsPartitionsAhead: true };
  const refused = setUp({ engine, past: true });
  refused.faults.query = () => sqlError('42P17');
  expect(await refused.run([1])).toEqual(['stored 1']);
  expect(await refused.run([1])).toEqual(['stored 1']);
  expect(refused.queries).toHaveLength(1);
  expect(refused.warnings).toEqual(['timescale: could not create chunk']);
  const locked = setUp({ engine, past: true });
  locked.faults.query = () => (locked.queries.length === 1 ? LOCKED : null);
  expect(await locked.run([1])).toEqual(['stored 1']);
  expect(locked.tries).toEqual([[1]]);
  expect(locked.commit.retries).toBe(1);
});
