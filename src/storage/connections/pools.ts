/**
 * What connections to the database are for, and how long each of them waits for an answer: the one table of deadlines.
 * A statement that takes too long ends at the server, so its connection stays usable. Only where the server does not say
 * anything either, the connection counts as dead and is replaced.
 */

export interface Deadlines {
  /** `statement_timeout` of the session in milliseconds; 0: a statement may take as long as it takes. */
  readonly statementMs: number;
  /** Milliseconds without an answer after which a connection is replaced; a little more than {@link statementMs}. */
  readonly answerMs: number;
  /** `lock_timeout` of the session in milliseconds, where a lock must not keep its connection from others. */
  readonly lockMs?: number;
}

const HOUR_MS = 3_600_000;

/** By the value of the metrics' label `pool`. */
export const DEADLINES = {
  /** Tokens, types and keys, for writers and for readers. Their requests wait less. */
  lookups: { statementMs: 4_500, answerMs: 5_000, lockMs: 1_000 },
  /** Pages of events: as long as a request may take by default. */
  reads: { statementMs: 25_000, answerMs: 26_000 },
  dashboard: { statementMs: 25_000, answerMs: 26_000 },
  live: { statementMs: 8_000, answerMs: 9_000 },
  /** Change notifications. */
  listen: { statementMs: 4_500, answerMs: 5_000 },
  /** Folding after a long outage, and creating an index, take minutes; the liveness of the connection is asked for apart. */
  maintenance: { statementMs: HOUR_MS, answerMs: HOUR_MS + 5_000 },
  /** Compression of chunks takes as long as it takes. */
  'slow maintenance': { statementMs: 0, answerMs: 24 * HOUR_MS },
  /** Commit groups where a group that is given up is refused. Large groups get longer (bytes of their rows). */
  write: { statementMs: 9_000, answerMs: 10_000 },
  /** The same where it goes to the journal. */
  'journaled write': { statementMs: 1_200, answerMs: 1_500 },
  replay: { statementMs: 9_000, answerMs: 10_000 },
  /** Asks whether the database is there. */
  probe: { statementMs: 600, answerMs: 700 },
} as const satisfies Readonly<Record<string, Deadlines>>;

export type PoolKind = keyof typeof DEADLINES;

/** The options of a session's start that set its timeouts; empty where it has none. A pooler passes them on or ignores them. */
export function sessionTimeouts(kind: PoolKind): string {
  const { statementMs, lockMs }: Deadlines = DEADLINES[kind];
  const timeouts = [
    statementMs === 0 ? '' : `-c statement_timeout=${statementMs}`,
    lockMs === undefined ? '' : `-c lock_timeout=${lockMs}`,
  ];
  return timeouts.join(' ').trim();
}
