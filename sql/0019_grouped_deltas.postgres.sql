-- Beside the previous release: yes
--
-- Where thousands of apps send, nearly every event of a commit group has a delta of its own, whose row and two index entries cost
-- PostgreSQL two thirds of what the event does. So the deltas of a group share rows: those of a minute and of one of four parts
-- of all apps, by the remainder of the app's id. The fold takes them as it takes those in count_deltas, and may add them up into it.
--
-- A reader of one app unpacks them once in its snapshot and tells the views what there is of the app, by settings of its transaction
-- (read/snapshot.ts): each statement that reads counts would unpack them again. Without the settings the views unpack all of them.

CREATE TABLE grouped_deltas (
  part     smallint     NOT NULL,
  bucket   timestamptz  NOT NULL,
  apps     integer[]    NOT NULL,
  types    integer[]    NOT NULL,
  counts   integer[]    NOT NULL,
  written  xid8         NOT NULL DEFAULT pg_current_xact_id()
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX grouped_deltas_pending ON grouped_deltas (part, written);

-- The parts are as many as the writer makes (engines/postgres/writes.ts).
CREATE FUNCTION every_part() RETURNS smallint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
  $$ SELECT '{0,1,2,3}'::smallint[] $$;
CREATE FUNCTION app_of_reader() RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE AS
  $$ SELECT nullif(current_setting('tidemark.app', true), '')::integer $$;

-- Noted apart from pending_from: a process of an earlier release folds count_deltas alone.
ALTER TABLE folds ADD COLUMN groups_from xid8 NOT NULL DEFAULT '0', ADD COLUMN groups_running xid8[] NOT NULL DEFAULT '{}';
CREATE OR REPLACE VIEW last_fold AS
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

CREATE OR REPLACE VIEW pending_deltas AS
  SELECT app_id, type_id, bucket, count, fields FROM count_deltas
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_from', true), ''), '0')::xid8
  UNION ALL
  SELECT app_id, type_id, bucket, count, 0 FROM grouped_of_reader();
