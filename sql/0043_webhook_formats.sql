-- Beside the previous release: yes
-- It sends the signed form to a chat tool, which refuses it: the message is tried again, and a newer process sends it.
ALTER TABLE webhooks ADD COLUMN format text NOT NULL DEFAULT 'standard';
COMMENT ON COLUMN webhooks.format IS 'standard: signed JSON; else the chat tool whose form messages of alerts have.';
