-- What charts over long ranges are read from, beside the counts of 0002: counts by the month (UTC), and profiles of days.
--
-- A profile is one row per app, type and day with the running count after each of its quarter-hours. The count between
-- any two quarter-hours of a day is then one subtraction in one row, so a year of days, weeks or twelve-hour buckets in
-- whatever time zone (+05:45 too) is 365 rows a type in place of 35,040.
--
-- Profiles are made of days that are over. A day of an app has profiles while it is listed in profiled_days: a fold that
-- adds to such a day strikes it off in the same statement, and maintenance makes its profiles again.

CREATE TABLE month_counts (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL,
  PRIMARY KEY (app_id, type_id, bucket)
) WITH (fillfactor = 50);
INSERT INTO month_counts (app_id, type_id, bucket, count)
SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), sum(count) FROM day_counts GROUP BY 1, 2, 3;

CREATE VIEW events_per_month AS
            SELECT app_id, type_id, bucket, count FROM month_counts
  UNION ALL SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), count FROM count_deltas
  UNION ALL SELECT app_id, 0,       date_trunc('month', bucket, 'UTC'), count FROM count_deltas;

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

-- Days of which the profiles tell everything: those with counts that are still to be folded do not yet.
CREATE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM count_deltas
                      WHERE count_deltas.app_id = profiled_days.app_id AND bucket >= day AND bucket < day + interval '24 hours');
