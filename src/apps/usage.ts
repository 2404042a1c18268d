/**
 * What apps and tokens use: requests by minute, events and bytes by day. Counted in memory, where a request costs two lookups
 * in a map, and added to PostgreSQL every few seconds. Only requests with a valid token count: others belong to no app, so a
 * client without one neither adds a row nor takes memory.
 */
import type { Logger } from 'pino';
import { Rounds } from '../base/rounds.ts';
import { MINUTE_MS } from '../base/time-units.ts';
import { Rejection } from '../errors.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import type { EventRow } from '../storage/write/accepted-event.ts';
import type { LoggingToken } from './logging-token-lookup.ts';
import { addRefusals, removeOldRefusals, WaitingRefusals } from './refused-requests.ts';
import { addUsage, EVENT_PREFIX, LATE_MINUTES, removeOldRequests, type UsageDeltas } from './usage-store.ts';

export interface UsageOptions {
  readonly sql: Sql;
  readonly log: Logger;
  readonly now: () => number;
  /** Milliseconds since 1970, by which minutes are removed. */
  readonly judged?: () => number;
}

const WRITE_EVERY_MS = 5_000;
const REMOVE_EVERY_MS = 600_000;
/** Minutes that wait while the database does not take them; older ones are given up. */
const MAX_WAITING = 120;

/** What one app or token has used in a minute. */
class Use {
  accepted = 0;
  events = 0;
  bytes = 0;
  /** Requests by code; null while there is none, as for most. */
  refused: Map<string, number> | null = null;
  /** Events that were refused inside of requests that were accepted, likewise. */
  refusedEvents: Map<string, number> | null = null;

  add(outcome: Outcome): void {
    if (!(outcome instanceof Rejection)) {
      this.accepted += 1;
      return;
    }
    this.refused = added(this.refused, outcome.code, 1);
  }

  addAll(other: Use): void {
    this.accepted += other.accepted;
    this.events += other.events;
    this.bytes += other.bytes;
    for (const [code, requests] of other.refused ?? []) this.refused = added(this.refused, code, requests);
    for (const [code, events] of other.refusedEvents ?? [])
      this.refusedEvents = added(this.refusedEvents, code, events);
  }
}

function added(counts: Map<string, number> | null, code: string, more: number): Map<string, number> {
  const known = counts ?? new Map<string, number>();
  return known.set(code, (known.get(code) ?? 0) + more);
}

/** What one producer has sent in a minute. */
class ProducerUse {
  readonly appId: number;
  readonly producerId: number;
  requests = 0;
  events = 0;
  refused = 0;

  constructor(appId: number, producerId: number) {
    this.appId = appId;
    this.producerId = producerId;
  }

  add(outcome: Outcome, events: number | null): void {
    const isRefused = outcome instanceof Rejection;
    this.requests += 1;
    if (isRefused) this.refused += 1;
    // A request that is no batch has one event.
    this.events += events ?? (isRefused ? 0 : 1);
  }

  addAll(other: ProducerUse): void {
    this.requests += other.requests;
    this.events += other.events;
    this.refused += other.refused;
  }
}

/** The first producers of apps have no id of their own: theirs are those of their apps with a sign. */
const producerKey = (appId: number, producerId: number): number => (producerId === 0 ? -appId : producerId);

/** Whose request was refused. */
interface RefusedSender extends Pick<Exchange, 'route' | 'refusedBody' | 'producerId'> {
  readonly appId: number;
}

/** What is used in a minute. */
class Period {
  /** By internal ids. */
  readonly apps = new Map<number, Use>();
  readonly tokens = new Map<number, Use>();
  readonly producers = new Map<number, ProducerUse>();
  /** Late events by the type's internal id, and by the index of their minutes in {@link LATE_MINUTES}. */
  readonly late = new Map<number, number[]>();

  addLate(typeId: number, index: number, events: number): void {
    const counts = this.late.get(typeId) ?? [];
    counts[index] = (counts[index] ?? 0) + events;
    this.late.set(typeId, counts);
  }

  producer(appId: number, producerId: number): ProducerUse {
    const key = producerKey(appId, producerId);
    let use = this.producers.get(key);
    if (use === undefined) {
      use = new ProducerUse(appId, producerId);
      this.producers.set(key, use);
    }
    return use;
  }

  addAll(other: Period): void {
    for (const [id, use] of other.apps) useOf(this.apps, id).addAll(use);
    for (const [id, use] of other.tokens) useOf(this.tokens, id).addAll(use);
    for (const use of other.producers.values()) this.producer(use.appId, use.producerId).addAll(use);
    for (const [typeId, counts] of other.late)
      counts.forEach((events, index) => {
        this.addLate(typeId, index, events);
      });
  }
}

/** By the number of the minute since 1970, in the order in which the minutes came. */
type Periods = Map<number, Period>;

export class Usage {
  readonly #options: UsageOptions;
  readonly #rounds = new Rounds({
    work: () => this.write(),
    pauseMs: () => WRITE_EVERY_MS,
    onFailure: () => undefined, // A write never rejects.
  });
  /** Not yet in the database. */
  #waiting: Periods = new Map();
  /** The last one that was counted in. */
  #current = { minute: Number.NaN, period: new Period() };
  /** The latest requests that were refused: some of them are given up where the database does not take them. */
  readonly #refusals = new WaitingRefusals();
  /** Requests of which it is looked up whose they are. */
  readonly #lookups = new Set<Promise<void>>();
  #writing: Promise<void> = Promise.resolve();
  #removedAt = Number.NEGATIVE_INFINITY;
  #failures = 0;
  #lost = 0;
  /** Grows when what waits is forgotten, also what a write had that then fails. */
  #forgotten = 0;
  #isFailing = false;

  constructor(options: UsageOptions) {
    this.#options = options;
  }

  /** Writes that failed; what they had is tried again. */
  get failures(): number {
    return this.#failures;
  }

  /** Minutes of usage that were given up. */
  get lost(): number {
    return this.#lost;
  }

  start(): void {
    this.#rounds.start();
  }

  /** Counts a request that has ended, for the app or the token that it was admitted for. */
  readonly settled = (exchange: Exchange, outcome: Outcome | null): void => {
    const { writerAppId, readerTokenId, producerId, refusedEvent } = exchange;
    if (outcome === null || (writerAppId === null && readerTokenId === null)) return;
    const period = this.#period();
    if (writerAppId !== null) useOf(period.apps, writerAppId).add(outcome);
    if (writerAppId !== null && producerId !== null)
      period.producer(writerAppId, producerId).add(outcome, exchange.storedEvents);
    if (readerTokenId !== null) useOf(period.tokens, readerTokenId).add(outcome);
    if (writerAppId === null) return;
    const { route, refusedBody } = exchange;
    const sent = { appId: writerAppId, producerId, route, refusedBody };
    if (outcome instanceof Rejection) this.#noteRefusal(sent, outcome, '');
    else if (refusedEvent !== null)
      this.#noteRefusal(sent, refusedEvent.refusal, `event ${refusedEvent.place + 1}: `);
  };

  /**
   * Counts a request that was refused before its token was read, once it is known whose the token in its body is.
   * @param writer the outcome of the lookup of that token
   */
  readonly refusedUnread = (
    writer: LoggingToken | Rejection | Promise<LoggingToken | Rejection>,
    refusal: Rejection,
    request: Pick<Exchange, 'route' | 'refusedBody'>,
  ): void => {
    const counted = Promise.resolve(writer)
      .then((known) => this.#countUnread(known, refusal, request))
      .catch(() => undefined)
      .finally(() => this.#lookups.delete(counted));
    this.#lookups.add(counted);
  };

  #countUnread(
    writer: LoggingToken | Rejection,
    refusal: Rejection,
    { route, refusedBody }: Pick<Exchange, 'route' | 'refusedBody'>,
  ): void {
    if (writer instanceof Rejection) return;
    const { appId, producerId } = writer;
    const period = this.#period();
    useOf(period.apps, appId).add(refusal);
    period.producer(appId, producerId).add(refusal, null);
    this.#noteRefusal({ appId, producerId, route, refusedBody }, refusal, '');
  }

  /** What failed without a fault of the producer is not noted. */
  #noteRefusal(
    { appId, producerId, route, refusedBody: body }: RefusedSender,
    { status, code, details }: Rejection,
    place: string,
  ): void {
    if (status < 400 || status >= 500) return;
    const at = this.#options.now();
    this.#refusals.add({ appId, producerId, at, route, code, details: `${place}${details}`, body });
  }

  /** Counts an event that was acknowledged. */
  readonly stored = ({ appId, typeId, createdAt, payload }: EventRow): void => {
    const period = this.#period();
    const use = useOf(period.apps, appId);
    use.events += 1;
    use.bytes += Buffer.byteLength(payload);
    const lateMinutes = (this.#options.now() - createdAt) / MINUTE_MS;
    if (lateMinutes < 1) return;
    const index = LATE_MINUTES.findIndex((upTo) => lateMinutes <= upTo);
    if (index >= 0) period.addLate(typeId, index, 1);
  };

  /** Counts an event that was refused by itself, while its request was accepted. */
  readonly refused = (appId: number, code: string): void => {
    const use = useOf(this.#period().apps, appId);
    use.refusedEvents = added(use.refusedEvents, code, 1);
  };

  /** Brings what was counted to the database. Never rejects: what fails is tried again with the next call. */
  write(): Promise<void> {
    const lookups = [...this.#lookups];
    this.#writing = this.#writing.then(() => Promise.all(lookups)).then(() => this.#write());
    return this.#writing;
  }

  /** Forgets what waits: the database has become another one, where the ids mean others. */
  forget(): void {
    this.#forgotten += 1;
    this.#refusals.take();
    this.#wait(new Map());
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.write();
  }

  #period(): Period {
    const minute = Math.floor(this.#options.now() / MINUTE_MS);
    if (this.#current.minute !== minute) {
      const period = this.#waiting.get(minute) ?? new Period();
      this.#wait(this.#waiting.set(minute, period));
      this.#current = { minute, period };
    }
    return this.#current.period;
  }

  /** Has these wait, of which the oldest are given up where they are too many. */
  #wait(periods: Periods): void {
    for (const minute of periods.keys()) {
      if (periods.size <= MAX_WAITING) break;
      periods.delete(minute);
      this.#lost += 1;
    }
    this.#waiting = periods;
    this.#current = { minute: Number.NaN, period: new Period() };
  }

  async #write(): Promise<void> {
    const { sql, log, now, judged = now } = this.#options;
    const periods = this.#waiting;
    const forgotten = this.#forgotten;
    const refusals = this.#refusals.take();
    this.#wait(new Map());
    try {
      if (periods.size > 0) await addUsage(sql, deltasOf(periods));
      periods.clear();
      await addRefusals(sql, refusals);
      if (Math.abs(now() - this.#removedAt) >= REMOVE_EVERY_MS) {
        await removeOldRequests(sql, judged());
        await removeOldRefusals(sql, judged());
        this.#removedAt = now();
      }
      this.#isFailing = false;
    } catch (error) {
      this.#failures += 1;
      if (forgotten !== this.#forgotten) periods.clear();
      for (const [minute, period] of this.#waiting) {
        const failed = periods.get(minute);
        if (failed === undefined) periods.set(minute, period);
        else failed.addAll(period);
      }
      this.#wait(periods);
      if (!this.#isFailing)
        log.warn({ code: errorCode(error) }, 'usage: write failed, retrying every 5 seconds');
      this.#isFailing = true;
    }
  }
}

function useOf(uses: Map<number, Use>, id: number): Use {
  let use = uses.get(id);
  if (use === undefined) {
    use = new Use();
    uses.set(id, use);
  }
  return use;
}

function deltasOf(periods: Periods): UsageDeltas {
  const deltas = { apps: [], tokens: [], days: [], producers: [], late: [] } as {
    -readonly [Name in keyof UsageDeltas]: UsageDeltas[Name][number][];
  };
  for (const [minute, { apps, tokens, producers, late }] of periods) {
    const at = minute * MINUTE_MS;
    for (const [appId, use] of apps) {
      deltas.apps.push(...requestsOf(appId, at, use));
      if (use.events > 0) deltas.days.push({ id: appId, at, events: use.events, bytes: use.bytes });
    }
    for (const use of producers.values()) {
      const { appId, producerId, requests, events, refused } = use;
      deltas.producers.push({ appId, producerId, at, requests, events, refused });
    }
    for (const [typeId, counts] of late)
      counts.forEach((events, index) => {
        deltas.late.push({ typeId, at, upTo: LATE_MINUTES[index] ?? 0, events });
      });
    for (const [tokenId, use] of tokens) deltas.tokens.push(...requestsOf(tokenId, at, use));
  }
  return deltas;
}

function* requestsOf(
  id: number,
  at: number,
  { accepted, refused, refusedEvents }: Use,
): Iterable<UsageDeltas['apps'][number]> {
  if (accepted > 0) yield { id, at, code: '', requests: accepted };
  for (const [code, requests] of refused ?? []) yield { id, at, code, requests };
  for (const [code, events] of refusedEvents ?? [])
    yield { id, at, code: `${EVENT_PREFIX}${code}`, requests: events };
}
