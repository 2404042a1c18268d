/** GET /api/apps/:appId/numbers: the statistics of a field's numbers for a chart. */
import { done } from '../accounts/routes/api.ts';
import { Rejection } from '../errors.ts';
import type { Route } from '../http/route.ts';
import { type ChartRouteOptions, TOO_LONG } from './chart-route.ts';
import { COUNTED_LATER } from './filter/counted-values.ts';
import { parsePath } from './filter/parse-filter.ts';
import { doublesOf, statColumns } from './number-stats.ts';
import { findTypesLeft } from './scope-query.ts';
import { parseSeriesQuery } from './series-query.ts';

const NO_PATH = new Rejection('invalidParameters', 'of must be the path of a declared field.');
const NOT_COUNTED = new Rejection(
  'invalidParameters',
  'of must be a declared field of the kind number that is counted for the whole interval.',
);

/**
 * Columns of statistics, as doubles, in the buckets of the chart of the same parameters. `hidden=exclude` leaves out types as the
 * chart does: the least and the greatest number of what remains cannot be told from those of all, so its types are read one by one.
 */
export function numbersRoute({ api, now }: ChartRouteOptions): Route {
  return api.readInTurn('/api/apps/:appId/numbers', 'viewer', async ({ app, exchange, sql, events }) => {
    const query = parseSeriesQuery(exchange.query);
    if (query instanceof Rejection) return query;
    const parameters = new URLSearchParams(exchange.query);
    const of = parameters.get('of') ?? '';
    const path = parsePath(of);
    if ('problem' in path) return NO_PATH;
    const typeIds = await findTypesLeft(sql, app.id, {
      ...{ typeId: query.typeIds, typeName: [] },
      hidden: parameters.get('hidden') === 'exclude' ? 'exclude' : 'include',
    });
    if (typeIds instanceof Rejection) return typeIds;
    const { from, timezone, buckets } = query;
    // The current millisecond is part of the present.
    const until = query.until ?? Math.max(now(), from ?? 0) + 1;
    const request = { appId: app.id, typeIds, timezone, exactEnds: 'both', from, until, buckets } as const;
    const series = await events.numberSeries(request, path);
    if (series === 'not counted') return NOT_COUNTED;
    if (series === 'not counted yet') return COUNTED_LATER;
    if (typeof series === 'string') return TOO_LONG;
    const { stats, overall, ...rest } = series;
    return done({ of, ...rest, stats: statColumns(stats), overall: doublesOf(overall) });
  });
}
