-- Beside the previous release: yes
-- Types that charts leave out until they are asked for. Their events are counted and listed as ever.
ALTER TABLE event_types ADD COLUMN hidden_at timestamptz;
COMMENT ON COLUMN event_types.hidden_at IS 'Since when charts leave the type out; NULL: they show it.';
