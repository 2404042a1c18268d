/** What systemd is told: a unit with Type=notify and a watchdog. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { Supervisor } from '../../src/process/systemd.ts';

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
describe.skipIf(!hasSystemd)('the units', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-units-'));
  beforeAll(() => {
    for (const name of readdirSync('deploy/systemd').filter((file) => /\.(service|timer)$/.test(file))) {
      // The script is not at the place where an administrator puts it.
      const unit = readFileSync(join('deploy/systemd', name), 'utf8').replace(
        '/usr/local/lib/tidemark/',
        '/bin/',
      );
      writeFileSync(join(folder, name), unit.replace('/bin/tidemark-backup.sh', '/bin/true'));
    }
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.each(['tidemark.service', 'tidemark-backup.service', 'tidemark-backup.timer'])(
    '%s is valid',
    (name) => {
      const [unit, options] = [join(folder, name), ['verify', '--man=no']];
      expect(execFileSync('systemd-analyze', [...options, unit], { encoding: 'utf8' })).toBe('');
    },
  );

  test.each(['tidemark.service', 'tidemark-backup.service'])('%s exposes little', (name) => {
    // Tenths: 20 is an exposure of 2.0. Above it the command fails.
    const options = ['security', '--offline=true', '--threshold=20', '--no-pager'];
    const report = execFileSync('systemd-analyze', [...options, join(folder, name)], { encoding: 'utf8' });
    expect(report).toContain('Overall exposure');
  });
});

test('the unit stops restarting at the exit code that no restart cures', () => {
  const unit = readFileSync(UNIT, 'utf8');
  expect(unit).toContain('RestartPreventExitStatus=78');
  const stopSeconds = Number(/TimeoutStopSec=(\d+)/.exec(unit)?.[1]);
  expect(stopSeconds).toBeGreaterThan(20);
});
