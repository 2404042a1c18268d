-- Beside the previous release: yes
-- Partitions of months and years for events of long ago, so that what is dated back over years makes tens of partitions and
-- not thousands. The last two weeks and the future have partitions by day, before that this year and the one before by month,
-- older time by year. Partitions that exist stay as they are.

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

-- As before, and does nothing for a day that a wider partition holds.
CREATE OR REPLACE FUNCTION create_events_partition(day date) RETURNS void LANGUAGE plpgsql AS $$
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
