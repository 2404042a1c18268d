/** The Node client and the Python client with a queue on disk: what they accept is stored exactly once, through kill -9 at any step. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { DiskQueue, readSegments, type StoredEvent } from '../../client/src/disk-queue.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { HttpFront } from './http-front.ts';

vi.setConfig({ testTimeout: patient(1_800_000), hookTimeout: patient(120_000) });

/** Events of a campaign. The full size is 100,000. */
const EVENTS = Number(process.env.CAMPAIGN_EVENTS ?? 2_000);
const KILLS = 10;
const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
/** How far clocks are ahead; less than 0: behind. */
const SKEWS = [0, HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS] as const;
/** How far a time may be off: the time of a request on a busy machine, and a second where the clock is wrong. */
const TIME_ERROR_MS = 5_000;
const PYTHON = fileURLToPath(new URL('../../client/python', import.meta.url));
const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url));

interface Vector {
  readonly name: string;
  readonly segments: Readonly<Record<string, string>>;
  readonly waiting: readonly StoredEvent[];
  readonly highest: number;
  readonly damaged: number;
}
const VECTORS = JSON.parse(
  readFileSync(here('../../client/test-vectors/queue.json'), 'utf8'),
) as readonly Vector[];

const READ = `
import json, os, sys
sys.path.insert(0, sys.argv[1])
from tidemark_client.disk_queue import read_segments
waiting, _, highest, damaged = read_segments(sys.argv[2], sorted(os.listdir(sys.argv[2])))
print(json.dumps({"waiting": waiting, "highest": highest, "damaged": damaged}))`;

import { patient } from '../support/patience.ts';

let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tidemark-queue-'));
  const tsc = here('../../node_modules/.bin/tsc');
  await output(tsc, [
    '-p',
    here('../../client'),
    '--outDir',
    join(folder, 'client'),
    '--declaration',
    'false',
  ]);
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function output(command: string, args: readonly string[]): Promise<string> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  child.on('error', () => undefined); // 'close' follows.
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (more: string) => (text += more));
  const [code] = await once(child, 'close');
  expect(code, `${command} ${args.join(' ')}`).toBe(0);
  return text;
}

test.each(VECTORS)('both clients read $name', async ({ name, segments, waiting, highest, damaged }) => {
  const own = join(folder, name.replaceAll(/\W+/g, '-'));
  mkdirSync(own);
  for (const [file, text] of Object.entries(segments)) writeFileSync(join(own, file), text);
  const found = readSegments(own);
  expect({ ...found, events: found.events.map(({ event }) => event), segments: 0 }).toEqual({
    ...{ events: waiting, highest, damaged, segments: 0 },
  });
  expect(JSON.parse(await output('python3', ['-c', READ, PYTHON, own]))).toEqual({
    waiting,
    highest,
    damaged,
  });
});

test('a folder has one process at a time, loses segments once their events are done, and keeps the rest', () => {
  const own = join(folder, 'one');
  const first = new DiskQueue(own, 'always');
  const event = { type: 'a', key: 'k', at: 1, dated: false, payload: '{}' };
  first.append({ n: 1, ...event });
  first.append({ n: 2, ...event });
  first.done([1]);
  writeFileSync(join(own, 'lock'), '1');
  expect(() => new DiskQueue(own, 'batch')).toThrow('is used by process 1');
  first.close();
  const second = new DiskQueue(own, 'batch');
  expect(second.found.map(({ n }) => n)).toEqual([2]);
  second.done([2]);
  second.close();
  expect(readdirSync(own)).toHaveLength(1);
  const third = new DiskQueue(own, 'never');
  expect([third.found, third.highest]).toEqual([[], 0]);
  third.close();
});

describe.each([
  ['Node', process.execPath, here('producer-process.mjs')],
  ['Python', 'python3', here('producer_process.py')],
])('the %s client with a queue on disk', (name, command, script) => {
  let service: TestService;
  let front: HttpFront;
  beforeAll(async () => {
    service = await startTestService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
    front = await HttpFront.start(service.port);
  });
  afterAll(async () => {
    await front.stop();
    await service.stop();
  });

  type Producer = ChildProcessByStdio<null, Readable, null>;
  const start = (own: string, first: number, count: number, skewMs: number): Producer => {
    const args = [
      script,
      front.url,
      service.app.loggingToken,
      own,
      first,
      count,
      skewMs,
      name === 'Node' ? join(folder, 'client', 'index.js') : PYTHON,
    ].map(String);
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    child.on('error', () => undefined); // 'close' follows.
    return child;
  };

  test(`stores ${EVENTS} events once each through ${KILLS} kills, lost answers, an unreachable service, and clocks ahead and behind`, async () => {
    const accepted: number[] = [];
    let seed = 7;
    const random = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    let requests = 0;
    front.losesAnswer = () => requests++ % 5 === 3;
    const part = Math.ceil(EVENTS / KILLS);
    for (let round = 0; round < KILLS; round += 1) {
      const skew = SKEWS[round % SKEWS.length] ?? 0;
      const own = join(folder, `${name}-${skew}`);
      front.isUnreachable = round % 3 === 2;
      const child = start(own, round * part, part, skew);
      const before = accepted.length;
      // Anywhere between the start and the end of what it logs, or while it sends the rest.
      const killAt = random(part);
      let rest = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        const lines = `${rest}${text}`.split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (/^\d+$/.test(line)) accepted.push(Number(line));
        if (accepted.length - before >= killAt) child.kill('SIGKILL');
      });
      await once(child, 'close');
    }
    front.isUnreachable = false;
    front.losesAnswer = () => false;
    for (const skew of SKEWS) {
      const last = start(join(folder, `${name}-${skew}`), 0, 0, skew);
      let text = '';
      last.stdout.setEncoding('utf8').on('data', (more: string) => (text += more));
      await once(last, 'close');
      expect(text).toBe('left 0\n');
    }
    const rows = await service.sql<{ n: number; error: number }[]>`
      SELECT (payload ->> 'n')::int AS n,
             abs(extract(epoch FROM created_at) * 1000 - (payload ->> 'real')::float8)::float8 AS error FROM events`;
    const stored = new Set(rows.map(({ n }) => n));
    const lost = accepted.filter((n) => !stored.has(n));
    const worst = Math.max(...rows.map(({ error }) => error));
    process.stderr.write(
      `${name} campaign: ${accepted.length} accepted, ${rows.length} stored, ${lost.length} lost, ${rows.length - stored.size} doubled, times off by at most ${Math.round(worst)} ms\n`,
    );
    expect([lost, rows.length - stored.size]).toEqual([[], 0]);
    expect(accepted.length).toBeGreaterThan(EVENTS / 10);
    expect(worst).toBeLessThan(TIME_ERROR_MS);
  });
});
