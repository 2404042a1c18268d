import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BackupReader } from '../../../src/cli/transfer/backup-format.ts';
import { restoreBackup } from '../../../src/cli/transfer/restore-backup.ts';
import { writeBackup } from '../../../src/cli/transfer/write-backup.ts';
import { openCopyClient } from '../../../src/storage/database/copy-client.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines, testDatabase } from '../../support/database.ts';
import { ConsumerWorld, drain, idsOf } from './consumer-world.ts';

const [engine = 'postgres18'] = availableEngines();
let world: ConsumerWorld;
beforeAll(async () => {
  world = await ConsumerWorld.create(await testDatabase(engine));
});
afterAll(() => world.close());

test('a restored consumer misses nothing, and gets nothing again of minutes that it had acknowledged', async () => {
  await world.store.add(1, { name: 'one', kind: 'consumer', types: [], filter: [], from: 'now' });
  const acknowledged = await world.add(3, 3_600_000);
  await world.round();
  await drain(world, 'one');
  const waiting = await world.add(2, 1_800_000);
  await world.round();
  const pending = await world.add(2);

  const client = await openCopyClient(world.database.address, 'test backup');
  const { storage } = world;
  const bytes = writeBackup({
    ...{ storage, client, database: world.database.sql.pool.database, now: Date.now() },
    onProgress: () => undefined,
  });
  const parts: Buffer[] = [];
  for await (const part of bytes) parts.push(part);
  await client.end();

  const target = await testDatabase(engine, { empty: true });
  const into = await openCopyClient(target.address, 'test restore');
  await restoreBackup({
    ...{ storage: await openStorage(target.sql), client: into, sql: target.sql },
    reader: new BackupReader(Readable.from(parts)),
    onProgress: () => undefined,
  });
  await into.end();
  const [stopped] = await target.sql`SELECT value FROM installation WHERE name = 'deliveries'`;
  expect(stopped?.value).toBe('stopped');

  const restored = await ConsumerWorld.open(target);
  await restored.round();
  const again = idsOf(await drain(restored, 'one'));
  expect(again).toEqual(expect.arrayContaining([...waiting, ...pending]));
  for (const id of acknowledged) expect(again).not.toContain(id);
  await restored.round();
  expect(await drain(restored, 'one')).toEqual([]);
  const later = await restored.add(2);
  await restored.round();
  expect(idsOf(await drain(restored, 'one')).sort()).toEqual([...later].sort());
  await restored.close();
});
