/** What the tests of several real processes share: a database for each test, one Redis, and servers that end with the test. */
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { build } from '../support/command-line.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { request } from '../support/http-client.ts';
import { Ledger } from '../support/ledger.ts';
import { TestRedis } from '../support/redis.ts';
import { REDIS_SERVER } from '../support/redis-server.ts';
import { CREATE_EVENT, testSecret } from '../support/service.ts';
import { ServerProcess } from './server-process.ts';

const SECRET = 'the secret of the tests, 32 characters';
export const FLAWLESS = {
  acknowledgedAndMissing: 0,
  storedTwice: 0,
  storedAndRefused: 0,
  storedAndNeverSent: 0,
  miscounted: 0,
};

/** The servers of a file's tests. Its constructor registers the hooks of the file. */
export class Servers {
  redis!: TestRedis;
  database!: TestDatabase;
  loggingToken = '';
  appId = '';
  readonly #running: ServerProcess[] = [];

  constructor() {
    beforeAll(async () => {
      // Whichever test comes first must not be the one whose standard error shows the build.
      build();
      if (REDIS_SERVER !== undefined) this.redis = await TestRedis.start();
    });
    afterAll(() => this.redis?.remove());
    beforeEach(async () => {
      this.database = await testDatabase();
      const app = await createApp(this.database.sql, await testSecret(), { name: 'Workers' });
      this.appId = app.appId;
      this.loggingToken = app.loggingToken;
    });
    afterEach(async () => {
      for (const server of this.#running.splice(0)) await server.end('SIGTERM');
      await this.database.drop();
    });
  }

  /** No limit, and a Redis that may be slow, unless a test says otherwise: the machine is busy with other tests. */
  settings(more: Record<string, string> = {}): Record<string, string> {
    return {
      DATABASE_URL: this.database.url,
      SECRET,
      CREATE_LIMIT_PER_MINUTE: '0',
      REDIS_URL: this.redis?.url ?? '',
      REDIS_TIMEOUT_MS: '5000',
      ...more,
    };
  }

  async start(more: Record<string, string> = {}): Promise<ServerProcess> {
    const server = await ServerProcess.start(this.settings(more));
    this.#running.push(server);
    return server;
  }

  /** Three servers, each with the limit of an app out of the box. */
  startThree(more: Record<string, string> = {}): Promise<ServerProcess[]> {
    return Promise.all([1, 2, 3].map(() => this.start({ CREATE_LIMIT_PER_MINUTE: '1000', ...more })));
  }

  ledger(typeName: string, port: () => number): Ledger {
    return new Ledger({ loggingToken: this.loggingToken, typeName, port });
  }

  post(port: number, fields: object = {}): Promise<{ status: number }> {
    return request(port, {
      method: 'POST',
      path: CREATE_EVENT,
      body: JSON.stringify({
        loggingToken: this.loggingToken,
        typeName: 'posted',
        payload: {},
        ...fields,
      }),
    });
  }
}

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly worker?: number;
  readonly pid?: number;
}

/** The lines of a server's log. */
export function linesOf({ stderr }: ServerProcess): Line[] {
  return stderr
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line): Line => JSON.parse(line));
}

/** Process ids of the workers, those of earlier ones before their successors'. */
export function pidsOf(server: ServerProcess): number[] {
  return linesOf(server).flatMap(({ msg, pid }) => (msg === 'Serving' && pid !== undefined ? [pid] : []));
}
