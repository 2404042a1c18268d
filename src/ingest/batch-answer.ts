/** The answer to a batch: one result for each event, in the order in which they were sent. */
import { Rejection } from '../errors.ts';
import { type AcceptedEvent, timestamp } from '../storage/write/accepted-event.ts';
import type { KeptAnswer } from '../storage/write/keyed-writer.ts';

/** What is answered of an event: that it is stored, or why it is not. */
export type Result = AcceptedEvent | Rejection;

/**
 * 200 where every event is stored, 207 where some or none are.
 * @param publicIds the event types' public ids by the internal ones
 */
export function batchAnswer(results: readonly Result[], publicIds: ReadonlyMap<number, string>): KeptAnswer {
  let stored = 0;
  let texts = '';
  // A type's id is of our own making, but may have come by a restore: it is escaped, once.
  const typeTexts = new Map(
    [...publicIds].map(([id, publicId]) => [id, `","typeId":${JSON.stringify(publicId)},"timestamp":"`]),
  );
  for (const result of results) {
    if (texts !== '') texts += ',';
    if (result instanceof Rejection) {
      texts += JSON.stringify(result.fields());
    } else {
      const { id, typeId, createdAt } = result;
      texts += `{"eventId":"${id}${typeTexts.get(typeId)}${timestamp(createdAt)}"}`;
      stored += 1;
    }
  }
  const refused = results.length - stored;
  return {
    status: refused === 0 ? 200 : 207,
    body: `{"success":${refused === 0},"stored":${stored},"refused":${refused},"results":[${texts}]}`,
  };
}
