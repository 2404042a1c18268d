/** The response to a batch: one result per event, in the order of the request. */

import type { TimeSlice } from '../base/time-slice.ts';
import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import { type AcceptedEvent, timestamp } from '../storage/write/accepted-event.ts';
import type { KeptAnswer } from '../storage/write/idempotent-writer.ts';

/** The result of an event: the stored event, or its refusal. */
export type Result = AcceptedEvent | Rejection;

/** What the answer to a batch reports. */
export interface ToldResults {
  readonly results: readonly Result[];
  /** The event types' public ids by the internal ones. */
  readonly publicIds: ReadonlyMap<number, string>;
  /** Events whose keys were stored before. */
  readonly repeated: ReadonlySet<Result>;
}

/** 200 if every event is stored, else 207. */
export function batchAnswer(told: ToldResults): KeptAnswer {
  const texts = new ResultTexts(told, ',');
  for (const result of told.results) texts.add(result);
  return texts.answer();
}

/** The same for a batch that is so large that others have turns of the event loop meanwhile. */
export async function batchAnswerInTurns(told: ToldResults, slices: TimeSlice): Promise<KeptAnswer> {
  const texts = new ResultTexts(told, ',');
  await texts.addAll(slices);
  return texts.answer();
}

/** The media type of {@link resultLines}. */
export const LINES_TYPE = 'application/x-ndjson';

/** The same as {@link batchAnswer} as newline-delimited JSON: a line per result. */
export function resultLines(told: ToldResults): Answer & { readonly body: string } {
  const texts = new ResultTexts(told, '\n');
  for (const result of told.results) texts.add(result);
  return texts.lines();
}

/** The same as {@link batchAnswerInTurns}. */
export async function resultLinesInTurns(told: ToldResults, slices: TimeSlice): Promise<Answer> {
  const texts = new ResultTexts(told, '\n');
  await texts.addAll(slices);
  return texts.lines();
}

/** Errors that an answer with totals instead of results names. */
const FIRST_ERRORS = 10;

/** What became of events: how many are stored, how many refused, and the first refusals with the index of their event. */
export class Tally {
  stored = 0;
  refused = 0;
  readonly errors: object[] = [];

  /** Adds the results of the next events. */
  add(results: readonly Result[]): void {
    const first = this.stored + this.refused;
    for (const [at, result] of results.entries()) {
      if (!(result instanceof Rejection)) this.stored += 1;
      else if (this.refused++ < FIRST_ERRORS) this.errors.push({ index: first + at, ...result.fields() });
    }
  }

  /** The body of a response. */
  get text(): string {
    const { stored, refused, errors } = this;
    return JSON.stringify({ success: refused === 0, stored, refused, errors });
  }
}

/**
 * For clients that take any status of 2xx for success, and some of them 200 alone: the numbers, and the first refusals with
 * the index of their event. They must not send again what can never be stored, so this is 200 whatever was refused.
 */
export function countsAnswer(results: readonly Result[]): Answer {
  const tally = new Tally();
  tally.add(results);
  return { status: 200, body: tally.text };
}

class ResultTexts {
  readonly #results: readonly Result[];
  readonly #repeated: ReadonlySet<Result>;
  readonly #separator: string;
  /** A type's id may come from a restored backup, so it is escaped: once per type. */
  readonly #typeTexts: ReadonlyMap<number, string>;
  #stored = 0;
  #texts = '';

  constructor({ results, publicIds, repeated }: ToldResults, separator: string) {
    this.#results = results;
    this.#repeated = repeated;
    this.#separator = separator;
    this.#typeTexts = new Map(
      [...publicIds].map(([id, publicId]) => [id, `","typeId":${JSON.stringify(publicId)},"timestamp":"`]),
    );
  }

  add(result: Result): void {
    if (this.#texts !== '') this.#texts += this.#separator;
    if (result instanceof Rejection) {
      this.#texts += JSON.stringify(result.fields());
      return;
    }
    const { id, typeId, createdAt } = result;
    const end = this.#repeated.size > 0 && this.#repeated.has(result) ? '","repeated":true}' : '"}';
    this.#texts += `{"eventId":"${id}${this.#typeTexts.get(typeId)}${timestamp(createdAt)}${end}`;
    this.#stored += 1;
  }

  async addAll(slices: TimeSlice): Promise<void> {
    for (const result of this.#results) {
      this.add(result);
      if (slices.isOverAfterStep) await slices.next();
    }
  }

  answer(): KeptAnswer {
    const refused = this.#results.length - this.#stored;
    return {
      status: refused === 0 ? 200 : 207,
      body: `{"success":${refused === 0},"stored":${this.#stored},"refused":${refused},"results":[${this.#texts}]}`,
    };
  }

  lines(): Answer & { readonly body: string } {
    const status = this.#stored === this.#results.length ? 200 : 207;
    return { status, body: `${this.#texts}\n`, contentType: LINES_TYPE };
  }
}
