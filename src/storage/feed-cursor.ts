/**
 * A cursor of the live feed: what had been committed at a moment, as PostgreSQL's own snapshot describes it.
 *
 * Transactions commit out of order and in several processes, so neither a time nor the id of an event tells what a client
 * has received. A snapshot does: the transactions from `xmax` on, and those of `running`, had not ended; all others had.
 * Whatever is committed later is not in it, however early its rows were written.
 */

export interface FeedCursor {
  /** When it was taken, or a moment before: milliseconds since 1970. */
  readonly at: number;
  /** The first transaction that had not begun, in the 64 bits in which PostgreSQL never repeats one. */
  readonly xmax: bigint;
  /** The transactions before it that had not ended. */
  readonly running: readonly bigint[];
}

/** Longest text: it comes back in a header, and uWebSockets.js takes 4 KiB of headers in all. */
const MAX_LENGTH = 1_500;

/** In place of a cursor that is too long. It decodes to no cursor: a client that resumes with it starts again. */
const TOO_LONG = 'reset';

/** @param snapshot the text of pg_current_snapshot() */
export function feedCursorOf(snapshot: string, at: number): FeedCursor {
  const [, xmax = '0', running = ''] = snapshot.split(':');
  return { at, xmax: BigInt(xmax), running: running === '' ? [] : running.split(',').map(BigInt) };
}

/** A cursor as the id of a message: any process can resume from it. */
export function encodeFeedCursor({ at, xmax, running }: FeedCursor): string {
  const distances = running.map((transaction) => (xmax - transaction).toString(36));
  const text = `${at.toString(36)}.${xmax.toString(36)}.${distances.join('-')}`;
  return text.length > MAX_LENGTH ? TOO_LONG : text;
}

const CURSOR = /^([0-9a-z]{1,9})\.([0-9a-z]{1,12})\.((?:[0-9a-z]{1,12}(?:-[0-9a-z]{1,12})*)?)$/;

/** @returns null for a text that is no cursor */
export function decodeFeedCursor(text: string): FeedCursor | null {
  if (text.length > MAX_LENGTH) return null;
  const [, at, xmaxText, distances] = CURSOR.exec(text) ?? [];
  if (at === undefined || xmaxText === undefined || distances === undefined) return null;
  const xmax = fromBase36(xmaxText);
  const running = distances === '' ? [] : distances.split('-').map((distance) => xmax - fromBase36(distance));
  if (running.some((transaction) => transaction < 0n)) return null;
  return { at: Number.parseInt(at, 36), xmax, running };
}

function fromBase36(text: string): bigint {
  let value = 0n;
  for (const digit of text) value = value * 36n + BigInt(Number.parseInt(digit, 36));
  return value;
}
