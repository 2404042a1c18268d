-- Beside the previous release: yes
-- (it queues messages for webhooks that are stopped, as before)
-- Since what was said last a webhook is stopped: no messages of alerts are made for it, and once it goes on it is told what is current.

ALTER TABLE webhooks ADD COLUMN stopped_after bigint;
COMMENT ON COLUMN webhooks.stopped_after IS 'The last transition of an alert before it was paused or disabled; NULL: it has been told what came later.';
UPDATE webhooks SET stopped_after = coalesce((SELECT max(id) FROM alert_transitions), 0) WHERE state <> 'active';
