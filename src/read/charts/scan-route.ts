/**
 * GET /api/apps/:appId/scan: the columns of a chart that counts do not answer, counted from its rows, from the newest on. One
 * request counts a part of them; `next` leads to the following one. The sum of all parts is the chart.
 */

import type { Api } from '../../accounts/routes/api.ts';
import type { ScanPart } from '../../api-types/answers.ts';
import { numberTypes } from '../../apps/event-types.ts';
import { countWhile } from '../../base/bisect.ts';
import { ownText } from '../../base/own-text.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { PayloadValues } from '../../storage/fields/payload-values.ts';
import { EVERY_ROW } from '../../storage/fields/row-filter.ts';
import { MANY, OTHER } from '../../storage/fields/value-text.ts';
import { encodeCursor } from '../../storage/read/event-list.ts';
import type { StoredEvent } from '../../storage/read/page-request.ts';
import { type SearchBudget, searchThrough } from '../events/search-page.ts';
import { nameOf } from '../fields/shown-value.ts';
import { findChartTypes } from '../scope-query.ts';
import { conditionsOf, requestOf, SCAN_QUERY } from './chart-query.ts';
import { TOO_LONG, typesLeft } from './series-columns.ts';

export interface ScanRouteOptions {
  readonly api: Api;
  readonly now: () => number;
  readonly monotonic: () => number;
  /** What one part may look at. */
  readonly partBudget?: SearchBudget;
}

/** Short, so that other reads take turns with the parts, and a chart shows how far they are; the first one more so. */
const FIRST_PART: SearchBudget = { rows: 200_000, ms: 200 };
const PART: SearchBudget = { rows: 400_000, ms: 600 };
/** Values of a field that one part tells apart. */
export const MOST_VALUES = 2_000;

/** The parameters are those of the chart, with `cursor` for the parts that follow the first, which have the `width` of its buckets. */
export function scanRoute(options: ScanRouteOptions): Route {
  const { api, now, monotonic, partBudget } = options;
  return api.readInTurn('/api/apps/:appId/scan', 'read', async ({ app, exchange, sql, events, pass }) => {
    const query = SCAN_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const { by, cursor: after } = query;
    const { rows } = conditionsOf(query);
    if (rows instanceof Rejection) return rows;
    const types = await findChartTypes(sql, app.id, query.typeId);
    if (types instanceof Rejection) return types;
    const left = await typesLeft(sql, app.id, query, types);
    if (left instanceof Rejection) return left;
    const { exceptTypes, apart } = left;
    const { typeIds } = types;
    const frame = await events.frame(requestOf(app.id, typeIds, query, now()));
    if (typeof frame === 'string') return TOO_LONG;
    const part = new Part(frame.starts, by, new Set(apart.map(({ typeId }) => typeId)));
    const { next, searchedUntil, searchedBy, looked } = await searchThrough(
      events,
      { appId: app.id, typeIds, exceptTypes, ...frame.interval, order: 'desc', after },
      rows ?? EVERY_ROW,
      {
        budget: partBudget ?? (after === null ? FIRST_PART : PART),
        now: monotonic,
        pass,
      },
      (event) => part.add(event),
    );
    return done<ScanPart>({
      ...frame,
      ...(await part.finish(sql, app.id)),
      looked,
      searchedBy: rows === null ? null : searchedBy,
      next: next === null ? null : encodeCursor({ ...next, order: 'desc' }),
      searchedUntil: searchedUntil?.getTime() ?? frame.interval.from,
    });
  });
}

/** Events of some buckets, by the index of the bucket. */
type Counts = Map<number, number>;

/** What one request has counted: buckets without events are left out. */
class Part {
  readonly #starts: readonly number[];
  readonly #values: PayloadValues | null;
  readonly #hiddenTypes: ReadonlySet<string>;
  /** By the public id of a type, or by a value as JSON. */
  readonly #lines = new Map<string, Counts>();
  /** With values: the events that have none of these. */
  readonly #rest: Counts = new Map();
  readonly #hidden: Counts = new Map();
  #hasTooMany = false;

  /** @param by path of the field whose values are the lines; null: types are */
  constructor(starts: readonly number[], by: readonly string[] | null, hiddenTypes: ReadonlySet<string>) {
    this.#starts = starts;
    this.#values = by === null ? null : new PayloadValues([by]);
    this.#hiddenTypes = hiddenTypes;
  }

  /** @returns false: there is no event after which it has enough */
  add({ createdAt, typeId, payload }: StoredEvent): boolean {
    const counts = this.#hiddenTypes.has(typeId) ? this.#hidden : this.#lineOf(typeId, payload);
    const at = createdAt.getTime();
    const index = Math.max(0, countWhile(this.#starts.length, (one) => (this.#starts[one] ?? at) <= at) - 1);
    counts.set(index, (counts.get(index) ?? 0) + 1);
    return false;
  }

  #lineOf(typeId: string, payload: string): Counts {
    const key = this.#values === null ? typeId : (this.#values.read(payload)[0] ?? null);
    if (key === null || key === MANY || key === OTHER) return this.#rest;
    const known = this.#lines.get(key);
    if (known !== undefined) return known;
    this.#hasTooMany ||= this.#values !== null && this.#lines.size >= MOST_VALUES;
    if (this.#hasTooMany) return this.#rest;
    const made: Counts = new Map();
    this.#lines.set(ownText(key), made);
    return made;
  }

  async finish(sql: Sql, appId: number) {
    const types = this.#values === null ? await numberTypes(sql, appId, [...this.#lines.keys()]) : null;
    const lines = [...this.#lines].map(([key, counts]) => {
      const { name, number } = types?.get(key) ?? { name: types === null ? nameOf(key) : key, number: null };
      return { key, name, number, ...columnOf(counts) };
    });
    const typeIds = [...this.#hiddenTypes];
    return {
      lines,
      rest: columnOf(this.#rest),
      hidden: typeIds.length === 0 ? null : { typeIds, ...columnOf(this.#hidden) },
      hasTooMany: this.#hasTooMany,
    };
  }
}

const columnOf = (counts: Counts): { at: number[]; counts: number[] } => ({
  at: [...counts.keys()],
  counts: [...counts.values()],
});
