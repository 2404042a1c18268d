-- The counts of declared fields are beside the events of their app, on its node.
--
-- Declarations stay on the coordinator (declared_fields), with their generation: writers must see both at once. Maintenance brings
-- each of them to the node of its app (field_states), where its counting begins, and brings back how far that is.
--
-- Everything that counts and reads fields runs on the shards of a node that hold the same apps as on the tables of one server: there
-- a schema has views with the names of these tables (src/storage/citus/shard-schema.ts). The views here are what these are made of.

SET LOCAL citus.multi_shard_modify_mode = 'sequential';

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
  PRIMARY KEY (app_id, id),
  UNIQUE (app_id, field_id, value, type_id)
);
CREATE INDEX field_series_by_id ON field_series (id);
CREATE INDEX field_series_of_field ON field_series (field_id, value, type_id);

-- Transactions are numbered by each node: deltas do not tell which one has written them, and all of them are looked at.
CREATE TABLE field_deltas (
  app_id    integer      NOT NULL,
  field_id  integer      NOT NULL,
  type_id   integer      NOT NULL,
  bucket    timestamptz  NOT NULL,
  count     bigint       NOT NULL,
  value     text         COLLATE "C" NOT NULL,
  written   xid8         NOT NULL DEFAULT '0',
  numbers   bytea
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX field_deltas_pending ON field_deltas (written, app_id);
ALTER TABLE field_deltas REPLICA IDENTITY FULL;

-- Always empty: whoever folds, or compares rows with counts, locks it first.
CREATE TABLE field_folds (
  app_id        integer  NOT NULL,
  pending_from  xid8     NOT NULL,
  running       xid8[]   NOT NULL
);
ALTER TABLE field_folds REPLICA IDENTITY FULL;

CREATE TABLE uncounted_minutes (
  app_id  integer      NOT NULL,
  bucket  timestamptz  NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX uncounted_minutes_of_app ON uncounted_minutes (app_id, bucket);
ALTER TABLE uncounted_minutes REPLICA IDENTITY FULL;

CREATE TABLE field_minute_counts (
  app_id     integer      NOT NULL,
  series_id  integer      NOT NULL,
  bucket     timestamptz  NOT NULL,
  count      bigint       NOT NULL,
  PRIMARY KEY (app_id, series_id, bucket)
) WITH (fillfactor = 85);
CREATE INDEX field_minute_counts_by_time ON field_minute_counts USING brin (bucket) WITH (pages_per_range = 32);
CREATE TABLE field_quarter_hour_counts (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_hour_counts         (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_day_counts          (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 50);
CREATE TABLE field_month_counts        (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 50);

CREATE TABLE field_minute_numbers (
  app_id    integer      NOT NULL,
  field_id  integer      NOT NULL,
  type_id   integer      NOT NULL,
  bucket    timestamptz  NOT NULL,
  numbers   bytea        NOT NULL,
  PRIMARY KEY (app_id, field_id, type_id, bucket)
) WITH (fillfactor = 85);
ALTER TABLE field_minute_numbers ALTER COLUMN numbers SET STORAGE EXTERNAL;
CREATE INDEX field_minute_numbers_by_time ON field_minute_numbers USING brin (bucket) WITH (pages_per_range = 32);
CREATE TABLE field_quarter_hour_numbers (LIKE field_minute_numbers INCLUDING STORAGE, PRIMARY KEY (app_id, field_id, type_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_hour_numbers         (LIKE field_minute_numbers INCLUDING STORAGE, PRIMARY KEY (app_id, field_id, type_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_day_numbers          (LIKE field_minute_numbers INCLUDING STORAGE, PRIMARY KEY (app_id, field_id, type_id, bucket)) WITH (fillfactor = 50);

SELECT create_distributed_table(name, 'app_id', colocate_with => 'events')
  FROM unnest('{field_states,field_series,field_deltas,field_folds,uncounted_minutes,
                field_minute_counts,field_quarter_hour_counts,field_hour_counts,field_day_counts,field_month_counts,
                field_minute_numbers,field_quarter_hour_numbers,field_hour_numbers,field_day_numbers}'::text[]) AS name;

-- As 0003_fields.postgres-timescale.sql has them for one server.
CREATE VIEW last_field_fold AS SELECT '0'::xid8 AS pending_from;

CREATE VIEW pending_field_deltas AS
  SELECT app_id, field_id, type_id, bucket, count, value, numbers FROM field_deltas WHERE written >= '0'::xid8;

CREATE VIEW pending_field_counts AS
  SELECT pending.app_id, series.id AS series_id, pending.bucket, pending.count
    FROM pending_field_deltas AS pending
    JOIN field_series AS series ON series.field_id = pending.field_id AND series.value = pending.value
                               AND (series.type_id = 0 OR series.type_id = pending.type_id);

CREATE VIEW fields_per_minute AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_minute_counts
  UNION ALL SELECT app_id, series_id, bucket, count FROM pending_field_counts;
CREATE VIEW fields_per_quarter_hour AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_quarter_hour_counts
  UNION ALL SELECT app_id, series_id, date_bin('15 minutes', bucket, 'epoch'), count FROM pending_field_counts;
CREATE VIEW fields_per_hour AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_hour_counts
  UNION ALL SELECT app_id, series_id, date_bin('1 hour', bucket, 'epoch'), count FROM pending_field_counts;
CREATE VIEW fields_per_day AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_day_counts
  UNION ALL SELECT app_id, series_id, date_bin('1 day', bucket, 'epoch'), count FROM pending_field_counts;
CREATE VIEW fields_per_month AS
            SELECT app_id, series_id AS type_id, bucket, count FROM field_month_counts
  UNION ALL SELECT app_id, series_id, date_trunc('month', bucket, 'UTC'), count FROM pending_field_counts;

CREATE VIEW pending_field_numbers AS
  SELECT app_id, field_id, kinds.type_id, bucket, numbers
    FROM pending_field_deltas AS pending CROSS JOIN LATERAL (VALUES (0), (pending.type_id)) AS kinds (type_id)
   WHERE numbers IS NOT NULL;

CREATE VIEW numbers_per_minute AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_minute_numbers
  UNION ALL SELECT app_id, field_id, type_id, bucket, numbers FROM pending_field_numbers;
CREATE VIEW numbers_per_quarter_hour AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_quarter_hour_numbers
  UNION ALL SELECT app_id, field_id, type_id, date_bin('15 minutes', bucket, 'epoch'), numbers FROM pending_field_numbers;
CREATE VIEW numbers_per_hour AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_hour_numbers
  UNION ALL SELECT app_id, field_id, type_id, date_bin('1 hour', bucket, 'epoch'), numbers FROM pending_field_numbers;
CREATE VIEW numbers_per_day AS
            SELECT app_id, field_id, type_id, bucket, numbers FROM field_day_numbers
  UNION ALL SELECT app_id, field_id, type_id, date_bin('1 day', bucket, 'epoch'), numbers FROM pending_field_numbers;

-- The fields that writers count. Also those that are being removed, until the node of their app has taken note of that: as long as
-- its counts are read, they must be complete.
CREATE VIEW written_fields AS SELECT id, app_id, type_id, path, kind FROM declared_fields WHERE generation > 0;
