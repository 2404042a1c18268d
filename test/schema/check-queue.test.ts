/** Who waits for whom in the queue of schema checks, in thread time: the threads are simulated, and their clock is moved. */
import { beforeEach, describe, expect, test } from 'vitest';
import { type Check, CheckQueue, type CheckResult, type CheckThread } from '../../src/schema/check-queue.ts';
import type { Checked, ThreadOutcome, ThreadRequest } from '../../src/schema/schema-thread.ts';
import { sized } from '../support/fuzz.ts';

/** As `thread.js` has it. */
const TURN_MS = 10;
const QUICK_LIMIT_MS = 150;
const SLOW_LIMIT_MS = 300;

/** What happens at which time of the simulated clock. */
class Agenda {
  now = 0;
  readonly #entries: { at: number; happen: () => void }[] = [];

  at(time: number, happen: () => void): void {
    this.#entries.push({ at: time, happen });
    this.#entries.sort((one, other) => one.at - other.at);
  }

  /** Lets everything happen. */
  async run(): Promise<void> {
    for (;;) {
      for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
      const next = this.#entries.shift();
      if (next === undefined) return;
      this.now = next.at;
      next.happen();
    }
  }
}

/** A thread whose checks take as long as their payload says. */
class SimulatedThread implements CheckThread {
  /** Checks that ended it. */
  kills = 0;
  readonly #agenda: Agenda;
  readonly #limitMs: number;

  constructor(agenda: Agenda, limitMs: number) {
    this.#agenda = agenda;
    this.#limitMs = limitMs;
  }

  run({ items }: ThreadRequest): Promise<ThreadOutcome> {
    return new Promise((resolve) => {
      const checked: Checked[] = [];
      let tookMs = 0;
      for (const { payload } of items) {
        if (checked.length > 0 && tookMs > TURN_MS) break;
        const { ms } = JSON.parse(payload ?? '') as { ms: number }; // As `payload` writes it.
        if (ms > this.#limitMs) {
          this.kills += 1;
          const failed = { failedAt: checked.length, problem: 'too long', ms: this.#limitMs };
          this.#agenda.at(this.#agenda.now + tookMs + this.#limitMs, () => resolve(failed));
          return;
        }
        tookMs += ms;
        checked.push({ violation: null, problem: null, ms });
      }
      this.#agenda.at(this.#agenda.now + tookMs, () => resolve({ checked }));
    });
  }

  async close(): Promise<void> {}
}

let agenda: Agenda;
let quick: SimulatedThread;
let slow: SimulatedThread;
let queue: CheckQueue;
beforeEach(() => {
  agenda = new Agenda();
  quick = new SimulatedThread(agenda, QUICK_LIMIT_MS);
  slow = new SimulatedThread(agenda, SLOW_LIMIT_MS);
  queue = newQueue();
});

function newQueue(limits: { maxEvents?: number; maxBytes?: number } = {}): CheckQueue {
  const { maxEvents = 10_000, maxBytes = 10_000_000 } = limits;
  const onFault = (problem: string): never => {
    throw new Error(problem);
  };
  return new CheckQueue({ quick, slow, now: () => agenda.now, maxEvents, maxBytes, onFault });
}

interface Sent {
  /** How long it waited for its check and for its result; null: not yet. */
  waitedMs: number | null;
  result: CheckResult | null;
}

interface Sending {
  readonly app?: number;
  readonly ms: number;
  readonly isAwaited?: boolean;
  readonly characters?: number;
}

function send(account: number, { app = account, ms, isAwaited = true, characters = 0 }: Sending): Sent {
  const sent: Sent = { waitedMs: null, result: null };
  const begun = agenda.now;
  const check: Check = {
    holder: [account, app],
    group: `type of ${app}`,
    digest: 'digest',
    schema: '{}',
    payload: JSON.stringify({ ms, text: 'x'.repeat(characters) }),
    isAwaited,
    settle: (result) => {
      sent.result = result;
      sent.waitedMs = agenda.now - begun;
    },
  };
  queue.add(check);
  return sent;
}

const INNOCENT = 1;
const ATTACKER = 2;

/** The waits of an innocent account that sends a check each so many milliseconds, beside what else is on the agenda. */
async function innocentWaits(everyMs: number, untilMs: number, fromMs = 0): Promise<number[]> {
  const sent: Sent[] = [];
  for (let time = fromMs; time < untilMs; time += everyMs)
    agenda.at(time, () => sent.push(send(INNOCENT, { ms: 0.05 })));
  await agenda.run();
  const waits = sent.map(({ waitedMs }) => waitedMs ?? Number.POSITIVE_INFINITY);
  return waits.sort((one, other) => one - other);
}

describe('an innocent account', () => {
  test('waits for the first slow check of each hostile account, and for none after', async () => {
    const [accounts, untilMs] = [3, sized(12_000, 60_000)];
    // 20 apps of each account, one slow payload each 0.6 s that nobody waits for.
    for (let account = 0; account < accounts; account++)
      for (let app = 0; app < 20; app++)
        for (let time = 0; time < untilMs; time += 600)
          agenda.at(time, () =>
            send(ATTACKER + account, { app: 100 + 20 * account + app, ms: 5_000, isAwaited: false }),
          );
    const waits = await innocentWaits(10, untilMs);
    expect(waits).toHaveLength(untilMs / 10);
    expect(quick.kills).toBe(accounts);
    expect(waits.at(-1)).toBeLessThanOrEqual(QUICK_LIMIT_MS + 1);
    expect(waits.filter((wait) => wait > 5).length).toBeLessThanOrEqual(accounts * (QUICK_LIMIT_MS / 10 + 1));
  });

  test('is checked before accounts that have used more time, however many they are and within what is free', async () => {
    // 76,000 characters may take 8.6 ms. The thread is never idle.
    for (let account = 0; account < 20; account++)
      for (let n = 0; n < 40; n++)
        agenda.at(0, () => send(ATTACKER + account, { ms: 8.5, characters: 76_000 }));
    queue = newQueue({ maxBytes: 1_000_000_000 });
    // Once each of them has had a turn.
    const waits = await innocentWaits(25, 6_000, 500);
    // The turn under way, which may have begun its last check at its end.
    expect(waits.at(-1)).toBeLessThanOrEqual(2 * 8.5 + 0.1);
    expect(quick.kills + slow.kills).toBe(0);
  });

  test('does not wait for checks that nobody waits for', async () => {
    for (let n = 0; n < 500; n++)
      agenda.at(0, () => send(INNOCENT, { app: 10 + (n % 5), ms: 1, isAwaited: false }));
    const waits = await innocentWaits(50, 1_000);
    expect(waits.at(-1)).toBeLessThanOrEqual(TURN_MS + 2);
  });
});

test('a check that was ended early has all of its time in the slow thread, and its account returns after a while', async () => {
  const first = send(ATTACKER, { ms: 200 });
  await agenda.run();
  expect(first).toEqual({ result: { violation: null, problem: null, ms: 350 }, waitedMs: 350 });
  expect([quick.kills, slow.kills]).toEqual([1, 0]);
  const second = send(ATTACKER, { ms: 200 });
  await agenda.run();
  expect(second.waitedMs).toBe(200);
  expect(quick.kills).toBe(1);
  agenda.at(agenda.now + 600_000, () => undefined);
  await agenda.run();
  const third = send(ATTACKER, { ms: 1 });
  await agenda.run();
  expect(third.waitedMs).toBe(1);
  expect(quick.kills).toBe(1);
});

test('what waits of a schema that is dropped is settled at once, also what comes back from the thread', async () => {
  const sent = Array.from({ length: 200 }, (_, n) => send(ATTACKER, { app: 100 + (n % 2), ms: 5_000 }));
  const settled = (): number => sent.filter(({ result }) => result !== null).length;
  // In the quick thread are 64 of one of the two apps.
  agenda.at(1, () => {
    queue.drop('type of 100', 'suspended');
    expect(settled()).toBe(36);
  });
  agenda.at(QUICK_LIMIT_MS + 1, () => {
    expect(settled()).toBe(100);
    queue.drop('type of 101', 'suspended');
    expect(settled()).toBe(136);
  });
  await agenda.run();
  // The check that was under way has ended the thread.
  expect([quick.kills, slow.kills]).toEqual([1, 1]);
  expect(queue.waiting).toBe(0);
  expect(sent.map(({ result }) => result)).toEqual(
    Array(200).fill({ violation: null, problem: expect.any(String), ms: expect.any(Number) }),
  );
});

describe('where there is no room', () => {
  test('an account has half of it', () => {
    queue = newQueue({ maxEvents: 10 });
    const sent = Array.from({ length: 8 }, (_, n) => send(ATTACKER, { app: 100 + n, ms: 1 }));
    expect(sent.map(({ result }) => result === 'full')).toEqual([
      ...Array(5).fill(false),
      ...Array(3).fill(true),
    ]);
  });

  test('the account that holds most loses its latest check, first one that nobody waits for', () => {
    queue = newQueue({ maxEvents: 10 });
    const noted = Array.from({ length: 2 }, () => send(ATTACKER, { ms: 1, isAwaited: false }));
    const awaited = Array.from({ length: 3 }, () => send(ATTACKER, { ms: 1 }));
    const others = Array.from({ length: 5 }, (_, n) => send(10 + n, { ms: 1 }));
    const innocents = Array.from({ length: 3 }, (_, n) => send(30 + n, { ms: 1 }));
    const isFull = (sent: readonly Sent[]): boolean[] => sent.map(({ result }) => result === 'full');
    expect(isFull(noted)).toEqual([true, true]);
    expect(isFull(awaited)).toEqual([false, false, true]);
    expect(isFull([...others, ...innocents])).toEqual(Array(8).fill(false));
    // One that nobody waits for takes no place of one that is awaited.
    expect(send(50, { ms: 1, isAwaited: false }).result).toBe('full');
  });

  test('bytes count as events do, and an account with nothing waiting has room for a large payload', () => {
    queue = newQueue({ maxBytes: 10_000 });
    expect(send(ATTACKER, { ms: 1, characters: 9_000 }).result).toBeNull();
    expect(send(ATTACKER, { ms: 1 }).result).toBe('full');
    const small = Array.from({ length: 20 }, (_, n) => send(10 + n, { ms: 1 }));
    expect(small.every(({ result }) => result === null)).toBe(true);
  });
});
