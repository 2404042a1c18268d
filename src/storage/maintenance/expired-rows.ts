/**
 * Removes the rows that the retention of an app or a type hides. The boundary has moved first (retention.ts), so that nobody reads them
 * any more, but snapshots that are older: these keep them, as rows are deleted and no table is dropped that had some for them.
 *
 * Rows go in slices, for a part of each second. What was removed is noted when all before a boundary is gone; after a crash the rest of
 * it is looked through again. An event that a writer had accepted before the boundary moved may come later: with each move the day
 * before is looked through once more.
 */

import { grouped } from '../../base/grouped.ts';
import { ALL_TYPES, DAY_MS } from '../counts/levels.ts';
import type { Fragment, Sql, Transaction } from '../database/connect.ts';
import { saysNodeUnreachable } from '../database/nodes.ts';
import { selectUncounted } from '../fields/uncounted-minutes.ts';
import type { TypeScope } from '../retention.ts';

/** Expired rows of an app: of all types, of all but some, or of one. */
export interface ExpiredPart extends TypeScope {
  readonly appId: number;
  /** As PostgreSQL reads it. */
  readonly from: string;
  /** Not included; the start of a UTC day. */
  readonly until: string;
}

/**
 * Removes rows of a part, in slices that are transactions of their own, oldest first.
 * @param isOver asked after each slice: whether to stop
 * @returns where to go on; null where nothing is left
 */
export type RemoveExpired = (sql: Sql, part: ExpiredPart, isOver: () => boolean) => Promise<string | null>;

/** Time of a second for the removal; and of ten minutes where it begins. */
export const REMOVE_ROWS_MS = 250;

/** The advisory lock of whoever removes rows; it is shared by those who want them to stay, as a copy of the database. */
export const KEEP_ROWS = 'tidemark keep rows';

/**
 * Moves rows, unless somebody wants them to stay.
 * @param sql a pool of one connection: its session holds the lock, as slices are transactions of their own
 * @returns null where somebody does
 */
export async function unlessKept<T>(sql: Sql, work: () => Promise<T>): Promise<{ readonly value: T } | null> {
  const [lock] = await sql<{ held: boolean }[]>`
    SELECT pg_try_advisory_lock(hashtext(${KEEP_ROWS})) AS held`;
  if (lock?.held !== true) return null;
  try {
    return { value: await work() };
  } finally {
    await sql`SELECT pg_advisory_unlock(hashtext(${KEEP_ROWS}))`;
  }
}

/** How far before what was removed a later removal begins. */
const MARGIN_MS = DAY_MS;

interface Boundary {
  readonly appId: number;
  readonly typeId: number;
  readonly readableFrom: number;
  readonly removedUntil: number;
  /** Whether it has moved within the last day. */
  readonly isNew: boolean;
}

/** What is to be removed of a boundary. */
interface Due {
  readonly boundary: Boundary;
  readonly parts: ExpiredPart[];
}

export class ExpiredRows {
  readonly #sql: Sql;
  readonly #remove: RemoveExpired;
  readonly #now: () => number;
  #due: Due[] = [];

  constructor(sql: Sql, remove: RemoveExpired, now: () => number) {
    this.#sql = sql;
    this.#remove = remove;
    this.#now = now;
  }

  get hasSome(): boolean {
    return this.#due.length > 0;
  }

  /** Looks for boundaries that have moved. */
  async look(): Promise<void> {
    const rows = await this.#sql<Boundary[]>`
      SELECT app_id AS "appId", type_id AS "typeId", ${ms(this.#sql, 'readable_from')} AS "readableFrom",
             ${ms(this.#sql, 'removed_until')} AS "removedUntil", moved_at > now() - interval '1 day' AS "isNew"
        FROM app_boundaries ORDER BY app_id, type_id`;
    const [all] = await this.#sql<
      { at: number }[]
    >`SELECT ${ms(this.#sql, 'readable_from')} AS at FROM retention`;
    const known = new Set(this.#due.map(({ boundary }) => keyOf(boundary)));
    const byApp = grouped(rows, ({ appId }) => appId);
    for (const boundary of rows) {
      if (boundary.removedUntil >= boundary.readableFrom || known.has(keyOf(boundary))) continue;
      if (boundary.isNew && (await isUncounted(this.#sql, boundary))) continue;
      this.#due.push({ boundary, parts: expired(boundary, byApp.get(boundary.appId) ?? [], all?.at ?? 0) });
    }
  }

  /** Removes some, unless somebody wants them to stay. @param until time of the clock: no further slice begins after it */
  async removeSome(until: number): Promise<void> {
    if (this.#due.length > 0) await unlessKept(this.#sql, () => this.#removeDue(until));
  }

  async #removeDue(until: number): Promise<void> {
    const isOver = (): boolean => this.#now() >= until;
    for (let left = this.#due.length; left > 0 && !isOver(); left -= 1) {
      const [due] = this.#due;
      if (due === undefined) return;
      const isDone = await this.#removeOf(due, isOver).catch((error: unknown) => {
        if (!saysNodeUnreachable(error)) throw error;
        return false;
      });
      this.#due.shift();
      // Rows of other apps come first: this one may wait for a node, or for something that is changed all the time.
      if (!isDone) this.#due.push(due);
    }
  }

  /** @returns whether all of it is gone */
  async #removeOf({ boundary, parts }: Due, isOver: () => boolean): Promise<boolean> {
    for (let part = parts[0]; part !== undefined; part = parts[0]) {
      const rest = await this.#remove(this.#sql, part, isOver);
      if (rest !== null) {
        parts[0] = { ...part, from: rest };
        return false;
      }
      parts.shift();
    }
    const { appId, typeId, readableFrom } = boundary;
    await this.#sql`
      UPDATE app_boundaries SET removed_until = ${new Date(readableFrom)}
       WHERE app_id = ${appId} AND type_id = ${typeId} AND readable_from >= ${new Date(readableFrom)}`;
    return true;
  }
}

/** Whether declared fields are yet to be counted from rows before a boundary. */
async function isUncounted(sql: Sql, { appId, readableFrom }: Boundary): Promise<boolean> {
  const [field] = await sql`
    SELECT FROM declared_fields WHERE app_id = ${appId} AND removed_at IS NULL AND generation > 0 LIMIT 1`;
  if (field === undefined) return false;
  const rows = await sql`
    SELECT FROM (${selectUncounted(sql, appId)}) AS minutes WHERE bucket < ${new Date(readableFrom)} LIMIT 1`;
  return rows.length > 0;
}

function keyOf({ appId, typeId, readableFrom }: Boundary): string {
  return `${appId} ${typeId} ${readableFrom}`;
}

/**
 * What a boundary has made unreadable. As long as no type of the app can be read, rows are removed whatever their type is: whole segments
 * of a columnstore go.
 * @param ofApp all boundaries of the app
 * @param all   that of all apps, before which partitions are dropped
 */
function expired({ appId, typeId, ...at }: Boundary, ofApp: readonly Boundary[], all: number): ExpiredPart[] {
  const own = ofApp.filter((boundary) => boundary.typeId !== ALL_TYPES);
  const until = at.readableFrom;
  const from = Math.max(all, at.removedUntil - MARGIN_MS, 0);
  const part = (types: TypeScope, start: number, end: number): ExpiredPart[] =>
    start < end
      ? [{ appId, ...types, from: new Date(start).toISOString(), until: new Date(end).toISOString() }]
      : [];
  if (typeId !== ALL_TYPES) return part({ typeIds: [typeId] }, from, until);
  const common = Math.min(until, ...own.map(({ readableFrom }) => readableFrom));
  return [
    ...part({ typeIds: null }, from, common),
    ...part({ typeIds: null, exceptTypes: own.map((one) => one.typeId) }, Math.max(from, common), until),
  ];
}

function ms(sql: Sql, column: string): Fragment {
  return sql`(extract(epoch FROM greatest(${sql(column)}, '1970-01-01Z')) * 1000)::float8`;
}

/** A condition on the types of rows, or of counts by type. */
export function isOfTypes(tx: Transaction, { typeIds, exceptTypes = [] }: TypeScope): Fragment {
  if (typeIds !== null) return tx`type_id = ANY(${[...typeIds]}::integer[])`;
  return exceptTypes.length === 0 ? tx`true` : tx`type_id <> ALL(${[...exceptTypes]}::integer[])`;
}

/** The rows of a slice, as a condition. */
export function isOfSlice(tx: Transaction, slice: ExpiredPart): Fragment {
  const { appId, from, until } = slice;
  return tx`app_id = ${appId} AND created_at >= ${from}::text::timestamptz AND created_at < ${until}::text::timestamptz
            AND ${isOfTypes(tx, slice)}`;
}

/**
 * The end of a slice of so many rows, and of what its last minute has beyond them.
 * @returns as PostgreSQL writes it; null where there are no more rows than that
 */
export async function sliceEnd(tx: Transaction, part: ExpiredPart, rows: number): Promise<string | null> {
  const [last] = await tx<{ end: string }[]>`
    SELECT (date_bin('1 minute', created_at, 'epoch') + interval '1 minute')::text AS end FROM events
     WHERE ${isOfSlice(tx, part)}
     ORDER BY created_at OFFSET ${rows - 1} LIMIT 1`;
  return last?.end ?? null;
}

/** Goes through a part slice by slice. @param removeSlice returns where the next one begins; null: it was the last */
export async function inSlices(
  part: ExpiredPart,
  isOver: () => boolean,
  removeSlice: (rest: ExpiredPart) => Promise<string | null>,
): Promise<string | null> {
  for (let from: string | null = part.from; ; ) {
    const next: string | null = await removeSlice({ ...part, from });
    if (next === null || isOver()) return next;
    from = next;
  }
}
