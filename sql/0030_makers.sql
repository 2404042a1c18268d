-- Beside the previous release: yes
-- Who made what sends data out of an app, and which members have opened theirs.

-- No reference: the id of an account that is gone belongs to no member, so that what it made sends nothing.
ALTER TABLE webhooks ADD COLUMN created_by integer;
COMMENT ON COLUMN webhooks.created_by IS 'The account that it sends for: nothing while that may not use the app. NULL: the operator.';
ALTER TABLE alert_rules ADD COLUMN created_by integer;
COMMENT ON COLUMN alert_rules.created_by IS 'The account that its Alertmanager is told for: nothing while that may not use the app. NULL: the operator.';

-- Of those that were made before, what present members made.
UPDATE webhooks SET created_by = made.user_id
  FROM audit_entries AS made JOIN app_members AS member ON member.app_id = made.app_id AND member.user_id = made.user_id
 WHERE made.app_id = webhooks.app_id AND made.action = 'webhook.add' AND made.details ->> 'webhookId' = webhooks.public_id;
UPDATE alert_rules SET created_by = made.user_id
  FROM audit_entries AS made JOIN app_members AS member ON member.app_id = made.app_id AND member.user_id = made.user_id
 WHERE made.app_id = alert_rules.app_id AND made.action = 'alert.add' AND made.details ->> 'alertId' = alert_rules.public_id;

ALTER TABLE app_members ADD COLUMN opened_at timestamptz;
COMMENT ON COLUMN app_members.opened_at IS 'When the member accepted the invitation or opened the app first; NULL: not yet, and alerts mail nothing to them, unless they own it.';
UPDATE app_members SET opened_at = added_at;

ALTER TABLE delivery_messages ADD COLUMN failing_since timestamptz;
COMMENT ON COLUMN delivery_messages.failing_since IS 'The first of the failed tries; NULL: none has failed.';
-- Who is sent to next is looked for by the oldest message of each target.
CREATE INDEX delivery_messages_of_app ON delivery_messages (app_id, channel, target, id);
