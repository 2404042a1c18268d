-- The last of the first release. A backup of a version before it has a schema from 28 on, whose rows are those of the files up to
-- here: what came with 30 and 32 is filled in. A new database has no such rows.

-- Webhooks and alerts belong to the present members who made them; the others to the operator.
UPDATE webhooks SET created_by = made.user_id
  FROM audit_entries AS made JOIN app_members AS member ON member.app_id = made.app_id AND member.user_id = made.user_id
 WHERE made.app_id = webhooks.app_id AND made.action = 'webhook.add' AND made.details ->> 'webhookId' = webhooks.public_id;
UPDATE alert_rules SET created_by = made.user_id
  FROM audit_entries AS made JOIN app_members AS member ON member.app_id = made.app_id AND member.user_id = made.user_id
 WHERE made.app_id = alert_rules.app_id AND made.action = 'alert.add' AND made.details ->> 'alertId' = alert_rules.public_id;
-- Where nobody is noted to have opened an app, everybody has.
UPDATE app_members SET opened_at = added_at WHERE NOT EXISTS (SELECT FROM app_members WHERE opened_at IS NOT NULL);
UPDATE webhooks SET stopped_after = coalesce((SELECT max(id) FROM alert_transitions), 0) WHERE state <> 'active' AND stopped_after IS NULL;

-- Summaries of numbers without sums of squares are counted again, where the rows are there to count. In a cluster all fields of a backup
-- are counted anew.
DO $$ BEGIN
  IF 'citus' = (SELECT value FROM installation WHERE name = 'engine') THEN RETURN; END IF;
  INSERT INTO uncounted_minutes (app_id, bucket)
  SELECT DISTINCT counted.app_id, counted.bucket
    FROM field_minute_counts AS counted
    JOIN field_series AS series ON series.id = counted.series_id AND series.value = 'number'
   WHERE get_byte(counted.summary, 0) = 1
     AND NOT EXISTS (SELECT FROM app_boundaries WHERE app_boundaries.app_id = counted.app_id AND counted.bucket < readable_from)
     AND (counted.app_id, (counted.bucket AT TIME ZONE 'UTC')::date) NOT IN (SELECT app_id, day FROM archived_days);
END $$;
