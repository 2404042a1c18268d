-- Beside the previous release: yes
-- Partitions of months and years for events of long ago: each partition is a table for every shard.

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

-- As before, and does nothing for a day that a wider partition holds.
CREATE OR REPLACE FUNCTION create_events_partition(day date) RETURNS void LANGUAGE plpgsql AS $$
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
