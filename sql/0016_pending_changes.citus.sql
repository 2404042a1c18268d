-- Beside the previous release: yes
-- Answers of keyed requests are on the node of the events that they answer for.
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
SELECT create_distributed_table('idempotency_keys', 'app_id', colocate_with => 'events');

-- Of PostgreSQL without a cluster, where a reader's snapshot tells which deltas need not be looked at. Transactions have other
-- numbers on each node, and a delta that is written by way of another node has that one's: here all of them are looked at.
CREATE VIEW last_fold AS SELECT '0'::xid8 AS pending_from;
