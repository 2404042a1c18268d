-- Beside the previous release: yes
-- A session that has written something and stays open is among the running transactions of every snapshot. A fold could only
-- note that deltas of older transactions are folded, so readers and folds went through the dead rows of all later ones.
--
-- So a fold notes such transactions one by one. Should one of them have written deltas that are committed and not folded yet,
-- readers begin at the oldest of these.

ALTER TABLE folds ADD COLUMN running xid8[] NOT NULL DEFAULT '{}';
COMMENT ON TABLE folds IS 'Deltas of transactions before pending_from are folded, except for those of the running ones.';

CREATE OR REPLACE VIEW last_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(pending_from, (SELECT min(written) FROM count_deltas WHERE written = ANY (running)))
              ELSE '0'
         END AS pending_from
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

-- As on TimescaleDB: the stale buckets that this snapshot has to look at.
CREATE VIEW pending_marks AS SELECT level, bucket FROM stale_buckets;
