/** syslog-ng and rsyslog with the configurations of docs/producers.md, through kills of the server: each message is stored once. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { connect, type Sql } from '../../src/storage/connect.ts';
import { openEmbedded } from '../../src/storage/embedded/embedded.ts';
import { readPage } from '../docs/pages.ts';
import { until } from '../support/service.ts';
import {
  hasRsyslogBulk,
  hasSyslogNg,
  RSYSLOGD,
  SYSLOG_NG,
  SYSLOG_NG_LIBRARIES,
} from '../support/syslog-daemons.ts';
import { Installation, type ServerProcess } from './server-process.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 });

const MESSAGES = 300;

let folder: string;
let installation: Installation;
let server: ServerProcess;
let settings: Record<string, string>;
let loggingToken: string;
let sql: Sql;
let closeDatabase: () => Promise<void>;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-syslog-'));
  installation = await Installation.make();
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  settings = { LOG_LEVEL: 'fatal', PORT: String((probe.address() as { port: number }).port) };
  probe.close();
  server = await installation.start(settings);
  ({ loggingToken } = await installation.makeApp());
  const quiet = { info: () => undefined, warn: () => undefined };
  const embedded = await openEmbedded({ dataDir: installation.dataDir, log: quiet });
  sql = connect(embedded.connection, { connections: 1, name: 'ledger' });
  closeDatabase = async () => {
    await sql.end();
    await embedded.close();
  };
});
afterEach(async () => {
  await closeDatabase();
  await installation.remove();
  await rm(folder, { recursive: true, force: true });
});

/** A configuration of the page, for the server of the test. */
function configuration(name: string): string {
  const [, text] =
    new RegExp(`<!-- ${name} -->\\n\`\`\`\\n([\\s\\S]*?)\`\`\``).exec(readPage('docs/producers.md')) ?? [];
  if (text === undefined) throw new Error(`The page has no configuration "${name}".`);
  return text
    .replaceAll(/https:\/\/events\.example\.com(?::443)?/g, `http://127.0.0.1:${settings.PORT}`)
    .replaceAll('tdl_…', loggingToken)
    .replaceAll('time-reopen(5)', 'time-reopen(1)')
    .replaceAll('action.resumeInterval="5"', 'action.resumeInterval="1"');
}

async function stored(): Promise<{ stored: number; different: number }> {
  const [row] = await sql<[{ stored: number; different: number }]>`
    SELECT count(*)::integer AS stored, count(DISTINCT coalesce(payload ->> 'MESSAGE', payload ->> 'message'))::integer AS different
      FROM events`;
  return row;
}

/** Runs a daemon that follows a file, kills the server in the middle, and waits until all is stored. */
async function deliverThroughKills(program: string, args: readonly string[], env = {}): Promise<void> {
  const input = join(folder, 'messages');
  let written = 0;
  const write = async (count: number): Promise<void> => {
    const lines = Array.from(
      { length: count },
      (_, at) => `<13>Nov 22 12:00:00 host app: message "${written + at}" ü\n`,
    );
    written += count;
    await appendFile(input, lines.join(''));
  };
  await write(MESSAGES);
  const daemon = spawn(program, args, { stdio: 'ignore', env: { ...process.env, ...env } });
  const ended = once(daemon, 'exit');
  try {
    await until(async () => (await stored()).stored >= MESSAGES, 'the first messages are stored', 30_000);
    await server.end('SIGKILL');
    await write(MESSAGES);
    server = await installation.start(settings);
    await until(
      async () => (await stored()).stored >= 2 * MESSAGES,
      'those of the outage are stored',
      60_000,
    );
    await write(MESSAGES);
    await server.end('SIGKILL');
    server = await installation.start(settings);
    await until(async () => (await stored()).different === 3 * MESSAGES, 'all messages are stored', 60_000);
    expect(await stored()).toEqual({ stored: 3 * MESSAGES, different: 3 * MESSAGES });
  } finally {
    daemon.kill();
    await ended;
  }
}

test.runIf(hasSyslogNg)('syslog-ng delivers each message once', async () => {
  const config = join(folder, 'syslog-ng.conf');
  const buffers = join(folder, 'buffers');
  await mkdir(buffers);
  await writeFile(
    config,
    `@version: 3.38
${configuration('syslog-ng').replace('reliable(yes)', `dir("${buffers}") reliable(yes)`)}
source s_file { file("${join(folder, 'messages')}" follow-freq(0.1)); };
log { source(s_file); destination(d_tidemark); };
`,
  );
  const own = ['-R', join(folder, 'persist'), '-p', join(folder, 'pid'), '-c', join(folder, 'control')];
  const args = ['-F', '-f', config, `--module-path=${SYSLOG_NG_LIBRARIES}/3.38`, ...own];
  await deliverThroughKills(SYSLOG_NG, args, { LD_LIBRARY_PATH: SYSLOG_NG_LIBRARIES });
});

test.runIf(hasRsyslogBulk)('rsyslog delivers each message once by omelasticsearch', async () => {
  const config = join(folder, 'rsyslog.conf');
  await writeFile(
    config,
    `global(workDirectory="${folder}")
module(load="imfile" mode="polling" pollingInterval="1")
input(type="imfile" file="${join(folder, 'messages')}" tag="app:" freshStartTail="off")
${configuration('rsyslog bulk')}`,
  );
  await deliverThroughKills(RSYSLOGD, ['-n', '-f', config, '-i', join(folder, 'pid')]);
});
