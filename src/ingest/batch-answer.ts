/** The answer to a batch: one result for each event, in the order in which they were sent. */
import { Rejection } from '../http/rejection.ts';
import { timestamp } from './event-writer.ts';

export interface StoredEvent {
  readonly eventId: string;
  /** Public id of its type. */
  readonly typeId: string;
  /** Milliseconds since the epoch. */
  readonly createdAt: number;
}

export type Result = StoredEvent | Rejection;

/** 200 where every event is stored, 207 where some or none are. */
export function batchAnswer(results: readonly Result[]): { readonly status: number; readonly body: string } {
  let stored = 0;
  let texts = '';
  // A type's id is of our own making, but may have come by a restore: it is escaped, once.
  const typeTexts = new Map<string, string>();
  for (const result of results) {
    if (texts !== '') texts += ',';
    if (result instanceof Rejection) {
      texts += JSON.stringify(result.fields());
    } else {
      const { eventId, typeId, createdAt } = result;
      const typeText = typeTexts.get(typeId) ?? JSON.stringify(typeId);
      typeTexts.set(typeId, typeText);
      texts += `{"eventId":"${eventId}","typeId":${typeText},"timestamp":"${timestamp(createdAt)}"}`;
      stored += 1;
    }
  }
  const refused = results.length - stored;
  return {
    status: refused === 0 ? 200 : 207,
    body: `{"success":${refused === 0},"stored":${stored},"refused":${refused},"results":[${texts}]}`,
  };
}
