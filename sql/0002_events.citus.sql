-- Events and their counts, distributed by app over the nodes of a Citus cluster: all rows of an app are on one node.
--
-- How the counts stay exact is as in 0002_events.postgres.sql: the inserting transaction writes what it adds to each minute into
-- count_deltas, and the fold moves deltas into the counts, in one transaction on the node of the app. Readers add both.
--
-- Apps, types, tokens and people are ordinary tables of the coordinator, so that they can be changed while a node is away.

SET LOCAL citus.multi_shard_modify_mode = 'sequential';
CREATE TABLE events (
  id          uuid        NOT NULL,
  app_id      integer     NOT NULL,
  type_id     integer     NOT NULL,
  created_at  timestamptz NOT NULL,
  payload     json        NOT NULL,
  -- The key under which a shard that moves is replicated.
  CONSTRAINT events_key PRIMARY KEY (app_id, created_at, id)
) PARTITION BY RANGE (created_at);

CREATE TABLE count_deltas (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX count_deltas_of_app ON count_deltas (app_id, bucket);
ALTER TABLE count_deltas REPLICA IDENTITY FULL;

CREATE TABLE minute_counts (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL,
  PRIMARY KEY (app_id, type_id, bucket)
) WITH (fillfactor = 85);
CREATE INDEX minute_counts_by_time ON minute_counts USING brin (bucket) WITH (pages_per_range = 32);

CREATE TABLE quarter_hour_counts (LIKE minute_counts INCLUDING DEFAULTS, PRIMARY KEY (app_id, type_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE hour_counts         (LIKE minute_counts INCLUDING DEFAULTS, PRIMARY KEY (app_id, type_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE day_counts          (LIKE minute_counts INCLUDING DEFAULTS, PRIMARY KEY (app_id, type_id, bucket)) WITH (fillfactor = 50);

-- Rows before readable_from are no longer read or counted in totals; their partitions are dropped some time later.
CREATE TABLE retention (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  readable_from  timestamptz NOT NULL
);

SELECT create_distributed_table('events', 'app_id', colocate_with => 'none');
SELECT create_distributed_table(name, 'app_id', colocate_with => 'events')
  FROM unnest('{count_deltas,minute_counts,quarter_hour_counts,hour_counts,day_counts}'::text[]) AS name;
SELECT create_reference_table('retention');
INSERT INTO retention (readable_from) VALUES ('-infinity');

-- type_id 0 as an expression of each row: of a branch that a plan leaves out, Citus would not know the app.
CREATE VIEW new_counts AS
  SELECT app_id, kind AS type_id, bucket, count FROM count_deltas CROSS JOIN LATERAL (VALUES (type_id), (0)) AS kinds (kind);

CREATE VIEW events_per_minute AS
            SELECT app_id, type_id, bucket, count FROM minute_counts
  UNION ALL SELECT app_id, type_id, bucket, count FROM new_counts;
CREATE VIEW events_per_quarter_hour AS
            SELECT app_id, type_id, bucket, count FROM quarter_hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('15 minutes', bucket, 'epoch'), count FROM new_counts;
CREATE VIEW events_per_hour AS
            SELECT app_id, type_id, bucket, count FROM hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 hour', bucket, 'epoch'), count FROM new_counts;
CREATE VIEW events_per_day AS
            SELECT app_id, type_id, bucket, count FROM day_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 day', bucket, 'epoch'), count FROM new_counts;

-- Buckets that readers must count from the level below. Here the views are always exact, so there are none.
CREATE VIEW stale_buckets AS SELECT 0::smallint AS level, NULL::timestamptz AS bucket WHERE false;

-- Attaching a finished table takes a weaker lock on events than CREATE TABLE … PARTITION OF: readers and writers go on.
CREATE FUNCTION create_events_partition(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  partition text := 'events_' || to_char(day, 'YYYYMMDD');
  lower_bound timestamptz := day::timestamp AT TIME ZONE 'UTC';
  upper_bound timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('tidemark partitions'));
  IF to_regclass(partition) IS NOT NULL THEN RETURN; END IF;
  EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
  EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition, lower_bound, upper_bound);
END $$;
