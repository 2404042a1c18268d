-- What lies beside the events of its app, on every engine: beside_events (0002) says where that is.

-- Counts of declared fields. One family of tables has what is kept of values, numbers, different values and pairs.
--
-- How these counts stay exact: a fold, or a mark that is lifted, notes the minutes of apps with fields in uncounted_minutes, in the
-- statement that takes the delta or mark away. Maintenance makes a noted minute what its rows say, and coarser buckets what the finer
-- ones say, in one transaction that takes the note away. So in every snapshot a minute is counted, or readers know that it is not.

-- Minutes of apps that have rows whose fields are not counted.
CREATE TABLE uncounted_minutes (
  app_id  integer      NOT NULL,
  bucket  timestamptz  NOT NULL
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX uncounted_minutes_of_app ON uncounted_minutes (app_id, bucket);

CREATE TABLE field_minute_counts (
  app_id     integer      NOT NULL,
  series_id  integer      NOT NULL,
  bucket     timestamptz  NOT NULL,
  count      bigint       NOT NULL,
  summary    bytea,
  PRIMARY KEY (app_id, series_id, bucket)
) WITH (fillfactor = 85);
CREATE INDEX field_minute_counts_by_time ON field_minute_counts USING brin (bucket) WITH (pages_per_range = 32);
-- Maintenance and readers look for all series of a minute.
CREATE INDEX field_minute_counts_of_minute ON field_minute_counts (app_id, bucket, series_id);

CREATE TABLE field_quarter_hour_counts (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_hour_counts         (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 70);
CREATE TABLE field_day_counts          (LIKE field_minute_counts, PRIMARY KEY (app_id, series_id, bucket)) WITH (fillfactor = 50);
-- Months have no summaries.
CREATE TABLE field_month_counts (
  app_id     integer      NOT NULL,
  series_id  integer      NOT NULL,
  bucket     timestamptz  NOT NULL,
  count      bigint       NOT NULL,
  PRIMARY KEY (app_id, series_id, bucket)
) WITH (fillfactor = 50);
COMMENT ON COLUMN field_minute_counts.summary IS 'Of numbers: their count, exact sum, minimum, maximum and a sketch; of different values: a set or a sketch. NULL for counts of values.';

-- Consumers of an app's events in commit order. Webhooks are consumers, too.
--
-- A tick is a snapshot: it says which transactions had been committed. Maintenance notes one for each app that has consumers, in
-- the statement that folds the app's deltas (on TimescaleDB, that reads its marks), with the minutes in which events were
-- committed since the tick before. A consumer's position is a tick, and the last event that it has acknowledged of the next
-- one. The events of a tick are the rows of its minutes that are visible in its snapshot and not in that of the tick
-- before: none is missed, however late its transaction commits. Between two reads a consumer holds no snapshot.

CREATE TABLE consumers (
  app_id       integer      NOT NULL,
  name         text         COLLATE "C" NOT NULL,
  kind         text         NOT NULL CHECK (kind IN ('consumer', 'webhook')),
  types        text[]       NOT NULL DEFAULT '{}',
  filter       text[]       NOT NULL DEFAULT '{}',
  created_at   timestamptz  NOT NULL DEFAULT now(),
  tick         bigint       NOT NULL,
  position     text         NOT NULL,
  lost_at      timestamptz,
  lease        bigint       NOT NULL DEFAULT 0,
  leased_until timestamptz,
  leased_to    text,
  delivered    bigint       NOT NULL DEFAULT 0,
  deliveries   integer      NOT NULL DEFAULT 0,
  PRIMARY KEY (app_id, name)
) WITH (fillfactor = 50);
COMMENT ON COLUMN consumers.tick      IS 'Everything up to this tick is acknowledged.';
COMMENT ON COLUMN consumers.position  IS 'The tick, with the last acknowledged event after it, as text.';
COMMENT ON COLUMN consumers.lease     IS 'The epoch of the newest lease: an older one cannot acknowledge.';
COMMENT ON COLUMN consumers.leased_to IS 'The position after the leased batch; null: nothing is leased.';
COMMENT ON COLUMN consumers.deliveries IS 'How often a batch was handed out since the position moved last.';

CREATE TABLE feed_ticks (
  app_id    integer        NOT NULL,
  tick      bigint         NOT NULL,
  at        timestamptz    NOT NULL DEFAULT clock_timestamp(),
  place     bigint         NOT NULL DEFAULT 0,
  snapshot  text           NOT NULL,
  minutes   timestamptz[]  NOT NULL,
  counts    bigint[]       NOT NULL,
  PRIMARY KEY (app_id, tick)
);
COMMENT ON COLUMN feed_ticks.tick   IS 'The transaction that noted it.';
COMMENT ON COLUMN feed_ticks.place  IS 'Which table the rows were in: another one has other transactions. 0 on one server.';
COMMENT ON COLUMN feed_ticks.counts IS 'At most so many events of each minute are new; 0 where that is not known.';

-- Minutes that events were added to, by what does not leave deltas or marks until the next tick. App 0: any app.
CREATE TABLE changed_minutes (
  app_id  integer      NOT NULL,
  bucket  timestamptz  NOT NULL
);

-- From where on the events of single apps and types can be read. Of it and of the boundary of all apps (the table retention) the later
-- one applies. It never moves back.
CREATE TABLE app_boundaries (
  app_id         integer      NOT NULL,
  type_id        integer      NOT NULL,
  readable_from  timestamptz  NOT NULL,
  removed_until  timestamptz  NOT NULL DEFAULT '-infinity',
  moved_at       timestamptz  NOT NULL,
  PRIMARY KEY (app_id, type_id)
);
COMMENT ON COLUMN app_boundaries.type_id       IS '0: all types of the app that have no row of their own.';
COMMENT ON COLUMN app_boundaries.readable_from IS 'Events before it are no longer read; their rows are removed some time later, and their counts stay.';
COMMENT ON COLUMN app_boundaries.removed_until IS 'Rows before it are removed.';
COMMENT ON COLUMN app_boundaries.moved_at      IS 'When readable_from came to where it is.';

-- The ids of erased events, written by the transaction that erases them: the receipt is made of them, and a backup that is restored
-- later loses the same events again.
CREATE TABLE erased_events (
  app_id      integer      NOT NULL,
  erasure_id  integer      NOT NULL,
  id          uuid         NOT NULL,
  created_at  timestamptz  NOT NULL,
  PRIMARY KEY (app_id, erasure_id, created_at, id)
);

-- Days whose rows are in the archive and nowhere else. It is read in the very snapshots in which the rows are.

CREATE TABLE archived_parts (
  app_id     integer      NOT NULL,
  day        date         NOT NULL,
  part       integer      NOT NULL,
  key        text         NOT NULL,
  events     bigint       NOT NULL,
  bytes      bigint       NOT NULL,
  groups     jsonb        NOT NULL,
  footer     text         NOT NULL,
  wanted_at  timestamptz,
  PRIMARY KEY (app_id, day, part)
);
COMMENT ON TABLE archived_parts IS 'The objects of days (UTC) whose rows have left: what events has of such a day came later. A day has all of its parts here, or none.';
COMMENT ON COLUMN archived_parts.groups IS 'The row groups of the object, in order: [{"at", "id", "lastAt", "lastId", "types": {"<type_id>": events}, "start", "end", "sha256"}]; bytes from start to before end.';
COMMENT ON COLUMN archived_parts.footer IS 'SHA-256 of the bytes after the last group, in hexadecimal.';
COMMENT ON COLUMN archived_parts.wanted_at IS 'When somebody needed the rows of the day: it is brought back. NULL: nobody does.';

SELECT beside_events(name)
  FROM unnest('{uncounted_minutes,field_minute_counts,field_quarter_hour_counts,field_hour_counts,field_day_counts,field_month_counts,
                consumers,feed_ticks,changed_minutes,app_boundaries,erased_events,archived_parts}'::regclass[]) AS name;

CREATE VIEW fields_per_minute       AS SELECT app_id, series_id AS type_id, bucket, count FROM field_minute_counts;
CREATE VIEW fields_per_quarter_hour AS SELECT app_id, series_id AS type_id, bucket, count FROM field_quarter_hour_counts;
CREATE VIEW fields_per_hour         AS SELECT app_id, series_id AS type_id, bucket, count FROM field_hour_counts;
CREATE VIEW fields_per_day          AS SELECT app_id, series_id AS type_id, bucket, count FROM field_day_counts;
CREATE VIEW fields_per_month        AS SELECT app_id, series_id AS type_id, bucket, count FROM field_month_counts;
