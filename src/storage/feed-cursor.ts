/**
 * A position in the feed: what had been committed at a moment, as PostgreSQL's own snapshot has it.
 *
 * Batches commit out of order and in several processes, so no time and no id of an event says what a reader has had. A
 * snapshot does: the transactions from `xmax` on, and those of `running`, had not ended; all others had. Whatever is
 * committed later is not in it, however early its rows were made.
 */

export interface Position {
  /** When it was taken, or a moment before: milliseconds since 1970. */
  readonly at: number;
  /** The first transaction that had not begun, in the 64 bits in which PostgreSQL never repeats one. */
  readonly xmax: bigint;
  /** The transactions before it that had not ended. */
  readonly running: readonly bigint[];
}

/** Longest id of a message: it comes back in a header, and uWebSockets.js takes 4 KiB of headers in all. */
const MAX_ID_LENGTH = 1_500;

/** The id of messages whose position is too long, which is no position: who comes back with it starts anew. */
const NO_POSITION = 'anew';

/** @param snapshot the text of pg_current_snapshot() */
export function parseSnapshot(snapshot: string, at: number): Position {
  const [, xmax = '0', running = ''] = snapshot.split(':');
  return { at, xmax: BigInt(xmax), running: running === '' ? [] : running.split(',').map(BigInt) };
}

/** A position as the id of a message: any process can go on from it. */
export function encodePosition({ at, xmax, running }: Position): string {
  const distances = running.map((transaction) => (xmax - transaction).toString(36));
  const id = `${at.toString(36)}.${xmax.toString(36)}.${distances.join('-')}`;
  return id.length > MAX_ID_LENGTH ? NO_POSITION : id;
}

const ID = /^([0-9a-z]{1,9})\.([0-9a-z]{1,12})\.((?:[0-9a-z]{1,12}(?:-[0-9a-z]{1,12})*)?)$/;

/** @returns null for a text that is no position */
export function decodePosition(id: string): Position | null {
  if (id.length > MAX_ID_LENGTH) return null;
  const [, at, xmaxText, distances] = ID.exec(id) ?? [];
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
