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
      SELECT format('CREATE OR REPLACE VIEW events_per_%s AS
                                 SELECT app_id, type_id, bucket, count FROM %s
                       UNION ALL SELECT app_id, 0,       bucket, count FROM %s', level,
                    max(kept) FILTER (WHERE view_name = level || '_counts'),
                    max(kept) FILTER (WHERE view_name = 'app_' || level || '_counts'))
        FROM (SELECT view_name, format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name) AS kept
                FROM timescaledb_information.continuous_aggregates WHERE view_schema = current_schema()) aggregates);
  END LOOP;
END $$;
COMMENT ON VIEW events_per_day IS 'What is materialised. Exact but for the buckets that stale_buckets marks, here and in the finer ones.';

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

-- By the month as on PostgreSQL. A month with a mark in it is made of its days; the transaction that takes the last mark
-- off a day adds its month up again.
CREATE TABLE month_counts (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL,
  PRIMARY KEY (app_id, type_id, bucket)
);
INSERT INTO month_counts (app_id, type_id, bucket, count)
SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count) FROM events_per_day GROUP BY 1, 2, 3;
CREATE OR REPLACE VIEW events_per_month AS SELECT app_id, type_id, bucket, count FROM month_counts;

-- Counts without what is still to be settled: what profiles of days are made of.
CREATE VIEW settled_day_counts          AS SELECT app_id, type_id, bucket, count FROM events_per_day;
CREATE VIEW settled_quarter_hour_counts AS SELECT app_id, type_id, bucket, count FROM events_per_quarter_hour;

-- Days are profiled here too. A day with a mark in it has no ready profiles; the mark goes in the same statement that
-- strikes the day off.
CREATE OR REPLACE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM stale_buckets WHERE date_bin('1 day', bucket, 'epoch') = day);
