/**
 * A cursor of the live feed: a snapshot of PostgreSQL, which says what was committed at a time.
 *
 * Transactions commit out of order and in several processes, so neither a time nor the id of an event shows what a client
 * has received. A snapshot does: the transactions from `xmax` on, and those in `running`, had not ended; all others had.
 * Rows that are committed later are not in it, however early they were written.
 */

export interface FeedCursor {
  /** When it was taken, or shortly before: milliseconds since 1970. */
  readonly at: number;
  /** The first transaction that had not begun, as a 64-bit id, which is never reused. */
  readonly xmax: bigint;
  /** The transactions before it that had not ended. */
  readonly running: readonly bigint[];
  /** Where the app was: transactions are numbered on each node of a cluster. 0 on one server. */
  readonly place: number;
}

/** Limit of the text: it is sent back in a header, and uWebSockets.js accepts 4 KiB of headers. */
const MAX_LENGTH = 1_500;

/** Replaces a cursor that is too long. It does not decode: a client that resumes with it is reset. */
const TOO_LONG = 'reset';

/** @param snapshot the text of pg_current_snapshot() */
export function feedCursorOf(snapshot: string, at: number, place = 0): FeedCursor {
  const [, xmax = '0', running = ''] = snapshot.split(':');
  return { at, xmax: BigInt(xmax), running: running === '' ? [] : running.split(',').map(BigInt), place };
}

/** The cursor as the id of a message, from which any process can resume. */
export function encodeFeedCursor({ at, xmax, running, place }: FeedCursor): string {
  const distances = running.map((transaction) => (xmax - transaction).toString(36));
  const where = place === 0 ? '' : `.${place.toString(36)}`;
  const text = `${at.toString(36)}.${xmax.toString(36)}.${distances.join('-')}${where}`;
  return text.length > MAX_LENGTH ? TOO_LONG : text;
}

const CURSOR =
  /^([0-9a-z]{1,9})\.([0-9a-z]{1,12})\.((?:[0-9a-z]{1,12}(?:-[0-9a-z]{1,12})*)?)(?:\.([0-9a-z]{1,10}))?$/;

/** @returns null if the text is not a cursor */
export function decodeFeedCursor(text: string): FeedCursor | null {
  if (text.length > MAX_LENGTH) return null;
  const [, at, xmaxText, distances, place = '0'] = CURSOR.exec(text) ?? [];
  if (at === undefined || xmaxText === undefined || distances === undefined) return null;
  const xmax = fromBase36(xmaxText);
  const running = distances === '' ? [] : distances.split('-').map((distance) => xmax - fromBase36(distance));
  if (running.some((transaction) => transaction < 0n)) return null;
  return { at: Number.parseInt(at, 36), xmax, running, place: Number.parseInt(place, 36) };
}

function fromBase36(text: string): bigint {
  let value = 0n;
  for (const digit of text) value = value * 36n + BigInt(Number.parseInt(digit, 36));
  return value;
}
