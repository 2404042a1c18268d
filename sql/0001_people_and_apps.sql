-- What every engine has: people, apps and tokens, and what is kept of them. Events and their counts are in 0002, the counts of
-- declared fields in 0003. Public identifiers are opaque text; the integers stay inside the database.

CREATE TABLE installation (
  name   text PRIMARY KEY,
  value  text NOT NULL
);
COMMENT ON TABLE installation IS 'Facts about this installation: the engine that it was migrated for, the fingerprint of SECRET.';

-- People: their accounts, sessions and links, what they may do in which app, and what was changed by whom.
--
-- Of everything that lets somebody in (sessions, links) only a SHA-256 is kept; of passwords an argon2id hash.

CREATE TABLE users (
  id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id        text        COLLATE "C" NOT NULL UNIQUE,
  email            text        NOT NULL,
  email_key        text        COLLATE "C" NOT NULL UNIQUE,
  password_hash    text        NOT NULL,
  email_verified_at  timestamptz,
  created_at       timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN users.email IS 'As it was typed; mail goes here.';
COMMENT ON COLUMN users.email_key IS 'In lower case and NFC: what tells one account from another.';
COMMENT ON COLUMN users.email_verified_at IS 'When the owner of the address followed a link that was mailed there and shown to nobody else, or an operator vouched for it.';

CREATE TABLE apps (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  name        text        NOT NULL CHECK (name <> ''),
  created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE event_types (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text        COLLATE "C" NOT NULL CHECK (name <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  hidden_at   timestamptz,
  UNIQUE (app_id, name)
);
COMMENT ON COLUMN event_types.hidden_at IS 'Since when charts leave the type out; NULL: they show it.';

CREATE TABLE logging_tokens (
  digest      bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  sealed      bytea       NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  expires_at  timestamptz
);
CREATE INDEX logging_tokens_of_app ON logging_tokens (app_id);
COMMENT ON COLUMN logging_tokens.sealed IS 'The token under AES-256-GCM, so that it can be shown again.';
COMMENT ON COLUMN logging_tokens.expires_at IS 'Set by a rotation: the end of the old token''s grace. NULL for the current token.';

CREATE TABLE resource_tokens (
  id            integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id     text        COLLATE "C" NOT NULL UNIQUE,
  digest        bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  name          text        NOT NULL CHECK (name <> ''),
  created_at    timestamptz NOT NULL DEFAULT now(),
  expires_at    timestamptz,
  revoked_at    timestamptz,
  last_used_at  timestamptz,
  created_by    integer     REFERENCES users ON DELETE SET NULL
);
CREATE INDEX resource_tokens_of_user ON resource_tokens (created_by) WHERE created_by IS NOT NULL;
COMMENT ON COLUMN resource_tokens.created_by IS 'The account that made it. NULL: the command line, or an account that is gone.';

CREATE TABLE resource_token_apps (
  token_id  integer NOT NULL REFERENCES resource_tokens ON DELETE CASCADE,
  app_id    integer NOT NULL REFERENCES apps ON DELETE CASCADE,
  PRIMARY KEY (token_id, app_id)
);
CREATE INDEX resource_token_apps_of_app ON resource_token_apps (app_id);

-- Times of sessions and links are the service's, not the database's: their lifetimes are one clock's business.
CREATE TABLE sessions (
  digest        bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  user_id       integer     NOT NULL REFERENCES users ON DELETE CASCADE,
  created_at    timestamptz NOT NULL,
  last_seen_at  timestamptz NOT NULL,
  handle        text        COLLATE "C" NOT NULL DEFAULT 'ses_' || left(replace(gen_random_uuid()::text, '-', ''), 20),
  browser       text,
  system        text,
  address       text
);
CREATE INDEX sessions_of_user ON sessions (user_id);
CREATE UNIQUE INDEX sessions_by_handle ON sessions (handle);
COMMENT ON COLUMN sessions.handle  IS 'The public id, which has nothing to do with the cookie.';
COMMENT ON COLUMN sessions.address IS 'Where the sign-in came from, as far as SESSION_ADDRESSES lets it be stored.';

-- One-time links. A sign-up waits in its link: there is no account, and nothing to learn, until the email is verified.
CREATE TABLE account_links (
  digest         bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
  purpose        text        NOT NULL CHECK (purpose IN ('setup', 'sign-up', 'verify-email', 'reset-password')),
  user_id        integer     REFERENCES users ON DELETE CASCADE,
  email          text,
  password_hash  text,
  verifies_email   boolean     NOT NULL DEFAULT false,
  expires_at     timestamptz NOT NULL,
  CHECK (purpose = 'setup' OR (purpose = 'sign-up' AND email IS NOT NULL AND password_hash IS NOT NULL) OR user_id IS NOT NULL)
);
CREATE INDEX account_links_of_user ON account_links (user_id) WHERE user_id IS NOT NULL;
COMMENT ON COLUMN account_links.verifies_email IS 'Whether following it verifies the address: it was mailed there and shown to nobody else, or an operator handed it over.';

CREATE TABLE app_members (
  app_id       integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  user_id      integer     NOT NULL REFERENCES users ON DELETE CASCADE,
  role         text        NOT NULL CHECK (role IN ('owner', 'maintainer', 'viewer')),
  added_at     timestamptz NOT NULL DEFAULT now(),
  invited_key  text        COLLATE "C",
  PRIMARY KEY (app_id, user_id)
);
CREATE INDEX app_members_of_user ON app_members (user_id);
COMMENT ON COLUMN app_members.invited_key IS 'The key of the address that the accepted invitation was for, which may be another one than the account''s. NULL where the member was added without a link.';

CREATE TABLE invitations (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  digest      bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  email       text        NOT NULL,
  email_key   text        COLLATE "C" NOT NULL,
  role        text        NOT NULL CHECK (role IN ('maintainer', 'viewer')),
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz NOT NULL,
  UNIQUE (app_id, email_key)
);

-- Who changed what. Rows outlive the app and the account that they tell of, hence no foreign keys.
CREATE TABLE audit_entries (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id      integer,
  at          timestamptz NOT NULL DEFAULT now(),
  user_id     integer,
  actor       text        NOT NULL,
  action      text        NOT NULL,
  details     jsonb       NOT NULL,
  account_id  integer,
  CONSTRAINT audit_entries_of_app_or_account CHECK (app_id IS NOT NULL OR account_id IS NOT NULL)
);
CREATE INDEX audit_entries_of_app ON audit_entries (app_id, id);
CREATE INDEX audit_entries_of_account ON audit_entries (account_id, id) WHERE account_id IS NOT NULL;
COMMENT ON COLUMN audit_entries.account_id IS 'The account that was changed; NULL: an app was.';
COMMENT ON COLUMN audit_entries.actor IS 'The email that the account had then, or "command line".';

-- Apps whose events are still to be removed: the app itself is gone at once, its rows in the background.
CREATE TABLE deleted_apps (
  app_id      integer     PRIMARY KEY,
  deleted_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE known_devices (
  user_id       integer      NOT NULL REFERENCES users ON DELETE CASCADE,
  digest        bytea        NOT NULL CHECK (octet_length(digest) = 32),
  last_seen_at  timestamptz  NOT NULL,
  PRIMARY KEY (user_id, digest)
);
COMMENT ON COLUMN known_devices.digest IS 'HMAC of account, browser, system and network, under a key that SECRET is the source of.';

CREATE TABLE second_factors (
  user_id      integer      PRIMARY KEY REFERENCES users ON DELETE CASCADE,
  sealed       bytea        NOT NULL,
  started_at   timestamptz  NOT NULL,
  enabled_at   timestamptz,
  last_step    bigint       NOT NULL DEFAULT 0,
  wrong_codes  integer      NOT NULL DEFAULT 0
);
COMMENT ON COLUMN second_factors.sealed IS 'The secret of the codes (RFC 6238), sealed with AES-256-GCM for this account.';
COMMENT ON COLUMN second_factors.enabled_at IS 'NULL: set up and not confirmed by a code yet, so no sign-in asks for one.';
COMMENT ON COLUMN second_factors.last_step IS 'The step of the last accepted code: no code of this or an earlier one is accepted again.';
COMMENT ON COLUMN second_factors.wrong_codes IS 'Wrong codes in a row, counted over all processes and restarts; a right one ends them.';

CREATE TABLE recovery_codes (
  user_id  integer  NOT NULL REFERENCES users ON DELETE CASCADE,
  digest   bytea    NOT NULL CHECK (octet_length(digest) = 32),
  PRIMARY KEY (user_id, digest)
);

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

-- Readers lock this table (ACCESS SHARE) before they take a snapshot of events and counts, and keep the lock until they are
-- done. What changes where rows are found without regard to older snapshots, as recompression on TimescaleDB does, takes it
-- in ACCESS EXCLUSIVE mode just before its commit: so no snapshot is in use at that moment. It has no rows.
CREATE TABLE snapshot_lock ();
COMMENT ON TABLE snapshot_lock IS 'Readers of events and counts lock it before their snapshot; recompression locks them out at its commit.';

-- JSON Schemas that owners attach to event types, and what the checks of their payloads have found since.

CREATE TABLE type_schemas (
  type_id            integer      PRIMARY KEY REFERENCES event_types ON DELETE CASCADE,
  mode               text         NOT NULL CHECK (mode IN ('warn', 'refuse')),
  schema             text         NOT NULL,
  digest             text         COLLATE "C" NOT NULL,
  set_at             timestamptz  NOT NULL DEFAULT now(),
  suspended_at       timestamptz,
  suspended_reason   text,
  checked            bigint       NOT NULL DEFAULT 0,
  violations         bigint       NOT NULL DEFAULT 0,
  unchecked          bigint       NOT NULL DEFAULT 0,
  last_violation_at  timestamptz,
  last_path          text,
  last_message       text
);
COMMENT ON COLUMN type_schemas.digest IS 'SHA-256 of the schema in hex: compiled schemas and found violations belong to this text.';
COMMENT ON COLUMN type_schemas.suspended_at IS 'Since when payloads are not checked, because their checks took too long. Setting a schema ends it.';

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

-- Fields of payloads that owners have declared, on every engine.
-- The generation of the newest field. The row's lock orders declarations: who sees a generation sees all fields up to it.
CREATE TABLE field_generation (
  only_row    boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  generation  integer  NOT NULL
);
INSERT INTO field_generation (generation) VALUES (0);

CREATE TABLE declared_fields (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  type_id        integer      REFERENCES event_types ON DELETE CASCADE,
  path           text         COLLATE "C" NOT NULL,
  kind           text         NOT NULL CHECK (kind IN ('value', 'number')),
  created_at     timestamptz  NOT NULL DEFAULT now(),
  generation     integer      NOT NULL DEFAULT 0,
  complete_from  timestamptz,
  backfill       boolean      NOT NULL DEFAULT false,
  removed_at     timestamptz,
  known_values   integer      NOT NULL DEFAULT 0,
  new_values     integer      NOT NULL DEFAULT 0,
  new_values_on  date         NOT NULL DEFAULT '-infinity',
  full_since     timestamptz
);
CREATE UNIQUE INDEX declared_fields_once ON declared_fields (app_id, path, coalesce(type_id, 0), kind) WHERE removed_at IS NULL;
COMMENT ON COLUMN declared_fields.type_id       IS 'The type whose events have the field; NULL: events of all types.';
COMMENT ON COLUMN declared_fields.path          IS 'The names that lead to the value, from the top of the payload on: a JSON array of strings.';
COMMENT ON COLUMN declared_fields.generation    IS '0 until maintenance gives the field one: then writers begin to count it.';
COMMENT ON COLUMN declared_fields.complete_from IS 'From this minute on the counts are complete, but for uncounted minutes. NULL: not yet counted.';
COMMENT ON COLUMN declared_fields.backfill      IS 'Whether complete_from is to move back to the first event.';
COMMENT ON COLUMN declared_fields.removed_at    IS 'Set by a removal: maintenance deletes the counts, then the row.';
COMMENT ON COLUMN declared_fields.known_values  IS 'Values that have ids; new_values of them since the start of the UTC day new_values_on.';
COMMENT ON COLUMN declared_fields.full_since    IS 'When a value was counted as "other" for the first time, because there were too many.';

-- Every process drops what it remembers of a row when that row changes, whoever changed it.
-- The payload is the table's name: such changes are rare, and a cache that starts again is cheap.
CREATE FUNCTION notify_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('tidemark_changes', TG_TABLE_NAME);
  RETURN NULL;
END $$;

CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON apps
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER UPDATE OR DELETE ON event_types
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON logging_tokens
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF name, expires_at, revoked_at ON resource_tokens
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON resource_token_apps
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
-- Not when violations are counted: every process drops what it has cached of types.
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF mode, digest, suspended_at ON type_schemas
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF generation, removed_at ON declared_fields
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
