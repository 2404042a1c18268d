/** The client through one fault after the other: what `log` accepts is stored exactly once. */
import { afterEach, expect, test } from 'vitest';
import { EventLogger } from '../../client/src/index.ts';
import { Opened } from '../support/proxied-service.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { startTestService, until } from '../support/service.ts';
import { HttpFront } from './http-front.ts';

const opened = new Opened();
afterEach(opened.stopAll);

test('a logger loses and doubles nothing through lost answers, refused connections, outages of the database and restarts', async () => {
  let proxy: FaultyProxy | undefined;
  const first = await startTestService({
    config: { CREATE_LIMIT_PER_MINUTE: 0 },
    reach: async (address) => {
      proxy = await FaultyProxy.start(address);
      return proxy.address;
    },
  });
  const front = await HttpFront.start(first.port);
  if (proxy !== undefined) opened.add(front, proxy);
  const errors: Error[] = [];
  const logger = new EventLogger({
    loggingToken: first.app.loggingToken,
    lingerMs: 5,
    url: front.url,
    maxBatchEvents: 20,
    onRetry: (error) => errors.push(error),
  });
  opened.addFirst({ stop: () => logger.close({ timeoutMs: 1 }) });
  let logged = 0;
  const logSome = (): void => {
    for (let more = 0; more < 50; more += 1) if (logger.log('ledger', { n: logged })) logged += 1;
  };
  const phase = async (work: () => Promise<unknown> | unknown): Promise<void> => {
    const failures = errors.length;
    await work();
    logSome();
    await until(() => errors.length > failures + 1, 'the client has failed more than once');
  };
  let lost = 0;
  logSome();
  await logger.flush();
  await phase(() => {
    front.losesAnswer = () => {
      lost += 1;
      return lost % 3 > 0;
    };
  });
  front.losesAnswer = () => false;
  await phase(() => {
    front.isUnreachable = true;
    front.cutAll();
  });
  front.isUnreachable = false;
  await logger.flush();
  await phase(() => proxy?.goAway());
  await proxy?.comeBack();
  await phase(() => first.stop({ keepDatabase: true }));
  const second = await startTestService({
    database: first.database,
    config: { CREATE_LIMIT_PER_MINUTE: 0 },
  });
  opened.add(second, { stop: () => first.database.drop() });
  front.target = second.port;
  logSome();
  await logger.flush();
  expect(lost).toBeGreaterThan(1);
  expect(logger.stats).toEqual({ waiting: 0, stored: logged, refused: 0, dropped: 0 });
  const stored = await second.sql<{ n: number }[]>`SELECT (payload ->> 'n')::int AS n FROM events ORDER BY n`;
  expect(stored.map(({ n }) => n)).toEqual(Array.from({ length: logged }, (_, n) => n));
});
