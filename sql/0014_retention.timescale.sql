-- Beside the previous release: no: servers of it show what an app's retention hides. Give apps a retention when all are upgraded.
-- Retention of single apps and types: what is wanted, and from where on their events can be read.

CREATE TABLE retention_rules (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  type_id        integer      REFERENCES event_types ON DELETE CASCADE,
  days           integer      CHECK (days >= 0),
  readable_from  timestamptz  NOT NULL
);
CREATE UNIQUE INDEX retention_rules_once ON retention_rules (app_id, coalesce(type_id, 0));
CREATE INDEX retention_rules_of_type ON retention_rules (type_id) WHERE type_id IS NOT NULL;
COMMENT ON COLUMN retention_rules.type_id       IS 'NULL: all types of the app that have no row of their own.';
COMMENT ON COLUMN retention_rules.days          IS 'For how many days events are kept; 0: for as long as the table retention lets them be; NULL: no longer a rule of its own, but what it has hidden stays so.';
COMMENT ON COLUMN retention_rules.readable_from IS 'As in app_boundaries.';

CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON retention_rules
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();

-- Where they are read: beside the events. Of it and of the boundary of all apps (the table retention) the later one applies. It never
-- moves back.
CREATE TABLE app_boundaries (
  app_id         integer      NOT NULL,
  type_id        integer      NOT NULL,
  readable_from  timestamptz  NOT NULL,
  removed_until  timestamptz  NOT NULL DEFAULT '-infinity',
  moved_at       timestamptz  NOT NULL,
  PRIMARY KEY (app_id, type_id)
);
COMMENT ON COLUMN app_boundaries.type_id       IS '0: all types of the app that have no row of their own.';
COMMENT ON COLUMN app_boundaries.readable_from IS 'Events before it are no longer read; their rows are removed some time later, and their counts stay.';
COMMENT ON COLUMN app_boundaries.removed_until IS 'Rows before it are removed.';
COMMENT ON COLUMN app_boundaries.moved_at      IS 'When readable_from came to where it is.';

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

DO $$
DECLARE
  level text;
BEGIN
  FOREACH level IN ARRAY ARRAY['minute', 'quarter_hour', 'hour', 'day'] LOOP
    EXECUTE (
      SELECT format('CREATE OR REPLACE VIEW events_per_%s AS
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

CREATE OR REPLACE VIEW settled_day_counts AS
  SELECT app_id, type_id, bucket, sum(count)::bigint AS count FROM events_per_day GROUP BY 1, 2, 3;
CREATE OR REPLACE VIEW settled_quarter_hour_counts AS
  SELECT app_id, type_id, bucket, sum(count)::bigint AS count FROM events_per_quarter_hour GROUP BY 1, 2, 3;
