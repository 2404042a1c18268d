-- Beside the previous release: no: servers of it show what an app's retention hides. Give apps a retention when all are upgraded.
-- Retention of single apps and types: what is wanted, and from where on their events can be read.

CREATE TABLE retention_rules (
  id             integer      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  app_id         integer      NOT NULL REFERENCES apps ON DELETE CASCADE,
  type_id        integer      REFERENCES event_types ON DELETE CASCADE,
  days           integer      CHECK (days >= 0),
  readable_from  timestamptz  NOT NULL
);
CREATE UNIQUE INDEX retention_rules_once ON retention_rules (app_id, coalesce(type_id, 0));
CREATE INDEX retention_rules_of_type ON retention_rules (type_id) WHERE type_id IS NOT NULL;
COMMENT ON COLUMN retention_rules.type_id       IS 'NULL: all types of the app that have no row of their own.';
COMMENT ON COLUMN retention_rules.days          IS 'For how many days events are kept; 0: for as long as the table retention lets them be; NULL: no longer a rule of its own, but what it has hidden stays so.';
COMMENT ON COLUMN retention_rules.readable_from IS 'As in app_boundaries.';

CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON retention_rules
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();

-- Where they are read: beside the events. Of it and of the boundary of all apps (the table retention) the later one applies. It never
-- moves back.
CREATE TABLE app_boundaries (
  app_id         integer      NOT NULL,
  type_id        integer      NOT NULL,
  readable_from  timestamptz  NOT NULL,
  removed_until  timestamptz  NOT NULL DEFAULT '-infinity',
  moved_at       timestamptz  NOT NULL,
  PRIMARY KEY (app_id, type_id)
);
COMMENT ON COLUMN app_boundaries.type_id       IS '0: all types of the app that have no row of their own.';
COMMENT ON COLUMN app_boundaries.readable_from IS 'Events before it are no longer read; their rows are removed some time later, and their counts stay.';
COMMENT ON COLUMN app_boundaries.removed_until IS 'Rows before it are removed.';
COMMENT ON COLUMN app_boundaries.moved_at      IS 'When readable_from came to where it is.';

SELECT create_distributed_table('app_boundaries', 'app_id', colocate_with => 'events');

-- Of TimescaleDB, where counts of removed rows are kept apart. Here they stay where they are.
CREATE VIEW outlived_counts AS
  SELECT NULL::integer AS app_id, NULL::integer AS type_id, NULL::timestamptz AS bucket, NULL::bigint AS count WHERE false;
