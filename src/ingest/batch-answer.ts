/** The response to a batch: one result per event, in the order of the request. */
import { Rejection } from '../errors.ts';
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
  let stored = 0;
  let texts = '';
  // A type's id may come from a restored backup, so it is escaped: once per type.
  const typeTexts = new Map(
    [...publicIds].map(([id, publicId]) => [id, `","typeId":${JSON.stringify(publicId)},"timestamp":"`]),
  );
  for (const result of results) {
    if (texts !== '') texts += ',';
    if (result instanceof Rejection) {
      texts += JSON.stringify(result.fields());
    } else {
      const { id, typeId, createdAt } = result;
      const end = repeated.size > 0 && repeated.has(result) ? '","repeated":true}' : '"}';
      texts += `{"eventId":"${id}${typeTexts.get(typeId)}${timestamp(createdAt)}${end}`;
      stored += 1;
    }
  }
  const refused = results.length - stored;
  return {
    status: refused === 0 ? 200 : 207,
    body: `{"success":${refused === 0},"stored":${stored},"refused":${refused},"results":[${texts}]}`,
  };
}
