/**
 * Event ids: UUIDv7 (RFC 9562, 5.7), monotonic within the process even if the clock steps back; and UUIDv8 made of what
 * identifies the event, where its producer names that.
 */
import { hash, randomFillSync } from 'node:crypto';
import type { EventSource } from '../storage/write/accepted-event.ts';

const POOL_BYTES = 8_192;
const RANDOM_BYTES_PER_ID = 10;
const COUNTER_MAX = 0xfff;
const TEXT_BYTES = 36;
const DASH = 0x2d;
const ZERO = 0x30;
const A = 0x61;

const HEX = Buffer.from('0123456789abcdef');

/**
 * Creates a generator of UUIDv7. Within one millisecond the 12 bits after the version count up from a random start
 * (RFC 9562, 6.2, method 1). If they overflow, the time in the id moves ahead of the clock; if the clock steps back, that
 * time stays.
 *
 * The 62 random bits come from a pool, which saves a system call per id. The text is built as bytes: a concatenated string
 * would keep its parts in memory, ten times its size.
 */
export function createEventIds(): (now: number) => string {
  const pool = Buffer.alloc(POOL_BYTES);
  const text = Buffer.alloc(TEXT_BYTES, DASH);
  let offset = POOL_BYTES;
  /** Time of the last id, which is still in the text. -1 before the first id, because 0 is a valid time. */
  let time = -1;
  let counter = 0;

  const advance = (now: number): void => {
    if (now > time) {
      time = now;
    } else if (counter < COUNTER_MAX) {
      counter += 1;
      return;
    } else {
      time += 1;
    }
    // The start leaves at least half of the counter's range for this millisecond.
    counter = ((random(8) << 8) | random(9)) & 0x7ff;
    const hex = time.toString(16).padStart(12, '0');
    text.write(`${hex.slice(0, 8)}-${hex.slice(8)}-7`, 'latin1');
  };
  const random = (index: number): number => pool[offset + index] ?? 0;
  const write = (at: number, byte: number): void => {
    text[at] = HEX[byte >> 4] ?? 0;
    text[at + 1] = HEX[byte & 0xf] ?? 0;
  };

  return (now) => {
    if (offset + RANDOM_BYTES_PER_ID > POOL_BYTES) {
      randomFillSync(pool);
      offset = 0;
    }
    advance(now);
    text[15] = HEX[counter >> 8] ?? 0;
    write(16, counter & 0xff);
    write(19, (random(0) & 0x3f) | 0x80);
    write(21, random(1));
    for (let index = 2; index < 8; index += 1) write(20 + 2 * index, random(index));
    offset += RANDOM_BYTES_PER_ID;
    return text.toString('latin1');
  };
}

/**
 * The id of an event with a key: the same for the same app, type, time and key, however often and wherever it is sent.
 *
 * The digest has no secret in it: SECRET can be lost or replaced, and with other ids every retry would be stored again. None
 * is needed, as the unique index has the app: a client that knows all four can compute the id, but only the app's own token can
 * store it. App and type go in by their public ids, which restores, renames and replays of the journal keep.
 * @param key without lone surrogates, which have no UTF-8
 */
export function keyedEventId(createdAt: number, { appId, typeId }: EventSource, key: string): string {
  // PostgreSQL's text has no NUL, so that no two of these are the same text. The key, which may have some, is the last.
  return uuidOfDigest(createdAt, hash('sha256', `key\0${appId}\0${typeId}\0${createdAt}\0${key}`));
}

/**
 * A UUIDv8 (RFC 9562, 5.8) of the 48 bits of a time in milliseconds, as in UUIDv7, and 74 bits of a digest.
 * @param digest hexadecimal, at least 19 digits
 */
function uuidOfDigest(time: number, digest: string): string {
  const start = time.toString(16).padStart(12, '0');
  const variant = '89ab'.charAt(Number.parseInt(digest.charAt(3), 16) & 3);
  return `${start.slice(0, 8)}-${start.slice(8)}-8${digest.slice(0, 3)}-${variant}${digest.slice(4, 7)}-${digest.slice(7, 19)}`;
}

/** The bytes of {@link uuidOfDigest}. */
export function writeUuidOfDigest(time: number, digest: string, id: Buffer): void {
  id.writeUIntBE(time, 0, 6);
  id[6] = 0x80 | digitAt(digest, 0);
  id[7] = (digitAt(digest, 1) << 4) | digitAt(digest, 2);
  id[8] = 0x80 | ((digitAt(digest, 3) & 3) << 4) | digitAt(digest, 4);
  for (let at = 9; at < 16; at += 1) {
    const digit = 2 * at - 13;
    id[at] = (digitAt(digest, digit) << 4) | digitAt(digest, digit + 1);
  }
}

function digitAt(hex: string, index: number): number {
  const code = hex.charCodeAt(index);
  return code < A ? code - ZERO : code - A + 10;
}
