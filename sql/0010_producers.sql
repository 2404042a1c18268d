-- Beside the previous release: yes
-- Producers: the programs that write an app's events, each with a logging token of its own. The first one has the token that the app
-- was created with.

CREATE TABLE producers (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text        NOT NULL CHECK (name <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  revoked_at  timestamptz,
  created_by  integer     REFERENCES users ON DELETE SET NULL
);
CREATE INDEX producers_of_app ON producers (app_id);
CREATE INDEX producers_of_user ON producers (created_by) WHERE created_by IS NOT NULL;

ALTER TABLE logging_tokens
  ADD COLUMN producer_id integer REFERENCES producers ON DELETE CASCADE,
  ADD COLUMN revoked_from timestamptz;
CREATE INDEX logging_tokens_of_producer ON logging_tokens (producer_id) WHERE producer_id IS NOT NULL;
COMMENT ON COLUMN logging_tokens.producer_id  IS 'NULL: the app''s first producer, which has no row.';
COMMENT ON COLUMN logging_tokens.revoked_from IS 'The end that the token had before it was revoked, for an undo; infinity: none.';

-- Of the app's first producer the id is 0.
CREATE TABLE producer_uses (
  app_id         integer     NOT NULL,
  producer_id    integer     NOT NULL,
  first_used_at  timestamptz NOT NULL,
  last_used_at   timestamptz NOT NULL,
  PRIMARY KEY (app_id, producer_id)
) WITH (fillfactor = 70);

CREATE TABLE producer_requests (
  app_id       integer     NOT NULL,
  producer_id  integer     NOT NULL,
  minute       timestamptz NOT NULL,
  requests     bigint      NOT NULL,
  events       bigint      NOT NULL,
  refused      bigint      NOT NULL,
  PRIMARY KEY (app_id, producer_id, minute)
) WITH (fillfactor = 70);
CREATE INDEX producer_requests_by_age ON producer_requests (minute);
