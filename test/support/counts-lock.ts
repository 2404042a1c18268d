/** The lock of counts of a database, in the hands of others. */
import { connect, type DatabaseAddress, type Sql } from '../../src/storage/database/connect.ts';
import { until } from './service.ts';

const LOCK = `hashtext('tidemark counts')`;

export interface LockHolders {
  readonly stop: () => Promise<void>;
}

/** Whether a session waits for the lock. @param forMs at least so long */
export async function isWaitedFor(sql: Sql, forMs = 0): Promise<boolean> {
  const waiting = await sql.unsafe(`
    SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
     WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
       AND objid = (${LOCK}::bigint & 4294967295)::oid AND waitstart <= clock_timestamp() - interval '${forMs} ms'`);
  return waiting.length > 0;
}

/** Sessions that hold the lock one after the other, each until another one waits for it, as parallel imports do. */
export async function holdersInTurns(address: DatabaseAddress): Promise<LockHolders> {
  const observer = connect(address, { connections: 1, name: 'test observer' });
  let stopped = false;
  const hold = async (): Promise<void> => {
    const holder = connect(address, { connections: 1, name: 'test holder' });
    while (!stopped) {
      await holder.begin(async (tx) => {
        await tx.unsafe(`SELECT pg_advisory_xact_lock(${LOCK})`);
        await until(async () => stopped || (await isWaitedFor(observer)), 'another one waits for the lock');
      });
    }
    await holder.end();
  };
  const holding = [hold(), hold()];
  const isFree = async (): Promise<boolean> => {
    const [lock] = await observer.unsafe<{ isFree: boolean }[]>(
      `SELECT pg_try_advisory_xact_lock(${LOCK}) AS "isFree"`,
    );
    return lock?.isFree !== false;
  };
  await until(async () => !(await isFree()), 'the lock is held');
  return {
    stop: async () => {
      stopped = true;
      await Promise.all(holding);
      await observer.end();
    },
  };
}
