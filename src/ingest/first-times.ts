/**
 * The times that events with keys were first given. A time that is ahead of this service's clock is cut, and that of a sender whose
 * clock is wrong is corrected: both depend on when a request arrives. What is sent again keeps the time of its first reception, or
 * its id would be another one.
 *
 * They are in the memory of this process: after a restart, or at another process, a repeat is given a time of its own.
 */
import type { EventSource } from '../storage/write/accepted-event.ts';
import { keyedEventId } from './event-id.ts';
import type { BatchEvent } from './parse/batch-event.ts';

/** Times of an app that are remembered; the oldest is forgotten. */
const MOST_OF_APP = 20_000;
/** Times of all apps: beyond, those of the app go that has got none for the longest time. */
const MOST_OF_ALL = 100_000;

export class FirstTimes {
  /** By the app's public id, and by the id that the event has with its own time. */
  readonly #apps = new Map<string, Map<string, number>>();
  #size = 0;

  /** Times that are remembered. */
  get size(): number {
    return this.#size;
  }

  /** An event with the time of its first reception. */
  of(event: BatchEvent, source: EventSource): BatchEvent {
    const { createdAt, key, sentTime } = event;
    if (key === null || createdAt === null) return event;
    const known = this.#apps.get(source.appId);
    if (known === undefined && sentTime === undefined) return event;
    const id = keyedEventId(sentTime ?? createdAt, source, key);
    const first = known?.get(id);
    if (first !== undefined) return first === createdAt ? event : { ...event, createdAt: first };
    if (sentTime !== undefined) this.#remember(source.appId, id, createdAt);
    return event;
  }

  #remember(app: string, id: string, time: number): void {
    const times = this.#apps.get(app) ?? new Map<string, number>();
    this.#apps.delete(app);
    this.#apps.set(app, times);
    times.set(id, time);
    this.#size += 1;
    const [oldest] = times.size > MOST_OF_APP ? times.keys() : [];
    if (oldest !== undefined && times.delete(oldest)) this.#size -= 1;
    while (this.#size > MOST_OF_ALL) {
      const [idle] = this.#apps;
      if (idle === undefined) return;
      this.#apps.delete(idle[0]);
      this.#size -= idle[1].size;
    }
  }
}
