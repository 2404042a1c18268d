-- Beside the previous release: yes
-- How late events arrive, by type: alerts say by it which delay they need. Counted as usage is, and removed after a day.

CREATE TABLE late_events (
  type_id  integer     NOT NULL,
  hour     timestamptz NOT NULL,
  up_to    smallint    NOT NULL,
  events   bigint      NOT NULL,
  PRIMARY KEY (type_id, hour, up_to)
) WITH (fillfactor = 70);
COMMENT ON COLUMN late_events.hour  IS 'In which they arrived.';
COMMENT ON COLUMN late_events.up_to IS 'Minutes between their own time and their arrival, at most.';
CREATE INDEX late_events_by_age ON late_events (hour);
