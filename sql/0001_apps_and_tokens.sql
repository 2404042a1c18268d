-- Apps, their event types, and the two kinds of token. Public identifiers are opaque text; the integers stay inside.

CREATE TABLE installation (
  name   text PRIMARY KEY,
  value  text NOT NULL
);
COMMENT ON TABLE installation IS 'Facts about this installation: the engine that it was migrated for, the fingerprint of SECRET.';

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
  UNIQUE (app_id, name)
);

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
  last_used_at  timestamptz
);

CREATE TABLE resource_token_apps (
  token_id  integer NOT NULL REFERENCES resource_tokens ON DELETE CASCADE,
  app_id    integer NOT NULL REFERENCES apps ON DELETE CASCADE,
  PRIMARY KEY (token_id, app_id)
);
CREATE INDEX resource_token_apps_of_app ON resource_token_apps (app_id);

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
