/** The queues of both clients on disk never harm the program that logs. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { DiskQueue, QueueInUse, readSegments } from '../../client/src/disk-queue.ts';
import { EventLogger } from '../../client/src/event-logger.ts';
import { mountSmall, mountsAllowed } from '../support/small-disk.ts';

const PYTHON = fileURLToPath(new URL('../../client/python', import.meta.url));
const EVENT = { type: 'a', key: 'k', at: 1, dated: false, payload: '{}' };
/** Fills a segment, so that the next one begins. */
const LARGE = { ...EVENT, payload: `{"t":"${'x'.repeat(100_000)}"}` };

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tidemark-disk-queue-'))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Runs a program of the Python client. @returns what it prints */
async function python(program: string, args: readonly string[]): Promise<string> {
  const code = `import os, sys\nsys.path.insert(0, sys.argv[1])\n${program}`;
  const child = spawn('python3', ['-c', code, PYTHON, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  child.on('error', () => undefined); // 'close' follows.
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (more: string) => (text += more));
  child.stderr.setEncoding('utf8').on('data', (more: string) => (text += more));
  await once(child, 'close');
  return text.trim();
}

test('the old segment goes on where no new one can begin', () => {
  const own = join(folder, 'queue');
  const queue = new DiskQueue(own, 'never');
  queue.append({ n: 1, ...LARGE });
  queue.append({ n: 2, ...LARGE });
  renameSync(own, join(folder, 'away'));
  expect(() => queue.done([1, 2])).toThrow('ENOENT');
  queue.append({ n: 3, ...EVENT });
  queue.close();
  const { events } = readSegments(join(folder, 'away'));
  expect(events.map(({ event }) => event.n)).toEqual([3]);
});

test('a logger goes on in memory where its folder is moved away, or cannot be made', async () => {
  const own = join(folder, 'queue');
  const options = {
    url: 'http://127.0.0.1:1',
    loggingToken: 'tdl_x',
    drop: 'oldest',
    maxQueueEvents: 1,
  } as const;
  const logger = new EventLogger({ ...options, queueFolder: own });
  logger.log('a', { t: 'x'.repeat(100_000) });
  renameSync(own, join(folder, 'away'));
  // The first one is dropped, and done.
  expect(logger.log('a', {})).toBe(true);
  expect(logger.stats).toMatchObject({ waiting: 1, dropped: 1, inMemory: true });
  await logger.close({ timeoutMs: 0 });

  writeFileSync(join(folder, 'file'), '');
  const other = new EventLogger({ ...options, queueFolder: join(folder, 'file') });
  expect(other.log('a', {})).toBe(true);
  expect(other.stats).toMatchObject({ waiting: 1, inMemory: true });
  await other.close({ timeoutMs: 0 });
});

test('the Python client goes on as well, and keeps to the number of its own file', async () => {
  const program = `
from tidemark_client import EventLogger
logger = EventLogger("http://127.0.0.1:1", "tdl_x", queue_folder=sys.argv[2], drop="oldest", max_events=1)
logger.log("a", {"t": "x" * 100_000})
os.rename(sys.argv[2], sys.argv[2] + "-away")
accepted = [logger.log("a", {}) for _ in range(3)]
other = os.open(sys.argv[2] + "-other", os.O_WRONLY | os.O_CREAT)
accepted.append(logger.log("a", {}))
left = logger.close(0)
print(accepted, left, logger.stats.in_memory, os.fstat(other).st_size)`;
  expect(await python(program, [join(folder, 'queue')])).toMatch(/\[True, True, True, True\] 1 True 0$/);
});

describe('where the time of an event cannot be written', () => {
  test.runIf(mountsAllowed())(
    'a full disk keeps what it has, and takes more once there is room',
    async () => {
      const own = join(folder, 'small');
      mkdirSync(own);
      const unmount = await mountSmall(own, '64k');
      try {
        const queue = new DiskQueue(own, 'batch');
        queue.append({ n: 1, ...EVENT });
        writeFileSync(join(own, 'rest'), Buffer.alloc(40_000));
        const fill = (): void => {
          for (let n = 2; n < 100_000; n += 1) queue.append({ n, ...EVENT });
        };
        expect(fill).toThrow('ENOSPC');
        expect(() => queue.date([[1, 5]])).toThrow('ENOSPC');
        expect(queue.has(1)).toBe(true);
        rmSync(join(own, 'rest'));
        queue.date([[1, 5]]);
        queue.close();
        expect(readSegments(own).events[0]?.event).toMatchObject({ n: 1, date: 5 });
      } finally {
        await unmount();
      }
    },
  );
});

describe('a folder that another process uses', () => {
  const elsewhere = JSON.stringify({
    pid: process.pid,
    start: '1',
    place: 'a container',
    host: 'b',
    id: 'c',
  });
  const OPEN = `
from tidemark_client.disk_queue import DiskQueue, QueueInUse
try:
    DiskQueue(sys.argv[2], "never").close()
    print("opened")
except QueueInUse as error:
    print(error)`;

  test('is refused in this process, and to the Python client, by name', async () => {
    const queue = new DiskQueue(folder, 'never');
    expect(() => new DiskQueue(folder, 'never')).toThrow(QueueInUse);
    expect(await python(OPEN, [folder])).toContain(`used by process ${process.pid}`);
    queue.close();
    expect(await python(OPEN, [folder])).toBe('opened');
  });

  test('is refused where the owner has the same process id elsewhere, for as long as it renews the lock', async () => {
    const path = join(folder, 'lock');
    writeFileSync(path, elsewhere);
    const beats = spawn(process.execPath, [
      '-e',
      `setInterval(() => { const now = new Date(); require('fs').utimesSync(${JSON.stringify(path)}, now, now); }, 200); console.log('beats')`,
    ]);
    beats.on('error', () => undefined); // 'close' follows.
    await once(beats.stdout, 'data');
    expect(() => new DiskQueue(folder, 'never')).toThrow('on b');
    expect(await python(OPEN, [folder])).toContain('on b');
    beats.kill('SIGKILL');
    await once(beats, 'close');
    new DiskQueue(folder, 'never').close();
  });

  test('is free where its lock was cut off, or names a process that has ended', () => {
    for (const text of ['', '{"pid":', JSON.stringify({ pid: process.pid, start: '1', id: 'x' })]) {
      writeFileSync(join(folder, 'lock'), text.replace('}', `,"place":"${placeOf(folder)}"}`));
      new DiskQueue(folder, 'never').close();
    }
  });
});

/** The place of this process, as its own lock names it. */
function placeOf(folder: string): string {
  const queue = new DiskQueue(join(folder, 'other'), 'never');
  const { place } = JSON.parse(readFileSync(join(folder, 'other', 'lock'), 'utf8'));
  queue.close();
  return place;
}
