-- Beside the previous release: yes
-- As on TimescaleDB: the stale buckets that this snapshot has to look at.
CREATE VIEW pending_marks AS SELECT level, bucket FROM stale_buckets;
