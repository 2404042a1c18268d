/** What systemd is told: a unit with Type=notify and a watchdog. */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { Supervisor } from '../src/systemd.ts';
import { Installation } from './e2e/server-process.ts';
import { until } from './support/service.ts';

const UNIT = 'deploy/systemd/tidemark.service';

afterEach(() => vi.useRealTimers());

function supervised(environment: Record<string, string>): {
  supervisor: Supervisor;
  told: string[];
  warnings: unknown[];
} {
  const told: string[] = [];
  const warnings: unknown[] = [];
  const log = { warn: (...words: unknown[]) => warnings.push(words) };
  const notify = (state: string): void => void told.push(state);
  return { supervisor: new Supervisor({ environment, log, notify }), told, warnings };
}

const NOTIFY = { NOTIFY_SOCKET: '/run/systemd/notify' };

test('without systemd nothing is told', async () => {
  vi.useFakeTimers();
  const { supervisor, told } = supervised({ WATCHDOG_USEC: '3000000' });
  supervisor.ready(() => Promise.resolve(true));
  await vi.advanceTimersByTimeAsync(10_000);
  supervisor.stopping();
  expect(told).toEqual([]);
});

test('the watchdog is fed while events are accepted, and not from the stop on', async () => {
  vi.useFakeTimers();
  const { supervisor, told, warnings } = supervised({ ...NOTIFY, WATCHDOG_USEC: '3000000' });
  let ready = true;
  supervisor.ready((timeoutMs) => {
    expect(timeoutMs).toBe(1_000);
    return Promise.resolve(ready);
  });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(told).toEqual(['READY=1', 'WATCHDOG=1', 'WATCHDOG=1']);
  ready = false;
  await vi.advanceTimersByTimeAsync(3_000);
  expect(told).toHaveLength(3);
  expect(warnings).toHaveLength(1);
  ready = true;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(told).toHaveLength(4);
  supervisor.stopping();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(told.slice(4)).toEqual(['STOPPING=1']);
});

test("the watchdog of another process is not this one's", async () => {
  vi.useFakeTimers();
  const { supervisor, told } = supervised({ ...NOTIFY, WATCHDOG_USEC: '3000000', WATCHDOG_PID: '1' });
  supervisor.ready(() => Promise.resolve(true));
  await vi.advanceTimersByTimeAsync(5_000);
  expect(told).toEqual(['READY=1']);
});

test('a service tells systemd-notify that it is ready, alive and stopping', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-systemd-'));
  const told = join(folder, 'told');
  const program = join(folder, 'systemd-notify');
  writeFileSync(program, `#!/bin/sh\necho "$@" >> ${told}\n`);
  chmodSync(program, 0o755);
  const installation = await Installation.make();
  try {
    const path = `${folder}${delimiter}${process.env.PATH}`;
    const server = await installation.start({ ...NOTIFY, PATH: path, WATCHDOG_USEC: '300000' });
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

const hasSystemd = existsSync('/usr/bin/systemd-analyze');
test.skipIf(!hasSystemd)('the unit is valid, and exposes little', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-unit-'));
  try {
    const unit = join(folder, 'tidemark.service');
    writeFileSync(unit, readFileSync(UNIT));
    expect(execFileSync('systemd-analyze', ['verify', '--man=no', unit], { encoding: 'utf8' })).toBe('');
    // Tenths: 20 is an exposure of 2.0. Above it the command fails.
    const options = ['security', '--offline=true', '--threshold=20', '--no-pager'];
    expect(execFileSync('systemd-analyze', [...options, unit], { encoding: 'utf8' })).toContain(
      'Overall exposure',
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('the unit stops restarting at the exit code that no restart cures', () => {
  const unit = readFileSync(UNIT, 'utf8');
  expect(unit).toContain('RestartPreventExitStatus=78');
  const stopSeconds = Number(/TimeoutStopSec=(\d+)/.exec(unit)?.[1]);
  expect(stopSeconds).toBeGreaterThan(20);
});
