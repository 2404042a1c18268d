-- Beside the previous release: yes
-- The bin: an app that was removed waits there for seven days, under another public id and without members.

ALTER TABLE apps
  ADD COLUMN removed_at timestamptz,
  ADD COLUMN removed_id text COLLATE "C" UNIQUE,
  ADD COLUMN removed_members json;
COMMENT ON COLUMN apps.removed_at      IS 'Since when it is in the bin; NULL: it is not.';
COMMENT ON COLUMN apps.removed_id      IS 'Its public id before that, which it gets back.';
COMMENT ON COLUMN apps.removed_members IS 'Its rows of app_members before that.';
