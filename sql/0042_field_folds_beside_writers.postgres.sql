-- Beside the previous release: yes
-- Filtered reads skip the deltas of fields that are folded, beside transactions that stay open too. As for the deltas of events
-- (sql/0028): a fold notes the running transactions one by one.

ALTER TABLE field_folds ADD COLUMN running xid8[] NOT NULL DEFAULT '{}';
COMMENT ON TABLE field_folds IS 'Deltas of fields of transactions before pending_from are folded, except for those of the running ones.';

CREATE OR REPLACE VIEW last_field_fold AS
  SELECT CASE WHEN pending_from <= pg_snapshot_xmax(pg_current_snapshot())
              THEN least(pending_from, (SELECT min(written) FROM field_deltas WHERE written = ANY (running)))
              ELSE '0'
         END AS pending_from
    FROM field_folds;
