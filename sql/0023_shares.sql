-- Beside the previous release: yes
-- Shares: a saved view or a board for anyone with the link.

CREATE TABLE shares (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id      text         COLLATE "C" NOT NULL UNIQUE,
  digest         bytea        NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  view_id        integer      REFERENCES saved_views ON DELETE CASCADE,
  board_id       integer      REFERENCES boards ON DELETE CASCADE,
  created_by     integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  created_at     timestamptz  NOT NULL DEFAULT now(),
  range          text         NOT NULL,
  timezone       text         NOT NULL,
  filters        text[]       NOT NULL,
  list           text         NOT NULL CHECK (list IN ('none', 'times', 'payloads')),
  password_hash  text,
  ends_at        timestamptz,
  origins        text[]       NOT NULL,
  CHECK (num_nonnulls(view_id, board_id) = 1)
);
CREATE INDEX shares_of_app ON shares (app_id);
CREATE INDEX shares_of_view ON shares (view_id);
CREATE INDEX shares_of_board ON shares (board_id);
CREATE INDEX shares_of_user ON shares (created_by);
COMMENT ON COLUMN shares.digest IS 'SHA-256 of the secret of the link, which is shown once.';
COMMENT ON COLUMN shares.created_by IS 'The share is refused while this account may not make it: suspended, no member, or a viewer.';
COMMENT ON COLUMN shares.range IS 'As addresses of the dashboard have it: 7d moves, two instants stay.';
COMMENT ON COLUMN shares.origins IS 'Sites that may show it in a frame.';

CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON shares
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
-- A role that is taken away ends what was made by it.
CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON app_members
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
