-- Beside the previous release: yes
-- How often a consumer has handed out what comes next, so that a client sees that it fails at it.

ALTER TABLE consumers ADD COLUMN deliveries integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN consumers.deliveries IS 'How often a batch was handed out since the position moved last.';
