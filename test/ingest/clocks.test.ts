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

test('a limit neither opens nor closes when the clock is set: it counts real time', async () => {
  const clock = new TestClock();
  await withTestService(
    { clock, database: 'shared', config: { CREATE_LIMIT_PER_MINUTE: 5 } },
    async (service) => {
      const status = async (): Promise<number> => (await service.post()).status;
      for (let index = 0; index < 5; index += 1) expect(await status()).toBe(201);
      for (const jump of [HOUR_MS, -2 * HOUR_MS]) {
        clock.jump(jump);
        const answer = await service.post();
        expect(answer.status).toBe(429);
        expect(Number(answer.headers['retry-after'])).toBeLessThanOrEqual(60);
      }
      clock.advance(60_000);
      for (let index = 0; index < 5; index += 1) expect(await status()).toBe(201);
      clock.jump(-HOUR_MS);
      expect(await status()).toBe(429);
    },
  );
});

test('a cached token is looked up again after the clock was set back, not kept for longer', async () => {
  const clock = new TestClock();
  await withTestService({ clock, config: { TOKEN_CACHE_SECONDS: 1 } }, async (service) => {
    expect((await service.post()).status).toBe(201);
    // Without a notification, so that only the memory's own age can tell.
    await service.sql.unsafe('ALTER TABLE logging_tokens DISABLE TRIGGER USER; DELETE FROM logging_tokens');
    expect((await service.post()).status).toBe(201);
    clock.jump(-HOUR_MS);
    expect((await service.post()).status).toBe(401);
  });
});
