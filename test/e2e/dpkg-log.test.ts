import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { startTestService } from '../support/service.ts';

/** A log that nobody wrote for us. */
const LOG = '/var/log/dpkg.log';
const hasLog = await stat(LOG).then(
  (file) => file.size > 0,
  () => false,
);

/** What a producer may write on an afternoon: each line of standard input becomes an event. */
const PRODUCER = `
  const { createInterface } = require('node:readline');
  const [url, loggingToken] = process.argv.slice(1);
  (async () => {
    for await (const line of createInterface({ input: process.stdin })) {
      const [date, time, action, ...rest] = line.split(' ');
      const payload = { line, date, time, action, rest };
      const body = JSON.stringify({ loggingToken, typeName: 'dpkg ' + action, payload });
      const answer = await fetch(url + '/public/create_event', { method: 'POST', body });
      if (answer.status !== 201) throw new Error(await answer.text());
    }
  })();`;

test.skipIf(!hasLog)(
  `${LOG} is posted line by line and read back complete and in order`,
  async () => {
    const lines = (await readFile(LOG, 'utf8')).trimEnd().split('\n');
    const service = await startTestService({
      config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 },
    });
    try {
      const producer = promisify(execFile)('node', ['-e', PRODUCER, service.url, service.app.loggingToken]);
      producer.child.stdin?.end(`${lines.join('\n')}\n`);
      await producer;

      const { resourceToken } = await createResourceToken(service.sql, {
        name: 'reader',
        appIds: [service.app.appId],
        expiresInSeconds: null,
      });
      const read: string[] = [];
      for (let hasMore = true; hasMore; ) {
        const answer = await fetch(
          `${service.url}/public/get_events?appId=${service.app.appId}&limit=700&offset=${read.length}`,
          { headers: { Authorization: `Bearer ${resourceToken}` } },
        );
        // The shape is the contract's, which the contract suite checks.
        const { data } = (await answer.json()) as {
          data: { events: { payload: { line: string } }[]; pagination: { total: number; hasMore: boolean } };
        };
        expect(data.pagination.total).toBe(lines.length);
        read.push(...data.events.map((event) => event.payload.line));
        hasMore = data.pagination.hasMore;
      }
      expect(read).toEqual(lines);
    } finally {
      await service.stop();
    }
  },
  120_000,
);
