-- Beside the previous release: yes
-- Chunks of months and years for events of long ago, so that what is dated back over years makes tens of chunks and not
-- thousands. The last two weeks and the future have chunks of CHUNK_HOURS, before that this year and the one before by month,
-- older time by year, as far as the chunks that exist leave room.
--
-- Called before events of past days are inserted. Where it cannot make a chunk, TimescaleDB makes one of CHUNK_HOURS for the
-- rows when they come.
CREATE FUNCTION make_room_for_events(day date, today date DEFAULT (now() AT TIME ZONE 'UTC')::date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  midnight timestamptz := day::timestamp AT TIME ZONE 'UTC';
  by_day_from date := today - 14;
  width text := CASE WHEN day >= date_trunc('year', today - interval '1 year') THEN 'month' ELSE 'year' END;
  lower_bound timestamptz := date_trunc(width, day::timestamp) AT TIME ZONE 'UTC';
  upper_bound timestamptz := (date_trunc(width, day::timestamp) + ('1 ' || width)::interval) AT TIME ZONE 'UTC';
  chunk record;
BEGIN
  IF day >= by_day_from THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtext('tidemark partitions'));
  upper_bound := least(upper_bound, by_day_from::timestamp AT TIME ZONE 'UTC');
  FOR chunk IN SELECT range_start AS start, range_end AS finish FROM timescaledb_information.chunks
                WHERE hypertable_schema = current_schema() AND hypertable_name = 'events'
  LOOP
    -- A day that a chunk holds, even a part of it, needs no other one.
    IF chunk.start < midnight + interval '1 day' AND chunk.finish > midnight THEN RETURN; END IF;
    IF chunk.finish <= midnight THEN lower_bound := greatest(lower_bound, chunk.finish); END IF;
    IF chunk.start > midnight THEN upper_bound := least(upper_bound, chunk.start); END IF;
  END LOOP;
  PERFORM _timescaledb_functions.create_chunk('events'::regclass, jsonb_build_object('created_at', jsonb_build_array(
            (extract(epoch FROM lower_bound) * 1000000)::bigint, (extract(epoch FROM upper_bound) * 1000000)::bigint)));
EXCEPTION
  WHEN undefined_function THEN RETURN;
END $$;
