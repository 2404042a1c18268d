/**
 * The upkeep of lists of words (sql/0045): begins to note the minutes of apps that ask for lists, makes segments of what is noted, and
 * removes what nobody asks for any more. Any process may do it, and be interrupted at any point.
 */
import { sum } from '../../base/sum.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { type Interval, joined } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, floorTo, MINUTE_MS } from '../counts/levels.ts';
import { type Fragment, type Sql, type Transaction, unlessLocked } from '../database/connect.ts';
import { withFieldsLocked } from '../fields/fields-lock.ts';
import { textLiteral } from '../fields/row-filter.ts';
import { stepsOf } from '../fields/uncounted-minutes.ts';
import { DeadRows } from '../maintenance/dead-rows.ts';
import type { Step } from '../maintenance/steps.ts';
import { copyRows, RowBuffer } from '../read/copied-rows.ts';
import { readRetention } from '../retention.ts';
import { SEGMENT_EVENTS, SegmentBuilder } from './segment.ts';

/** How much of each second may go into segments; one is begun in any case. */
const BUILD_MS = 250;
/** A day is over for lists so long after its end: until then a segment is made of many events. */
const OVER_AFTER_MS = 10 * MINUTE_MS;
/** Different notes that are read at once; and notes of a day that become one where their minutes are beside each other. */
const NOTES_AT_ONCE = 5_000;
const MANY_NOTES = 500;
/** Noted minutes up to so far apart are listed with what is between them. */
const JOINED_MS = 10 * MINUTE_MS;
/** Segments of a day beside those that its events fill, after which it is listed anew. */
const MOST_SMALL_SEGMENTS = 12;
const SEGMENTS_AT_ONCE = 20;
const ROWS_AT_ONCE = 4_096;
const BYTES_AT_ONCE = 8 * 1_048_576;
/** Bytes of rows between two looks at the clock. */
const BYTES_BETWEEN_LOOKS = 4_096;
const PARTS_AT_ONCE = 100;
const VACUUM_AFTER = 2_000;

interface State {
  readonly appId: number;
  readonly isWanted: boolean;
  readonly isNoted: boolean;
  readonly hasBegun: boolean;
}

export class WordUpkeep {
  readonly #sql: Sql;
  readonly #now: () => number;
  readonly #deadNotes: DeadRows;
  readonly #segmentEvents: number;
  /** Apps with noted minutes of days that are over, as far as the last look tells. */
  readonly #withPast = new Set<number>();

  /**
   * @param sql     a pool of one connection
   * @param vacuums a pool on which a VACUUM keeps nothing waiting
   * @param segmentEvents for tests: how many events a segment is made of
   */
  constructor(sql: Sql, now: () => number, vacuums = sql, segmentEvents = SEGMENT_EVENTS) {
    this.#segmentEvents = segmentEvents;
    this.#sql = sql;
    this.#now = now;
    this.#deadNotes = new DeadRows(sql, vacuums, ['unlisted_minutes'], VACUUM_AFTER);
  }

  get steps(): readonly Step[] {
    return [
      { name: 'words', every: 'second', run: () => this.everySecond() },
      { name: 'words', every: 'ten minutes', run: () => this.everyTenMinutes() },
    ];
  }

  async everySecond(): Promise<void> {
    const until = this.#now() + BUILD_MS;
    // In no order: where the time is over, the apps that are left have their turn another second.
    for (const [index, state] of (await this.#states()).entries()) {
      if (index > 0 && this.#now() >= until) break;
      const { appId } = state;
      if (!state.isWanted) await this.#end(appId);
      else if (!state.isNoted) await this.#note(appId);
      else if (!state.hasBegun) await this.#begin(appId);
      else while (await this.#build(appId)) if (this.#now() >= until) break;
    }
    await this.#deadNotes.vacuumIfDue();
  }

  async everyTenMinutes(): Promise<void> {
    for (const { appId, hasBegun } of await this.#states()) {
      if (!hasBegun) continue;
      this.#withPast.add(appId);
      await this.#locked(async (tx) => {
        const boundary = new Date((await readRetention(tx, appId)).first());
        await tx`DELETE FROM word_segments WHERE app_id = ${appId} AND finish <= ${boundary}`;
        const crowded = await tx<{ day: number }[]>`
          SELECT (extract(epoch FROM date_bin('1 day', start, 'epoch')) * 1000)::float8 AS day FROM word_segments
           WHERE app_id = ${appId} AND start < ${new Date(this.#today)} AND ${hasRowsHere(tx, appId)}
           GROUP BY 1 HAVING count(*) > ${MOST_SMALL_SEGMENTS} + 2 * sum(events) / ${SEGMENT_EVENTS}
           ORDER BY 1 LIMIT 1`;
        for (const { day } of crowded) {
          const [from, end] = [new Date(day), new Date(day + DAY_MS)];
          await tx`DELETE FROM word_segments WHERE app_id = ${appId} AND start >= ${from} AND start < ${end}`;
          await addNotes(tx, appId, [{ from: day, until: day + DAY_MS }]);
        }
        return crowded.length;
      });
    }
    await this
      .#sql`DELETE FROM unlisted_minutes AS note WHERE NOT EXISTS (SELECT FROM word_states AS state WHERE state.app_id = note.app_id)`;
  }

  /** The start of the day that is not over. */
  get #today(): number {
    return floorTo(this.#now() - OVER_AFTER_MS, DAY_MS);
  }

  async #states(): Promise<readonly State[]> {
    return await this.#sql<State[]>`
      SELECT coalesce(app.id, state.app_id) AS "appId", app.id IS NOT NULL AS "isWanted",
             state.app_id IS NOT NULL AS "isNoted", begun_at IS NOT NULL AS "hasBegun"
        FROM (SELECT id FROM apps WHERE word_search) AS app FULL JOIN word_states AS state ON state.app_id = app.id
       ORDER BY random()`;
  }

  /**
   * Begins to note the minutes of an app. The lock waits for transactions that have changed counts before: what these have stored is seen
   * by {@link #begin}. Others come after it for half a second at most.
   */
  async #note(appId: number): Promise<void> {
    await unlessLocked(() =>
      this.#sql.begin(async (tx) => {
        await tx`SET LOCAL lock_timeout = '500ms'`;
        await tx`LOCK TABLE word_states IN SHARE ROW EXCLUSIVE MODE`;
        await tx`INSERT INTO word_states (app_id) SELECT id FROM apps WHERE id = ${appId} ON CONFLICT DO NOTHING`;
      }),
    );
  }

  /** Notes the days of an app that have events, once nothing is left of earlier lists. Readers go by lists from then on. */
  async #begin(appId: number): Promise<void> {
    await this.#locked(async (tx) => {
      if ((await removeSome(tx, appId)) > 0) return 0;
      await tx`DELETE FROM unlisted_minutes WHERE app_id = ${appId}`;
      const boundary = new Date(floorTo((await readRetention(tx, appId)).first(), DAY_MS));
      const days = await tx<{ day: number }[]>`
        SELECT (extract(epoch FROM bucket) * 1000)::float8 AS day
          FROM (SELECT bucket FROM ${tx(DAYS.view)} WHERE app_id = ${appId} AND type_id = ${ALL_TYPES}
                 UNION SELECT date_bin('1 day', bucket, 'epoch') FROM pending_marks) AS days
         WHERE bucket >= ${boundary}`;
      const intervals = days.map(({ day }) => ({ from: day, until: day + DAY_MS }));
      await addNotes(tx, appId, intervals);
      await tx`UPDATE word_states SET begun_at = now() WHERE app_id = ${appId}`;
      return days.length;
    });
    this.#withPast.add(appId);
  }

  /** Removes the lists of an app. Readers do without them before the first is gone. */
  async #end(appId: number): Promise<void> {
    await this.#locked(async (tx) => {
      const { count } = await tx`
        UPDATE word_states SET begun_at = NULL WHERE app_id = ${appId} AND begun_at IS NOT NULL`;
      if (count > 0 || (await removeSome(tx, appId)) > 0) return 0;
      await tx`DELETE FROM unlisted_minutes WHERE app_id = ${appId}`;
      await tx`DELETE FROM word_states WHERE app_id = ${appId}`;
      return 1;
    });
  }

  /**
   * Makes a segment of the oldest noted minutes: of the present day where they have enough events, of days that are over once in ten
   * minutes. It takes away the notes that it has seen, and those alone.
   * @returns whether there may be more to do
   */
  async #build(appId: number): Promise<boolean> {
    const today = this.#today;
    const from = this.#withPast.has(appId) ? 0 : today;
    const outcome = await this.#locked(async (tx) => {
      const boundary = new Date((await readRetention(tx, appId)).first());
      const { count: expired } = await tx`
        DELETE FROM unlisted_minutes WHERE app_id = ${appId} AND finish <= ${boundary}`;
      this.#deadNotes.deleted(expired);
      const notes = await readNotes(tx, appId, from);
      const days = new Set(notes.map((note) => floorTo(note.from, DAY_MS)));
      for (const day of days) {
        const noted = notes.filter((note) => floorTo(note.from, DAY_MS) === day);
        const together = joined(noted, JOINED_MS);
        const isOver = day < today;
        const isFirst = isOver && !(await hasSegments(tx, appId, day));
        const own = isFirst ? [{ from: day, until: day + DAY_MS }] : together;
        const steps = await stepsOf(tx, appId, own, this.#segmentEvents / 4);
        if (!isOver && sum(steps.map(({ rows }) => rows)) < this.#segmentEvents) {
          if (sum(noted.map(({ count }) => count)) > MANY_NOTES)
            this.#deadNotes.deleted(await replaceNotes(tx, appId, together, together));
          continue;
        }
        const [first, ...others] = steps;
        const taken: Interval[] = first === undefined ? [] : [first];
        let rows = first?.rows ?? 0;
        for (const step of others) {
          rows += step.rows;
          if (rows > this.#segmentEvents) break;
          taken.push(step);
        }
        const listed = joined(taken);
        await storeSegments(tx, appId, listed, this.#segmentEvents);
        this.#deadNotes.deleted(await replaceNotes(tx, appId, listed, []));
        return { hasMore: true };
      }
      return { hasMore: false };
    });
    // The notes that were left are of the present day.
    if (outcome?.hasMore === false) this.#withPast.delete(appId);
    return outcome?.hasMore === true;
  }

  /**
   * Works on lists in one snapshot, beside no other work on lists or fields. All locks come before the snapshot.
   * @returns null where others work: it is to be tried again
   */
  async #locked<T extends object | number>(work: (tx: Transaction) => Promise<T>): Promise<T | null> {
    return await withFieldsLocked(this.#sql, async (tx) => {
      await tx`LOCK TABLE word_segments IN EXCLUSIVE MODE NOWAIT`;
      return await work(tx);
    });
  }
}

interface Note extends Interval {
  /** How often it is noted. */
  readonly count: number;
}

/** The condition that the day of a start has not left for the archive. */
const hasRowsHere = (tx: Transaction, appId: number): Fragment => tx`
  (start AT TIME ZONE 'UTC')::date NOT IN (SELECT day FROM archived_parts AS away WHERE away.app_id = ${appId})`;

/** Notes of an app, the oldest first, but for those of days whose rows are in the archive alone. */
async function readNotes(tx: Transaction, appId: number, from: number): Promise<readonly Note[]> {
  return await tx<Note[]>`
    SELECT (extract(epoch FROM start) * 1000)::float8 AS from, (extract(epoch FROM finish) * 1000)::float8 AS until,
           count(*)::float8 AS count
      FROM unlisted_minutes
     WHERE app_id = ${appId} AND start >= ${new Date(from)}
       AND ${hasRowsHere(tx, appId)}
     GROUP BY 1, 2 ORDER BY 1, 2 LIMIT ${NOTES_AT_ONCE}`;
}

async function addNotes(tx: Transaction, appId: number, intervals: readonly Interval[]): Promise<void> {
  await tx`
    INSERT INTO unlisted_minutes (app_id, start, finish)
    SELECT ${appId}::integer, start, finish FROM unnest(${textsOf(intervals, 'from')}::timestamptz[],
                                                        ${textsOf(intervals, 'until')}::timestamptz[]) AS note (start, finish)`;
}

/** Takes the notes of intervals away, but for what of them is beyond these, and adds others. @returns how many are gone */
async function replaceNotes(
  tx: Transaction,
  appId: number,
  intervals: readonly Interval[],
  others: readonly Interval[],
): Promise<number> {
  const gone = await tx<Interval[]>`
    DELETE FROM unlisted_minutes AS note
     USING unnest(${textsOf(intervals, 'from')}::timestamptz[], ${textsOf(intervals, 'until')}::timestamptz[]) AS part (start, finish)
     WHERE app_id = ${appId} AND note.start < part.finish AND note.finish > part.start
    RETURNING (extract(epoch FROM note.start) * 1000)::float8 AS from, (extract(epoch FROM note.finish) * 1000)::float8 AS until`;
  const left = joined(gone).flatMap((note) => {
    const beyond: Interval[] = [];
    let { from } = note;
    for (const one of intervals) {
      if (one.until <= from || one.from >= note.until) continue;
      if (one.from > from) beyond.push({ from, until: one.from });
      from = one.until;
    }
    return from < note.until ? [...beyond, { from, until: note.until }] : beyond;
  });
  await addNotes(tx, appId, [...left, ...others]);
  return gone.length;
}

const textsOf = (intervals: readonly Interval[], end: 'from' | 'until'): string[] =>
  intervals.map((one) => new Date(one[end]).toISOString());

async function hasSegments(tx: Transaction, appId: number, day: number): Promise<boolean> {
  const [some] = await tx`
    SELECT FROM word_segments
     WHERE app_id = ${appId} AND start >= ${new Date(day)} AND start < ${new Date(day + DAY_MS)} LIMIT 1`;
  return some !== undefined;
}

/** Removes some segments of an app, with their lists. @returns how many */
async function removeSome(tx: Transaction, appId: number): Promise<number> {
  const { count } = await tx`
    DELETE FROM word_segments
     WHERE id IN (SELECT id FROM word_segments WHERE app_id = ${appId} LIMIT ${SEGMENTS_AT_ONCE})`;
  return count;
}

/** Lists the words of the rows of intervals, which are in order and of one day. */
async function storeSegments(
  tx: Transaction,
  appId: number,
  intervals: readonly Interval[],
  segmentEvents: number,
): Promise<void> {
  const buffer = new RowBuffer();
  const turns = new TimeSlice();
  let builder = new SegmentBuilder(segmentEvents);
  for (const { from, until } of intervals) {
    let isApart = true;
    for (let [first, after] = [from, '']; ; ) {
      const query = `
        SELECT id, created_at, type_id, payload FROM events
         WHERE app_id = ${appId} AND created_at >= '${new Date(first).toISOString()}' AND created_at < '${new Date(until).toISOString()}' ${after}
         ORDER BY created_at, id LIMIT ${ROWS_AT_ONCE}`;
      const { rows, isWhole } = await copyRows(tx, query, { most: BYTES_AT_ONCE, buffer });
      for (let looked = 0; rows.next(); ) {
        if (builder.isFull) {
          await storeSegment(tx, appId, builder, turns);
          builder = new SegmentBuilder(segmentEvents);
        }
        builder.add(rows.bytes, rows.start, rows.end, rows.at, isApart);
        isApart = false;
        if (rows.end < looked + BYTES_BETWEEN_LOOKS) continue;
        looked = rows.end;
        if (turns.isOver) await turns.next();
      }
      const { last } = rows;
      if (last === null || (isWhole && rows.length < ROWS_AT_ONCE)) break;
      first = last.at;
      after = `AND (created_at, id) > ('${new Date(last.at).toISOString()}', ${textLiteral(last.id)}::uuid)`;
    }
  }
  if (builder.events > 0) await storeSegment(tx, appId, builder, turns);
}

async function storeSegment(
  tx: Transaction,
  appId: number,
  builder: SegmentBuilder,
  turns: TimeSlice,
): Promise<void> {
  const { start, until, events, slices, partBits, rice, times, parts } = await builder.finish(turns);
  const [segment] = await tx<{ id: number }[]>`
    INSERT INTO word_segments (app_id, start, finish, events, slices, part_bits, rice, times)
    VALUES (${appId}, ${new Date(start)}, ${new Date(until)}, ${events}, ${slices}, ${partBits}, ${rice}, ${times})
    RETURNING id::float8`;
  for (let from = 0; from < parts.length; from += PARTS_AT_ONCE) {
    const some = parts.slice(from, from + PARTS_AT_ONCE);
    await tx`
      INSERT INTO word_lists (segment, part, list)
      SELECT ${segment?.id ?? 0}::bigint, part, decode(list, 'base64')
        FROM unnest(${some.map(({ part }) => part)}::integer[], ${some.map(({ list }) => list.toString('base64'))}::text[])
          AS own (part, list)`;
    if (turns.isOver) await turns.next();
  }
}
