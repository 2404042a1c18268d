-- Beside the previous release: yes
-- Which declared fields of payloads a writer knew when it wrote a delta (sql/0030).
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
ALTER TABLE count_deltas ADD COLUMN fields integer NOT NULL DEFAULT 0;
CREATE VIEW stamped_minutes AS SELECT app_id, bucket, fields FROM count_deltas;
