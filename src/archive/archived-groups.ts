/**
 * Reads row groups of archived files for whoever reads events: by range requests, each checked against what the database knows of it, in
 * turns of accounts. What was read stays in memory for a while, because the next page is mostly of the same group.
 */
import { LRUCache } from 'lru-cache';
import { Slots, type Waiter } from '../base/slots.ts';
import { deadline } from '../base/timeout.ts';
import {
  type ArchivedGroup,
  type ArchiveReader,
  type ArchiveSource,
  ArchiveUnavailable,
} from '../storage/database/archive-source.ts';
import { Abandoned } from '../storage/database/connect.ts';
import { GroupDecoder } from './group-decoder.ts';
import { ArchiveError, type ArchiveStore } from './store.ts';

export interface ArchivedGroupsOptions {
  readonly store: ArchiveStore;
  readonly log: { warn(fields: object, message: string): void };
  readonly monotonic?: () => number;
  /** How long a group may take, from its turn on. */
  readonly timeoutMs?: number;
}

/** How reads of groups have ended, for metrics. */
export interface ArchivedGroupsStats {
  /** Groups that were read from the archive. */
  read: number;
  /** Bytes of these groups, as they lie there. */
  bytes: number;
  /** Groups that were in memory. */
  cached: number;
  /** Groups that could not be read: the archive is away or slow, or has something else. */
  failed: number;
  /** Groups that were not read because too many wait. */
  refused: number;
}

/** Groups that are read at once: some wait for the archive while one is decoded. */
const PLACES = 4;
const MOST_WAITING = 64;
const TIMEOUT_MS = 10_000;
/** Decoded groups and footers in memory. */
const CACHE_BYTES = 64 * 1_048_576;
const FOOTER_BYTES = 8 * 1_048_576;
/** Between two lines of the log. */
const LOG_EVERY_MS = 60_000;

const AWAY =
  'Events of this time are in the archive, which cannot be read now; try again later. Everything that is not archived can be read.';
const BUSY =
  'Events of this time are in the archive, and too many reads of it are waiting, most of them of this account; try again shortly.';

/** The waiter of a command: it waits as long as it takes. */
const PATIENT: Waiter = { settled: false, whenSettled: () => () => undefined };

/** A group that is being read, for one or several. */
interface Reading {
  readonly outcome: Promise<Buffer>;
  readonly abort: AbortController;
  waiting: number;
}

export class ArchivedGroups implements ArchiveSource {
  readonly #options: ArchivedGroupsOptions;
  readonly #slots = new Slots(PLACES, MOST_WAITING);
  readonly #decoder = new GroupDecoder();
  readonly #groups = new LRUCache<string, Buffer>({
    maxSize: CACHE_BYTES,
    sizeCalculation: ({ length }) => Math.max(1, length),
  });
  readonly #footers = new LRUCache<string, Buffer>({
    maxSize: FOOTER_BYTES,
    sizeCalculation: ({ length }) => Math.max(1, length),
  });
  readonly #reading = new Map<string, Reading>();
  readonly stats: ArchivedGroupsStats = { read: 0, bytes: 0, cached: 0, failed: 0, refused: 0 };
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ArchivedGroupsOptions) {
    this.#options = options;
  }

  /** Reads that wait for their turn. */
  get waiting(): number {
    return this.#slots.waiting;
  }

  peek(group: ArchivedGroup): Buffer | undefined {
    const found = this.#groups.get(nameOf(group));
    if (found !== undefined) this.stats.cached += 1;
    return found;
  }

  async read(
    group: ArchivedGroup,
    typeIds: ReadonlyMap<string, number>,
    { waiter, turns }: ArchiveReader,
  ): Promise<Buffer> {
    const known = this.peek(group);
    if (known !== undefined) return known;
    const waiting = waiter ?? PATIENT;
    const outcome = await this.#slots.run(turns, waiting, async () => ({
      bytes: await this.#shared(group, typeIds, waiting),
    }));
    if (outcome === 'settled') throw new Abandoned();
    if (outcome === 'busy') {
      this.stats.refused += 1;
      throw new ArchiveUnavailable(BUSY);
    }
    return outcome.bytes;
  }

  async close(): Promise<void> {
    for (const { abort } of this.#reading.values()) abort.abort();
    await this.#decoder.close();
  }

  /** Reads a group once for all who wait for it; without anybody who does, it ends. */
  async #shared(group: ArchivedGroup, typeIds: ReadonlyMap<string, number>, waiter: Waiter): Promise<Buffer> {
    const name = nameOf(group);
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const reading = this.#reading.get(name) ?? this.#begin(name, group, typeIds);
    reading.waiting += 1;
    let forget = (): void => undefined;
    const abandoned = new Promise<never>((_, reject) => {
      const leave = (): void => reject(new Abandoned());
      if (waiter.settled) leave();
      else forget = waiter.whenSettled(leave);
    });
    try {
      return await Promise.race([reading.outcome, abandoned]);
    } finally {
      forget();
      reading.waiting -= 1;
      if (reading.waiting === 0) {
        this.#forget(name, reading);
        reading.abort.abort();
      }
    }
  }

  #begin(name: string, group: ArchivedGroup, typeIds: ReadonlyMap<string, number>): Reading {
    const abort = new AbortController();
    const reading = { outcome: this.#read(group, typeIds, abort.signal), abort, waiting: 0 };
    this.#reading.set(name, reading);
    const forget = (): void => this.#forget(name, reading);
    reading.outcome.then(forget, forget);
    return reading;
  }

  #forget(name: string, reading: Reading): void {
    if (this.#reading.get(name) === reading) this.#reading.delete(name);
  }

  async #read(
    group: ArchivedGroup,
    typeIds: ReadonlyMap<string, number>,
    given: AbortSignal,
  ): Promise<Buffer> {
    const { store, timeoutMs = TIMEOUT_MS } = this.#options;
    const { key, start, end, groupsEnd, objectBytes } = group;
    const late = new AbortController();
    const endWait = deadline(timeoutMs, () => late.abort());
    const signal = AbortSignal.any([given, late.signal]);
    try {
      const footer = this.#footers.get(key);
      const [bytes, tail] = await inTime(
        Promise.all([
          store.get(key, { start, end, signal }),
          footer ?? store.get(key, { start: groupsEnd, end: objectBytes, signal }),
        ]),
        signal,
      );
      // A buffer of its own: it is moved to the thread.
      const own = new Uint8Array(bytes);
      const decoded = await inTime(
        this.#decoder.decode({ group, bytes: own, footer: tail, typeIds }),
        signal,
      );
      if (footer === undefined) this.#footers.set(key, tail);
      this.#groups.set(nameOf(group), decoded);
      this.stats.read += 1;
      this.stats.bytes += end - start;
      return decoded;
    } catch (error) {
      if (given.aborted) throw new Abandoned();
      if (!(error instanceof ArchiveError) && !late.signal.aborted) throw error;
      const reason = late.signal.aborted ? `no answer within ${timeoutMs / 1_000} s` : oneOf(error);
      const isMissing = error instanceof ArchiveError && error.isMissing;
      this.#fail(key, reason, isMissing);
      throw new ArchiveUnavailable(AWAY, { isMissing, cause: error });
    } finally {
      endWait();
    }
  }

  #fail(key: string, reason: string, isMissing: boolean): void {
    const { log, store, monotonic = () => performance.now() } = this.#options;
    this.stats.failed += 1;
    if (isMissing || monotonic() - this.#loggedAt < LOG_EVERY_MS) return;
    this.#loggedAt = monotonic();
    log.warn({ archive: store.place, key, reason }, 'archive: events of archived days cannot be read');
  }
}

function nameOf({ key, start }: ArchivedGroup): string {
  return `${key} ${start}`;
}

function oneOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Waits no longer than a signal lets it: not every store takes one. */
async function inTime<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let end = (): void => undefined;
  const ended = new Promise<never>((_, reject) => {
    end = () => reject(new ArchiveError('it was ended'));
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
  });
  try {
    return await Promise.race([work, ended]);
  } finally {
    signal.removeEventListener('abort', end);
    work.catch(() => undefined);
  }
}
