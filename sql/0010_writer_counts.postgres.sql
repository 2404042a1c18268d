-- The writer adds to the counts itself, in the transaction of the rows: no trigger does so any more.
DROP TRIGGER count_new_events ON events;
DROP FUNCTION count_new_events();
