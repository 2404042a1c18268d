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
  count    bigint      NOT NULL,
  fields   integer     NOT NULL DEFAULT 0
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX count_deltas_of_app ON count_deltas (app_id, bucket);
ALTER TABLE count_deltas REPLICA IDENTITY FULL;
COMMENT ON TABLE count_deltas IS 'What transactions add to the minutes, written by the writer of the rows.';
COMMENT ON COLUMN count_deltas.fields IS 'The generation up to which the writer knew declared fields of payloads.';

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
CREATE TABLE month_counts        (LIKE minute_counts INCLUDING DEFAULTS, PRIMARY KEY (app_id, type_id, bucket)) WITH (fillfactor = 50);

-- Profiles of days as on PostgreSQL (0002_events.postgres.sql).
CREATE TABLE daily_prefix_sums (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  day      timestamptz NOT NULL,
  running  integer[]   NOT NULL CHECK (cardinality(running) = 96),
  PRIMARY KEY (app_id, type_id, day) INCLUDE (running)
);
CREATE TABLE profiled_days (
  app_id  integer     NOT NULL,
  day     timestamptz NOT NULL,
  PRIMARY KEY (app_id, day)
);

-- Rows before readable_from are no longer read or counted in totals; their partitions are dropped some time later.
CREATE TABLE retention (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  readable_from  timestamptz NOT NULL
);

-- What reads of events need of their types, on the node of the app.
CREATE TABLE type_names (
  app_id     integer  NOT NULL,
  id         integer  NOT NULL,
  public_id  text     COLLATE "C" NOT NULL,
  name       text     COLLATE "C" NOT NULL,
  PRIMARY KEY (app_id, id)
);

SELECT create_distributed_table('events', 'app_id', colocate_with => 'none');
-- Answers of keyed requests are on the node of the events that they answer for.
SELECT create_distributed_table(name, 'app_id', colocate_with => 'events')
  FROM unnest('{count_deltas,minute_counts,quarter_hour_counts,hour_counts,day_counts,month_counts,daily_prefix_sums,profiled_days,
                type_names,idempotency_keys}'::text[]) AS name;
SELECT create_reference_table('retention');
INSERT INTO retention (readable_from) VALUES ('-infinity');

-- With the type, or not at all: while the node of its app is away, an app gets no new types.
CREATE FUNCTION copy_type_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO type_names (app_id, id, public_id, name) VALUES (NEW.app_id, NEW.id, NEW.public_id, NEW.name)
  ON CONFLICT (app_id, id) DO UPDATE SET public_id = excluded.public_id, name = excluded.name;
  RETURN NULL;
END $$;
CREATE TRIGGER copy_type_name AFTER INSERT OR UPDATE OF public_id, name ON event_types
  FOR EACH ROW EXECUTE FUNCTION copy_type_name();

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
CREATE VIEW events_per_month AS
            SELECT app_id, type_id, bucket, count FROM month_counts
  UNION ALL SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), count FROM new_counts;

-- Counts without what is still to be folded: what profiles of days are made of.
CREATE VIEW settled_day_counts          AS SELECT app_id, type_id, bucket, count FROM day_counts;
CREATE VIEW settled_quarter_hour_counts AS SELECT app_id, type_id, bucket, count FROM quarter_hour_counts;

-- Buckets that readers must count from the level below. Here the views are always exact, so there are none.
CREATE VIEW stale_buckets AS SELECT 0::smallint AS level, NULL::timestamptz AS bucket WHERE false;
CREATE VIEW pending_marks AS SELECT level, bucket FROM stale_buckets;

-- Of PostgreSQL without a cluster, where a reader's snapshot tells which deltas need not be looked at. Transactions have other
-- numbers on each node, and a delta that is written by way of another node has that one's: here all of them are looked at.
CREATE VIEW last_fold AS SELECT '0'::xid8 AS pending_from;
CREATE VIEW next_fold AS SELECT '0'::xid8 AS pending_from, '{}'::xid8[] AS running;
CREATE VIEW stamped_minutes AS SELECT app_id, bucket, fields FROM count_deltas;

-- Days of which the profiles tell everything: those with counts that are still to be folded do not yet.
CREATE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM count_deltas
                      WHERE count_deltas.app_id = profiled_days.app_id AND date_bin('1 day', count_deltas.bucket, 'epoch') = day);

-- The last two weeks and the future have partitions by day, before that this year and the one before by month, older time by
-- year: so what is dated back over years makes tens of partitions and not thousands. Each partition is a table for every
-- shard, on its node.

-- The partitions of events with their bounds.
CREATE VIEW events_partitions AS
  SELECT inhrelid::regclass AS partition,
         CASE WHEN bounds[1] = 'MINVALUE' THEN '-infinity' ELSE trim(bounds[1], '''') END::timestamptz AS start,
         CASE WHEN bounds[2] = 'MAXVALUE' THEN 'infinity'  ELSE trim(bounds[2], '''') END::timestamptz AS finish
    FROM pg_inherits
    JOIN pg_class ON pg_class.oid = inhrelid
   CROSS JOIN LATERAL regexp_match(pg_get_expr(relpartbound, inhrelid), '^FOR VALUES FROM \((.*)\) TO \((.*)\)$') AS bounds
   WHERE inhparent = 'events'::regclass AND bounds IS NOT NULL;

-- Makes room for events of a day: the widest partition that its age allows and its neighbors leave room for. Each costs one
-- table for every shard, on its node.
CREATE FUNCTION make_room_for_events(day date, today date DEFAULT (now() AT TIME ZONE 'UTC')::date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  midnight timestamptz := day::timestamp AT TIME ZONE 'UTC';
  by_day_from date := today - 14;
  width text := CASE WHEN day >= by_day_from THEN 'day'
                     WHEN day >= date_trunc('year', today - interval '1 year') THEN 'month'
                     ELSE 'year' END;
  lower_bound timestamptz := date_trunc(width, day::timestamp) AT TIME ZONE 'UTC';
  upper_bound timestamptz := (date_trunc(width, day::timestamp) + ('1 ' || width)::interval) AT TIME ZONE 'UTC';
  taken record;
  name text;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('tidemark partitions'));
  IF day < by_day_from THEN upper_bound := least(upper_bound, by_day_from::timestamp AT TIME ZONE 'UTC'); END IF;
  FOR taken IN SELECT start, finish FROM events_partitions LOOP
    IF taken.start <= midnight AND taken.finish > midnight THEN RETURN; END IF;
    IF taken.finish <= midnight THEN lower_bound := greatest(lower_bound, taken.finish); END IF;
    IF taken.start > midnight THEN upper_bound := least(upper_bound, taken.start); END IF;
  END LOOP;
  name := 'events_' || to_char(lower_bound AT TIME ZONE 'UTC', 'YYYYMMDD');
  IF upper_bound - lower_bound <> interval '1 day' THEN
    name := name || '_' || to_char(upper_bound AT TIME ZONE 'UTC', 'YYYYMMDD');
  END IF;
  EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
  EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, lower_bound, upper_bound);
END $$;

-- The same for several days, from any node: the coordinator makes partitions.
CREATE FUNCTION make_room(days date[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  outcome record;
  day date;
BEGIN
  IF citus_is_coordinator() THEN
    FOR day IN SELECT unnest(days) ORDER BY 1 LOOP PERFORM make_room_for_events(day); END LOOP;
    RETURN;
  END IF;
  SELECT * INTO outcome FROM run_command_on_coordinator(format('SELECT make_room(%L::date[])', days));
  -- As a row without a partition fails, so that it is understood as that.
  IF NOT outcome.success THEN RAISE EXCEPTION '%', outcome.result USING ERRCODE = 'check_violation'; END IF;
END $$;

-- The partition of a day, unless a wider one holds it.
CREATE FUNCTION create_events_partition(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  partition text := 'events_' || to_char(day, 'YYYYMMDD');
  lower_bound timestamptz := day::timestamp AT TIME ZONE 'UTC';
  upper_bound timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('tidemark partitions'));
  IF EXISTS (SELECT FROM events_partitions WHERE start <= lower_bound AND finish > lower_bound) THEN RETURN; END IF;
  EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
  EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition, lower_bound, upper_bound);
END $$;

-- Of TimescaleDB, where counts of removed rows are kept apart. Here they stay where they are.
CREATE VIEW outlived_counts AS
  SELECT NULL::integer AS app_id, NULL::integer AS type_id, NULL::timestamptz AS bucket, NULL::bigint AS count WHERE false;

-- Where a table lies whose rows belong to apps: each on the node of its app. What has no key is replicated by whole rows when a shard
-- moves.
CREATE FUNCTION beside_events(name regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', true);
  IF NOT EXISTS (SELECT FROM pg_index WHERE indrelid = name AND indisprimary) THEN
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', name);
  END IF;
  PERFORM create_distributed_table(name, 'app_id', colocate_with => 'events');
END $$;
