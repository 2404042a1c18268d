-- Beside the previous release: yes
-- The counts by the minute take about half as much as the compressed events that they count: their older chunks go to the
-- columnstore too. Maintenance compresses them, as it does those of events.
ALTER MATERIALIZED VIEW minute_counts SET (
  timescaledb.enable_columnstore = true,
  timescaledb.segmentby = 'app_id, type_id',
  timescaledb.orderby = 'bucket'
);
ALTER MATERIALIZED VIEW app_minute_counts SET (
  timescaledb.enable_columnstore = true,
  timescaledb.segmentby = 'app_id',
  timescaledb.orderby = 'bucket'
);

-- As on PostgreSQL, for readers that ask. Here marks are not told apart by their transactions: everything may be pending.
CREATE VIEW last_fold AS SELECT '0'::xid8 AS pending_from;
