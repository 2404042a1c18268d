/** Where the events of an app may be that have some words: in slices that lists name, and where nothing is listed yet. */

import type { SearchedBy } from '../../base/searched-by.ts';
import { sum } from '../../base/sum.ts';
import { type Interval, joined } from '../counts/intervals.ts';
import type { Snapshot } from '../counts/stale.ts';
import type { Sql } from '../database/connect.ts';
import { hasTable } from '../database/installation-id.ts';
import type { WordTest } from '../fields/row-filter.ts';
import type { Order } from '../read/page-request.ts';
import { MOST_SLICES, slicesIn } from './lists.ts';

/** Words that are looked up: each takes a row of each segment. Whoever has all words of a text has these. */
const MOST_WORDS = 16;
/** Intervals that are looked at in one step, of some hundred events each. */
const MOST_INTERVALS = 500;

export interface Listed {
  /** In order of time, apart from each other. */
  readonly intervals: readonly Interval[];
  /** What they say of: less than was asked for where there are many. It begins, in the order of the search, with the first of them. */
  readonly interval: Interval;
  /** By words where lists name all of it, by a scan where they name none. */
  readonly searchedBy: SearchedBy;
}

interface ListRow {
  readonly segment: number;
  readonly hash: number;
  readonly list: Uint8Array;
  readonly partBits: number;
  readonly rice: number;
}

/** Looks words up for the steps of a search, each in its own snapshot. A segment never changes: what it says is remembered. */
export class WordLookup {
  readonly #tests: readonly WordTest[];
  readonly #appId: number;
  /** Intervals of the slices that may have the words, by the id of a segment. */
  readonly #known = new Map<number, readonly Interval[]>();
  /** Null until it is known whether the engine has lists. */
  #hasLists: boolean | null = null;

  constructor(appId: number, tests: readonly WordTest[]) {
    this.#appId = appId;
    let room = MOST_WORDS;
    this.#tests = tests.flatMap((test) => {
      const most = Math.floor(room / test.length);
      const some = test.map((words) => words.slice(0, most));
      room -= sum(some.map(({ length }) => length));
      return most === 0 ? [] : [some];
    });
  }

  /** @returns null where lists say nothing: all of the interval is to be read */
  async find(tx: Snapshot, { from, until }: Interval, order: Order): Promise<Listed | null> {
    if (this.#tests.length === 0) return null;
    this.#hasLists ??= await hasTable(tx, 'word_states');
    if (!this.#hasLists) return null;
    const [start, end] = [new Date(from), new Date(until)];
    const [state] = await tx<{ segments: number[]; froms: number[]; untils: number[] }[]>`
      WITH unlisted AS MATERIALIZED (
        SELECT start, finish FROM unlisted_minutes WHERE app_id = ${this.#appId} AND start < ${end} AND finish > ${start}
         UNION
        SELECT bucket, bucket + interval '1 minute' FROM stamped_minutes
         WHERE app_id = ${this.#appId} AND bucket < ${end} AND bucket > ${start}::timestamptz - interval '1 minute'
         ORDER BY start)
      SELECT ARRAY(SELECT id::float8 FROM word_segments
                    WHERE app_id = ${this.#appId} AND start < ${end} AND finish > ${start}) AS segments,
             ARRAY(SELECT (extract(epoch FROM start) * 1000)::float8 FROM unlisted) AS froms,
             ARRAY(SELECT (extract(epoch FROM finish) * 1000)::float8 FROM unlisted) AS untils
        FROM word_states WHERE app_id = ${this.#appId} AND begun_at IS NOT NULL`;
    if (state === undefined) return null;
    const { segments, froms, untils } = state;
    await this.#learn(tx, segments);
    const unlisted = froms.map((at, index) => ({ from: at, until: untils[index] ?? at }));
    const all = joined(
      [...unlisted, ...segments.flatMap((id) => this.#known.get(id) ?? [])]
        .map((one) => ({ from: Math.max(from, one.from), until: Math.min(until, one.until) }))
        .filter((one) => one.from < one.until),
    );
    const isCut = all.length > MOST_INTERVALS;
    const intervals = order === 'asc' ? all.slice(0, MOST_INTERVALS) : all.slice(-MOST_INTERVALS);
    const [first, last] = [intervals[0]?.from ?? from, intervals.at(-1)?.until ?? until];
    const interval =
      order === 'asc'
        ? { from: first, until: isCut ? last : until }
        : { from: isCut ? first : from, until: last };
    const isListed = !unlisted.some((one) => one.from < interval.until && one.until > interval.from);
    const searchedBy = isListed ? 'words' : segments.length === 0 ? 'scan' : 'mixed';
    return { intervals, interval, searchedBy };
  }

  /** Reads what segments say of the words. */
  async #learn(tx: Snapshot, ids: readonly number[]): Promise<void> {
    const unknown = ids.filter((id) => !this.#known.has(id));
    if (unknown.length === 0) return;
    const hashes = [...new Set(this.#tests.flat(2))];
    const rows = await tx<ListRow[]>`
      SELECT segment.id::float8 AS segment, hash, list, part_bits AS "partBits", rice
        FROM word_segments AS segment CROSS JOIN unnest(${hashes}::integer[]) AS wanted (hash)
        JOIN word_lists ON word_lists.segment = segment.id AND part = hash >> (22 - part_bits)
       WHERE segment.id = ANY(${unknown}::bigint[])`;
    const slices = new Map<string, readonly number[]>();
    for (const { segment, hash, list, ...code } of rows)
      slices.set(`${segment} ${hash}`, slicesIn(list, hash, code));
    const found = new Map<number, readonly boolean[]>();
    for (const id of unknown) {
      const named = this.#slicesOf((hash) => slices.get(`${id} ${hash}`) ?? []);
      if (named.includes(true)) found.set(id, named);
      else this.#known.set(id, []);
    }
    const times = await tx<{ id: number; start: number; times: Buffer }[]>`
      SELECT id::float8, (extract(epoch FROM start) * 1000)::float8 AS start, times
        FROM word_segments WHERE id = ANY(${[...found.keys()]}::bigint[])`;
    for (const { id, start, times: bytes } of times) {
      const view = Buffer.from(bytes);
      const intervals: Interval[] = [];
      for (let slice = 0; slice * 8 < view.length; slice += 1)
        if (found.get(id)?.[slice] === true)
          intervals.push({
            from: start + view.readUInt32BE(slice * 8),
            until: start + view.readUInt32BE(slice * 8 + 4) + 1,
          });
      this.#known.set(id, intervals);
    }
  }

  /** Which slices may pass all tests. */
  #slicesOf(slicesWith: (hash: number) => readonly number[]): boolean[] {
    const all = new Array<boolean>(MOST_SLICES).fill(true);
    for (const test of this.#tests) {
      const passing = new Array<boolean>(MOST_SLICES).fill(false);
      for (const words of test) {
        const counts = new Uint8Array(MOST_SLICES);
        for (const hash of words)
          for (const slice of slicesWith(hash)) counts[slice] = (counts[slice] ?? 0) + 1;
        counts.forEach((count, slice) => {
          if (count === words.length) passing[slice] = true;
        });
      }
      passing.forEach((passes, slice) => {
        if (!passes) all[slice] = false;
      });
    }
    return all;
  }
}

/** How much of an app is listed. */
export interface WordsListed {
  /** Events that lists name; null where the engine keeps none. */
  readonly listedEvents: number | null;
  /** Whether only events of the present day, and late ones, are not listed. */
  readonly isComplete: boolean;
}

export async function readListed(sql: Sql, appId: number): Promise<WordsListed> {
  if (!(await hasTable(sql, 'word_states'))) return { listedEvents: null, isComplete: false };
  const [listed] = await sql<WordsListed[]>`
    SELECT coalesce((SELECT sum(events) FROM word_segments WHERE app_id = ${appId}), 0)::float8 AS "listedEvents",
           EXISTS (SELECT FROM word_states WHERE app_id = ${appId} AND begun_at IS NOT NULL)
             AND NOT EXISTS (SELECT FROM unlisted_minutes
                              WHERE app_id = ${appId} AND finish - start > interval '1 minute'
                                AND start < date_bin('1 day', now(), 'epoch')) AS "isComplete"`;
  return listed ?? { listedEvents: 0, isComplete: false };
}
