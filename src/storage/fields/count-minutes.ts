/**
 * Counts everything that is declared for an app from the rows of its minutes. Maintenance does so for minutes that have changed,
 * backfills and recounts for any; readers compute the same for the few minutes that are not counted yet, and comparisons write nothing.
 *
 * A minute is replaced by what its rows say. Coarser buckets are then what the finer ones say. So whatever is counted twice, late
 * or after an interruption comes to the same.
 */
import { ownText } from '../../base/own-text.ts';
import { utcDay } from '../../base/time-units.ts';
import { type Interval, startOfMonth } from '../counts/intervals.ts';
import {
  ALL_TYPES,
  ceilTo,
  DAYS,
  finerThan,
  floorTo,
  LEVELS,
  type Level,
  MINUTE_MS,
  startIn,
} from '../counts/levels.ts';
import { bytesArray } from '../database/array-types.ts';
import type { Fragment, Transaction } from '../database/connect.ts';
import { readRetention } from '../retention.ts';
import type { DeclaredField, FieldState } from './declared-fields.ts';
import { DistinctValues } from './distinct-values.ts';
import { type NumberParts, NumberSummary } from './number-summary.ts';
import { PayloadValues } from './payload-values.ts';
import { DISTINCT, MANY, NONE, NUMBERS, OTHER } from './value-text.ts';

/** Values of a field, or pairs of values, that are counted separately. All others are counted together. */
export const MAX_VALUES = 10_000;
/** How many of these may be new within a UTC day, but for a backfill. */
export const MAX_NEW_VALUES = 1_000;

/** Rows of one statement. */
const ROWS_AT_ONCE = 500;
const WRITTEN_AT_ONCE = 5_000;
/** Summaries that are in memory at once, as bytes. */
const SUMMARIES_AT_ONCE = 200;

/** What is kept of a field of a kind other than `value`. */
export type Summary = NumberSummary | DistinctValues;

/** What a series has in a bucket. */
export interface Cell {
  count: number;
  readonly summary: Summary | null;
}

/** What a series counts, within its field and type. */
export interface SeriesKey {
  /** The text of a value; {@link NUMBERS} or {@link DISTINCT} of a field of that kind. */
  readonly value: string;
  /** The text of the value at the declaration's other path; empty where it has none. */
  readonly by: string;
}

/** A cell with where it belongs. */
export interface CountedCell extends Cell, SeriesKey {
  readonly field: DeclaredField;
  /** {@link ALL_TYPES}: events of all types, or of the only one that the field has. */
  readonly typeId: number;
  /** The minute, milliseconds since 1970. */
  readonly bucket: number;
}

/** No text of JSON on one line has it. */
const SEPARATOR = '\n';

/** @param parts what of numbers is kept, by default all */
export function newSummary(kind: DeclaredField['kind'], parts?: NumberParts): Summary | null {
  if (kind === 'value') return null;
  return kind === 'number' ? new NumberSummary(parts) : new DistinctValues();
}

/** Adds one summary to another of the same kind. */
export function addSummary(into: Summary, other: Summary): void {
  if (into instanceof NumberSummary && other instanceof NumberSummary) into.add(other);
  if (into instanceof DistinctValues && other instanceof DistinctValues) into.add(other);
}

type Cells = Map<string, Cell>;

/** Computes what the rows of minutes say. */
export class MinuteCells {
  readonly #fields: readonly DeclaredField[];
  readonly #values: PayloadValues;
  /** Index of each field's other path among the paths; -1: none. */
  readonly #by: readonly number[];
  /** Minute → for each field: type → cells. */
  readonly #minutes = new Map<number, Map<number, Cells>[]>();
  #minute = Number.NaN;
  #current: Map<number, Cells>[] = [];

  constructor(fields: readonly DeclaredField[]) {
    this.#fields = fields;
    const withBy = fields.filter(({ by }) => by !== null);
    this.#by = fields.map((field) => (field.by === null ? -1 : fields.length + withBy.indexOf(field)));
    this.#values = new PayloadValues(
      [...fields.map(({ path }) => path), ...withBy.map(({ by }) => by ?? [])],
      [...fields.map(({ kind }) => kind), ...withBy.map(() => 'value' as const)],
    );
  }

  /** Adds the values of an event. */
  addRow({
    typeId,
    at,
    payload,
  }: {
    readonly typeId: number;
    readonly at: number;
    readonly payload: string;
  }): void {
    const minute = floorTo(at, MINUTE_MS);
    if (minute !== this.#minute) this.#begin(minute);
    const values = this.#values.read(payload);
    for (let index = 0; index < this.#fields.length; index += 1) {
      const field = this.#fields[index];
      if (field === undefined || (field.typeId !== null && field.typeId !== typeId)) continue;
      const value = values[index] ?? null;
      const by = this.#by[index] === -1 ? null : (values[this.#by[index] ?? 0] ?? null);
      // A pair of values without one of them tells how many events have the other.
      if (value === null && (field.kind !== 'value' || by === null)) continue;
      const own = field.kind === 'value' ? (value ?? NONE) : '';
      const key = field.by === null ? own : own + SEPARATOR + (by ?? NONE);
      this.#add(this.#cellOf(index, field, typeId, key), index, value);
    }
  }

  /** All cells, those of all types together included. */
  list(): CountedCell[] {
    const list: CountedCell[] = [];
    for (const [bucket, ofFields] of this.#minutes)
      for (const [index, ofTypes] of ofFields.entries()) {
        const field = this.#fields[index];
        if (field === undefined) continue;
        for (const [typeId, cells] of ofTypes)
          if (field.typeId === null)
            for (const [key, cell] of cells) list.push(counted(field, typeId, key, bucket, cell));
        for (const [key, cell] of together(field, [...ofTypes.values()]))
          list.push(counted(field, ALL_TYPES, key, bucket, cell));
      }
    return list;
  }

  #begin(minute: number): void {
    const known = this.#minutes.get(minute) ?? this.#fields.map(() => new Map<number, Cells>());
    this.#minutes.set(minute, known);
    this.#minute = minute;
    this.#current = known;
  }

  #cellOf(index: number, { kind }: DeclaredField, typeId: number, key: string): Cell {
    const ofTypes = this.#current[index] ?? new Map<number, Cells>();
    let cells = ofTypes.get(typeId);
    if (cells === undefined) {
      cells = new Map();
      ofTypes.set(typeId, cells);
    }
    let cell = cells.get(key);
    if (cell === undefined) {
      cell = { count: 0, summary: newSummary(kind) };
      cells.set(ownText(key), cell);
    }
    return cell;
  }

  #add(cell: Cell, index: number, value: string | null): void {
    const { summary } = cell;
    cell.count += 1;
    if (summary === null || value === null) return;
    if (summary instanceof DistinctValues)
      for (const one of this.#values.different(index)) summary.addValue(one);
    else if (value === MANY) summary.addSeveral();
    else summary.addNumber(value);
  }
}

function counted(field: DeclaredField, typeId: number, key: string, bucket: number, cell: Cell): CountedCell {
  const [value = '', by = ''] = key.split(SEPARATOR);
  const own = field.kind === 'value' ? value : field.kind === 'number' ? NUMBERS : DISTINCT;
  return { field, typeId, bucket, value: own, by, count: cell.count, summary: cell.summary };
}

/** The cells of several types as those of one. */
function together({ kind }: DeclaredField, ofTypes: readonly Cells[]): Cells {
  const [only] = ofTypes;
  if (ofTypes.length === 1 && only !== undefined) return only;
  const sums: Cells = new Map();
  for (const cells of ofTypes)
    for (const [key, { count, summary }] of cells) {
      const sum = sums.get(key) ?? { count: 0, summary: newSummary(kind) };
      sum.count += count;
      if (sum.summary !== null && summary !== null) addSummary(sum.summary, summary);
      sums.set(key, sum);
    }
  return sums;
}

/** Computes what the rows of an interval of whole minutes say. @returns how many rows it has looked at, too */
export async function cellsOfRows(
  tx: Transaction,
  appId: number,
  fields: readonly DeclaredField[],
  interval: Interval,
): Promise<{ readonly cells: readonly CountedCell[]; readonly rows: number }> {
  const minutes = new MinuteCells(fields);
  const retention = await readRetention(tx, appId);
  const rows = await addRows(tx, minutes, appId, interval, retention.readable(tx));
  return { cells: minutes.list(), rows };
}

/** Adds the rows of an interval that meet a condition. @returns how many there are */
async function addRows(
  tx: Transaction,
  minutes: MinuteCells,
  appId: number,
  { from, until }: Interval,
  condition: Fragment,
): Promise<number> {
  let count = 0;
  const rows = tx<{ typeId: number; at: number; payload: string }[]>`
    SELECT type_id AS "typeId", (extract(epoch FROM created_at) * 1000)::float8 AS at, payload::text AS payload
      FROM events
     WHERE app_id = ${appId} AND created_at >= ${new Date(from)} AND created_at < ${new Date(until)} AND ${condition}`;
  for await (const page of rows.cursor(ROWS_AT_ONCE)) {
    count += page.length;
    for (const row of page) minutes.addRow(row);
  }
  return count;
}

export interface CountedMinutes {
  /** Rows that were looked at. */
  readonly rows: number;
  /** Events that are counted as "other", and were not before. */
  readonly others: number;
}

/**
 * Makes the counts of an interval of whole minutes what its rows say, on every level.
 * @param tx     of repeatable read, with the fields locked (fields-lock.ts)
 * @param fields of the app
 * @param now    milliseconds since 1970: how many new values there may be depends on the day
 * @param hasHiddenRows whether what retention hides is counted, too, where its rows are still there
 */
export async function countMinutes(
  tx: Transaction,
  appId: number,
  fields: readonly FieldState[],
  interval: Interval,
  now: number,
  hasHiddenRows = false,
): Promise<CountedMinutes> {
  if (fields.length === 0) return { rows: 0, others: 0 };
  const { cells, rows } = await cellsOfRows(tx, appId, fields, interval);
  const stored = await readStored(tx, appId, fields, interval);
  const hidden = await hiddenCells(tx, appId, fields, interval, {
    stored: [...stored.values()],
    hasHiddenRows,
  });
  const wanted = await inSeries(tx, [...cells, ...hidden], now);
  const changed: StoredCell[] = [];
  let others = 0;
  for (const [key, cell] of wanted) {
    const before = stored.get(key);
    stored.delete(key);
    if (cell.isOther) others += Math.max(0, cell.count - (before?.count ?? 0));
    if (before === undefined || !isSame(before, cell)) changed.push(cell);
  }
  const gone = [...stored.values()];
  await writeCells(tx, appId, 'minute', changed);
  await deleteCells(tx, appId, gone);
  await rebuildLevels(tx, appId, interval, [...changed, ...gone], gone.length > 0);
  return { rows, others };
}

/**
 * What is counted of types that can no longer be read at that time, beside what the rows of other types say. There are no rows of them, or
 * soon none: a minute loses all of a type at once. So what was counted stays, but where the rows are more: then they are counted last.
 */
async function hiddenCells(
  tx: Transaction,
  appId: number,
  fields: readonly DeclaredField[],
  { from, until }: Interval,
  { stored, hasHiddenRows }: { readonly stored: readonly StoredCell[]; readonly hasHiddenRows: boolean },
): Promise<CountedCell[]> {
  const retention = await readRetention(tx, appId);
  const end = Math.min(until, retention.whole());
  if (from >= end) return [];
  const isHidden = ({ field, typeId, bucket }: CountedCell): boolean => {
    // A field for one type has its series under that of all.
    const type = field.typeId ?? typeId;
    return type !== ALL_TYPES && bucket < retention.boundaryOf(type);
  };
  const earlier = stored.filter(({ bucket }) => bucket < end);
  const series = await tx<{ id: number; fieldId: number; typeId: number; value: string; by: string }[]>`
    SELECT id, field_id AS "fieldId", type_id AS "typeId", value, by_value AS by FROM field_series
     WHERE id = ANY(${[...new Set(earlier.map(({ seriesId }) => seriesId))]}::integer[])`;
  const ofId = new Map(series.map((one) => [one.id, one]));
  const known = earlier.flatMap(({ seriesId, bucket, count, summary: bytes }): CountedCell[] => {
    const found = ofId.get(seriesId);
    const field = fields.find(({ id }) => id === found?.fieldId);
    if (found === undefined || field === undefined) return [];
    const summary = newSummary(field.kind);
    if (bytes !== null) summary?.addBytes(bytes);
    return [{ field, bucket, typeId: found.typeId, value: found.value, by: found.by, count, summary }];
  });
  const ofRows = new MinuteCells(fields);
  if (hasHiddenRows)
    await addRows(tx, ofRows, appId, { from, until: end }, tx`NOT ${retention.readable(tx)}`);
  const groups = new Map<string, { known: CountedCell[]; rows: CountedCell[] }>();
  const groupOf = ({ field, typeId, bucket }: CountedCell) => {
    const key = `${field.id} ${typeId} ${bucket}`;
    const group = groups.get(key) ?? { known: [], rows: [] };
    groups.set(key, group);
    return group;
  };
  for (const cell of known.filter(isHidden)) groupOf(cell).known.push(cell);
  for (const cell of ofRows.list().filter(isHidden)) groupOf(cell).rows.push(cell);
  const eventsOf = (cells: readonly CountedCell[]): number =>
    cells.reduce((sum, { count }) => sum + count, 0);
  return [...groups.values()]
    .flatMap((group) => (eventsOf(group.rows) > eventsOf(group.known) ? group.rows : group.known))
    .flatMap((cell) => (cell.field.typeId === null ? [cell, { ...cell, typeId: ALL_TYPES }] : [cell]));
}

export interface StoredCell {
  readonly seriesId: number;
  readonly bucket: number;
  readonly count: number;
  /** As bytes. */
  readonly summary: Uint8Array | null;
}

interface WantedCell extends StoredCell {
  readonly isOther: boolean;
}

/** A summary tells its own count. */
export function isSame(a: StoredCell, b: StoredCell): boolean {
  if (a.summary === null || b.summary === null) return a.summary === b.summary && a.count === b.count;
  return Buffer.compare(a.summary, b.summary) === 0;
}

/** The cells by series and bucket; makes the series that are missing. */
async function inSeries(
  tx: Transaction,
  cells: readonly CountedCell[],
  now: number,
): Promise<Map<string, WantedCell>> {
  const kept = await withRoom(tx, cells, now);
  const ids = await makeSeries(tx, kept);
  const found = new Map<string, WantedCell & { count: number; merged: Summary | null }>();
  for (const { field, typeId, value, by, bucket, count, summary } of kept) {
    const seriesId = ids.get(seriesName(field.id, typeId, value, by)) ?? 0;
    const key = `${seriesId} ${bucket}`;
    const known = found.get(key);
    if (known === undefined) {
      const isOther = typeId === ALL_TYPES && (value === OTHER || by === OTHER);
      found.set(key, { seriesId, bucket, count, summary: null, merged: summary, isOther });
    } else {
      known.count += count;
      if (known.merged !== null && summary !== null) {
        const sum = known.merged instanceof NumberSummary ? new NumberSummary() : new DistinctValues();
        addSummary(sum, known.merged);
        addSummary(sum, summary);
        known.merged = sum;
      }
    }
  }
  const wanted = [...found].map(
    ([key, { merged, ...cell }]) => [key, { ...cell, summary: merged?.toBytes() ?? null }] as const,
  );
  return new Map(wanted);
}

export function seriesName(fieldId: number, typeId: number, value: string, by: string): string {
  return `${fieldId} ${typeId} ${value}${SEPARATOR}${by}`;
}

const SPECIAL: ReadonlySet<string> = new Set([OTHER, MANY, NONE, NUMBERS, DISTINCT, '']);

/** Whether a value, or a pair, counts towards the number of those that are counted separately. */
export function isLimited({ value, by }: SeriesKey): boolean {
  return !(SPECIAL.has(value) && SPECIAL.has(by));
}

/** What is counted of a value beyond their number. */
export function otherKey({ kind, by }: Pick<DeclaredField, 'kind' | 'by'>, key: SeriesKey): SeriesKey {
  if (!isLimited(key)) return key;
  return { value: kind === 'value' ? OTHER : key.value, by: by === null ? '' : OTHER };
}

/** Gives the values of the oldest minutes room first; those for which there is none are counted as "other". */
async function withRoom(tx: Transaction, cells: readonly CountedCell[], now: number): Promise<CountedCell[]> {
  const limited = new Map<string, CountedCell>();
  for (const cell of cells) {
    if (cell.typeId !== ALL_TYPES || !isLimited(cell)) continue;
    const name = seriesName(cell.field.id, ALL_TYPES, cell.value, cell.by);
    const known = limited.get(name);
    if (known === undefined || cell.bucket < known.bucket) limited.set(name, cell);
  }
  if (limited.size === 0) return [...cells];
  const known = await findSeries(tx, [...limited.values()]);
  const unknown = [...limited].filter(([name]) => !known.has(name)).map(([, cell]) => cell);
  if (unknown.length === 0) return [...cells];
  unknown.sort((a, b) => a.bucket - b.bucket || (a.value + a.by < b.value + b.by ? -1 : 1));
  const full = new Set<string>();
  for (const field of new Set(unknown.map(({ field: one }) => one))) {
    const ofField = unknown.filter((cell) => cell.field === field);
    const room = await takeRoom(tx, field.id, ofField.length, now);
    for (const { value, by } of ofField.slice(room)) full.add(seriesName(field.id, ALL_TYPES, value, by));
  }
  if (full.size === 0) return [...cells];
  return cells.map((cell) =>
    full.has(seriesName(cell.field.id, ALL_TYPES, cell.value, cell.by))
      ? { ...cell, ...otherKey(cell.field, cell) }
      : cell,
  );
}

/** @returns for how many of the new values of a field there is room; notes that they are there */
async function takeRoom(tx: Transaction, fieldId: number, wanted: number, now: number): Promise<number> {
  const [row] = await tx<{ room: number }[]>`
    SELECT greatest(0, least(${MAX_VALUES} - known_values,
                             CASE WHEN backfill THEN ${MAX_VALUES}
                                  WHEN new_values_on < ${utcDay(now)}::date THEN ${MAX_NEW_VALUES}
                                  ELSE ${MAX_NEW_VALUES} - new_values END)) AS room
      FROM declared_fields WHERE id = ${fieldId}`;
  const made = Math.min(row?.room ?? 0, wanted);
  const isFull = made < wanted;
  await tx`
    UPDATE declared_fields
       SET known_values = known_values + ${made},
           new_values = CASE WHEN new_values_on < ${utcDay(now)}::date THEN 0 ELSE new_values END + ${made},
           new_values_on = greatest(new_values_on, ${utcDay(now)}::date),
           full_since = coalesce(full_since, CASE WHEN ${isFull} THEN ${new Date(now)}::timestamptz END)
     WHERE id = ${fieldId} AND (${made} > 0 OR full_since IS NULL)`;
  return made;
}

/** Name → id of the series of cells that there are. */
export async function findSeries(
  tx: Transaction,
  cells: readonly Pick<CountedCell, 'field' | 'typeId' | 'value' | 'by'>[],
): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (let from = 0; from < cells.length; from += WRITTEN_AT_ONCE) {
    const some = cells.slice(from, from + WRITTEN_AT_ONCE);
    const rows = await tx<{ id: number; fieldId: number; typeId: number; value: string; by: string }[]>`
      SELECT series.id, series.field_id AS "fieldId", series.type_id AS "typeId", series.value, series.by_value AS by
        FROM unnest(${some.map(({ field }) => field.id)}::integer[], ${some.map(({ typeId }) => typeId)}::integer[],
                    ${some.map(({ value }) => value)}::text[], ${some.map(({ by }) => by)}::text[])
               AS key (field_id, type_id, value, by_value)
        JOIN field_series AS series USING (field_id, type_id, value, by_value)`;
    for (const { id, fieldId, typeId, value, by } of rows)
      found.set(seriesName(fieldId, typeId, value, by), id);
  }
  return found;
}

/** Name → id of the series of cells; makes those that are missing. */
async function makeSeries(tx: Transaction, cells: readonly CountedCell[]): Promise<Map<string, number>> {
  const byName = new Map<string, CountedCell>();
  for (const cell of cells) byName.set(seriesName(cell.field.id, cell.typeId, cell.value, cell.by), cell);
  const known = await findSeries(tx, [...byName.values()]);
  const missing = [...byName].filter(([name]) => !known.has(name)).map(([, cell]) => cell);
  // Series of all types come first: whether they are complete tells the same of those of single types.
  missing.sort((a, b) => Number(a.typeId !== ALL_TYPES) - Number(b.typeId !== ALL_TYPES));
  for (let from = 0; from < missing.length; from += WRITTEN_AT_ONCE) {
    const some = missing.slice(from, from + WRITTEN_AT_ONCE);
    const made = await tx<{ id: number; fieldId: number; typeId: number; value: string; by: string }[]>`
      INSERT INTO field_series (field_id, type_id, value, by_value, is_complete)
      SELECT key.field_id, key.type_id, key.value, key.by_value,
             full_since IS NULL OR EXISTS (
               SELECT FROM field_series AS total
                WHERE total.field_id = key.field_id AND total.type_id = ${ALL_TYPES} AND total.value = key.value
                  AND total.by_value = key.by_value AND total.is_complete)
        FROM unnest(${some.map(({ field }) => field.id)}::integer[], ${some.map(({ typeId }) => typeId)}::integer[],
                    ${some.map(({ value }) => value)}::text[], ${some.map(({ by }) => by)}::text[])
               WITH ORDINALITY AS key (field_id, type_id, value, by_value, place)
        JOIN declared_fields AS field ON field.id = key.field_id
       ORDER BY place
      RETURNING id, field_id AS "fieldId", type_id AS "typeId", value, by_value AS by`;
    for (const { id, fieldId, typeId, value, by } of made)
      known.set(seriesName(fieldId, typeId, value, by), id);
  }
  return known;
}

/** The stored minutes of fields in an interval, by series and bucket. */
export async function readStored(
  tx: Transaction,
  appId: number,
  fields: readonly Pick<DeclaredField, 'id'>[],
  { from, until }: Interval,
): Promise<Map<string, StoredCell>> {
  const found = new Map<string, StoredCell>();
  const rows = tx<StoredCell[]>`
    SELECT series_id AS "seriesId", (extract(epoch FROM bucket) * 1000)::float8 AS bucket, count::float8 AS count, summary
      FROM field_minute_counts
     WHERE app_id = ${appId} AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}
       AND series_id IN (SELECT id FROM field_series WHERE field_id = ANY(${fields.map(({ id }) => id)}))`;
  for await (const page of rows.cursor(SUMMARIES_AT_ONCE * 5))
    for (const row of page) found.set(`${row.seriesId} ${row.bucket}`, row);
  return found;
}

async function writeCells(
  tx: Transaction,
  appId: number,
  level: Level['name'],
  cells: readonly StoredCell[],
): Promise<void> {
  for (let from = 0; from < cells.length; from += WRITTEN_AT_ONCE) {
    const some = cells.slice(from, from + WRITTEN_AT_ONCE);
    await tx`
      INSERT INTO ${tx(`field_${level}_counts`)} (app_id, series_id, bucket, count, summary)
      SELECT ${appId}::integer, series_id, bucket, count, summary
        FROM unnest(${some.map(({ seriesId }) => seriesId)}::integer[],
                    ${some.map(({ bucket }) => new Date(bucket).toISOString())}::timestamptz[],
                    ${some.map(({ count }) => count)}::bigint[],
                    ${bytesArray(
                      tx,
                      some.map(({ summary }) => (summary === null ? null : Buffer.from(summary))),
                    )}::bytea[])
               AS cell (series_id, bucket, count, summary)
       ORDER BY series_id, bucket
      ON CONFLICT (app_id, series_id, bucket) DO UPDATE SET count = excluded.count, summary = excluded.summary`;
  }
}

async function deleteCells(tx: Transaction, appId: number, cells: readonly StoredCell[]): Promise<void> {
  for (let from = 0; from < cells.length; from += WRITTEN_AT_ONCE) {
    const some = cells.slice(from, from + WRITTEN_AT_ONCE);
    await tx`
      DELETE FROM field_minute_counts AS known
       USING unnest(${some.map(({ seriesId }) => seriesId)}::integer[],
                    ${some.map(({ bucket }) => new Date(bucket).toISOString())}::timestamptz[]) AS cell (series_id, bucket)
       WHERE known.app_id = ${appId} AND known.series_id = cell.series_id AND known.bucket = cell.bucket`;
  }
}

/** Makes the coarser buckets that an interval touches what the finer ones say, for the series of some cells. */
async function rebuildLevels(
  tx: Transaction,
  appId: number,
  interval: Interval,
  cells: readonly StoredCell[],
  haveGone: boolean,
): Promise<void> {
  const ids = (some: readonly StoredCell[]): number[] => [...new Set(some.map(({ seriesId }) => seriesId))];
  await rebuildSeries(tx, appId, interval, {
    plain: ids(cells.filter(({ summary }) => summary === null)),
    withSummary: ids(cells.filter(({ summary }) => summary !== null)),
    haveGone,
  });
}

/** Series whose coarser buckets are made anew. */
export interface RebuiltSeries {
  /** Series of values, which have counts alone. */
  readonly plain: readonly number[];
  readonly withSummary: readonly number[];
  /** Whether finer buckets may be gone. */
  readonly haveGone: boolean;
}

export async function rebuildSeries(
  tx: Transaction,
  appId: number,
  { from, until }: Interval,
  { plain, withSummary, haveGone }: RebuiltSeries,
): Promise<void> {
  const all = [...plain, ...withSummary];
  if (all.length === 0) return;
  for (const level of LEVELS) {
    const finer = finerThan(level);
    if (finer === null) continue;
    const whole = { from: floorTo(from, level.ms), until: ceilTo(until, level.ms) };
    if (plain.length > 0)
      await rebuildCounts(tx, appId, { level: level.name, finer: finer.name }, whole, plain);
    if (withSummary.length > 0) await rebuildSummaries(tx, appId, level, finer, whole, withSummary);
    if (haveGone) await deleteEmpty(tx, appId, { level: level.name, finer: finer.name }, whole, all);
  }
  const months = { from: startOfMonth(from), until: startOfMonth(until - 1, 1) };
  await rebuildCounts(tx, appId, { level: 'month', finer: DAYS.name }, months, all);
  if (haveGone) await deleteEmpty(tx, appId, { level: 'month', finer: DAYS.name }, months, all);
}

interface Tables {
  readonly level: Level['name'] | 'month';
  readonly finer: Level['name'];
}

async function rebuildCounts(
  tx: Transaction,
  appId: number,
  { level, finer }: Tables,
  { from, until }: Interval,
  ids: readonly number[],
): Promise<void> {
  await tx`
    INSERT INTO ${tx(`field_${level}_counts`)} AS known (app_id, series_id, bucket, count)
    SELECT ${appId}::integer, series_id, start, sum(count)::bigint
      FROM (SELECT series_id, ${startIn(tx, level, tx`bucket`)} AS start, count FROM ${tx(`field_${finer}_counts`)}
             WHERE app_id = ${appId} AND series_id = ANY(${[...ids]}::integer[])
               AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}) AS finer
     GROUP BY series_id, start ORDER BY series_id, start
    ON CONFLICT (app_id, series_id, bucket) DO UPDATE SET count = excluded.count WHERE known.count <> excluded.count`;
}

/** Removes buckets of which no finer ones are left. */
async function deleteEmpty(
  tx: Transaction,
  appId: number,
  { level, finer }: Tables,
  { from, until }: Interval,
  ids: readonly number[],
): Promise<void> {
  const width = level === 'quarter_hour' ? '15 minutes' : `1 ${level}`;
  await tx`
    DELETE FROM ${tx(`field_${level}_counts`)} AS known
     WHERE app_id = ${appId} AND series_id = ANY(${[...ids]}::integer[])
       AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}
       AND NOT EXISTS (SELECT FROM ${tx(`field_${finer}_counts`)} AS finer
                        WHERE finer.app_id = known.app_id AND finer.series_id = known.series_id
                          AND finer.bucket >= known.bucket AND finer.bucket < known.bucket + ${width}::interval)`;
}

async function rebuildSummaries(
  tx: Transaction,
  appId: number,
  level: Level,
  finer: Level,
  interval: Interval,
  ids: readonly number[],
): Promise<void> {
  const wanted = await coarserCells(tx, appId, level, finer, interval, ids);
  const stored = await readCells(tx, appId, level, interval, ids);
  const changed = [...wanted].flatMap(([key, cell]) => {
    const known = stored.get(key);
    return known !== undefined && isSame(known, cell) && known.count === cell.count ? [] : [cell];
  });
  await writeCells(tx, appId, level.name, changed);
}

/** What the buckets of a level should have, as the finer ones say. */
export async function coarserCells(
  tx: Transaction,
  appId: number,
  level: Level,
  finer: Level,
  interval: Interval,
  ids: readonly number[],
): Promise<Map<string, StoredCell>> {
  const sums = new Map<string, { seriesId: number; bucket: number; count: number; summary: Summary }>();
  for await (const { seriesId, bucket, count, summary, kind } of selectCells(
    tx,
    appId,
    finer,
    interval,
    ids,
  )) {
    if (summary === null) continue;
    const start = floorTo(bucket, level.ms);
    const key = `${seriesId} ${start}`;
    const sum = sums.get(key) ?? {
      ...{ seriesId, bucket: start, count: 0 },
      summary: kind === DISTINCT ? new DistinctValues() : new NumberSummary(),
    };
    sum.count += count;
    sum.summary.addBytes(summary);
    sums.set(key, sum);
  }
  return new Map([...sums].map(([key, cell]) => [key, { ...cell, summary: cell.summary.toBytes() }]));
}

export async function readCells(
  tx: Transaction,
  appId: number,
  level: Level,
  interval: Interval,
  ids: readonly number[],
): Promise<Map<string, StoredCell>> {
  const found = new Map<string, StoredCell>();
  for await (const { kind: _, ...cell } of selectCells(tx, appId, level, interval, ids))
    found.set(`${cell.seriesId} ${cell.bucket}`, cell);
  return found;
}

/** The cells of series, and the text that a series without values of its own has for its kind. */
async function* selectCells(
  tx: Transaction,
  appId: number,
  level: Level,
  { from, until }: Interval,
  ids: readonly number[],
): AsyncGenerator<StoredCell & { readonly kind: string }> {
  const rows = tx<(StoredCell & { kind: string })[]>`
    SELECT series_id AS "seriesId", (extract(epoch FROM bucket) * 1000)::float8 AS bucket, count::float8 AS count, summary,
           series.value AS kind
      FROM ${tx(`field_${level.name}_counts`)} AS counts JOIN field_series AS series ON series.id = series_id
     WHERE counts.app_id = ${appId} AND series_id = ANY(${[...ids]}::integer[])
       AND bucket >= ${new Date(from)} AND bucket < ${new Date(until)}`;
  for await (const page of rows.cursor(SUMMARIES_AT_ONCE)) yield* page;
}
