/** A batch of a consumer: the events that pass its choice, from where it is. */
import { TimeSlice } from '../base/time-slice.ts';
import type { CommittedEvent } from '../storage/feed/committed-events.ts';
import type { ConsumerStore } from '../storage/feed/consumers.ts';
import type { FeedPosition } from '../storage/feed/position.ts';

export interface Batch {
  readonly events: readonly CommittedEvent[];
  /** The position behind them, and behind all that was read and did not pass. */
  readonly position: FeedPosition;
  /** The position before the first of them, where others that did not pass come before it. */
  readonly passed: FeedPosition | null;
  readonly hasMore: boolean;
}

/** Reads that one batch may take: a choice that few events pass goes on with the next batch. */
const MOST_READS = 4;
/** Events that one read looks at where only some of them pass. */
const LOOKED_AT = 1_000;

/**
 * Reads up to `limit` events that pass.
 * @param matches null: all events pass
 */
export async function readBatch(
  store: ConsumerStore,
  appId: number,
  from: FeedPosition,
  options: {
    readonly limit: number;
    readonly maxBytes: number;
    readonly matches: ((event: CommittedEvent) => boolean) | null;
  },
): Promise<Batch> {
  const { limit, maxBytes, matches } = options;
  if (matches === null) return { ...(await store.read(appId, from, { limit, maxBytes })), passed: null };
  const events: CommittedEvent[] = [];
  let passed: FeedPosition | null = null;
  let position = from;
  const slices = new TimeSlice();
  for (let reads = 1; ; reads += 1) {
    const read = await store.read(appId, position, { limit: LOOKED_AT, maxBytes });
    for (const event of read.events) {
      if (slices.isOver) await slices.next();
      if (matches(event)) events.push(event);
      else if (events.length === 0) passed = event.position;
      if (events.length === limit) return { events, position: event.position, passed, hasMore: true };
    }
    position = read.position;
    if (!read.hasMore || reads === MOST_READS || events.length > 0)
      return { events, position, passed, hasMore: read.hasMore };
    passed = position;
  }
}
