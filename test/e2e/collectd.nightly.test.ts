/** collectd with the configuration of docs/producers.md: what it measures comes back as events. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { COLLECTD, hasCollectd } from '../support/daemons.ts';
import { until, withTestService } from '../support/service.ts';
import { snippet } from '../support/snippets.ts';

test.runIf(hasCollectd)('collectd writes what it measures, as it stops at the latest', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-collectd-'));
  try {
    await withTestService({}, async (service) => {
      const config = join(folder, 'collectd.conf');
      const place = { base: service.url, loggingToken: service.app.loggingToken };
      await writeFile(
        config,
        `Hostname "web-1"
BaseDir "${folder}"
PIDFile "${join(folder, 'pid')}"
TypesDB "/usr/share/collectd/types.db"
Interval 0.1
LoadPlugin load
LoadPlugin memory
${snippet('collectd', place)}
`,
      );
      const began = Date.now();
      const daemon = spawn(COLLECTD, ['-f', '-C', config], { stdio: 'ignore' });
      const ended = once(daemon, 'exit');
      try {
        // A full buffer is sent at once.
        await until(
          async () => (await service.sql`SELECT FROM events LIMIT 1`).length > 0,
          'some are stored',
        );
      } finally {
        daemon.kill();
        await ended;
      }
      const rows = await service.sql<{ type: string; at: Date; payload: Record<string, unknown> }[]>`
        SELECT event_types.name AS type, events.created_at AS at, payload
          FROM events JOIN event_types ON event_types.id = type_id ORDER BY at`;
      expect(new Set(rows.map(({ type }) => type))).toEqual(new Set(['load', 'memory']));
      for (const { type, at, payload } of rows) {
        expect(payload).toMatchObject({ host: 'web-1', plugin: type, values: expect.any(Array) });
        expect(Math.abs(at.getTime() - Number(payload.time) * 1_000)).toBeLessThanOrEqual(1);
        expect(at.getTime()).toBeGreaterThan(began - 1_000);
      }
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
