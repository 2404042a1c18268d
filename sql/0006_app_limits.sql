-- Beside the previous release: yes
-- Limits of single apps, above or below those that the settings give to all.

CREATE TABLE app_limits (
  app_id             integer  PRIMARY KEY REFERENCES apps ON DELETE CASCADE,
  create_per_minute  integer  CHECK (create_per_minute > 0),
  bytes_per_day      bigint   CHECK (bytes_per_day > 0),
  types              integer  CHECK (types > 0)
);
COMMENT ON TABLE app_limits IS 'Apps that have a limit of their own. NULL: what the settings say.';
COMMENT ON COLUMN app_limits.bytes_per_day IS 'Bytes of payloads that producers may send on a UTC day.';

CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON app_limits
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();
