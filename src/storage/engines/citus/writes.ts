/** What the writer adds to the counts in a cluster: deltas, as on PostgreSQL, in the transaction on the node of the rows. */
import { errorCode } from '../../database/connect.ts';
import type { EngineWrites } from '../../write/engine-writes.ts';
import { deltaRows, writes as postgres } from '../postgres/writes.ts';

/** internal_error: a node reports an error of another node during COPY with this code. */
const INTERNAL_ERROR = 'XX000';

// The counts themselves are changed by the node that has them alone.
const { countDirectly: _, ...onOneServer } = postgres;

export const writes: EngineWrites = {
  ...onOneServer,
  // A row that holds the deltas of several apps would belong to the shards of all of them.
  changesOf: deltaRows,
  changeTables: ['count_deltas'],
  // Each node numbers transactions by itself. A restore fills an empty database.
  copiedNow: 'true',
  singleNodeStatements: true,
  // Any node is asked for it, and the coordinator does it.
  createPartitions: 'SELECT make_room($1::date[])',
  hidesFailure: (error) => errorCode(error) === INTERNAL_ERROR,
};
