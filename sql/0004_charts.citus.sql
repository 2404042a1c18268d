-- Counts by the month and profiles of days, as on PostgreSQL (0004_charts.postgres.sql), beside the events of their app.

SET LOCAL citus.multi_shard_modify_mode = 'sequential';
CREATE TABLE month_counts        (LIKE minute_counts INCLUDING DEFAULTS, PRIMARY KEY (app_id, type_id, bucket)) WITH (fillfactor = 50);

CREATE TABLE day_profiles (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  day      timestamptz NOT NULL,
  running  integer[]   NOT NULL CHECK (cardinality(running) = 96),
  PRIMARY KEY (app_id, type_id, day) INCLUDE (running)
);
CREATE TABLE profiled_days (
  app_id  integer     NOT NULL,
  day     timestamptz NOT NULL,
  PRIMARY KEY (app_id, day)
);

SELECT create_distributed_table(name, 'app_id', colocate_with => 'events')
  FROM unnest('{month_counts,day_profiles,profiled_days}'::text[]) AS name;

CREATE VIEW events_per_month AS
            SELECT app_id, type_id, bucket, count FROM month_counts
  UNION ALL SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), count FROM new_counts;

-- Days of which the profiles tell everything: those with counts that are still to be folded do not yet.
CREATE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM count_deltas
                      WHERE count_deltas.app_id = profiled_days.app_id AND date_bin('1 day', count_deltas.bucket, 'epoch') = day);
