-- Declared fields are counted beside the events of their app, on its node.
--
-- Declarations stay on the coordinator (declared_fields). Maintenance brings each of them to the node of its app (field_states), where
-- its counting begins, and brings back how far that is.
--
-- Everything that counts and reads fields runs on the shards of a node that hold the same apps as on the tables of one server: there
-- a schema has views with the names of these tables (src/storage/engines/citus/shard-schema.ts).

-- What the node of an app knows of its declared fields: there it stands for declared_fields.
CREATE TABLE field_states (
  app_id         integer      NOT NULL,
  id             integer      NOT NULL,
  type_id        integer,
  path           text         COLLATE "C" NOT NULL,
  kind           text         NOT NULL,
  generation     integer      NOT NULL,
  complete_from  timestamptz,
  backfill       boolean      NOT NULL DEFAULT false,
  removed_at     timestamptz,
  known_values   integer      NOT NULL DEFAULT 0,
  new_values     integer      NOT NULL DEFAULT 0,
  new_values_on  date         NOT NULL DEFAULT '-infinity',
  full_since     timestamptz,
  by_path        text         NOT NULL DEFAULT '',
  PRIMARY KEY (app_id, id)
);

-- The ids are those of a node's shard: the next after the greatest one.
CREATE TABLE field_series (
  app_id       integer  NOT NULL,
  id           integer  NOT NULL,
  field_id     integer  NOT NULL,
  type_id      integer  NOT NULL,
  value        text     COLLATE "C" NOT NULL,
  is_complete  boolean  NOT NULL,
  by_value     text     NOT NULL DEFAULT '',
  PRIMARY KEY (app_id, id)
);
CREATE INDEX field_series_by_id ON field_series (id);
CREATE UNIQUE INDEX field_series_once ON field_series (app_id, field_id, value, by_value, type_id);
CREATE INDEX field_series_of_field ON field_series (field_id, value, by_value, type_id);

-- Always empty: whoever counts fields, or compares rows with counts, locks it first.
CREATE TABLE field_folds (
  app_id        integer  NOT NULL,
  pending_from  xid8     NOT NULL,
  running       xid8[]   NOT NULL
);

SELECT beside_events(name) FROM unnest('{field_states,field_series,field_folds}'::regclass[]) AS name;
