-- Beside the previous release: yes
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

-- Not when violations are counted: every process drops what it has cached of types.
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF mode, digest, suspended_at ON type_schemas
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
