-- Beside the previous release: yes
-- Event types whose events charts show as annotations.

ALTER TABLE event_types ADD COLUMN annotates_at timestamptz;
COMMENT ON COLUMN event_types.annotates_at IS 'Since when charts mark each event of the type, as an annotation; NULL: they do not.';
