-- Beside the previous release: yes
-- Who revoked a resource token, so that the revocation can be undone.

ALTER TABLE resource_tokens ADD COLUMN revoked_by integer;
COMMENT ON COLUMN resource_tokens.revoked_by IS 'The account that revoked it, by its internal id; 0: the command line, or several. NULL: it is not revoked, or for good, because its creator''s membership ended.';
