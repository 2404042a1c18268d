-- Events in day partitions, and their counts per app, type and minute, quarter-hour, hour and day (UTC).
--
-- How the counts stay exact: the inserting transaction itself writes what it adds to each minute into count_deltas, by
-- insert alone, so writers never wait for one another. The fold (maintenance) moves deltas into the four tables of
-- counts in one statement. Whoever reads adds both, through the views: in any snapshot a delta is either still there or
-- already folded, however late its writer committed. There is no watermark that a late commit could miss.
--
-- type_id 0 stands for all types of an app: its totals cost the same with one type as with a thousand.

CREATE TABLE events (
  id          uuid        NOT NULL,
  app_id      integer     NOT NULL,
  type_id     integer     NOT NULL,
  created_at  timestamptz NOT NULL,
  payload     json        NOT NULL,
  CONSTRAINT events_key UNIQUE (app_id, created_at, id)
) PARTITION BY RANGE (created_at);

CREATE TABLE count_deltas (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX count_deltas_of_app ON count_deltas (app_id, bucket);

-- Room on the pages lets a count be updated in place (HOT): the tail's rows change once a fold.
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

CREATE FUNCTION count_new_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO count_deltas (app_id, type_id, bucket, count)
  SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), count(*)
    FROM new_events
   GROUP BY 1, 2, 3;
  RETURN NULL;
END $$;

CREATE TRIGGER count_new_events AFTER INSERT ON events
  REFERENCING NEW TABLE AS new_events
  FOR EACH STATEMENT EXECUTE FUNCTION count_new_events();

CREATE VIEW events_per_minute AS
            SELECT app_id, type_id, bucket, count FROM minute_counts
  UNION ALL SELECT app_id, type_id, bucket, count FROM count_deltas
  UNION ALL SELECT app_id, 0,       bucket, count FROM count_deltas;

CREATE VIEW events_per_quarter_hour AS
            SELECT app_id, type_id, bucket, count FROM quarter_hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('15 minutes', bucket, 'epoch'), count FROM count_deltas
  UNION ALL SELECT app_id, 0,       date_bin('15 minutes', bucket, 'epoch'), count FROM count_deltas;

CREATE VIEW events_per_hour AS
            SELECT app_id, type_id, bucket, count FROM hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 hour', bucket, 'epoch'), count FROM count_deltas
  UNION ALL SELECT app_id, 0,       date_bin('1 hour', bucket, 'epoch'), count FROM count_deltas;

CREATE VIEW events_per_day AS
            SELECT app_id, type_id, bucket, count FROM day_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 day', bucket, 'epoch'), count FROM count_deltas
  UNION ALL SELECT app_id, 0,       date_bin('1 day', bucket, 'epoch'), count FROM count_deltas;

-- Buckets that readers must count from the level below. Here the views are always exact, so there are none.
CREATE VIEW stale_buckets AS SELECT 0::smallint AS level, NULL::timestamptz AS bucket WHERE false;

-- Rows before readable_from are no longer read or counted in totals; their partitions are dropped some time later.
CREATE TABLE retention (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  readable_from  timestamptz NOT NULL
);
INSERT INTO retention (readable_from) VALUES ('-infinity');

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
