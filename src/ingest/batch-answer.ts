/** The response to a batch: one result per event, in the order of the request. */
import { Rejection } from '../errors.ts';
import type { Answer } from '../http/exchange.ts';
import { type AcceptedEvent, timestamp } from '../storage/write/accepted-event.ts';
import type { KeptAnswer } from '../storage/write/keyed-writer.ts';

/** The result of an event: the stored event, or its refusal. */
export type Result = AcceptedEvent | Rejection;

const NONE: ReadonlySet<Result> = new Set();

/**
 * 200 if every event is stored, else 207.
 * @param publicIds the event types' public ids by the internal ones
 * @param repeated  events whose keys were stored before
 */
export function batchAnswer(
  results: readonly Result[],
  publicIds: ReadonlyMap<number, string>,
  repeated: ReadonlySet<Result> = NONE,
): KeptAnswer {
  const { texts, stored } = resultTexts({ results, publicIds, repeated }, ',');
  const refused = results.length - stored;
  return {
    status: refused === 0 ? 200 : 207,
    body: `{"success":${refused === 0},"stored":${stored},"refused":${refused},"results":[${texts}]}`,
  };
}

/** The media type of {@link resultLines}. */
export const LINES_TYPE = 'application/x-ndjson';

/** The same as newline-delimited JSON: a line per result. */
export function resultLines(
  results: readonly Result[],
  publicIds: ReadonlyMap<number, string>,
  repeated: ReadonlySet<Result>,
): Answer {
  const { texts, stored } = resultTexts({ results, publicIds, repeated }, '\n');
  return { status: stored === results.length ? 200 : 207, body: `${texts}\n`, contentType: LINES_TYPE };
}

/** Errors that an answer names which does not tell of every event. */
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

function resultTexts(
  told: {
    readonly results: readonly Result[];
    readonly publicIds: ReadonlyMap<number, string>;
    readonly repeated: ReadonlySet<Result>;
  },
  separator: string,
): { readonly texts: string; readonly stored: number } {
  const { results, publicIds, repeated } = told;
  let stored = 0;
  let texts = '';
  // A type's id may come from a restored backup, so it is escaped: once per type.
  const typeTexts = new Map(
    [...publicIds].map(([id, publicId]) => [id, `","typeId":${JSON.stringify(publicId)},"timestamp":"`]),
  );
  for (const result of results) {
    if (texts !== '') texts += separator;
    if (result instanceof Rejection) {
      texts += JSON.stringify(result.fields());
    } else {
      const { id, typeId, createdAt } = result;
      const end = repeated.size > 0 && repeated.has(result) ? '","repeated":true}' : '"}';
      texts += `{"eventId":"${id}${typeTexts.get(typeId)}${timestamp(createdAt)}${end}`;
      stored += 1;
    }
  }
  return { texts, stored };
}
