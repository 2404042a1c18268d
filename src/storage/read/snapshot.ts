/** Reads in one snapshot, so that totals and rows match whatever is committed concurrently. */
import type postgres from 'postgres';
import type { Path } from '../../base/turns.ts';
import { Once, type Snapshot, StaleBuckets } from '../counts/stale.ts';
import { ArchiveUnavailable } from '../database/archive-source.ts';
import type { Fragment, Sql, Transaction, Transactions } from '../database/connect.ts';
import type { SnapshotRules } from '../database/database.ts';
import { ArchivedRows, GroupsNeeded, HeldGroups } from './archived-rows.ts';

/** The table that readers lock in ACCESS SHARE mode while their snapshot is in use. */
export const SNAPSHOT_LOCK = 'snapshot_lock';

/**
 * Runs reads of events and counts in one snapshot. The lock precedes the snapshot, which the first query takes: a statement
 * that would remove rows from older snapshots either commits before it or waits until the reads have ended.
 */
export async function readSnapshot<T>(sql: Transactions, read: (tx: Snapshot) => Promise<T>): Promise<T> {
  return await beginSnapshot(sql, { appId: null, asksForPlans: false }, read);
}

type AppReads = <T>(sql: Transactions, appId: number, read: (tx: Snapshot) => Promise<T>) => Promise<T>;

/** A snapshot for reads of one app's counts, which do not look at the pending deltas of others. */
export const readAppSnapshot: AppReads = (sql, appId, read) =>
  beginSnapshot(sql, { appId, asksForPlans: false }, read);

/**
 * A snapshot for reads that find what they need in the counts, each statement of which costs more to plan than to run:
 * {@link withKeptPlan} keeps the plans of those that ask for it.
 */
export const readCounts: AppReads = (sql, appId, read) =>
  beginSnapshot(sql, { appId, asksForPlans: true }, read);

/**
 * Runs several reads in one snapshot.
 * @param read  gets what stands for a pool: reads with it see this snapshot
 * @param appId internal id of the only app that they read, mostly its counts; null: of several apps
 */
export async function inOneSnapshot<T>(
  sql: Sql,
  read: (snapshot: Sql) => Promise<T>,
  appId: number | null = null,
): Promise<T> {
  // Reads of a snapshot ask a pool for nothing but statements and snapshots, and these are answered above.
  return await beginSnapshot(sql, { appId, asksForPlans: appId !== null }, (tx) =>
    read(tx as unknown as Sql),
  );
}

function isOpen(sql: Transactions | Snapshot): sql is Snapshot {
  return 'stale' in sql;
}

/**
 * Runs a statement on counts with a plan that is made for any times, which a connection keeps until statistics change; every other
 * statement is planned with its values. Only counts without partitions can do with such a plan, and only where the best plan does not
 * depend on the times. It always goes by an index: for all that it knows, a table may have grown, or be full of dead rows, since its
 * statistics were made.
 */
export async function withKeptPlan<T extends readonly postgres.MaybeRow[]>(
  tx: Snapshot,
  statement: postgres.PendingQuery<T>,
): Promise<T> {
  if (!tx.keepsPlans) return await statement;
  const kept = tx.once.get('kept plans', () => new KeptPlans(tx));
  return await new Promise<T>((resolve, reject) => {
    kept.send(() => void statement.then(resolve, reject));
  });
}

/** Sends the statements of a tick of the event loop that ask for kept plans together: the connection changes to these once, and back. */
class KeptPlans {
  readonly #tx: Transaction;
  #waiting: (() => void)[] = [];

  constructor(tx: Transaction) {
    this.#tx = tx;
  }

  /** @param send sends a statement */
  send(send: () => void): void {
    this.#waiting.push(send);
    if (this.#waiting.length === 1) process.nextTick(() => this.#sendAll());
  }

  #sendAll(): void {
    const tx = this.#tx;
    const statements = this.#waiting;
    this.#waiting = [];
    const changed = tx`SELECT ${keptPlans(tx)}`.execute();
    for (const send of statements) send();
    // Where they fail, so do the statements, or the end of the transaction.
    Promise.all([changed, tx`SELECT ${ownPlans(tx)}`]).catch(() => undefined);
  }
}

const keptPlans = (tx: Transaction): Fragment =>
  tx`set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)`;
/** As sessions begin. */
const ownPlans = (tx: Transaction): Fragment =>
  tx`set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true)`;

/** @param appId whose counts are read; null: those of several apps */
async function beginSnapshot<T>(
  sql: Transactions,
  { appId, asksForPlans }: { readonly appId: number | null; readonly asksForPlans: boolean },
  read: (tx: Snapshot) => Promise<T>,
): Promise<T> {
  if (isOpen(sql)) return await read(sql);
  const held = sql.pool.archive === null ? null : new HeldGroups();
  const failures: ArchiveFailures = { missing: 0 };
  for (;;) {
    try {
      return await beginOnce(sql, { appId, asksForPlans, held }, read);
    } catch (error) {
      if (!(error instanceof GroupsNeeded) || held === null) throw error;
      await readGroups(sql, error, held, failures);
    }
  }
}

async function beginOnce<T>(
  sql: Transactions,
  {
    appId,
    asksForPlans,
    held,
  }: { readonly appId: number | null; readonly asksForPlans: boolean; readonly held: HeldGroups | null },
  read: (tx: Snapshot) => Promise<T>,
): Promise<T> {
  const { engine, archive } = sql.pool.database;
  const rules = engine.snapshots;
  const keepsPlans = rules.keepsPlans && asksForPlans;
  return await sql.begin('isolation level repeatable read read only', async (began) => {
    const tx = Object.assign(began, {
      stale: new StaleBuckets(began, rules.countsAreExact),
      archived: new ArchivedRows(began, held, sql.pool.archive?.isAdmitted() === false ? null : archive),
      turns: sql.pool.archive?.turns,
      keepsPlans,
      unpacksDeltas: rules.groupsDeltas && appId === null,
      once: new Once(),
    });
    if (!rules.locks) return await read(tx);
    // Not awaited, so that it is sent together with the first query.
    const locked = tx`LOCK TABLE ${tx(SNAPSHOT_LOCK)} IN ACCESS SHARE MODE`.execute();
    const prepared = tellViews(tx, rules, appId).execute();
    const [value] = await Promise.all([read(tx), locked, prepared]);
    return value;
  });
}

interface ArchiveFailures {
  /** How often an object was not there. */
  missing: number;
}

/** An object may be gone because its day was written again: a new snapshot names another one. If that one is gone, too, it is no such case. */
const MOST_MISSING = 3;
const NO_ARCHIVE =
  'Events of this time are in an archive that this server does not know. Its operator has to set ARCHIVE_URL.';

/** Reads what a read needs of the archive, with no snapshot and no connection of its own meanwhile. @throws ArchiveUnavailable */
async function readGroups(
  sql: Transactions,
  { groups }: GroupsNeeded,
  held: HeldGroups,
  failures: ArchiveFailures,
): Promise<void> {
  const { database, waiter, archive: wait } = sql.pool;
  const { archive } = database;
  if (archive === null) throw new ArchiveUnavailable(NO_ARCHIVE);
  const ids = new Set(groups.flatMap(({ group }) => [...group.types.keys()]));
  const types = await sql.begin(
    'isolation level read committed read only',
    (tx) => tx<{ id: number; typeId: string }[]>`
      SELECT id, public_id AS "typeId" FROM type_names
       WHERE app_id = ANY(${[...new Set(groups.map(({ appId }) => appId))]}::integer[]) AND id = ANY(${[...ids]}::integer[])`,
  );
  const typeIds = new Map(types.map(({ id, typeId }) => [typeId, id]));
  const reader = { waiter, turns: wait?.turns ?? NOBODY };
  const readAll = async (): Promise<void> => {
    await Promise.all(
      groups.map(async (needed) => held.add(needed, await archive.read(needed.group, typeIds, reader))),
    );
  };
  try {
    await (wait?.outside(readAll) ?? readAll());
  } catch (error) {
    if (!(error instanceof ArchiveUnavailable) || !error.isMissing) throw error;
    failures.missing += 1;
    if (failures.missing > MOST_MISSING) throw error;
  }
}

/** The path of commands and alerts. */
const NOBODY: Path = ['', 0];

/**
 * Tells the views of counts by settings of the transaction which deltas are folded in this snapshot (sql/0002), so that they need not
 * be looked at; and those of an app that share rows with others, so that no statement need unpack them again.
 */
function tellViews(tx: Transaction, { groupsDeltas }: SnapshotRules, appId: number | null): Fragment {
  return groupsDeltas
    ? tx`SELECT tell_views(${appId}::integer)`
    : tx`SELECT set_config('tidemark.pending_from', last_fold.pending_from::text, true) FROM last_fold`;
}
