/**
 * Logs events in the background. Each event that was accepted is stored exactly once: while the process lives, or, with a folder for
 * the queue, also by the next one.
 */
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip as gzipWithCallback } from 'node:zlib';
import { DiskQueue, QueueInUse, type StoredEvent, type Sync } from './disk-queue.ts';
import { isRetryable, Pause, pauseMs } from './retry.ts';
import { ServiceClock } from './service-clock.ts';
import { errorOf, type JsonObject, TidemarkError } from './tidemark-error.ts';

const gzip = promisify(gzipWithCallback);

export interface EventLoggerOptions {
  /** Address of the service, such as `https://events.example.com`. */
  readonly url: string;
  /** The app's logging token. */
  readonly loggingToken: string;
  /**
   * Events that wait at most, those in flight included. When the queue is full, {@link EventLogger.log} refuses the new
   * event and returns false; what was accepted is never dropped. Default: 100,000.
   */
  readonly maxQueueEvents?: number;
  /**
   * Which event is dropped when the queue is full: `newest`, so that {@link EventLogger.log} returns false, or the `oldest` that
   * is not in flight. `stats.dropped` counts them. Default: `newest`.
   */
  readonly drop?: 'newest' | 'oldest';
  /** A folder where events wait, so that they outlive the process. One process uses it at a time. Default: memory. */
  readonly queueFolder?: string;
  /**
   * When the folder is synced: `always` by {@link EventLogger.log}, which then blocks for the disk; `batch` before events are
   * sent; `never`. What a crash of the process alone leaves is complete with each of them. Default: `batch`.
   */
  readonly sync?: Sync;
  /** Characters of JSON text in the queue at most. Default: 64 Mi. */
  readonly maxQueueCharacters?: number;
  /** Events of one request at most; the service takes up to 10,000. Default: 1,000. */
  readonly maxBatchEvents?: number;
  /** Characters of JSON text in one request at most. Default: 4 Mi. */
  readonly maxBatchCharacters?: number;
  /** Longest event in characters of JSON; the service's `MAX_BODY_BYTES` is 1 MiB by default. Default: 256 Ki. */
  readonly maxEventCharacters?: number;
  /** How long the first event of a batch waits for others, in milliseconds. Default: 500. */
  readonly lingerMs?: number;
  /** How long a response is waited for, in milliseconds. Default: 30,000. */
  readonly timeoutMs?: number;
  /**
   * Called with each event that the service refuses for good, such as one with a payload nested too deep. Default: the first one is
   * written to standard error.
   */
  readonly onRefused?: (
    error: TidemarkError,
    event: { readonly type: string; readonly payload: string },
  ) => void;
  /**
   * Called with each failure after which a request is repeated: the network's, or a refusal of the service. Default: the first one that
   * may need somebody, such as a wrong token or address, is written to standard error.
   */
  readonly onRetry?: (error: Error) => void;
}

export interface LogOptions {
  /**
   * When the event happened. Default: now, corrected if the clock of this machine is ahead of the service's or behind it. A time
   * that you give is never changed: up to ten minutes ahead of the service's clock the event waits for it, beyond that it is
   * refused for good with the code `EVENT_IN_FUTURE`.
   */
  readonly createdAt?: Date;
  /**
   * Makes the event one and the same, together with `createdAt` and the type, however often it is logged, by whichever
   * process. Default: a key of its own.
   */
  readonly key?: string;
}

export interface LoggerStats {
  /** Events that wait, or are in flight. */
  readonly waiting: number;
  /** Events that the service has stored. */
  readonly stored: number;
  /** Events that the service refuses for good. */
  readonly refused: number;
  /** Events that were dropped because the queue was full, or closed. */
  readonly dropped: number;
  /** Whether some events wait in memory because the folder cannot be written; absent without a folder. */
  readonly inMemory?: boolean;
}

interface Waiting {
  readonly type: string;
  readonly key: string;
  readonly payload: string;
  /** Length of its JSON text. */
  readonly characters: number;
  /** Order of acceptance. */
  readonly number: number;
  /** When it was logged, by the clock of this machine. */
  readonly loggedAt: number;
  /** Whether the caller has dated it. */
  readonly isDated: boolean;
  /** Milliseconds since 1970; null until the client has dated it, when it is first sent. */
  readonly createdAt: number | null;
  /** Whether an earlier request with this `createdAt` may have stored it: then it keeps that time. */
  readonly mayBeStored: boolean;
  /** Whether its time has been corrected. */
  readonly isCorrected: boolean;
}

/** An event that waits for its time. */
interface Held {
  readonly event: Waiting;
  /** By performance.now(). */
  readonly dueAt: number;
}

interface Result {
  readonly eventId?: string;
  readonly code?: string;
  readonly details?: string;
  /** With {@link IN_FUTURE}: the time of the service, and how far the event is ahead of it. */
  readonly serverTime?: string;
  readonly aheadMs?: number;
}

/** The results of a request, and when it was sent and answered by the clock of this machine. */
interface Answered {
  readonly results: readonly Result[];
  readonly sentAt: number;
  readonly receivedAt: number;
}

/** What came of one request: its results, or when it is to be repeated. */
type Outcome = Answered | Failed;

interface Failed {
  readonly error: TidemarkError | Error;
  readonly status: number;
  readonly retryAfter: string | null;
}

/** Codes of results after which the same event may be stored. */
const RETRYABLE_CODES: ReadonlySet<string> = new Set([
  'UNAVAILABLE',
  'OUTCOME_UNKNOWN',
  'INTERNAL_ERROR',
  'RATE_LIMIT_EXCEEDED',
]);
/** The code of an event that is dated ahead of the service's clock. */
const IN_FUTURE = 'EVENT_IN_FUTURE';
/** The code of a refusal after which an event may be stored all the same. */
const UNKNOWN = 'OUTCOME_UNKNOWN';
/** Failures before which nothing was sent. */
const NOT_SENT: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);
/** How long an event is held at most until its time has come. */
const MOST_HELD_MS = 600_000;
/** How long an event waits whose time could not be written to disk, until that is tried again. */
const UNWRITTEN_MS = 1_000;
const LONGEST_NAME = 200;
const LEAST_GZIP_CHARACTERS = 1_024;

export class EventLogger {
  readonly #options: Required<Omit<EventLoggerOptions, 'onRefused' | 'onRetry' | 'queueFolder'>> &
    EventLoggerOptions;
  readonly #endpoint: string;
  /** Whose response has the time of the service. */
  readonly #clockEndpoint: string;
  /** Begins the keys of this logger. */
  readonly #name = randomUUID();
  readonly #pause = new Pause();
  readonly #abort = new AbortController();
  /** In order of acceptance, but for those that are repeated. */
  #queue: Waiting[] = [];
  #inFlight: readonly Waiting[] = [];
  #held: Held[] = [];
  /** Whether nothing but held events waits. */
  #isHolding = false;
  #characters = 0;
  #numbers = 0;
  #stored = 0;
  #refused = 0;
  #dropped = 0;
  #running: Promise<void> | null = null;
  readonly #clock = new ServiceClock();
  /** Lowered while a batch is too large for the service. */
  #batchEvents: number;
  readonly #warned = new Set<string>();
  readonly #disk: DiskQueue | null;
  #inMemory = false;
  #isClosed = false;
  #isHurried = false;
  #waiters: { readonly upTo: number; readonly resolve: () => void }[] = [];

  constructor(options: EventLoggerOptions) {
    this.#options = {
      maxQueueEvents: 100_000,
      drop: 'newest',
      sync: 'batch',
      maxQueueCharacters: 64 * 1_048_576,
      maxBatchEvents: 1_000,
      maxBatchCharacters: 4 * 1_048_576,
      maxEventCharacters: 256 * 1_024,
      lingerMs: 500,
      timeoutMs: 30_000,
      ...options,
    };
    this.#endpoint = new URL('/v1/events', options.url).href;
    this.#clockEndpoint = new URL('/livez', options.url).href;
    this.#batchEvents = this.#options.maxBatchEvents;
    const { queueFolder, sync } = this.#options;
    this.#disk = queueFolder === undefined ? null : this.#openDisk(queueFolder, sync);
    this.#numbers = this.#disk?.highest ?? 0;
    this.#queue = this.#disk?.found.map(waitingOf) ?? [];
    for (const { characters } of this.#queue) this.#characters += characters;
    if (this.#queue.length > 0) this.#running = this.#run();
  }

  /**
   * Accepts an event, to be stored in the background. The payload is serialized at once.
   * @param type    the name of the event type, 1 to 200 characters
   * @param payload an object, as `JSON.stringify` takes it
   * @returns false if the queue is full or closed: the event is dropped, and counted in {@link stats}
   * @throws TypeError, RangeError for what the service would never store
   */
  log(type: string, payload: JsonObject, { createdAt, key }: LogOptions = {}): boolean {
    checkText('type', type);
    if (key !== undefined) checkText('key', key);
    const text: unknown = JSON.stringify(payload);
    if (typeof text !== 'string' || !text.startsWith('{'))
      throw new TypeError('The payload must be an object.');
    const loggedAt = Date.now();
    const number = this.#numbers + 1;
    const event = {
      ...{ type, key: key ?? `${this.#name}-${number}`, payload: text, number, loggedAt },
      ...{ isDated: createdAt !== undefined, mayBeStored: false, isCorrected: false },
    };
    const characters = jsonOf(event, createdAt?.getTime() ?? loggedAt).length;
    const { maxEventCharacters, maxQueueEvents, maxQueueCharacters } = this.#options;
    if (characters > maxEventCharacters)
      throw new RangeError(
        `The event has ${characters} characters of JSON; at most ${maxEventCharacters} are allowed.`,
      );
    const isFull = (): boolean =>
      this.stats.waiting >= maxQueueEvents || this.#characters + characters > maxQueueCharacters;
    while (!this.#isClosed && isFull() && this.#dropOldest());
    if (this.#isClosed || isFull()) {
      this.#dropped += 1;
      return false;
    }
    const at = createdAt?.getTime() ?? loggedAt;
    this.#onDisk((disk) =>
      disk.append({ n: number, type, key: event.key, at, dated: event.isDated, payload: text }),
    );
    this.#numbers = number;
    this.#characters += characters;
    this.#queue.push({ ...event, characters, createdAt: createdAt?.getTime() ?? null });
    this.#running ??= this.#run();
    if (this.#queue.length === this.#batchEvents || this.#isHolding) this.#sendSoon();
    return true;
  }

  get stats(): LoggerStats {
    const waiting = this.#queue.length + this.#inFlight.length + this.#held.length;
    return {
      ...{ waiting, stored: this.#stored, refused: this.#refused, dropped: this.#dropped },
      ...(this.#options.queueFolder !== undefined && { inMemory: this.#inMemory }),
    };
  }

  /** @returns whether there was one to drop */
  #dropOldest(): boolean {
    if (this.#options.drop !== 'oldest') return false;
    const oldest = this.#queue.shift();
    if (oldest === undefined) return false;
    this.#dropped += 1;
    this.#forget([oldest]);
    this.#wake();
    return true;
  }

  /** Events that do not wait any more. */
  #forget(events: readonly Waiting[]): void {
    for (const { characters } of events) this.#characters -= characters;
    this.#onDisk((disk) => disk.done(events.map(({ number }) => number)));
  }

  /** @throws QueueInUse. A folder that cannot be used for another reason does not stop the program that logs. */
  #openDisk(folder: string, sync: Sync): DiskQueue | null {
    try {
      return new DiskQueue(folder, sync);
    } catch (error) {
      if (error instanceof QueueInUse) throw error;
      this.#useMemory(error as Error);
      return null;
    }
  }

  /** A folder that cannot be written does not stop the logger: the events are in memory as well. @returns whether it could */
  #onDisk(work: (disk: DiskQueue) => void): boolean {
    if (this.#disk === null) return true;
    try {
      work(this.#disk);
      return true;
    } catch (error) {
      this.#useMemory(error as Error);
      return false;
    }
  }

  #useMemory(error: Error): void {
    this.#inMemory = true;
    this.#warn('folder', 'events wait in memory, the folder of the queue cannot be written', error);
  }

  /** Sends what waits now, and resolves when all of it is stored or refused for good. */
  async flush(): Promise<void> {
    if (this.stats.waiting === 0) return;
    this.#isHurried = true;
    this.#sendSoon();
    await new Promise<void>((resolve) => {
      this.#waiters.push({ upTo: this.#numbers, resolve });
    });
  }

  /**
   * Accepts no more events, and waits until all are stored or refused for good.
   * @param timeoutMs after which the client gives up; default 10,000
   * @returns the number of events that were given up: each may be stored or not. With a folder the next process sends them.
   */
  async close({ timeoutMs = 10_000 }: { readonly timeoutMs?: number } = {}): Promise<number> {
    this.#isClosed = true;
    const timer = setTimeout(() => this.#abort.abort(), timeoutMs);
    await Promise.race([this.flush(), aborted(this.#abort.signal)]);
    clearTimeout(timer);
    const { waiting } = this.stats;
    this.#abort.abort();
    this.#pause.end();
    await this.#running;
    for (const { resolve } of this.#waiters.splice(0)) resolve();
    this.#onDisk((disk) => disk.close());
    return waiting;
  }

  #sendSoon(): void {
    if (this.#inFlight.length === 0) this.#pause.end();
  }

  /** Ends when nothing waits. */
  async #run(): Promise<void> {
    for (let failures = 0; this.stats.waiting > 0 && !this.#abort.signal.aborted; ) {
      await this.#release();
      if (this.#queue.length === 0) continue;
      if (failures === 0 && !this.#isHurried && this.#queue.length < this.#batchEvents)
        await this.#pause.wait(this.#options.lingerMs);
      const failure = await this.#askTime();
      const taken = failure === null ? this.#take() : [];
      if (failure === null && taken.length === 0) continue;
      const outcome = failure ?? (await this.#send(taken));
      const retryAfter = this.#settle(outcome);
      failures = retryAfter === undefined ? 0 : failures + 1;
      if (retryAfter !== undefined && !this.#abort.signal.aborted) await this.#backOff(failures, retryAfter);
    }
    this.#running = null;
    this.#isHurried = false;
  }

  /** Queues the held events whose time has come. Where nothing else waits, waits until then or for a new event. */
  async #release(): Promise<void> {
    if (this.#held.length === 0) return;
    if (this.#queue.length === 0) {
      const next = this.#held.reduce((least, { dueAt }) => Math.min(least, dueAt), Number.POSITIVE_INFINITY);
      this.#isHolding = true;
      await this.#pause.wait(Math.max(0, next - performance.now()));
      this.#isHolding = false;
    }
    const now = performance.now();
    const due = this.#held.filter(({ dueAt }) => dueAt <= now);
    this.#held = this.#held.filter(({ dueAt }) => dueAt > now);
    this.#queue = [...due.map(({ event }) => event), ...this.#queue];
  }

  /** Not ended early by new events, nor by {@link flush}: the service has asked for it. */
  async #backOff(failures: number, retryAfter: string | null): Promise<void> {
    const until = Date.now() + pauseMs(failures, retryAfter);
    for (let left = until - Date.now(); left > 0 && !this.#abort.signal.aborted; left = until - Date.now())
      await this.#pause.wait(left);
  }

  /**
   * Asks for the time of the service, unless it is known: an event keeps the time that it is sent with.
   * @returns null if it is known now
   */
  async #askTime(): Promise<Failed | null> {
    if (this.#clock.isKnown || this.#queue.every(({ createdAt }) => createdAt !== null)) return null;
    const sentAt = Date.now();
    try {
      const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(this.#options.timeoutMs)]);
      const response = await fetch(this.#clockEndpoint, { signal, redirect: 'manual' });
      await response.body?.cancel();
      // Any response has it, also that of a proxy that does not know the path.
      this.#clock.compare(response.headers.get('date'), sentAt, Date.now());
      return null;
    } catch (error) {
      return { error: error as Error, status: 0, retryAfter: null };
    }
  }

  /** Takes the next batch, and dates its events. */
  #take(): readonly Waiting[] {
    let total = 0;
    let count = 0;
    for (const { characters } of this.#queue) {
      total += characters;
      if (count > 0 && (count === this.#batchEvents || total > this.#options.maxBatchCharacters)) break;
      count += 1;
    }
    const batch = this.#queue.slice(0, count);
    this.#queue = this.#queue.slice(count);
    const undated = batch.filter(({ createdAt }) => createdAt === null);
    const dated = this.#noted(
      undated.map((event) => ({ ...event, createdAt: this.#clock.timeOf(event.loggedAt) })),
    );
    const byNumber = new Map(dated.map((event) => [event.number, event]));
    this.#inFlight = batch.flatMap((event) =>
      event.createdAt === null ? (byNumber.get(event.number) ?? []) : event,
    );
    return this.#inFlight;
  }

  /**
   * Notes the times of events before they are sent, so that the next process sends them with the same ones: what was stored is not
   * stored again. Where that cannot be written, those that it would date otherwise are held for a while.
   * @returns those that may be sent
   */
  #noted(events: readonly Waiting[]): readonly Waiting[] {
    const dates = events.map(({ number, createdAt }) => [number, createdAt ?? 0] as const);
    if (this.#onDisk((disk) => disk.date(dates))) return events;
    const isHeld = ({ number, createdAt, loggedAt }: Waiting): boolean =>
      createdAt !== loggedAt && this.#disk?.has(number) === true;
    const dueAt = performance.now() + UNWRITTEN_MS;
    for (const event of events)
      if (isHeld(event)) this.#held.push({ event: { ...event, createdAt: null }, dueAt });
    return events.filter((event) => !isHeld(event));
  }

  async #send(events: readonly Waiting[]): Promise<Outcome> {
    const texts = events.map((event) => jsonOf(event, event.createdAt ?? event.loggedAt));
    const text = `{"events":[${texts.join(',')}]}`;
    const headers: Record<string, string> = {
      Authorization: `Bearer ${this.#options.loggingToken}`,
      'Content-Type': 'application/json',
    };
    let response: Response | null = null;
    try {
      const isCompressed = text.length >= LEAST_GZIP_CHARACTERS;
      if (isCompressed) headers['Content-Encoding'] = 'gzip';
      const body = isCompressed ? await gzip(text) : text;
      const sentAt = Date.now();
      const signal = AbortSignal.any([this.#abort.signal, AbortSignal.timeout(this.#options.timeoutMs)]);
      response = await fetch(this.#endpoint, { method: 'POST', headers, body, signal, redirect: 'error' });
      const receivedAt = Date.now();
      const answer = (await response.json()) as { readonly results?: readonly Result[] };
      const { results } = answer;
      if (response.ok && Array.isArray(results) && results.length === events.length)
        return { results, sentAt, receivedAt };
      const error = response.ok
        ? new TidemarkError(response.status, '', 'The response is not one of Tidemark.')
        : errorOf(response.status, answer);
      return { error, status: response.status, retryAfter: response.headers.get('retry-after') };
    } catch (error) {
      // Without a whole response nobody knows what is stored: the keys make a repeat safe.
      const status = response === null || response.ok ? 0 : response.status;
      return { error: error as Error, status, retryAfter: response?.headers.get('retry-after') ?? null };
    }
  }

  /** @returns undefined if all went well; else Retry-After, or null without one */
  #settle(outcome: Outcome): string | null | undefined {
    const sent = this.#inFlight;
    this.#inFlight = [];
    if ('results' in outcome) return this.#settleEach(sent, outcome);
    const { error, status, retryAfter } = outcome;
    if (isTooLarge(status, error)) {
      const [only] = sent;
      if (sent.length > 1 || only === undefined) {
        this.#batchEvents = Math.ceil(sent.length / 2);
        this.#repeat(sent);
        return undefined;
      }
      this.#refuse(only, errorOfRefusal(status, error));
      this.#batchEvents = this.#options.maxBatchEvents;
      this.#wake();
      return undefined;
    }
    // What is left may be repeated, and so is what an operator may mend: a token, an address, a proxy.
    this.#repeat(mayHaveStored(error) ? sent.map((event) => ({ ...event, mayBeStored: true })) : sent);
    if (!this.#abort.signal.aborted) {
      this.#reportRetry(error);
      // A response that passes by itself is no reason to disturb anybody.
      if (status === 0 || !isRetryable(status))
        this.#warnOnce('onRetry', `events wait, ${this.#endpoint} does not take them`, error);
    }
    return isRetryable(status) ? retryAfter : null;
  }

  #settleEach(sent: readonly Waiting[], { results, sentAt, receivedAt }: Answered): null | undefined {
    const stored: Waiting[] = [];
    const repeated: Waiting[] = [];
    const corrected: Waiting[] = [];
    let isCorrectedAgain = false;
    for (const [index, event] of sent.entries()) {
      const result = results[index] ?? {};
      const { eventId, code = '', details = '' } = result;
      if (eventId !== undefined) stored.push(event);
      else if (RETRYABLE_CODES.has(code)) {
        repeated.push(code === UNKNOWN ? { ...event, mayBeStored: true } : event);
      } else if (code === IN_FUTURE && this.#isHeld(event, result)) {
        // It waits for its time, and delays no others.
      } else if (code === IN_FUTURE && !event.isDated && result.serverTime !== undefined) {
        const serverTime = Date.parse(result.serverTime);
        if (corrected.length === 0) this.#clock.correct(serverTime, sentAt, receivedAt);
        isCorrectedAgain ||= event.isCorrected;
        // Not later than that, also where this machine's clock was set after the event was logged.
        const createdAt = Math.min(event.loggedAt - this.#clock.aheadMs, serverTime);
        corrected.push({ ...event, createdAt, isCorrected: true, mayBeStored: false });
      } else {
        this.#refuse(event, new TidemarkError(0, code, details));
      }
    }
    this.#stored += stored.length;
    this.#forget(stored);
    const noted = this.#noted(corrected);
    if (repeated.length + corrected.length === 0)
      this.#batchEvents = Math.min(2 * this.#batchEvents, this.#options.maxBatchEvents);
    this.#repeat([...noted, ...repeated]);
    if (corrected.length > 0)
      this.#reportRetry(
        new Error(
          `The clock of this machine is ${this.#clock.aheadMs} ms ahead: ${corrected.length} events get a corrected time.`,
        ),
      );
    if (repeated.length > 0)
      this.#reportRetry(new Error(`${repeated.length} of ${sent.length} events are not stored yet.`));
    // What is corrected for the first time can be stored at once.
    return repeated.length > 0 || isCorrectedAgain ? null : undefined;
  }

  /**
   * Holds an event whose time must stay until the service's clock has reached it: a time that the caller has given, or with which
   * another process of the service, with another clock, may have stored it already.
   * @returns false if it need not stay, or is too far ahead
   */
  #isHeld(event: Waiting, { aheadMs = Number.POSITIVE_INFINITY }: Result): boolean {
    if (!(event.isDated || event.mayBeStored) || aheadMs > MOST_HELD_MS) return false;
    this.#held.push({ event, dueAt: performance.now() + aheadMs });
    return true;
  }

  #reportRetry(error: Error): void {
    const { onRetry } = this.#options;
    if (onRetry !== undefined) this.#callBack('onRetry', () => onRetry(error));
  }

  /** What a callback throws cannot break the logger, nor end the process: it is written to standard error once. */
  #callBack(name: string, call: () => void): void {
    queueMicrotask(() => {
      try {
        call();
      } catch (error) {
        this.#warn(`${name} failed`, `${name} has failed`, error as Error);
      }
    });
  }

  /** Writes to standard error, once, what the program has no callback for. */
  #warnOnce(callback: 'onRetry' | 'onRefused', what: string, error: Error): void {
    if (this.#options[callback] !== undefined) return;
    this.#warn(callback, what, error, ` This is said once: ${callback} is called each time.`);
  }

  #warn(once: string, what: string, error: Error, more = ''): void {
    if (this.#warned.has(once)) return;
    this.#warned.add(once);
    const cause = error.cause instanceof Error ? ` (${error.cause.message})` : '';
    process.stderr.write(`tidemark-client: ${what}: ${error.message}${cause}${more}\n`);
  }

  #repeat(events: readonly Waiting[]): void {
    if (events.length > 0) this.#queue = [...events, ...this.#queue];
    this.#wake();
  }

  #refuse(event: Waiting, error: TidemarkError): void {
    this.#refused += 1;
    this.#forget([event]);
    const { onRefused } = this.#options;
    this.#warnOnce('onRefused', 'an event was refused for good', error);
    if (onRefused !== undefined)
      this.#callBack('onRefused', () => onRefused(error, { type: event.type, payload: event.payload }));
  }

  /** Ends the waits for all events up to the first one that waits. */
  #wake(): void {
    if (this.#waiters.length === 0) return;
    const waiting = [...this.#queue, ...this.#held.map(({ event }) => event)];
    const first = waiting.reduce((least, { number }) => Math.min(least, number), Number.POSITIVE_INFINITY);
    const done = this.#waiters.filter(({ upTo }) => upTo < first);
    this.#waiters = this.#waiters.filter(({ upTo }) => upTo >= first);
    for (const { resolve } of done) resolve();
  }
}

/** An event that an earlier process has left. One that has a date may be stored. */
function waitingOf(stored: StoredEvent): Waiting {
  const { n, type, key, at, dated, payload, date } = stored;
  return {
    ...{ type, key, payload, number: n, loggedAt: at, isDated: dated, isCorrected: false },
    createdAt: date ?? (dated ? at : null),
    mayBeStored: date !== undefined,
    characters: jsonOf({ type, key, payload }, at).length,
  };
}

/** The JSON text of an event, as it is sent. @throws RangeError for a time that is none */
function jsonOf(
  { type, key, payload }: Pick<Waiting, 'type' | 'key' | 'payload'>,
  createdAt: number,
): string {
  const fields = JSON.stringify({ typeName: type, createdAt: new Date(createdAt).toISOString(), key });
  return `${fields.slice(0, -1)},"payload":${payload}}`;
}

/** Whether events of a request that has failed may be stored. The service says so in its code; without one nobody knows. */
function mayHaveStored(error: Error): boolean {
  if (error instanceof TidemarkError && error.code !== '') return error.code === UNKNOWN;
  const { cause } = error;
  return !(typeof cause === 'object' && cause !== null && 'code' in cause && NOT_SENT.has(cause.code));
}

/** Whether a batch is too large, for the service or for a proxy before it, or refused whole: a smaller one may be taken. */
function isTooLarge(status: number, error: Error): boolean {
  return status === 413 || (status === 400 && error instanceof TidemarkError && error.code !== '');
}

function errorOfRefusal(status: number, error: Error): TidemarkError {
  return error instanceof TidemarkError ? error : errorOf(status, null);
}

/** @throws RangeError for a name or a key that the service refuses */
function checkText(what: string, text: string): void {
  if (typeof text !== 'string') throw new TypeError(`The ${what} must be a string.`);
  const isLong = text.length > LONGEST_NAME && [...text].length > LONGEST_NAME;
  if (text === '' || isLong) throw new RangeError(`The ${what} must have 1 to ${LONGEST_NAME} characters.`);
  if (/\p{Cs}/u.test(text)) throw new RangeError(`The ${what} must not contain a lone surrogate.`);
  if (what === 'type' && text.includes('\0')) throw new RangeError('The type must not contain NUL.');
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
