-- Beside the previous release: yes
-- Declared fields of payloads, and how many events have each of their values, by minute and by coarser buckets.
--
-- How these counts stay exact: the writer reads the values of an app's fields from the payloads and writes what they add to
-- each minute into field_deltas, in the transaction of the rows, by the text of the value. The fold (maintenance) gives new
-- values their ids and moves deltas into the counts. A writer may not know a field that another process has just declared.
-- So fields have generations, and whatever is written says up to which generation its writer knew them (sql/0029): where that
-- is too low, the minute is in uncounted_minutes, or will be when the stamp is folded. Readers count such a minute from its
-- rows, until maintenance has done the same and written what was missing as deltas.

-- The generation of the newest field. The row's lock orders declarations: who sees a generation sees all fields up to it.
CREATE TABLE field_generation (
  only_row    boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  generation  integer  NOT NULL
);
INSERT INTO field_generation (generation) VALUES (0);

CREATE TABLE declared_fields (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  type_id        integer      REFERENCES event_types ON DELETE CASCADE,
  path           text         COLLATE "C" NOT NULL,
  kind           text         NOT NULL CHECK (kind IN ('value', 'number')),
  created_at     timestamptz  NOT NULL DEFAULT now(),
  generation     integer      NOT NULL DEFAULT 0,
  complete_from  timestamptz,
  backfill       boolean      NOT NULL DEFAULT false,
  removed_at     timestamptz,
  known_values   integer      NOT NULL DEFAULT 0,
  new_values     integer      NOT NULL DEFAULT 0,
  new_values_on  date         NOT NULL DEFAULT '-infinity',
  full_since     timestamptz
);
CREATE UNIQUE INDEX declared_fields_once ON declared_fields (app_id, path, coalesce(type_id, 0), kind) WHERE removed_at IS NULL;
COMMENT ON COLUMN declared_fields.type_id       IS 'The type whose events have the field; NULL: events of all types.';
COMMENT ON COLUMN declared_fields.path          IS 'The names that lead to the value, from the top of the payload on: a JSON array of strings.';
COMMENT ON COLUMN declared_fields.generation    IS '0 until maintenance gives the field one: then writers begin to count it.';
COMMENT ON COLUMN declared_fields.complete_from IS 'From this minute on the counts are complete, but for uncounted minutes. NULL: not yet counted.';
COMMENT ON COLUMN declared_fields.backfill      IS 'Whether complete_from is to move back to the first event.';
COMMENT ON COLUMN declared_fields.removed_at    IS 'Set by a removal: maintenance deletes the counts, then the row.';
COMMENT ON COLUMN declared_fields.known_values  IS 'Values that have ids; new_values of them since the start of the UTC day new_values_on.';
COMMENT ON COLUMN declared_fields.full_since    IS 'When a value was counted as "other" for the first time, because there were too many.';

CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF generation, removed_at ON declared_fields
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();

-- What counts are kept of: a value of a field, with one type of events or (type_id 0) with all.
CREATE TABLE field_series (
  id           integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  field_id     integer  NOT NULL REFERENCES declared_fields ON DELETE CASCADE,
  type_id      integer  NOT NULL,
  value        text     COLLATE "C" NOT NULL,
  is_complete  boolean  NOT NULL,
  UNIQUE (field_id, value, type_id)
);
COMMENT ON COLUMN field_series.value       IS 'JSON in one spelling for each value; or "other" (too long, or too many values) or "many" (an event with several), without quotes.';
COMMENT ON COLUMN field_series.is_complete IS 'False where earlier events with the value may have been counted as "other".';

CREATE TABLE field_deltas (
  app_id    integer      NOT NULL,
  field_id  integer      NOT NULL,
  type_id   integer      NOT NULL,
  bucket    timestamptz  NOT NULL,
  count     bigint       NOT NULL,
  value     text         COLLATE "C" NOT NULL,
  written   xid8         NOT NULL DEFAULT pg_current_xact_id()
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX field_deltas_pending ON field_deltas (written, app_id);

-- As folds (sql/0016). Whoever folds, or compares rows with counts, locks it first: one at a time.
CREATE TABLE field_folds (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  pending_from  xid8     NOT NULL
);
INSERT INTO field_folds (pending_from) VALUES ('0');
CREATE VIEW last_field_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot()) THEN pending_from ELSE '0' END AS pending_from
    FROM field_folds;

CREATE VIEW pending_field_deltas AS
  SELECT app_id, field_id, type_id, bucket, count, value FROM field_deltas
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_fields_from', true), ''), '0')::xid8;

-- Minutes of apps that have rows whose fields are not counted.
CREATE TABLE uncounted_minutes (
  app_id  integer      NOT NULL,
  bucket  timestamptz  NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX uncounted_minutes_of_app ON uncounted_minutes (app_id, bucket);

CREATE TABLE field_minute_counts (
  app_id     integer      NOT NULL,
  series_id  integer      NOT NULL,
  bucket     timestamptz  NOT NULL,
  count      bigint       NOT NULL,
  PRIMARY KEY (app_id, series_id, bucket)
) WITH (fillfactor = 85);
CREATE INDEX field_minute_counts_by_time ON field_minute_counts USING brin (bucket) WITH (pages_per_range = 32);
CREATE TABLE field_quarter_hour_counts (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_hour_counts         (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_day_counts          (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 50);
CREATE TABLE field_month_counts        (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 50);

-- Deltas of values that have ids. A value without one is in field_deltas alone, and readers look for it there.
CREATE VIEW pending_field_counts AS
  SELECT pending.app_id, series.id AS series_id, pending.bucket, pending.count
    FROM pending_field_deltas AS pending
    JOIN field_series AS series ON series.field_id = pending.field_id AND series.value = pending.value
                               AND (series.type_id = 0 OR series.type_id = pending.type_id);

-- As events_per_minute and so on, with series in the place of types.
CREATE VIEW fields_per_minute AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_minute_counts
  UNION ALL SELECT app_id, series_id, bucket, count FROM pending_field_counts;
CREATE VIEW fields_per_quarter_hour AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_quarter_hour_counts
  UNION ALL SELECT app_id, series_id, date_bin('15 minutes', bucket, 'epoch'), count FROM pending_field_counts;
CREATE VIEW fields_per_hour AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_hour_counts
  UNION ALL SELECT app_id, series_id, date_bin('1 hour', bucket, 'epoch'), count FROM pending_field_counts;
CREATE VIEW fields_per_day AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_day_counts
  UNION ALL SELECT app_id, series_id, date_bin('1 day', bucket, 'epoch'), count FROM pending_field_counts;
CREATE VIEW fields_per_month AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_month_counts
  UNION ALL SELECT app_id, series_id, date_trunc('month', bucket, 'UTC'), count FROM pending_field_counts;
