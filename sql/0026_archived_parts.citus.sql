-- Beside the previous release: no: servers of it do not read what is in the archive alone. Let days leave when all are upgraded.
-- Days whose rows are in the archive and nowhere else, as 0026_archived_parts.postgres-timescale.sql says. They are beside the events of
-- their app. Writers look for days that are away by a statement of their own.

CREATE TABLE archived_parts (
  app_id     integer      NOT NULL,
  day        date         NOT NULL,
  part       integer      NOT NULL,
  key        text         NOT NULL,
  events     bigint       NOT NULL,
  bytes      bigint       NOT NULL,
  groups     jsonb        NOT NULL,
  footer     text         NOT NULL,
  wanted_at  timestamptz,
  PRIMARY KEY (app_id, day, part)
);
DO $$ BEGIN
  EXECUTE 'SELECT create_distributed_table(''archived_parts'', ''app_id'', colocate_with => ''events'')';
END $$;

COMMENT ON COLUMN archived_days.parts IS 'The objects: [{"key", "events", "bytes", "sha256", "digest", "firstAt", "lastAt", "groups", "footer"}]; groups as in archived_parts.';
