/** The routes of the dashboard as they are declared, for tests of all of them. */
import pino from 'pino';
import { Shares } from '../../src/apps/shares.ts';
import { ReadSlots } from '../../src/http/read-slots.ts';
import type { Declaration } from '../../src/http/route.ts';
import { unshared } from '../../src/limits/shared-records.ts';
import { Exports, QUERIES } from '../../src/read/export/exports.ts';
import { QueryBudget } from '../../src/read/query/query-budget.ts';
import { createDashboard } from '../../src/service/dashboard.ts';
import { Opened } from '../../src/service/opened.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type TestService, testSecret } from './service.ts';

/** The routes of the dashboard as they are declared: one that is added is tested too. */
export async function dashboardRoutes(service: TestService): Promise<readonly Declaration[]> {
  const storage = await openStorage(service.sql);
  const log = pino({ level: 'silent' });
  const unlimited = { take: () => null };
  const opened = new Opened();
  const dashboard = await createDashboard(
    {
      config: service.config,
      database: service.sql.pool.database,
      storage,
      secret: await testSecret(),
      generation: '',
      log,
      wall: () => Date.now(),
      monotonic: () => performance.now(),
      onChange: () => undefined,
      writeUsage: async () => undefined,
      share: unshared,
      offersSetup: false,
      exports: new Exports(log),
      queries: {
        queries: new Exports(log, undefined, QUERIES),
        budget: new QueryBudget({ ofHolder: unlimited, ofAccount: unlimited }),
        stats: { counted: 0, scanned: 0, events: 0, truncated: 0 },
        log,
        now: () => Date.now(),
        monotonic: () => performance.now(),
      },
      slots: new ReadSlots({ places: 1, maxWaiting: 1, sql: service.sql, reader: storage.reader }),
      shares: new Shares({ sql: service.sql, now: () => Date.now() }),
    },
    opened,
  );
  await opened.close();
  return dashboard.routes;
}
