-- Beside the previous release: no: its writers write deltas of fields, which are no more.
--
-- Declared fields are counted from rows: one family of tables has what is kept of values, numbers, different values and pairs.
--
-- How these counts stay exact: a fold, or a mark that is lifted, notes the minutes of apps with fields in uncounted_minutes, in the
-- statement that takes the delta or mark away. Maintenance makes a noted minute what its rows say, and coarser buckets what the finer
-- ones say, in one transaction that takes the note away. So in every snapshot a minute is counted, or readers know that it is not.

-- What is noted here is counted from its rows.
INSERT INTO uncounted_minutes (app_id, bucket)
SELECT DISTINCT app_id, bucket FROM field_deltas;

DROP VIEW fields_per_minute, fields_per_quarter_hour, fields_per_hour, fields_per_day, fields_per_month,
          numbers_per_minute, numbers_per_quarter_hour, numbers_per_hour, numbers_per_day,
          pending_field_counts, pending_field_numbers, pending_field_deltas, written_fields, last_field_fold;
DROP TABLE field_deltas;
ALTER TABLE field_folds DROP COLUMN pending_from, DROP COLUMN running;
COMMENT ON TABLE field_folds IS 'Whoever counts fields, or compares rows with counts, locks it first.';

ALTER TABLE declared_fields
  DROP CONSTRAINT declared_fields_kind_check,
  ADD CONSTRAINT declared_fields_kind_check CHECK (kind IN ('value', 'number', 'distinct')),
  ADD COLUMN by_path text COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN declared_fields.by_path    IS 'Another path by whose values the field is counted apart, as path has it; empty: none.';
COMMENT ON COLUMN declared_fields.generation IS '0 until maintenance gives the field one: then its counting begins.';
DROP INDEX declared_fields_once;
CREATE UNIQUE INDEX declared_fields_once ON declared_fields (app_id, path, coalesce(type_id, 0), kind, by_path) WHERE removed_at IS NULL;

ALTER TABLE field_series ADD COLUMN by_value text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE field_series DROP CONSTRAINT field_series_field_id_value_type_id_key;
CREATE UNIQUE INDEX field_series_once ON field_series (field_id, value, by_value, type_id);
COMMENT ON COLUMN field_series.value    IS 'JSON in one spelling for each value; or, without quotes, "other" (too long, or too many values), "many" (an event with several), "none" (in a pair), or "number" or "distinct" of fields of these kinds.';
COMMENT ON COLUMN field_series.by_value IS 'The same of the other path of a declaration; empty where it has none.';

ALTER TABLE field_minute_counts       ADD COLUMN summary bytea;
ALTER TABLE field_quarter_hour_counts ADD COLUMN summary bytea;
ALTER TABLE field_hour_counts         ADD COLUMN summary bytea;
ALTER TABLE field_day_counts          ADD COLUMN summary bytea;
COMMENT ON COLUMN field_minute_counts.summary IS 'Of numbers: their count, exact sum, minimum, maximum and a sketch; of different values: a set or a sketch. NULL for counts of values.';
-- Maintenance and readers look for all series of a minute.
CREATE INDEX field_minute_counts_of_minute ON field_minute_counts (app_id, bucket, series_id);

-- Numbers become series like values, with the summaries that they have.
INSERT INTO field_series (field_id, type_id, value, is_complete)
SELECT field_id, found.type_id, 'number', true
  FROM (SELECT field_id, type_id FROM field_minute_numbers UNION SELECT field_id, type_id FROM field_day_numbers) AS found
  JOIN declared_fields ON declared_fields.id = field_id;
INSERT INTO field_minute_counts (app_id, series_id, bucket, count, summary)
SELECT app_id, series.id, bucket, 0, numbers FROM field_minute_numbers JOIN field_series AS series USING (field_id, type_id) WHERE value = 'number';
INSERT INTO field_quarter_hour_counts (app_id, series_id, bucket, count, summary)
SELECT app_id, series.id, bucket, 0, numbers FROM field_quarter_hour_numbers JOIN field_series AS series USING (field_id, type_id) WHERE value = 'number';
INSERT INTO field_hour_counts (app_id, series_id, bucket, count, summary)
SELECT app_id, series.id, bucket, 0, numbers FROM field_hour_numbers JOIN field_series AS series USING (field_id, type_id) WHERE value = 'number';
INSERT INTO field_day_counts (app_id, series_id, bucket, count, summary)
SELECT app_id, series.id, bucket, 0, numbers FROM field_day_numbers JOIN field_series AS series USING (field_id, type_id) WHERE value = 'number';
DROP TABLE field_minute_numbers, field_quarter_hour_numbers, field_hour_numbers, field_day_numbers;

CREATE VIEW fields_per_minute       AS SELECT app_id, series_id AS type_id, bucket, count FROM field_minute_counts;
CREATE VIEW fields_per_quarter_hour AS SELECT app_id, series_id AS type_id, bucket, count FROM field_quarter_hour_counts;
CREATE VIEW fields_per_hour         AS SELECT app_id, series_id AS type_id, bucket, count FROM field_hour_counts;
CREATE VIEW fields_per_day          AS SELECT app_id, series_id AS type_id, bucket, count FROM field_day_counts;
CREATE VIEW fields_per_month        AS SELECT app_id, series_id AS type_id, bucket, count FROM field_month_counts;
