/** Loggers of Node and Python with the programs of docs/producers.md: their records come back as events. */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EventReader, type StoredEvent } from '../../client/src/index.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { LAUNCHER } from '../support/command-line.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { snippet } from '../support/snippets.ts';

const run = promisify(execFile);
const REPOSITORY = dirname(LAUNCHER);
const NODE = [process.execPath, '--input-type=module', '-e'] as const;
const PYTHON = ['python3', '-c'] as const;

let service: TestService;
let folder: string;
let reader: EventReader;
beforeAll(async () => {
  service = await startTestService();
  const appIds = [service.app.appId];
  const token = { name: 'reader', appIds, expiresInSeconds: null, maxTokens: 10 };
  const { resourceToken } = await createResourceToken(service.sql, token);
  reader = new EventReader({ url: service.url, resourceToken });
  folder = await mkdtemp(join(tmpdir(), 'tidemark-loggers-'));
  const modules = join(folder, 'node_modules');
  await cp(join(REPOSITORY, 'client', 'package.json'), join(modules, 'tidemark-client', 'package.json'));
  const tsc = join(REPOSITORY, 'node_modules', '.bin', 'tsc');
  await run(tsc, [
    ...['-p', join(REPOSITORY, 'client')],
    ...['--outDir', join(modules, 'tidemark-client', 'dist')],
  ]);
  for (const name of ['winston', 'winston-transport', 'bunyan', 'log4js'])
    await symlink(join(REPOSITORY, 'node_modules', name), join(modules, name));
  const python = 'tidemark_client';
  await symlink(join(REPOSITORY, 'client', 'python', python), join(folder, python));
});
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true, force: true });
});

test.each([
  ['winston', NODE, { level: 'info', message: 'An order', orderId: 1003 }],
  ['bunyan', NODE, { name: 'shop', level: 30, msg: 'An order', orderId: 1004 }],
  ['log4js', NODE, { level: 'INFO', data: ['An order', { orderId: 1005 }] }],
  ['Python logging', PYTHON, { level: 'INFO', message: 'An order', orderId: 1006 }],
] as const)('%s writes its records as events, of the time of the record', async (name, command, payload) => {
  const place = { base: service.url, loggingToken: service.app.loggingToken };
  const [program, ...args] = command;
  const began = Date.now();
  const { stderr } = await run(program, [...args, snippet(name, place)], { cwd: folder });
  expect(stderr).toBe('');
  const own: StoredEvent[] = [];
  for await (const event of reader.events(service.app.appId))
    if (orderOf(event.payload) === orderOf(payload)) own.push(event);
  expect(own.map((event) => event.payload)).toEqual([expect.objectContaining(payload)]);
  const at = Date.parse(own[0]?.createdAt ?? '');
  expect(at).toBeGreaterThanOrEqual(began);
  expect(at).toBeLessThanOrEqual(Date.now());
});

function orderOf(payload: object): number {
  return Number(/"orderId":(\d+)/.exec(JSON.stringify(payload))?.[1]);
}
