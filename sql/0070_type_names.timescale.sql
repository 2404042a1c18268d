-- Beside the previous release: yes
-- What reads of events need of their types. In a cluster it is a table beside the events of each app.
CREATE VIEW type_names AS SELECT app_id, id, public_id, name FROM event_types;
