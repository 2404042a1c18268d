-- Declared fields of payloads, and how many events have each of their values, by minute and by coarser buckets.
--
-- How these counts stay exact: the writer reads the values of an app's fields from the payloads and writes what they add to
-- each minute into field_deltas, in the transaction of the rows, by the text of the value. The fold (maintenance) gives new
-- values their ids and moves deltas into the counts. A writer may not know a field that another process has just declared.
-- So fields have generations, and whatever is written says up to which generation its writer knew them: where that
-- is too low, the minute is in uncounted_minutes, or will be when the stamp is folded. Readers count such a minute from its
-- rows, until maintenance has done the same and written what was missing as deltas.
--
-- All that is known of the numbers of a minute, or of a coarser bucket, is one value of bytes (number-summary.ts): their count, exact
-- sum, minimum, maximum and a sketch of their quantiles. Two of them in a row are their sum, so that string_agg adds them.

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
  written   xid8         NOT NULL DEFAULT pg_current_xact_id(),
  numbers   bytea
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX field_deltas_pending ON field_deltas (written, app_id);
COMMENT ON COLUMN field_deltas.numbers IS 'Of a field of the kind "number", whose value is "number", without quotes: what the delta adds.';

-- As folds (0002). Whoever folds, or compares rows with counts, locks it first: one at a time.
CREATE TABLE field_folds (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  pending_from  xid8     NOT NULL,
  running       xid8[]   NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE field_folds IS 'Deltas of fields of transactions before pending_from are folded, except for those of the running ones.';
INSERT INTO field_folds (pending_from) VALUES ('0');
CREATE VIEW last_field_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(pending_from, (SELECT min(written) FROM field_deltas WHERE written = ANY (running)))
              ELSE '0'
         END AS pending_from
    FROM field_folds;

CREATE VIEW pending_field_deltas AS
  SELECT app_id, field_id, type_id, bucket, count, value, numbers FROM field_deltas
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

-- The type 0 has the events of all types; of a field for one type there is nothing else.
CREATE TABLE field_minute_numbers (
  app_id    integer      NOT NULL,
  field_id  integer      NOT NULL,
  type_id   integer      NOT NULL,
  bucket    timestamptz  NOT NULL,
  numbers   bytea        NOT NULL,
  PRIMARY KEY (app_id, field_id, type_id, bucket)
) WITH (fillfactor = 85);
-- Their bytes hold no repetition that a compression would find.
ALTER TABLE field_minute_numbers ALTER COLUMN numbers SET STORAGE EXTERNAL;
CREATE INDEX field_minute_numbers_by_time ON field_minute_numbers USING brin (bucket) WITH (pages_per_range = 32);
CREATE TABLE field_quarter_hour_numbers (LIKE field_minute_numbers INCLUDING STORAGE, PRIMARY KEY (app_id, field_id, type_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_hour_numbers         (LIKE field_minute_numbers INCLUDING STORAGE, PRIMARY KEY (app_id, field_id, type_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_day_numbers          (LIKE field_minute_numbers INCLUDING STORAGE, PRIMARY KEY (app_id, field_id, type_id, bucket)) WITH (fillfactor = 50);

CREATE VIEW pending_field_numbers AS
  SELECT app_id, field_id, kinds.type_id, bucket, numbers
    FROM pending_field_deltas AS pending CROSS JOIN LATERAL (VALUES (0), (pending.type_id)) AS kinds (type_id)
   WHERE numbers IS NOT NULL;

CREATE VIEW numbers_per_minute AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_minute_numbers
  UNION ALL SELECT app_id, field_id, type_id, bucket, numbers FROM pending_field_numbers;
CREATE VIEW numbers_per_quarter_hour AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_quarter_hour_numbers
  UNION ALL SELECT app_id, field_id, type_id, date_bin('15 minutes', bucket, 'epoch'), numbers FROM pending_field_numbers;
CREATE VIEW numbers_per_hour AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_hour_numbers
  UNION ALL SELECT app_id, field_id, type_id, date_bin('1 hour', bucket, 'epoch'), numbers FROM pending_field_numbers;
CREATE VIEW numbers_per_day AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_day_numbers
  UNION ALL SELECT app_id, field_id, type_id, date_bin('1 day', bucket, 'epoch'), numbers FROM pending_field_numbers;

-- The fields that writers count. In a cluster they are not the same.
CREATE VIEW written_fields AS
  SELECT id, app_id, type_id, path, kind FROM declared_fields WHERE generation > 0 AND removed_at IS NULL;
