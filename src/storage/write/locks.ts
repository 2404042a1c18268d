/** Parts of SQL on `pg_locks`: which locks of other sessions keep rows from being written. */

/** Locks of other sessions in this database, granted or requested: both come before one that is requested now. */
export const OF_OTHERS = `
  locktype = 'relation' AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

/** The modes that conflict with ROW EXCLUSIVE (PostgreSQL documentation, 13.3). */
export const AGAINST_ROWS = "'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'";
