/** A batch of events into the events table: by COPY, and what is done when that fails. */
import pg from 'pg';
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import { type AcceptedEvent, DAY_MS, dayOf } from '../../ingest/commit-buffer.ts';
import { Histogram, SECONDS_BOUNDS } from '../../metrics/histogram.ts';
import type { DatabaseAddress } from '../connect.ts';
import { ConnectionLost, type ConnectionTimeouts, CopyConnection, copyField } from './copy-connection.ts';

/** For each event of a batch, in order: null once it is durable, or why it is not. */
export type Outcomes = readonly (Rejection | null)[];

/** What a failure of a batch means. */
export type Failure =
  /** Worth another try as it is. */
  | 'transient'
  /** No partition holds one of the days: make it, then try again. */
  | 'missing-partition'
  /** A row is already there: an earlier try was committed after all. */
  | 'duplicate'
  /** One event of the batch can not be stored, whoever it is: halve the batch. */
  | 'data'
  /** The connection is gone, and with it the knowledge whether the batch was committed. */
  | 'lost'
  /** PostgreSQL could not be reached, or takes no writes now: nothing was stored. */
  | 'unreachable'
  /** Nothing that a retry could mend. */
  | 'fault';

/** SQLSTATE, or how it begins → what to do (PostgreSQL documentation, appendix A). */
const FAILURES: Readonly<Record<string, Failure>> = {
  '22': 'data', // data exception
  '23': 'data', // integrity constraint violation
  '23505': 'duplicate', // unique_violation
  '25006': 'unreachable', // read_only_sql_transaction: a failover is under way
  '40': 'transient', // transaction rollback: serialization failure, deadlock
  '53': 'unreachable', // insufficient resources: disk full, out of memory, too many connections
  '54': 'data', // program limit exceeded
  '55006': 'transient', // object_in_use
  '55P03': 'transient', // lock_not_available
  '57': 'transient', // operator intervention: cancel, lock timeout
  '57P': 'unreachable', // shutting down, starting up
  '58': 'unreachable', // system error: an I/O error
};

/** What a failed statement means. */
export function classify(error: unknown): Failure {
  if (error instanceof ConnectionLost) return error.sent ? 'lost' : 'unreachable';
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return 'fault';
  // The same SQLSTATE as a CHECK constraint's, but no constraint is named.
  if (error.code === '23514' && error.constraint === undefined) return 'missing-partition';
  const { code } = error;
  return FAILURES[code] ?? FAILURES[code.slice(0, 3)] ?? FAILURES[code.slice(0, 2)] ?? 'fault';
}

/** Stores each event that is not there yet: the way for events of which nobody knows whether they were committed. */
export const INSERT_MISSING = `
  INSERT INTO events (id, app_id, type_id, created_at, payload)
  SELECT id, app_id, type_id, created_at, payload::json
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::timestamptz[], $5::text[])
      AS batch (id, app_id, type_id, created_at, payload)
  ON CONFLICT DO NOTHING`;

const CREATE_PARTITIONS = `
  SELECT create_events_partition(day) FROM unnest($1::date[]) AS batch (day) GROUP BY day ORDER BY day`;
/** Partitions made in one transaction, each of which costs some five locks until its end. */
const PARTITIONS_AT_ONCE = 32;

/** How long a batch is tried, in milliseconds. */
export interface WriterTimeouts extends ConnectionTimeouts {
  /** While PostgreSQL can not be reached or takes no writes, and nothing of the batch is stored. */
  readonly unreachableMs: number;
  /** After any other failure. */
  readonly retryMs: number;
}

/** Where a batch that is given up is refused: an outage is told within a second, a commit in doubt outlasts a restart. */
export const REFUSING: WriterTimeouts = {
  connectMs: 700,
  answerMs: 10_000,
  unreachableMs: 700,
  retryMs: 12_000,
};
/** Where a batch that is given up goes to the journal, which costs nothing: what is in doubt is settled at its replay. */
export const JOURNALING: WriterTimeouts = {
  connectMs: 1_000,
  answerMs: 1_500,
  unreachableMs: 100,
  retryMs: 300,
};
/** For a replay, which nobody waits for. */
export const REPLAYING: WriterTimeouts = {
  connectMs: 1_000,
  // Less than a stop may take.
  answerMs: 10_000,
  unreachableMs: 0,
  retryMs: 1_000,
};

export const BACKOFF_MS = { first: 20, most: 500 } as const;

export const UNAVAILABLE = new Rejection('unavailable', 'The event could not be stored; try again shortly.');
export const OUTCOME_UNKNOWN = new Rejection(
  'outcomeUnknown',
  'The connection to the database was lost during the commit: the event may be stored.',
);
export const POISON = new Rejection('invalidBody', 'The database refuses this event.');
export const FAULT = new Rejection('internalError', 'The event could not be stored; the log has the cause.');

export interface EventWriterOptions {
  readonly address: DatabaseAddress;
  readonly connections: number;
  /** Shown in pg_stat_activity. */
  readonly name?: string;
  /** {@link REFUSING} unless given. */
  readonly timeouts?: WriterTimeouts;
  /**
   * Asked for a batch that the database could not take in time. Never rejects.
   * @param refusal what its events are told otherwise
   */
  readonly giveUp?: (batch: readonly AcceptedEvent[], refusal: Rejection) => Promise<Outcomes>;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Up to the largest batch that the commit buffer makes. */
const BATCH_BOUNDS: readonly number[] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000];

/** What a batch's tries have in common. */
interface Attempt {
  readonly startedAt: number;
  /** A commit was sent and its answer lost: from then on only missing events are inserted. */
  uncertain: boolean;
  retries: number;
}

export class EventWriter {
  /** Events of each batch. */
  readonly batchEvents = new Histogram(BATCH_BOUNDS);
  /** Seconds from a batch's arrival to its outcome, retries included. */
  readonly batchSeconds = new Histogram(SECONDS_BOUNDS);
  readonly #options: EventWriterOptions;
  readonly #timeouts: WriterTimeouts;
  readonly #idle: CopyConnection[];
  readonly #all: readonly CopyConnection[];
  #retries = 0;

  constructor(options: EventWriterOptions) {
    this.#options = options;
    const { name = 'tidemark writer', timeouts = REFUSING } = options;
    this.#timeouts = timeouts;
    this.#all = Array.from(
      { length: options.connections },
      (_, index) => new CopyConnection(options.address, `${name} ${index + 1}`, timeouts),
    );
    this.#idle = [...this.#all];
  }

  /** Tries after a batch's first one. */
  get retries(): number {
    return this.#retries;
  }

  /**
   * Commits a batch; at most `connections` calls may be under way at once.
   * @param uncertain true where some of it may be stored already: then only what is missing is inserted
   */
  async write(batch: readonly AcceptedEvent[], uncertain = false): Promise<Outcomes> {
    const connection = this.#idle.pop();
    if (connection === undefined) throw new Error('More batches at once than connections.');
    const startedAt = this.#options.now();
    try {
      return await this.#store(connection, batch, { startedAt, uncertain, retries: 0 });
    } catch (error) {
      // Nothing is known to throw here. If it does, nobody may be told that the batch is durable, or that it is not.
      this.#options.log.error({ err: error, events: batch.length }, 'A batch failed in an unforeseen way');
      return batch.map(() => OUTCOME_UNKNOWN);
    } finally {
      this.#idle.push(connection);
      this.batchEvents.observe(batch.length);
      this.batchSeconds.observe((this.#options.now() - startedAt) / 1_000);
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((connection) => connection.close()));
  }

  async #store(
    connection: CopyConnection,
    batch: readonly AcceptedEvent[],
    attempt: Attempt,
  ): Promise<Outcomes> {
    for (;;) {
      try {
        if (attempt.uncertain) await connection.query(INSERT_MISSING, columns(batch), sizeOf(batch));
        else await connection.copy(copyRows(batch));
        return batch.map(() => null);
      } catch (error) {
        const outcomes = await this.#recover(connection, batch, attempt, error);
        if (outcomes !== null) return outcomes;
      }
    }
  }

  /** Prepares the next try and returns null, or returns the end of this batch. */
  async #recover(
    connection: CopyConnection,
    batch: readonly AcceptedEvent[],
    attempt: Attempt,
    error: unknown,
  ): Promise<Outcomes | null> {
    const failure = classify(error);
    const context = { err: error, events: batch.length, failure };
    if (failure === 'fault') {
      this.#options.log.error(context, 'A batch could not be stored');
      return batch.map(() => (attempt.uncertain ? OUTCOME_UNKNOWN : FAULT));
    }
    if (failure === 'data') return this.#bisect(connection, batch, attempt, context);
    if (failure === 'lost' || failure === 'duplicate') attempt.uncertain = true;
    if (this.#isOver(attempt, failure)) {
      this.#options.log.warn(context, 'A batch was given up');
      const refusal = attempt.uncertain ? OUTCOME_UNKNOWN : UNAVAILABLE;
      return (await this.#options.giveUp?.(batch, refusal)) ?? batch.map(() => refusal);
    }
    if (attempt.retries === 0) this.#options.log.warn(context, 'A batch is tried again');
    if (failure === 'missing-partition') await this.#createPartitions(connection, batch);
    else await pause(Math.min(BACKOFF_MS.first * 2 ** attempt.retries, BACKOFF_MS.most));
    attempt.retries += 1;
    this.#retries += 1;
    return null;
  }

  #isOver(attempt: Attempt, failure: Failure): boolean {
    return this.#options.now() - attempt.startedAt >= timeoutMs(this.#timeouts, failure, attempt.uncertain);
  }

  /** Halves the batch until the event that can not be stored stands alone; its neighbours are stored. */
  async #bisect(
    connection: CopyConnection,
    batch: readonly AcceptedEvent[],
    attempt: Attempt,
    context: object,
  ): Promise<Outcomes> {
    if (batch.length === 1) {
      this.#options.log.error({ ...context, eventId: batch[0]?.id }, 'The database refuses an event');
      return [POISON];
    }
    const middle = batch.length >> 1;
    const first = await this.#store(connection, batch.slice(0, middle), { ...attempt });
    const second = await this.#store(connection, batch.slice(middle), { ...attempt });
    return [...first, ...second];
  }

  async #createPartitions(connection: CopyConnection, batch: readonly AcceptedEvent[]): Promise<void> {
    try {
      await createPartitions(connection, batch);
    } catch (error) {
      // The batch's next try fails again and decides; here it only must not be lost.
      this.#options.log.warn({ err: error }, 'A partition could not be made');
    }
  }
}

/** How long a batch is tried again after a failure, in milliseconds since its first try. */
export function timeoutMs(
  { unreachableMs, retryMs }: WriterTimeouts,
  failure: Failure,
  uncertain: boolean,
): number {
  return failure === 'unreachable' && !uncertain ? unreachableMs : retryMs;
}

/** Makes the partitions of the events' days. */
export async function createPartitions(
  connection: CopyConnection,
  batch: readonly AcceptedEvent[],
): Promise<void> {
  const days = [...new Set(batch.map((event) => timestamp(event.createdAt).slice(0, 10)))];
  for (let from = 0; from < days.length; from += PARTITIONS_AT_ONCE)
    await connection.query(CREATE_PARTITIONS, [days.slice(from, from + PARTITIONS_AT_ONCE)]);
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** The numbers below a thousand, in three digits; and those below sixty, in two. */
const THREE_DIGITS = Array.from({ length: 1_000 }, (_, number) => String(number).padStart(3, '0'));
const TWO_DIGITS = THREE_DIGITS.slice(0, 60).map((text) => text.slice(1));

let lastTime = Number.NaN;
let lastText = '';
let lastDay = Number.NaN;
let lastDate = '';

/**
 * Milliseconds to ISO 8601 in UTC, as Date.toISOString. Neighbouring events share their millisecond, and those of a batch
 * that is dated back their day, so the last of both is kept: a Date for each would cost four times as much.
 */
export function timestamp(time: number): string {
  if (time === lastTime) return lastText;
  const day = dayOf(time);
  if (day !== lastDay) {
    lastDate = new Date(day * DAY_MS).toISOString().slice(0, -'00:00:00.000Z'.length);
    lastDay = day;
  }
  const ms = time - day * DAY_MS;
  const hour = TWO_DIGITS[Math.floor(ms / 3_600_000)];
  const minute = TWO_DIGITS[Math.floor(ms / 60_000) % 60];
  const second = TWO_DIGITS[Math.floor(ms / 1_000) % 60];
  lastText = `${lastDate}${hour}:${minute}:${second}.${THREE_DIGITS[ms % 1_000]}Z`;
  lastTime = time;
  return lastText;
}

function copyRows(batch: readonly AcceptedEvent[]): string {
  let rows = '';
  for (const event of batch) {
    const { id, appId, typeId, createdAt, payload } = event;
    rows += `${id}\t${appId}\t${typeId}\t${timestamp(createdAt)}\t${copyField(payload)}\n`;
  }
  return rows;
}

/** About as many bytes as the batch's payloads have. */
export function sizeOf(batch: readonly AcceptedEvent[]): number {
  return batch.reduce((sum, { payload }) => sum + payload.length, 0);
}

/** What INSERT_MISSING takes. */
export function columns(batch: readonly AcceptedEvent[]): readonly (readonly unknown[])[] {
  return [
    batch.map((event) => event.id),
    batch.map((event) => event.appId),
    batch.map((event) => event.typeId),
    batch.map((event) => timestamp(event.createdAt)),
    batch.map((event) => event.payload),
  ];
}
