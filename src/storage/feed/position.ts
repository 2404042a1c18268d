/** Positions of consumers in an app's events in commit order. */

/** An event among those of its tick. */
export interface EventKey {
  /**
   * The lower 32 bits of its transaction; `minute` where rows do not tell theirs, and the whole minute is read; `history` for
   * events that were stored before the consumer began, in order of time.
   */
  readonly by: number | 'minute' | 'history';
  /** As PostgreSQL writes it. */
  readonly createdAt: string;
  /** Empty: before all events of the time. */
  readonly id: string;
}

export interface FeedPosition {
  /** Everything up to this tick is behind, unless `after` is in history: then what the tick's snapshot has after it is not. */
  readonly tick: string;
  /** The last event that is behind, too; null: none beyond the tick. */
  readonly after: EventKey | null;
}

/** The position as an opaque text. It is filled up to whole groups of three bytes. */
export function encodePosition(position: FeedPosition): string {
  const text = jsonOf(position);
  return Buffer.from(text + '  '.slice((text.length + 2) % 3), 'latin1').toString('base64url');
}

/** No part of it has a character that JSON escapes. */
function jsonOf({ tick, after }: FeedPosition): string {
  if (after === null) return `["${tick}"]`;
  const by = typeof after.by === 'number' ? after.by : `"${after.by}"`;
  return `["${tick}",${by},"${after.createdAt}","${after.id}"]`;
}

const UUID = /^(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?$/;
const TIME = /^\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?\+00$/;

/** @returns null if the text is not a position */
export function decodePosition(text: string): FeedPosition | null {
  let parts: unknown;
  try {
    parts = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
  if (!Array.isArray(parts)) return null;
  const [tick, by, createdAt, id] = parts as readonly unknown[];
  if (typeof tick !== 'string' || !/^-?\d{1,19}$/.test(tick)) return null;
  if (parts.length === 1) return { tick, after: null };
  if (parts.length !== 4 || typeof createdAt !== 'string' || typeof id !== 'string') return null;
  if (!TIME.test(createdAt) || !UUID.test(id)) return null;
  const isXid = typeof by === 'number' && Number.isInteger(by) && by >= 0 && by < 2 ** 32;
  if (!isXid && by !== 'minute' && by !== 'history') return null;
  return { tick, after: { by, createdAt, id } };
}

/** Order of two positions of a consumer: negative if the first comes before the second. */
export function comparePositions(a: FeedPosition, b: FeedPosition): number {
  if (a.tick !== b.tick) return BigInt(a.tick) < BigInt(b.tick) ? -1 : 1;
  const byKind = rank(a.after) - rank(b.after);
  if (byKind !== 0 || a.after === null || b.after === null) return byKind;
  if (typeof a.after.by === 'number' && typeof b.after.by === 'number' && a.after.by !== b.after.by)
    return (a.after.by - b.after.by) | 0;
  const [x, y] = [`${a.after.createdAt} ${a.after.id}`, `${b.after.createdAt} ${b.after.id}`];
  return x < y ? -1 : x > y ? 1 : 0;
}

function rank(after: EventKey | null): number {
  if (after === null) return 1;
  return after.by === 'history' ? 0 : after.by === 'minute' ? 2 : 3;
}
