-- Counts without what is still to be settled (folded): what profiles of days are made of. On TimescaleDB, where days are
-- profiled from now on too, these are what its aggregates have materialised.
CREATE VIEW settled_day_counts          AS SELECT app_id, type_id, bucket, count FROM day_counts;
CREATE VIEW settled_quarter_hour_counts AS SELECT app_id, type_id, bucket, count FROM quarter_hour_counts;
