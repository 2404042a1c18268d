/**
 * Newline-delimited events that are more than a batch: they are stored in parts while they arrive. The connection is not read
 * while a part is being committed and enough for the next one is there.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { atOnce, inSlices, TimeSlice } from '../base/time-slice.ts';
import { countLines, type Decoded, decoded, unnamedEncoding } from '../base/utf8.ts';
import { LookupBusy } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import { type TakenLines, TOO_LONG } from '../http/arriving-lines.ts';
import { ENCODINGS } from '../http/compressed-body.ts';
import type { Answer, Exchange } from '../http/exchange.ts';
import type { AnswerStream } from '../http/stream.ts';
import { skipSpace } from '../json/lexer.ts';
import type { Limiter } from '../limits/limiter.ts';
import { isUnavailable } from '../storage/database/connect.ts';
import { type AcceptedEvent, isKeyed } from '../storage/write/accepted-event.ts';
import type { Outcomes, WriteOutcome } from '../storage/write/event-writer.ts';
import { UNAVAILABLE } from '../storage/write/failures.ts';
import {
  type AcceptSteps,
  acceptEvents,
  noteStored,
  OVERDUE,
  repeatedOf,
  resultsOf,
} from './accepted-batch.ts';
import { type BatchReport, batchAnswer, LINES_TYPE, type Result, Tally } from './batch-answer.ts';
import { admitBytes } from './byte-limit.ts';
import { overLimit } from './create-event.ts';
import { EventReader, NO_EVENTS, tooLarge } from './formats/collect.ts';
import { resultForm } from './formats/events.ts';
import type { EventLimits, Events, Reader } from './formats/format.ts';
import { FULL } from './queue/commit-buffer.ts';
import type { AcceptedEvents, WriteQueues } from './queue/write-queues.ts';
import type { RefusedEvents } from './refused-events.ts';

export interface StoreLinesSteps extends AcceptSteps {
  readonly queues: WriteQueues;
  readonly limiter: Limiter;
  /** Changes when the database becomes another one. */
  readonly epoch: () => number;
  readonly refusedEvents: RefusedEvents;
  /** Limit of a batch in bytes, after decompression. */
  readonly maxBytes: number;
  readonly limits: EventLimits;
}

/** Events that are committed at a time: as many as one app has in a commit group before others have their turn. */
const PART_EVENTS = 1_000;
/** Characters of a body that is there already which are given at a time. */
const WHOLE_CHARACTERS = 1_048_576;
/** How often, and after how many milliseconds, a part is tried again for which the commit buffer has no room. */
const ROOM_TRIES = 200;
const ROOM_PAUSE_MS = 50;

const LATE = new Rejection('invalidBody', 'The next line did not arrive in time.');
const GONE = new Rejection('unavailable', 'The client closed the connection.');

const NO_BYTES = Buffer.alloc(0);

/** Where lines come from, a few at a time. */
export interface LineSource {
  take(): Promise<TakenLines | Decoded>;
}

/** The lines of a body that has arrived. */
export class WholeLines implements LineSource {
  readonly #text: string;
  readonly #damage: Decoded['damage'];
  #at = 0;

  constructor({ text, damage }: Decoded) {
    this.#text = text;
    this.#damage = damage;
  }

  async take(): Promise<TakenLines | Decoded> {
    const start = this.#at;
    if (start >= this.#text.length) return null;
    // One pass: places are counted in the whole text.
    if (this.#damage !== null) {
      this.#at = this.#text.length;
      return { text: this.#text, damage: this.#damage };
    }
    const feed = this.#text.indexOf('\n', start + WHOLE_CHARACTERS);
    this.#at = feed < 0 ? this.#text.length : feed + 1;
    return this.#text.slice(start, this.#at);
  }
}

/** Whether a text has more lines than a batch may have events. Blank ones do not count. */
export function hasMoreLines(text: string, most: number): boolean {
  let lines = 0;
  for (let at = skipSpace(text, 0); at < text.length; lines += 1) {
    if (lines === most) return true;
    const feed = text.indexOf('\n', at);
    if (feed < 0) return false;
    at = skipSpace(text, feed);
  }
  return false;
}

/** Stores the events of a request whose token and rate limit have been checked. */
export async function storeLines(
  steps: StoreLinesSteps,
  exchange: Exchange,
  { appId, lines, read }: { readonly appId: number; readonly lines: LineSource; readonly read: Reader },
): Promise<Answer | Rejection> {
  const reporter = resultForm(exchange) === 'lines' ? new LineReporter(exchange) : new CountsReporter();
  const work = new LongBatch(steps, { exchange, appId, read, reporter });
  const refusal = await work.storeAll(lines);
  return refusal === null ? reporter.end() : await reporter.fail(refusal);
}

/** How the outcomes of events are reported to the client. */
interface Reporter {
  readonly tally: Tally;
  /** Reports the next events. @returns false if the client has disconnected */
  report(report: BatchReport): Promise<boolean>;
  end(): Answer;
  /** @param refusal with the fields of {@link LongBatch} */
  fail(refusal: Rejection): Promise<Answer | Rejection>;
}

class LongBatch {
  readonly #steps: StoreLinesSteps;
  readonly #exchange: Exchange;
  readonly #appId: number;
  readonly #read: Reader;
  readonly #reporter: Reporter;
  /** What has come since the rate limiter counted the request: as much as a batch counts once. */
  #events = 0;
  #bytes = 0;
  /** Number of the next line. */
  #line = 1;

  constructor(
    steps: StoreLinesSteps,
    request: { exchange: Exchange; appId: number; read: Reader; reporter: Reporter },
  ) {
    this.#steps = steps;
    this.#exchange = request.exchange;
    this.#appId = request.appId;
    this.#read = request.read;
    this.#reporter = request.reporter;
  }

  /** @returns why not all events were stored or refused for good; with how many were, so that the client sends the rest */
  async storeAll(lines: LineSource): Promise<Rejection | null> {
    try {
      for (;;) {
        this.#exchange.late = this.#refusal(LATE);
        const taken = await lines.take();
        if (taken === null) return this.#done === 0 ? NO_EVENTS : null;
        const refusal = taken instanceof Rejection ? this.#refusal(taken) : await this.#storeTaken(taken);
        if (refusal !== null) return refusal;
      }
    } catch (error) {
      if (error instanceof LookupBusy) return this.#refusal(error.rejection);
      if (isUnavailable(error)) return this.#refusal(UNAVAILABLE);
      throw error;
    }
  }

  async #storeTaken(taken: string | Buffer | Decoded | typeof TOO_LONG): Promise<Rejection | null> {
    const { accounts, limits, now } = this.#steps;
    if (taken === TOO_LONG) {
      this.#line += 1;
      return await this.#storePart([tooLarge(limits)]);
    }
    const packed = this.#line === 1 && Buffer.isBuffer(taken) ? unnamedEncoding(taken, ENCODINGS) : null;
    if (packed !== null) return this.#refusal(packed);
    const holder = accounts.holderOf(this.#appId);
    const isText = typeof taken === 'string' || Buffer.isBuffer(taken);
    const body = isText ? await inSlices(decoded(taken, this.#line), new TimeSlice(holder)) : taken;
    const exchange = this.#exchange;
    const hold = (more: number): Rejection | null => exchange.hold(more);
    const sent = { ...body, bytes: NO_BYTES, receivedAt: now(), limits, hold };
    const reader = new EventReader(this.#read(sent), limits, holder);
    this.#bytes += body.text.length;
    this.#line += countLines(body.text);
    while (reader.end === undefined) {
      const part = await reader.take(Math.min(PART_EVENTS, limits.maxEvents));
      const refusal = part.length === 0 ? null : await this.#storePart(part);
      if (refusal !== null) return refusal;
    }
    return reader.end instanceof Rejection ? this.#refusal(reader.end) : null;
  }

  async #storePart(events: Events): Promise<Rejection | null> {
    const steps = this.#steps;
    const exchange = this.#exchange;
    const epoch = steps.epoch();
    const refusal = await this.#count(events.length);
    if (refusal !== null) return this.#refusal(refusal);
    const batch = await acceptEvents(steps, this.#appId, events);
    if (batch instanceof Rejection) return this.#refusal(batch);
    const full = await admitBytes(steps, this.#appId, batch.accepted);
    if (full !== null) return this.#refusal(full);
    if (epoch !== steps.epoch()) return this.#refusal(UNAVAILABLE);
    // The response at the deadline said that nothing more is stored.
    if (exchange.settled) return GONE;
    exchange.late = this.#refusal(OVERDUE);
    const outcomes = await storeWithRoom(steps.queues, exchange, batch);
    noteStored(steps, batch, outcomes);
    const outcomeOf = (_: unknown, index: number): WriteOutcome => outcomes[index] ?? null;
    const results = resultsOf(batch, outcomeOf);
    const at = results.findIndex(isRetryable);
    // What may pass is sent again, from there on.
    steps.refusedEvents.count(exchange, at < 0 ? results : results.slice(0, at));
    exchange.progressed();
    const { publicIds } = batch;
    return await this.#report({ results, publicIds, repeated: repeatedOf(batch, outcomeOf) });
  }

  async #report(report: BatchReport): Promise<Rejection | null> {
    const { results } = report;
    const at = results.findIndex(isRetryable);
    const refusal = results[at];
    // What may pass ends the request here: the events after it would be refused as well.
    const resumeAt = this.#done + at;
    if (!(await this.#reporter.report(report))) return GONE;
    return refusal instanceof Rejection ? this.#refusal(refusal, resumeAt) : null;
  }

  /** A request of many events counts as the batches do that it stands for. */
  async #count(events: number): Promise<Rejection | null> {
    const { limits, limiter, maxBytes } = this.#steps;
    this.#events += events;
    while (this.#events > limits.maxEvents || this.#bytes > maxBytes) {
      this.#events = Math.max(0, this.#events - limits.maxEvents);
      this.#bytes = Math.max(0, this.#bytes - maxBytes);
      const decision = await limiter.take(this.#appId);
      this.#exchange.rateLimit = decision;
      if (decision?.accepted === false) return overLimit(decision);
    }
    return null;
  }

  /** Events that are stored, or refused. */
  get #done(): number {
    const { stored, refused } = this.#reporter.tally;
    return stored + refused;
  }

  /** The refusal of what is not done. @param resumeAt index of the first event that is to be sent again */
  #refusal(refusal: Rejection, resumeAt = this.#done): Rejection {
    const { stored, refused, errors } = this.#reporter.tally;
    const { reason, details, headers } = refusal;
    return new Rejection(reason, details, { headers, fields: { stored, refused, resumeAt, errors } });
  }
}

/** Stores events, where there is no room for them as soon as there is: they wait at their sender. */
async function storeWithRoom(
  queues: WriteQueues,
  exchange: Exchange,
  batch: AcceptedEvents,
): Promise<Outcomes> {
  const outcomes = [...(await queues.storeApart(batch))];
  for (let tries = 0; tries < ROOM_TRIES && !exchange.settled; tries += 1) {
    const indexes = [...outcomes.keys()].filter((index) => outcomes[index] === FULL);
    if (indexes.length === 0) break;
    await wait(ROOM_PAUSE_MS);
    const accepted = indexes.flatMap((index) => batch.accepted[index] ?? []);
    const past = indexes.filter((index) => index < batch.past).length;
    const again = await queues.storeApart(partOf(accepted, past));
    for (const [at, index] of indexes.entries()) outcomes[index] = again[at] ?? FULL;
  }
  return outcomes;
}

function partOf(accepted: readonly AcceptedEvent[], past: number): AcceptedEvents {
  return { accepted, past: Math.max(0, past), keyed: accepted.filter(isKeyed).length };
}

/** Stores the events of a request that has more than a batch, a part at a time. Where all of a part fail that may pass, so do the rest. */
export async function storeInParts(
  queues: WriteQueues,
  exchange: Exchange,
  { accepted, past }: AcceptedEvents,
): Promise<Outcomes> {
  const outcomes: WriteOutcome[] = [];
  for (let at = 0; at < accepted.length; at += PART_EVENTS) {
    const part = accepted.slice(at, at + PART_EVENTS);
    const stored = await storeWithRoom(queues, exchange, partOf(part, Math.min(past - at, part.length)));
    outcomes.push(...stored);
    exchange.progressed();
    const failed = stored.every((one) => one instanceof Rejection && one.isRetryable) ? stored[0] : null;
    const rest = exchange.settled ? GONE : failed;
    if (rest instanceof Rejection) return [...outcomes, ...accepted.slice(outcomes.length).map(() => rest)];
  }
  return outcomes;
}

/** Reports at the end how many events are stored and refused. */
class CountsReporter implements Reporter {
  readonly tally = new Tally();

  async report({ results }: BatchReport): Promise<boolean> {
    this.tally.add(results);
    return true;
  }

  end(): Answer {
    return { status: this.tally.refused === 0 ? 200 : 207, body: this.tally.text };
  }

  async fail(refusal: Rejection): Promise<Rejection> {
    return refusal;
  }
}

/** Reports each event in a line, while the rest still arrives. The client has to read while it sends. */
class LineReporter implements Reporter {
  readonly tally = new Tally();
  readonly #exchange: Exchange;
  #stream: AnswerStream | null = null;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
  }

  async report(report: BatchReport): Promise<boolean> {
    const { results } = report;
    this.tally.add(results);
    // Until something is stored the whole request can be refused.
    if (this.tally.stored === 0 && results.some(isRetryable)) return true;
    this.#stream ??= this.#exchange.begin(LINES_TYPE);
    await this.#stream?.send(Buffer.from(atOnce(batchAnswer(report, 'lines')).body));
    return this.#stream?.isClosed === false;
  }

  end(): Answer {
    return { status: 200, body: '' };
  }

  async fail(refusal: Rejection): Promise<Answer | Rejection> {
    if (this.#stream === null) return refusal;
    const retryAfter = refusal.headers['Retry-After'];
    const line = {
      ...refusal.fields(),
      ...(retryAfter !== undefined && { retryAfterSeconds: Number(retryAfter) }),
    };
    await this.#stream.send(Buffer.from(`${JSON.stringify(line)}\n`));
    return this.end();
  }
}

/** Whether an event was refused, and may be stored later. */
function isRetryable(result: Result): boolean {
  return result instanceof Rejection && result.isRetryable;
}
