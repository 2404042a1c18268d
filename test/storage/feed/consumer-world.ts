/** An app with events that are committed when a test says so, and its consumers. */
import { Readable } from 'node:stream';
import { createApp } from '../../../src/apps/apps.ts';
import { BackupReader } from '../../../src/cli/transfer/backup-format.ts';
import { restoreBackup } from '../../../src/cli/transfer/restore-backup.ts';
import { writeBackup } from '../../../src/cli/transfer/write-backup.ts';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import { copyDatabase } from '../../../src/storage/copy/copy.ts';
import { connect, type Sql, type Transaction } from '../../../src/storage/database/connect.ts';
import { openCopyClient } from '../../../src/storage/database/copy-client.ts';
import { readInstallation } from '../../../src/storage/database/installation-id.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import type { CommittedEvent } from '../../../src/storage/feed/committed-events.ts';
import { ConsumerStore } from '../../../src/storage/feed/consumers.ts';
import type { FeedPosition } from '../../../src/storage/feed/position.ts';
import type { MaintenanceTasks } from '../../../src/storage/maintenance/loop.ts';
import { openStorage, type Storage } from '../../../src/storage/storage.ts';
import type { TestDatabase } from '../../support/database.ts';
import { testSecret } from '../../support/service.ts';
import { type EventRow, storeRows } from '../../support/stored-events.ts';

export const REACH_HOURS = 168;
const HOUR_MS = 3_600_000;

/** A transaction that has stored its events, and waits to be committed. */
export interface OpenCommit {
  readonly ids: readonly string[];
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

export class ConsumerWorld {
  readonly database: TestDatabase;
  readonly sql: Sql;
  readonly storage: Storage;
  readonly store: ConsumerStore;
  readonly tasks: MaintenanceTasks;
  readonly #maintenance: Sql;
  /** How far the clock of maintenance is ahead. */
  ahead = 0;

  private constructor(database: TestDatabase, storage: Storage, compressAfterDays: number) {
    this.database = database;
    this.sql = database.sql;
    this.storage = storage;
    this.store = new ConsumerStore(storage.engine, database.sql);
    this.#maintenance = connect(database.address, { connections: 1, name: 'test maintenance' });
    const settings = {
      ...{ CHUNK_HOURS: 24, COMPRESS_AFTER_DAYS: compressAfterDays, RETENTION_DAYS: 0 },
      CONSUMER_REACH_HOURS: REACH_HOURS,
    };
    const pools = { sql: this.#maintenance, slow: database.sql };
    this.tasks = storage.maintenance(pools, settings, () => this.now);
  }

  get now(): number {
    return Date.now() + this.ahead;
  }

  static async create(database: TestDatabase, compressAfterDays = 0): Promise<ConsumerWorld> {
    const world = new ConsumerWorld(database, await openStorage(database.sql), compressAfterDays);
    await world.tasks.prepare();
    const { appId } = await createApp(world.sql, await testSecret(), { name: 'One' });
    await world.sql`
      INSERT INTO event_types (public_id, app_id, name)
      SELECT 'typ_' || n, apps.id, 'type ' || n FROM apps, generate_series(1, 2) n WHERE public_id = ${appId}`;
    return world;
  }

  /** The same of a database that has been filled. */
  static async open(database: TestDatabase): Promise<ConsumerWorld> {
    const world = new ConsumerWorld(database, await openStorage(database.sql), 0);
    await world.tasks.prepare();
    return world;
  }

  async close(): Promise<void> {
    await this.#maintenance.end();
    await this.database.drop();
  }

  /** A round of maintenance, a while later. */
  async round(): Promise<void> {
    this.ahead += 6_000;
    await this.tasks.everySecond();
  }

  async settle(): Promise<void> {
    await this.storage.settleCounts(this.#maintenance, this.now);
  }

  /** Events of now, or dated so long ago. @returns their ids */
  async add(count: number, agoMs = 0): Promise<readonly string[]> {
    const open = await this.open(count, agoMs);
    await open.commit();
    return open.ids;
  }

  async open(count: number, agoMs = 0): Promise<OpenCommit> {
    const rows = Array.from({ length: count }, (_, index) => {
      const at = Date.now() - agoMs - (index % 7) * 1_000;
      return { id: createEventIds()(at), appId: 1, typeId: 1 + (index % 2), at, payload: `{"n": ${index}}` };
    });
    // Partitions are made from yesterday on, and the day may just have begun.
    const oldest = Date.now() - agoMs - 7_000;
    await ENGINES[this.storage.engine].createPartitions(this.sql, { from: oldest, until: Date.now() });
    const end = withResolvers<boolean>();
    const stored = withResolvers<void>();
    // As writers do it: on the node of the app.
    const pool = await ENGINES[this.storage.engine].routes(this.sql).at(1);
    const done = pool
      .begin(async (tx) => {
        if (this.storage.engine === 'citus') await storeOnNode(tx, rows);
        else await storeRows(tx, this.storage.engine, rows);
        stored.resolve();
        if (!(await end.promise)) throw new Error('rolled back');
      })
      .catch((error: unknown) => {
        stored.reject(error);
        if (!String(error).includes('rolled back')) throw error;
      });
    await Promise.race([stored.promise, done]);
    const finish = async (isCommitted: boolean): Promise<void> => {
      end.resolve(isCommitted);
      await done;
    };
    return { ids: rows.map(({ id }) => id), commit: () => finish(true), rollback: () => finish(false) };
  }
}

/** In a cluster rows and their deltas are two statements. */
async function storeOnNode(tx: Transaction, rows: readonly EventRow[]): Promise<void> {
  const given = tx`unnest(
      ${rows.map(({ id }) => id)}::uuid[], ${rows.map(({ appId }) => appId)}::integer[],
      ${rows.map(({ typeId }) => typeId)}::integer[],
      ${rows.map(({ at }) => new Date(at).toISOString())}::timestamptz[],
      ${rows.map(({ payload }) => payload)}::text[]) AS given (id, app_id, type_id, created_at, payload)`;
  await tx`
    INSERT INTO events (id, app_id, type_id, created_at, payload)
    SELECT id, app_id, type_id, created_at, payload::json FROM ${given}`;
  await tx`
    INSERT INTO count_deltas (app_id, type_id, bucket, count)
    SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), count(*) FROM ${given} GROUP BY 1, 2, 3`;
}

function withResolvers<T>(): {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (error: unknown) => void;
} {
  let [resolve, reject]: [(value: T) => void, (error: unknown) => void] = [() => undefined, () => undefined];
  const promise = new Promise<T>((...given) => {
    [resolve, reject] = given;
  });
  return { promise, resolve, reject };
}

/** Reads with leases until nothing comes, and acknowledges all of it. */
export async function drain(
  { store }: ConsumerWorld,
  name: string,
  limit = 1_000,
): Promise<CommittedEvent[]> {
  const found: CommittedEvent[] = [];
  for (;;) {
    const lease = await store.lease(1, name, 30_000);
    if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error(JSON.stringify(lease));
    const batch = await store.read(1, lease.position, { limit, maxBytes: 10_000_000 });
    found.push(...batch.events);
    await store.granted(1, name, lease.epoch, { position: batch.position, keeps: true });
    const outcome = await store.acknowledge(1, name, {
      epoch: lease.epoch,
      position: batch.position,
      events: batch.events.length,
    });
    if (outcome !== 'done') throw new Error(outcome);
    if (!batch.hasMore && batch.events.length === 0) return found;
    if (!batch.hasMore && samePosition(batch.position, lease.position)) return found;
  }
}

function samePosition(a: FeedPosition, b: FeedPosition): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

export const idsOf = (events: readonly { readonly id: string }[]): string[] => events.map(({ id }) => id);
export const sorted = (ids: readonly string[]): string[] => [...ids].sort();
export { HOUR_MS };

/** Ways to another database, which is empty. */
export const MOVES = {
  restore: async ({ database, storage }: ConsumerWorld, target: TestDatabase): Promise<void> => {
    const client = await openCopyClient(database.address, 'test backup');
    const bytes = writeBackup({
      ...{ storage, client, database: database.sql.pool.database, now: Date.now() },
      onProgress: () => undefined,
    });
    const parts: Buffer[] = [];
    for await (const part of bytes) parts.push(part);
    await client.end();
    const into = await openCopyClient(target.address, 'test restore');
    await restoreBackup({
      ...{ storage: await openStorage(target.sql), client: into, sql: target.sql },
      reader: new BackupReader(Readable.from(parts)),
      onProgress: () => undefined,
    });
    await into.end();
  },
  switch: async ({ database, sql }: ConsumerWorld, target: TestDatabase): Promise<void> => {
    await readInstallation(sql);
    await copyDatabase({ from: database.address, to: target.address, onProgress: () => undefined }, true);
  },
};
