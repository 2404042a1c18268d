-- Readers lock this table (ACCESS SHARE) before they take a snapshot of events and counts, and keep the lock until they are
-- done. What changes where rows are found without regard to older snapshots, as recompression on TimescaleDB does, takes it
-- in ACCESS EXCLUSIVE mode just before its commit: so no snapshot is in use at that moment. It has no rows.
CREATE TABLE snapshot_lock ();
COMMENT ON TABLE snapshot_lock IS 'Readers of events and counts lock it before their snapshot; recompression locks them out at its commit.';
