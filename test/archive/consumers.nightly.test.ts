/**
 * A ledger of consumers over days that leave for the archive and come back, restores of backups and switches to copies, while events of
 * all times are committed: none is left out.
 */
import { describe, expect, test } from 'vitest';
import { archiveDueDays, bringDayBack } from '../../src/archive/archiving.ts';
import { alone, CHANGED } from '../../src/archive/days.ts';
import type { ArchiveStore } from '../../src/archive/store.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { readDaysAway } from '../../src/storage/storage.ts';
import { ConsumerWorld, drain, HOUR_MS, MOVES } from '../storage/feed/consumer-world.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { seededRandom } from '../support/field-oracle.ts';

const DAY_MS = 24 * HOUR_MS;
const STEPS = 80;
/** Days that are younger are not archived. */
const AFTER_MS = 2 * DAY_MS;

/** A copy and a restore of a cluster take minutes. */
const ENGINES_OF_ONE_SERVER = availableEngines().filter((engine) => engine !== 'citus');

describe.each(ENGINES_OF_ONE_SERVER)('consumers on %s', (engine) => {
  test.each([1, 2, 3, 4])(
    'get every event, wherever its day is (%s)',
    async (seed) => {
      const random = seededRandom(seed);
      const objects = new Map<string, Buffer>();
      const store: ArchiveStore = {
        place: 'memory',
        put: async (key, bytes) => void objects.set(key, Buffer.from(bytes)),
        get: async (key) => objects.get(key) ?? Buffer.alloc(0),
        remove: async (key) => void objects.delete(key),
      };
      let world = await ConsumerWorld.create(await testDatabase(engine));
      const [app] = await world.sql<
        { publicId: string }[]
      >`SELECT public_id AS "publicId" FROM apps WHERE id = 1`;
      const committed: string[] = [];
      const got = new Map([
        ['eager', new Set<string>()],
        ['lazy', new Set<string>()],
      ]);
      for (const name of got.keys())
        await world.store.add(1, { name, kind: 'consumer', types: [], filter: [], from: 'now' });
      const read = async (name: string): Promise<void> => {
        for (const { id } of await drain(world, name, 1 + random(20))) got.get(name)?.add(id);
      };
      const withRun = async (work: (own: Sql) => Promise<unknown>): Promise<void> => {
        const own = connect(world.database.address, { connections: 1, name: 'test archive' });
        own.pool.database.adopt(ENGINES[world.storage.engine]);
        await work(own);
        await own.end({ timeout: 1 });
      };
      const options = (sql: Sql) => ({ sql, storage: world.storage, store, installationId: 'here' });
      const archive = (): Promise<void> =>
        withRun((sql) =>
          archiveDueDays({
            ...{
              ...options(sql),
              filter: { from: '2000-01-01', to: '2100-01-01' },
              until: Math.floor((Date.now() - AFTER_MS) / DAY_MS) * DAY_MS,
            },
            ...{ keepRows: false, reachMs: 1_000 * DAY_MS, onDay: () => undefined },
          }),
        );
      /** Days that are away stay behind in a restore, and keep from a copy. */
      const bringAllBack = (): Promise<void> =>
        withRun((sql) =>
          alone(sql, async () => {
            for (const { day } of await readDaysAway(sql, 1))
              expect(
                await bringDayBack(options(sql), { id: 1, publicId: app?.publicId ?? '' }, day, CHANGED),
              ).toBeNull();
          }),
        );
      const steps = [
        async () => committed.push(...(await world.add(1 + random(4)))),
        async () =>
          committed.push(
            ...(await world.add(1 + random(4), (2 + random(3)) * DAY_MS + random(100) * 20_000)),
          ),
        () => world.round(),
        () => read('eager'),
        async () => random(4) === 0 && (await read('lazy')),
        archive,
      ];
      for (let step = 1; step <= STEPS; step += 1) {
        await steps[random(steps.length)]?.();
        if (step % 30 !== 0) continue;
        await bringAllBack();
        const target = await testDatabase(engine, { empty: true });
        await MOVES[step % 60 === 0 ? 'restore' : 'switch'](world, target);
        await world.close();
        world = await ConsumerWorld.open(target);
      }
      for (let round = 0; round < 2; round += 1) {
        await world.round();
        for (const name of got.keys()) await read(name);
      }
      for (const [name, ids] of got)
        expect(
          committed.filter((id) => !ids.has(id)),
          name,
        ).toEqual([]);
      expect(committed.length).toBeGreaterThan(30);
      expect(objects.size).toBeGreaterThan(0);
      await world.close();
    },
    300_000,
  );
});
