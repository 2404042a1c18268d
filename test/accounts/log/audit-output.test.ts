/** AUDIT_LOG: every entry once, in order, through rotations and failures, and no request waits for it. */
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AuditOutput } from '../../../src/accounts/log/audit-output.ts';
import { createApp, suspendApp } from '../../../src/apps/apps.ts';
import { LineOutput } from '../../../src/process/log-output.ts';
import { testDatabase } from '../../support/database.ts';
import {
  captured,
  hurryRounds,
  startTestService,
  type TestService,
  testSecret,
  until,
} from '../../support/service.ts';

let folder: string;
let service: TestService;
hurryRounds();
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'audit-'));
  service = await startTestService({ config: { AUDIT_LOG: join(folder, 'logs', 'audit.log') } });
});
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true });
});

interface Line {
  readonly entryId: number;
  readonly action: string;
}

const linesOf = async (file: string): Promise<Line[]> => {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
};
const change = async (): Promise<void> => {
  const { appId } = await service.newApp();
  for (const isSuspended of [true, false]) await suspendApp(service.sql, { appId, isSuspended });
};
const allIds = async (): Promise<number[]> =>
  (await service.sql<{ id: number }[]>`SELECT id::float8 AS id FROM audit_entries ORDER BY id`).map(
    ({ id }) => id,
  );

test('a folder that is missing is said, nothing waits for it, and all entries follow, also into a rotated file', async () => {
  await until(
    () => service.log.some(({ msg }) => /^audit: AUDIT_LOG cannot/.test(String(msg))),
    'it is said',
  );
  expect((await service.post()).status).toBe(201);
  expect((await service.request({ path: '/readyz' })).status).toBe(200);
  const { body } = await service.request({ path: '/metrics' });
  expect(Number(/^tidemark_audit_log_failures_total (\d+)/m.exec(body)?.[1])).toBeGreaterThan(0);
  const file = join(folder, 'logs', 'audit.log');
  await mkdir(join(folder, 'logs'));
  const ids = await allIds();
  await until(async () => (await linesOf(file)).length >= ids.length, 'all entries are there');
  expect((await linesOf(file)).map(({ entryId }) => entryId)).toEqual(ids);
  const again = (): boolean => service.log.some(({ msg }) => msg === 'audit: AUDIT_LOG is written again');
  await until(again, 'it is said that it is written again');
  await rename(file, `${file}.1`);
  // What a crash has left of a line.
  await writeFile(file, '{"entryId"');
  await change();
  const later = (await allIds()).slice(ids.length);
  await until(
    async () => (await readFile(file, 'utf8')).split('\n').length >= later.length + 2,
    'they follow',
  );
  const [cut, ...lines] = (await readFile(file, 'utf8')).trimEnd().split('\n');
  expect(cut).toBe('{"entryId"');
  expect(lines.map((line) => (JSON.parse(line) as Line).entryId)).toEqual(later);
  expect(lines.map((line) => (JSON.parse(line) as Line).action)).toEqual([
    'app.create',
    'app.suspend',
    'app.resume',
  ]);
  expect((await linesOf(`${file}.1`)).map(({ entryId }) => entryId)).toEqual(ids);
});

test('what cannot take the entries keeps the position, so that they follow; only the process of the maintenance writes', async () => {
  const database = await testDatabase(undefined, { prepared: true });
  try {
    const { sql } = database;
    await createApp(sql, await testSecret(), { name: 'Shop' });
    const log: Record<string, unknown>[] = [];
    const output = (target: string, isLeader = true): AuditOutput =>
      new AuditOutput({
        ...{ sql, target, log: captured(log), isLeader: () => isLeader },
        // A descriptor that nothing has: each write fails.
        standard: () => new LineOutput(1_000_000),
      });
    const other = output(join(folder, 'other'), false);
    const [standard, directory] = [output('-'), output(folder)];
    for (const one of [other, standard, directory]) one.start();
    await until(
      () => [standard, directory].every(({ stats }) => stats.failures > 1),
      'both have failed twice',
    );
    await Promise.all([other, standard, directory].map((one) => one.stop()));
    for (const { stats } of [other, standard, directory]) expect(stats.written).toBe(0);
    expect(log.filter(({ level }) => level === 'error')).toHaveLength(2);
    const file = join(folder, 'good');
    const good = output(file);
    good.start();
    await until(() => good.stats.written > 0, 'the entry is written');
    await good.stop();
    expect((await linesOf(file)).map(({ action }) => action)).toEqual(['app.create']);
  } finally {
    await database.drop();
  }
});
