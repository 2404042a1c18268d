-- Beside the previous release: yes
-- Apps and accounts that the operator has suspended, and how far the audit log was written to AUDIT_LOG.

ALTER TABLE apps ADD COLUMN suspended_at timestamptz;
COMMENT ON COLUMN apps.suspended_at IS 'Since when nothing is written to it or read from it; NULL: it is not suspended.';

ALTER TABLE users ADD COLUMN suspended_at timestamptz;
COMMENT ON COLUMN users.suspended_at IS 'Since when the account cannot sign in, and its resource tokens are refused; NULL: it is not suspended.';

-- A suspension changes what cached tokens may read.
CREATE TRIGGER notify_change AFTER UPDATE OF suspended_at ON users
  FOR EACH STATEMENT EXECUTE FUNCTION notify_change();

CREATE TABLE audit_log_position (
  id             boolean  PRIMARY KEY DEFAULT true CHECK (id),
  last_entry_id  bigint   NOT NULL
);
COMMENT ON TABLE audit_log_position IS 'At most one row: the last of audit_entries that was written to AUDIT_LOG.';
