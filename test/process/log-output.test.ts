/** The log beside a reader that does not read. */
import { closeSync, openSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '../../src/process/log.ts';
import { LineOutput } from '../../src/process/log-output.ts';
import { until } from '../support/service.ts';
import { StoppedReader } from '../support/stopped-reader.ts';

let reader: StoppedReader;
let fd: number;
beforeEach(() => {
  reader = new StoppedReader();
  fd = reader.open();
});
afterEach(() => {
  closeSync(fd);
  reader.close();
});

const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '');

test('lines that the reader has no room for wait, and arrive in order and whole', async () => {
  const output = new LineOutput(fd);
  // Longer than what a pipe writes at once, and together more than it holds.
  const lines = Array.from({ length: 40 }, (_, n) => `${n} ${'x'.repeat(9_000)}`);
  for (const line of lines) output.write(`${line}\n`);
  expect(output.stats.waitingBytes).toBeGreaterThan(200_000);
  let text = '';
  await until(() => {
    text += reader.read();
    return output.stats.waitingBytes === 0;
  }, 'the reader has everything');
  expect(linesOf(text + reader.read())).toEqual(lines);
  expect(output.stats.dropped).toBe(0);
});

test('what does not fit into the buffer is dropped and counted, and one line says so when lines flow again', async () => {
  reader.fill();
  const output = new LineOutput(fd, 1_000);
  const log = createLog('info', null, output);
  const line = 'x'.repeat(300);
  // Each text differs: equal ones would be counted as repetitions.
  for (let n = 0; n < 50; n++) log.info(`${n} ${line}`);
  expect(output.stats.waitingBytes).toBeLessThanOrEqual(1_000);
  expect(output.stats.dropped).toBe(48);
  let text = '';
  await until(() => {
    text += reader.read();
    return text.includes('lines dropped');
  }, 'the log says what was dropped');
  log.info('after');
  const written = linesOf(text + reader.read()).map((one) => JSON.parse(one));
  expect(written.map(({ msg, lines }) => [msg, lines])).toEqual([
    [`0 ${line}`, undefined],
    [`1 ${line}`, undefined],
    ['log: lines dropped, standard error was not read or not writable', 48],
    ['after', undefined],
  ]);
});

test('lines for a reader that is gone are counted, and do no harm', () => {
  const gone = new StoppedReader();
  const output = new LineOutput(gone.open());
  gone.close();
  for (let n = 0; n < 3; n++) output.write('line\n');
  expect(output.stats).toEqual({ dropped: 3, waitingBytes: 0 });
});

test('a full disk costs the lines and nothing else', () => {
  const full = openSync('/dev/full', 'w');
  const output = new LineOutput(full);
  output.write('line\n');
  expect(output.stats).toEqual({ dropped: 1, waitingBytes: 0 });
  closeSync(full);
});

test('the end of a process does not wait for ever for the reader', () => {
  reader.fill();
  const output = new LineOutput(fd);
  output.write('line\n');
  output.flush(20);
  expect(output.stats.waitingBytes).toBe(5);
  reader.read();
  output.flush(20);
  expect(reader.read()).toBe('line\n');
});
