/** The usage of apps and tokens in PostgreSQL: added as deltas, so that processes need not know of each other. */

import type { Usage } from '../api-types/answers.ts';
import { DAY_MS, MINUTE_MS } from '../base/time-units.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';

/**
 * The prefix of the codes of events that were refused inside of accepted requests. They are counted in the table of refused
 * requests, whose codes never begin with it.
 */
export const EVENT_PREFIX = 'event:';

/** Requests of an app or a token in a minute. */
export interface RequestsDelta {
  readonly id: number;
  /** Start of the minute, in milliseconds since 1970. */
  readonly at: number;
  /** Code of the refusal; empty for accepted requests. */
  readonly code: string;
  /** Events where the code has {@link EVENT_PREFIX}. */
  readonly requests: number;
}

export interface DayDelta {
  readonly id: number;
  /** A time of the day. */
  readonly at: number;
  readonly events: number;
  /** Bytes of the payloads' text in UTF-8. */
  readonly bytes: number;
}

/** What a producer has sent in a minute. */
export interface ProducerDelta {
  /** Internal ids; of an app's first producer 0. */
  readonly appId: number;
  readonly producerId: number;
  /** Start of the minute, in milliseconds since 1970. */
  readonly at: number;
  readonly requests: number;
  readonly events: number;
  readonly refused: number;
}

/** Events that came late. */
export interface LateDelta {
  readonly typeId: number;
  /** When they came, in milliseconds since 1970. */
  readonly at: number;
  /** One of {@link LATE_MINUTES}. */
  readonly upTo: number;
  readonly events: number;
}

/** How late events are is told apart by these minutes. What is later than the last is no late event, but an import of the past. */
export const LATE_MINUTES = [
  2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 540, 720, 1_080, 1_440,
] as const;

export interface UsageDeltas {
  /** Requests with a logging token. */
  readonly apps: readonly RequestsDelta[];
  readonly tokens: readonly RequestsDelta[];
  readonly days: readonly DayDelta[];
  readonly producers: readonly ProducerDelta[];
  readonly late: readonly LateDelta[];
}

/** Requests are kept by the minute for this long. */
const KEPT_MS = 2 * 3_600_000;
/** Requests of producers stay for longer, by the quarter-hour. */
const PRODUCERS_KEPT_MS = 90 * 86_400_000;
/** How far back minutes are looked for that are not folded into their quarter-hours yet. */
const UNFOLDED_MS = 7 * 86_400_000;
/** Late events of this long ago and newer are told of. */
const LATE_KEPT_MS = DAY_MS;

/** Adds deltas. Keys are written in their order, so that several processes do not wait for each other in a circle. */
export async function addUsage(
  sql: Sql,
  { apps, tokens, days, producers, late }: UsageDeltas,
): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    await addRequests(tx, apps, { table: 'app_requests', id: 'app_id', of: 'apps' });
    await addRequests(tx, tokens, { table: 'token_requests', id: 'token_id', of: 'resource_tokens' });
    await addProducers(tx, producers);
    await addLate(tx, late);
    if (days.length === 0) return;
    await tx`
      INSERT INTO usage_days AS known (app_id, day, events, bytes)
      SELECT apps.id, (to_timestamp(at / 1000) AT TIME ZONE 'UTC')::date, sum(events)::bigint, sum(bytes)::bigint
        FROM unnest(${days.map(({ id }) => id)}::int[], ${days.map(({ at }) => at)}::float8[],
                    ${days.map(({ events }) => events)}::float8[], ${days.map(({ bytes }) => bytes)}::float8[])
               AS new (id, at, events, bytes)
        JOIN apps USING (id)
       GROUP BY 1, 2 ORDER BY 1, 2
      ON CONFLICT (app_id, day) DO UPDATE
         SET events = known.events + excluded.events, bytes = known.bytes + excluded.bytes`;
  });
}

/** Adds requests, without those of apps and tokens that are gone. */
async function addRequests(
  tx: Transaction,
  deltas: readonly RequestsDelta[],
  { table, id, of }: { readonly table: string; readonly id: string; readonly of: string },
): Promise<void> {
  if (deltas.length === 0) return;
  await tx`
    INSERT INTO ${tx(table)} AS known (${tx(id)}, minute, code, requests)
    SELECT owner.id, to_timestamp(at / 1000), code, sum(requests)::bigint
      FROM unnest(${deltas.map((delta) => delta.id)}::int[], ${deltas.map(({ at }) => at)}::float8[],
                  ${deltas.map(({ code }) => code)}::text[], ${deltas.map(({ requests }) => requests)}::float8[])
             AS new (id, at, code, requests)
      JOIN ${tx(of)} AS owner USING (id)
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (${tx(id)}, minute, code) DO UPDATE SET requests = known.requests + excluded.requests`;
}

async function addProducers(tx: Transaction, deltas: readonly ProducerDelta[]): Promise<void> {
  if (deltas.length === 0) return;
  const column = (name: keyof ProducerDelta): number[] => deltas.map((delta) => delta[name]);
  const used = tx`
    SELECT apps.id AS app_id, new.producer_id, to_timestamp(new.at / 1000) AS minute,
           new.requests::bigint, new.events::bigint, new.refused::bigint
      FROM unnest(${column('appId')}::int[], ${column('producerId')}::int[], ${column('at')}::float8[],
                  ${column('requests')}::float8[], ${column('events')}::float8[], ${column('refused')}::float8[])
             AS new (app_id, producer_id, at, requests, events, refused)
      JOIN apps ON apps.id = new.app_id`;
  await tx`
    INSERT INTO producer_requests AS known (app_id, producer_id, minute, requests, events, refused)
    SELECT app_id, producer_id, minute, sum(requests), sum(events), sum(refused)
      FROM (${used}) AS used GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (app_id, producer_id, minute) DO UPDATE
       SET requests = known.requests + excluded.requests, events = known.events + excluded.events,
           refused = known.refused + excluded.refused`;
  await tx`
    INSERT INTO producer_uses AS known (app_id, producer_id, first_used_at, last_used_at)
    SELECT app_id, producer_id, min(minute), max(minute) FROM (${used}) AS used GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (app_id, producer_id) DO UPDATE
       SET first_used_at = least(known.first_used_at, excluded.first_used_at),
           last_used_at = greatest(known.last_used_at, excluded.last_used_at)`;
}

/** Adds late events, without those of types that are gone. */
async function addLate(tx: Transaction, deltas: readonly LateDelta[]): Promise<void> {
  if (deltas.length === 0) return;
  const column = (name: keyof LateDelta): number[] => deltas.map((delta) => delta[name]);
  await tx`
    INSERT INTO late_events AS known (type_id, hour, up_to, events, minutes)
    SELECT type.id, date_bin('1 hour', to_timestamp(at / 1000), 'epoch'), up_to, sum(new.events)::bigint,
           bit_or(1::bigint << (at / ${MINUTE_MS})::bigint::integer % 60)
      FROM unnest(${column('typeId')}::int[], ${column('at')}::float8[], ${column('upTo')}::smallint[], ${column('events')}::float8[])
             AS new (id, at, up_to, events)
      JOIN event_types AS type USING (id)
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (type_id, hour, up_to) DO UPDATE
       SET events = known.events + excluded.events, minutes = known.minutes | excluded.minutes`;
}

export interface LateEvents {
  readonly name: string;
  /** Minutes that they were late, at most. */
  readonly upTo: number;
  readonly events: number;
  /** In how many minutes they arrived. */
  readonly minutes: number;
}

/** Events of the last day that came late, by the name of their type and how late they were, which is the order. */
export async function lateEvents(sql: Sql, appId: number, now: number): Promise<readonly LateEvents[]> {
  return await sql<LateEvents[]>`
    SELECT name, up_to AS "upTo", sum(events)::float8 AS events, sum(bit_count(minutes::bit(64)))::float8 AS minutes
      FROM late_events JOIN event_types AS type ON type.id = type_id
     WHERE type.app_id = ${appId} AND hour > ${new Date(now - LATE_KEPT_MS)}
     GROUP BY 1, 2 ORDER BY 2, 1`;
}

/** Removes requests that are not shown any more, and folds minutes of producers into quarter-hours. */
export async function removeOldRequests(sql: Sql, now: number): Promise<void> {
  const before = new Date(now - KEPT_MS);
  await sql`DELETE FROM app_requests WHERE minute < ${before}`;
  await sql`DELETE FROM token_requests WHERE minute < ${before}`;
  await sql`DELETE FROM late_events WHERE hour < ${new Date(now - LATE_KEPT_MS)}`;
  await sql`DELETE FROM producer_requests WHERE minute < ${new Date(now - PRODUCERS_KEPT_MS)}`;
  // The row of a quarter-hour is that of its first minute.
  await sql`
    WITH old AS (
      DELETE FROM producer_requests
       WHERE minute < date_bin('15 minutes', ${before}, 'epoch') AND minute > ${new Date(now - UNFOLDED_MS)}
         AND minute <> date_bin('15 minutes', minute, 'epoch')
      RETURNING *
    )
    INSERT INTO producer_requests AS known (app_id, producer_id, minute, requests, events, refused)
    SELECT app_id, producer_id, date_bin('15 minutes', minute, 'epoch') AS quarter, sum(requests), sum(events), sum(refused)
      FROM old GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (app_id, producer_id, minute) DO UPDATE
       SET requests = known.requests + excluded.requests, events = known.events + excluded.events,
           refused = known.refused + excluded.refused`;
}

export type AppUsage = Pick<
  Usage<Date>,
  'refused' | 'refusedEvents' | 'days' | 'types' | 'minutes' | 'tokens'
>;

const SHOWN_MINUTES = 60;
const SHOWN_DAYS = 30;

export async function readUsage(sql: Sql, appId: number, now: number): Promise<AppUsage> {
  const minute = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  const since = new Date(minute - (SHOWN_MINUTES - 1) * MINUTE_MS);
  const today = new Date(Math.floor(now / DAY_MS) * DAY_MS);
  const [minutes, codes, days, types, tokens] = await Promise.all([
    sql<AppUsage['minutes'][number][]>`
      SELECT at, coalesce(sum(requests) FILTER (WHERE code = ''), 0)::float8 AS accepted,
             coalesce(sum(requests) FILTER (WHERE code <> '' AND NOT starts_with(code, ${EVENT_PREFIX})), 0)::float8 AS refused
        FROM generate_series(${since}::timestamptz, ${new Date(minute)}::timestamptz, interval '1 minute') AS at
        LEFT JOIN app_requests ON app_id = ${appId} AND minute = at
       GROUP BY at ORDER BY at`,
    sql<AppUsage['refused'][number][]>`
      SELECT code, sum(requests)::float8 AS requests FROM app_requests
       WHERE app_id = ${appId} AND minute >= ${since} AND code <> ''
       GROUP BY code ORDER BY requests DESC, code`,
    sql<AppUsage['days'][number][]>`
      SELECT at::date::text AS day, coalesce(events, 0)::float8 AS events, coalesce(bytes, 0)::float8 AS bytes
        FROM generate_series(${today}::timestamptz AT TIME ZONE 'UTC' - ${SHOWN_DAYS - 1} * interval '1 day',
                             ${today}::timestamptz AT TIME ZONE 'UTC', interval '1 day') AS at
        LEFT JOIN usage_days ON app_id = ${appId} AND day = at::date
       ORDER BY at`,
    countRows(sql, sql`event_types WHERE app_id = ${appId}`),
    sql<AppUsage['tokens'][number][]>`
      SELECT token.public_id AS "tokenId", token.name, token.last_used_at AS "lastUsedAt",
             coalesce(sum(requests) FILTER (WHERE code = '' AND minute = ${new Date(minute)}), 0)::float8 AS reads,
             coalesce(sum(requests) FILTER (WHERE code <> ''), 0)::float8 AS refused
        FROM resource_tokens AS token
        JOIN resource_token_apps AS link ON link.token_id = token.id AND link.app_id = ${appId}
        LEFT JOIN token_requests ON token_requests.token_id = token.id AND minute >= ${since}
       WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${new Date(now)})
       GROUP BY token.id ORDER BY reads DESC, token.last_used_at DESC NULLS LAST, token.id`,
  ]);
  const isOfEvents = ({ code }: { readonly code: string }): boolean => code.startsWith(EVENT_PREFIX);
  return {
    minutes: [...minutes],
    refused: codes.filter((one) => !isOfEvents(one)),
    refusedEvents: codes
      .filter(isOfEvents)
      .map(({ code, requests }) => ({ code: code.slice(EVENT_PREFIX.length), events: requests })),
    days: [...days],
    types,
    tokens: [...tokens],
  };
}
