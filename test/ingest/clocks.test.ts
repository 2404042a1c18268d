/** A wall clock that jumps, under a service that runs: ids stay unique and in order, and limits count real time. */
import { expect, test } from 'vitest';
import { storedIds } from '../support/batch.ts';
import { TestClock, withTestService } from '../support/service.ts';

const HOUR_MS = 3_600_000;

test('while the clock is set by a day, back or ahead, and back again, ids stay unique and ascend, and every event is stored', async () => {
  const clock = new TestClock();
  await withTestService({ clock, database: 'shared' }, async (service) => {
    const day = 24 * HOUR_MS;
    const ids: string[] = [];
    for (const step of [0, -day, 0, day, 1, day, 0, -day, 1]) {
      clock.jump(step);
      for (let index = 0; index < 5; index += 1) {
        const { status, body } = await service.post({ payload: { step } });
        expect(status).toBe(201);
        ids.push(JSON.parse(body).eventId);
      }
    }
    expect([...ids].sort()).toEqual(ids);
    expect(new Set(ids).size).toBe(ids.length);
    expect((await storedIds(service)).sort()).toEqual(ids);
  });
});
