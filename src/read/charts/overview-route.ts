/** GET /api/apps/:appId/overview: what an app does, at a glance: its numbers with their change, what moved most, and what fell silent. */
import type { MovedLine, Overview, Series, SilentType } from '../../api-types/answers.ts';
import { listAnnotations } from '../../apps/annotations.ts';
import { listCountedPaths } from '../../apps/fields.ts';
import { LEAST_WEIGHT, weightOf } from '../../base/chance.ts';
import { sum } from '../../base/sum.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/time-units.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import { Query } from '../../http/query.ts';
import type { Route } from '../../http/route.ts';
import { instantOf, localOf } from '../../storage/counts/timezone.ts';
import { timezone } from '../scope-query.ts';
import { PLAIN_CHART } from './chart-query.ts';
import { type ChartRouteOptions, readChartOf } from './series-columns.ts';

const OVERVIEW_QUERY = new Query({ timezone: timezone('IANA time zone of the week. Absent: UTC.') });

const DAYS = 7;
/** Hours of a week, and one that has begun. */
const BUCKETS = 170;
/** Buckets of a value's week, which is drawn small. */
const FEW_BUCKETS = 28;
const MOST_LINES = 100;
const MOST_FIELDS = 6;
const MOST_SHOWN = 8;
const MOST_ANNOTATIONS = 5;
const ANNOTATED_DAYS = 90;
/** Events that a type has missed before it is called silent: by chance that happens once in a thousand times. */
const MISSED = 7;

/** Counts alone, and of one snapshot. */
export function overviewRoute(options: ChartRouteOptions): Route {
  return options.api.readInTurn('/api/apps/:appId/overview', 'read', async ({ app, exchange, events }) => {
    const query = OVERVIEW_QUERY.parse(exchange.query);
    if (query instanceof Rejection) return query;
    const zone = query.timezone ?? 'UTC';
    // To the minute: counts answer it without a look at rows.
    const until = Math.floor(options.now() / MINUTE_MS) * MINUTE_MS;
    const daysBefore = (days: number): number => instantOf(zone, localOf(zone, until) - days * DAY_MS);
    const week = { from: daysBefore(DAYS), before: daysBefore(2 * DAYS), until };
    return await events.together(app.id, async (sql, reader) => {
      const read = ({ before, until: to, ...asked }: Asked): Promise<Series | Rejection> => {
        const compared = { compareFrom: before, compareTo: asked.from };
        const question = { ...PLAIN_CHART, ...asked, to, ...compared, timezone: zone };
        return readChartOf(options, { sql, events: reader }, app, question);
      };
      const short = (length: number): Asked => ({
        ...{ from: until - length, before: until - 2 * length, until, buckets: 1, lines: 1 },
      });
      const paths = (await listCountedPaths(sql, app.id)).slice(0, MOST_FIELDS);
      const [byHour, hour, day, stats, annotated, ...byValue] = await Promise.all([
        read({ ...week, buckets: BUCKETS, lines: MOST_LINES }),
        read(short(HOUR_MS)),
        read(short(DAY_MS)),
        reader.typeStats(app.id),
        listAnnotations(sql, app.id, { from: until - ANNOTATED_DAYS * DAY_MS, until: null }),
        ...paths.map((by) => read({ ...week, buckets: FEW_BUCKETS, lines: MOST_LINES, by })),
      ]);
      if (byHour instanceof Rejection) return byHour;
      if (hour instanceof Rejection) return hour;
      if (day instanceof Rejection) return day;
      // A field whose counts do not reach back so far is answered by type.
      const ofFields = byValue.flatMap((one) => (one instanceof Rejection || one.by === null ? [] : one));
      const sent = (counts: readonly number[] | undefined): boolean => sum(counts ?? []) > 0;
      return done<Overview>({
        hour: numberOf(hour),
        day: numberOf(day),
        week: numberOf(byHour),
        byHour: byHour.all,
        types: {
          sent: byHour.lines.filter(({ total }) => total > 0).length,
          before: byHour.lines.filter(({ key }) => sent(byHour.compared?.byKey[key])).length,
          isWhole: byHour.other === null,
        },
        moved: [byHour, ...ofFields].flatMap(movedOf).toSorted(byWeight).slice(0, MOST_SHOWN).map(shownLine),
        silent: silentOf(byHour, zone, (typeId) => stats.get(typeId)?.lastEventAt?.getTime() ?? null),
        annotations: annotated.annotations
          .slice(0, MOST_ANNOTATIONS)
          .map(({ annotationId, at, text }) => ({ annotationId, at: at.toISOString(), text })),
      });
    });
  });
}

interface Asked {
  readonly from: number;
  readonly until: number;
  /** Where the interval begins that ends at `from`. */
  readonly before: number;
  readonly buckets: number;
  readonly lines: number;
  readonly by?: readonly string[];
}

const numberOf = ({ all, compared }: Series): Overview['week'] => ({
  total: sum(all),
  before: compared && sum(compared.all),
});

type Weighted = MovedLine & { readonly weight: number };

/** Types or values whose number differs from that of the week before by more than chance, for their size. */
function movedOf({ by, lines, compared }: Series): Weighted[] {
  if (compared === null) return [];
  return lines.flatMap(({ key, name, counts, total }) => {
    const before = sum(compared.byKey[key] ?? []);
    const weight = weightOf(total, before);
    return weight > LEAST_WEIGHT ? [{ path: by, key, name, counts, total, before, weight }] : [];
  });
}

const byWeight = (a: Weighted, b: Weighted): number => b.weight - a.weight;
const shownLine = ({ weight: _, ...line }: Weighted): MovedLine => line;

/** Types that have sent nothing for longer than is usual for them at the same hours of the week before: nights are no silence. */
function silentOf(
  { lines, compared, interval }: Series,
  zone: string,
  lastOf: (typeId: string) => number | null,
): SilentType[] {
  if (compared === null) return [];
  // A week later by the clock.
  const later = compared.starts.map((start) => instantOf(zone, localOf(zone, start) + DAYS * DAY_MS));
  return lines
    .flatMap(({ key, name }) => {
      const last = lastOf(key);
      if (last === null) return [];
      const hours = (interval.until - last) / HOUR_MS;
      const counts = compared.byKey[key] ?? [];
      const missed = sum(counts.filter((_, index) => (later[index] ?? 0) >= last));
      return hours < 1 || missed < MISSED ? [] : [{ typeId: key, name, hours, missed }];
    })
    .toSorted((a, b) => b.missed - a.missed)
    .slice(0, MOST_SHOWN);
}
