-- Beside the previous release: yes
-- Which declared fields of payloads a writer knew when it marked a minute: those up to this generation (sql/0030). A writer
-- of the previous release knows none.
ALTER TABLE stale_buckets ADD COLUMN fields integer NOT NULL DEFAULT 0;

-- Minutes with rows whose writers knew the fields up to a generation. A mark does not tell its apps, so that it holds for all
-- of them. Those of merged and lifted marks are in uncounted_minutes (sql/0030).
CREATE VIEW stamped_minutes AS
  SELECT apps.id AS app_id, bucket, fields FROM apps CROSS JOIN stale_buckets WHERE level = 0;
