-- Answers to requests with an Idempotency-Key: each is written by the very transaction that stores the request's events,
-- so that there are both or neither, and a repeat within 24 hours gets the first answer again.
--
-- Times are the service's, not the database's: how long a key lives is one clock's business. Rows outlive their app for
-- a day at most, hence no foreign key, which every keyed event would pay for.

CREATE TABLE idempotency_keys (
  app_id       integer      NOT NULL,
  key_digest   bytea        NOT NULL CHECK (octet_length(key_digest) = 32),
  body_digest  bytea        NOT NULL CHECK (octet_length(body_digest) = 32),
  status       smallint     NOT NULL,
  answer       text         NOT NULL,
  created_at   timestamptz  NOT NULL,
  PRIMARY KEY (app_id, key_digest)
);
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at);
COMMENT ON COLUMN idempotency_keys.body_digest IS 'SHA-256 of the path and the body: the same key with another body is a mistake of the producer.';
