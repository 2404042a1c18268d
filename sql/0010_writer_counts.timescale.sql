-- The writer marks the minutes that it touches itself, in the transaction of the rows: no trigger does so any more.
DROP TRIGGER mark_stale_minutes ON events;
DROP FUNCTION mark_stale_minutes();
