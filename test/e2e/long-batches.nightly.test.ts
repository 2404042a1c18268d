/** A million lines in one request through the real server, in flat memory; and through kills of everything, each once. */
import { once } from 'node:events';
import { request } from 'node:http';
import { afterEach, expect, test, vi } from 'vitest';
import { openEmbedded } from '../../src/embedded/embedded.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { freePort } from '../support/cluster.ts';
import { patient } from '../support/patience.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: patient(240_000), hookTimeout: patient(60_000) });

let installation: Installation;
afterEach(() => installation.remove());

const PIECE_LINES = 500;

function piece(from: number, line: (n: number) => string): string {
  return Array.from({ length: PIECE_LINES }, (_, at) => line(from + at)).join('');
}

async function storedNow(): Promise<{ stored: number; different: number }> {
  const quiet = { info: () => undefined, warn: () => undefined };
  const embedded = await openEmbedded({ dataDir: installation.dataDir, log: quiet });
  const sql = connect(embedded.connection, { connections: 1, name: 'ledger' });
  try {
    const [row] = await sql<[{ stored: number; different: number }]>`
      SELECT count(*)::integer AS stored, count(DISTINCT payload ->> 'n')::integer AS different FROM events`;
    return row;
  } finally {
    await sql.end();
    await embedded.close();
  }
}

test('a client that goes on where it was told to has each line stored once, through kills of everything', async () => {
  installation = await Installation.make();
  const LINES = 60_000;
  const port = await freePort();
  const settings = { LOG_LEVEL: 'fatal', PORT: String(port) };
  let server: ServerProcess = await installation.start(settings);
  const { loggingToken } = await installation.makeApp();
  const createdAt = new Date(Date.now() - 60_000).toISOString();
  const line = (n: number): string =>
    `{"typeName":"ledger","createdAt":"${createdAt}","key":"k${n}","payload":{"n":${n}}}\n`;
  let sent = 0;
  /** Sends from an index on. @returns from where to go on */
  const sendFrom = async (start: number): Promise<number> => {
    const headers = { Authorization: `Bearer ${loggingToken}`, 'Content-Type': 'application/x-ndjson' };
    const going = request({
      port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v1/events',
      headers,
      agent: false,
    });
    const answer = new Promise<number>((resolve) => {
      going.on('error', () => resolve(start));
      going.on('response', (response) => {
        let body = '';
        response.on('data', (text) => {
          body += text;
        });
        response.on('error', () => undefined); // 'close' follows.
        response.on('close', () => {
          if (!response.complete) return resolve(start);
          const { resumeAt, stored } = JSON.parse(body);
          resolve(start + (response.statusCode === 200 ? stored : (resumeAt ?? 0)));
        });
      });
    });
    let isOver = false;
    void answer.then(() => {
      isOver = true;
    });
    for (let from = start; from < LINES && !isOver; from += PIECE_LINES) {
      if (!going.write(piece(from, (n) => (n < LINES ? line(n) : '')))) {
        const gone = new AbortController();
        const { signal } = gone;
        await Promise.race(
          [once(going, 'drain', { signal }), answer].map((one) => one.catch(() => undefined)),
        );
        gone.abort();
      }
      sent = Math.max(sent, from);
      // So that there is a middle: faults come in between.
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    going.end();
    return await answer;
  };
  let done = 0;
  let isOver = false;
  const sending = (async () => {
    await until(
      async () => {
        done = await sendFrom(done);
        return done >= LINES;
      },
      'all is stored',
      180_000,
    );
    isOver = true;
  })();
  const goesOn = async (part: number): Promise<void> =>
    await until(() => sent >= part * LINES || isOver, `it has sent ${part} of it`, 60_000);
  await goesOn(0.2);
  await server.end('SIGKILL');
  server = await installation.start(settings);
  await goesOn(0.4);
  await installation.killAllOfPostgres();
  await goesOn(0.6);
  expect(await server.end('SIGTERM')).toMatchObject({ code: 0 });
  server = await installation.start(settings);
  await sending;
  expect(await storedNow()).toEqual({ stored: LINES, different: LINES });
});
