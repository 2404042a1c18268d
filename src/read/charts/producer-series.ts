/** GET /api/apps/:appId/producer-series: the events that each producer has sent, by when they were received, as its token counted them. */
import type { Api } from '../../accounts/routes/api.ts';
import type { Series } from '../../api-types/answers.ts';
import { readProducerEvents } from '../../apps/producers.ts';
import { sum } from '../../base/sum.ts';
import { QUARTER_HOUR_MS } from '../../base/time-units.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import { Query } from '../../http/query.ts';
import type { Route } from '../../http/route.ts';
import { checkChart, intervalOf, PRODUCER_PARAMETERS } from './chart-query.ts';
import { TOO_LONG } from './series-columns.ts';

export interface ProducerSeriesOptions {
  readonly api: Api;
  readonly now: () => number;
  /** Brings to the database what this process has counted. */
  readonly writeUsage: () => Promise<void>;
}

const QUERY = new Query(PRODUCER_PARAMETERS, (query) =>
  checkChart({ ...query, compareFrom: null, compareTo: null }),
);

/**
 * Events have no producer: these are the counts of tokens, to the quarter-hour, for 90 days, and no condition on events applies.
 * The buckets are those of the chart of the same range, unless these are finer than that.
 */
export function producerSeriesRoute({ api, now, writeUsage }: ProducerSeriesOptions): Route {
  return api.readInTurn(
    '/api/apps/:appId/producer-series',
    'read',
    async ({ app, exchange, sql, events }) => {
      const query = QUERY.parse(exchange.query);
      if (query instanceof Rejection) return query;
      const { timezone, buckets } = query;
      await writeUsage();
      const request = {
        ...({ appId: app.id, typeIds: null, exactEnds: 'both' } as const),
        ...{ timezone: timezone ?? 'UTC', ...intervalOf(query, now()) },
      };
      const wished = await events.frame({ ...request, buckets });
      if (typeof wished === 'string') return TOO_LONG;
      const [first = 0, second = wished.end] = wished.starts;
      const frame =
        second - first >= QUARTER_HOUR_MS ? wished : await events.frame({ ...request, buckets: '15m' });
      if (typeof frame === 'string') return TOO_LONG;
      const sent = await readProducerEvents(sql, app.id, [...frame.starts, frame.end]);
      const lines = sent
        .map((line, number) => ({ ...line, number, total: sum(line.counts) }))
        .filter(({ total }) => total > 0)
        .toSorted((a, b) => b.total - a.total);
      return done<Series>({
        ...frame,
        lines,
        all: frame.starts.map((_, index) => sum(lines.map(({ counts }) => counts[index] ?? 0))),
        other: null,
        before: { all: 0, byKey: {} },
        compared: null,
        by: null,
      });
    },
  );
}
