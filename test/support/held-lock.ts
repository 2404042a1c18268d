/** A lock on a table, held by a session of its own until it is released. */
import type { Sql } from '../../src/storage/database/connect.ts';

export interface HeldLock {
  release(): Promise<void>;
}

/**
 * @param table as it is written in SQL
 * @param mode  such as SHARE
 */
export async function heldLock(sql: Sql, table: string, mode: string): Promise<HeldLock> {
  let letGo = (): void => undefined;
  let onHeld = (): void => undefined;
  const released = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const held = new Promise<void>((resolve) => {
    onHeld = resolve;
  });
  const done = sql.begin(async (tx) => {
    await tx.unsafe(`LOCK TABLE ${table} IN ${mode} MODE`);
    onHeld();
    await released;
  });
  await Promise.race([held, done]);
  return {
    release: async () => {
      letGo();
      await done;
    },
  };
}
