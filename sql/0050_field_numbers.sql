-- Beside the previous release: yes
-- Statistics of declared fields of the kind "number", by type and by the levels of the counts.
--
-- All that is known of the numbers of a minute, or of a coarser bucket, is one value of bytes (number-summary.ts): their count,
-- exact sum, minimum, maximum and a sketch of their quantiles. Two of them in a row are their sum, so that string_agg adds
-- them. Writers put what they add into field_deltas, and the fold moves it into the tables, as with values (sql/0030).

ALTER TABLE field_deltas ADD COLUMN numbers bytea;
COMMENT ON COLUMN field_deltas.numbers IS 'Of a field of the kind "number", whose value is "number", without quotes: what the delta adds.';

CREATE OR REPLACE VIEW pending_field_deltas AS
  SELECT app_id, field_id, type_id, bucket, count, value, numbers FROM field_deltas
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_fields_from', true), ''), '0')::xid8;

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

-- Fields of this kind could be declared before, and were not counted: their counting begins now.
UPDATE declared_fields SET generation = 0, complete_from = NULL WHERE kind = 'number' AND removed_at IS NULL;
