/** Numbers identical lines of one import: the first, the second and so on, in bounded memory. */
import { OperatorError } from '../../errors.ts';

/** Of `createdAt`. Identical lines have the same time, so each interval has a table of its own. */
const INTERVAL_MS = 600_000;
/** Different lines that are remembered at a time. One takes about 60 bytes, all of them 120 MB. */
const MAX_REMEMBERED_LINES = 2_000_000;
/**
 * Hexadecimal digits of a digest that are remembered: the 52 bits that a number holds exactly. Two lines that agree in them
 * are numbered as identical ones; their ids still differ, by the rest of the digest.
 */
const FINGERPRINT_DIGITS = 13;

/** Fingerprint of a line → how often the line has come. */
type Table = Map<number, number>;

/**
 * Above the ceiling, the interval that has not come for longest is forgotten. A file that is sorted by time, of any size,
 * never returns to it. A file that does return is refused: an identical line could not be told from a new one.
 */
export class Occurrences {
  readonly #ceiling: number;
  /** Least recent first. */
  readonly #tables = new Map<number, Table>();
  readonly #forgotten = new Set<number>();
  #current = Number.NaN;
  #remembered = 0;

  /** @param ceiling different lines that are remembered at a time */
  constructor(ceiling = MAX_REMEMBERED_LINES) {
    this.#ceiling = ceiling;
  }

  /** Different lines that are remembered now. */
  get remembered(): number {
    return this.#remembered;
  }

  /**
   * @param createdAt milliseconds since 1970
   * @param digest    hexadecimal, of what makes lines identical
   * @returns 1 for the first line with this digest
   * @throws OperatorError where the input is too large for its order
   */
  count(createdAt: number, digest: string): number {
    const interval = Math.floor(createdAt / INTERVAL_MS);
    const table = this.#tableOf(interval);
    const fingerprint = Number.parseInt(digest.slice(-FINGERPRINT_DIGITS), 16);
    const number = (table.get(fingerprint) ?? 0) + 1;
    if (number === 1) this.#makeRoom();
    table.set(fingerprint, number);
    return number;
  }

  #tableOf(interval: number): Table {
    if (this.#forgotten.has(interval)) throw this.#refusal('returns to events of', interval, 'sort');
    const table = this.#tables.get(interval) ?? new Map();
    if (interval === this.#current) return table;
    this.#current = interval;
    this.#tables.delete(interval);
    this.#tables.set(interval, table);
    return table;
  }

  /** For one more line. */
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
