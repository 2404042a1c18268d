-- Beside the previous release: yes
-- Alerts that were changed in place keep what they said.

ALTER TABLE alert_rules ADD COLUMN changed_at timestamptz;
COMMENT ON COLUMN alert_rules.changed_at IS 'Since when the rule says what it says; NULL: since it was added. Earlier minutes are not judged by it.';
