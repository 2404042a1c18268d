/** The replay of a journal: what it writes together, what waits and why, what it says, and when it runs by itself. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { Journal, type JournalOptions } from '../../../src/ingest/journal/journal.ts';
import { Replay, type ReplayOptions } from '../../../src/ingest/journal/replay.ts';
import type { JournaledEvent } from '../../../src/storage/write/accepted-event.ts';
import type { ReplayOutcome } from '../../../src/storage/write/replay-writer.ts';
import { FaultyFiles } from '../../support/faulty-files.ts';
import { captured, until } from '../../support/service.ts';
import { SOURCE } from '../../support/source.ts';

const DAY_MS = 86_400_000;
const newId = createEventIds();

let folder: string;
let files: FaultyFiles;
let lines: Record<string, unknown>[];
const open: Journal[] = [];
const replays: Replay[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-replay-'));
  files = new FaultyFiles();
  lines = [];
});
afterEach(async () => {
  for (const replay of replays.splice(0)) await replay.stop();
  vi.useRealTimers();
  for (const journal of open.splice(0)) await journal.close();
  await rm(folder, { recursive: true, force: true });
});

async function openJournal(options: Partial<JournalOptions> = {}): Promise<Journal> {
  const journal = await Journal.open({
    folder,
    installation: { identity: '00112233445566778899aabbccddeeff', generation: '0123456789abcdef' },
    maxBytes: 100_000_000,
    log: captured(lines),
    files,
    ...options,
  });
  open.push(journal);
  return journal;
}

/** A replay into memory: what it stores, in groups, and how often it says that the database is away. */
function replayOf(
  journal: Journal,
  outcomeOf: (event: JournaledEvent) => ReplayOutcome = () => 'stored',
  options: Partial<ReplayOptions> = {},
) {
  const groups: (readonly JournaledEvent[])[] = [];
  const stored: string[] = [];
  const away = { calls: 0 };
  const replay = new Replay({
    journal,
    write: async (group) => {
      groups.push(group);
      const outcomes = group.map(outcomeOf);
      stored.push(...group.filter((_, index) => outcomes[index] === 'stored').map(({ id }) => id));
      return outcomes;
    },
    onUnreachable: () => {
      away.calls += 1;
    },
    log: captured(lines),
    now: () => 0,
    ...options,
  });
  replays.push(replay);
  return { replay, groups, stored, away };
}

function events(count: number, { payload = '{}', day = 0, appId = 'app_1' } = {}): JournaledEvent[] {
  return Array.from({ length: count }, () => ({
    id: newId(day * DAY_MS),
    createdAt: day * DAY_MS,
    payload,
    source: { ...SOURCE, appId },
  }));
}

const idsOf = (batches: readonly (readonly JournaledEvent[])[]): string[] =>
  batches.flat().map(({ id }) => id);
const messages = (): unknown[] => lines.map(({ msg }) => msg);
const dayOf = ({ createdAt }: JournaledEvent): number => createdAt / DAY_MS;

test.each([
  ['events', [1_500, 1_500, 1_000, 1], {}, [4_000, 1]],
  ['events, where one record alone has more', [4_001, 1], {}, [4_001, 1]],
  ['characters', [1, 1, 1], { payload: `{"x":"${'x'.repeat(1_048_576 - '{"x":""}'.length)}"}` }, [2, 1]],
])('whole records are written together up to the limit of %s', async (_, records, kind, sizes) => {
  const journal = await openJournal();
  const batches = records.map((count) => events(count, kind));
  for (const batch of batches) await journal.append(batch);
  const { replay, groups, stored } = replayOf(journal);
  while ((await replay.step()) === 'stored');
  expect(groups.map(({ length }) => length)).toEqual(sizes);
  expect(stored).toEqual(idsOf(batches));
});

test('events of a locked day go to the end of the journal, so that those of other days do not wait', async () => {
  const journal = await openJournal();
  const [locked, free] = [events(2, { day: 1 }), events(3, { day: 2 })];
  await journal.append(locked);
  await journal.append(free);
  let isLocked = true;
  const { replay, stored, away } = replayOf(journal, (event) =>
    isLocked && dayOf(event) === 1 ? 'blocked' : 'stored',
  );
  expect(await replay.step()).toBe('stored');
  expect(stored).toEqual(idsOf([free]));
  expect(journal.stats).toMatchObject({ waitingEvents: 2, replayedEvents: 3 });
  expect(lines.filter(({ level }) => level === 'warn')).toMatchObject([
    { events: 2, msg: 'journal: events wait for days that are locked' },
  ]);
  // Now nothing else waits: they stay where they are, however often they are tried.
  const { waitingBytes } = journal.stats;
  for (let tries = 0; tries < 3; tries += 1) expect(await replay.step()).toBe('blocked');
  expect(journal.stats).toMatchObject({ waitingEvents: 2, waitingBytes, replayedEvents: 3 });
  isLocked = false;
  while ((await replay.step()) === 'stored');
  expect(stored).toEqual(idsOf([free, locked]));
  expect(journal.stats).toMatchObject({ waitingEvents: 0, replayedEvents: 5 });
  expect(away.calls).toBe(0);
});

test('several groups of events that cannot be stored for now are tried once, and not each for the sake of the others', async () => {
  const journal = await openJournal();
  const locked = [1, 2, 3].map(() => events(3_000, { day: 1 }));
  const [first, ...others] = locked;
  const free = events(1, { day: 2 });
  for (const batch of [first ?? [], free, ...others]) await journal.append(batch);
  let isLocked = true;
  const { replay, stored, groups } = replayOf(journal, (event) =>
    isLocked && dayOf(event) === 1 ? 'blocked' : 'stored',
  );
  let steps = 0;
  for (let round = 1; round <= 2; round += 1) {
    for (; (await replay.step()) === 'stored'; steps += 1) expect(steps).toBeLessThan(20);
    expect(stored).toEqual(idsOf([free]));
  }
  expect(groups.length).toBeLessThanOrEqual(10);
  isLocked = false;
  while ((await replay.step()) === 'stored');
  expect(new Set(stored)).toEqual(new Set(idsOf([free, ...locked])));
  expect(journal.isEmpty).toBe(true);
});

test('events of a locked day stay in their file while the journal has no room for them', async () => {
  const journal = await openJournal({ maxBytes: 7_500 });
  const payload = `{"x":"${'x'.repeat(900)}"}`;
  const [locked, free] = [events(1, { day: 1, payload }), events(1, { day: 2, payload })];
  await journal.append(locked);
  await journal.append(free);
  let isLocked = true;
  const { replay, stored } = replayOf(journal, (event) =>
    isLocked && dayOf(event) === 1 ? 'blocked' : 'stored',
  );
  expect(await replay.step()).toBe('blocked');
  expect(journal.stats.waitingEvents).toBe(2);
  isLocked = false;
  while ((await replay.step()) === 'stored');
  // What was stored at the first try is written again: the writer knows it by its id.
  expect(new Set(stored)).toEqual(new Set(idsOf([locked, free])));
  expect(journal.isEmpty).toBe(true);
});

test('events that cannot be stored are named once for each app and reason, with how many there are', async () => {
  const journal = await openJournal();
  const batches = [events(3), events(2, { appId: 'app_2' }), events(1, { appId: 'app_3' })];
  for (const batch of batches) await journal.append(batch);
  const why = { reason: 'refused', details: 'no' } as const;
  const { replay } = replayOf(journal, ({ source }) => (source.appId === 'app_3' ? 'stored' : why));
  while ((await replay.step()) === 'stored');
  expect(lines.filter(({ level }) => level === 'error')).toMatchObject([
    { appId: 'app_1', reason: 'refused', details: 'no', events: 3, eventId: batches[0]?.[0]?.id },
    { appId: 'app_2', reason: 'refused', details: 'no', events: 2, eventId: batches[1]?.[0]?.id },
  ]);
  expect(journal.stats).toMatchObject({ quarantinedEvents: 5, replayedEvents: 1, waitingEvents: 0 });
});

test('a quarantine that cannot be written is a fault, and no event is given up for it', async () => {
  const journal = await openJournal();
  const batch = events(2);
  await journal.append(batch);
  const poison = batch[0]?.id;
  const { replay, groups } = replayOf(journal, ({ id }) =>
    id === poison ? { reason: 'refused', details: '' } : 'stored',
  );
  files.failNext('append', 'ENOSPC');
  expect(await replay.step()).toBe('fault');
  expect(messages()).toContain('journal: replay failed, retrying');
  expect(journal.stats).toMatchObject({ waitingEvents: 2, quarantinedEvents: 0, replayedEvents: 0 });
  while ((await replay.step()) === 'stored');
  expect(groups.map(({ length }) => length)).toEqual([2, 2]);
  expect(journal.stats).toMatchObject({ waitingEvents: 0, quarantinedEvents: 1, replayedEvents: 1 });
});

test('the end of a replay is logged once, with its events and its time', async () => {
  const journal = await openJournal();
  const clock = { ms: 1_000 };
  const { replay } = replayOf(journal, () => 'stored', { now: () => clock.ms });
  expect(await replay.step()).toBe('empty');
  expect(messages()).toEqual([]);
  await journal.append(events(4_000));
  await journal.append(events(2));
  expect(await replay.step()).toBe('stored');
  clock.ms += 2_500;
  expect(await replay.step()).toBe('stored');
  for (let steps = 0; steps < 3; steps += 1) expect(await replay.step()).toBe('empty');
  expect(lines).toMatchObject([{ msg: 'journal: replay complete', events: 4_002, ms: 2_500 }]);
});

test.each([
  ['unreachable', 1],
  ['foreign', 1],
  ['fault', 0],
  ['blocked', 0],
] as const)(
  'a replay whose events are "%s" ends and calls for a probe of the database %i times',
  async (outcome, calls) => {
    const journal = await openJournal();
    await journal.append(events(1));
    const { replay, groups, away } = replayOf(journal, () => outcome);
    replay.run();
    // A second call beside it begins nothing of its own.
    replay.run();
    await until(() => groups.length > 0, 'the events are tried');
    await replay.stop();
    expect(away.calls).toBe(calls);
    expect(groups).toHaveLength(1);
    expect(journal.stats.waitingEvents).toBe(1);
  },
);

test('what is appended when a replay has just found nothing more is replayed by it', async () => {
  const journal = await openJournal();
  const batches = [events(1), events(1)];
  await journal.append(batches[0] ?? []);
  const { replay, stored } = replayOf(journal);
  const oldest = journal.oldest.bind(journal);
  let isFirst = true;
  journal.oldest = async () => {
    const segment = await oldest();
    if (segment !== null || !isFirst) return segment;
    isFirst = false;
    await journal.append(batches[1] ?? []);
    replay.run();
    return null;
  };
  replay.run();
  await until(() => stored.length === 2, 'both are stored');
  expect(stored).toEqual(idsOf(batches));
});

test('a stop ends a replay after the group that is being written, and nothing begins after it', async () => {
  const journal = await openJournal();
  for (let record = 0; record < 3; record += 1) await journal.append(events(4_000));
  let release = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  let writes = 0;
  const { replay } = replayOf(journal, undefined, {
    write: async (group) => {
      writes += 1;
      await gate;
      return group.map(() => 'stored' as const);
    },
  });
  replay.run();
  await until(() => writes === 1, 'the first group is being written');
  let isStopped = false;
  const stopping = replay.stop().then(() => {
    isStopped = true;
  });
  await new Promise(setImmediate);
  expect(isStopped).toBe(false);
  release();
  await stopping;
  replay.run();
  await new Promise(setImmediate);
  expect(writes).toBe(1);
  expect(journal.stats).toMatchObject({ waitingEvents: 8_000, replayedEvents: 4_000 });
});

test('by itself it replays at the start, then what other processes leave, while the database may take it', async () => {
  const journal = await openJournal();
  const first = events(1);
  await journal.append(first);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  let mayRun = false;
  const { replay, stored } = replayOf(journal, () => 'stored', { mayRun: () => mayRun });
  replay.start();
  await until(() => stored.length === 1, 'what waits is stored');
  const other = await openJournal();
  const left = events(2);
  await other.append(left);
  open.splice(open.indexOf(other), 1);
  await other.close();
  const looks = vi.spyOn(journal, 'adoptLeftovers');
  await vi.advanceTimersByTimeAsync(9_999);
  expect(looks).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  expect(looks).toHaveBeenCalledOnce();
  await until(() => journal.stats.waitingEvents === 2, 'what the other process left is taken over');
  await new Promise(setImmediate);
  expect(stored).toEqual(idsOf([first]));
  mayRun = true;
  await vi.advanceTimersByTimeAsync(10_000);
  await until(() => stored.length === 3, 'it is stored');
  expect(stored).toEqual(idsOf([first, left]));
});
