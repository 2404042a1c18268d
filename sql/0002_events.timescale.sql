-- Events in a hypertable, and their counts per app, type and minute, quarter-hour, hour and day (UTC) in a hierarchy of
-- continuous aggregates.
--
-- How the counts stay exact: a continuous aggregate does not show rows that arrive in a bucket that it has materialised
-- until that bucket is refreshed, and which bucket that is is not known before the commit. So the inserting transaction
-- itself marks the minutes that it touches as stale. Readers count a stale bucket from the level below, and a stale
-- minute from its rows; maintenance refreshes what is marked, then moves the marks that it had seen before one level up.
-- In any snapshot a row is in the aggregates or its bucket is marked, however late its writer committed, and whoever
-- else refreshes whatever at any time.
--
-- type_id 0 stands for all types of an app: its totals cost the same with one type as with a thousand.

CREATE TABLE events (
  id          uuid        NOT NULL,
  app_id      integer     NOT NULL,
  type_id     integer     NOT NULL,
  created_at  timestamptz NOT NULL,
  payload     json        NOT NULL,
  CONSTRAINT events_key UNIQUE (app_id, created_at, id)
);
SELECT create_hypertable('events', by_range('created_at', INTERVAL '1 day'), create_default_indexes => false);

ALTER TABLE events SET (
  timescaledb.enable_columnstore = true,
  timescaledb.segmentby = 'app_id',
  timescaledb.orderby = 'created_at, id'
);

-- A server without the library of TimescaleDB, or with timescaledb.restoring on, would store rows in the table itself, where they are
-- never read again. New connections find that out (src/storage/database/fitness.ts); this refuses it from the very moment on,
-- by the code of a server that cannot be written to.
CREATE FUNCTION refuse_without_timescaledb() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'TimescaleDB is not loaded, or timescaledb.restoring is on: events would be stored where they are never read again'
        USING ERRCODE = 'read_only_sql_transaction';
END $$;
CREATE TRIGGER refuse_without_timescaledb BEFORE INSERT ON events FOR EACH STATEMENT
  WHEN (current_setting('timescaledb.restoring', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION refuse_without_timescaledb();

-- Buckets whose aggregates may lack committed rows. A snapshot that stays in use keeps dead rows of marks, a hundred a second, and
-- each read would go through them. So, as on PostgreSQL for deltas, each mark has the id of its transaction. Maintenance writes all
-- marks anew in one statement and notes which transactions were running in its snapshot: in any later snapshot, marks of others
-- that are older are gone. A reader tells the views by a setting of its transaction, which it takes from its own snapshot; without
-- the setting they read all marks, with the same result.
CREATE TABLE stale_buckets (
  id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  level    smallint    NOT NULL CHECK (level BETWEEN 0 AND 3),
  bucket   timestamptz NOT NULL,
  written  xid8        NOT NULL DEFAULT pg_current_xact_id(),
  fields   integer     NOT NULL DEFAULT 0
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- New entries go to its end, beyond those of dead rows.
CREATE INDEX stale_buckets_pending ON stale_buckets (written, bucket, level);
COMMENT ON COLUMN stale_buckets.level IS '0 minute, 1 quarter-hour, 2 hour, 3 day; a bucket is stale where it or one inside it is marked.';
COMMENT ON COLUMN stale_buckets.fields IS 'The generation up to which the writer knew declared fields of payloads.';

CREATE TABLE folds (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  pending_from  xid8     NOT NULL,
  running       xid8[]   NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE folds IS 'Marks of transactions before pending_from are gone, except for those of the running ones.';
INSERT INTO folds (pending_from) VALUES ('0');

-- In a copy of the database on another server transactions are numbered anew: a number that is not given yet says nothing.
CREATE VIEW last_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(pending_from, (SELECT min(written) FROM stale_buckets WHERE written = ANY (running)))
              ELSE '0'
         END AS pending_from
    FROM folds;

-- What maintenance notes of its snapshot. Transactions that have begun a short while ago are nothing special.
CREATE VIEW next_fold AS
  SELECT coalesce(min(xid) FILTER (WHERE is_recent), newest)              AS pending_from,
         coalesce(array_agg(xid ORDER BY xid) FILTER (WHERE NOT is_recent), '{}') AS running
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS newest) AS snapshot
    LEFT JOIN LATERAL (
           SELECT xid, xid::text::bigint >= newest::text::bigint - 1000 AS is_recent
             FROM pg_snapshot_xip(pg_current_snapshot()) AS xid) AS transactions ON true
   GROUP BY newest;

CREATE VIEW pending_marks AS
  SELECT level, bucket, fields FROM stale_buckets
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_from', true), ''), '0')::xid8;
-- Minutes with rows whose writers knew the fields up to a generation. A mark does not tell its apps, so that it holds for all of
-- them. Those of merged and lifted marks are in uncounted_minutes.
CREATE VIEW stamped_minutes AS
  SELECT apps.id AS app_id, bucket, fields FROM apps CROSS JOIN pending_marks WHERE level = 0;

CREATE MATERIALIZED VIEW minute_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, type_id, time_bucket('1 minute', created_at) AS bucket, count(*) AS count
    FROM events GROUP BY 1, 2, 3
  WITH NO DATA;
CREATE MATERIALIZED VIEW quarter_hour_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, type_id, time_bucket('15 minutes', bucket) AS bucket, sum(count)::bigint AS count
    FROM minute_counts GROUP BY 1, 2, 3
  WITH NO DATA;
CREATE MATERIALIZED VIEW hour_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, type_id, time_bucket('1 hour', bucket) AS bucket, sum(count)::bigint AS count
    FROM quarter_hour_counts GROUP BY 1, 2, 3
  WITH NO DATA;
CREATE MATERIALIZED VIEW day_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, type_id, time_bucket('1 day', bucket) AS bucket, sum(count)::bigint AS count
    FROM hour_counts GROUP BY 1, 2, 3
  WITH NO DATA;

CREATE MATERIALIZED VIEW app_minute_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, time_bucket('1 minute', created_at) AS bucket, count(*) AS count
    FROM events GROUP BY 1, 2
  WITH NO DATA;
CREATE MATERIALIZED VIEW app_quarter_hour_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, time_bucket('15 minutes', bucket) AS bucket, sum(count)::bigint AS count
    FROM app_minute_counts GROUP BY 1, 2
  WITH NO DATA;
CREATE MATERIALIZED VIEW app_hour_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, time_bucket('1 hour', bucket) AS bucket, sum(count)::bigint AS count
    FROM app_quarter_hour_counts GROUP BY 1, 2
  WITH NO DATA;
CREATE MATERIALIZED VIEW app_day_counts
  WITH (timescaledb.continuous, timescaledb.materialized_only = false, timescaledb.create_group_indexes = false) AS
  SELECT app_id, time_bucket('1 day', bucket) AS bucket, sum(count)::bigint AS count
    FROM app_hour_counts GROUP BY 1, 2
  WITH NO DATA;

CREATE INDEX ON minute_counts           (app_id, type_id, bucket);
CREATE INDEX ON quarter_hour_counts     (app_id, type_id, bucket);
CREATE INDEX ON hour_counts             (app_id, type_id, bucket);
CREATE INDEX ON day_counts              (app_id, type_id, bucket);
CREATE INDEX ON app_minute_counts       (app_id, bucket);
CREATE INDEX ON app_quarter_hour_counts (app_id, bucket);
CREATE INDEX ON app_hour_counts         (app_id, bucket);
CREATE INDEX ON app_day_counts          (app_id, bucket);

-- By default each level has chunks of ten days: 37 a year, of which a year's chart would open every one.
SELECT set_chunk_time_interval(aggregate, width)
  FROM (VALUES ('minute_counts',            INTERVAL '30 days'),
               ('app_minute_counts',        INTERVAL '30 days'),
               ('quarter_hour_counts',      INTERVAL '360 days'),
               ('app_quarter_hour_counts',  INTERVAL '360 days'),
               ('hour_counts',              INTERVAL '360 days'),
               ('app_hour_counts',          INTERVAL '360 days'),
               ('day_counts',               INTERVAL '360 days'),
               ('app_day_counts',           INTERVAL '360 days')) AS intervals (aggregate, width);

-- The counts by the minute take about half as much as the compressed events that they count: their older chunks go to the
-- columnstore too. Maintenance compresses them, as it does those of events.
ALTER MATERIALIZED VIEW minute_counts SET (
  timescaledb.enable_columnstore = true,
  timescaledb.segmentby = 'app_id, type_id',
  timescaledb.orderby = 'bucket'
);
ALTER MATERIALIZED VIEW app_minute_counts SET (
  timescaledb.enable_columnstore = true,
  timescaledb.segmentby = 'app_id',
  timescaledb.orderby = 'bucket'
);

-- A continuous aggregate knows no count without rows: its next refresh would remove it. So whoever removes rows moves their counts here, in
-- the same transaction, and the views have both. They are kept by the quarter-hour, as those before the boundary of all apps.
CREATE TABLE outlived_quarter_hour_counts (
  app_id   integer      NOT NULL,
  type_id  integer      NOT NULL,
  bucket   timestamptz  NOT NULL,
  count    bigint       NOT NULL,
  PRIMARY KEY (app_id, type_id, bucket)
);
CREATE TABLE outlived_hour_counts (LIKE outlived_quarter_hour_counts, PRIMARY KEY (app_id, type_id, bucket));
CREATE TABLE outlived_day_counts  (LIKE outlived_quarter_hour_counts, PRIMARY KEY (app_id, type_id, bucket));
COMMENT ON TABLE outlived_quarter_hour_counts IS 'Counts of events whose rows the retention of their app or type has removed.';

-- What charts add to a minute that they count from its rows, and to the minutes of a quarter-hour that they count from these.
CREATE VIEW outlived_counts AS SELECT app_id, type_id, bucket, count FROM outlived_quarter_hour_counts;

-- Readers take the counts from where the aggregates keep what they have materialised. Through a real-time aggregate every
-- statement would be planned over the chunks of all finer levels and of the events too, eight times over: most of the
-- time of a page. They need no real-time branch: what is not materialised yet is marked in stale_buckets, by the
-- transaction that has stored it, and is counted from finer counts or from rows. For people who query the aggregates
-- by themselves, minute_counts to app_day_counts stay real-time.
DO $$
DECLARE
  level text;
BEGIN
  FOREACH level IN ARRAY ARRAY['minute', 'quarter_hour', 'hour', 'day'] LOOP
    EXECUTE (
      SELECT format('CREATE VIEW events_per_%s AS
                      SELECT app_id, type_id, bucket, count FROM %s
                       UNION ALL SELECT app_id, 0,       bucket, count FROM %s
                       UNION ALL SELECT app_id, type_id, bucket, count FROM %s', level,
                    max(kept) FILTER (WHERE view_name = level || '_counts'),
                    max(kept) FILTER (WHERE view_name = 'app_' || level || '_counts'),
                    format('outlived_%s_counts', CASE level WHEN 'minute' THEN 'quarter_hour' ELSE level END))
        FROM (SELECT view_name, format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name) AS kept
                FROM timescaledb_information.continuous_aggregates WHERE view_schema = current_schema()) aggregates);
  END LOOP;
END $$;
COMMENT ON VIEW events_per_day IS 'What is materialised. Exact but for the buckets that stale_buckets marks, here and in the finer ones.';

-- By the month as on PostgreSQL. A month with a mark in it is made of its days; the transaction that takes the last mark
-- off a day adds its month up again.
CREATE TABLE month_counts (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL,
  PRIMARY KEY (app_id, type_id, bucket)
);
CREATE VIEW events_per_month AS SELECT app_id, type_id, bucket, count FROM month_counts;

-- Counts without what is still to be settled: what profiles of days are made of.
CREATE VIEW settled_day_counts AS
  SELECT app_id, type_id, bucket, sum(count)::bigint AS count FROM events_per_day GROUP BY 1, 2, 3;
CREATE VIEW settled_quarter_hour_counts AS
  SELECT app_id, type_id, bucket, sum(count)::bigint AS count FROM events_per_quarter_hour GROUP BY 1, 2, 3;

-- A profile is one row per app, type and day with the running count after each of its quarter-hours. The count between
-- any two quarter-hours of a day is then one subtraction in one row, so a year of days, weeks or twelve-hour buckets in
-- whatever time zone (+05:45 too) is 365 rows a type in place of 35,040.
--
-- Profiles are made of days that are over. A day of an app has profiles while it is listed in profiled_days: the
-- transaction that takes the last mark off a day strikes it off, and maintenance makes its profiles again.

CREATE TABLE daily_prefix_sums (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  day      timestamptz NOT NULL,
  running  integer[]   NOT NULL CHECK (cardinality(running) = 96),
  -- Read from the index alone, where a type's days lie side by side: 20 pages a year in place of 365.
  PRIMARY KEY (app_id, type_id, day) INCLUDE (running)
);
COMMENT ON COLUMN daily_prefix_sums.running IS 'The count from midnight (UTC) to the end of each quarter-hour: running[96] is the day''s.';

CREATE TABLE profiled_days (
  app_id  integer     NOT NULL,
  day     timestamptz NOT NULL,
  PRIMARY KEY (app_id, day)
);

-- A day with a mark in it has no ready profiles.
CREATE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM pending_marks WHERE date_bin('1 day', bucket, 'epoch') = day);

-- Rows before readable_from are no longer read or counted in totals; their chunks are dropped some time later.
CREATE TABLE retention (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  readable_from  timestamptz NOT NULL
);
INSERT INTO retention (readable_from) VALUES ('-infinity');

-- Chunks of months and years for events of long ago, so that what is dated back over years makes tens of chunks and not
-- thousands. The last two weeks and the future have chunks of CHUNK_HOURS, before that this year and the one before by month,
-- older time by year, as far as the chunks that exist leave room.
--
-- Called before events of past days are inserted. Where it cannot make a chunk, TimescaleDB makes one of CHUNK_HOURS for the
-- rows when they come.
CREATE FUNCTION make_room_for_events(day date, today date DEFAULT (now() AT TIME ZONE 'UTC')::date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  midnight timestamptz := day::timestamp AT TIME ZONE 'UTC';
  by_day_from date := today - 14;
  width text := CASE WHEN day >= date_trunc('year', today - interval '1 year') THEN 'month' ELSE 'year' END;
  lower_bound timestamptz := date_trunc(width, day::timestamp) AT TIME ZONE 'UTC';
  upper_bound timestamptz := (date_trunc(width, day::timestamp) + ('1 ' || width)::interval) AT TIME ZONE 'UTC';
  chunk record;
BEGIN
  IF day >= by_day_from THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtext('tidemark partitions'));
  upper_bound := least(upper_bound, by_day_from::timestamp AT TIME ZONE 'UTC');
  FOR chunk IN SELECT range_start AS start, range_end AS finish FROM timescaledb_information.chunks
                WHERE hypertable_schema = current_schema() AND hypertable_name = 'events'
  LOOP
    -- A day that a chunk holds, even a part of it, needs no other one.
    IF chunk.start < midnight + interval '1 day' AND chunk.finish > midnight THEN RETURN; END IF;
    IF chunk.finish <= midnight THEN lower_bound := greatest(lower_bound, chunk.finish); END IF;
    IF chunk.start > midnight THEN upper_bound := least(upper_bound, chunk.start); END IF;
  END LOOP;
  PERFORM _timescaledb_functions.create_chunk('events'::regclass, jsonb_build_object('created_at', jsonb_build_array(
            (extract(epoch FROM lower_bound) * 1000000)::bigint, (extract(epoch FROM upper_bound) * 1000000)::bigint)));
EXCEPTION
  WHEN undefined_function THEN RETURN;
END $$;

-- What reads of events need of their types. In a cluster it is a table beside the events of each app.
CREATE VIEW type_names AS SELECT app_id, id, public_id, name FROM event_types;

-- Where a table lies whose rows belong to apps: on one server as it is made.
CREATE FUNCTION beside_events(name regclass) RETURNS void LANGUAGE sql AS '';
