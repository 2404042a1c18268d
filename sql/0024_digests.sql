-- Beside the previous release: yes
-- Weekly digests: the numbers of an app by mail, for each member who asks for them.

CREATE TABLE digests (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id      integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  user_id     integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  stop_token  text         COLLATE "C" NOT NULL UNIQUE,
  timezone    text         NOT NULL,
  next_at     timestamptz  NOT NULL,
  UNIQUE (app_id, user_id)
);
CREATE INDEX digests_due ON digests (next_at);
COMMENT ON COLUMN digests.stop_token IS 'Is in each mail, and ends the digest. It opens nothing else.';
COMMENT ON COLUMN digests.next_at IS 'The next Monday at 08:00 in the time zone.';
