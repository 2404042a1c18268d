-- Beside the previous release: yes
-- Readers and maintenance skip the marks that are gone. A snapshot that stays in use, such as that of a pg_dump, keeps their dead
-- rows in the table, a hundred a second, and each read would go through them.
--
-- As on PostgreSQL for deltas (there 0016 and 0028): each mark has the id of its transaction. Maintenance writes all marks anew
-- in one statement and notes which transactions were running in its snapshot: in any later snapshot, marks of others that are
-- older are gone. A reader tells the views by a setting of its transaction, which it takes from its own snapshot; without the
-- setting they read all marks, with the same result.

ALTER TABLE stale_buckets ADD COLUMN written xid8 NOT NULL DEFAULT pg_current_xact_id();
-- New entries go to its end, beyond those of dead rows.
CREATE INDEX stale_buckets_pending ON stale_buckets (written, bucket, level);

CREATE TABLE folds (
  only_row      boolean  PRIMARY KEY DEFAULT true CHECK (only_row),
  pending_from  xid8     NOT NULL,
  running       xid8[]   NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE folds IS 'Marks of transactions before pending_from are gone, except for those of the running ones.';
INSERT INTO folds (pending_from) VALUES ('0');

-- In a copy of the database on another server transactions are numbered anew: a number that is not given yet says nothing.
CREATE OR REPLACE VIEW last_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(pending_from, (SELECT min(written) FROM stale_buckets WHERE written = ANY (running)))
              ELSE '0'
         END AS pending_from
    FROM folds;

-- What maintenance notes of its snapshot. Transactions that have begun a short while ago are nothing special.
CREATE VIEW next_fold AS
  SELECT coalesce(min(xid) FILTER (WHERE is_recent), newest)              AS pending_from,
         coalesce(array_agg(xid ORDER BY xid) FILTER (WHERE NOT is_recent), '{}') AS running
    FROM (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS newest) AS snapshot
    LEFT JOIN LATERAL (
           SELECT xid, xid::text::bigint >= newest::text::bigint - 1000 AS is_recent
             FROM pg_snapshot_xip(pg_current_snapshot()) AS xid) AS transactions ON true
   GROUP BY newest;

CREATE VIEW pending_marks AS
  SELECT level, bucket FROM stale_buckets
   WHERE written >= coalesce(nullif(current_setting('tidemark.pending_from', true), ''), '0')::xid8;

CREATE OR REPLACE VIEW ready_profiles AS
  SELECT app_id, day FROM profiled_days
   WHERE NOT EXISTS (SELECT FROM pending_marks WHERE date_bin('1 day', bucket, 'epoch') = day);
