-- Beside the previous release: yes
-- Days of apps that were archived as Parquet.

CREATE TABLE archived_days (
  app_id       integer      NOT NULL,
  day          date         NOT NULL,
  counted      bigint       NOT NULL,
  events       bigint       NOT NULL,
  parts        jsonb        NOT NULL DEFAULT '[]',
  obsolete     jsonb        NOT NULL DEFAULT '[]',
  archived_at  timestamptz,
  verified_at  timestamptz,
  PRIMARY KEY (app_id, day)
);
COMMENT ON TABLE archived_days IS 'Days (UTC) of apps with what the archive has of them. A row outlives its app until its objects are removed.';
COMMENT ON COLUMN archived_days.counted IS 'Events of the day by its counts when it was archived: another count says that it has changed. -1: it has changed otherwise.';
COMMENT ON COLUMN archived_days.parts IS 'The objects: [{"key", "events", "bytes", "sha256", "digest", "firstAt", "lastAt"}].';
COMMENT ON COLUMN archived_days.obsolete IS 'Keys of objects that are not, or no longer, parts, and may be there.';
COMMENT ON COLUMN archived_days.archived_at IS 'NULL: an attempt has begun and none has ended.';
