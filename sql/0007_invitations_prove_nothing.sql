-- An invitation link is seen by the inviter, so following one no longer proves an e-mail address. Resource tokens and
-- members remember where they come from, so that a removal ends everything that a member could come back or read with.

-- Both were written with the time of one transaction: an account whose proof has the very time of its invitation's
-- acceptance was proved by nothing else. It stays a member of its apps.
UPDATE users SET email_proved_at = NULL
 WHERE EXISTS (SELECT FROM audit_entries AS entry
                WHERE entry.user_id = users.id AND entry.action = 'invitation.accept' AND entry.at = users.email_proved_at);
COMMENT ON COLUMN users.email_proved_at IS 'When the owner of the address followed a link that was mailed there and shown to nobody else, or an operator vouched for it.';
COMMENT ON COLUMN account_links.proves_email IS 'Whether following it proves the address: it was mailed there and shown to nobody else, or an operator handed it over.';

ALTER TABLE app_members ADD COLUMN invited_key text COLLATE "C";
COMMENT ON COLUMN app_members.invited_key IS 'The key of the address that the accepted invitation was for, which may be another one than the account''s. NULL where the member was added without a link.';

ALTER TABLE resource_tokens ADD COLUMN created_by integer REFERENCES users ON DELETE SET NULL;
CREATE INDEX resource_tokens_of_user ON resource_tokens (created_by) WHERE created_by IS NOT NULL;
COMMENT ON COLUMN resource_tokens.created_by IS 'The account that made it. NULL: the command line, or an account that is gone.';
UPDATE resource_tokens SET created_by = users.id
  FROM audit_entries AS entry JOIN users ON users.id = entry.user_id
 WHERE entry.action = 'resource-token.create' AND entry.details ->> 'tokenId' = resource_tokens.public_id;
