import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { deadline, withTimeout } from '../../src/base/timeout.ts';

/** A server in a thread of its own, which sends back what it receives while this thread stands still. */
const ECHO = `
  const { parentPort } = require('node:worker_threads');
  const server = require('node:net').createServer((socket) => socket.pipe(socket));
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`;
const DEADLINE_MS = 400;

let echo: Worker;
let socket: Socket;
beforeAll(async () => {
  echo = new Worker(ECHO, { eval: true });
  const [port] = await once(echo, 'message');
  socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
});
afterAll(async () => {
  socket.destroy();
  await echo.terminate();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Stands still for longer than the deadline, as a process that was stopped. */
function standStill(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * DEADLINE_MS);
}

test('an answer that came while this process stood still is in time, and so are those to what it asks then', async () => {
  const threeAnswers = async (): Promise<string> => {
    // The deadline begins first.
    await Promise.resolve();
    for (let round = 0; round < 3; round += 1) {
      socket.write('asked');
      if (round === 0) standStill();
      await once(socket, 'data');
    }
    return 'answered';
  };
  expect(await withTimeout(threeAnswers(), DEADLINE_MS, 'late')).toBe('answered');
});

test('without an answer the deadline comes when its time is over, once', () => {
  vi.useFakeTimers();
  for (const ms of [1, 49, 700, 10_000]) {
    const late = vi.fn();
    deadline(ms, late);
    vi.advanceTimersByTime(ms - 1);
    expect(late).not.toHaveBeenCalled();
    // One more for the turn of the event loop in which answers are read.
    vi.advanceTimersByTime(3);
    expect(late).toHaveBeenCalledOnce();
    vi.advanceTimersByTime(60_000);
    expect(late).toHaveBeenCalledOnce();
  }
});

test('a wait that was ended has no deadline, not even one that was due', () => {
  vi.useFakeTimers();
  const late = vi.fn();
  const end = deadline(40, late);
  vi.advanceTimersToNextTimer();
  expect(vi.getTimerCount()).toBe(1);
  end();
  vi.advanceTimersByTime(60_000);
  expect(late).not.toHaveBeenCalled();
});
