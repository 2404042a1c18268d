/**
 * Writes events of past days. The partition of a day may be locked (by an archive job, or while TimescaleDB compresses it),
 * detached or impossible to make, while those of all other days take events. So each day has a state of its own: events of a
 * closed day are refused at once until it is retried, and events of other days do not wait for it.
 */
import type { Logger } from 'pino';
import { Rejection } from '../../errors.ts';
import { ByNode, type DataNode, type Nodes } from '../../storage/database/nodes.ts';
import { type AcceptedEvent, dateOf, dayOf, startOfDay } from '../../storage/write/accepted-event.ts';
import type { EngineWrites } from '../../storage/write/engine-writes.ts';
import { EventWriter, type Outcomes, type WriteOutcome } from '../../storage/write/event-writer.ts';
import { type Failure, NO_PARTITION, type WriteTimeouts } from '../../storage/write/failures.ts';
import type { FinalFailure } from '../../storage/write/group-commit.ts';
import type { WriteGroup } from './commit-buffer.ts';

export interface PastWriterOptions {
  /** The servers that hold events. */
  readonly nodes: Nodes;
  readonly engine: EngineWrites;
  /** To each server. */
  readonly connections: number;
  readonly timeouts: WriteTimeouts;
  /** Called for events that were not stored for another reason than their day. Never rejects. */
  readonly keep: (group: readonly AcceptedEvent[], refusal: Rejection) => Promise<Outcomes>;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Why a day takes no events. */
export type Closure = 'blocked' | 'no-partition';

interface ClosedDay {
  readonly closure: Closure;
  readonly refusal: Rejection;
  /** When it is retried. */
  readonly until: number;
  readonly backOffMs: number;
}

/** Until a day is retried: doubled from one failure to the next. */
const BACK_OFF_MS = { first: 1_000, most: 60_000 } as const;
/** After a back-off and this long without events, the back-off of a day starts from its first value. */
const FORGET_MS = 600_000;
/** Limit of closed days that are kept; beyond it the oldest one is removed, and so retried. */
const MOST_CLOSED_DAYS = 10_000;

/** How long after midnight the whole day before still counts as current: producers send what they have gathered. */
const GRACE_MS = 3_600_000;

/** The start of the current day (UTC), and until 01:00 of the day before, in milliseconds since 1970. Older events are of past days. */
export function startOfCurrentDay(now: number): number {
  return startOfDay(dayOf(now - GRACE_MS));
}

export class PastWriter {
  readonly #options: PastWriterOptions;
  readonly #writers: ByNode<EventWriter>;
  readonly #closed = new Map<number, ClosedDay>();
  /** Events that were refused for their day. */
  readonly refused: Record<Closure, number> = { blocked: 0, 'no-partition': 0 };

  constructor(options: PastWriterOptions) {
    this.#options = options;
    const { nodes, engine, connections, timeouts, log, now } = options;
    const about = {
      engine,
      connections,
      name: 'tidemark past writer',
      timeouts,
      past: true,
      onExhausted: async (
        events: readonly AcceptedEvent[],
        { refusal, failure, error }: FinalFailure,
      ): Promise<Outcomes> => {
        if (refusal.reason === 'outcomeUnknown' || failure === 'unreachable')
          return await options.keep(events, refusal);
        const closure = closureOf(failure);
        const [first] = events;
        if (closure === null || first === undefined) return events.map(() => refusal);
        // All are of one day.
        this.refused[closure] += events.length;
        const closed = this.#close(dayOf(first.createdAt), closure, error);
        return events.map(() => closed);
      },
      log,
      now,
    };
    this.#writers = new ByNode(nodes, (node) => new EventWriter({ ...about, node }));
  }

  /** Days that take no events now. */
  closedDays(closure: Closure): number {
    const now = this.#options.now();
    let days = 0;
    for (const day of this.#closed.values()) if (day.closure === closure && day.until > now) days += 1;
    return days;
  }

  /** Why the day of an event is not writable now, or null. @param time of the event */
  refusalOf(time: number): Rejection | null {
    const closed = this.#closed.get(dayOf(time));
    return closed !== undefined && closed.until > this.#options.now() ? closed.refusal : null;
  }

  /** Stores groups on a server, with the outcome of each event; at most `connections` may be in progress there. Never rejects. */
  writeAt(node: DataNode): WriteGroup {
    const writer = this.#writers.at(node);
    return (group) => this.#write(writer, group);
  }

  async #write(writer: EventWriter, group: readonly AcceptedEvent[]): Promise<Outcomes> {
    if (this.#closed.size === 0) return await writer.write(group);
    const outcomes: WriteOutcome[] = group.map(({ createdAt }) => this.#refuse(createdAt));
    const open = group.filter((_, index) => outcomes[index] === null);
    if (open.length === 0) return outcomes;
    const written = await writer.write(open);
    let at = 0;
    for (const [index, event] of group.entries()) {
      if (outcomes[index] !== null) continue;
      const outcome = written[at];
      at += 1;
      if (outcome === undefined) throw new Error('A group was written without an outcome for each event.');
      outcomes[index] = outcome;
      if (!(outcome instanceof Rejection)) this.#reopen(dayOf(event.createdAt));
    }
    return outcomes;
  }

  async close(): Promise<void> {
    await Promise.all(this.#writers.all.map((writer) => writer.close()));
  }

  #refuse(time: number): Rejection | null {
    const refusal = this.refusalOf(time);
    const closure = refusal === null ? undefined : this.#closed.get(dayOf(time))?.closure;
    if (closure !== undefined) this.refused[closure] += 1;
    return refusal;
  }

  #close(day: number, closure: Closure, error: unknown): Rejection {
    const { log, now } = this.#options;
    const known = this.#closed.get(day);
    const before = known !== undefined && now() < known.until + FORGET_MS ? known : undefined;
    const backOffMs = Math.min((before?.backOffMs ?? BACK_OFF_MS.first / 2) * 2, BACK_OFF_MS.most);
    const refusal = refusalFor(day, closure, backOffMs);
    this.#closed.delete(day);
    this.#closed.set(day, { closure, refusal, until: now() + backOffMs, backOffMs });
    const [first] = this.#closed.keys();
    if (this.#closed.size > MOST_CLOSED_DAYS && first !== undefined) this.#closed.delete(first);
    // Once for each time that a day is closed, however often it is retried.
    if (before?.closure !== closure)
      log.warn({ err: error, day: dateOf(day), closure }, 'write: past day not writable');
    return refusal;
  }

  #reopen(day: number): void {
    if (this.#closed.delete(day))
      this.#options.log.info({ day: dateOf(day) }, 'write: past day writable again');
  }
}

function closureOf(failure: Failure): Closure | null {
  return failure === 'blocked' || failure === 'no-partition' ? failure : null;
}

function refusalFor(day: number, closure: Closure, backOffMs: number): Rejection {
  if (closure === 'no-partition') return NO_PARTITION;
  return new Rejection(
    'unavailable',
    `Events of ${dateOf(day)} cannot be stored now: the day is locked in the database; try again later.`,
    { retryAfterSeconds: backOffMs / 1_000 },
  );
}
