-- Beside the previous release: yes
-- The fields that writers count. In a cluster they are not the same.
CREATE VIEW written_fields AS
  SELECT id, app_id, type_id, path, kind FROM declared_fields WHERE generation > 0 AND removed_at IS NULL;
