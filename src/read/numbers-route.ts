/** GET /api/apps/:appId/numbers: the statistics of a field's numbers for a chart. */

import type { NumberStats } from '../api-types/answers.ts';
import { Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { ReadPlace } from '../http/read-slots.ts';
import type { Route } from '../http/route.ts';
import {
  type BucketsProblem,
  type NumberSeries,
  NumbersOfEvents,
  type RowFilter,
  type SeriesRequest,
} from '../storage/storage.ts';
import { conditionsOf, intervalOf, NUMBERS_QUERY } from './chart-query.ts';
import { type ChartRouteOptions, TOO_LONG } from './chart-route.ts';
import { COUNTED_LATER } from './filter/counted-values.ts';
import { doublesOf, statColumns } from './number-stats.ts';
import { EVERY_ROW } from './scan-route.ts';
import { findTypesLeft } from './scope-query.ts';
import { type SearchBudget, searchThrough } from './search-page.ts';

const NOT_COUNTED = new Rejection(
  'invalidParameters',
  'of must be a declared field of the kind number that is counted for the whole interval.',
);
const TOO_MANY_ROWS = new Rejection(
  'invalidParameters',
  'the range has more events than can be read for a statistic that is not counted: choose a shorter range',
);

/** What is read for statistics that counts do not answer: about 100,000 events take a third of a second. */
const ROWS: SearchBudget = { rows: 2_000_000, ms: 2_000 };

/**
 * Columns of statistics, as doubles, in the buckets of the chart of the same parameters. `hidden=exclude` leaves out types as the
 * chart does: the least and the greatest number of what remains cannot be told from those of all, so its types are read one by one.
 * Conditions on payloads, and fields that are not counted, are answered from the rows, if these are few enough; `counted` says which.
 */
export function numbersRoute(options: ChartRouteOptions): Route {
  const { api, now } = options;
  return api.readInTurn('/api/apps/:appId/numbers', 'viewer', async ({ app, exchange, ...place }) => {
    const { sql, events } = place;
    const query = NUMBERS_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const { rows } = conditionsOf(query);
    if (rows instanceof Rejection) return rows;
    const { typeId, exceptTypeId, hidden, timezone, buckets } = query;
    // It is required.
    const { sent, path } = query.of ?? { sent: '', path: [] };
    const typeIds = await findTypesLeft(sql, app.id, { typeId, typeName: [], exceptTypeId, hidden });
    if (typeIds instanceof Rejection) return typeIds;
    const request = {
      ...({ appId: app.id, typeIds, timezone: timezone ?? 'UTC', exactEnds: 'both' } as const),
      ...intervalOf(query, now()),
      buckets,
    };
    const counted = rows === null ? await events.numberSeries(request, path) : 'not counted';
    const series =
      counted === 'not counted' ? await numbersOfRows(options, place, request, { path, rows }) : counted;
    if (series === 'not counted yet') return COUNTED_LATER;
    if (series instanceof Rejection) return series;
    if (typeof series === 'string') return TOO_LONG;
    // Nobody sends numbers there: the path may be misspelled.
    if (rows === null && counted === 'not counted' && series.overall.count === 0) return NOT_COUNTED;
    const { stats, overall, ...rest } = series;
    const shown = { ...rest, stats: statColumns(stats), overall: doublesOf(overall) };
    return done<NumberStats>({ of: sent, counted: counted !== 'not counted', ...shown });
  });
}

async function numbersOfRows(
  { monotonic }: ChartRouteOptions,
  { events, pass }: ReadPlace,
  request: SeriesRequest,
  { path, rows }: { readonly path: readonly string[]; readonly rows: RowFilter | null },
): Promise<NumberSeries | BucketsProblem | Rejection> {
  const frame = await events.frame(request);
  if (typeof frame === 'string') return frame;
  const numbers = new NumbersOfEvents(frame, path);
  const { appId, typeIds } = request;
  const { next } = await searchThrough(
    events,
    { appId, typeIds, ...frame.interval, order: 'asc', after: null },
    rows ?? EVERY_ROW,
    { budget: ROWS, now: monotonic, pass },
    (event) => {
      numbers.add(event);
      return false;
    },
  );
  return next === null ? numbers.finish() : TOO_MANY_ROWS;
}
