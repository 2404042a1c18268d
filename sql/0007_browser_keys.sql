-- Beside the previous release: yes
-- Browser keys: they may be public. A key writes the named types of one app from pages of the named origins.

CREATE TABLE browser_keys (
  id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  public_id   text        COLLATE "C" NOT NULL UNIQUE,
  digest      bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  sealed      bytea       NOT NULL,
  app_id      integer     NOT NULL REFERENCES apps ON DELETE CASCADE,
  name        text        NOT NULL CHECK (name <> ''),
  types       text[]      NOT NULL CHECK (cardinality(types) > 0),
  origins     text[]      NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  revoked_at  timestamptz,
  created_by  integer     REFERENCES users ON DELETE SET NULL
);
CREATE INDEX browser_keys_of_app ON browser_keys (app_id);
CREATE INDEX browser_keys_of_user ON browser_keys (created_by) WHERE created_by IS NOT NULL;
COMMENT ON COLUMN browser_keys.sealed  IS 'The key under AES-256-GCM, so that it can be shown again.';
COMMENT ON COLUMN browser_keys.types   IS 'Names of the event types that the key may write.';
COMMENT ON COLUMN browser_keys.origins IS 'Origins whose pages may use the key, as browsers send them; none: no page may.';

CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON browser_keys
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
