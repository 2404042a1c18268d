-- The writer adds to the counts itself, in the transaction of the rows: distributed tables have no triggers.
COMMENT ON TABLE count_deltas IS 'What transactions add to the minutes, written by the writer of the rows.';
