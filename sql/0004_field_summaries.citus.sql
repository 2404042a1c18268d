-- Beside the previous release: no: its writers write deltas of fields, which are no more.
--
-- Declared fields are counted from rows, as 0004_field_summaries.postgres-timescale.sql has it for one server. Summaries of numbers are
-- computed again from the rows: ids of series are given by each node.

SET LOCAL citus.multi_shard_modify_mode = 'sequential';

DROP VIEW fields_per_minute, fields_per_quarter_hour, fields_per_hour, fields_per_day, fields_per_month,
          numbers_per_minute, numbers_per_quarter_hour, numbers_per_hour, numbers_per_day,
          pending_field_counts, pending_field_numbers, pending_field_deltas, written_fields, last_field_fold;

INSERT INTO uncounted_minutes (app_id, bucket)
SELECT app_id, bucket FROM field_deltas GROUP BY app_id, bucket;
DROP TABLE field_deltas;
DROP TABLE field_minute_numbers;
DROP TABLE field_quarter_hour_numbers;
DROP TABLE field_hour_numbers;
DROP TABLE field_day_numbers;

ALTER TABLE declared_fields
  DROP CONSTRAINT declared_fields_kind_check,
  ADD CONSTRAINT declared_fields_kind_check CHECK (kind IN ('value', 'number', 'distinct')),
  ADD COLUMN by_path text COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN declared_fields.by_path    IS 'Another path by whose values the field is counted apart, as path has it; empty: none.';
COMMENT ON COLUMN declared_fields.generation IS '0 until maintenance gives the field one: then its counting begins.';
DROP INDEX declared_fields_once;
CREATE UNIQUE INDEX declared_fields_once ON declared_fields (app_id, path, coalesce(type_id, 0), kind, by_path) WHERE removed_at IS NULL;

-- Numbers begin anew on their nodes, with their past.
DELETE FROM field_states WHERE kind = 'number';
UPDATE declared_fields SET backfill = true, complete_from = NULL WHERE kind = 'number';

-- Each by itself, as Citus sends the text of the statement to the nodes.
DO $$
DECLARE
  statement text;
BEGIN
  FOREACH statement IN ARRAY ARRAY[
    'ALTER TABLE field_states ADD COLUMN by_path text NOT NULL DEFAULT ''''',
    'ALTER TABLE field_series ADD COLUMN by_value text NOT NULL DEFAULT ''''',
    'ALTER TABLE field_series DROP CONSTRAINT field_series_app_id_field_id_value_type_id_key',
    'DROP INDEX field_series_of_field',
    'CREATE UNIQUE INDEX field_series_once ON field_series (app_id, field_id, value, by_value, type_id)',
    'CREATE INDEX field_series_of_field ON field_series (field_id, value, by_value, type_id)',
    'ALTER TABLE field_minute_counts ADD COLUMN summary bytea',
    'ALTER TABLE field_quarter_hour_counts ADD COLUMN summary bytea',
    'ALTER TABLE field_hour_counts ADD COLUMN summary bytea',
    'ALTER TABLE field_day_counts ADD COLUMN summary bytea',
    'CREATE INDEX field_minute_counts_of_minute ON field_minute_counts (app_id, bucket, series_id)'
  ] LOOP EXECUTE statement; END LOOP;
END $$;

CREATE VIEW fields_per_minute       AS SELECT app_id, series_id AS type_id, bucket, count FROM field_minute_counts;
CREATE VIEW fields_per_quarter_hour AS SELECT app_id, series_id AS type_id, bucket, count FROM field_quarter_hour_counts;
CREATE VIEW fields_per_hour         AS SELECT app_id, series_id AS type_id, bucket, count FROM field_hour_counts;
CREATE VIEW fields_per_day          AS SELECT app_id, series_id AS type_id, bucket, count FROM field_day_counts;
CREATE VIEW fields_per_month        AS SELECT app_id, series_id AS type_id, bucket, count FROM field_month_counts;
