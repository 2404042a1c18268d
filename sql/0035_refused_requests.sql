-- Beside the previous release: yes
-- The latest requests that were refused although they had a valid logging token or browser key: what a producer has to correct.

CREATE TABLE refused_requests (
  id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id       integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  producer_id  integer,
  at           timestamptz NOT NULL,
  route        text        NOT NULL,
  code         text        NOT NULL,
  details      text        NOT NULL,
  body         text,
  is_cut       boolean     NOT NULL
);
CREATE INDEX refused_requests_of_app ON refused_requests (app_id, at, id);
CREATE INDEX refused_requests_by_age ON refused_requests (at);
COMMENT ON COLUMN refused_requests.producer_id IS 'Internal id; 0: the app''s first producer; NULL: a browser key.';
COMMENT ON COLUMN refused_requests.body IS 'The beginning of the body, with what is redacted masked; NULL: it is not shown.';
