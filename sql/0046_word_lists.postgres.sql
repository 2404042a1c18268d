-- Beside the previous release: yes

-- A day that leaves for the archive, or comes back, has the same events: its lists stay.
DROP TRIGGER unlist_leaving_days ON archived_parts;
DROP TRIGGER unlist_returning_days ON archived_parts;

-- Lists are made anew in another code: once nothing is left of the earlier ones, readers go by them again.
DELETE FROM word_states;
