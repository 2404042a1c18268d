/**
 * Events that lie where nobody reads them. They were acknowledged by a server without the library of its engine: TimescaleDB then
 * leaves rows in the root table, Citus in the table of a node that stands for its shards. Later releases refuse such a server
 * (database/fitness.ts).
 */
import { OperatorError, Rejection } from '../../errors.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import { BULK_TIMEOUTS } from '../database/copy-connection.ts';
import { ByNode, type Nodes, partsByNode } from '../database/nodes.ts';
import { type Retention, readRules } from '../retention.ts';
import { type AcceptedEvent, type EventRow, isKeyed } from '../write/accepted-event.ts';
import type { EngineWrites } from '../write/engine-writes.ts';
import { EventWriter } from '../write/event-writer.ts';
import { NO_LOG } from '../write/group-commit.ts';

/** The stray rows of one server. */
export interface StrayCount {
  /** Host and port of a node of a cluster; null for the server of the address. */
  readonly server: string | null;
  readonly rows: number;
}

/** A table of stray rows that can be read and emptied. */
export interface StraySource {
  readonly sql: Sql;
  /** As text of SQL, after FROM. */
  readonly table: string;
  /** Called when it is empty. */
  end(): Promise<void>;
  /** Called in any case. */
  close(): Promise<void>;
}

/** How an engine finds stray rows. */
export interface StrayRows {
  /** Counts them; servers without any are left out. */
  find(sql: Sql): Promise<readonly StrayCount[]>;
  /** Brings them where they can be moved from. It may be interrupted and run again. */
  gather(sql: Sql): Promise<readonly StraySource[]>;
}

export interface RecoveredRows {
  /** Now readable and counted, each once. */
  readonly recovered: number;
  /** Rows of apps that are deleted, or before the retention boundary. */
  readonly dropped: number;
}

interface StrayRow extends EventRow {
  readonly place: string;
}

/** Rows of a transaction. */
const BATCH = 1_000;

export interface RecoverOptions {
  /** A pool of one connection. */
  readonly sql: Sql;
  readonly nodes: Nodes;
  readonly writes: EngineWrites;
  readonly onBatch: (rows: RecoveredRows) => void;
}

/**
 * Moves the rows of sources to where they are read, with their counts. The rows of a batch are stored as those of an interrupted
 * commit, the missing ones alone, and then leave their source: whenever it ends, the next call goes on, and stores none twice.
 * @throws OperatorError where the database does not take an event
 */
export async function recoverRows(
  sources: readonly StraySource[],
  { sql, nodes, writes, onBatch }: RecoverOptions,
): Promise<RecoveredRows> {
  const timeouts = {
    ...BULK_TIMEOUTS,
    unreachableMs: 60_000,
    blockedMs: BULK_TIMEOUTS.answerMs,
    retryMs: BULK_TIMEOUTS.answerMs,
  };
  const options = { engine: writes, connections: 1, name: 'tidemark recover-rows', timeouts, past: true };
  const writers = new ByNode(
    nodes,
    (node) => new EventWriter({ ...options, node, log: NO_LOG, now: () => performance.now() }),
  );
  await nodes.ready();
  const write = async (events: readonly AcceptedEvent[]): Promise<void> => {
    for (const { node, units } of partsByNode(nodes, events)) {
      const refusal = (await writers.at(node).write(units, true)).find((one) => one instanceof Rejection);
      if (refusal !== undefined)
        throw new OperatorError(`the database does not take the events: ${refusal.details}`);
    }
  };
  const sum = { recovered: 0, dropped: 0 };
  try {
    for (const source of sources) {
      for (;;) {
        const batch = await moveBatch(sql, source, write);
        if (batch === null) break;
        sum.recovered += batch.recovered;
        sum.dropped += batch.dropped;
        onBatch(sum);
      }
      await source.end();
    }
    return sum;
  } finally {
    await Promise.all(writers.all.map((writer) => writer.close()));
    for (const source of sources) await source.close();
  }
}

/** Stores the missing ones of events. @throws OperatorError where the database does not take one */
type Write = (events: readonly AcceptedEvent[]) => Promise<void>;

/** @returns null if the source is empty */
async function moveBatch(sql: Sql, source: StraySource, write: Write): Promise<RecoveredRows | null> {
  return await sql.begin('isolation level read committed', async (tx) => {
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark recover'))`;
    return source.sql === sql
      ? await move(tx, tx, source, write)
      : await source.sql.begin('isolation level read committed', (there) => move(tx, there, source, write));
  });
}

/**
 * @param tx    on the server of the apps, which stay until its end
 * @param there on that of the source
 */
async function move(
  tx: Transaction,
  there: Transaction,
  { table }: StraySource,
  write: Write,
): Promise<RecoveredRows | null> {
  const rows = await there.unsafe<StrayRow[]>(`
    SELECT ctid::text AS place, id::text, app_id AS "appId", type_id AS "typeId",
           (extract(epoch FROM created_at) * 1000)::float8 AS "createdAt", payload::text
      FROM ${table} LIMIT ${BATCH}`);
  if (rows.length === 0) return null;
  const apps = await tx<{ id: number }[]>`
    SELECT id FROM apps WHERE id = ANY(${rows.map(({ appId }) => appId)}) FOR KEY SHARE`;
  const retentions = new Map<number, Retention>();
  for (const { id } of apps) retentions.set(id, await readRules(tx, id));
  const kept = rows
    .filter(({ appId, typeId, createdAt }) => {
      const retention = retentions.get(appId);
      return retention !== undefined && createdAt >= retention.boundaryOf(typeId);
    })
    .map((row): AcceptedEvent => ({ ...row, source: SOURCE }));
  for (const part of [kept.filter(isKeyed), kept.filter((event) => !isKeyed(event))]) {
    if (part.length > 0) await write(part);
  }
  await there.unsafe(`DELETE FROM ${table} WHERE ctid = ANY($1::text[]::tid[])`, [
    rows.map(({ place }) => place),
  ]);
  return { recovered: kept.length, dropped: rows.length - kept.length };
}

/** Nothing asks for it: there is no journal behind the writer. */
const SOURCE = { appId: '', typeId: '', typeName: '' };
