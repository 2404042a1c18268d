-- What the counts of declared fields (0004) are kept of: a value of a field, with one type of events or (type_id 0) with all.

CREATE TABLE field_series (
  id           integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  field_id     integer  NOT NULL REFERENCES declared_fields ON DELETE CASCADE,
  type_id      integer  NOT NULL,
  value        text     COLLATE "C" NOT NULL,
  by_value     text     COLLATE "C" NOT NULL DEFAULT '',
  is_complete  boolean  NOT NULL
);
CREATE UNIQUE INDEX field_series_once ON field_series (field_id, value, by_value, type_id);
COMMENT ON COLUMN field_series.value       IS 'JSON in one spelling for each value; or, without quotes, "other" (too long, or too many values), "many" (an event with several), "none" (in a pair), or "number" or "distinct" of fields of these kinds.';
COMMENT ON COLUMN field_series.by_value    IS 'The same of the other path of a declaration; empty where it has none.';
COMMENT ON COLUMN field_series.is_complete IS 'False where earlier events with the value may have been counted as "other".';

CREATE TABLE field_folds (
  only_row  boolean  PRIMARY KEY DEFAULT true CHECK (only_row)
);
COMMENT ON TABLE field_folds IS 'Whoever counts fields, or compares rows with counts, locks it first.';
INSERT INTO field_folds DEFAULT VALUES;

-- Whoever stores rows that may be stored already looks for them among the rows. Where those of their day have left, that finds nothing. It is
-- called after the rows are inserted: each of its statements has a new snapshot, so that it knows of a day that left while they waited.
CREATE FUNCTION refuse_days_away(apps integer[], times timestamptz[]) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
  away text;
BEGIN
  SELECT string_agg(DISTINCT part.app_id || ' ' || part.day, ',') INTO away
    FROM unnest(apps, times) AS stored (app_id, created_at)
    JOIN archived_parts AS part ON part.app_id = stored.app_id AND part.day = (stored.created_at AT TIME ZONE 'UTC')::date;
  IF away IS NOT NULL THEN
    RAISE EXCEPTION 'the rows of these days are in the archive' USING ERRCODE = 'TA001', DETAIL = away;
  END IF;
  RETURN NULL;
END $$;
