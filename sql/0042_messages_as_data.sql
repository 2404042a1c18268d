-- Beside the previous release: yes
-- It cannot send a message that has no body, and tries again: the next process sends it.
-- A message of an alert waits as what it says, and gets its body when it is sent. Those of 0.1.0 have a body.
ALTER TABLE delivery_messages
  ALTER COLUMN body DROP NOT NULL,
  ADD COLUMN said text,
  ADD CONSTRAINT delivery_messages_says CHECK (num_nonnulls(body, said) = 1);
COMMENT ON COLUMN delivery_messages.said IS 'JSON: the alert, its rule and the transitions; NULL: the body is stored.';
