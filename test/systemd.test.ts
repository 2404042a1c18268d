/** What systemd is told: a unit with Type=notify and a watchdog. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { Supervisor } from '../src/systemd.ts';

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
