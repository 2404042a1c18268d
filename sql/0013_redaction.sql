-- Beside the previous release: no: servers of it store what a rule of this one takes out. Add rules when all servers are upgraded.
-- Rules of event types that remove or replace values of payloads before anything stores them.

CREATE TABLE redaction_rules (
  id          integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type_id     integer      NOT NULL REFERENCES event_types ON DELETE CASCADE,
  path        text         COLLATE "C" NOT NULL,
  action      text         NOT NULL CHECK (action IN ('drop', 'mask', 'hmac')),
  created_at  timestamptz  NOT NULL DEFAULT now(),
  UNIQUE (type_id, path)
);
COMMENT ON COLUMN redaction_rules.path IS 'The names that lead to the value, from the top of the payload on: a JSON array of strings.';

CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON redaction_rules
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
