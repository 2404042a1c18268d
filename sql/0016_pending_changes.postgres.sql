-- Beside the previous release: yes
-- Readers and folds skip the deltas that are folded. A snapshot that stays in use, such as that of a pg_dump, keeps dead rows in
-- the table, a hundred thousand within minutes, and each read would go through them.
--
-- So each delta has the id of its transaction. A fold notes the oldest transaction that was running in its snapshot: in any
-- later snapshot, deltas of older ones are folded. A reader tells the views by a setting of its transaction, which it takes from
-- its own snapshot; without the setting they read all deltas, with the same result.

ALTER TABLE count_deltas ADD COLUMN written xid8 NOT NULL DEFAULT pg_current_xact_id();
-- New entries go to its end, beyond those of dead rows.
CREATE INDEX count_deltas_pending ON count_deltas (written, app_id);
DROP INDEX count_deltas_of_app;

CREATE TABLE folds (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  pending_from  xid8     NOT NULL
);
COMMENT ON TABLE folds IS 'Deltas of transactions before pending_from are folded.';
INSERT INTO folds (pending_from) VALUES ('0');

-- In a copy of the database on another server transactions are numbered anew: a number that is not given yet says nothing.
CREATE VIEW last_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot()) THEN pending_from ELSE '0' END AS pending_from
    FROM folds;

CREATE VIEW pending_deltas AS
  SELECT app_id, type_id, bucket, count FROM count_deltas
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_from', true), ''), '0')::xid8;

CREATE OR REPLACE VIEW events_per_minute AS
            SELECT app_id, type_id, bucket, count FROM minute_counts
  UNION ALL SELECT app_id, type_id, bucket, count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       bucket, count FROM pending_deltas;
CREATE OR REPLACE VIEW events_per_quarter_hour AS
            SELECT app_id, type_id, bucket, count FROM quarter_hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('15 minutes', bucket, 'epoch'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_bin('15 minutes', bucket, 'epoch'), count FROM pending_deltas;
CREATE OR REPLACE VIEW events_per_hour AS
            SELECT app_id, type_id, bucket, count FROM hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 hour', bucket, 'epoch'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_bin('1 hour', bucket, 'epoch'), count FROM pending_deltas;
CREATE OR REPLACE VIEW events_per_day AS
            SELECT app_id, type_id, bucket, count FROM day_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 day', bucket, 'epoch'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_bin('1 day', bucket, 'epoch'), count FROM pending_deltas;
CREATE OR REPLACE VIEW events_per_month AS
            SELECT app_id, type_id, bucket, count FROM month_counts
  UNION ALL SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_trunc('month', bucket, 'UTC'), count FROM pending_deltas;

-- By equality, so that the pending deltas are read once, and not for each day.
CREATE OR REPLACE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM pending_deltas
                      WHERE pending_deltas.app_id = profiled_days.app_id AND date_bin('1 day', pending_deltas.bucket, 'epoch') = day);
