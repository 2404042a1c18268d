/** Server and database are killed under load; what was acknowledged is there, once, and nothing else is. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Ledger } from '../support/ledger.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: 90_000, hookTimeout: 60_000 });

const PRODUCERS = 32;
const FLAWLESS = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

let installation: Installation;
let server: ServerProcess;
let loggingToken: string;

beforeAll(async () => {
  installation = await Installation.make();
  server = await installation.start({ LOG_LEVEL: 'fatal' });
  ({ loggingToken } = await installation.makeApp());
});

afterAll(() => installation.remove());

test('security 22: kill -9 of the server, of PostgreSQL and of both loses nothing acknowledged and stores nothing twice', async () => {
  let isUp = true;
  const ledger = new Ledger({ loggingToken, typeName: 'killed', port: () => (isUp ? server.port : null) });
  /** So many more acknowledged: whatever was broken works again. */
  const progress = async (events: number): Promise<void> => {
    const goal = ledger.acknowledged + events;
    await until(() => ledger.acknowledged >= goal, `${events} more events are acknowledged`, 30_000);
  };
  const restart = async (): Promise<void> => {
    isUp = false;
    await server.end('SIGKILL');
    server = await installation.start({ LOG_LEVEL: 'fatal' });
    isUp = true;
  };
  ledger.start(PRODUCERS);
  await progress(500);
  await restart();
  await progress(500);
  await installation.killPostgres();
  await progress(500);
  await installation.killAllOfPostgres();
  await progress(500);
  await installation.killPostgres();
  await restart();
  await progress(500);
  await ledger.stop();
  expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
  expect(await installation.compare(ledger)).toEqual(FLAWLESS);
});

test('security 26: SIGTERM under load: every request in flight is answered, what was acknowledged is there, the exit code is 0', async () => {
  server = await installation.start({ LOG_LEVEL: 'fatal' });
  const ledger = new Ledger({ loggingToken, typeName: 'stopped', port: () => server.port });
  ledger.start(PRODUCERS);
  await until(() => ledger.acknowledged > 500 && ledger.inFlight > PRODUCERS / 2, 'there is load');
  const answered = ledger.stop();
  const { code, stderr } = await server.end('SIGTERM');
  await answered;
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(ledger.unanswered).toBe(0);
  expect(await installation.compare(ledger)).toEqual(FLAWLESS);
});
