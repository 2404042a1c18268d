/** Floods of forged tokens and cookies, well-formed so that only the database can tell them from good ones. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { createSecretText } from '../../src/accounts/sessions/one-time-secret.ts';
import { createTokenText } from '../../src/base/token-text.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { goodTraffic, residentMiB, span } from '../support/good-traffic.ts';
import { HttpConnection, type HttpRequest } from '../support/http-client.ts';
import { patient } from '../support/patience.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: patient(120_000), hookTimeout: patient(60_000) });

const CONNECTIONS = 64;
/** More than any memory of what is not there holds: 10,000. */
const FILLING = 12_000;
const FLOOD = 24_000;

let database: TestDatabase;
let proxy: FaultyProxy;
let installation: Installation;
let server: ServerProcess;
let loggingToken: string;
/** What was sent to the database and asks for digests: one or more statements each. */
let lookups = 0;

beforeAll(async () => {
  database = await testDatabase();
  proxy = await FaultyProxy.start(database.address);
  proxy.decide = (sent) => {
    if (/[0-9a-f]{64}/.test(sent.toString('latin1'))) lookups += 1;
    return 'forward';
  };
  const {
    host,
    port,
    user,
    database: name,
  } = proxy.address as Exclude<typeof proxy.address, { url: string }>;
  installation = await Installation.make({
    DATABASE_URL: `postgres://${user}:any@${host}:${port}/${name}`,
    LOG_LEVEL: 'fatal',
  });
  server = await installation.start();
  ({ loggingToken } = await installation.makeApp());
});

afterAll(async () => {
  await installation.remove();
  await proxy.stop();
  await database.drop();
});

/** Sends them over many connections at once; each has to be answered with 401. */
async function flood(requests: readonly HttpRequest[]): Promise<void> {
  let next = 0;
  const send = async (): Promise<void> => {
    const connection = await HttpConnection.open(server.port);
    for (let request = requests[next++]; request !== undefined; request = requests[next++]) {
      await connection.send(request);
      const { status, body } = await connection.response();
      if (status !== 401) throw new Error(`A made-up token was answered with ${status}: ${body}`);
    }
    connection.destroy();
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, send));
}

const KINDS: readonly (readonly [name: string, remembered: boolean, make: () => HttpRequest])[] = [
  [
    'logging tokens',
    true,
    () => ({
      method: 'POST',
      path: '/public/create_event',
      body: JSON.stringify({ loggingToken: createTokenText('tdl'), typeName: 'a', payload: {} }),
    }),
  ],
  [
    'resource tokens',
    true,
    () => ({
      path: '/public/get_events?appId=app_00000000000000000000',
      headers: { Authorization: `Bearer ${createTokenText('tdr')}` },
    }),
  ],
  [
    'session cookies',
    false,
    () => ({ path: '/api/apps', headers: { Cookie: `tidemark_session=${createSecretText().text}` } }),
  ],
];

test.each(KINDS)(
  'security 27: a flood of made-up %s is looked up together, takes no more memory, and leaves writers alone',
  async (name, remembered, make) => {
    await flood(Array.from({ length: FILLING }, make));
    const usual = await goodTraffic(server.port, loggingToken, () => span(3_000));
    const memory = residentMiB(server.pid);
    const before = lookups;
    const requests = Array.from({ length: FLOOD }, make);
    const {
      requests: posted,
      p50,
      p99,
    } = await goodTraffic(server.port, loggingToken, () => flood(requests));
    const growth = residentMiB(server.pid) - memory;
    console.log(
      `${name}: ${FLOOD} requests, ${lookups - before} statements, ${growth.toFixed(0)} MiB more; ` +
        `beside them ${posted} events, p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`,
    );
    expect(lookups - before).toBeLessThan(FLOOD / 8);
    expect(growth).toBeLessThan(60);
    // Two processors that a flood keeps busy make a write slower, but it is never behind the flood.
    expect(p50).toBeLessThan(10 * usual.p50 + 20);
    expect(p99).toBeLessThan(10 * usual.p99 + 100);
    if (!remembered) return;
    // The last ones are still known not to be there.
    const known = lookups;
    await flood(requests.slice(-2_000));
    expect(lookups - known).toBeLessThan(5);
  },
);
