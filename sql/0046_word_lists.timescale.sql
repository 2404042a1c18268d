-- Beside the previous release: yes

-- Lists of the words of payloads, as on PostgreSQL (sql/0045): the same tables, but that minutes are noted when the mark of a minute is
-- lifted. In any snapshot an event is in what lists name, in a minute with a note, or in a marked one.

CREATE TABLE word_states (
  app_id    integer     PRIMARY KEY,
  begun_at  timestamptz
);

CREATE TABLE unlisted_minutes (
  app_id  integer      NOT NULL,
  start   timestamptz  NOT NULL,
  finish  timestamptz  NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX unlisted_minutes_of_app ON unlisted_minutes (app_id, start, finish);

CREATE TABLE word_segments (
  id         bigint       PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  app_id     integer      NOT NULL,
  start      timestamptz  NOT NULL,
  finish     timestamptz  NOT NULL,
  events     integer      NOT NULL,
  slices     smallint     NOT NULL,
  part_bits  smallint     NOT NULL,
  rice       smallint     NOT NULL,
  times      bytea        NOT NULL
);
CREATE INDEX word_segments_of_app ON word_segments (app_id, start, finish);
COMMENT ON COLUMN word_segments.part_bits IS 'Words are in the part that so many first bits of their hash name.';
COMMENT ON COLUMN word_segments.times     IS 'First and last millisecond of each slice, from start on, as 32-bit integers.';

CREATE TABLE word_lists (
  segment  bigint   NOT NULL REFERENCES word_segments ON DELETE CASCADE,
  part     integer  NOT NULL,
  list     bytea    NOT NULL,
  PRIMARY KEY (segment, part)
);
ALTER TABLE word_segments ALTER COLUMN times SET STORAGE EXTERNAL;
ALTER TABLE word_lists ALTER COLUMN list SET STORAGE EXTERNAL;

-- A mark does not tell its app: a minute is noted for the apps that its counts name, which were refreshed before its mark is lifted. A
-- merge writes marks anew in the transaction that takes them away: these stand. The lock is against the statement that begins to note an
-- app.
CREATE FUNCTION note_unlisted_minutes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  lifted timestamptz[];
BEGIN
  LOCK TABLE word_states IN ROW EXCLUSIVE MODE;
  IF NOT EXISTS (SELECT FROM word_states) THEN RETURN NULL; END IF;
  lifted := ARRAY(SELECT bucket FROM changed WHERE level = 0
                  EXCEPT SELECT bucket FROM stale_buckets WHERE level = 0 AND written = pg_current_xact_id());
  IF cardinality(lifted) = 0 THEN RETURN NULL; END IF;
  INSERT INTO unlisted_minutes (app_id, start, finish)
  SELECT DISTINCT app_id, bucket, bucket + interval '1 minute'
    FROM word_states JOIN events_per_minute AS counted USING (app_id)
   WHERE counted.type_id = 0 AND counted.bucket = ANY (lifted)
     AND counted.bucket BETWEEN (SELECT min(one) FROM unnest(lifted) AS one) AND (SELECT max(one) FROM unnest(lifted) AS one);
  RETURN NULL;
END $$;
CREATE TRIGGER note_unlisted AFTER DELETE ON stale_buckets REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION note_unlisted_minutes();

-- Days whose rows are erased lose their lists, so that no hash of an erased word stays. A builder has a lock against the one here: what it
-- has listed before is seen by the statements below.
CREATE FUNCTION unlist_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE word_segments IN ROW EXCLUSIVE MODE;
  WITH midnights AS MATERIALIZED (
    SELECT DISTINCT app_id, date_bin('1 day', created_at, 'epoch') AS midnight
      FROM changed JOIN word_states AS state USING (app_id)),
  gone AS (
    DELETE FROM word_segments AS segment USING midnights
     WHERE segment.app_id = midnights.app_id AND segment.start >= midnight AND segment.start < midnight + interval '1 day')
  INSERT INTO unlisted_minutes (app_id, start, finish)
  SELECT app_id, midnight, midnight + interval '1 day' FROM midnights;
  RETURN NULL;
END $$;
CREATE TRIGGER unlist_erased_days AFTER INSERT ON erased_events REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION unlist_days();
