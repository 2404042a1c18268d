/** Keys of events: they identify an event that is sent again among those of the same app, type and time. */
import { hash } from 'node:crypto';

const MAX_KEY_CHARACTERS = 200;

const LONE_SURROGATE = /\p{Surrogate}/u;

/** A text as a key: itself where a key may be like this, else its digest. */
export function eventKey(text: string): string {
  const isKey = text.length <= MAX_KEY_CHARACTERS && !LONE_SURROGATE.test(text) && !text.includes('\0');
  return isKey ? text : `sha256:${hash('sha256', Buffer.from(text, 'utf16le'), 'base64url')}`;
}
