-- Events in partitions, and their counts per app, type and minute, quarter-hour, hour and day (UTC).
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

-- What transactions add to the minutes. A snapshot that stays in use, such as that of a pg_dump, keeps the dead rows of folded
-- deltas, a hundred thousand within minutes, and each read would go through them.
--
-- So each delta has the id of its transaction. A fold notes the oldest transaction that was running in its snapshot: in any
-- later snapshot, deltas of older ones are folded. A reader tells the views by a setting of its transaction, which it takes from
-- its own snapshot; without the setting they read all deltas, with the same result. A session that has written something and stays
-- open is noted by itself, so that it does not keep readers at the deltas of its time.
CREATE TABLE count_deltas (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  bucket   timestamptz NOT NULL,
  count    bigint      NOT NULL,
  written  xid8        NOT NULL DEFAULT pg_current_xact_id(),
  fields   integer     NOT NULL DEFAULT 0
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- What folds take away. New entries go to its end, beyond those of dead rows.
CREATE INDEX count_deltas_pending ON count_deltas (written);
-- What reads add to the counts: a read goes through the deltas of its app, however many the others have.
CREATE INDEX count_deltas_of_app ON count_deltas (app_id, written);
COMMENT ON COLUMN count_deltas.fields IS 'The generation up to which the writer knew declared fields of payloads.';

-- Where thousands of apps send, nearly every event of a commit group has a delta of its own, whose row and two index entries cost
-- PostgreSQL two thirds of what the event does. So the deltas of a group share rows: those of a minute and of one of four parts
-- of all apps, by the remainder of the app's id. The fold takes them as it takes those in count_deltas, and may add them up into it.
--
-- A reader of one app unpacks them once in its snapshot and tells the views what there is of the app, by settings of its transaction
-- (src/storage/read/snapshot.ts): each statement that reads counts would unpack them again. Without the settings the views unpack all of them.

CREATE TABLE grouped_deltas (
  part     smallint     NOT NULL,
  bucket   timestamptz  NOT NULL,
  apps     integer[]    NOT NULL,
  types    integer[]    NOT NULL,
  counts   integer[]    NOT NULL,
  written  xid8         NOT NULL DEFAULT pg_current_xact_id()
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX grouped_deltas_pending ON grouped_deltas (part, written);

-- The parts are as many as the writer makes (src/storage/engines/postgres/writes.ts).
CREATE FUNCTION every_part() RETURNS smallint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
  $$ SELECT '{0,1,2,3}'::smallint[] $$;
CREATE FUNCTION app_of_reader() RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE AS
  $$ SELECT nullif(current_setting('tidemark.app', true), '')::integer $$;

CREATE TABLE folds (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  pending_from  xid8     NOT NULL,
  running       xid8[]   NOT NULL DEFAULT '{}',
  groups_from     xid8   NOT NULL DEFAULT '0',
  groups_running  xid8[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE folds IS 'Deltas of transactions before pending_from are folded, except for those of the running ones.';
INSERT INTO folds (pending_from) VALUES ('0');

-- In a copy of the database on another server transactions are numbered anew: a number that is not given yet says nothing. Should
-- a running transaction have written deltas that are committed and not folded yet, readers begin at the oldest of these.
CREATE VIEW last_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(pending_from, (SELECT min(written) FROM count_deltas WHERE written = ANY (running)))
              ELSE '0'
         END AS pending_from,
         CASE WHEN groups_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(groups_from, (SELECT min(written) FROM grouped_deltas
                                        WHERE part = ANY (every_part()) AND written = ANY (groups_running)))
              ELSE '0'
         END AS groups_from
    FROM folds;

-- What a fold notes of its snapshot. Transactions that have begun a short while ago are nothing special.
CREATE VIEW next_fold AS
  SELECT coalesce(min(xid) FILTER (WHERE is_recent), newest)              AS pending_from,
         coalesce(array_agg(xid ORDER BY xid) FILTER (WHERE NOT is_recent), '{}') AS running
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS newest) AS snapshot
    LEFT JOIN LATERAL (
           SELECT xid, xid::text::bigint >= newest::text::bigint - 1000 AS is_recent
             FROM pg_snapshot_xip(pg_current_snapshot()) AS xid) AS transactions ON true
   GROUP BY newest;

-- Begins the snapshot of a reader of one app, or (null) of several. A session keeps the plans, which cost more than to find that there
-- are no rows.
CREATE FUNCTION tell_views(app integer) RETURNS void LANGUAGE plpgsql
  SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
  since xid8;
  folded_until xid8;
BEGIN
  SELECT pending_from, groups_from INTO folded_until, since FROM last_fold;
  PERFORM set_config('tidemark.pending_from', folded_until::text, true), set_config('tidemark.groups_from', since::text, true);
  IF app IS NULL THEN RETURN; END IF;
  PERFORM set_config('tidemark.app', app::text, true),
          set_config('tidemark.grouped', jsonb_agg(sums)::text, true)
     FROM (SELECT delta.type_id, bucket, sum(delta.count) AS count
             FROM grouped_deltas CROSS JOIN LATERAL unnest(apps, types, counts) AS delta (app_id, type_id, count)
            WHERE part = app % 4 AND written >= since AND apps @> ARRAY[app] AND delta.app_id = app
            GROUP BY 1, 2) AS sums;
END $$;

-- What shares rows, as the views need it. A function, because each statement that reads counts plans its views anew: this is one scan to
-- plan, where the two cases were two.
CREATE FUNCTION grouped_of_reader() RETURNS TABLE (app_id integer, type_id integer, bucket timestamptz, count bigint)
  LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 10 AS $$
DECLARE
  app integer := app_of_reader();
  grouped text;
BEGIN
  IF app IS NULL THEN
    RETURN QUERY
      SELECT delta.app_id, delta.type_id, pending.bucket, delta.count::bigint
        FROM grouped_deltas AS pending CROSS JOIN LATERAL unnest(apps, types, counts) AS delta (app_id, type_id, count)
       WHERE part = ANY (every_part())
         AND written >= coalesce(nullif(current_setting('tidemark.groups_from', true), ''), '0')::xid8;
    RETURN;
  END IF;
  grouped := nullif(current_setting('tidemark.grouped', true), '');
  IF grouped IS NULL THEN RETURN; END IF;
  RETURN QUERY
    SELECT app, known.type_id, known.bucket, known.count
      FROM jsonb_to_recordset(grouped::jsonb) AS known (type_id integer, bucket timestamptz, count bigint);
END $$;

CREATE VIEW pending_deltas AS
  SELECT app_id, type_id, bucket, count, fields FROM count_deltas
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_from', true), ''), '0')::xid8
  UNION ALL
  SELECT app_id, type_id, bucket, count, 0 FROM grouped_of_reader();
-- Minutes of apps with rows whose writers knew the fields up to a generation; those of folded deltas are in uncounted_minutes.
CREATE VIEW stamped_minutes AS SELECT app_id, bucket, fields FROM pending_deltas;

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
CREATE TABLE month_counts        (LIKE minute_counts INCLUDING DEFAULTS, PRIMARY KEY (app_id, type_id, bucket)) WITH (fillfactor = 50);

CREATE VIEW events_per_minute AS
            SELECT app_id, type_id, bucket, count FROM minute_counts
  UNION ALL SELECT app_id, type_id, bucket, count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       bucket, count FROM pending_deltas;
CREATE VIEW events_per_quarter_hour AS
            SELECT app_id, type_id, bucket, count FROM quarter_hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('15 minutes', bucket, 'epoch'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_bin('15 minutes', bucket, 'epoch'), count FROM pending_deltas;
CREATE VIEW events_per_hour AS
            SELECT app_id, type_id, bucket, count FROM hour_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 hour', bucket, 'epoch'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_bin('1 hour', bucket, 'epoch'), count FROM pending_deltas;
CREATE VIEW events_per_day AS
            SELECT app_id, type_id, bucket, count FROM day_counts
  UNION ALL SELECT app_id, type_id, date_bin('1 day', bucket, 'epoch'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_bin('1 day', bucket, 'epoch'), count FROM pending_deltas;
CREATE VIEW events_per_month AS
            SELECT app_id, type_id, bucket, count FROM month_counts
  UNION ALL SELECT app_id, type_id, date_trunc('month', bucket, 'UTC'), count FROM pending_deltas
  UNION ALL SELECT app_id, 0,       date_trunc('month', bucket, 'UTC'), count FROM pending_deltas;

-- Counts without what is still to be folded: what profiles of days are made of.
CREATE VIEW settled_day_counts          AS SELECT app_id, type_id, bucket, count FROM day_counts;
CREATE VIEW settled_quarter_hour_counts AS SELECT app_id, type_id, bucket, count FROM quarter_hour_counts;

-- Buckets that readers must count from the level below. Here the views are always exact, so there are none.
CREATE VIEW stale_buckets AS SELECT 0::smallint AS level, NULL::timestamptz AS bucket WHERE false;
CREATE VIEW pending_marks AS SELECT level, bucket FROM stale_buckets;

-- A profile is one row per app, type and day with the running count after each of its quarter-hours. The count between
-- any two quarter-hours of a day is then one subtraction in one row, so a year of days, weeks or twelve-hour buckets in
-- whatever time zone (+05:45 too) is 365 rows a type in place of 35,040.
--
-- Profiles are made of days that are over. A day of an app has profiles while it is listed in profiled_days: a fold that
-- adds to such a day strikes it off in the same statement, and maintenance makes its profiles again.

CREATE TABLE daily_prefix_sums (
  app_id   integer     NOT NULL,
  type_id  integer     NOT NULL,
  day      timestamptz NOT NULL,
  running  integer[]   NOT NULL CHECK (cardinality(running) = 96),
  -- Read from the index alone, where a type's days lie side by side: 20 pages a year in place of 365.
  PRIMARY KEY (app_id, type_id, day) INCLUDE (running)
);
COMMENT ON COLUMN daily_prefix_sums.running IS 'The count from midnight (UTC) to the end of each quarter-hour: running[96] is the day''s.';

CREATE TABLE profiled_days (
  app_id  integer     NOT NULL,
  day     timestamptz NOT NULL,
  PRIMARY KEY (app_id, day)
);

-- Days of which the profiles tell everything: those with counts that are still to be folded do not yet. By equality, so that the
-- pending deltas are read once, and not for each day.
CREATE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM pending_deltas
                      WHERE pending_deltas.app_id = profiled_days.app_id AND date_bin('1 day', pending_deltas.bucket, 'epoch') = day);

-- Rows before readable_from are no longer read or counted in totals; their partitions are dropped some time later.
CREATE TABLE retention (
  only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  readable_from  timestamptz NOT NULL
);
INSERT INTO retention (readable_from) VALUES ('-infinity');

-- The last two weeks and the future have partitions by day, before that this year and the one before by month, older time by
-- year: so what is dated back over years makes tens of partitions and not thousands.

-- The partitions of events with their bounds, which need not follow from their names.
CREATE VIEW events_partitions AS
  SELECT inhrelid::regclass AS partition,
         CASE WHEN bounds[1] = 'MINVALUE' THEN '-infinity' ELSE trim(bounds[1], '''') END::timestamptz AS start,
         CASE WHEN bounds[2] = 'MAXVALUE' THEN 'infinity'  ELSE trim(bounds[2], '''') END::timestamptz AS finish
    FROM pg_inherits
    JOIN pg_class ON pg_class.oid = inhrelid
   CROSS JOIN LATERAL regexp_match(pg_get_expr(relpartbound, inhrelid), '^FOR VALUES FROM \((.*)\) TO \((.*)\)$') AS bounds
   WHERE inhparent = 'events'::regclass AND bounds IS NOT NULL;

-- Tables that were partitions and were detached, by their names: they keep their days.
CREATE VIEW detached_events_partitions AS
  SELECT pg_class.oid::regclass AS partition,
         to_date(days[1], 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS start,
         coalesce(to_date(days[2], 'YYYYMMDD'), to_date(days[1], 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' AS finish
    FROM pg_class
   CROSS JOIN LATERAL regexp_match(relname, '^events_(\d{8})(?:_(\d{8}))?$') AS days
   WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND days IS NOT NULL
     AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = pg_class.oid AND inhparent = 'events'::regclass);

-- Makes room for events of a day: the widest partition that its age allows and its neighbors leave room for. A day whose
-- partition was detached gets no other one, which would keep that from being attached again.
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
  FOR taken IN SELECT partition, start, finish, true AS attached FROM events_partitions
                UNION ALL SELECT partition, start, finish, false FROM detached_events_partitions
  LOOP
    IF taken.start <= midnight AND taken.finish > midnight THEN
      IF taken.attached THEN RETURN; END IF;
      -- As a row without a partition fails, so that it is understood as that.
      RAISE EXCEPTION 'the table % holds the events of % and is not attached to the table events', taken.partition, day
            USING ERRCODE = 'check_violation';
    END IF;
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

-- The partition of a day, unless a wider one holds it. Attaching a finished table takes a weaker lock on events than CREATE TABLE …
-- PARTITION OF: readers and writers go on.
CREATE FUNCTION create_events_partition(day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  partition text := 'events_' || to_char(day, 'YYYYMMDD');
  lower_bound timestamptz := day::timestamp AT TIME ZONE 'UTC';
  upper_bound timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('tidemark partitions'));
  IF to_regclass(partition) IS NOT NULL THEN RETURN; END IF;
  IF EXISTS (SELECT FROM events_partitions WHERE start <= lower_bound AND finish > lower_bound) THEN RETURN; END IF;
  EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
  EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition, lower_bound, upper_bound);
END $$;

-- What reads of events need of their types. In a cluster it is a table beside the events of each app.
CREATE VIEW type_names AS SELECT app_id, id, public_id, name FROM event_types;

-- Of TimescaleDB, where counts of removed rows are kept apart. Here they stay where they are.
CREATE VIEW outlived_counts AS
  SELECT NULL::integer AS app_id, NULL::integer AS type_id, NULL::timestamptz AS bucket, NULL::bigint AS count WHERE false;

-- Where a table lies whose rows belong to apps: on one server as it is made.
CREATE FUNCTION beside_events(name regclass) RETURNS void LANGUAGE sql AS '';
