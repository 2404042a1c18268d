/** Who waits for groups of the archive: in turns of accounts, as many as there is room for, and no longer than somebody does. */
import { expect, test } from 'vitest';
import { ArchivedGroups } from '../../src/archive/archived-groups.ts';
import type { ArchiveStore, ObjectPart } from '../../src/archive/store.ts';
import type { Waiter } from '../../src/base/slots.ts';
import type { ArchivedGroup } from '../../src/storage/database/archive-source.ts';
import { until } from '../support/service.ts';

/** A store that never answers. */
class SilentStore implements ArchiveStore {
  readonly place = 'silent';
  readonly asked: (ObjectPart & { readonly key: string })[] = [];
  put = (): Promise<void> => Promise.resolve();
  remove = (): Promise<void> => Promise.resolve();

  get(key: string, part?: ObjectPart): Promise<Buffer> {
    if (part !== undefined) this.asked.push({ key, ...part });
    return new Promise(() => undefined);
  }

  get ended(): number {
    return this.asked.filter(({ signal }) => signal?.aborted === true).length;
  }
}

class Patience implements Waiter {
  settled = false;
  #listener: (() => void) | null = null;

  whenSettled(listener: () => void): () => void {
    this.#listener = listener;
    return () => undefined;
  }

  end(): void {
    this.settled = true;
    this.#listener?.();
  }
}

function group(index: number): ArchivedGroup {
  const id = '00000000-0000-7000-8000-000000000000';
  return {
    ...{ key: 'key', objectBytes: 1_000, groupsEnd: 900, footer: '', index, sha256: '' },
    ...{ at: index, id, lastAt: index, lastId: id, types: new Map([[1, 1]]) },
    ...{ start: index * 10, end: index * 10 + 10 },
  };
}

test('one account cannot take all of the queue, and a group is read once for all who wait for it', async () => {
  const store = new SilentStore();
  const lines: object[] = [];
  const groups = new ArchivedGroups({ store, log: { warn: (fields) => lines.push(fields) } });
  const outcomes: string[] = [];
  const waiters: Patience[] = [];
  const read = (account: string, index: number): void => {
    const waiter = new Patience();
    waiters.push(waiter);
    groups.read(group(index), new Map(), { waiter, turns: [account, 1] }).then(
      () => outcomes.push(`${account} ${index} read`),
      (error: Error) => outcomes.push(`${account} ${index} ${error.name} ${error.message}`),
    );
  };
  for (let index = 0; index < 70; index += 1) read('one', index);
  read('two', 0);
  await until(() => outcomes.length > 0, 'one is refused');
  // The other account finds a place, where the first one's read of the same group is.
  await until(() => store.asked.length >= 6, 'the first groups are asked for');
  expect(groups.stats.refused).toBeGreaterThan(0);
  expect(
    outcomes.every((outcome) => /^one \d+ Operator.* too many reads of it are waiting/.test(outcome)),
  ).toBe(true);
  const ofGroup = store.asked.filter(({ start }) => start === 0);
  expect(ofGroup).toHaveLength(1);
  // Who leaves ends it only if no other one waits.
  waiters[0]?.end();
  await Promise.resolve();
  expect(ofGroup[0]?.signal?.aborted).toBe(false);
  for (const waiter of waiters) waiter.end();
  await until(() => store.ended === store.asked.length && groups.waiting === 0, 'nothing is left');
  expect(lines).toEqual([]);
  await groups.close();
});

test('a group that takes too long is given up, and the log says why once', async () => {
  const store = new SilentStore();
  const lines: object[] = [];
  const log = { warn: (fields: object) => lines.push(fields) };
  const groups = new ArchivedGroups({ store, log, timeoutMs: 20 });
  for (const index of [1, 2])
    await expect(groups.read(group(index), new Map(), { waiter: null, turns: ['one', 1] })).rejects.toThrow(
      'which cannot be read now; try again later',
    );
  expect(lines).toEqual([{ archive: 'silent', key: 'key', reason: 'no answer within 0.02 s' }]);
  expect(groups.stats).toMatchObject({ failed: 2, read: 0 });
  await groups.close();
});
