-- Beside the previous release: yes

ALTER TABLE apps ADD COLUMN word_search boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN apps.word_search IS 'Whether lists of the words of payloads are kept.';

-- Lists of the words of payloads, by which searches find where to look. A list may only say that a word is certainly not there: what
-- it names is read and tested as without lists.
--
-- How searches stay exact: whoever adds to the counts of a minute has a note of it written in the same transaction, by a trigger, so that
-- processes of releases without lists do so too. A builder reads notes and the rows of their minutes in one snapshot, and takes away
-- exactly the notes of that snapshot. What it did not see was committed later, and is pending or noted once more. So a reader finds in
-- its own snapshot each event in what lists name, in a minute with a note, or in one with pending deltas.

-- The apps whose minutes are noted. What is listed counts for readers once begun_at is set.
CREATE TABLE word_states (
  app_id    integer     PRIMARY KEY,
  begun_at  timestamptz
);

-- Minutes, or days, with rows that are not listed.
CREATE TABLE unlisted_minutes (
  app_id  integer      NOT NULL,
  start   timestamptz  NOT NULL,
  finish  timestamptz  NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX unlisted_minutes_of_app ON unlisted_minutes (app_id, start, finish);

-- Events of an app and UTC day in order of time, in slices.
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

-- Compressed they would be no shorter.
ALTER TABLE word_segments ALTER COLUMN times SET STORAGE EXTERNAL;
ALTER TABLE word_lists ALTER COLUMN list SET STORAGE EXTERNAL;

-- The lock is against the statement that begins to note an app: it waits for transactions that have changed counts without notes.
CREATE FUNCTION note_unlisted_minutes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE word_states IN ROW EXCLUSIVE MODE;
  INSERT INTO unlisted_minutes (app_id, start, finish)
  SELECT DISTINCT changed.app_id, changed.bucket, changed.bucket + interval '1 minute'
    FROM changed JOIN word_states AS state ON state.app_id = changed.app_id;
  RETURN NULL;
END $$;
CREATE TRIGGER note_unlisted_inserted AFTER INSERT ON minute_counts REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION note_unlisted_minutes();
CREATE TRIGGER note_unlisted_updated AFTER UPDATE ON minute_counts REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION note_unlisted_minutes();

-- Days whose rows are erased, leave for the archive or come back lose their lists, so that no hash of an erased word stays. A builder has
-- a lock against the one here: what it has listed before is seen by the statements below.
CREATE FUNCTION unlist_days() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE word_segments IN ROW EXCLUSIVE MODE;
  WITH days AS MATERIALIZED (
    SELECT DISTINCT changed.app_id, to_jsonb(changed) AS row FROM changed JOIN word_states AS state ON state.app_id = changed.app_id),
  midnights AS MATERIALIZED (
    SELECT DISTINCT app_id, coalesce((row ->> 'day')::timestamp AT TIME ZONE 'UTC',
                                     date_bin('1 day', (row ->> 'created_at')::timestamptz, 'epoch')) AS midnight FROM days),
  gone AS (
    DELETE FROM word_segments AS segment USING midnights
     WHERE segment.app_id = midnights.app_id AND segment.start >= midnight AND segment.start < midnight + interval '1 day')
  INSERT INTO unlisted_minutes (app_id, start, finish)
  SELECT app_id, midnight, midnight + interval '1 day' FROM midnights;
  RETURN NULL;
END $$;
CREATE TRIGGER unlist_erased_days AFTER INSERT ON erased_events REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION unlist_days();
CREATE TRIGGER unlist_leaving_days AFTER INSERT ON archived_parts REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION unlist_days();
CREATE TRIGGER unlist_returning_days AFTER DELETE ON archived_parts REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION unlist_days();
