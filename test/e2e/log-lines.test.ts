/** A log as programs write them, sent line by line by a producer in a process of its own, and read back by pages. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { sharedService } from '../support/service.ts';

const LINES = 150;
const ACTIONS = ['install', 'upgrade', 'configure', 'trigproc', 'status half-configured', 'status installed'];
/** Names that a line may hold: of packages, of other alphabets, with what JSON, COPY and HTML escape. */
const NAMES = [
  'libc6:amd64',
  'größe-utils',
  'пакет',
  '\\N',
  'a\tb',
  '"quoted"',
  '<script>',
  '𝄞',
  '\u2028',
  '..',
];

/** As in a log of a package manager: several lines a second, some of them identical. */
const lines = Array.from({ length: LINES }, (_, n) => {
  const time = new Date(Date.UTC(2026, 0, 31, 8, 30) + Math.floor(n / 7) * 1_000).toISOString();
  const name = NAMES[(n * 7) % NAMES.length];
  return `${time.slice(0, 10)} ${time.slice(11, 19)} ${ACTIONS[n % ACTIONS.length]} ${name} 1.${n % 97}-${n % 5}`;
});

/** What a producer may write on an afternoon: each line of standard input becomes an event. */
const PRODUCER = `
  const { createInterface } = require('node:readline');
  const [url, loggingToken] = process.argv.slice(1);
  (async () => {
    for await (const line of createInterface({ input: process.stdin })) {
      const [date, time, action, ...rest] = line.split(' ');
      const payload = { line, date, time, action, rest };
      const body = JSON.stringify({ loggingToken, typeName: 'log ' + action, payload });
      const answer = await fetch(url + '/public/create_event', { method: 'POST', body });
      if (answer.status !== 201) throw new Error(await answer.text());
    }
  })();`;

test('a log is posted line by line and read back complete and in order', async () => {
  const service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
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
      `${service.url}/public/get_events?appId=${service.app.appId}&limit=60&offset=${read.length}`,
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
}, 120_000);
