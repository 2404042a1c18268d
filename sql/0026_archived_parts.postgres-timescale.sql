-- Beside the previous release: no: servers of it do not read what is in the archive alone. Let days leave when all are upgraded.
-- Days whose rows are in the archive and nowhere else. It is read in the very snapshots in which the rows are.

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
COMMENT ON TABLE archived_parts IS 'The objects of days (UTC) whose rows have left: what events has of such a day came later. A day has all of its parts here, or none.';
COMMENT ON COLUMN archived_parts.groups IS 'The row groups of the object, in order: [{"at", "id", "lastAt", "lastId", "types": {"<type_id>": events}, "start", "end", "sha256"}]; bytes from start to before end.';
COMMENT ON COLUMN archived_parts.footer IS 'SHA-256 of the bytes after the last group, in hexadecimal.';
COMMENT ON COLUMN archived_parts.wanted_at IS 'When somebody needed the rows of the day: it is brought back. NULL: nobody does.';

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

COMMENT ON COLUMN archived_days.parts IS 'The objects: [{"key", "events", "bytes", "sha256", "digest", "firstAt", "lastAt", "groups", "footer"}]; groups as in archived_parts.';
