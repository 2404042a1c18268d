import { beforeEach, describe, expect, test } from 'vitest';
import { type AddedUp, type Folded, Folding } from '../../../src/storage/maintenance/folding.ts';

/** Deltas that gather each second, as many counts of a minute as they are added to, and what became of them. */
class Load {
  now = 1_000_000;
  deltasPerSecond = 0;
  minutes = 0;
  readonly folds: number[] = [];
  /** How many were pending when they were added up. */
  readonly added: number[] = [];
  isFollowed = false;
  isLocked = false;
  #pending = 0;

  readonly folding = new Folding(
    {
      fold: async (): Promise<Folded | null> => {
        if (this.isLocked) return null;
        const deltas = this.#pending;
        this.#pending = 0;
        this.folds.push(deltas);
        return { deltas, minutes: deltas === 0 ? 0 : this.minutes };
      },
      compact: async (): Promise<AddedUp | null> => {
        if (this.isLocked) return null;
        const deltas = this.#pending;
        this.added.push(deltas);
        // One for each type of an app, whose minute has a count, and so have all types.
        this.#pending = Math.min(deltas, this.minutes / 2);
        return { deltas, minutes: 2 * this.#pending, sums: this.#pending };
      },
      pending: async () => this.#pending,
    },
    () => this.now,
    async () => this.isFollowed,
  );

  async seconds(count: number): Promise<void> {
    for (let n = 0; n < count; n += 1) {
      this.now += 1_000;
      this.#pending += this.deltasPerSecond;
      await this.folding.fold(0);
    }
  }
}

describe('folds', () => {
  let load: Load;
  beforeEach(() => {
    load = new Load();
  });

  test('of few deltas come each second, however many apps they are of', async () => {
    Object.assign(load, { deltasPerSecond: 1_500, minutes: 3_000 });
    await load.seconds(5);
    expect(load.folds).toHaveLength(5);
  });

  test('of many deltas of few apps come each second', async () => {
    Object.assign(load, { deltasPerSecond: 4_000, minutes: 40 });
    await load.seconds(5);
    expect(load.folds).toHaveLength(5);
  });

  test('of many apps come once a minute; what has gathered is added up meanwhile, every two seconds', async () => {
    Object.assign(load, { deltasPerSecond: 20_000, minutes: 6_000 });
    await load.seconds(62);
    expect(load.folds).toEqual([20_000, 43_000]);
    expect(load.added).toEqual([40_000, ...Array.from({ length: 28 }, () => 43_000)]);
  });

  test('come each second for consumers, however many apps send', async () => {
    load.isFollowed = true;
    Object.assign(load, { deltasPerSecond: 10_000, minutes: 20_000 });
    await load.seconds(3);
    expect(load.folds).toEqual([10_000, 10_000, 10_000]);
  });

  test('come each second again once little is written', async () => {
    Object.assign(load, { deltasPerSecond: 10_000, minutes: 20_000 });
    await load.seconds(11);
    Object.assign(load, { deltasPerSecond: 10 });
    await load.seconds(12);
    expect(load.added).toEqual([20_000, 30_000, 30_000, 30_000, 30_000, 10_020]);
    expect(load.folds).toEqual([10_000, 10_010, ...Array.from({ length: 9 }, () => 10)]);
  });

  test('that met a lock are tried again in the next second', async () => {
    load.isLocked = true;
    Object.assign(load, { deltasPerSecond: 10_000, minutes: 20_000 });
    await load.seconds(3);
    load.isLocked = false;
    await load.seconds(1);
    expect(load.folds).toEqual([40_000]);
  });

  test('do not wait for a clock that was put back', async () => {
    Object.assign(load, { deltasPerSecond: 10_000, minutes: 20_000 });
    await load.seconds(1);
    load.now -= 3_600_000;
    await load.seconds(1);
    expect(load.folds).toEqual([10_000, 10_000]);
  });
});
