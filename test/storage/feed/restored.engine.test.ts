/** Consumers after a restore and after a switch to a copy. */
import { describe, expect, test } from 'vitest';
import { availableEngines, testDatabase } from '../../support/database.ts';
import { ConsumerWorld, drain, HOUR_MS, idsOf, MOVES, sorted } from './consumer-world.ts';

describe.each(availableEngines())('a consumer of %s', (engine) => {
  test.each(['restore', 'switch'] as const)(
    'misses nothing after a %s, and gets nothing again of minutes that it had acknowledged',
    async (way) => {
      const world = await ConsumerWorld.create(await testDatabase(engine));
      await world.store.add(1, { name: 'one', kind: 'consumer', types: [], filter: [], from: 'now' });
      const acknowledged = await world.add(3, HOUR_MS);
      await world.round();
      await drain(world, 'one');
      const waiting = await world.add(2, HOUR_MS / 2);
      await world.round();
      // Committed since the last tick, whatever time they are dated.
      const pending = [
        ...(await world.add(2)),
        ...(await world.add(2, 3 * HOUR_MS)),
        ...(await world.add(2, 50 * HOUR_MS)),
      ];

      const target = await testDatabase(engine, { empty: true });
      await MOVES[way](world, target);
      const [stopped] =
        await target.sql`SELECT FROM installation WHERE name = 'deliveries' AND value = 'stopped'`;
      expect(stopped !== undefined).toBe(way === 'restore');
      const moved = await ConsumerWorld.open(target);
      await moved.round();
      const again = idsOf(await drain(moved, 'one'));
      expect(sorted(again)).toEqual(sorted([...waiting, ...pending]));
      for (const id of acknowledged) expect(again).not.toContain(id);
      await moved.round();
      expect(await drain(moved, 'one')).toEqual([]);
      const later = [...(await moved.add(2)), ...(await moved.add(2, 4 * HOUR_MS))];
      await moved.round();
      expect(idsOf(await drain(moved, 'one')).sort()).toEqual([...later].sort());
      for (const one of [world, moved]) await one.close();
    },
  );
});
