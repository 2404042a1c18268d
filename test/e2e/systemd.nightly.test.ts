/** What a process of the service tells systemd-notify. */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { expect, test } from 'vitest';
import { until } from '../support/service.ts';
import { Installation } from './server-process.ts';

test('a service tells systemd-notify that it is ready, alive and stopping', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-systemd-'));
  const told = join(folder, 'told');
  const program = join(folder, 'systemd-notify');
  writeFileSync(program, `#!/bin/sh\necho "$@" >> ${told}\n`);
  chmodSync(program, 0o755);
  const installation = await Installation.make();
  try {
    const path = `${folder}${delimiter}${process.env.PATH}`;
    const server = await installation.start({
      NOTIFY_SOCKET: '/run/systemd/notify',
      PATH: path,
      WATCHDOG_USEC: '300000',
    });
    const lines = (): string[] => (existsSync(told) ? readFileSync(told, 'utf8').trim().split('\n') : []);
    await until(() => lines().filter((line) => line === 'WATCHDOG=1').length >= 2, 'the watchdog is fed');
    expect(lines()[0]).toBe('READY=1');
    expect((await server.end('SIGTERM')).code).toBe(0);
    await until(() => lines().at(-1) === 'STOPPING=1', 'the stop is told');
  } finally {
    await installation.remove();
    rmSync(folder, { recursive: true, force: true });
  }
});
