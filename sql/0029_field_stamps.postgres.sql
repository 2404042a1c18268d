-- Beside the previous release: yes
-- Which declared fields of payloads a writer knew when it wrote a delta: those up to this generation (sql/0030). A writer of
-- the previous release knows none.
ALTER TABLE count_deltas ADD COLUMN fields integer NOT NULL DEFAULT 0;

CREATE OR REPLACE VIEW pending_deltas AS
  SELECT app_id, type_id, bucket, count, fields FROM count_deltas
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_from', true), ''), '0')::xid8;

-- Minutes of apps with rows whose writers knew the fields up to a generation; those of folded deltas are in
-- uncounted_minutes (sql/0030).
CREATE VIEW stamped_minutes AS SELECT app_id, bucket, fields FROM pending_deltas;
