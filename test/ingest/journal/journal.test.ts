/** The journal on a real disk: what it acknowledges stays, what it refuses is never replayed, and one process owns a folder. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { ftruncateSync, mkdirSync, openSync, symlinkSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { Journal, type JournalOptions } from '../../../src/ingest/journal/journal.ts';
import { readQuarantine } from '../../../src/ingest/journal/quarantine.ts';
import { Replay } from '../../../src/ingest/journal/replay.ts';
import { encodeHeader, HEADER_BYTES, newHeader, readSegment } from '../../../src/ingest/journal/segment.ts';
import { MAX_GROUP_DAYS } from '../../../src/ingest/queue/commit-buffer.ts';
import { dayOf, type JournaledEvent } from '../../../src/storage/write/accepted-event.ts';
import type { ReplayOutcome } from '../../../src/storage/write/replay-writer.ts';
import { FaultyFiles } from '../../support/faulty-files.ts';
import { captured } from '../../support/service.ts';

const INSTALLATION = { identity: '00112233445566778899aabbccddeeff', generation: '0123456789abcdef' };
const SOURCE = { appId: 'app_1', typeId: 'typ_1', typeName: 'a type' };
const newId = createEventIds();

let folder: string;
let files: FaultyFiles;
const open: Journal[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-journal-'));
  files = new FaultyFiles();
});

afterEach(async () => {
  files.fault = () => null;
  for (const journal of open.splice(0)) await journal.close();
  await rm(folder, { recursive: true, force: true });
});

async function openJournal(options: Partial<JournalOptions> = {}): Promise<Journal> {
  const log = pino({ level: 'silent' });
  const journal = await Journal.open({
    folder,
    installation: INSTALLATION,
    maxBytes: 1_000_000,
    log,
    files,
    ...options,
  });
  open.push(journal);
  return journal;
}

/** A stop in order and the next start. */
async function reopen(journal: Journal, options: Partial<JournalOptions> = {}): Promise<Journal> {
  open.splice(open.indexOf(journal), 1);
  await journal.close();
  return await openJournal(options);
}

function events(count: number, payload = '{"some":"payload"}'): JournaledEvent[] {
  return Array.from({ length: count }, () => ({
    id: newId(1_000),
    createdAt: 1_000,
    payload,
    source: SOURCE,
  }));
}

/** A replay into memory. */
function replayOf(
  journal: Journal,
  outcome: (event: JournaledEvent) => ReplayOutcome = () => 'stored',
  log = pino({ level: 'silent' }),
) {
  const batches: JournaledEvent[][] = [];
  const replay = new Replay({
    journal,
    write: async (batch) => {
      const outcomes = batch.map(outcome);
      batches.push(batch.filter((_, index) => outcomes[index] === 'stored'));
      return outcomes;
    },
    onUnreachable: () => undefined,
    log,
    now: () => 0,
  });
  return { replay, batches, ids: () => batches.flat().map(({ id }) => id) };
}

async function replayAll(journal: Journal): Promise<string[]> {
  const { replay, ids } = replayOf(journal);
  while ((await replay.step()) === 'stored');
  return ids();
}

function idsOf(batches: readonly (readonly JournaledEvent[])[]): string[] {
  return batches.flat().map(({ id }) => id);
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

async function segments(): Promise<string[]> {
  return (await readdir(join(folder, 'writer-1'))).filter((name) => name.endsWith('.journal'));
}

test('what is acknowledged is replayed once and in order, and then nothing is left', async () => {
  const journal = await openJournal();
  const batches = [events(3), events(1), events(5)];
  for (const batch of batches) expect(await journal.append(batch)).toBeNull();
  expect(journal.stats).toMatchObject({ waitingEvents: 9, appendedEvents: 9 });
  expect(await replayAll(journal)).toEqual(idsOf(batches));
  expect(journal.stats).toMatchObject({ waitingEvents: 0, waitingBytes: 0, replayedEvents: 9 });
  expect(journal.isEmpty).toBe(true);
  expect(await segments()).toEqual([]);
});

test('what is acknowledged is replayed by the next process, what is appended meanwhile after it', async () => {
  const first = await openJournal();
  const batches = [events(2), events(2)];
  for (const batch of batches) await first.append(batch);
  const second = await reopen(first);
  expect(second.stats.waitingEvents).toBe(4);
  batches.push(events(3));
  await second.append(batches[2] ?? []);
  expect(await replayAll(second)).toEqual(idsOf(batches));
});

test('an append is acknowledged after the sync that covers it, and what comes meanwhile shares the next sync', async () => {
  const journal = await openJournal();
  await journal.append(events(1));
  let release = (): void => undefined;
  files.beforeSync = () =>
    new Promise((resolve) => {
      release = resolve;
    });
  files.calls.length = 0;
  let acknowledged = 0;
  const appends = Array.from({ length: 5 }, () =>
    journal.append(events(1)).then(() => {
      acknowledged += 1;
    }),
  );
  while (!files.calls.includes('write')) await new Promise(setImmediate);
  for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  expect(acknowledged).toBe(0);
  const late = Array.from({ length: 5 }, () => journal.append(events(1)));
  files.beforeSync = async () => undefined;
  release();
  await Promise.all([...appends, ...late]);
  expect(files.calls).toEqual(['write', 'sync', 'write', 'sync']);
});

test('a new folder and a new file are on the disk under their names before anything in them is acknowledged', async () => {
  const journal = await openJournal();
  // JOURNAL_DIR, which has the folder, and the parent of JOURNAL_DIR.
  expect(files.calls).toEqual(['syncFolder', 'syncFolder']);
  await journal.append(events(1));
  expect(files.calls.slice(2)).toEqual(['create', 'write', 'sync', 'rename', 'syncFolder', 'write', 'sync']);
});

test.each([
  ['a write for which there is no room', 'write', 'ENOSPC'],
  ['a sync that fails', 'sync', 'EIO'],
] as const)('security 23: %s is a refusal, and what was refused is never replayed', async (_, call, code) => {
  const journal = await openJournal();
  const before = events(2);
  await journal.append(before);
  files.partial = 50;
  files.failNext(call, code);
  const refused = await journal.append(events(2));
  expect(refused).toMatchObject({ reason: 'unavailable', headers: { 'Retry-After': '1' } });
  expect(journal.takesEvents).toBe(false);
  const after = events(2);
  expect(await journal.append(after)).toBeNull();
  expect(journal.takesEvents).toBe(true);
  expect(await segments()).toHaveLength(2);
  const next = await reopen(journal);
  expect(await replayAll(next)).toEqual(idsOf([before, after]));
  expect(next.stats.damagedSegments).toBe(0);
});

test('after a failed sync that cannot be undone the outcome is unknown', async () => {
  const journal = await openJournal();
  await journal.append(events(1));
  files.fault = (call) => (['sync', 'truncate'].includes(call) ? new Error('injected') : null);
  expect(await journal.append(events(1))).toMatchObject({ reason: 'outcomeUnknown' });
  files.fault = () => null;
  expect(await journal.append(events(1))).toBeNull();
  expect(journal.stats.waitingEvents).toBe(2);
  // This process knows which bytes were acknowledged.
  expect(await replayAll(journal)).toHaveLength(2);
});

test.each(['create', 'rename', 'syncFolder'] as const)(
  'a file that cannot be made (%s) is a refusal, and the next try is a new one',
  async (call) => {
    const journal = await openJournal();
    files.failNext(call, 'ENOSPC');
    expect(await journal.append(events(1))).toMatchObject({ reason: 'unavailable' });
    const batch = events(1);
    expect(await journal.append(batch)).toBeNull();
    const names = await readdir(join(folder, 'writer-1'));
    expect(names.filter((name) => !name.startsWith('owner-'))).toEqual(['0000000002.journal']);
    expect(await replayAll(journal)).toEqual(idsOf([batch]));
  },
);

test('beyond its ceiling the journal refuses, and takes events again when some have left it', async () => {
  const lines: Record<string, unknown>[] = [];
  const journal = await openJournal({ maxBytes: 15_500, log: captured(lines) });
  const kept: JournaledEvent[][] = [];
  for (
    let batch = events(1, `{"x":"${'x'.repeat(900)}"}`);
    (await journal.append(batch)) === null;
    batch = events(1, batch[0]?.payload)
  )
    kept.push(batch);
  expect(kept.length).toBe(10);
  expect(journal.takesEvents).toBe(false);
  for (let more = 0; more < 5; more += 1) expect(await journal.append(kept[0] ?? [])).not.toBeNull();
  expect(journal.stats.failures).toBe(6);
  expect(lines.map(({ msg }) => msg)).toEqual(['journal: full, refusing events']);
  expect(journal.stats.waitingBytes).toBeLessThanOrEqual(15_500);
  expect(await replayAll(journal)).toEqual(idsOf(kept));
  expect(await journal.append(events(1))).toBeNull();
});

test('a large journal goes over several files, in order', async () => {
  const journal = await openJournal({ maxBytes: 100_000_000 });
  const payload = JSON.stringify({ x: 'x'.repeat(4_000_000) });
  const batches = Array.from({ length: 10 }, () => events(1, payload));
  for (const batch of batches) await journal.append(batch);
  expect((await segments()).length).toBeGreaterThan(1);
  const { replay, ids, batches: stored } = replayOf(await reopen(journal, { maxBytes: 100_000_000 }));
  while ((await replay.step()) === 'stored');
  expect(ids()).toEqual(idsOf(batches));
  expect(Math.max(...stored.map(({ length }) => length))).toBe(1);
});

test('a replay stores no more days in one transaction than a batch of producers may have', async () => {
  const journal = await openJournal();
  const days = Array.from({ length: 250 }, (_, day) =>
    events(2).map((event) => ({ ...event, createdAt: day * 86_400_000 })),
  );
  for (const batch of days) await journal.append(batch);
  const { replay, batches, ids } = replayOf(journal);
  while ((await replay.step()) === 'stored');
  expect(ids()).toEqual(idsOf(days));
  expect(batches.map((batch) => new Set(batch.map(({ createdAt }) => dayOf(createdAt))).size)).toEqual([
    MAX_GROUP_DAYS,
    MAX_GROUP_DAYS,
    50,
  ]);
});

test('a replay that the database cuts off goes on with the same batch', async () => {
  const journal = await openJournal();
  const batches = [events(2_500), events(2_500)];
  for (const batch of batches) await journal.append(batch);
  let away = false;
  const { replay, ids } = replayOf(journal, () => (away ? 'unreachable' : 'stored'));
  expect(await replay.step()).toBe('stored');
  away = true;
  expect(await replay.step()).toBe('unreachable');
  expect(journal.isEmpty).toBe(false);
  away = false;
  while ((await replay.step()) === 'stored');
  expect(ids()).toEqual(idsOf(batches));
});

test('a replay that ends with its process begins the file again: what is not in the database cannot be missed', async () => {
  const journal = await openJournal();
  const batches = [events(2_500), events(2_500)];
  for (const batch of batches) await journal.append(batch);
  const { replay } = replayOf(journal);
  expect(await replay.step()).toBe('stored');
  expect(await replayAll(await reopen(journal))).toEqual(idsOf(batches));
});

test('an event that cannot be stored goes to quarantine as it was, and its neighbors are stored', async () => {
  const journal = await openJournal();
  const batch = events(3, '{ "with":\n"a line\\n" }');
  const poison = batch[1];
  await journal.append(batch);
  const why = { reason: 'refused', details: 'no "poison"' } as const;
  const { replay, ids } = replayOf(journal, ({ id }) => (id === poison?.id ? why : 'stored'));
  while ((await replay.step()) === 'stored');
  expect(ids()).toEqual([batch[0]?.id, batch[2]?.id]);
  expect(journal.stats).toMatchObject({
    quarantinedEvents: 1,
    quarantineEvents: 1,
    replayedEvents: 2,
    waitingEvents: 0,
  });
  const line = await readFile(join(folder, 'quarantine.ndjson'), 'utf8');
  expect(JSON.parse(line)).toEqual({
    ...why,
    ...SOURCE,
    id: poison?.id,
    createdAt: '1970-01-01T00:00:01.000Z',
    payload: poison?.payload,
  });
  const read = await collect(readQuarantine(folder));
  expect(read.map(({ quarantined }) => quarantined)).toEqual([{ event: poison, why }]);
});

test('a line that a killed process has cut off costs itself, and what is set aside twice is there once', async () => {
  const [event] = events(1);
  const journal = await openJournal();
  await writeFile(join(folder, 'quarantine.ndjson'), '{"reason":"refused","det');
  const some = [{ event: event as JournaledEvent, why: { reason: 'refused', details: '' } as const }];
  await journal.setAside(some);
  await journal.setAside(some);
  const read = await collect(readQuarantine(folder));
  expect(read.map(({ quarantined }) => quarantined?.event.id)).toEqual([undefined, event?.id]);
});

test('events of another installation wait for their database, with one log line', async () => {
  const lines: Record<string, unknown>[] = [];
  const journal = await openJournal({ log: captured(lines) });
  const batch = events(3);
  await journal.append(batch);
  let isForeign = true;
  const { replay, ids } = replayOf(journal, () => (isForeign ? 'foreign' : 'stored'), captured(lines));
  for (let tries = 0; tries < 3; tries += 1) expect(await replay.step()).toBe('foreign');
  expect(journal.stats).toMatchObject({ waitingEvents: 3, wrongDatabase: true });
  expect(lines.filter(({ level }) => level === 'error').map(({ msg }) => msg)).toEqual([
    'journal: the database belongs to another installation, replay waits for its own database',
  ]);
  isForeign = false;
  while ((await replay.step()) === 'stored');
  expect(ids()).toEqual(idsOf([batch]));
  expect(journal.stats).toMatchObject({ waitingEvents: 0, wrongDatabase: false });
});

test('a torn last record of a killed process is dropped with a line, and what was acknowledged before it is replayed', async () => {
  const lines: Record<string, unknown>[] = [];
  const journal = await openJournal();
  const batch = events(3);
  await journal.append(batch);
  await journal.append(events(1));
  const { path } = await leftoverAfter((bytes) => bytes.subarray(0, -5), 'killed');
  const next = await openJournal({ log: captured(lines) });
  expect(lines).toEqual([
    expect.objectContaining({
      level: 'warn',
      msg: 'journal: the process that wrote this file was killed; what is missing at its end may have been acknowledged',
      segment: path,
      events: 3,
    }),
  ]);
  expect(await replayAll(next)).toEqual(idsOf([batch]));
  expect(next.stats.damagedSegments).toBe(0);
  expect(await segments()).toEqual([]);
});

test.each([
  ['at the end of a record', (_: Buffer, second: number) => second],
  ['in a record', (bytes: Buffer) => bytes.length - 5],
  ['in its first record', () => HEADER_BYTES + 10],
])(
  'a file that is cut %s after a stop in order is damage, with the number of events that are missing',
  async (_, cut) => {
    const lines: Record<string, unknown>[] = [];
    const journal = await openJournal();
    const batches = [events(3), events(4), events(5)];
    const lengths: number[] = [];
    for (const batch of batches) {
      await journal.append(batch);
      lengths.push(journal.stats.waitingBytes);
    }
    const { path, left } = await leftoverAfter((bytes) => bytes.subarray(0, cut(bytes, lengths[1] ?? 0)));
    const next = await openJournal({ log: captured(lines) });
    const kept = batches.filter((_batch, index) => (lengths[index] ?? 0) <= left.length);
    expect(await replayAll(next)).toEqual(idsOf(kept));
    expect(next.stats.damagedSegments).toBe(1);
    expect(await readFile(`${path}.corrupt`)).toEqual(left);
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'error',
        msg: 'journal: file damaged, its readable events are stored and it is kept as .corrupt',
        segment: path,
        lostEvents: 12 - kept.flat().length,
      }),
    ]);
  },
);

test('the events of a file without a header are in quarantine, from which they can be imported', async () => {
  const lines: Record<string, unknown>[] = [];
  const journal = await openJournal();
  const batches = [events(3), events(2)];
  for (const batch of batches) await journal.append(batch);
  const { path, left } = await leftoverAfter((bytes) => Buffer.from(bytes).fill(0, 0, HEADER_BYTES));
  const next = await openJournal({ log: captured(lines) });
  expect(next.stats.waitingEvents).toBe(5);
  expect(await replayAll(next)).toEqual([]);
  expect(next.stats).toMatchObject({ damagedSegments: 1, quarantineEvents: 5, waitingEvents: 0 });
  expect(await readFile(`${path}.corrupt`)).toEqual(left);
  const read = await collect(readQuarantine(folder));
  expect(read.map(({ quarantined }) => quarantined?.event)).toEqual(batches.flat());
  expect(new Set(read.map(({ quarantined }) => quarantined?.why.reason))).toEqual(new Set(['unknown-owner']));
});

const STRANGERS: readonly (readonly [what: string, make: (path: string) => void, found: RegExp])[] = [
  ['a FIFO', (path) => execFileSync('mkfifo', [path]), /^a FIFO$/],
  ['a folder', (path) => mkdirSync(path), /^a folder$/],
  ['a dangling link', (path) => symlinkSync('/nowhere', path), /^a symbolic link$/],
  ['a link to a file', (path) => symlinkSync('/etc/hostname', path), /^a symbolic link$/],
  [
    'a file of 3 GiB',
    (path) => ftruncateSync(openSync(path, 'w'), 3 * 2 ** 30),
    /^a file of 3221225472 bytes$/,
  ],
];

test.each(STRANGERS)(
  '%s with the name of a file of the journal is set aside, and the start goes on',
  async (_, make, found) => {
    const lines: Record<string, unknown>[] = [];
    const journal = await openJournal();
    const batch = events(2);
    await journal.append(batch);
    const strange = join(folder, 'writer-1', '0000000007.journal');
    make(strange);
    const next = await reopen(journal, { log: captured(lines) });
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'error',
        msg: 'journal: not a file of the journal, set aside as .corrupt',
        path: strange,
        found: expect.stringMatching(found),
      }),
    ]);
    expect(next.stats.damagedSegments).toBe(1);
    expect(await readdir(join(folder, 'writer-1'))).toContain('0000000007.journal.corrupt');
    expect(await replayAll(next)).toEqual(idsOf([batch]));
  },
);

test.each(
  STRANGERS.slice(0, 4).flatMap(([what, make]) =>
    ['writer-1', 'writer-9', 'quarantine.ndjson']
      // A folder of a writer is one.
      .filter((name) => what !== 'a folder' || name === 'quarantine.ndjson')
      .map((name) => [what, name, make] as const),
  ),
)('%s in place of %s ends the start with its path', async (what, name, make) => {
  make(join(folder, name));
  const kind = what.includes('link') ? 'a symbolic link' : what;
  await expect(openJournal()).rejects.toThrow(
    new RegExp(`^JOURNAL_DIR: ${join(folder, name)} is ${kind}, not a (?:file|folder): move it away$`),
  );
});

/**
 * What is left after a process is gone and `change` has met the bytes of its only file.
 * @param end a killed process has not completed its file
 */
async function leftoverAfter(
  change: (bytes: Buffer) => Buffer,
  end: 'stopped' | 'killed' = 'stopped',
): Promise<{ path: string; left: Buffer }> {
  const [name = ''] = await segments();
  const path = join(folder, 'writer-1', name);
  const asKilled = await readFile(path);
  for (const journal of open.splice(0)) await journal.close();
  const left = change(end === 'killed' ? asKilled : await readFile(path));
  await writeFile(path, left);
  return { path, left };
}

test.each([
  ['emptied', () => Buffer.alloc(0)],
  ['cut in its header', (bytes: Buffer) => bytes.subarray(0, 50)],
  ['overwritten with zeros', (bytes: Buffer) => Buffer.alloc(bytes.length)],
])('a file that was %s is kept for a person, and counts as damage', async (_, change) => {
  const journal = await openJournal();
  await journal.append(events(3));
  const { path, left } = await leftoverAfter(change);
  const next = await openJournal();
  expect(await replayAll(next)).toEqual([]);
  expect(next.stats.damagedSegments).toBe(1);
  expect(await readFile(`${path}.corrupt`)).toEqual(left);
  const batch = events(1);
  // Its number is not used again, so that no other damaged file takes its name.
  const last = await reopen(next);
  await last.append(batch);
  expect(await segments()).toEqual(['0000000002.journal']);
  expect(await replayAll(last)).toEqual(idsOf([batch]));
});

test.each([
  ['in its last record', (end: number) => end - 5],
  ['before its last record', (_: number, before: number) => before],
])(
  'a file that is cut %s while its process runs is damage, and what is left of it is replayed',
  async (_, cut) => {
    const journal = await openJournal();
    const [first, second] = [events(2), events(2)];
    await journal.append(first);
    const before = journal.stats.waitingBytes;
    await journal.append(second);
    const [name = ''] = await segments();
    const path = join(folder, 'writer-1', name);
    const bytes = await readFile(path);
    const length = cut(bytes.length, before);
    await truncate(path, length);
    expect(await replayAll(journal)).toEqual(idsOf([first]));
    expect(journal.stats.damagedSegments).toBe(1);
    const kept = await readFile(`${path}.corrupt`);
    expect(kept.subarray(HEADER_BYTES)).toEqual(bytes.subarray(HEADER_BYTES, length));
  },
);

test('a last record that is cut off is damage in any file but the last one of its folder', async () => {
  const journal = await openJournal();
  const first = [events(1), events(1)];
  for (const batch of first) await journal.append(batch);
  // A sync that fails ends a file: what is appended next goes into another one.
  files.failNext('sync', 'EIO');
  await journal.append(events(1));
  const second = events(1);
  await journal.append(second);
  expect(await segments()).toEqual(['0000000001.journal', '0000000002.journal']);
  const { path, left } = await leftoverAfter((bytes) => bytes.subarray(0, -5));
  const next = await openJournal();
  expect(await replayAll(next)).toEqual(idsOf([first[0] ?? [], second]));
  expect(next.stats.damagedSegments).toBe(1);
  expect(await readFile(`${path}.corrupt`)).toEqual(left);
});

test('a torn last record is no damage later, when another file follows it', async () => {
  const journal = await openJournal();
  const batches = [events(1), events(1)];
  await journal.append(batches[0] ?? []);
  await journal.append(events(1));
  await leftoverAfter((bytes) => bytes.subarray(0, -5), 'killed');
  const second = await openJournal();
  await second.append(batches[1] ?? []);
  const third = await reopen(second);
  expect(await replayAll(third)).toEqual(idsOf(batches));
  expect(third.stats.damagedSegments).toBe(0);
});

test('a file whose header was not synced any more is removed: nothing in it was acknowledged', async () => {
  await mkdir(join(folder, 'writer-1'));
  await writeFile(join(folder, 'writer-1', '0000000001.new'), 'TDMK');
  const journal = await openJournal();
  expect(journal.isEmpty).toBe(true);
  expect((await readdir(join(folder, 'writer-1'))).filter((name) => !name.startsWith('owner-'))).toEqual([]);
});

test('a damaged file keeps nothing else back: its other records are replayed, and it is kept for a person', async () => {
  const journal = await openJournal();
  const batches = [events(2), events(2), events(2)];
  for (const batch of batches) await journal.append(batch);
  const [name = ''] = await segments();
  await journal.close();
  open.length = 0;
  const path = join(folder, 'writer-1', name);
  const bytes = await readFile(path);
  const middle = bytes.indexOf(Buffer.from((batches[1]?.[0]?.id ?? '').replaceAll('-', ''), 'hex'));
  bytes[middle] = (bytes[middle] ?? 0) ^ 1;
  await writeFile(path, bytes);
  const next = await openJournal();
  expect(next.stats.waitingEvents).toBe(4);
  expect(await replayAll(next)).toEqual(idsOf([batches[0] ?? [], batches[2] ?? []]));
  expect(next.stats.damagedSegments).toBe(1);
  expect(await readFile(`${path}.corrupt`)).toEqual(bytes);
  expect(await segments()).toEqual([]);
});

test('a file that cannot be read is kept, and the files after it are replayed', async () => {
  const first = await openJournal();
  await first.append(events(1));
  const second = await reopen(first);
  const batch = events(1);
  await second.append(batch);
  files.failNext('read', 'EIO');
  expect(await replayAll(second)).toEqual(idsOf([batch]));
  expect(second.stats.damagedSegments).toBe(1);
});

test("another database's journal is refused in one line that says what to do", async () => {
  const journal = await openJournal();
  await journal.append(events(1));
  await expect(
    reopen(journal, { installation: { ...INSTALLATION, identity: 'ff'.repeat(16) } }),
  ).rejects.toThrow(
    /^JOURNAL_DIR: .*0000000001\.journal holds 1 events of another database: start once with/,
  );
  expect(await replayAll(await openJournal())).toHaveLength(1);
});

test("another database's file without events is no obstacle", async () => {
  const journal = await openJournal();
  const other = newHeader({ ...INSTALLATION, identity: 'ff'.repeat(16) });
  await writeFile(join(folder, 'writer-1', '0000000001.journal'), encodeHeader(other));
  const batch = events(1);
  const next = await reopen(journal);
  await next.append(batch);
  expect(await replayAll(next)).toEqual(idsOf([batch]));
});

test('each process has a folder of its own, and takes over what one that is gone has left', async () => {
  const first = await openJournal();
  const second = await openJournal();
  const batch = events(2);
  await second.append(batch);
  expect(await readdir(folder)).toEqual(['writer-1', 'writer-2']);
  await first.adoptLeftovers();
  expect(first.stats.waitingEvents).toBe(0);
  open.splice(open.indexOf(second), 1);
  await second.close();
  await first.adoptLeftovers();
  expect(first.stats.waitingEvents).toBe(2);
  expect(await replayAll(first)).toEqual(idsOf([batch]));
  await first.adoptLeftovers();
  expect(first.isEmpty).toBe(true);
});

/** What a process that is gone has left: a file for each batch. */
async function leaveFiles(batches: readonly JournaledEvent[][], options: Partial<JournalOptions> = {}) {
  const gone = await openJournal(options);
  for (const batch of batches) {
    await gone.append(batch);
    // A sync that fails ends a file.
    files.failNext('sync', 'EIO');
    await gone.append(events(1));
  }
  open.splice(open.indexOf(gone), 1);
  await gone.close();
}

test('a folder that was taken over belongs to the process until its last file is replayed', async () => {
  const journal = await openJournal();
  const batches = [events(1), events(1)];
  await leaveFiles(batches);
  await journal.adoptLeftovers();
  const left = join(folder, 'writer-2');
  const { replay, ids } = replayOf(journal);
  expect(await replay.step()).toBe('stored');
  expect(await files.claim(left)).toBeNull();
  expect(await replay.step()).toBe('stored');
  expect(ids()).toEqual(idsOf(batches));
  const claim = await files.claim(left);
  expect(claim).not.toBeNull();
  await claim?.release();
});

test("a folder with another database's events is left alone, and reported at each look", async () => {
  const journal = await openJournal();
  await leaveFiles([events(1)], { installation: { ...INSTALLATION, identity: 'ff'.repeat(16) } });
  for (let look = 0; look < 2; look += 1)
    await expect(journal.adoptLeftovers()).rejects.toThrow(/holds 1 events of another database/);
  expect(journal.isEmpty).toBe(true);
});

test('of many that open at once none shares a folder', async () => {
  const journals = await Promise.all(Array.from({ length: 12 }, () => openJournal()));
  await Promise.all(journals.map((journal) => journal.append(events(1))));
  const folders = await readdir(folder);
  const counts = await Promise.all(
    folders.map(
      async (name) => (await readdir(join(folder, name))).filter((file) => file.endsWith('.journal')).length,
    ),
  );
  expect(Math.max(...counts)).toBe(1);
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(12);
});

test('a process that was killed leaves no claim behind', async () => {
  const script = `
    const { mkdirSync } = await import('node:fs');
    const { createServer } = await import('node:net');
    mkdirSync(${JSON.stringify(join(folder, 'writer-1'))}, { recursive: true });
    createServer().listen(${JSON.stringify(join(folder, 'writer-1', 'owner-00000000'))}, () => console.log('owned'));`;
  const owner = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(owner.stdout, 'data');
  await openJournal();
  expect(await readdir(folder)).toEqual(['writer-1', 'writer-2']);
  const ended = once(owner, 'exit');
  owner.kill('SIGKILL');
  await ended;
  expect(await readdir(join(folder, 'writer-1'))).toEqual(['owner-00000000']);
  const next = await openJournal();
  await next.append(events(1));
  const [name = ''] = await segments();
  expect(readSegment(await readFile(join(folder, 'writer-1', name))).events).toBe(1);
});
