/** The template of docs/producers.md on a real rsyslog: its lines are events that the service stores, each once. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { answered, postBatch } from '../support/batch.ts';
import { until, withTestService } from '../support/service.ts';
import { readPage } from './pages.ts';

const RSYSLOGD = '/usr/sbin/rsyslogd';
const MESSAGES = ['plain', 'with "quotes", \\ and ü', 'the last one'];

test.runIf(existsSync(RSYSLOGD))(
  'rsyslog writes events with the template, which are stored once',
  async () => {
    const [, template] =
      /<!-- rsyslog template -->\n```\n([\s\S]*?)```/.exec(readPage('docs/producers.md')) ?? [];
    expect(template).toBeDefined();
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-rsyslog-'));
    const [input, output] = [join(folder, 'messages'), join(folder, 'events.ndjson')];
    await writeFile(
      join(folder, 'rsyslog.conf'),
      `global(workDirectory="${folder}")
module(load="imfile")
input(type="imfile" file="${input}" tag="app:" freshStartTail="off")
${template}
action(type="omfile" file="${output}" template="tidemark")
`,
    );
    await writeFile(input, MESSAGES.map((text) => `${text}\n`).join(''));
    const daemon = spawn(RSYSLOGD, ['-n', '-f', join(folder, 'rsyslog.conf'), '-i', join(folder, 'pid')], {
      stdio: 'ignore',
    });
    const ended = once(daemon, 'exit');
    try {
      const lines = async (): Promise<string[]> =>
        existsSync(output) ? (await readFile(output, 'utf8')).split('\n').slice(0, -1) : [];
      await until(async () => (await lines()).length === MESSAGES.length, 'rsyslog has written all messages');
      await withTestService({}, async (service) => {
        const body = (await lines()).join('\n');
        const send = async () =>
          answered(await postBatch(service, body, { 'Content-Type': 'application/x-ndjson' }));
        const first = await send();
        expect(first.stored).toBe(MESSAGES.length);
        expect((await send()).results).toEqual(
          first.results.map((result) => ({ ...result, repeated: true })),
        );
        const rows = await service.sql<{ message: string; program: string }[]>`
        SELECT payload ->> 'message' AS message, payload ->> 'program' AS program FROM events`;
        expect(rows.map(({ message }) => message).sort()).toEqual([...MESSAGES].sort());
        expect(new Set(rows.map(({ program }) => program))).toEqual(new Set(['app']));
      });
    } finally {
      daemon.kill();
      await ended;
      await rm(folder, { recursive: true, force: true });
    }
  },
);
