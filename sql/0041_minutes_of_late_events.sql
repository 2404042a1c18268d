-- Beside the previous release: yes

-- What is sent again or afterwards comes within a few minutes, whatever time it is of; a producer that is late is late in each minute.
-- The previous release counts late events without their minutes, and reads none.
ALTER TABLE late_events ADD COLUMN minutes bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN late_events.minutes IS 'In which minutes of the hour they arrived: bit 0 is its first.';
