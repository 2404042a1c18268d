/**
 * Reads through the rows of a scope in the order of the index, some thousand at a time. Each step is a statement with a
 * snapshot of its own that ends within {@link STEP_TIMEOUT_MS}: whoever waits between two steps holds nothing.
 *
 * A step reads an interval of few days, so that few partitions are planned; the interval grows while it finds few rows.
 * How many rows a step may read shrinks where they are large or slow to read, and grows again.
 */
import { errorCode, type Sql, type Transaction } from './connect.ts';
import { readAppSpan } from './counts/app-stats.ts';
import type { Fragment } from './counts/exact-counts.ts';
import type { Interval } from './counts/intervals.ts';
import { DAY_MS } from './counts/levels.ts';
import type { Order } from './event-page.ts';
import { readBoundary } from './retention.ts';
import { readSnapshot } from './snapshot.ts';

/** Between two events: after the one of this time and id. */
export interface Position {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly id: string;
}

export interface ScanRequest {
  /** Internal id of the app. */
  readonly appId: number;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  readonly from: number | null;
  readonly until: number | null;
  readonly order: Order;
  /** Null: from the first event of the scope. */
  readonly after: Position | null;
}

/** Texts of which a payload's text contains at least one. */
export type TextTest = readonly string[];

/** Which payloads are wanted. */
export interface RowFilter {
  /** What every such payload contains: the cheap test, which the database makes. It takes no NUL and no lone surrogates. */
  readonly contains: readonly TextTest[];
  /** The exact test of a payload's text. */
  readonly matches: (payload: string) => boolean;
}

export interface StepLimits {
  readonly rows: number;
  readonly bytes: number;
}

/** What a step reads: rows `id, type_id, created_at, payload` in order. */
export interface StepRows {
  readonly page: Fragment;
  readonly rows: number;
  /** True where the sizes of the rows allow to read them all at once. */
  readonly fits: Fragment;
}

/** The last row that a step has looked at, and how many they were; null where the sizes did not fit. */
export interface StepEnd {
  readonly looked: number;
  readonly lastId: string | null;
  readonly lastAt: Date | null;
}

/** A step is canceled after this time, and tried again with fewer rows. */
export const STEP_TIMEOUT_MS = 2_000;
const FIRST_ROWS = 2_000;
/** With more, a step is no cheaper by the row. */
const MAX_ROWS = 10_000;
/** With more days, planning costs more than empty intervals. */
const MAX_DAYS = 64;

const CANCELED = '57014';
const FIRST_ID = '00000000-0000-0000-0000-000000000000';
const LAST_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

export class EventScan {
  readonly #sql: Sql;
  readonly #request: ScanRequest;
  /** Null until the first step. */
  #rest: Interval | null = null;
  #position: Position | null;
  #rows = FIRST_ROWS;
  #days = 1;

  constructor(sql: Sql, request: ScanRequest) {
    this.#sql = sql;
    this.#request = request;
    this.#position = request.after;
  }

  /** Up to where everything has been looked at; null where nothing has been. */
  get position(): Position | null {
    return this.#position;
  }

  /** Whether there is nothing left to look at. Known after the first step. */
  get isAtEnd(): boolean {
    return this.#rest !== null && this.#rest.from >= this.#rest.until;
  }

  /**
   * Reads on.
   * @param most what to look at at most: rows, at least 1; and bytes of payloads, if it is more than one row
   * @param read     the statement, over rows of any type; it must look at each of them unless they do not fit
   * @returns null at the end of the scope; what was read may hold no rows
   */
  async step<T extends StepEnd>(
    most: StepLimits,
    read: (tx: Transaction, rows: StepRows) => Promise<T | null>,
  ): Promise<T | null> {
    const rest = await this.#restOfScope();
    if (rest.from >= rest.until) return null;
    const interval = this.#nextInterval(rest);
    for (;;) {
      const rows = Math.min(this.#rows, most.rows);
      const outcome = await this.#read(interval, { rows, bytes: most.bytes }, read);
      if (outcome === null) {
        this.#rows = Math.max(1, rows >> 2);
        continue;
      }
      this.#advance(interval, rows, outcome);
      return outcome;
    }
  }

  /** What has not been read. Ends that the request leaves open are those of the events that there are now. */
  async #restOfScope(): Promise<Interval> {
    if (this.#rest !== null) return this.#rest;
    const { appId, from, until, order, after } = this.#request;
    const isOpen = from === null || until === null;
    const [boundary, span] = await Promise.all([
      readBoundary(this.#sql),
      isOpen ? readAppSpan(this.#sql, appId) : null,
    ]);
    const first = from ?? span?.firstEventAt?.getTime() ?? 0;
    const end = until ?? (span?.lastEventAt?.getTime() ?? -1) + 1;
    this.#rest =
      order === 'asc'
        ? { from: Math.max(first, boundary, beginOfRest(after)), until: end }
        : { from: Math.max(first, boundary), until: Math.min(end, endOfRest(after)) };
    return this.#rest;
  }

  /** From where the scan is, a few whole days. */
  #nextInterval({ from, until }: Interval): Interval {
    const length = this.#days * DAY_MS;
    return this.#request.order === 'asc'
      ? { from, until: Math.min(until, (Math.floor(from / DAY_MS) + 1) * DAY_MS + length - DAY_MS) }
      : { from: Math.max(from, (Math.ceil(until / DAY_MS) - 1) * DAY_MS - length + DAY_MS), until };
  }

  /** @returns null where it was too much at once */
  async #read<T extends StepEnd>(
    interval: Interval,
    { rows, bytes }: StepLimits,
    read: (tx: Transaction, rows: StepRows) => Promise<T | null>,
  ): Promise<T | null> {
    try {
      return await readSnapshot(this.#sql, async (tx) => {
        const limited = tx.unsafe(`SET LOCAL statement_timeout = ${STEP_TIMEOUT_MS}`).execute();
        const page = this.#page(tx, interval, rows);
        const [outcome] = await Promise.all([
          read(tx, { page, rows, fits: fits(tx, page, { rows, bytes }) }),
          limited,
        ]);
        return outcome;
      });
    } catch (error) {
      if (errorCode(error) !== CANCELED || rows === 1) throw error;
      return null;
    }
  }

  /** Rows of all types: of a rare one the statement would look at more rows than it returns. */
  #page(tx: Transaction, { from, until }: Interval, rows: number): Fragment {
    const { appId, order } = this.#request;
    const [inOrder, beyond] =
      order === 'asc' ? [tx`ORDER BY created_at, id`, tx`>`] : [tx`ORDER BY created_at DESC, id DESC`, tx`<`];
    const position = this.#position;
    const after =
      position === null
        ? tx``
        : tx`AND (created_at, id) ${beyond} (${position.at}::timestamptz, ${position.id}::uuid)`;
    return tx`
      SELECT id, type_id, created_at, payload FROM events
       WHERE app_id = ${appId} AND created_at >= ${from} AND created_at < ${until} ${after}
         AND created_at >= (SELECT readable_from FROM retention)
       ${inOrder} LIMIT ${rows}`;
  }

  #advance(interval: Interval, rows: number, { looked, lastId, lastAt }: StepEnd): void {
    const isAscending = this.#request.order === 'asc';
    const rest = this.#rest ?? interval;
    if (looked === rows && lastId !== null && lastAt !== null) {
      const at = lastAt.getTime();
      this.#position = { at, id: lastId };
      this.#rest = isAscending ? { ...rest, from: at } : { ...rest, until: at + 1 };
      this.#days = 1;
      this.#rows = Math.min(MAX_ROWS, this.#rows * 2);
      return;
    }
    // The interval is done, whatever position the next one begins with.
    this.#position = isAscending
      ? { at: interval.until - 1, id: LAST_ID }
      : { at: interval.from, id: FIRST_ID };
    this.#rest = isAscending ? { ...rest, from: interval.until } : { ...rest, until: interval.from };
    this.#days = Math.min(MAX_DAYS, looked * 4 < rows ? this.#days * 4 : this.#days);
  }
}

/** The first millisecond after a position that may hold rows. Of one at the end of an interval that is the next one. */
function beginOfRest(after: Position | null): number {
  if (after === null) return 0;
  return after.id === LAST_ID ? after.at + 1 : after.at;
}

/** The same for descending order: the end of what may hold rows, exclusive. */
function endOfRest(after: Position | null): number {
  if (after === null) return Number.POSITIVE_INFINITY;
  return after.id === FIRST_ID ? after.at : after.at + 1;
}

/**
 * Whether the payloads of a page are few enough bytes. The length of one that is not compressed is known without reading
 * it; the others are inflated for it.
 */
function fits(tx: Transaction, page: Fragment, { rows, bytes }: StepLimits): Fragment {
  if (rows === 1) return tx`true`;
  return tx`
    (SELECT coalesce(sum(CASE WHEN pg_column_compression(payload) IS NULL THEN pg_column_size(payload)
                              ELSE octet_length(payload::text) END), 0) <= ${bytes} FROM (${page}) sizes)`;
}

/** The condition that a text passes the cheap tests. */
export function passes(tx: Transaction, text: Fragment, tests: readonly TextTest[]): Fragment {
  let condition = tx`true`;
  for (const test of tests) {
    let anyOf = tx`false`;
    for (const part of test) anyOf = tx`${anyOf} OR strpos(${text}, ${part}) > 0`;
    condition = tx`${condition} AND (${anyOf})`;
  }
  return condition;
}
