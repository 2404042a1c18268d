-- Counts without what is still to be settled (folded): what profiles of days are made of.
CREATE VIEW settled_day_counts          AS SELECT app_id, type_id, bucket, count FROM day_counts;
CREATE VIEW settled_quarter_hour_counts AS SELECT app_id, type_id, bucket, count FROM quarter_hour_counts;
