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

-- Buckets whose aggregates may lack committed rows.
CREATE TABLE stale_buckets (
  id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  level   smallint    NOT NULL CHECK (level BETWEEN 0 AND 3),
  bucket  timestamptz NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
COMMENT ON COLUMN stale_buckets.level IS '0 minute, 1 quarter-hour, 2 hour, 3 day; a bucket is stale where it or one inside it is marked.';

CREATE FUNCTION mark_stale_minutes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO stale_buckets (level, bucket)
  SELECT DISTINCT 0, date_bin('1 minute', created_at, 'epoch') FROM new_events;
  RETURN NULL;
END $$;

CREATE TRIGGER mark_stale_minutes AFTER INSERT ON events
  REFERENCING NEW TABLE AS new_events
  FOR EACH STATEMENT EXECUTE FUNCTION mark_stale_minutes();

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

CREATE VIEW events_per_minute AS
            SELECT app_id, type_id, bucket, count FROM minute_counts
  UNION ALL SELECT app_id, 0,       bucket, count FROM app_minute_counts;
CREATE VIEW events_per_quarter_hour AS
            SELECT app_id, type_id, bucket, count FROM quarter_hour_counts
  UNION ALL SELECT app_id, 0,       bucket, count FROM app_quarter_hour_counts;
CREATE VIEW events_per_hour AS
            SELECT app_id, type_id, bucket, count FROM hour_counts
  UNION ALL SELECT app_id, 0,       bucket, count FROM app_hour_counts;
CREATE VIEW events_per_day AS
            SELECT app_id, type_id, bucket, count FROM day_counts
  UNION ALL SELECT app_id, 0,       bucket, count FROM app_day_counts;

-- Rows before readable_from are no longer read or counted in totals; their chunks are dropped some time later.
CREATE TABLE retention (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  readable_from  timestamptz NOT NULL
);
INSERT INTO retention (readable_from) VALUES ('-infinity');
