/** Chunks for events of long ago: as wide as their age allows, beside those that exist. */
import { expect, test } from 'vitest';
import { writes } from '../../../../src/storage/engines/timescale/writes.ts';
import { availableEngines, testDatabase } from '../../../support/database.ts';
import { insertSelected } from '../../../support/insert-selected.ts';

const DAY_MS = 86_400_000;

test.runIf(availableEngines().includes('timescale'))(
  'ten years of one event a day make fewer than 60 chunks, and those of the last two weeks are of one day',
  async () => {
    const { sql, drop } = await testDatabase('timescale');
    try {
      const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
      const times = Array.from({ length: 3_653 }, (_, n) => today - n * DAY_MS);
      const dates = times.map((time) => new Date(time).toISOString().slice(0, 10));
      for (let from = 0; from < 4; from += 1)
        await sql.unsafe(writes.createPartitions, [dates.filter((_, n) => n % 400 === 100 * from)]);
      await sql.unsafe(writes.createPartitions, [dates.filter((_, n) => n % 30 === 0)]);
      await sql.unsafe(writes.createPartitions, [dates.filter((_, n) => n % 30 !== 0 && n < 800)]);
      const rows = sql`
        SELECT gen_random_uuid(), 1, 7, day::timestamptz + interval '1 minute', '{}'::json
          FROM unnest(${dates}::text[]) AS given (day)`;
      expect(await insertSelected(sql, 'timescale', rows)).toBe(times.length);
      const chunks = await sql<{ days: number; start: Date }[]>`
        SELECT range_start AS start, (extract(epoch FROM range_end - range_start) / 86400)::float8 AS days
          FROM timescaledb_information.chunks WHERE hypertable_name = 'events'`;
      expect(chunks.length).toBeLessThan(60);
      const near = chunks.filter(({ start }) => start.getTime() >= today - 14 * DAY_MS);
      expect(near.map(({ days }) => days)).toEqual(Array.from({ length: 15 }, () => 1));
      expect(Math.max(...chunks.map(({ days }) => days))).toBeGreaterThan(364);
    } finally {
      await drop();
    }
  },
);
