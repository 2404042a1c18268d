/** The response to a batch: one result per event, in the order of the request. */

import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import { type AcceptedEvent, timestamp } from '../storage/write/accepted-event.ts';
import type { KeptAnswer } from '../storage/write/idempotent-writer.ts';

/** The result of an event: the stored event, or its refusal. */
export type Result = AcceptedEvent | Rejection;

/** What became of the events of a batch. */
export interface BatchReport {
  readonly results: readonly Result[];
  /** The event types' public ids by the internal ones. */
  readonly publicIds: ReadonlyMap<number, string>;
  /** Events whose keys were stored before. */
  readonly repeated: ReadonlySet<Result>;
}

/** The media type of results that are written one a line. */
export const LINES_TYPE = 'application/x-ndjson';

/** How results are written: as one document with totals, or as newline-delimited JSON. */
export type ResultForm = 'document' | 'lines';

/** Results between two pauses. */
const RESULTS_AT_ONCE = 64;

/** The response to a batch: 200 if every event is stored, else 207. Yields where it may pause. */
export function* batchAnswer(
  { results, publicIds, repeated }: BatchReport,
  form: ResultForm = 'document',
): Generator<undefined, KeptAnswer & { readonly contentType?: string }> {
  const separator = form === 'lines' ? '\n' : ',';
  // A type's id may come from a restored backup, so it is escaped: once per type.
  const typeTexts = new Map(
    [...publicIds].map(([id, publicId]) => [id, `","typeId":${JSON.stringify(publicId)},"timestamp":"`]),
  );
  let stored = 0;
  let texts = '';
  let written = 0;
  for (const result of results) {
    if (written > 0) texts += separator;
    written += 1;
    if (result instanceof Rejection) {
      texts += JSON.stringify(result.fields());
    } else {
      const { id, typeId, createdAt } = result;
      const end = repeated.size > 0 && repeated.has(result) ? '","repeated":true}' : '"}';
      texts += `{"eventId":"${id}${typeTexts.get(typeId)}${timestamp(createdAt)}${end}`;
      stored += 1;
    }
    if (written % RESULTS_AT_ONCE === 0) yield;
  }
  const refused = results.length - stored;
  const status = refused === 0 ? 200 : 207;
  if (form === 'lines') return { status, body: `${texts}\n`, contentType: LINES_TYPE };
  const totals = `"success":${refused === 0},"stored":${stored},"refused":${refused}`;
  return { status, body: `{${totals},"results":[${texts}]}` };
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
