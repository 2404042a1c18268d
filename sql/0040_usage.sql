-- Beside the previous release: yes
-- What apps and tokens use. Processes add what they have counted every few seconds; the rows of minutes are removed after two
-- hours. No foreign keys: a check of each row would lock the app, and ids are never given again.
CREATE TABLE usage_days (
  app_id  integer NOT NULL,
  day     date    NOT NULL,
  events  bigint  NOT NULL,
  bytes   bigint  NOT NULL,
  PRIMARY KEY (app_id, day)
);
COMMENT ON TABLE usage_days IS 'Events that arrived over HTTP on a day (UTC), and the bytes of their payloads.';

CREATE TABLE app_requests (
  app_id    integer     NOT NULL,
  minute    timestamptz NOT NULL,
  code      text        COLLATE "C" NOT NULL,
  requests  bigint      NOT NULL,
  PRIMARY KEY (app_id, minute, code)
) WITH (fillfactor = 70);
COMMENT ON COLUMN app_requests.code IS 'Of the refusal; empty for requests that were accepted.';
CREATE INDEX app_requests_by_age ON app_requests (minute);

CREATE TABLE token_requests (
  token_id  integer     NOT NULL,
  minute    timestamptz NOT NULL,
  code      text        COLLATE "C" NOT NULL,
  requests  bigint      NOT NULL,
  PRIMARY KEY (token_id, minute, code)
) WITH (fillfactor = 70);
CREATE INDEX token_requests_by_age ON token_requests (minute);
