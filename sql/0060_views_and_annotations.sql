-- Beside the previous release: yes
-- Views of an app's page that members have saved, and what happened at a time: deployments and incidents.
CREATE TABLE saved_views (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text         COLLATE "C" NOT NULL UNIQUE,
  app_id      integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text         COLLATE "C" NOT NULL,
  search      text         NOT NULL,
  saved_by    integer      REFERENCES users ON DELETE SET NULL,
  saved_at    timestamptz  NOT NULL DEFAULT now(),
  UNIQUE (app_id, name)
);
COMMENT ON COLUMN saved_views.search IS 'The query of the page''s address, without the question mark.';

CREATE TABLE annotations (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text         COLLATE "C" NOT NULL UNIQUE,
  app_id      integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  kind        text         COLLATE "C" NOT NULL CHECK (kind IN ('deployment', 'incident', 'note')),
  starts_at   timestamptz  NOT NULL,
  ends_at     timestamptz  CHECK (ends_at > starts_at),
  text        text         NOT NULL,
  by_token    boolean      NOT NULL,
  created_by  integer      REFERENCES users ON DELETE SET NULL,
  created_at  timestamptz  NOT NULL DEFAULT now()
);
-- One that is sent again is the same one.
CREATE UNIQUE INDEX annotations_once ON annotations (app_id, starts_at, kind, coalesce(ends_at, '-infinity'), md5(text));
COMMENT ON COLUMN annotations.ends_at IS 'NULL: it happened at one instant.';
COMMENT ON COLUMN annotations.by_token IS 'Whether a logging token wrote it. The oldest of these make room for new ones.';
