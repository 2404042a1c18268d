import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { keyedEventId } from '../../../src/ingest/event-id.ts';
import {
  CommitBuffer,
  type CommitBufferOptions,
  LARGE_CHARACTERS,
} from '../../../src/ingest/queue/commit-buffer.ts';
import type { AcceptedEvent } from '../../../src/storage/write/accepted-event.ts';
import type { WriteOutcome } from '../../../src/storage/write/event-writer.ts';
import { SOURCE } from '../../support/source.ts';

interface Write {
  readonly ids: readonly string[];
  /** Ends the write; without outcomes all of its events are durable. */
  readonly finish: (outcomes?: readonly WriteOutcome[]) => void;
}

/** A buffer whose writes end when the test says so. */
function setUp({
  connections = 1,
  maxEvents = 1_000_000,
  maxBytes = 1_000_000_000,
  stall,
  holderOf = (appId) => [`owner of ${appId}`, appId],
}: Partial<Omit<CommitBufferOptions, 'write'>> = {}) {
  const writes: Write[] = [];
  const buffer = new CommitBuffer({
    connections,
    maxEvents,
    maxBytes,
    holderOf,
    ...(stall && { stall }),
    write: (batch) =>
      new Promise((resolve) => {
        writes.push({
          ids: batch.map(({ id }) => id),
          finish: (outcomes) => resolve(outcomes ?? batch.map(() => null)),
        });
      }),
  });
  return { buffer, writes, batches: () => writes.map(({ ids }) => ids.length) };
}

function event(id: string, payload = '{}'): AcceptedEvent {
  return { id, appId: 1, typeId: 1, createdAt: 0, payload, source: SOURCE };
}

function addMany(buffer: CommitBuffer, count: number, payload?: string): Promise<WriteOutcome>[] {
  return Array.from({ length: count }, (_, index) => buffer.add(event(String(index), payload)));
}

/** Long enough for everything that needs no write to end. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
}

afterEach(() => {
  vi.useRealTimers();
});

/** A clock for stalls that moves only when the test moves it, together with the checks that the buffer makes. */
function stallClock(isSuspect = (): boolean => true) {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  let now = 0;
  return {
    stall: { afterMs: 500, now: () => now, isSuspect },
    /** Moves the clock, and lets the buffer check once. */
    moveTo: async (ms: number): Promise<void> => {
      now = ms;
      vi.advanceTimersByTime(100);
      await settle();
    },
  };
}

/** Whether a promise has settled. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const pending = {};
  return (await Promise.race([promise, Promise.resolve(pending)])) !== pending;
}

test('an idle buffer writes an event in the same turn of the event loop, without a timer', async () => {
  const { buffer, writes } = setUp();
  void buffer.add(event('a'));
  await new Promise(setImmediate);
  expect(writes.map(({ ids }) => ids)).toEqual([['a']]);
});

test('what arrives while a batch is being written gathers, and goes out when that has ended', async () => {
  const { buffer, writes } = setUp();
  void buffer.add(event('a'));
  await settle();
  void buffer.add(event('b'));
  await settle();
  void buffer.add(event('c'));
  await settle();
  expect(writes.length).toBe(1);
  writes[0]?.finish();
  await settle();
  expect(writes.map(({ ids }) => ids)).toEqual([['a'], ['b', 'c']]);
});

test('as many groups as connections are written at once, and no more', async () => {
  const { buffer, writes } = setUp({ connections: 2 });
  for (const id of ['a', 'b', 'c', 'd']) {
    void buffer.add(event(id));
    await settle();
  }
  expect(writes.map(({ ids }) => ids)).toEqual([['a'], ['b']]);
  writes[1]?.finish();
  await settle();
  expect(writes.map(({ ids }) => ids)).toEqual([['a'], ['b'], ['c', 'd']]);
});

test('a batch has at most 4,000 events, and the next one waits for its end', async () => {
  const { buffer, writes, batches } = setUp();
  addMany(buffer, 9_000);
  await settle();
  expect(batches()).toEqual([4_000]);
  writes[0]?.finish();
  await settle();
  expect(batches()).toEqual([4_000, 4_000]);
  writes[1]?.finish();
  await settle();
  expect(batches()).toEqual([4_000, 4_000, 1_000]);
});

test('a batch has at most 2 MiB of payload, and the next one waits for its end', async () => {
  const { buffer, writes, batches } = setUp();
  addMany(buffer, 5, 'x'.repeat(1_048_576));
  await settle();
  expect(batches()).toEqual([2]);
  writes[0]?.finish();
  await settle();
  writes[1]?.finish();
  await settle();
  expect(batches()).toEqual([2, 2, 1]);
});

test('security 27: beyond the ceiling an event is refused at once with a retryable refusal, and none is lost', async () => {
  const { buffer, writes } = setUp({ maxEvents: 3 });
  const kept = addMany(buffer, 2);
  await settle();
  kept.push(...addMany(buffer, 1));
  const refused = await buffer.add(event('too many'));
  expect(refused).toMatchObject({ reason: 'unavailable', headers: { 'Retry-After': '1' } });
  expect(buffer.depth).toBe(3);
  writes[0]?.finish();
  await settle();
  writes[1]?.finish();
  expect(await Promise.all(kept)).toEqual([null, null, null]);
  expect(buffer.depth).toBe(0);
});

test('during a stall waiting events are refused, those in flight are not, and later events are written again', async () => {
  const { stall, moveTo } = stallClock();
  const { buffer, writes } = setUp({ stall });
  const sent = buffer.add(event('sent'));
  await settle();
  const waiting = addMany(buffer, 3);
  await moveTo(499);
  expect(await isSettled(Promise.race(waiting))).toBe(false);
  await moveTo(500);
  const refused = await Promise.all(waiting);
  expect(refused).toMatchObject(Array.from({ length: 3 }, () => ({ reason: 'unavailable' })));
  expect(buffer.depth).toBe(1);
  expect(writes.length).toBe(1);
  writes[0]?.finish();
  expect(await sent).toBeNull();
  const later = buffer.add(event('later'));
  await settle();
  writes[1]?.finish();
  expect(await later).toBeNull();
});

test('a group that ends is a move, also where what waits may not have its connection', async () => {
  const { stall, moveTo } = stallClock();
  const { buffer, writes } = setUp({ connections: 2, stall });
  const [batch, single] = [buffer.addAll([event('batch')]), buffer.add(event('single'))];
  await settle();
  const waiting = buffer.addAll([event('waits')]);
  await moveTo(400);
  writes[1]?.finish();
  expect(await single).toBeNull();
  await moveTo(899);
  expect(await isSettled(waiting)).toBe(false);
  await moveTo(900);
  expect(await waiting).toMatchObject([{ reason: 'unavailable' }]);
  writes[0]?.finish();
  expect(await batch).toEqual([null]);
});

test('as long as the database answers, a slow commit is no stall', async () => {
  let isSuspect = false;
  const { stall, moveTo } = stallClock(() => isSuspect);
  const { buffer, writes } = setUp({ stall });
  const sent = buffer.add(event('sent'));
  await settle();
  const waiting = buffer.add(event('waits'));
  await moveTo(5_000);
  expect(await isSettled(waiting)).toBe(false);
  isSuspect = true;
  await moveTo(5_100);
  expect(await waiting).toMatchObject({ reason: 'unavailable' });
  writes[0]?.finish();
  expect(await sent).toBeNull();
});

test('in a stall each event of a batch of which a part is in flight gets its own outcome', async () => {
  const { stall, moveTo } = stallClock();
  const { buffer, writes } = setUp({ stall });
  const outcomes = addAll(buffer, bulk(5_000));
  await settle();
  await moveTo(500);
  expect(buffer.depth).toBe(4_000);
  writes[0]?.finish();
  const reasons = await outcomes;
  expect(reasons.slice(0, 4_000)).toEqual(Array(4_000).fill(null));
  expect(reasons.slice(4_000)).toEqual(Array(1_000).fill('unavailable'));
  expect(buffer.depth).toBe(0);
});

test('while it drains and after it the buffer refuses events with a retryable refusal', async () => {
  const { buffer, writes } = setUp();
  void buffer.add(event('a'));
  const drained = buffer.drain();
  expect(await buffer.add(event('b'))).toMatchObject({ reason: 'unavailable' });
  await settle();
  writes[0]?.finish();
  await drained;
  expect(await buffer.add(event('c'))).toMatchObject({ reason: 'unavailable' });
  expect(writes.length).toBe(1);
});

test('each event is written once and gets its own outcome, for any arrivals and any order of ends', async () => {
  const step = fc.oneof(
    fc.record({ add: fc.integer({ min: 1, max: 5 }) }),
    fc.record({ finish: fc.nat(3) }),
    fc.constant({ wait: true }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 40 }),
      fc.integer({ min: 1, max: 3 }),
      async (steps, connections) => {
        const { buffer, writes } = setUp({ connections });
        const running = new Set<Write>();
        let seen = 0;
        const answers: Promise<WriteOutcome>[] = [];
        const isBad = (id: string): boolean => Number(id) % 7 === 0;
        const outcomeOf = (id: string): Rejection | null =>
          isBad(id) ? new Rejection('invalidBody', id) : null;
        const look = (): void => {
          for (; seen < writes.length; seen += 1) running.add(writes[seen] as Write); // seen < length
          expect(running.size).toBeLessThanOrEqual(connections);
        };
        const finish = (index: number): void => {
          const write = [...running][index];
          if (write === undefined) return;
          running.delete(write);
          write.finish(write.ids.map(outcomeOf));
        };
        for (const one of steps) {
          if ('add' in one) {
            for (let index = 0; index < one.add; index += 1)
              answers.push(buffer.add(event(String(answers.length))));
          } else if ('finish' in one) finish(one.finish);
          else await settle();
          look();
        }
        const drained = buffer.drain();
        while (!(await isSettled(drained))) {
          await settle();
          look();
          finish(0);
        }
        expect(writes.flatMap(({ ids }) => ids)).toEqual(answers.map((_, index) => String(index)));
        const outcomes = await Promise.all(answers);
        const details = outcomes.map((outcome) => (outcome instanceof Rejection ? outcome.details : outcome));
        expect(details).toEqual(answers.map((_, index) => (isBad(String(index)) ? String(index) : null)));
      },
    ),
    { numRuns: 100 },
  );
});

/** Adds many events at once; gives whether all of them are durable. */
async function addAll(
  buffer: CommitBuffer,
  events: readonly AcceptedEvent[],
): Promise<readonly (string | null)[]> {
  return (await buffer.addAll(events)).map(reasonOf);
}

function reasonOf(outcome: WriteOutcome): string | null {
  return outcome instanceof Rejection ? outcome.reason : outcome;
}

function bulk(count: number, name = 'b'): AcceptedEvent[] {
  return Array.from({ length: count }, (_, index) => event(`${name}${index}`));
}

test('many events are written in pieces, in their order, and answered together', async () => {
  const { buffer, writes, batches } = setUp();
  const outcomes = addAll(buffer, bulk(9_000));
  const rejection = new Rejection('invalidBody', 'x');
  for (let piece = 0; piece < 3; piece += 1) {
    await settle();
    const size = writes[piece]?.ids.length ?? 0;
    writes[piece]?.finish(
      Array.from({ length: size }, (_, index) => (piece === 1 && index === 5 ? rejection : null)),
    );
  }
  expect(batches()).toEqual([4_000, 4_000, 1_000]);
  expect(writes.flatMap(({ ids }) => ids)).toEqual(bulk(9_000).map(({ id }) => id));
  expect((await outcomes).flatMap((reason, index) => (reason === null ? [] : [index]))).toEqual([4_005]);
  expect(buffer.depth).toBe(0);
});

test('many events leave a connection free for those that come alone', async () => {
  const { buffer, writes } = setUp({ connections: 2 });
  void addAll(buffer, bulk(9_000));
  await settle();
  expect(writes.length).toBe(1);
  void buffer.add(event('alone'));
  await settle();
  expect(writes[1]?.ids).toEqual(['alone']);
  // And of events that come alone, however many, those that came together get a connection too.
  void addMany(buffer, 100);
  writes[0]?.finish();
  await settle();
  expect(writes[2]?.ids.length).toBe(4_000);
  writes[1]?.finish();
  await settle();
  expect(writes[3]?.ids.length).toBe(100);
});

test('many events take every connection once nothing has come alone for a while, and give it back', async () => {
  const { buffer, writes } = setUp({ connections: 2 });
  void addAll(buffer, bulk(60_000));
  for (let piece = 0; piece < 5; piece += 1) {
    await settle();
    expect(writes.length).toBe(piece + 1);
    writes[piece]?.finish();
  }
  await settle();
  expect(writes.length).toBe(7);
  void buffer.add(event('alone'));
  writes[5]?.finish();
  await settle();
  expect(writes[7]?.ids).toEqual(['alone']);
  writes[7]?.finish();
  await settle();
  // The other connection is still busy with what came together.
  expect(writes.length).toBe(8);
});

test('where there is one connection, single events and many take turns', async () => {
  const { buffer, writes } = setUp({ connections: 1 });
  void addAll(buffer, bulk(12_000));
  await settle();
  for (let turn = 0; turn < 5; turn += 1) {
    void buffer.add(event(`alone ${turn}`));
    writes[turn]?.finish();
    await settle();
  }
  expect(writes.map(({ ids }) => (ids[0]?.startsWith('alone') ? 'alone' : 'bulk'))).toEqual([
    'bulk',
    'alone',
    'bulk',
    'alone',
    'bulk',
    'alone',
  ]);
});

test('a commit touches at most a hundred days', async () => {
  const { buffer, writes, batches } = setUp();
  void addAll(
    buffer,
    Array.from({ length: 500 }, (_, n) => ({ ...event(`${n}`), createdAt: (n >> 1) * 86_400_000 })),
  );
  for (let piece = 0; piece < 3; piece += 1) {
    await settle();
    writes[piece]?.finish();
  }
  expect(batches()).toEqual([200, 200, 100]);
});

test('many events are refused as a whole where not all of them fit, and single ones have room of their own', async () => {
  const { buffer, writes } = setUp({ maxEvents: 10, connections: 2 });
  void addAll(buffer, bulk(6));
  expect(await addAll(buffer, bulk(5))).toEqual(Array(5).fill('unavailable'));
  const fits = addAll(buffer, bulk(4));
  const alone = buffer.add(event('alone'));
  expect(buffer.depth).toBe(11);
  await settle();
  for (const write of writes) write.finish();
  expect([await fits, await alone]).toEqual([[null, null, null, null], null]);
});

test('payloads have a ceiling of their own, but for one that waits alone', async () => {
  const { buffer, writes } = setUp({ maxBytes: 200, connections: 1 });
  const first = buffer.add(event('large', 'x'.repeat(1_000)));
  expect(await buffer.add(event('small'))).toMatchObject({ reason: 'unavailable' });
  await settle();
  writes[0]?.finish();
  expect(await first).toBe(null);
  void buffer.add(event('a', 'x'.repeat(60)));
  void buffer.add(event('b', 'x'.repeat(40)));
  expect(await buffer.add(event('c', 'x'))).toMatchObject({ reason: 'unavailable' });
  expect(await addAll(buffer, [])).toEqual([]);
});

test('under continuous load the room of committed payloads is free again, for single events and for many', async () => {
  // Something always waits or is in flight, so that the ceiling counts all the time.
  for (const add of [
    async (buffer: CommitBuffer, one: AcceptedEvent): Promise<string | null> =>
      reasonOf(await buffer.add(one)),
    async (buffer: CommitBuffer, one: AcceptedEvent): Promise<string | null> =>
      (await addAll(buffer, [one]))[0] ?? null,
  ]) {
    const { buffer, writes } = setUp({ maxBytes: 400 });
    const answers = [add(buffer, event('0', 'x'.repeat(100)))];
    for (let round = 1; round <= 10; round += 1) {
      await settle();
      answers.push(add(buffer, event(String(round), 'x'.repeat(100))));
      writes.at(-1)?.finish();
    }
    await settle();
    writes.at(-1)?.finish();
    expect(await Promise.all(answers)).toEqual(Array(11).fill(null));
    expect(buffer.depth).toBe(0);
  }
});

/** Events of one app. */
function batchOf(appId: number, count: number, name: string): AcceptedEvent[] {
  return Array.from({ length: count }, (_, n) => ({ ...event(`${name}${n}`), appId }));
}

test('batches of different apps take turns, and each keeps the order of its own', async () => {
  const { buffer, writes } = setUp();
  void buffer.addAll(batchOf(1, 10_000, 'a'));
  void buffer.addAll(batchOf(1, 1, 'later a'));
  void buffer.addAll(batchOf(2, 2_500, 'b'));
  void buffer.addAll(batchOf(3, 1, 'c'));
  for (let round = 0; round < 4; round += 1) {
    await settle();
    writes[round]?.finish();
  }
  await settle();
  const first = writes[0]?.ids ?? [];
  expect(first.filter((id) => id.startsWith('a')).length).toBeLessThanOrEqual(2_000);
  expect(first).toContain('c0');
  expect(first).toContain('b999');
  const all = writes.flatMap(({ ids }) => ids);
  expect(all.length).toBe(12_502);
  for (const name of ['a', 'b']) {
    const own = all.filter((id) => id.startsWith(name));
    expect(own).toEqual(own.map((_, n) => `${name}${n}`));
  }
  expect(all.indexOf('later a0')).toBeGreaterThan(all.indexOf('a9999'));
});

test('twenty apps of one account that fill all the room make room for another account', async () => {
  const { buffer } = setUp({
    maxEvents: 1_000,
    holderOf: (appId) => [appId === 99 ? 'other' : 'greedy', appId],
  });
  void buffer.addAll(batchOf(1, 1, 'first '));
  await settle();
  const greedy = Array.from({ length: 20 }, (_, n) => addAll(buffer, batchOf(n + 1, 49, `app ${n + 1} `)));
  const other = buffer.addAll(batchOf(99, 100, 'other '));
  expect(await isSettled(other)).toBe(false);
  expect(await Promise.all(greedy.map(isSettled))).toContain(true);
});

test('a large event waits with batches, so that small ones share no commit group with it', async () => {
  const { buffer, writes } = setUp({ connections: 2 });
  void buffer.add(event('large', 'x'.repeat(LARGE_CHARACTERS + 1)));
  void buffer.add(event('small'));
  void buffer.add(event('as long as a small one may be', 'x'.repeat(LARGE_CHARACTERS)));
  await settle();
  expect(writes.map(({ ids }) => ids)).toEqual([['large'], ['small', 'as long as a small one may be']]);
});

test('an app with large events has a turn by their size, so that the next app does not wait for all of them', async () => {
  const { buffer, writes } = setUp();
  const payload = 'x'.repeat(64 * 1_024);
  void buffer.addAll(batchOf(1, 15, 'a').map((one) => ({ ...one, payload })));
  void buffer.addAll(batchOf(2, 2, 'b'));
  void buffer.addAll(batchOf(3, 2, 'c').map((one) => ({ ...one, payload })));
  await settle();
  // A turn ends with the event that reaches 256 KiB.
  expect(writes[0]?.ids.slice(0, 8)).toEqual(['a0', 'a1', 'a2', 'a3', 'b0', 'b1', 'c0', 'c1']);
});

test('an app whose batches fill all the room makes room for another one, by what of it came last', async () => {
  const { buffer, writes } = setUp({ maxEvents: 100 });
  const answers = [40, 30, 30].map((count) => buffer.addAll(batchOf(1, count, 'a')));
  await settle();
  // The first part is in flight, all of it.
  expect(writes.map(({ ids }) => ids.length)).toEqual([100]);
  writes[0]?.finish();
  await Promise.all(answers);

  const blocker = buffer.addAll(batchOf(1, 1, 'x'));
  await settle();
  const waiting = [40, 30, 29].map((count) => buffer.addAll(batchOf(1, count, 'a')));
  const [full] = await buffer.addAll(batchOf(1, 1, 'a'));
  expect(full).toMatchObject({ reason: 'unavailable' });
  const other = buffer.addAll(batchOf(2, 10, 'b'));
  expect((await waiting[2])?.[0]).toMatchObject({ reason: 'unavailable' });
  // A third one would leave the first with less than it has itself.
  expect((await buffer.addAll(batchOf(3, 60, 'c')))[0]).toMatchObject({ reason: 'unavailable' });
  writes[1]?.finish();
  await settle();
  writes[2]?.finish();
  expect((await Promise.all([blocker, waiting[0], waiting[1], other])).flat()).toEqual(
    Array.from({ length: 81 }, () => null),
  );
  expect(buffer.depth).toBe(0);
});

/** Events of an app whose ids are made of keys. */
function keyed(count: number, appId = 1): AcceptedEvent[] {
  return Array.from({ length: count }, (_, index) => ({
    ...event(keyedEventId(0, SOURCE, `${appId} ${index}`)),
    appId,
  }));
}

test('events with keys are written apart from those without, in turns', async () => {
  const { buffer, writes } = setUp();
  const keys = [...keyed(1), ...keyed(2, 2)];
  void buffer.addAll(bulk(1, 'a'));
  void buffer.addAll(keys.slice(0, 1));
  void buffer.addAll(bulk(1, 'b'));
  void buffer.addAll(keys.slice(1));
  for (let write = 0; write < 2; write += 1) {
    await settle();
    writes[write]?.finish();
  }
  await settle();
  expect(
    writes
      .map(({ ids }) => ids)
      .slice(0, 2)
      .toSorted(),
  ).toEqual([keys.map(({ id }) => id), ['a0', 'b0']].toSorted());
});

test('under continuous load of events with keys those without have every other group, and the reverse', async () => {
  const { buffer, writes } = setUp();
  void buffer.addAll(keyed(10_000));
  void buffer.addAll(bulk(10_000));
  for (let write = 0; write < 4; write += 1) {
    await settle();
    writes[write]?.finish();
  }
  const kinds = writes.slice(0, 4).map(({ ids }) => (ids[0]?.startsWith('b') ? 'plain' : 'keyed'));
  expect(kinds).toEqual(['keyed', 'plain', 'keyed', 'plain']);
});
