/** Numbers identical lines of one import: the first, the second and so on, in bounded memory. */
import { OperatorError } from '../../errors.ts';

/** Interval of `createdAt`. Identical lines have the same time, so each interval has a table of its own. */
const INTERVAL_MS = 600_000;
/** Limit of remembered lines: about 60 bytes each, 120 MB in total. */
const MAX_REMEMBERED_LINES = 2_000_000;
/**
 * Hexadecimal digits of a digest that are remembered: the 52 bits that a number stores exactly. Lines that collide in them
 * are numbered as identical; their ids still differ in the rest of the digest.
 */
const FINGERPRINT_DIGITS = 13;
const ZERO = 0x30;
const NINE = 0x39;
const A = 0x61;

/** Fingerprint of a line → number of occurrences. */
type Table = Map<number, number>;

/**
 * Above the limit, the least recently used interval is dropped. A file sorted by time never returns to a dropped interval.
 * A file that does is refused, because identical lines could no longer be counted.
 */
export class Occurrences {
  readonly #ceiling: number;
  /** Least recently used first. */
  readonly #tables = new Map<number, Table>();
  readonly #forgotten = new Set<number>();
  /** The interval of the last line, and its table. */
  #current = Number.NaN;
  #table: Table = new Map();
  #remembered = 0;

  /** @param ceiling different lines that are remembered at a time */
  constructor(ceiling = MAX_REMEMBERED_LINES) {
    this.#ceiling = ceiling;
  }

  /** Number of remembered lines. */
  get remembered(): number {
    return this.#remembered;
  }

  /**
   * @param createdAt milliseconds since the Unix epoch
   * @param digest    hexadecimal, of what makes lines identical
   * @returns 1 for the first line with this digest
   * @throws OperatorError if the input is not sorted enough for its size
   */
  count(createdAt: number, digest: string): number {
    const table = this.#tableOf(Math.floor(createdAt / INTERVAL_MS));
    const fingerprint = fingerprintOf(digest);
    const number = (table.get(fingerprint) ?? 0) + 1;
    if (number === 1) this.#makeRoom();
    table.set(fingerprint, number);
    return number;
  }

  #tableOf(interval: number): Table {
    if (interval === this.#current) return this.#table;
    if (this.#forgotten.has(interval)) throw this.#refusal('returns to events of', interval, 'sort');
    const table = this.#tables.get(interval) ?? new Map();
    this.#current = interval;
    this.#table = table;
    this.#tables.delete(interval);
    this.#tables.set(interval, table);
    return table;
  }

  /** Makes room for one more line. */
  #makeRoom(): void {
    this.#remembered += 1;
    if (this.#remembered <= this.#ceiling) return;
    for (const [interval, table] of this.#tables) {
      if (interval === this.#current) throw this.#refusal('has too many events of', interval, 'split');
      this.#tables.delete(interval);
      this.#forgotten.add(interval);
      this.#remembered -= table.size;
      return;
    }
  }

  #refusal(what: string, interval: number, remedy: 'sort' | 'split'): OperatorError {
    const [from, until] = [interval, interval + 1].map((n) => new Date(n * INTERVAL_MS).toISOString());
    return new OperatorError(
      `the file ${what} ${from} to ${until}, and more than ${this.#ceiling} different lines cannot be remembered to ` +
        `number identical ones: ${remedy} the file by createdAt and import it again; what is stored is then skipped`,
    );
  }
}

/** The last digits as a number. */
function fingerprintOf(digest: string): number {
  let fingerprint = 0;
  for (let at = digest.length - FINGERPRINT_DIGITS; at < digest.length; at += 1) {
    const code = digest.charCodeAt(at);
    fingerprint = 16 * fingerprint + (code > NINE ? code - A + 10 : code - ZERO);
  }
  return fingerprint;
}
