-- What charts over long ranges are read from, beside the counts of 0002: counts by the month (UTC), and profiles of days.
-- Here no day is profiled yet: readers then take the counts by the hour and the quarter-hour.

CREATE VIEW events_per_month AS
  SELECT app_id, type_id, date_trunc('month', bucket, 'UTC') AS bucket, sum(count)::bigint AS count
    FROM events_per_day GROUP BY 1, 2, 3;

CREATE TABLE day_profiles (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  day      timestamptz NOT NULL,
  running  integer[]   NOT NULL CHECK (cardinality(running) = 96),
  -- Read from the index alone, where a type's days lie side by side: 20 pages a year in place of 365.
  PRIMARY KEY (app_id, type_id, day) INCLUDE (running)
);
COMMENT ON COLUMN day_profiles.running IS 'The count from midnight (UTC) to the end of each quarter-hour: running[96] is the day''s.';

CREATE TABLE profiled_days (
  app_id  integer     NOT NULL,
  day     timestamptz NOT NULL,
  PRIMARY KEY (app_id, day)
);

CREATE VIEW ready_profiles AS SELECT app_id, day FROM profiled_days;
